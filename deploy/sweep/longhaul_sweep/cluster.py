"""A local cluster (`longhaul cluster up`) for the length of a `with` block, and runs on it.

with Cluster(program, "bench1", workers=4, rate="10mbit") as cluster:
    cluster.cli("submit", "run.yaml")
"""
import ctypes
import json
import signal
import subprocess
import sys
import threading
import time

# A run that takes longer than this hangs.
LONGEST_RUN_S = 900


class Failed(Exception):
    """A sentence for people."""


LIBC = ctypes.CDLL(None)  # before any fork: loading takes a lock that another thread may hold


def _die_with_parent():
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start(command, **options):
    """A process that no terminal interrupts, and that does not outlive this one."""
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, errors="replace",
                            stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent, **options)


def call(command, timeout=120, plain=False, environment=None):
    """Standard output of a program that succeeds. `plain`: where it fails, its own words alone say why."""
    with start(command, stderr=subprocess.PIPE, env=environment) as process:
        try:
            out, error = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0:
        return out
    words = error.strip()
    if plain and words:
        raise Failed(words)
    raise Failed(f"`{' '.join(map(str, command))}` ended with {process.returncode}:\n{words}")


class Cluster:
    """Every worker's link has the flags `link` ("--rate", "10mbit"). `folder` outlives the cluster, and a later one goes
    on with its runs; default: none does. What a killed program has left of a cluster of that name goes first."""

    def __init__(self, program, name, workers, link=(), device="cpu", folder=None, flags=()):
        self.program, self.name, self.workers, self.link = program, name, workers, tuple(link)
        self.flags = [*(["--dir", folder] if folder else []), *(["--device", device] if device != "cpu" else []), *flags]
        self.access = []
        self.environment = None  # of commands; None: this process's

    def __enter__(self):
        self.down()
        self.up()
        return self

    def __exit__(self, *_):
        try:
            self.down()
        except Failed as problem:
            print(problem, file=sys.stderr)

    def up(self):
        try:
            call([self.program, "cluster", "up", "--name", self.name, "--workers", self.workers, *self.link, *self.flags],
                 plain=True)
            state = self.state()
            self.access = ["--coordinator", state["coordinator"]["address"], "--token-file", state["token_file"]]
        except BaseException:
            self.down()
            raise

    def down(self):
        self.access = []
        call([self.program, "cluster", "down", "--name", self.name], plain=True)

    def is_up(self):
        return bool(self.access)

    def set_links(self, link, worker="all"):
        call([self.program, "cluster", "link", worker, "--name", self.name, *link], plain=True)

    def state(self):
        return json.loads(call([self.program, "cluster", "status", "--name", self.name, "--json"], plain=True))

    def pids(self):
        state = self.state()
        return [state["coordinator"]["pid"], *(worker["pid"] for worker in state["workers"])]

    def cli(self, *arguments, timeout=120, plain=False):
        return call([self.program, *arguments, *self.access], timeout, plain, self.environment)

    def lines(self, *arguments, plain=False):
        """The objects that a command prints, one a line."""
        return [json.loads(line) for line in self.cli(*arguments, "--json", plain=plain).splitlines()]

    def predict(self, run, rate, delay="0ms"):
        """What a step of the run's plan takes on links that are all alike: simulated, bound and floor in seconds."""
        return json.loads(self.cli("sweep-prediction", run, "--rate", rate, "--delay", delay, plain=True))

    def status(self, run):
        return json.loads(self.cli("status", run, "--json", plain=True))

    def watch(self, run):
        """A process that prints the run's status whenever it changes, until the run has ended."""
        return start([self.program, "watch", run, "--json", *self.access], stderr=subprocess.DEVNULL,
                     env=self.environment)

    def wait_for(self, run, what, condition, longest_s=LONGEST_RUN_S, pause_s=0.05, wake=None):
        """Looks at the run's status until `condition` holds; gives that status. The event `wake` ends a pause early."""
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
