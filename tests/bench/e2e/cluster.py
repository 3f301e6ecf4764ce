"""A local cluster for the length of a `with` block, and runs on it.

with Cluster(programs, workers=4, rate="10mbit") as cluster:
    run = cluster.train(RUN_FILE, {"train.steps": 12})
    run.step_seconds(after=2)
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/sweep"))
from longhaul_sweep import cluster  # noqa: E402
from longhaul_sweep.cluster import LONGEST_RUN_S, Failed, call  # noqa: E402, F401 (for benchmarks)

RUN_FILE = ROOT / "deploy/runs/bench_4x256.yaml"
MODEL = {"context": 256, "hidden": 256}  # of that file, as far as sizes depend on it
TRAIN = {"microbatches": 16, "microbatch_size": 1}

CODECS = {
    "none": {"links.forward": "none", "links.backward": "none"},
    "paper": {"links": "paper"},
    "tah4": {"links.forward": "tah",
             "links.backward": "fixed:bits=4,rounding=stochastic"},
}
# More of them, for losses.
CODEC_PAIRS = {
    **CODECS,
    "default": {"links": "default"},
    "gauss": {**CODECS["tah4"], "links.forward": "gauss"},
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

NAME = f"bench{os.getpid()}"  # several may run


class Run:
    """One that has ended well."""

    def __init__(self, status, steps):
        self.status, self.steps = status, steps
        self.plan = status["plan"]
        self.prediction = self.plan["prediction"]

    def step_seconds(self, after):
        return [step["seconds"] for step in self.steps if step["step"] > after]


class Cluster(cluster.Cluster):
    """Workers compute on the CPU unless they are told."""

    def __init__(self, programs, workers, rate="unlimited", device="cpu", name=NAME, folder=None,
                 devices_per_worker=1, worker_program=None):
        super().__init__(
            pathlib.Path(programs) / "longhaul", name, workers, ["--rate", rate], device, folder,
            [*(["--devices-per-worker", devices_per_worker] if devices_per_worker > 1 else []),
             *(["--worker-program", worker_program] if worker_program else [])])

    def set_rate(self, rate, worker="all"):
        self.set_links(["--rate", rate], worker)

    def submit(self, file, changes, resume=False):
        # Runs may be shorter than the file's warm-up of the learning rate, which costs no time.
        changes = {"train.schedule.warmup": 0, **changes}
        settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
        return self.cli("submit", file, *settings, *(["--resume"] if resume else []),
                        timeout=LONGEST_RUN_S).split()[0]

    def train(self, file, changes):
        run = self.submit(file, changes)
        # Exits with 1 where the run fails; its status then says why. Silent while it waits.
        subprocess.run([self.program, "watch", run, *self.access, "--json"], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=LONGEST_RUN_S)
        status = self.wait_for(run, "its end", lambda status: status["state"] == "done")
        return Run(status, self.lines("steps", run))
