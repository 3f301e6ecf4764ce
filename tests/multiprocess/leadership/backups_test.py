"""A backup is restored while workers carry out a newer attempt of its run: of a lone coordinator, and of a pair.

usage: backups_test.py BIN_DIR [lone] [pair]

The restored coordinator begins a newer term and an attempt above all that workers have seen. A worker that stood still
meanwhile, and wakes up in the old attempt, has no part in the new one. Losses are those of an unbroken run.
"""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from namespaces import OneMachine  # noqa: E402
from trio import Trio, expect_equal, other, wait_for  # noqa: E402

STEPS = 30  # of the unbroken run
WORKERS = 3


class Restored(Trio):
    """With a worker to spare, so that a run goes on without one that stands still."""

    def __init__(self, programs, folder, pair):
        self.pair = pair
        super().__init__(programs, folder, OneMachine(), witness=pair)
        self.start_worker(WORKERS)
        wait_for("the spare worker", lambda: len(self.connected()) == WORKERS)

    def start_seat(self, seat, *flags):
        if self.pair:
            return super().start_seat(seat, *flags)
        if seat == "one":
            return self.spawn("one", "longhaul-coordinator", "--listen", self.addresses["one"])

    def await_pair(self):
        if self.pair:
            super().await_pair()

    def both(self):
        return super().both() if self.pair else self.addresses["one"]

    def program(self, *arguments):
        done = subprocess.run([self.programs / "longhaul-coordinator", *arguments], capture_output=True, text=True,
                              check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        print(f"ok: {done.stdout.strip()}", flush=True)

    def now(self, run):
        """The run's status; {} while nobody answers."""
        done = self.cli("status", run, "--json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def trains_above(self, run, epoch):
        now = self.now(run)
        return now.get("state") == "running" and int(now["epoch"]) > epoch and now

    def checkpoints(self, run):
        said = json.loads(self.cli("checkpoints", run, "--json").stdout)
        return said["checkpoints"] if isinstance(said, dict) else said

    def obeyed(self, worker):
        return json.loads((self.folder / worker / "term").read_text())["term"]


def restore(trio, run):
    """Gives the attempt that trains in the end."""
    # The spare worker gets its stage from the coordinator's copies.
    wait_for("copies of a checkpoint", lambda: any(
        all(shard.get("copied") for shard in one["shards"]) for one in trio.checkpoints(run)))
    first = int(trio.now(run)["epoch"])
    trio.program("backup", trio.folder / "saved", "--blobs", "--state-dir", trio.folder / trio.leader())
    trio.kill("worker1")
    trio.start_worker(1)
    newer = int(wait_for("a newer attempt", lambda: trio.trains_above(run, first))["epoch"])
    term = trio.obeyed("worker1")
    # Nothing of the old coordinators is left, and one worker hears nothing of what comes now.
    sleeper = trio.processes["worker2"]
    sleeper.send_signal(signal.SIGSTOP)
    for name in ("one", "two", "witness") if trio.pair else ("one",):
        trio.kill(name)
    (trio.folder / "one").rename(trio.folder / "lost")
    trio.program("restore", trio.folder / "saved", "--state-dir", trio.folder / "one")
    trio.start_seat("one")
    began = wait_for("an attempt above the newer one", lambda: trio.trains_above(run, newer))
    names = [stage["worker_name"] for stage in began["stages"]]
    assert "worker2" not in names, names
    assert trio.obeyed("worker1") > term, "worker1 obeys no newer term"
    sleeper.send_signal(signal.SIGCONT)
    at = int(began["step"])
    wait_for("the one that stood still to be free", lambda: any(
        worker["name"] == "worker2" and not worker.get("run_id") for worker in trio.connected()))
    wait_for("more steps", lambda: int(trio.now(run).get("step", 0)) > at + 10)
    last = int(trio.now(run)["epoch"])
    assert trio.obeyed("worker2") > term, "worker2 obeys no newer term"
    assert "put back from an older copy" in trio.cli("events").stdout, "no event tells of it"
    print(f"ok: the backup was of attempt {first}, workers were at {newer}, and {last} trains on {' and '.join(names)}",
          flush=True)
    return last


def pair_again(trio, run):
    """The other old seat follows the restored one, and with a new witness it can take over."""
    trio.start_seat("two")
    wait_for("two to follow", lambda: "this standby has all" in trio.log("two").split("standby of")[-1])
    shutil.rmtree(trio.folder / "witness")
    trio.start_witness(anew=True)
    trio.await_pair()
    old = trio.leader()
    trio.kill(old)
    wait_for("the other one to lead", lambda: trio.leadership(other(old)).get("role") == "coordinator")
    at = int(wait_for("an answer", lambda: trio.now(run))["step"])
    wait_for("more steps", lambda: int(trio.now(run).get("step", 0)) > at)
    print("ok: the other old seat follows the restored one, and takes over", flush=True)


def case(programs, pair):
    with tempfile.TemporaryDirectory(prefix="longhaul-backups-") as folder, Restored(programs, folder, pair) as trio:
        whole = trio.submit("whole", STEPS)
        wait_for("the unbroken run", lambda: trio.status(whole)["state"] == "done")
        unbroken = trio.steps_of(whole)
        run = trio.submit("kept", 1_000_000, "--set", "recovery.attempts=100", "--set", "checkpoint.keep_copy=true",
                          "--set", "checkpoint.every=100")
        restore(trio, run)
        if pair:
            pair_again(trio, run)
        trio.cli("stop", run)
        wait_for("the stop", lambda: trio.status(run)["state"] == "stopped")
        got = trio.steps_of(run)
        first = [step for step in range(1, STEPS + 1) if step in got]
        assert first, "no step of the first ones is recorded"
        expect_equal("losses over the restore", [got[step]["loss"] for step in first],
                     [unbroken[step]["loss"] for step in first])


def main():
    programs, *names = sys.argv[1:]
    for name in names or ("lone", "pair"):
        case(programs, pair=name == "pair")


if __name__ == "__main__":
    main()
