#!/usr/bin/env python3
"""Measures how much worse a run learns that compresses all that it sends. Compares deploy/runs/composition.yaml
(replicas of stages that ranks share), the same with nothing compressed, and one pipeline that reads the same
sequences with nothing compressed. Needs root, for network namespaces.

  tests/bench/e2e/composition_losses.py build/release/bin --text corpus.txt --out composition.csv

Every run that ends adds a row to --out for each of its steps, with the loss of a validation where one came behind the
step; a run whose rows are there is not trained again.

Exit codes: 0; 1 where a run failed; 77 (skipped) without root.
"""
import argparse
import pathlib
import statistics
import sys

import needs
from cluster import ROOT, Cluster, Failed
from report import Table, append_rows, largest, read_rows

RUN_FILE = ROOT / "deploy/runs/composition.yaml"
WORKERS, RANKS = 4, 2
UNCODED = {"links.forward": "none", "links.backward": "none", "group.forward": "none", "group.backward": "none",
           "pipeline.gradients": "none", "pipeline.parameters": "fp32"}
# Each of the two replicas reads its own 2 microbatches, so one pipeline reads 4.
ONE = {**UNCODED, "group.tensor": 1, "pipeline.replicas": 1, "train.microbatches": 4}
BASE = "one pipeline"
VARIANTS = {BASE: ONE, "nothing compressed": UNCODED, "all compressed": {}}
FIELDS = ("variant", "seed", "step", "loss", "validation_loss")
LAST = 50  # steps whose mean is the loss at the end


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR", help="folder of longhaul's programs")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="what is trained on, byte by byte")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="CSV", help="rows, kept from call to call")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", choices=[name for name in VARIANTS if name != BASE], help=f"beside {BASE!r}")
    arguments = parser.parse_args()
    arguments.variants = [BASE, arguments.only] if arguments.only else list(VARIANTS)
    return arguments


def train(cluster, arguments, variant, seed):
    every = max(1, arguments.steps // 6)
    run = cluster.train(RUN_FILE, {
        "data.text": f'["{arguments.text.resolve()}"]', "data.seed": seed, "train.seed": seed,
        "train.steps": arguments.steps, "train.schedule.warmup": arguments.steps // 10, "validation.every": every,
        "checkpoint.every": 0, **VARIANTS[variant]})
    for row in run.steps:
        if int(row["step"]) > 0:
            yield {"variant": variant, "seed": seed, "step": row["step"], "loss": f"{row['loss']:.6f}",
                   "validation_loss": f"{row['validation_loss']:.6f}" if row["has_validation"] else ""}


def measure(arguments):
    done = {(row["variant"], int(row["seed"])) for row in read_rows(arguments.out)}
    with Cluster(arguments.programs, workers=WORKERS, devices_per_worker=RANKS) as cluster:
        for seed in arguments.seeds:
            for variant in arguments.variants:
                if (variant, seed) not in done:
                    append_rows(arguments.out, FIELDS, list(train(cluster, arguments, variant, seed)))
                    print(f"{variant}, seed {seed}", flush=True)


def summary(rows, variants):
    curves = {}  # by variant and seed: losses, and validations by step
    for row in rows:
        losses, validations = curves.setdefault((row["variant"], int(row["seed"])), ([], {}))
        losses.append(float(row["loss"]))
        if row["validation_loss"]:
            validations[int(row["step"])] = float(row["validation_loss"])
    seeds = sorted({seed for _, seed in curves if all((variant, seed) in curves for variant in variants)})
    if not seeds:
        return
    steps = sorted(curves[BASE, seeds[0]][1])
    table = Table(f"validation loss after so many steps, means of seeds {', '.join(map(str, seeds))}",
                  ("run", *map(str, steps), f"against {BASE}", f"training, last {LAST}", "first 20 apart"))
    for variant in variants:
        own, plain = ([curves[name, seed] for seed in seeds] for name in (variant, BASE))
        mean = [statistics.mean(validations[step] for _, validations in own) for step in steps]
        last = [validations[steps[-1]] for _, validations in plain]
        apart = largest(abs(a - b) / b for (losses, _), (wanted, _) in zip(own, plain)
                        for a, b in zip(losses[:20], wanted[:20]))
        table.add(variant, *(f"{loss:.4f}" for loss in mean), f"{100 * (mean[-1] / statistics.mean(last) - 1):+.2f} %",
                  f"{statistics.mean(statistics.mean(losses[-LAST:]) for losses, _ in own):.4f}", f"{apart:.1e}")
    table.finish()


def main():
    arguments = parse()
    needs.root_or_skip()
    try:
        needs.check_programs(arguments.programs, needs.CLUSTER)
        needs.check_files(RUN_FILE, arguments.text)
        try:
            measure(arguments)
        finally:
            summary(read_rows(arguments.out), arguments.variants)
    except Failed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()
