"""A standby takes over from coordinators that are killed and that hang, with real daemons.

usage: standby_test.py BIN_DIR

A run trains through two takeovers in one epoch. Its steps are all recorded, with the losses of an unbroken run. Each coordinator that comes
back finds out that it is none any more, and follows the other.
"""
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import NONE, RUN, Cluster, expect_equal, text_for_training, wait_for  # noqa: E402

STEPS = 30


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Pair(Cluster):
    """Two coordinators that take turns, `one` and `two`, and workers that know both."""

    def __init__(self, programs, folder, workers):
        self.addresses = {"one": free_address(), "two": free_address()}
        super().__init__(programs, folder, workers)

    def start(self, name, program, *arguments, cwd=None):
        if name == "coordinator":  # the first that the base class starts
            name, arguments = "one", ("--listen", self.addresses["one"])
            (pathlib.Path(self.folder) / "coordinator").symlink_to("one")
        if name.startswith("worker"):
            arguments = [self.both() if one == self.address else one for one in arguments]
        super().start(name, program, *arguments, cwd=cwd)

    def both(self):
        return ",".join(self.addresses.values())

    def cli(self, *arguments, **options):
        address, self.address = self.address, self.both()
        try:
            return super().cli(*arguments, **options)
        finally:
            self.address = address

    def follow(self, name, leader):
        self.start(name, "longhaul-coordinator", "--listen", self.addresses[name],
                   "--standby", self.addresses[leader])
        wait_for(f"{name} to have all", lambda: self.leadership(name).get("whole"))

    def leadership(self, name):
        path = self.folder / name / "leadership.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()


def submit(cluster, name, steps):
    text_for_training(cluster.folder)
    path = cluster.folder / f"{name}.yaml"
    path.write_text(RUN.format(name=name, steps=steps, stages=2, schedule="1f1b", transport="grpc", links=NONE))
    return cluster.cli("submit", path, "--set", "train.schedule.kind=constant").stdout.split()[0]


def steps_of(cluster, run):
    return {int(step["step"]): step for step in map(json.loads, cluster.cli("steps", run, "--json").stdout.splitlines())}


def await_takeover(cluster, name, run, since):
    """By coordinator `name`, which was not there before; until the run has steps that are newer than it."""
    wait_for(f"{name} to take over", lambda: cluster.leadership(name).get("role") == "coordinator")
    wait_for("an answer", lambda: cluster.cli("ps", check=False).returncode == 0)
    answered = time.monotonic() - since
    at = cluster.step(run)
    wait_for("more steps", lambda: cluster.step(run) > at)
    print(f"ok: {name} answered after {answered:.1f} s, and had a new step after {time.monotonic() - since:.1f} s",
          flush=True)


def expect_end(cluster, name):
    process = cluster.processes[name]
    assert process.wait(timeout=60) == 1, process.returncode
    assert "another coordinator has taken over" in cluster.log(name), cluster.log(name)[-1000:]
    assert cluster.leadership(name)["role"] == "fenced"


def killed(cluster, run):
    """The machine is gone; its state directory comes back later."""
    wait_for("some steps", lambda: cluster.step(run) > 5)
    began = time.monotonic()
    cluster.kill("one")
    await_takeover(cluster, "two", run, began)
    cluster.start("one", "longhaul-coordinator", "--listen", cluster.addresses["one"])
    expect_end(cluster, "one")
    assert cluster.leadership("one")["successor"] == cluster.addresses["two"]
    print("ok: the old one, come back, is fenced", flush=True)


def hung(cluster, run):
    """It stands still with open connections, and goes on after another has taken over."""
    cluster.follow("one", "two")
    began = time.monotonic()
    cluster.processes["two"].send_signal(signal.SIGSTOP)
    await_takeover(cluster, "one", run, began)
    cluster.processes["two"].send_signal(signal.SIGCONT)
    expect_end(cluster, "two")
    print("ok: one that hung is fenced when it goes on", flush=True)


def lagging(cluster):
    """A standby that has been started since it followed last does not know what it missed."""
    cluster.kill("one")
    stale = subprocess.run([cluster.programs / "longhaul-coordinator", "--state-dir", cluster.folder / "two",
                            "--listen", cluster.addresses["two"]], capture_output=True, text=True, check=False, timeout=60)
    assert stale.returncode == 1 and "another coordinator has taken over" in stale.stderr, stale
    cluster.start("two", "longhaul-coordinator", "--listen", cluster.addresses["two"], "--standby",
                  cluster.addresses["one"])
    wait_for("it to wait", lambda: cluster.leadership("two").get("role") == "standby")
    refused = cluster.cli("ps", check=False)
    assert refused.returncode != 0, refused.stdout
    cluster.processes["two"].terminate()
    assert cluster.processes["two"].wait(timeout=60) == 0
    assert not cluster.leadership("two")["whole"]
    cluster.start("two", "longhaul-coordinator", "--listen", cluster.addresses["two"], "--force")
    wait_for("an answer", lambda: cluster.cli("ps", check=False).returncode == 0)
    assert cluster.leadership("two")["term"] > 1e9, cluster.leadership("two")
    print("ok: one that lagged serves when it is forced, and not before", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-standby-") as folder, Pair(sys.argv[1], folder, 2) as cluster:
        whole = submit(cluster, "whole", STEPS)
        wait_for("the unbroken run", lambda: cluster.status(whole)["state"] == "done")
        unbroken = steps_of(cluster, whole)
        cluster.follow("two", "one")
        run = submit(cluster, "kept", 1_000_000)
        killed(cluster, run)
        hung(cluster, run)
        cluster.cli("stop", run)
        wait_for("the stop", lambda: cluster.status(run)["state"] == "stopped")
        status, got = cluster.status(run), steps_of(cluster, run)
        assert int(status["epoch"]) == 1, status["epoch"]
        assert sorted(got) == list(range(min(got), max(got) + 1)), "some steps are not recorded"
        first = range(1, STEPS + 1)
        expect_equal("losses over two takeovers", [got[step]["loss"] for step in first],
                     [unbroken[step]["loss"] for step in first])
        # Each coordinator has what those before it have written into the audit log.
        did = [json.loads(line)["action"] for line in cluster.cli("audit", "--json").stdout.splitlines()]
        assert [did.count(action) for action in ("submit", "takeover", "stop")] == [2, 2, 1] and "join" in did, did
        lagging(cluster)


if __name__ == "__main__":
    main()
