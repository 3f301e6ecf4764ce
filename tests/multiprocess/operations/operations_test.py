"""Garbage, removal, files of steps, steps in trackers, backup and restore, with real daemons.

usage: operations_test.py BIN_DIR

A run whose coordinator is killed and restored from a backup that was made while it trained goes on with the losses of an
unbroken one; garbage that is collected in between changes nothing.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import NONE, RUN, Cluster, expect_equal, text_for_training, wait_for  # noqa: E402

STEPS = 30
DAY_S = 86400


def submit(cluster, name, steps, *flags):
    text_for_training(cluster.folder)
    path = cluster.folder / f"{name}.yaml"
    path.write_text(RUN.format(name=name, steps=steps, stages=2, schedule="1f1b", transport="grpc", links=NONE))
    return cluster.cli("submit", path, *flags).stdout.split()[0]


def end(cluster, run, state="done"):
    wait_for(f"the end of {run}", lambda: cluster.seen(run)["state"] == state)


def losses(cluster, run):
    return {int(step["step"]): step["loss"]
            for step in map(json.loads, cluster.cli("steps", run, "--json").stdout.splitlines())}


def age(folder):
    """As if all had come two days ago."""
    for blob in folder.iterdir():
        os.utime(blob, (time.time() - 2 * DAY_S,) * 2)


def blobs(cluster):
    return {path.name for path in (cluster.folder / "coordinator/blobs").iterdir()}


def checkpoints(cluster, run):
    return sorted(int(one["step"]) for one in
                  json.loads(cluster.cli("checkpoints", run, "--json").stdout)["checkpoints"])


def worker_files(cluster, run):
    return [path for number in (1, 2) for path in (cluster.folder / f"worker{number}/checkpoints" / run).rglob("*.safetensors")]


def check_garbage(cluster, run):
    """`run` has ended, with two checkpoints; another text is named by nobody."""
    assert len(checkpoints(cluster, run)) == 2
    before = blobs(cluster)
    other = submit(cluster, "other", 8, "--set", "validation.share=0.2")
    end(cluster, other)
    more = blobs(cluster) - before
    assert more, "another share for validation makes other tokens"
    folders = [cluster.folder / f"worker{number}/checkpoints" / other for number in (1, 2)]
    for folder in folders:  # a step that a worker wrote and nobody committed
        (folder / "step-00000099").mkdir()
        (folder / "step-00000099/stage-0.params.safetensors").write_bytes(b"x")
    cluster.cli("rm", other)
    wait_for("the workers to delete its files", lambda: not any(folder.exists() for folder in folders))
    assert cluster.cli("status", other, check=False).returncode != 0
    assert "0 blobs" in cluster.cli("gc").stdout, "they came today"
    age(cluster.folder / "coordinator/blobs")
    dry = json.loads(cluster.cli("gc", "--dry-run", "--ended", "0s", "--json").stdout)
    assert int(dry["blobs"]) == len(more) and len(dry["checkpoints"]) == 1, dry
    assert blobs(cluster) == before | more and len(checkpoints(cluster, run)) == 2
    done = json.loads(cluster.cli("gc", "--ended", "0s", "--json").stdout)
    assert done == dry, (done, dry)
    assert blobs(cluster) == before
    assert checkpoints(cluster, run) == [STEPS]
    wait_for("the workers' files to go", lambda: len(worker_files(cluster, run)) <= 4)
    refused = cluster.cli("rm", "nobody", check=False)
    assert refused.returncode == 1 and "there is no run" in refused.stderr


def check_files(cluster, run):
    """What comes along is what `steps` says; TensorBoard's bytes are held against its own writer's elsewhere."""
    wanted = losses(cluster, run)
    cluster.cli("steps", run, "--file", "run.jsonl", "--tensorboard", "boards")
    lines = [json.loads(line) for line in (cluster.folder / "run.jsonl").read_text().splitlines()]
    expect_equal("losses in a file", {int(line["step"]): line["loss"] for line in lines}, wanted)
    board, = (cluster.folder / "boards" / run).iterdir()
    assert "tfevents" in board.name
    data, offset, records = board.read_bytes(), 0, 0
    while offset < len(data):
        length, = struct.unpack_from("<Q", data, offset)
        offset, records = offset + 16 + length, records + 1
    assert offset == len(data) and records == 1 + len(lines), (offset, len(data), records)
    # The same command makes the same files.
    cluster.cli("steps", run, "--tensorboard", "boards")
    assert board.read_bytes() == data


def store(cluster):
    return cluster.folder / "store"


def stored_losses(cluster, run):
    """{step: loss} that MLflow's file store has of a run: lines of time, value and step. A step has one."""
    tag, = [path for path in store(cluster).glob("*/*/tags/longhaul.run_id") if path.read_text() == run]
    lines = (tag.parent.parent / "metrics/loss/training").read_text().splitlines()
    losses = {int(step): float(value) for _, value, step in map(str.split, lines)}
    assert len(losses) == len(lines), lines
    return losses


