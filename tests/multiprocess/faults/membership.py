"""Two replicas of two stages with recovery.replicas: continue: a worker is killed and started again, again and again.

usage: membership.py BIN_DIR [--times 5] [--rate 100mbit] [--set KEY=VALUE]... [--csv FILE --machine NAME]

Prints for each time, in seconds: from kill -9 to the first step that one replica has trained; from the start of the
worker's new process to the first step of both replicas; how long nobody trained for that, from the word to stop after
the step under way to the start of the next epoch. Exits with 1 where a step is missing or reads other sequences than
those that follow.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from namespace_cluster import namespace_cluster
from training_test import text_for_training, wait_for
from requirements import without_root

OF_REPLICA = 2


def first_step_with(cluster, run, replicas):
    def trained():
        status = cluster.status(run)
        if status["state"] in ("failed", "stopped", "done"):
            raise AssertionError(f"{status['state']}: {status.get('reason')}")
        rows = cluster.steps(run)
        return status["state"] == "running" and rows and rows[-1].get("replicas") == replicas
    wait_for(f"a step with {replicas} replicas", trained)


def standstill(cluster, run):
    """Standstill of the last change, from the events."""
    events = [json.loads(line) for line in cluster.cli("events", run, "--json").stdout.splitlines()]
    stops = max(i for i, e in enumerate(events) if "stops after the step under way" in e["text"])
    begins = next(e for e in events[stops:] if e["kind"] == "state" and e["text"].startswith("running"))
    return (int(begins["unix_ms"]) - int(events[stops]["unix_ms"])) / 1000


def change_twice(cluster, run):
    copied = int(cluster.status(run).get("copied_step", 0))
    wait_for("a set that is held twice", lambda: int(cluster.status(run).get("copied_step", 0)) > copied)
    before = int(cluster.status(run)["step"])
    cluster.kill("worker4")
    began = time.monotonic()
    first_step_with(cluster, run, 1)
    lost = time.monotonic() - began
    alone = next(row for row in reversed(cluster.steps(run)) if row.get("replicas") == 2)
    began = time.monotonic()
    cluster.start("worker4")
    first_step_with(cluster, run, 2)
    return {"kill_after_step": before, "repeated": max(0, before - int(alone["step"])), "to_first_step_alone": lost,
            "to_first_step_together": time.monotonic() - began, "standstill": standstill(cluster, run)}


def expect_all_read_once(rows):
    read = 0
    for number, row in enumerate((row for row in rows if int(row["step"]) > 0), start=1):
        if int(row["step"]) != number or int(row.get("first_microbatch", 0)) != read:
            raise AssertionError(f"{row}: expected step {number}, which reads from microbatch {read} on")
        read += OF_REPLICA * row["replicas"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--set", action="append", default=[], help="of the run file")
    parser.add_argument("--csv", type=pathlib.Path, help="rows are added to this file")
    parser.add_argument("--machine", default="", help="their first column")
    options = parser.parse_args()
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    settings = ["pipeline.replicas=2", f"train.microbatches={OF_REPLICA}", "recovery.replicas=continue",
                "recovery.attempts=5", "recovery.every=8", "checkpoint.every=100000", *options.set]
    flags = [word for one in settings for word in ("--set", one)]
    rows = []
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with namespace_cluster(options.programs, folder, workers=4, rate=options.rate) as cluster:
            run = cluster.submit("membership", *flags, steps=100000, stages=2)
            first_step_with(cluster, run, 2)
            for number in range(1, options.times + 1):
                rows.append(change_twice(cluster, run))
                print(f"  {number}: " + ", ".join(f"{k} {v:.1f}" if isinstance(v, float) else f"{k} {v}"
                                                  for k, v in rows[-1].items()), flush=True)
            cluster.cli("stop", run)
            cluster.wait_for_end(run)
            expect_all_read_once(cluster.steps(run))
    for key in ("to_first_step_alone", "to_first_step_together", "standstill"):
        seconds = [row[key] for row in rows]
        print(f"{key}: median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s")
    if options.csv:
        new = not options.csv.exists()
        with options.csv.open("a", encoding="utf-8") as out:
            if new:
                out.write("machine,time," + ",".join(rows[0]) + "\n")
            for number, row in enumerate(rows, start=1):
                out.write(f"{options.machine},{number}," + ",".join(
                    f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
