"""What the machines of a run may do to it: wall clocks that jump, a coordinator's disk that is full.

usage: surroundings_test.py BIN_DIR clock-steps|full-store
"""
import json
import os
import pathlib
import re
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import (Cluster, Skipped, expect_equal, small_disk,  # noqa: E402
                           text_for_training, wait_for)

SKIPPED = 77
STEPS = 150
HOUR_S = 3600


class ShiftedCluster(Cluster):
    """Every daemon's wall clock can be moved, by the file of its name."""

    def start(self, name, program, *arguments, **options):
        if not self.clock(name).exists():
            self.shift(name, 0)
        os.environ["LD_PRELOAD"] = str(self.programs / "liblonghaul_clock_shift.so")
        os.environ["LONGHAUL_TEST_CLOCK_SHIFT"] = str(self.clock(name))
        try:
            super().start(name, program, *arguments, **options)
        finally:
            del os.environ["LD_PRELOAD"], os.environ["LONGHAUL_TEST_CLOCK_SHIFT"]

    def clock(self, name):
        return self.folder / f"{name}.clock"

    def shift(self, name, seconds):
        # In place: the daemon has mapped it.
        mode = "r+b" if self.clock(name).exists() else "wb"
        with open(self.clock(name), mode) as file:
            file.write(struct.pack("=q", seconds))


def events(cluster, run):
    return [json.loads(line) for line in cluster.cli("events", run, "--json").stdout.splitlines()]


def clock_steps(folder, programs):
    """Clocks jump by hours, forwards and backwards, while a run trains: nobody is given up."""
    with ShiftedCluster(programs, folder, workers=4) as cluster:
        unbroken = cluster.train("unbroken", steps=STEPS)
        run = cluster.cli("submit", cluster.write_run("shifted", steps=STEPS)).stdout.split()[0]
        jumps = [("coordinator", 5 * HOUR_S), ("worker1", -3 * HOUR_S), ("worker3", 2 * HOUR_S),
                 ("coordinator", -7 * HOUR_S), ("worker1", 9 * HOUR_S)]
        for daemon, seconds in jumps:
            at = cluster.step(run)
            wait_for("a step", lambda: cluster.step(run) > at)
            cluster.shift(daemon, seconds)
        wait_for("the end", lambda: cluster.seen(run)["state"] in ("done", "failed"))
        status = cluster.status(run)
        if status["state"] != "done":
            raise AssertionError(f"{status['state']}: {status['reason']}")
        expect_equal("clocks that jump", cluster.losses(run), unbroken)
        said = events(cluster, run)
        times = [int(event["unix_ms"]) for event in said]
        if max(times) - min(times) < HOUR_S * 1000:
            raise AssertionError(f"the coordinator's clock did not jump: {times}")
        # A process that stands still for seconds, as on a busy machine, is rightly suspected; clocks jump by hours.
        brief = re.compile(r"is suspect: silent for \d{1,2}(\.\d+)? ?m?s\b|is healthy again")
        alarms = [event for event in said if event["kind"] in ("link", "worker") and not brief.search(event["text"])]
        if alarms:
            raise AssertionError(f"false alarms: {alarms}")
        print("ok: no false alarm", flush=True)


def full_store(folder, programs):
    """The coordinator's disk is full: it gives up its reserve, and the run trains to its end. abuse/full_disk_test.py has
    what is refused meanwhile, and a disk on which nothing is left at all."""
    with small_disk(pathlib.Path(folder) / "coordinator") as disk, \
            Cluster(programs, folder, workers=4) as cluster:
        unbroken = cluster.train("unbroken", steps=STEPS)
        run = cluster.cli("submit", cluster.write_run("full", steps=STEPS)).stdout.split()[0]
        wait_for("a step", lambda: cluster.step(run) > 3)
        filler = disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        wait_for("the end", lambda: cluster.status(run)["state"] in ("done", "failed"))
        log = (pathlib.Path(folder) / "coordinator.log").read_text()
        if "DISK FULL" not in log or cluster.processes["coordinator"].poll() is not None:
            raise AssertionError(f"the coordinator does not say that the disk is full:\n{log[-500:]}")
        filler.unlink()
        if cluster.status(run)["state"] != "done":
            raise AssertionError(cluster.status(run)["reason"])
        expect_equal("a full store", cluster.losses(run), unbroken)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        try:
            {"clock-steps": clock_steps, "full-store": full_store}[sys.argv[2]](folder, sys.argv[1])
        except Skipped as why:
            print(f"skipped: {why}")
            return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
