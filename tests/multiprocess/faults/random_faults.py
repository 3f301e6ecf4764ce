"""Runs that each suffer one random fault, resumed where needed, against the unbroken run.

usage: random_faults.py BIN_DIR [--runs 50] [--seed N] [--transport ucx] [--clusters N]

Prints each fault, when it came and what it cost. Losses must be bit-identical every time; exits
with 1 at the first that is not. The seed is new each time and printed first; --seed, or LONGHAUL_TEST_SEED, repeats the
choice of faults, not their timing. Kinds of fault are dealt like cards: with as many runs as fault_kinds.py has kinds,
each comes once.
"""
import argparse
import os
import random
import sys
import tempfile
import time

from fault_kinds import RATE, deal
from namespace_cluster import add_seed, namespace_cluster, side_by_side
from training_test import expect_equal, text_for_training
from requirements import without_root

STEPS = 60


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--runs", type=int, default=50)
    add_seed(parser)
    parser.add_argument("--transport", default="ucx")
    parser.add_argument("--clusters", type=int, default=1, help="each with so many runs")
    options = parser.parse_args()
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    if options.clusters > 1:
        return side_by_side([options.programs, "--runs", str(options.runs), "--transport",
                             options.transport, "--seed", str(options.seed + i)]
                            for i in range(options.clusters))
    print(f"seed {options.seed}: repeat the choice of faults with LONGHAUL_TEST_SEED={options.seed}", flush=True)
    chance = random.Random(options.seed)

    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with namespace_cluster(options.programs, folder, rate=RATE) as cluster:
            run = cluster.submit("unbroken", steps=STEPS, transport=options.transport)
            cluster.wait_for_end(run)
            reference = cluster.losses(run)
            began = time.monotonic()
            resumed = 0
            for number, fault in enumerate(deal(chance, options.runs), start=1):
                name = f"faulty-{number}"
                run = cluster.submit(name, steps=STEPS, transport=options.transport)
                at = chance.randint(1, STEPS - 20)  # a busy machine tells of a step late
                if not cluster.wait_for_step(run, at):
                    raise AssertionError(f"{name} ended before step {at}: {cluster.status(run)}")
                what = fault(cluster, run, chance)
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
                cluster.wait_until_connected()
            print(f"{options.runs} of {options.runs} runs bit-identical, {resumed} of them resumed, "
                  f"in {time.monotonic() - began:.0f} s (seed {options.seed}, "
                  f"{options.transport})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
