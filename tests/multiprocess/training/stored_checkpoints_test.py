"""checkpoint.to: checkpoints in S3, and a run that goes on elsewhere when its coordinator and all its workers are lost.
Over real processes, with S3 of our own. Workers have no credentials.

usage: stored_checkpoints_test.py BIN_DIR [CASE...]
"""
import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile

from cases import run_cases
from remote_model_test import RemoteCluster, s3_server
from signed_objects_test import SignedCluster, expect_no_secret, make_set, model_at, put, sets_at, write_run
from training_test import Skipped, expect_equal, text_for_training, wait_for

TO = "s3://bucket/checkpoints"
FLAGS = ("--set", f"checkpoint.to={TO}", "--set", "checkpoint.every=3", "--set", "train.schedule.kind=constant")


class OtherCluster(SignedCluster):
    """Another coordinator and other workers, which share nothing with the first ones but the servers."""

    def __init__(self, programs, folder, workers):
        self.open = contextlib.ExitStack()
        RemoteCluster.__init__(self, programs, folder, workers)


def need_s3(cluster):
    if not cluster.s3:
        raise Skipped("deploy/setup.sh --test has not brought SeaweedFS")


def checkpoints(cluster, run, *flags, check=True):
    return json.loads(cluster.cli("checkpoints", run, "--json", *flags, check=check).stdout).get("checkpoints", [])


def is_stored(checkpoint):
    return all(any("://" in holder.get("worker_id", "") for holder in shard["holders"])
               for shard in checkpoint["shards"])


def stored_steps(cluster, run):
    return [int(one["step"]) for one in checkpoints(cluster, run) if is_stored(one)]


def lose(cluster):
    """The coordinator, all workers, and their disks."""
    for name in list(cluster.processes):
        cluster.kill(name)
        shutil.rmtree(cluster.folder / name)


def elsewhere(cluster):
    """All is lost; another coordinator goes on from the last whole checkpoint, without a run file."""
    need_s3(cluster)
    put(cluster, make_set(cluster, "words"), "words")
    path = write_run(cluster, "lost", model=model_at("s3://bucket/tiny/"), data=sets_at("s3://bucket/words"),
                     steps=100_000)
    run = cluster.cli("submit", path, *FLAGS).stdout.split()[0]
    wait_for("two checkpoints in S3", lambda: max(stored_steps(cluster, run), default=0) >= 6)
    expect_no_secret(cluster)
    lose(cluster)
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        with OtherCluster(sys.argv[1], pathlib.Path(folder), workers=2) as other:
            begun = json.loads(other.cli("submit", "--from-checkpoint", f"{TO}/{run}", "--json").stdout)
            step, again = int(begun["resume_step"]), begun["run_id"]
            if step < 6:
                raise AssertionError(f"it begins from step {step}")
            wait_for("newer checkpoints in S3", lambda: max(stored_steps(other, again), default=0) >= step + 6)
            other.cli("stop", again)
            wait_for("its end", lambda: other.seen(again)["state"] == "stopped")
            losses = other.losses(again)
            # The same run, never interrupted, with nothing but the file.
            whole = other.cli("submit", path, *FLAGS, "--set", "name=whole", "--set",
                              f"train.steps={step + len(losses)}", "--watch").stdout.split()[0]
            expect_equal(f"from step {step}, elsewhere", losses, other.losses(whole)[step:])
            stored(other, again)
            damaged(other, again)
            expect_no_secret(other)


def stored(cluster, run):
    """What the folder holds, and what people are told."""
    last = int(cluster.seen(run)["step"])
    wait_for("the last checkpoint in S3", lambda: last in stored_steps(cluster, run))
    rows = checkpoints(cluster, run, "--verify")
    if any(one["state"] != "whole" for one in rows):
        raise AssertionError(f"not whole: {rows}")
    shown = cluster.cli("checkpoints", run).stdout
    if f"{TO}/{run}/step-{last:08}/" not in shown:
        raise AssertionError(shown)
    wait_for("no older ones", lambda: len(s3_server.keys(s3_port(), "bucket", f"checkpoints/{run}/")) ==
             sum(len(one["shards"]) + 1 for one in checkpoints(cluster, run)))
    print(f"ok: {len(rows)} checkpoints are in S3, and no older ones", flush=True)