def check_trackers(cluster, run):
    """False: the packages are missing. What trackers have is held against rows in tests/unit/deploy/steps."""
    os.environ["WANDB_MODE"] = "offline"
    flags = ["--mlflow", f"file://{store(cluster)}", "--wandb", "operations"]
    logged = cluster.cli("steps", run, *flags, check=False)
    if logged.returncode == 1 and "expected a Python that has" in logged.stderr:
        print(f"skipped: steps in trackers: {logged.stderr.strip()}", flush=True)
        return False
    assert logged.returncode == 0, logged.stderr
    wanted = losses(cluster, run)
    count = len(wanted)
    assert f"MLflow: {count} steps logged, 0 were" in logged.stdout, logged.stdout
    assert f"W&B: {count} steps logged, 0 were" in logged.stdout, logged.stdout
    expect_equal("losses in MLflow", stored_losses(cluster, run),
                 {step: loss for step, loss in wanted.items() if step > 0})
    again = cluster.cli("steps", run, *flags)
    for name in ("MLflow", "W&B"):
        assert f"{name}: 0 steps logged, {count} were there already" in again.stdout, again.stdout
    return True


def check_restored(cluster, unbroken, trackers):
    """Backed up in the middle of a run, then the coordinator and its folder are lost."""
    run = submit(cluster, "kept", 100_000, "--set", "train.schedule.kind=constant")
    flags = ["--mlflow", f"file://{store(cluster)}"] if trackers else []
    follower = subprocess.Popen([cluster.programs / "longhaul", "steps", run, "--follow", "--file",
                                 cluster.folder / "followed.jsonl", *flags, "--coordinator", cluster.address,
                                 *cluster.access()], stdout=subprocess.DEVNULL)
    wait_for("a checkpoint", lambda: cluster.checkpoint_step(run) >= 10)
    backup = cluster.folder / "backup"
    subprocess.run([cluster.programs / "longhaul-coordinator", "backup", backup, "--blobs", "--state-dir",
                    cluster.folder / "coordinator"], check=True, capture_output=True)
    seen = cluster.step(run)
    wait_for("steps that the backup does not know", lambda: cluster.step(run) > seen + 2)
    cluster.kill("coordinator")
    (cluster.folder / "coordinator").rename(cluster.folder / "lost")
    subprocess.run([cluster.programs / "longhaul-coordinator", "restore", backup, "--state-dir",
                    cluster.folder / "coordinator"], check=True, capture_output=True)
    # The time in seconds: newer than any that a worker may have heard of since the backup.
    term = json.loads((cluster.folder / "coordinator/leadership.json").read_text())["term"]
    assert term > 1e9, term
    cluster.start("coordinator", "longhaul-coordinator", "--listen", cluster.address)
    wait_for("the coordinator", lambda: cluster.cli("ps", check=False).returncode == 0)
    wait_for("the run to go on", lambda: cluster.seen(run)["state"] == "running" and cluster.step(run) > seen + 3)
    cluster.cli("gc", "--ended", "0s")
    at = cluster.step(run)
    wait_for("more steps", lambda: cluster.step(run) > at + 3)
    cluster.cli("stop", run)
    end(cluster, run, "stopped")
    got = losses(cluster, run)
    same = [step for step in got if 0 < step <= STEPS]
    assert len(same) > 10, got
    expect_equal("losses over a restore", [got[step] for step in same], [unbroken[step] for step in same])
    assert follower.wait(timeout=60) == 0
    followed = [json.loads(line) for line in (cluster.folder / "followed.jsonl").read_text().splitlines()]
    numbers = [int(line["step"]) for line in followed]
    assert numbers == sorted(set(numbers)) and numbers[-1] == max(got), (numbers[-1], max(got))
    if trackers:
        expect_equal("losses in MLflow that were followed", stored_losses(cluster, run),
                     {int(line["step"]): line["loss"] for line in followed if int(line["step"]) > 0})
    # The follower also got the steps that were lost with the coordinator.
    recorded = [row for row in map(json.loads, cluster.cli("steps", run, "--json").stdout.splitlines())
                if int(row["step"]) in numbers]
    kept = {int(row["step"]) for row in recorded}
    for field in ("loss", "validation_loss"):
        expect_equal(f"{field} that was followed", [row[field] for row in followed if int(row["step"]) in kept],
                     [row[field] for row in recorded])
    assert any(row["has_validation"] for row in followed), "nothing was validated"


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-operations-") as folder, \
            Cluster(sys.argv[1], folder, 2) as cluster:
        run = submit(cluster, "whole", STEPS, "--set", "train.schedule.kind=constant", "--set", "checkpoint.keep_copy=true")
        end(cluster, run)
        unbroken = losses(cluster, run)
        check_files(cluster, run)
        print("ok: files of steps", flush=True)
        trackers = check_trackers(cluster, run)
        check_garbage(cluster, run)
        print("ok: garbage", flush=True)
        check_restored(cluster, unbroken, trackers)
        print("ok: backup and restore", flush=True)


if __name__ == "__main__":
    main()
