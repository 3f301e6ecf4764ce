"""Checkpoints over real processes: other splits, other workers, damage, a full disk.

usage: checkpoint_test.py BIN_DIR [resplit|copies|damage|full-disk ...]
"""
import json
import os
import pathlib
import subprocess
import sys

from cases import run_cases
from training_test import expect_equal, wait_for

STEPS = 40


def checkpoints(cluster, run, *flags):
    """The run's checkpoints, newest first; with their exit code."""
    result = cluster.cli("checkpoints", run, "--json", *flags, check=False)
    if result.returncode not in (0, 1) or not result.stdout:
        raise AssertionError(f"checkpoints {flags}: {result.returncode}\n{result.stderr}")
    return json.loads(result.stdout).get("checkpoints", []), result.returncode


def events(cluster, run):
    return cluster.cli("events", run).stdout


def expect(what, condition, detail):
    if not condition:
        raise AssertionError(f"{what}: {detail}")
    print(f"ok: {what}", flush=True)


def ended(cluster, run, state):
    return wait_for(f"the run to be {state}",
                    lambda: (s := cluster.seen(run))["state"] == state and s)


def broken_run(cluster, name, *flags, kill="worker2"):
    """A run of four stages that lost a worker after step 20's checkpoint."""
    path = cluster.write_run(name, steps=STEPS)

    def has_what_is_needed(status):
        return int(status.get("checkpoint_step", 0)) >= 20 and (
            "checkpoint.keep_copy=true" not in flags or is_copied(cluster, status["run_id"]))
    return path, cluster.broken(path, *flags, middle=has_what_is_needed, kill=(kill,))


def is_copied(cluster, run, later_than=0):
    """Whether the coordinator has all shards of a checkpoint."""
    return any(int(c["step"]) > later_than and all(s.get("copied") for s in c["shards"])
               for c in checkpoints(cluster, run)[0])


def resplit(cluster):
    """Two stages go on with what four have written."""
    unbroken = cluster.train("whole", steps=STEPS)
    path, run = broken_run(cluster, "four")
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, "--resume", "--watch", "--set", "pipeline.stages=2")
    status = cluster.status(run)
    expect("two stages", len(status["stages"]) == 2, status["stages"])
    expect("shards moved", "move to other workers" in events(cluster, run), events(cluster, run))
    expect_equal("four stages, then two", cluster.losses(run), unbroken)
    # And on with three, which cut the layers at other places.
    path, run = broken_run(cluster, "four-then-three")
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, "--resume", "--watch", "--set", "pipeline.stages=3")
    expect_equal("four stages, then three", cluster.losses(run), unbroken)


def from_copies(cluster, run):
    """Flags to go on from the newest checkpoint whose shards are all copied: a newer one may need the worker that is gone."""
    copied = [c for c in checkpoints(cluster, run)[0] if all(s.get("copied") for s in c["shards"])]
    expect("there are copies", copied, checkpoints(cluster, run)[0])
    return "--resume", "--from-step", str(copied[0]["step"])


def copies(cluster):
    """A worker is gone for good; the coordinator's copies take its place."""
    unbroken = cluster.train("whole", steps=STEPS)
    path, run = broken_run(cluster, "copied", "--set", "checkpoint.keep_copy=true")
    cluster.start_worker(5)
    wait_for("worker5", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, *from_copies(cluster, run), "--watch", "--set", "checkpoint.keep_copy=true")
    names = [s["worker_name"] for s in cluster.status(run)["stages"]]
    expect("worker5 took the place", "worker5" in names and "worker2" not in names, names)
    expect_equal("resumed without worker2", cluster.losses(run), unbroken)
    folder = cluster.folder / "coordinator" / "shard-copies"
    wait_for("copies of the last checkpoints", lambda: all(
        s.get("copied") for c in checkpoints(cluster, run)[0] for s in c["shards"]))
    wait_for("older copies to go", lambda: len(list(folder.iterdir())) == 2 * 4 * 2)
    verified, code = checkpoints(cluster, run, "--verify")
    expect("all is whole", code == 0 and all(c["state"] == "whole" for c in verified), verified)


