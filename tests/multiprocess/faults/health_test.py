"""Workers that hang, and workers that keep dying: runs go on by themselves.

usage: health_test.py BIN_DIR hung|flapping
"""
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import Cluster, expect_equal, text_for_training, wait_for  # noqa: E402

STEPS = 100
# A hang of a thread is found after so long; steps take a few hundredths of it.
PROGRESS_TIMEOUT_S = 2


class HangingCluster(Cluster):
    """The compute thread of a worker hangs when the file of its name appears."""

    def start(self, name, program, *arguments, **options):
        if not name.startswith("worker"):
            return super().start(name, program, *arguments, **options)
        os.environ["LD_PRELOAD"] = str(self.programs / "liblonghaul_hang.so")
        os.environ["LONGHAUL_TEST_HANG"] = str(self.hang(name))
        try:
            return super().start(name, program, *arguments, "--progress-timeout",
                                 str(PROGRESS_TIMEOUT_S), **options)
        finally:
            del os.environ["LD_PRELOAD"], os.environ["LONGHAUL_TEST_HANG"]

    def hang(self, name):
        return self.folder / f"{name}.hang"


def events(cluster, run):
    return [json.loads(line)["text"]
            for line in cluster.cli("events", run, "--json").stdout.splitlines()]


def event_with(cluster, run, *words):
    return wait_for(f"an event with {words}", lambda: next(
        (text for text in events(cluster, run) if all(word in text for word in words)), None))


def wait_for_step(cluster, run, step, epoch):
    def there():
        status = cluster.status(run)
        if status["state"] in ("failed", "done", "stopped"):
            raise AssertionError(f"{status['state']} before step {step}: {status.get('reason')}\n"
                                 + "\n".join(events(cluster, run)))
        return int(status.get("epoch", 0)) >= epoch and int(status.get("step", 0)) >= step
    wait_for(f"step {step} of epoch {epoch}", there)


def expect_done(cluster, run, unbroken, what):
    status = wait_for("the end", lambda: (s := cluster.status(run))["state"] in ("done", "failed")
                      and s)
    if status["state"] != "done":
        raise AssertionError(f"{status['state']}: {status['reason']}\n"
                             + "\n".join(events(cluster, run)))
    expect_equal(what, cluster.losses(run), unbroken)
    return status


def hung(folder, programs):
    """A compute thread that never comes back, twice: its worker says where, and restarts itself."""
    with HangingCluster(programs, folder, workers=4) as cluster:
        unbroken = cluster.train("unbroken", steps=STEPS)
        path = cluster.write_run("hung", steps=STEPS)
        run = cluster.cli("submit", path, "--set", "recovery.attempts=5", "--set",
                          "checkpoint.every=8").stdout.split()[0]
        for epoch, worker in ((1, "worker3"), (2, "worker1")):
            wait_for_step(cluster, run, 20 * epoch, epoch)
            pid = next(w["pid"] for w in cluster.connected() if w["name"] == worker)
            before = next(w["incarnation"] for w in cluster.connected() if w["name"] == worker)
            cluster.hang(worker).touch()
            said = event_with(cluster, run, worker, "has made no progress for", "in step", ": ")
            print(f"ok: {said}", flush=True)
            wait_for("the next incarnation", lambda: any(
                w["name"] == worker and w["incarnation"] != before and w["pid"] == pid
                for w in cluster.connected()))
            event_with(cluster, run, f"epoch {epoch + 1} goes on from step")
        expect_done(cluster, run, unbroken, "two hangs")
        if any(process.poll() is not None for process in cluster.processes.values()):
            raise AssertionError("a daemon has ended")


def flapping(folder, programs):
    """The same worker dies again and again: the run goes on without it."""
    with Cluster(programs, folder, workers=5) as cluster:
        unbroken = cluster.train("unbroken", steps=STEPS)
        path = cluster.write_run("flapping", steps=STEPS)
        # Without checkpoints between the losses they are in a row.
        run = cluster.cli("submit", path, "--set", "recovery.attempts=5", "--set",
                          "checkpoint.every=1000").stdout.split()[0]
        for epoch in (1, 2):
            wait_for_step(cluster, run, 3, epoch)
            cluster.kill("worker2")
            cluster.start_worker(2)
        print(f"ok: {event_with(cluster, run, 'worker2 was lost 2 times in', 'left out')}", flush=True)
        worker = next(w for w in json.loads(cluster.cli("workers", "--json").stdout)["workers"]
                      if w["name"] == "worker2")
        if not 0 < worker.get("left_out_seconds", 0) <= 30 or worker.get("losses") != 2:
            raise AssertionError(f"`workers` does not show that worker2 is left out: {worker}")
        if "left out" not in cluster.cli("workers").stdout:
            raise AssertionError(cluster.cli("workers").stdout)
        status = expect_done(cluster, run, unbroken, "a worker that keeps dying")
        names = [stage["worker_name"] for stage in status["stages"]]
        if "worker2" in names or "worker5" not in names:
            raise AssertionError(f"it ended on {names}")


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        {"hung": hung, "flapping": flapping}[sys.argv[2]](folder, sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