def s3_port():
    return int(os.environ["AWS_ENDPOINT_URL_S3"].rsplit(":", 1)[1])


def damaged(cluster, run):
    """Bytes that changed there are not trained on."""
    last = max(stored_steps(cluster, run))
    key = f"checkpoints/{run}/step-{last:08}/stage-1.params.safetensors"
    size = {s["name"]: int(s["bytes"]) for one in checkpoints(cluster, run) if int(one["step"]) == last
            for s in one["shards"]}["stage-1.params.safetensors"]
    if not s3_server.put(s3_port(), f"/bucket/{key}", b"x" * size):
        raise AssertionError(f"S3 does not take {key}")
    begun = cluster.cli("submit", "--from-checkpoint", f"{TO}/{run}/step-{last}", "--set", "name=hurt").stdout.split()[0]
    status = wait_for("the failure", lambda: (s := cluster.seen(begun))["state"] == "failed" and s)
    if "stage-1.params.safetensors" not in status["reason"] or "SHA-256" not in status["reason"]:
        raise AssertionError(status["reason"])
    print(f"ok: {status['reason']}", flush=True)
    for address, expected in ((f"{TO}/{run}/step-1", "there is no whole checkpoint in"),
                              (f"{TO}/nothing", "there is no whole checkpoint in"),
                              ("hf://org/name", "s3:// or gs://")):
        answer = cluster.cli("submit", "--from-checkpoint", address, check=False)
        if answer.returncode != 1 or expected not in answer.stderr:
            raise AssertionError(f"{address}: {answer.returncode}: {answer.stderr}")


def keyless(cluster):
    """A coordinator without the keys: training goes on, and the event says what to do."""
    run = cluster.cli("submit", write_run(cluster, "alone"), "--set", "checkpoint.to=gs://bucket/x",
                      "--watch").stdout.split()[0]
    events = wait_for("the event", lambda: (text := cluster.cli("events", run).stdout).count("gs://bucket/x") and text)
    for expected in "could not send", "GS_ACCESS_KEY_ID", "the next attempt follows":
        if expected not in events:
            raise AssertionError(events)
    print("ok: a run trains on though its checkpoints go nowhere", flush=True)


def recovers(cluster):
    """All workers and their disks are lost, and the coordinator is not: other workers fetch what S3 has."""
    need_s3(cluster)
    path = write_run(cluster, "recovering", steps=100_000)
    run = cluster.cli("submit", path, *FLAGS, "--set", "recovery.attempts=5", "--set",
                      "reattach_timeout=1s").stdout.split()[0]
    wait_for("a checkpoint in S3", lambda: max(stored_steps(cluster, run), default=0) >= 3)
    for number in cluster.workers:
        cluster.kill(f"worker{number}")
    stored = max(stored_steps(cluster, run))
    for number in cluster.workers:
        shutil.rmtree(cluster.folder / f"worker{number}")
        cluster.start_worker(number)
    begun = wait_for("the next epoch", lambda: (s := cluster.seen(run))["state"] == "failed" or
                     (s["state"] == "running" and int(s["epoch"]) > 1 and int(s["step"]) > stored) and s)
    events = cluster.cli("events", run).stdout
    if begun is True or "shards of the checkpoint of step" not in events:
        raise AssertionError(events)
    losses = cluster.end(run)
    whole = cluster.cli("submit", path, *FLAGS, "--set", "name=whole", "--set", f"train.steps={len(losses)}",
                        "--watch").stdout.split()[0]
    expect_equal(f"epoch {begun['epoch']} goes on from what S3 has", losses, cluster.losses(whole))


CASES = {"keyless": keyless, "recovers": recovers, "elsewhere": elsewhere}

if __name__ == "__main__":
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    sys.exit(run_cases(CASES, kind=SignedCluster, workers=2, text=text_for_training))
