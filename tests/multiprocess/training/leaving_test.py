"""Workers that are told to end while they train, as on machines that a cloud takes back: the run goes on elsewhere.

usage: leaving_test.py BIN_DIR CASE...: spare|late|alone|nobody
"""
import json
import os
import pathlib
import signal
import sys

from cases import run_cases
from training_test import DEADLINE_S, GPT, expect_equal, wait_for

STEPS = 100000  # a run is stopped when all has happened, however fast the machine is
SMALL = GPT.replace("layers: 4", "layers: 2")
SETTINGS = ("--set", "pipeline.placement=names", "--set", "recovery.attempts=5", "--set", "checkpoint.every=100000",
            "--set", "train.schedule.kind=constant")
NOBODY = 65534


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(one) for one in what))


def submit(cluster, name, *flags, steps=STEPS):
    path = cluster.write_run(name, stages=2, steps=steps, model=SMALL)
    return cluster.cli("submit", path, *SETTINGS, *flags).stdout.split()[0]


def events(cluster, run):
    return [json.loads(line)["text"] for line in cluster.cli("events", run, "--json").stdout.splitlines()]


def wait_for_step(cluster, run, step):
    def there():
        status = cluster.seen(run)
        check(status["state"] not in ("failed", "stopped", "done"), status["state"], "before step", step,
              *events(cluster, run))
        return int(status.get("step", 0)) >= step
    wait_for(f"step {step}", there)


def tell_to_end(cluster, worker):
    """As a service manager does. Its process ends by itself, well."""
    process = cluster.processes.pop(worker)
    process.send_signal(signal.SIGTERM)
    check(process.wait(DEADLINE_S) == 0, worker, "ended with", process.returncode)


def expect_unbroken(cluster, run, what):
    """It trains on, and has the losses of a run to which nothing has happened. Returns the events."""
    goes_on = cluster.step(run)
    wait_for_step(cluster, run, goes_on + 5)
    losses = cluster.end(run)
    path = cluster.write_run(f"unbroken-{run}", stages=2, steps=len(losses), model=SMALL)
    other = cluster.cli("submit", path, "--watch", *SETTINGS).stdout.split()[0]
    expect_equal(what, losses, cluster.losses(other))
    return events(cluster, run)


def expect_event(said, *words):
    check(any(all(word in text for word in words) for text in said), "no event has", words, "in:\n", "\n".join(said))


def expect_nothing_repeated(said):
    check(not any("repeated" in text for text in said), "steps were repeated:\n", "\n".join(said))


def spare(cluster):
    run = submit(cluster, "spare", "--set", "recovery.spares=1", "--set", "recovery.every=8")
    wait_for_step(cluster, run, 12)
    tell_to_end(cluster, "worker2")
    wait_for("the spare", lambda: any("takes the place" in text for text in events(cluster, run)))
    said = expect_unbroken(cluster, run, "a worker has left, and a spare went on")
    expect_event(said, "worker worker2 is leaving, within 25 s", "SIGTERM")
    expect_event(said, "worker2 (stage 1) is leaving: the run stops after the step under way, with a checkpoint",
                 "with worker worker3")
    expect_event(said, "goes on from step", "worker worker3 takes the place of worker worker2 (stage 1)")
    expect_nothing_repeated(said)
    print("ok: a worker was told to end while it trained, and no step was repeated", flush=True)


def late(cluster):
    """Less time than a move takes."""
    cluster.kill("worker2")
    cluster.start_worker(2, "--leave-within", "0.5")
    wait_for("worker2 again", lambda: sorted(w["name"] for w in cluster.connected()) ==
             ["worker1", "worker2", "worker3"])
    run = submit(cluster, "late", "--set", "recovery.spares=1", "--set", "recovery.every=4")
    wait_for("copies", lambda: int(cluster.seen(run).get("copied_step", 0)) > 0)
    tell_to_end(cluster, "worker2")
    wait_for("the spare", lambda: any("takes the place" in text for text in events(cluster, run)))
    said = expect_unbroken(cluster, run, "a worker has left too soon, and the newest copies were taken")
    expect_event(said, "more than the", "that are left: the run goes on from the newest copies, of step")
    expect_event(said, "worker worker3 takes the place of worker worker2 (stage 1)")
    print("ok: without the time to move its state, the run went on from the newest copies", flush=True)


def alone(cluster):
    """Nobody is free: the state stays behind with a neighbour, and the machine's disk is gone."""
    cluster.kill("worker3")
    del cluster.processes["worker3"]
    run = submit(cluster, "alone")
    wait_for_step(cluster, run, 12)
    tell_to_end(cluster, "worker2")
    wait_for("the run to wait", lambda: cluster.seen(run)["state"] == "recovering")
    cluster.others.add("worker4")
    cluster.start_worker(4)
    wait_for("the other worker", lambda: any("takes the place" in text for text in events(cluster, run)))
    said = expect_unbroken(cluster, run, "a worker has left, and another one came")
    expect_event(said, "shards of the checkpoint of step", "go from worker worker2, which is leaving, to worker worker1")
    expect_event(said, "goes on from step", "worker worker4 takes the place of worker worker2 (stage 1)")
    expect_nothing_repeated(said)
    print("ok: with nobody to take its place, its last state waited with a neighbour", flush=True)


def nobody(cluster):
    """Worker and its files are an ordinary user's. A test that is not root's has such workers anyway."""
    rooted = os.geteuid() == 0
    if rooted:
        cluster.kill("worker2")
        del cluster.processes["worker2"]
        folder = pathlib.Path(cluster.folder)
        folder.chmod(0o711)
        state = folder / "ordinary"
        state.mkdir()
        token = state / "token"
        token.touch(mode=0o600)
        token.write_text(cluster.cli("token", "create", "--role", "worker").stdout)
        for path in (state, token):
            os.chown(path, NOBODY, NOBODY)
        # Before worker3 in the order of names.
        cluster.start_as(NOBODY, "worker2x", "longhaul-worker", "--coordinator", cluster.address, "--name", "worker2x",
                         "--device", cluster.devices(2), "--state-dir", state, "--token-file", token)
        wait_for("the worker of nobody", lambda: any(w["name"] == "worker2x" for w in cluster.connected()))
    path = cluster.write_run("nobody", stages=2, steps=20, model=SMALL, transport="auto")
    run = cluster.cli("submit", path, "--watch", *SETTINGS).stdout.split()[0]
    check(cluster.status(run)["state"] == "done", *events(cluster, run))
    if rooted:
        others = [path for path in state.rglob("*") if path.stat().st_uid != NOBODY]
        check(not others, "files that are not the user's:", others)
        check(any(state.glob("checkpoints/*/*")), "no checkpoint is in", state)
    print("ok: a worker that is run by an ordinary user trains and writes its checkpoint", flush=True)


if __name__ == "__main__":
    sys.exit(run_cases({"spare": spare, "late": late, "alone": alone, "nobody": nobody}, workers=3))
