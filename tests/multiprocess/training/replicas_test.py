"""Replicas of a pipeline that train together, over real processes.

usage: replicas_test.py BIN_DIR [parity|models|forms|resume|recovers|replays|refused ...]
"""
import sys

from cases import run_cases
from nearness import expect_near
from training_test import DEFAULT, GPT, LLAMA, MUON, expect_equal, expect_learnt, rounding, wait_for

WORKERS = 4
TWO = ("--set", "pipeline.replicas=2")
HALF = ("--set", "train.microbatches=2")  # of RUN's 4: a step of two replicas has as many tokens
LOSSY = ("--set", "pipeline.gradients=sdp4bit", "--set", "pipeline.parameters=difference4")
SPARSE = ("--set", "pipeline.gradients='tagc:keep=0.1,least=2048'", "--set", "pipeline.parameters=bf16")
APART = ("--set", "pipeline.gradients='local-sgd:steps=5'", "--set", "pipeline.parameters=difference4")
# Three steps go on while what each has learned travels. The rate is the same whatever the number of steps.
LATE = ("--set", "pipeline.gradients='local-sgd:steps=5,delay=0.6'", *APART[2:], "--set", "train.schedule.kind=constant")
# A layer a stage: where lossy codecs stand does not depend on how long layers took.
SMALL = GPT.replace("layers: 4", "layers: 2")
STEPS = 20
# Sums over microbatches have another order.
BOUND = rounding(1e-5)


def expect_parity(cluster, name, options):
    one = cluster.train(f"{name}-one", stages=2, steps=STEPS, **options)
    two = cluster.train(f"{name}-two", *TWO, *HALF, stages=2, steps=STEPS, **options)
    expect_near(f"{name}, 2 replicas of 2 stages against 1", two, one, bound=BOUND)


def models(cluster):
    for name, options in [("gpt", {}), ("llama", {"model": LLAMA}), ("muon", {"optimizer": MUON.replace("bf16", "fp32")})]:
        expect_parity(cluster, name, options)


def parity(cluster):
    """With nothing rounded, two replicas learn what one pipeline does from the same tokens."""
    expect_parity(cluster, "tied", {"model": GPT.replace(" }", ", tied: true }")})
    one = cluster.train("whole-one", stages=1, steps=STEPS)
    four = cluster.train("whole-four", "--set", "pipeline.replicas=4", "--set", "train.microbatches=1", stages=1,
                         steps=STEPS)
    expect_near("4 replicas of 1 stage against 1", four, one, bound=BOUND)


def forms(cluster):
    """What is rounded on its way is learnt all the same, and sent in fewer bytes."""
    def sent(name, *flags):
        path = cluster.write_run(name, stages=2)
        run = cluster.cli("submit", path, "--watch", *TWO, *HALF, *flags).stdout.split()[0]
        losses = cluster.losses(run)
        expect_learnt(name, losses)
        links = [link for link in cluster.status(run)["links"] if link["kind"] == "replicas"]
        if len(links) != 4:
            raise AssertionError(f"{name}: {len(links)} directions between replicas: {links}")
        return losses, sum(int(link["payload_bytes"]) for link in links)

    exact, most = sent("exact")
    for name, flags, fewer in [("bf16", ("--set", "pipeline.gradients=bf16", "--set", "pipeline.parameters=bf16"), 1.9),
                               ("sdp4bit", LOSSY, 7), ("tagc", SPARSE, 2)]:
        losses, bytes_ = sent(name, *flags)
        if most / bytes_ < fewer:
            raise AssertionError(f"{name} sends {bytes_} bytes where fp32 sends {most}: not {fewer} times fewer")
        expect_near(f"{name}, {most / bytes_:.2f} times fewer bytes", losses, exact, bound=0.1)


def start_broken(cluster, name, *flags, step=20, **options):
    path = cluster.write_run(name, **options)
    run = cluster.cli("submit", path, *flags).stdout.split()[0]
    wait_for("a checkpoint", lambda: cluster.checkpoint_step(run) >= step)
    return path, run