def damage(cluster):
    """A shard loses a bit: it is named, and the older checkpoint is used."""
    unbroken = cluster.train("whole", steps=STEPS)
    path, run = broken_run(cluster, "damaged", kill="worker4")
    cluster.start_worker(4)
    wait_for("worker4 again", lambda: len(cluster.connected()) == 4)
    verified, code = checkpoints(cluster, run, "--verify")
    expect("whole at first", code == 0 and len(verified) == 2, verified)
    newest, older = int(verified[0]["step"]), int(verified[1]["step"])
    shard = (cluster.folder / "worker3" / "checkpoints" / run / f"step-{newest:08}" /
             "stage-2.optim.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1000] ^= 4
    shard.write_bytes(data)
    verified, code = checkpoints(cluster, run, "--verify")
    expect("the damage is named",
           code == 1 and verified[0]["state"] == "damaged" and verified[1]["state"] == "whole" and
           verified[0]["detail"].startswith(
               "worker worker3: stage-2.optim.safetensors: its contents changed"), verified)
    cluster.cli("submit", path, "--resume", "--watch")
    expect("the fall back is said", f"goes on from that of step {older}" in events(cluster, run),
           events(cluster, run))
    expect_equal("resumed from the older one", cluster.losses(run), unbroken)


def shards_of(cluster, name, run):
    return sum(p.stat().st_size
               for p in (cluster.folder / name / "checkpoints" / run).rglob("*.safetensors"))


def full_disk(cluster):
    """worker3's disk is full at the third checkpoint: that one is skipped and the first two stay
    whole. Only the last one has to be written."""
    disk = cluster.folder / "worker3"

    def resize(size):
        subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)

    path = cluster.write_run("whole", steps=STEPS)
    whole = cluster.cli("submit", path, "--watch").stdout.split()[0]
    unbroken = cluster.losses(whole)
    kept = disk / "checkpoints" / whole
    wait_for("the older checkpoints to go", lambda: len(list(kept.glob("step-*"))) == 2)
    one = shards_of(cluster, "worker3", whole) // 2
    usage = os.statvfs(disk)
    resize((usage.f_blocks - usage.f_bfree) * usage.f_frsize + one * 5 // 2)
    path = cluster.write_run("full", steps=STEPS)
    run = cluster.cli("submit", path).stdout.split()[0]
    status = ended(cluster, run, "failed")
    expect("the reason is said",
           "no room for the checkpoint of step 40" in status["reason"] and
           "worker3" in status["reason"], status["reason"])
    events = cluster.cli("events", run).stdout
    expect("the one before was skipped",
           "the checkpoint of step 30 is skipped, training goes on: worker worker3" in events, events)
    verified, code = checkpoints(cluster, run, "--verify")
    expect("the older ones are whole",
           code == 0 and [int(c["step"]) for c in verified] == [20, 10], verified)
    leftovers = [p for p in (disk / "checkpoints" / run).rglob("*.tmp-*")]
    expect("nothing half-written is left", not leftovers, leftovers)
    others = [p for p in cluster.folder.glob(f"worker[124]/checkpoints/{run}/step-00000030")]
    expect("the others have dropped theirs", not others, others)
    resize("64m")
    cluster.cli("submit", path, "--resume", "--watch")
    expect_equal("resumed when there was room", cluster.losses(run), unbroken)
    full_for_a_while(cluster, resize, disk, one)


def full_for_a_while(cluster, resize, disk, one):
    """There is room again before the end: the run does not fail, and has its later checkpoints."""
    usage = os.statvfs(disk)
    resize((usage.f_blocks - usage.f_bfree) * usage.f_frsize + one // 2)
    run = cluster.cli("submit", cluster.write_run("while", steps=400)).stdout.split()[0]
    wait_for("a skipped checkpoint", lambda: "is skipped, training goes on"
             in cluster.cli("events", run).stdout)
    resize("64m")
    ended(cluster, run, "done")
    verified, code = checkpoints(cluster, run, "--verify")
    expect("later ones are written", code == 0 and int(verified[0]["step"]) == 400, verified)


if __name__ == "__main__":
    sys.exit(run_cases({"resplit": resplit, "copies": copies, "damage": damage,
                        "full-disk": full_disk}))
