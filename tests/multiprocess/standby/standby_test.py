"""Two coordinators and a witness, with real daemons: one of the two is killed or stopped, and the other one takes over.

usage: standby_test.py BIN_DIR

A run trains through two takeovers in one epoch. Its steps are all recorded, with the losses of an unbroken run, and a run that was submitted
right before the leader was killed is there. Each coordinator that comes back follows the other. Without the witness nobody takes over.
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

    def follow(self, name, leader, flag="--standby"):
        self.start(name, "longhaul-coordinator", "--listen", self.addresses[name], flag, self.addresses[leader])

    def watch(self):
        """Starts the witness, which joins if it has not yet."""
        token = self.folder / "witness-token"
        if not token.exists():
            token.touch(mode=0o600)
            token.write_text(self.cli("token", "create", "--role", "witness").stdout)
        log = open(self.folder / "witness.log", "a", encoding="utf-8")
        self.processes["witness"] = subprocess.Popen(
            [self.programs / "longhaul-coordinator", "witness", "--coordinator", self.both(), "--state-dir",
             self.folder / "witness", "--token-file", token], stdout=log, stderr=log)

    def in_sync(self, leader):
        """Whether every change waits for both, and the witness knows it."""
        record = self.folder / "witness" / "witness.json"
        return (self.leadership(leader).get("role") == "coordinator" and len(self.leadership(leader).get("in_sync", [])) == 2
                and record.exists() and len(json.loads(record.read_text())["in_sync"]) == 2)

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


def killed(cluster, run):
    """The machine is gone; its state directory comes back later. Returns a run that was submitted right before."""
    wait_for("some steps", lambda: cluster.step(run) > 5)
    wait_for("both to be in sync", lambda: cluster.in_sync("one"))
    last = submit(cluster, "last", 10)
    wait_for("both to be in sync", lambda: cluster.in_sync("one"))  # a slow disk may have kept the standby behind
    began = time.monotonic()
    cluster.kill("one")
    await_takeover(cluster, "two", run, began)
    assert cluster.status(last)["state"] in ("waiting", "queued", "planning"), cluster.status(last)
    print("ok: a run that was submitted right before is there", flush=True)
    # Without a flag: its records name the other one.
    cluster.start("one", "longhaul-coordinator", "--listen", cluster.addresses["one"])
    wait_for("the old one to follow", lambda: cluster.in_sync("two"))
    assert cluster.leadership("one")["role"] == "standby", cluster.leadership("one")
    assert "resumes after change" in cluster.log("two"), cluster.log("two")[-1000:]
    print("ok: the old one, come back, follows", flush=True)
    return last


def hung(cluster, run):
    """It stands still with open connections, and goes on after another has taken over."""
    began = time.monotonic()
    cluster.processes["two"].send_signal(signal.SIGSTOP)
    await_takeover(cluster, "one", run, began)
    cluster.processes["two"].send_signal(signal.SIGCONT)
    # The same process, which has begun anew.
    wait_for("the one that hung to follow", lambda: cluster.in_sync("one"))
    assert cluster.processes["two"].poll() is None
    assert "another coordinator leads" in cluster.log("two"), cluster.log("two")[-1000:]
    print("ok: one that hung follows when it goes on", flush=True)


def unwatched(cluster):
    """Nobody takes over without the witness, and the leader that comes back does not lead without it, either."""
    cluster.kill("witness")
    cluster.kill("one")
    cluster.follow("one", "two", "--peer")
    wait_for("it to wait", lambda: "standby of" in cluster.log("one").splitlines()[-1])
    refused = cluster.cli("ps", check=False)
    assert refused.returncode != 0, refused.stdout
    assert cluster.leadership("two")["role"] == "standby"
    cluster.watch()
    wait_for("the witness to elect it", lambda: cluster.cli("ps", check=False).returncode == 0)
    assert cluster.leadership("one")["role"] == "coordinator", cluster.leadership("one")
    print("ok: nobody leads without two of the three", flush=True)


def forced(cluster):
    """A person may lead with what a standby has."""
    wait_for("both to be in sync", lambda: cluster.in_sync("one"))
    for name in ("one", "two", "witness"):
        cluster.kill(name)
    alone = subprocess.run([cluster.programs / "longhaul-coordinator", "--state-dir", cluster.folder / "two",
                            "--listen", cluster.addresses["two"]], capture_output=True, text=True, check=False, timeout=60)
    assert alone.returncode == 1 and "--force serves now with what it has" in alone.stderr, alone
    cluster.start("two", "longhaul-coordinator", "--listen", cluster.addresses["two"], "--force")
    wait_for("an answer", lambda: cluster.cli("ps", check=False).returncode == 0)
    assert cluster.leadership("two")["term"] > 1e9, cluster.leadership("two")
    print("ok: a standby leads when it is forced, and not before", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-standby-") as folder, Pair(sys.argv[1], folder, 2) as cluster:
        whole = submit(cluster, "whole", STEPS)
        wait_for("the unbroken run", lambda: cluster.status(whole)["state"] == "done")
        unbroken = steps_of(cluster, whole)
        cluster.follow("two", "one")
        cluster.watch()
        run = submit(cluster, "kept", 1_000_000)
        last = killed(cluster, run)
        hung(cluster, run)
        for one in (last, run):
            cluster.cli("stop", one)
            wait_for("the stop", lambda one=one: cluster.status(one)["state"] == "stopped")
        status, got = cluster.status(run), steps_of(cluster, run)
        assert int(status["epoch"]) == 1, status["epoch"]
        assert sorted(got) == list(range(min(got), max(got) + 1)), "some steps are not recorded"
        first = range(1, STEPS + 1)
        expect_equal("losses over two takeovers", [got[step]["loss"] for step in first],
                     [unbroken[step]["loss"] for step in first])
        # Each coordinator has what those before it have written into the audit log, but for the submit right before
        # the kill: entries are written a moment after the fact.
        did = [json.loads(line)["action"] for line in cluster.cli("audit", "--json").stdout.splitlines()]
        assert did.count("submit") in (2, 3) and did.count("takeover") == did.count("stop") == 2 and "join" in did, did
        unwatched(cluster)
        forced(cluster)


if __name__ == "__main__":
    main()
