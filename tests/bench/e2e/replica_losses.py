#!/usr/bin/env python3
"""What replicas cost in learning: a small GPT on the CPU, two replicas of two stages with each form of
exchange, beside one pipeline that reads the same sequences. Needs root, for network namespaces.

  tests/bench/e2e/replica_losses.py build/release/bin --text corpus.txt --out replica_losses.csv
  tests/bench/e2e/replica_losses.py build/release/bin --text corpus.txt --out rates.csv \\
      --forms local-sgd --lrs 1e-3 2e-3 4e-3 8e-3

With several learning rates each form is compared at its own best one with one pipeline at its own best one.

Every run that ends adds its row to --out; a run whose row is there is not trained again.

Exit codes: 0; 1 where a run failed; 77 (skipped) without root.
"""
import argparse
import math
import pathlib
import statistics
import sys

import needs
from cluster import Cluster, Failed
from report import Table, append_rows, largest, read_rows

RUN = """\
name: replicas
model: {{ family: gpt, layers: 4, hidden: 64, heads: 4, context: 64 }}
data: {{ text: ["{text}"], tokenizer: bytes, seed: 3 }}
validation: {{ share: 0.1, every: {steps}, samples: 4096 }}
train:
  steps: {steps}
  microbatches: 4
  microbatch_size: 4
  seed: 1
  optimizer: {{ kind: adamw, lr: 2e-3, weight_decay: 0.1 }}
  schedule: {{ kind: cosine, warmup: {warmup} }}
pipeline: {{ stages: 2 }}
links: {{ forward: none, backward: none }}
checkpoint: {{ every: 0, keep: 1, at_end: false }}
"""
TWO = {"pipeline.replicas": 2, "train.microbatches": 2}
# Matrices of this model are small for tagc's defaults.
FORMS = {
    "one pipeline": {},
    "none": TWO,
    "sdp4bit": {**TWO, "pipeline.gradients": "sdp4bit", "pipeline.parameters": "difference4"},
    "tagc": {**TWO, "pipeline.gradients": "'tagc:keep=0.05,least=4096'", "pipeline.parameters": "difference4"},
}
APART = 20  # steps of local-sgd
FORMS["local-sgd"] = {**TWO, "pipeline.gradients": f"'local-sgd:steps={APART}'", "pipeline.parameters": "difference4"}
FORMS["local-sgd, delayed"] = {**FORMS["local-sgd"], "pipeline.gradients": f"'local-sgd:steps={APART},delay=0.5'"}
BASE = "one pipeline"
LR = 2e-3  # RUN's
FIELDS = ("form", "lr", "seed", "steps", "first_20_relative", "train_loss", "validation_loss")
LAST = 100  # steps whose mean is the loss at the end
# Quantiles of Student's distribution by degrees of freedom; both tails together have 5 %.
QUANTILES = (math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR", help="folder of longhaul's programs")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="what is trained on, byte by byte")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="CSV", help="rows, kept from call to call")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--forms", nargs="+", choices=[form for form in FORMS if form != BASE], metavar="FORM",
                        default=[form for form in FORMS if form != BASE],
                        help=f"what is compared with one pipeline: {', '.join(FORMS)}")
    parser.add_argument("--lrs", type=float, nargs="+", default=[LR], metavar="LR",
                        help="learning rates of every form, and of one pipeline")
    return parser.parse_args()


def read(path):
    """By form, learning rate, seed and steps. Older rows say no rate: they are of RUN's."""
    return {(row["form"], float(row.get("lr") or LR), int(row["seed"]), int(row["steps"])): row
            for row in read_rows(path)}


def train(cluster, file, form, lr, seed):
    changes = {**FORMS[form], "train.seed": seed, "data.seed": seed, "train.optimizer.lr": lr}
    settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    run = cluster.cli("submit", file, *settings).split()[0]
    status = cluster.wait_for(run, "the end", lambda now: now["state"] in ("done", "failed"), pause_s=1)
    losses = [row["loss"] for row in cluster.lines("steps", run) if int(row["step"]) > 0]
    if status["state"] == "done":
        return losses, status["validation_loss"]
    if "not finite" not in status["reason"]:
        raise Failed(f"run {run} failed: {status['reason']}")
    return [*losses, math.nan], math.nan  # this rate is too high