def resume(cluster):
    """Killed and resumed, a run repeats its losses; with another number of replicas it goes on."""
    # Long enough to be killed in the middle of it.
    options = {"stages": 2, "links": DEFAULT, "model": SMALL, "steps": 100}
    for name, forms_ in [("lossy", LOSSY), ("sparse", SPARSE), ("apart", LATE)]:
        flags = (*TWO, *HALF, *forms_)
        unbroken = cluster.train(f"{name}-whole", *flags, **options)
        expect_learnt(name, unbroken)
        if forms_ is LATE:
            # It goes on to more steps than its stages were made for: the last merge is another one.
            path, run = start_broken(cluster, f"{name}-stopped", *flags, **{**options, "steps": 90})
            cluster.cli("stop", run)
            wait_for("the end", lambda: cluster.seen(run)["state"] == "stopped")
            cluster.cli("submit", path, "--resume", "--watch", *flags, "--set", "train.steps=100")
            expect_equal(f"{name}, stopped and resumed to more steps", cluster.losses(run), unbroken)
        path, run = start_broken(cluster, f"{name}-broken", *flags, **options)
        cluster.kill("worker4")
        wait_for("the failure", lambda: cluster.seen(run)["state"] == "failed")
        cluster.start_worker(4)
        wait_for("worker4 again", lambda: len(cluster.connected()) == WORKERS)
        cluster.cli("submit", path, "--resume", "--watch", *flags)
        expect_equal(f"{name}, killed and resumed", cluster.losses(run), unbroken)
    # What replicas have of the optimizer is put together.
    longer = cluster.write_run("lossy-broken", **{**options, "steps": 110})
    cluster.cli("submit", longer, "--resume", "--watch")
    losses = cluster.losses(run_of(cluster, "lossy-broken"))
    expect_goes_on("one replica goes on from two", losses, 100)
    longest = cluster.write_run("lossy-broken", **{**options, "steps": 120})
    cluster.cli("submit", longest, "--resume", "--watch", *TWO, *HALF)
    expect_goes_on("two replicas go on from one", cluster.losses(run_of(cluster, "lossy-broken")), 110)


    # Who has trained apart has an optimizer of its own.
    alone = cluster.write_run("apart-broken", **{**options, "steps": 110})
    result = cluster.cli("submit", alone, "--resume", check=False)
    if result.returncode != 1 or "pipeline.replicas is 2 in the run and 1 in this file" not in result.stderr:
        raise AssertionError(f"exit {result.returncode}, {result.stderr!r}")
    print("ok: one replica does not go on from two that train apart", flush=True)


def run_of(cluster, name):
    return cluster.status(name)["run_id"]


def expect_goes_on(what, losses, before):
    limit = 1.05 * max(losses[before - 10:before])
    if len(losses) != before + 10 or not all(loss <= limit for loss in losses[before:]):
        raise AssertionError(f"{what}: {len(losses)} losses, the last {losses[before - 10:]}")
    print(f"ok: {what}: {losses[before - 1]:.3f}, then {losses[-1]:.3f}", flush=True)


def recovers(cluster):
    """A worker is killed twice while the run trains: it goes on by itself, with the same losses."""
    # Many steps are left when the second worker is killed, however late that is.
    options = {"stages": 2, "links": DEFAULT, "model": SMALL, "steps": 120}
    flags = (*TWO, *HALF, *LOSSY)
    unbroken = cluster.train("whole", *flags, **options)
    path, run = start_broken(cluster, "broken", *flags, "--set", "recovery.attempts=5", step=10, **options)
    for worker, step in [(4, 10), (1, 30)]:
        wait_for("a checkpoint", lambda: cluster.checkpoint_step(run) >= step)
        cluster.kill(f"worker{worker}")
        cluster.start_worker(worker)
        wait_for(f"worker{worker} again", lambda: len(cluster.connected()) == WORKERS)
    wait_for("the end", lambda: cluster.seen(run)["state"] in ("done", "failed"))
    status = cluster.status(run)
    if status["state"] != "done" or int(status["epoch"]) < 3:
        raise AssertionError(f"{status}")
    expect_equal(f"recovered in epoch {status['epoch']}", cluster.losses(run), unbroken)


def replays(cluster):
    """Compute is slept, and the exchange is real."""
    path = cluster.write_run("replay", stages=2, steps=5)
    path.write_text(path.read_text().replace("every: 10, samples", "every: 0, samples") + "replay: { source: a test, codecs: real, "
                    "layers: { block_forward: 1ms, block_backward: 2ms, optimizer: 1ms } }\n")
    for name, flags in [("steps together", LOSSY), ("apart", APART)]:
        run = cluster.cli("submit", path, "--watch", *TWO, *HALF, *flags).stdout.split()[0]
        status = cluster.status(run)
        if status["state"] != "done" or int(status["step"]) != 5:
            raise AssertionError(f"{status}")
        print(f"ok: a replay of replicas, {name}: 5 steps", flush=True)


def refused(cluster):
    def expect(name, sentence, *flags, **options):
        path = cluster.write_run(name, **{"stages": 2, **options})
        result = cluster.cli("submit", path, *flags, check=False)
        if result.returncode != 1 or sentence not in result.stderr:
            raise AssertionError(f"{name}: exit {result.returncode}, {result.stderr!r}")
        print(f"ok: {name}: {result.stderr.strip()}", flush=True)

    expect("gradients", "did you mean 'sdp4bit'", *TWO, "--set", "pipeline.gradients=sdp4bits")
    expect("alone", "one replica (pipeline.replicas 1) sends no other anything", "--set", "pipeline.gradients=bf16")


if __name__ == "__main__":
    sys.exit(run_cases({"parity": parity, "models": models, "forms": forms, "resume": resume, "recovers": recovers,
                        "replays": replays, "refused": refused}, workers=WORKERS))
