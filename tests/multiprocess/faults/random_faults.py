"""Runs that each suffer one random fault, resumed where needed, against the unbroken run.

usage: random_faults.py BIN_DIR [--runs 50] [--seed 1] [--transport ucx] [--clusters N]

Prints each fault, when it came and what it cost. Losses must be bit-identical every time; exits
with 1 at the first that is not. The seed repeats the choice of faults, not their timing.
"""
import argparse
import os
import random
import sys
import tempfile
import time

from namespace_cluster import namespace_cluster, side_by_side
from training_test import expect_equal, text_for_training

SKIPPED = 77
STEPS = 60
CUT_S = FREEZE_S = 3


def worker_killed(cluster, chance):
    worker = f"worker{chance.randint(1, 4)}"
    cluster.kill(worker)
    cluster.start(worker)
    return f"{worker} killed"


def coordinator_killed(cluster, chance):
    away_s = chance.uniform(0, 4)
    cluster.kill("coordinator")
    time.sleep(away_s)
    cluster.start("coordinator")
    return f"coordinator killed, back after {away_s:.1f} s"


def link_cut(cluster, chance):
    worker = f"worker{chance.randint(1, 4)}"
    cluster.cut(worker, CUT_S)
    return f"link of {worker} cut for {CUT_S} s"


def worker_frozen(cluster, chance):
    worker = f"worker{chance.randint(1, 4)}"
    cluster.freeze(worker, FREEZE_S)
    return f"{worker} stopped for {FREEZE_S} s"


FAULTS = [worker_killed, coordinator_killed, link_cut, worker_frozen]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transport", default="ucx")
    parser.add_argument("--clusters", type=int, default=1, help="each with so many runs")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        return SKIPPED
    if options.clusters > 1:
        return side_by_side([options.programs, "--runs", str(options.runs), "--transport",
                             options.transport, "--seed", str(options.seed + i)]
                            for i in range(options.clusters))
    chance = random.Random(options.seed)

    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with namespace_cluster(options.programs, folder, rate="20mbit") as cluster:
            run = cluster.submit("unbroken", steps=STEPS, transport=options.transport)
            cluster.wait_for_end(run)
            reference = cluster.losses(run)
            began = time.monotonic()
            resumed = 0
            for number in range(1, options.runs + 1):
                name = f"faulty-{number}"
                run = cluster.submit(name, steps=STEPS, transport=options.transport)
                at = chance.randint(1, STEPS - 20)  # a busy machine tells of a step late
                fault = chance.choice(FAULTS)
                if not cluster.wait_for_step(run, at):
                    raise AssertionError(f"{name} ended before step {at}: {cluster.status(run)}")
                what = fault(cluster, chance)
                status = cluster.wait_for_end(run)
                if status["state"] == "failed":
                    resumed += 1
                    what += f"; resumed from step {status.get('checkpoint_step', 0)}"
                    cluster.wait_until_connected()
                    cluster.resume(name)
                    status = cluster.wait_for_end(run)
                if status["state"] != "done":
                    raise AssertionError(f"{name} ({what}): {status['state']}: {status['reason']}")
                expect_equal(f"run {number}, at step {at}: {what}", cluster.losses(run), reference)
            print(f"{options.runs} of {options.runs} runs bit-identical, {resumed} of them resumed, "
                  f"in {time.monotonic() - began:.0f} s (seed {options.seed}, "
                  f"{options.transport})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