def measure(arguments, known):
    older = read_rows(arguments.out)
    if older and tuple(older[0]) != FIELDS:
        raise Failed(f"{arguments.out}: expected rows with {', '.join(FIELDS)}, got {', '.join(older[0])}; take "
                     "another file")
    file = arguments.out.with_suffix(".run.yaml")
    file.write_text(RUN.format(text=arguments.text.resolve(), steps=arguments.steps,
                               warmup=min(50, arguments.steps // 4)), encoding="utf-8")
    with Cluster(arguments.programs, workers=4) as cluster:
        for seed in arguments.seeds:
            for lr in arguments.lrs:
                measure_forms(arguments, known, cluster, file, lr, seed)
    file.unlink()


def measure_forms(arguments, known, cluster, file, lr, seed):
    """One pipeline first: the others' first losses are compared with its."""
    missing = [form for form in (BASE, *arguments.forms) if (form, lr, seed, arguments.steps) not in known]
    wanted = None
    for form in [BASE] * (missing != [] and BASE not in missing) + missing:
        losses, validation = train(cluster, file, form, lr, seed)
        wanted = wanted or losses[:20]
        apart = largest(abs(a - b) / b for a, b in zip(losses[:20], wanted))
        row = {"form": form, "lr": lr, "seed": seed, "steps": arguments.steps, "first_20_relative": f"{apart:.3e}",
               "train_loss": f"{statistics.mean(losses[-LAST:]):.5f}", "validation_loss": f"{validation:.5f}"}
        if form in missing:
            append_rows(arguments.out, FIELDS, [row])
        print(f"{form}, seed {seed}: {row}", flush=True)


def interval(values):
    """The mean in percent and its 95 % interval over seeds; a single value has none."""
    if not all(map(math.isfinite, values)):
        return "diverged"
    mean = 100 * statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+.2f} %"
    half = (100 * QUANTILES[min(len(values) - 1, len(QUANTILES) - 1)] * statistics.stdev(values)
            / math.sqrt(len(values)))
    return f"{mean:+.2f} % ({mean - half:+.2f} to {mean + half:+.2f})"


def by_rate(rows, form, steps):
    """{learning rate: {seed: row}}, of the rates with the most seeds: fewer seeds do not compare."""
    rates = {}
    for (name, lr, seed, of), row in rows.items():
        if name == form and of == steps:
            rates.setdefault(lr, {})[seed] = row
    most = max(map(len, rates.values()), default=0)
    return {lr: seeds for lr, seeds in sorted(rates.items()) if len(seeds) == most}


def loss_of(seeds):
    losses = [float(row["validation_loss"]) for row in seeds.values()]
    # A run that diverged is no reason to leave its rate out.
    return math.inf if any(map(math.isnan, losses)) else statistics.mean(losses)


def best_rate(rates):
    return min(rates, key=lambda lr: loss_of(rates[lr]))


def compared(seeds, base):
    return [float(row["validation_loss"]) / float(base[seed]["validation_loss"]) - 1
            for seed, row in seeds.items() if seed in base]


def summary(rows, steps):
    """Each form at each rate, beside one pipeline at the same rate and at its best one."""
    bases = by_rate(rows, BASE, steps)
    if not bases:
        return
    best = best_rate(bases)
    table = Table(f"validation loss after {steps} steps, means over seeds; one pipeline is best with {best:g}",
                  ("exchange", "learning rate", "seeds", "loss", "against one pipeline, same rate",
                   f"against one pipeline, {best:g}", "first 20 losses apart"))
    for form in FORMS:
        rates = by_rate(rows, form, steps)
        for lr, seeds in rates.items():
            here, there = compared(seeds, bases.get(lr, {})), compared(seeds, bases[best])
            table.add(form, f"{lr:g}{' (best)' if len(rates) > 1 and lr == best_rate(rates) else ''}", len(seeds),
                      f"{loss_of(seeds):.4f}", interval(here) if here and form != BASE else None,
                      interval(there) if there and (form, lr) != (BASE, best) else None,
                      f"{largest(float(row['first_20_relative']) for row in seeds.values()):.1e}")
    table.finish()
    for form in FORMS:
        rates = by_rate(rows, form, steps)
        if len(rates) < 2:
            continue
        own = best_rate(rates)
        if form != BASE:
            print(f"{form} at {own:g} against one pipeline at {best:g}: {interval(compared(rates[own], bases[best]))}")
        if own in (min(rates), max(rates)):
            print(f"note: {form} is best at {own:g}, an end of the rates: others beyond it may be better")


def main():
    arguments = parse()
    needs.root_or_skip()
    try:
        needs.check_programs(arguments.programs, needs.CLUSTER)
        needs.check_files(arguments.text)
        try:
            measure(arguments, read(arguments.out))
        finally:
            if arguments.out.exists():
                summary(read(arguments.out), arguments.steps)
    except Failed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()
