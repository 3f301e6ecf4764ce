"""Steps that a run trains again after a worker was killed: the same numbers bit for bit, or the run
ends and says so.

usage: repeated_test.py BIN_DIR
"""
import contextlib
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import Cluster, expect_equal, text_for_training, wait_for  # noqa: E402

STEPS, CHECKPOINT_EVERY = 70, 20
FLAGS = ("--set", "recovery.attempts=5", "--set", f"checkpoint.every={CHECKPOINT_EVERY}",
         "--set", "train.microbatches=16", "--set", "pipeline.stages=2")


@contextlib.contextmanager
def environment(**variables):
    """Sets variables of the processes that start meanwhile."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def submit(cluster, name):
    return cluster.cli("submit", cluster.write_run(name, steps=STEPS), *FLAGS).stdout.split()[0]


def rows(cluster, run):
    return {int(row["step"]): row
            for row in map(json.loads, cluster.cli("steps", run, "--json").stdout.splitlines())}


def wait_for_end(cluster, run):
    return wait_for("the end", lambda: (s := cluster.seen(run))["state"] in (
        "done", "failed", "stopped") and s)


def expect_state(cluster, run, state):
    status = wait_for_end(cluster, run)
    if status["state"] != state:
        raise AssertionError(f"{run} is {status['state']}: {status.get('reason')}\n"
                             + cluster.cli("events", run).stdout)
    return status


def expect_event(cluster, run, *words):
    events = cluster.cli("events", run).stdout.splitlines()
    found = next((event for event in events if all(word in event for word in words)), None)
    if found is None:
        raise AssertionError(f"expected an event with {words}, got\n" + "\n".join(events))
    print(f"ok: {found}", flush=True)


def kill_behind_checkpoint(cluster, run, checkpoint, **variables):
    """Kills worker 2 some steps behind that checkpoint, and starts it again in this environment."""
    wait_for("later steps", lambda: (s := cluster.seen(run)) and int(s.get("step", 0)) >= checkpoint + 4
             and int(s.get("checkpoint_step", 0)) >= checkpoint)
    cluster.kill("worker2")
    before = rows(cluster, run)
    with environment(**variables):
        cluster.start_worker(2)
    return before


def the_same(cluster, unbroken):
    run = submit(cluster, "same")
    kill_behind_checkpoint(cluster, run, CHECKPOINT_EVERY)
    expect_state(cluster, run, "done")
    expect_event(cluster, run, f"steps {CHECKPOINT_EVERY + 1} to",
                 "were repeated and gave the same losses, bit for bit")
    expect_equal("killed and gone on by itself", cluster.losses(run), unbroken)


def wrong(cluster, unbroken):
    """After its learning rate of step 41 was wrong, step 42 has another loss."""
    run = submit(cluster, "wrong")
    before = kill_behind_checkpoint(
        cluster, run, 2 * CHECKPOINT_EVERY,
        LD_PRELOAD=str(cluster.programs / "liblonghaul_wrong_cosine.so"))
    status = expect_state(cluster, run, "failed")
    step = 2 * CHECKPOINT_EVERY + 2
    wanted = (f"step {step} was repeated and gave other numbers",
              f"the loss was {before[step]['loss']} and is ", "worker worker2 (stage 1)",
              f"--resume goes on from step {2 * CHECKPOINT_EVERY}")
    if not all(words in status["reason"] for words in wanted):
        raise AssertionError(f"expected {wanted}, got {status['reason']}")
    print(f"ok: {status['reason']}", flush=True)
    if rows(cluster, run)[step] != before[step]:
        raise AssertionError(f"the row of step {step} is another one")
    # On a worker that is well again.
    cluster.kill("worker2")
    cluster.start_worker(2)
    wait_for("both workers", lambda: len(cluster.connected()) == 2)
    cluster.cli("submit", cluster.write_run("wrong", steps=STEPS), *FLAGS, "--resume")
    expect_state(cluster, run, "done")
    expect_equal("resumed with a worker that is well", cluster.losses(run), unbroken)


def elsewhere(cluster):
    """The worker comes back with other kernels, as on another device: no alarm, whatever they give."""
    run = submit(cluster, "elsewhere")
    before = kill_behind_checkpoint(cluster, run, CHECKPOINT_EVERY, ATEN_CPU_CAPABILITY="default")
    expect_state(cluster, run, "done")
    expect_event(cluster, run, f"steps {CHECKPOINT_EVERY + 1} to", "were repeated and gave")
    after, step = rows(cluster, run), CHECKPOINT_EVERY + 1
    if before[step]["numerics"] == after[step]["numerics"]:
        raise AssertionError(f"step {step} promises the same bits: {before[step]}")
    if before[step]["numerics"] == "0" or len(after[step]["squared_norms"]) != 2:
        raise AssertionError(f"expected numerics and two parts, got {before[step]}")


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with Cluster(sys.argv[1], folder, workers=2) as cluster:
            unbroken = submit(cluster, "unbroken")
            expect_state(cluster, unbroken, "done")
            losses = cluster.losses(unbroken)
            the_same(cluster, losses)
            wrong(cluster, losses)
            elsewhere(cluster)


if __name__ == "__main__":
    main()
