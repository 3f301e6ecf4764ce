"""Workers that err on purpose (--rehearse) in runs that verify: the right one is named and evicted, and the run gives the
losses of an undisturbed one. An honest run has no event.

usage: verified_test.py BIN_DIR [case ...]
"""
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import GPUS, Cluster, expect_equal, text_for_training, wait_for  # noqa: E402

STEPS = 14
FLAGS = ("--set", "recovery.attempts=5", "--set", "checkpoint.every=4", "--set", "train.microbatches=8",
         "--set", "pipeline.stages=3", "--set", "links.measure=false")
if GPUS:  # the losses of two runs are compared bit for bit
    FLAGS += ("--set", "train.deterministic=true")
DIGESTS = ("--set", "verify.digests=sha256")


def submit(cluster, name, *flags):
    return cluster.cli("submit", cluster.write_run(name, steps=STEPS), *FLAGS, *flags).stdout.split()[0]


def expect_done(cluster, run):
    status = wait_for("the end", lambda: (s := cluster.seen(run))["state"] in ("done", "failed", "stopped") and s)
    if status["state"] != "done":
        raise AssertionError(f"{run} is {status['state']}: {status.get('reason')}\n" + cluster.cli("events", run).stdout)


def of_verification(cluster, run):
    events = [json.loads(line) for line in cluster.cli("events", run, "--json").stdout.splitlines()]
    return [event["text"] for event in events if event["kind"] == "verify"]


def expect_event(cluster, run, *words):
    events = of_verification(cluster, run)
    found = next((event for event in events if all(word in event for word in words)), None)
    if found is None:
        raise AssertionError(f"expected an event of verification with {words}, got\n" + "\n".join(events))
    print(f"ok: {found}", flush=True)


def expect_evicted(cluster, run, names):
    evicted = [event.split()[1] for event in of_verification(cluster, run) if " is evicted" in event]
    expect_equal("evicted workers", sorted(evicted), sorted(names))


def replace(cluster, number, *flags):
    """The worker is another process with these flags, and there is one worker more."""
    cluster.kill(f"worker{number}")
    cluster.start_worker(number, *flags)
    cluster.start_worker(len(cluster.processes))
    wait_for("the workers", lambda: len(cluster.connected()) == len(cluster.processes) - 1)


def honest(cluster, losses):
    run = submit(cluster, "honest", *DIGESTS, "--set", "verify.outliers=evict")
    expect_done(cluster, run)
    expect_equal("events", of_verification(cluster, run), [])
    expect_equal("losses", cluster.losses(run), losses)


def flipped_messages(cluster, losses):
    """What worker 2 sends is not what it reports: both neighbours contradict it, and it is named at once."""
    replace(cluster, 2, "--rehearse", "flip-sent:step=6")
    run = submit(cluster, "flipped", *DIGESTS)
    expect_done(cluster, run)
    expect_event(cluster, run, "disagrees about step 6", "worker2 (stage 1)")
    expect_evicted(cluster, run, ["worker2"])
    expect_equal("losses", cluster.losses(run), losses)
    for worker in ("worker1", "worker2"):
        evidence = list((cluster.folder / worker / "evidence" / run).iterdir())
        if not all(one.name.startswith("epoch1-step6-edge") for one in evidence) or not evidence:
            raise AssertionError(f"expected messages of step 6 as evidence of {worker}, got {evidence}")


def flipped_state(cluster, losses):
    """A bit of worker 3's parameters flips between two updates."""
    replace(cluster, 3, "--rehearse", "flip-state:step=7")
    run = submit(cluster, "state", "--set", "verify.digests=xxh3")
    expect_done(cluster, run)
    expect_event(cluster, run, "parameters or optimizer state of worker worker3",
                 "between the updates of steps 6 and 7")
    expect_evicted(cluster, run, ["worker3"])
    expect_equal("losses", cluster.losses(run), losses)


def implausible(cluster, losses):
    """Worker 4 sends gradients a thousand times too large, again when the step is repeated."""
    replace(cluster, 4, "--rehearse", "scale-sent:step=11,direction=backward")
    run = submit(cluster, "implausible", "--set", "verify.outliers=evict")
    expect_done(cluster, run)
    expect_event(cluster, run, "got an implausible gradient", "in step 11", "from worker worker4", "times the usual")
    expect_evicted(cluster, run, ["worker4"])
    expect_equal("losses", cluster.losses(run), losses)


def main():
    cases = [globals()[name] for name in sys.argv[2:]] or [honest, flipped_messages, flipped_state]
    if not sys.argv[2:] and not GPUS:  # tensors of a GPU are not scaled
        cases.append(implausible)
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with Cluster(sys.argv[1], folder, workers=3) as cluster:
            plain = submit(cluster, "plain")
            expect_done(cluster, plain)
            losses = cluster.losses(plain)
            for case in cases:
                print(f"--- {case.__name__}", flush=True)
                case(cluster, losses)


if __name__ == "__main__":
    main()
