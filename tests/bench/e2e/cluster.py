"""A local cluster for the length of a `with` block, and runs on it.

with Cluster(programs, workers=4, rate="10mbit") as cluster:
    run = cluster.train(RUN_FILE, {"train.steps": 12})
    run.step_seconds(after=2)
"""
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
RUN_FILE = ROOT / "deploy/runs/bench_4x256.yaml"
MODEL = {"context": 256, "hidden": 256}  # of that file, as far as sizes depend on it
TRAIN = {"microbatches": 16, "microbatch_size": 1}

CODECS = {
    "none": {"links.forward": "none", "links.backward": "none"},
    "paper": {"links": "paper"},
    "default": {"links.forward": "tah",
                "links.backward": "fixed:bits=4,rounding=stochastic"},
}
# More of them, for losses.
CODEC_PAIRS = {
    **CODECS,
    "gauss": {**CODECS["default"], "links.forward": "gauss"},
    "gauss-fixed3": {"links.forward": "gauss",
                     "links.backward": "fixed:bits=3,rounding=stochastic"},
    "aqsgd": {"links.forward": "aqsgd:bits=4", "links.backward": "fixed:bits=8"},
    "predict4": {"links.forward": "predict/gauss:bits=4",
                 "links.backward": "fixed:bits=3,rounding=stochastic"},
    "predict3": {"links.forward": "predict/gauss:bits=3",
                 "links.backward": "fixed:bits=3,rounding=stochastic"},
    "fixed4-nearest": {"links.forward": "fixed:bits=4,rounding=nearest",
                       "links.backward": "fixed:bits=4,rounding=nearest"},
}

# A run that takes longer than this hangs.
LONGEST_RUN_S = 900
NAME = f"bench{os.getpid()}"  # several may run


class Failed(Exception):
    """A sentence for people."""


def call(command, timeout=120):
    """Standard output of a program that succeeds."""
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, check=False)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


class Run:
    """One that has ended well."""

    def __init__(self, status, steps):
        self.status, self.steps = status, steps
        self.plan = status["plan"]
        self.prediction = self.plan["prediction"]

    def step_seconds(self, after):
        return [step["seconds"] for step in self.steps if step["step"] > after]


class Cluster:
    """`folder` outlives the cluster, and a later one goes on with its runs; default: none does.
    What a killed program has left of a cluster of that name goes first."""

    def __init__(self, programs, workers, rate="unlimited", device="cpu", name=NAME, folder=None,
                 devices_per_worker=1, worker_program=None):
        self.program = pathlib.Path(programs) / "longhaul"
        self.workers, self.rate, self.name = workers, rate, name
        self.folder = ["--dir", folder] if folder else []
        # Workers compute on the CPU unless they are told.
        self.device = [] if device == "cpu" else ["--device", device]
        if devices_per_worker > 1:
            self.device += ["--devices-per-worker", devices_per_worker]
        if worker_program:
            self.device += ["--worker-program", worker_program]
        self.access = []

    def __enter__(self):
        self._down()
        try:
            call([self.program, "cluster", "up", "--name", self.name, "--workers", self.workers,
                  "--rate", self.rate, *self.device, *self.folder])
        except BaseException:
            self._down()
            raise
        state = self.state()
        self.access = ["--coordinator", state["coordinator"]["address"],
                       "--token-file", state["token_file"]]
        return self

    def __exit__(self, *_):
        self._down()

    def _down(self):
        done = subprocess.run([self.program, "cluster", "down", "--name", self.name], check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)

    def state(self):
        return json.loads(call([self.program, "cluster", "status", "--name", self.name, "--json"]))

    def pids(self):
        state = self.state()
        return [state["coordinator"]["pid"], *(worker["pid"] for worker in state["workers"])]

    def set_rate(self, rate, worker="all"):
        call([self.program, "cluster", "link", worker, "--name", self.name, "--rate", rate])

    def cli(self, *arguments, timeout=120):
        return call([self.program, *arguments, *self.access], timeout)

    def lines(self, *arguments):
        """Of a command that prints one JSON object a line."""
        return [json.loads(line) for line in self.cli(*arguments, "--json").splitlines()]

    def submit(self, file, changes, resume=False):
        # Runs may be shorter than the file's warm-up of the learning rate, which costs no time.
        changes = {"train.schedule.warmup": 0, **changes}
        settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        return self.cli("submit", file, *settings, *(["--resume"] if resume else []),
                        timeout=LONGEST_RUN_S).split()[0]

    def status(self, run):
        return json.loads(self.cli("status", run, "--json"))

    def wait_for(self, run, what, condition, longest_s=LONGEST_RUN_S, pause_s=0.05, wake=None):
        """Looks at the run's status until `condition` holds; gives that status. The event `wake` ends a
        pause early."""
        wake = wake or threading.Event()
        end = time.monotonic() + longest_s
        while time.monotonic() < end:
            status = self.status(run)
            if condition(status):
                return status
            if status["state"] in ("failed", "stopped"):
                raise Failed(f"run {run} {status['state']}: {status['reason']}")
            wake.wait(pause_s)
        raise Failed(f"run {run}: waited {longest_s} s in vain for {what}")

    def train(self, file, changes):
        run = self.submit(file, changes)
        # Exits with 1 where the run fails; its status then says why. Silent while it waits.
        subprocess.run([self.program, "watch", run, *self.access, "--json"], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=LONGEST_RUN_S)
        status = self.wait_for(run, "its end", lambda status: status["state"] == "done")
        return Run(status, self.lines("steps", run))
