"""Runs whose links remember samples (aqsgd), over real processes.

usage: aqsgd_test.py BIN_DIR [resume|elsewhere|limit|full-disk ...]
"""
import json
import os
import pathlib
import subprocess
import sys

from cases import run_cases
from checkpoint_test import ended, events, expect, from_copies, is_copied
from training_test import expect_equal, text_for_training, wait_for

AQSGD = "{ forward: aqsgd:bits=4, backward: fixed:bits=8 }"
STEPS = 60
# 8 sequences of 64 tokens a step: the second pass over the text begins at step 25.
TEXT_BYTES = 14200
BEGIN_ANEW = "begin anew"


def text_of_two_passes(folder):
    text_for_training(folder)
    path = pathlib.Path(folder) / "text.txt"
    path.write_text(path.read_text()[:TEXT_BYTES])


def buffers(cluster, number, run):
    """The stores of a worker: name -> bytes of its records."""
    folder = cluster.folder / f"worker{number}" / "messages" / run
    return {p.parent.name: p.stat().st_size for p in folder.glob("*/records")}


def cells_of(cluster, path):
    """What a run of this file would have its workers hold, in the order of stages."""
    plan = json.loads(cluster.cli("plan", path, "--json").stdout)
    return (plan.get("plan") or plan)["assignment"]["cells"]


def meetings(status):
    """Where a run's stages meet: first layer of the lower one -> names of the two workers."""
    stages = status["stages"]
    names = [stage["worker_name"] for stage in stages]
    layers = [int(stage.get("first_layer", 0)) for stage in stages]
    return {layer: pair for layer, pair in zip(layers[1:], zip(names, names[1:]))}


def resume(cluster):
    """kill -9 in the second pass; both sides come back to the checkpoint."""
    unbroken = cluster.train("whole", steps=STEPS, links=AQSGD)
    none = cluster.train("none", steps=STEPS)
    expect("it learns as without a codec", abs(unbroken[-1] - none[-1]) < 0.1 * none[0],
           (unbroken[-1], none[-1]))
    expect("it is not the same", unbroken != none, unbroken)
    path = cluster.write_run("broken", steps=STEPS, links=AQSGD)
    cells = cells_of(cluster, path)
    run = cluster.broken_after(40, path, kill=("worker2", "worker3"))
    for number, stage in [(1, 0), (2, 1), (3, 2), (4, 3)]:
        found = buffers(cluster, number, run)
        predicted = int(cells[stage]["message_record_bytes"])
        expect(f"worker{number}'s buffers are as large as predicted",
               sum(found.values()) == predicted and len(found) == (1 if stage in (0, 3) else 2),
               (found, predicted))
    cluster.start_worker(2)
    cluster.start_worker(3)
    wait_for("the workers again", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, "--resume", "--watch")
    expect("nothing began anew", BEGIN_ANEW not in events(cluster, run), events(cluster, run))
    expect_equal("killed and resumed, aqsgd", cluster.losses(run), unbroken)
    wait_for("the buffers of a run that is done to go",
             lambda: not any(buffers(cluster, number, run) for number in range(1, 5)))


def elsewhere(cluster):
    """Other workers and another split: what cannot be brought back begins anew, and that is said."""
    path = cluster.write_run("moved", steps=STEPS, links=AQSGD)
    run = cluster.broken(path, "--set", "checkpoint.keep_copy=true",  # of the second pass
                         middle=lambda status: is_copied(cluster, status["run_id"], 29))
    cluster.start_worker(5)
    wait_for("worker5", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, *from_copies(cluster, run), "--watch", "--set", "checkpoint.keep_copy=true")
    told = [line for line in events(cluster, run).splitlines() if BEGIN_ANEW in line]
    expect("both boundaries of worker2's stage begin anew", len(told) == 2, told)
    expect("the run is done", cluster.status(run)["state"] == "done", cluster.status(run))
    expect("it learnt", cluster.losses(run)[-1] < 0.8 * cluster.losses(run)[0],
           cluster.losses(run))

    # Two stages, cut where two of four were; only the two workers that met there have its buffers.
    path = cluster.write_run("split", steps=STEPS, links=AQSGD)
    run = cluster.broken_after(40, path, kill=("worker5",))
    before = meetings(cluster.status(run))
    cluster.start_worker(5)
    wait_for("worker5 again", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, "--resume", "--watch", "--set", "pipeline.stages=2")
    status = cluster.status(run)
    after = meetings(status)
    told = [line for line in events(cluster, run).splitlines() if BEGIN_ANEW in line]
    expect("another split begins anew where other workers meet, and says so",
           len(told) == len(after.items() - before.items()), (before, after, told))
    expect("the run is done", status["state"] == "done", status)


def limit(cluster):
    """A cache that is too large is refused at submit, with the bytes."""
    path = cluster.write_run("limited", steps=STEPS, links=AQSGD)
    stage = cells_of(cluster, path)[1]
    needed = int(stage["message_record_bytes"]) + int(stage["message_journal_bytes"])
    for below, code in [(1, 1), (0, 0)]:
        result = cluster.cli("submit", path, "--set", f"links.cache_limit={needed - below}",
                             check=False)
        expect(f"a limit of {needed - below} bytes", result.returncode == code, result.stderr)
        if below:
            expect("the bytes are named", f"({needed} bytes)" in result.stderr and
                   "links.cache_limit" in result.stderr, result.stderr)
    ended(cluster, "limited", "done")


def full_disk(cluster):
    """worker3's disk has no room for the buffers, then none for the journal, then for both."""
    disk = cluster.folder / "worker3"
    path = cluster.write_run("full", steps=STEPS, links=AQSGD)
    stage = cells_of(cluster, path)[2]
    expect("worker3 has stage 2", stage["worker_name"] == "worker3", stage)
    usage = os.statvfs(disk)
    used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    records = int(stage["message_record_bytes"])
    for room, sentence in [(records // 4, "no room for the message buffers"),
                           (records + 100_000, "no room for the undo journal")]:
        subprocess.run(["mount", "-o", f"remount,size={used + room}", disk], check=True)
        run = cluster.cli("submit", path).stdout.split()[0]
        reason = ended(cluster, run, "failed")["reason"]
        expect(sentence, sentence in reason and "worker3" in reason and " bytes)" in reason, reason)
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    cluster.cli("submit", path, "--resume", "--watch")
    expect("it runs where there is room", cluster.status("full")["state"] == "done",
           cluster.status("full"))


if __name__ == "__main__":
    sys.exit(run_cases({"resume": resume, "elsewhere": elsewhere, "limit": limit,
                        "full-disk": full_disk}, text=text_of_two_passes))
