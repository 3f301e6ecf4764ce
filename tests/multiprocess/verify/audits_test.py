"""Workers that lie where no digest contradicts them: audits name them, and runs go on without them.

usage: audits_test.py BIN_DIR [scaled|flipped|stale|poisoned|loss|colluding|auditor|honest ...]

With LONGHAUL_TEST_GPUS=N each worker has one of N GPUs. Tensors there cannot be rehearsed on, so `scaled` and `stale` are for CPUs.
"""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from cases import run_cases  # noqa: E402
from training_test import DEFAULT, GPUS, NONE, expect_reference, wait_for  # noqa: E402

STAGES = 3
SPARES = 2
LIES_FROM = 3  # the first step with a lie
STEPS = 5000  # more than any case trains: it stops the run
COMPARED = 20  # steps at least, trained with the liar and again without it
FLAGS = ["--set", "validation.every=0", "--set", "checkpoint.every=0", "--set", "recovery.every=2",
         "--set", f"recovery.spares={SPARES}", "--set", "recovery.attempts=5", "--set", "verify.digests=sha256",
         "--set", "audit.share=1"]
if GPUS:  # Nothing else promises the same bits.
    FLAGS += ["--set", "train.deterministic=true"]


def events(cluster, run):
    return [json.loads(line)["text"] for line in cluster.cli("events", run, "--json").stdout.splitlines()]


def submit(cluster, name, *flags, links=NONE):
    path = cluster.write_run(name, steps=STEPS, stages=STAGES, links=links)
    return cluster.cli("submit", path, *FLAGS, *flags).stdout.split()[0]


def event_with(cluster, run, words):
    def found():
        told = events(cluster, run)
        state = cluster.seen(run)["state"]
        if state in ("failed", "done", "stopped"):
            raise AssertionError(f"{state} before an event with '{words}':\n" + "\n".join(told))
        return next((text for text in told if words in text), None)
    return wait_for(f"an event with '{words}'", found)


def expect_plain_losses(cluster, run, what):
    """Stops the run. Its losses are those of a plain loop in one process: on the CPU bit for bit."""
    wait_for(f"step {COMPARED}", lambda: cluster.step(run) >= COMPARED)
    losses = cluster.end(run)[:COMPARED]
    path = cluster.write_run("reference", steps=STEPS, stages=1, links=NONE)
    plain = subprocess.run([cluster.programs / "reference_losses", path, cluster.folder / "text.txt", str(COMPARED)],
                           capture_output=True, text=True, check=True).stdout.split()
    expect_reference(what, losses, [float(loss) for loss in plain])


def attack(lie, what, liar=2, partners=()):
    def case(cluster):
        for number, rehearsed in [(liar, lie), *partners]:
            cluster.kill(f"worker{number}")
            cluster.start_worker(number, "--rehearse", rehearsed)
        wait_for("the workers", lambda: len(cluster.connected()) == STAGES + SPARES)
        run = submit(cluster, what)
        told = event_with(cluster, run, " is evicted")
        if f"worker worker{liar} is evicted" not in told:
            raise AssertionError(f"{what}: expected worker{liar}, got: {told}\n" + "\n".join(events(cluster, run)))
        print(f"ok: {what}: {told}", flush=True)
        expect_plain_losses(cluster, run, f"{what}: without the liar")
        evicted = [text for text in events(cluster, run) if " is evicted" in text]
        if len(evicted) != 1:
            raise AssertionError("\n".join(evicted))
    return case


def honest(cluster):
    """Audits of an honest run agree, and name nobody: also with lossy codecs, and validations in between."""
    for name, links in [("exact", NONE), ("lossy", DEFAULT)]:
        run = submit(cluster, name, "--set", "validation.every=3", links=links)
        print(f"ok: {event_with(cluster, run, 'audits that agreed bit for bit: 8')}", flush=True)
        if links == NONE:
            expect_plain_losses(cluster, run, "with audits")
        else:
            cluster.end(run)
        if any("evicted" in text or "failed" in text for text in events(cluster, run)):
            raise AssertionError("\n".join(events(cluster, run)))


CASES = {
    "scaled": attack(f"scale-sent:step={LIES_FROM},direction=backward,factor=1.5", "scaled"),
    "flipped": attack(f"flip-layer:step={LIES_FROM}", "flipped"),
    "stale": attack(f"stale-sent:step={LIES_FROM},direction=forward", "stale"),
    "poisoned": attack(f"poison-optimizer:step={LIES_FROM},factor=-1,times=1", "poisoned"),
    "loss": attack(f"lie-loss:step={LIES_FROM},factor=0.9", "loss", liar=3),
    # Worker 1 sends something else than it says, and worker 2 says that it has got what worker 1 says.
    "colluding": attack(f"collude:step={LIES_FROM},direction=forward,times=1", "colluding", liar=2,
                        partners=[(1, f"flip-sent:step={LIES_FROM},direction=forward,times=1")]),
    "auditor": attack(f"false-audit:step={LIES_FROM}", "auditor", liar=4),
    "honest": honest,
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, workers=STAGES + SPARES))
