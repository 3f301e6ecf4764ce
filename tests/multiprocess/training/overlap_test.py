"""Steps that overlap (pipeline.schedule: 2bw), over real processes.

usage: overlap_test.py BIN_DIR [losses|variants|resume ...]
"""
import json
import sys

from cases import run_cases
from nearness import expect_near
from training_test import (DEFAULT, LLAMA, MUON, NONE, PREDICT, expect_equal, expect_learnt, expect_reference,
                           reference_losses, rounding, wait_for)

TWO = "2bw"


def expect_overlap(cluster, run):
    """A stage begins the next step's passes before its own step's are done: its trace has a forward of
    microbatch 0 that does not follow the last backward."""
    path = cluster.folder / "trace.json"
    cluster.cli("trace", run, "-o", path)
    events = [event for event in json.loads(path.read_text())["traceEvents"]
              if event["ph"] == "X" and event["pid"] == 1 and event["tid"] == 1]
    names = [event["name"] for event in sorted(events, key=lambda event: event["ts"])]
    passes = [name for name in names if name[0] in "FB" and name[1:].isdigit()]
    early = [i for i, name in enumerate(passes) if name == "F0" and i > 0 and passes[i - 1] != "B3"]
    if not early:
        raise AssertionError(f"no step began before the one before it was done: {names}")
    print(f"ok: {len(early)} of the traced steps began before the one before them was done", flush=True)


def expect_losses(cluster, stages, reference):
    run = cluster.cli("submit", cluster.write_run(f"overlap-{stages}", stages=stages, schedule=TWO),
                      "--watch").stdout.split()[0]
    expect_reference(f"{stages} stages against the plain loop", cluster.losses(run), reference)
    return run


def losses(cluster):
    plain = reference_losses(cluster)
    reference = reference_losses(cluster, schedule=TWO)
    if plain[:1] != reference[:1] or plain[1] == reference[1] or plain[2] == reference[2]:
        raise AssertionError(f"passes of older parameters: {plain[:4]}, {reference[:4]}")
    expect_overlap(cluster, expect_losses(cluster, 4, reference))
    refused = cluster.cli("submit", cluster.write_run("refused", schedule=TWO), "--set",
                          "pipeline.replicas=2", "--set", "pipeline.send_order=activations-first", check=False)
    for sentence in ("got 2bw, which has steps overlap: replicas (pipeline.replicas) exchange gradients",
                     "pipeline.send_order: 2bw sends in no order"):
        if refused.returncode != 1 or sentence not in refused.stderr:
            raise AssertionError(f"exit {refused.returncode}, {refused.stderr!r}")
    print(f"ok: {refused.stderr.strip()}", flush=True)


def variants(cluster):
    reference = reference_losses(cluster, schedule=TWO)
    for stages in (1, 2):
        expect_losses(cluster, stages, reference)
    sliced = cluster.train("sliced", "--set", "pipeline.slices=2", schedule=TWO)
    if expect_near("2 slices", sliced, reference, bound=rounding(2e-6)) == 0:
        raise AssertionError("2 slices: to the bit, as if there were no slices")
    flags = ["--set", "train.on_nonfinite=skip"]
    expect_reference("llama, muon, 2 stages, against the plain loop",
                     cluster.train("muon", *flags, stages=2, schedule=TWO, optimizer=MUON, model=LLAMA),
                     reference_losses(cluster, schedule=TWO, optimizer=MUON, model=LLAMA))
    expect_learnt("4 stages, default codecs", cluster.train("default", schedule=TWO, links=DEFAULT))


def resume(cluster):
    """What the next step's passes compute with is in a checkpoint, too."""
    for name, links in [("none", NONE), ("tah", DEFAULT), ("predict", PREDICT)]:
        unbroken = cluster.train(f"whole-{name}", links=links, schedule=TWO)
        path = cluster.write_run(f"broken-{name}", links=links, schedule=TWO)
        run = cluster.broken_after(14, path, "--set", "checkpoint.every=7")
        cluster.start_worker(2)
        wait_for("worker2 again", lambda: len(cluster.connected()) == 4)
        # The other workers have stage and twin in memory.
        cluster.cli("submit", path, "--resume", "--watch", "--set", "checkpoint.every=7")
        expect_equal(f"killed and resumed, {name}", cluster.losses(run), unbroken)
    # A stop ends after the step that has begun, and tables of tokens are saved as that one leaves them.
    unbroken = cluster.train("whole-and-on", links=PREDICT, schedule=TWO, steps=60)
    path = cluster.write_run("stopped-predict", links=PREDICT, schedule=TWO, steps=60)
    run = cluster.stopped_after(5, path)
    cluster.cli("submit", path, "--resume", "--watch")
    expect_equal("stopped and resumed, predict", cluster.losses(run), unbroken)
    # Stopped in the middle, and other stages.
    unbroken = cluster.train("whole-again", schedule=TWO, steps=150)
    path = cluster.write_run("stopped", schedule=TWO, steps=150)
    run = cluster.cli("submit", path).stdout.split()[0]
    for stages in (4, 2):
        wait_for("some steps", lambda: cluster.step(run) >= 22 - 5 * stages)
        cluster.cli("stop", run)
        wait_for("the stop", lambda: cluster.seen(run)["state"] == "stopped")
        cluster.cli("submit", path, "--resume", "--set", f"pipeline.stages={2 if stages == 4 else 1}")
    wait_for("the end", lambda: cluster.seen(run)["state"] == "done")
    expect_equal("stopped twice, 4, 2 and 1 stages", cluster.losses(run), unbroken)
    # From a checkpoint of steps that do not overlap.
    path = cluster.write_run("changed")
    run = cluster.stopped_after(5, path)
    cluster.cli("submit", cluster.write_run("changed", schedule=TWO), "--resume", "--watch")
    expect_learnt("first whole steps, then such that overlap", cluster.losses(run))


if __name__ == "__main__":
    sys.exit(run_cases({"losses": losses, "variants": variants, "resume": resume}))
