#!/usr/bin/env python3
"""What replicas cost in learning: a small GPT on the CPU, two replicas of two stages with each form of
exchange, beside one pipeline that reads the same sequences. Needs root, for network namespaces.

  tests/bench/e2e/replica_losses.py build/release/bin --text corpus.txt --out replica_losses.csv

Every run that ends adds its row to --out; a run whose row is there is not trained again.

Exit codes: 0; 1 where a run failed; 77 (skipped) without root.
"""
import argparse
import pathlib
import statistics
import sys

import needs
from cluster import Cluster, Failed
from report import Table, append_rows, read_rows

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
FIELDS = ("form", "seed", "steps", "first_20_relative", "train_loss", "validation_loss")
LAST = 100  # steps whose mean is the loss at the end


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR", help="folder of longhaul's programs")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="what is trained on, byte by byte")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="CSV", help="rows, kept from call to call")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    return parser.parse_args()


def read(path):
    return {(row["form"], int(row["seed"]), int(row["steps"])): row for row in read_rows(path)}


def train(cluster, file, form, seed):
    changes = {**FORMS[form], "train.seed": seed, "data.seed": seed}
    settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    run = cluster.cli("submit", file, *settings).split()[0]
    status = cluster.wait_for(run, "the end", lambda now: now["state"] == "done", pause_s=1)
    losses = [row["loss"] for row in cluster.lines("steps", run) if int(row["step"]) > 0]
    return losses, status["validation_loss"]


def measure(arguments, known):
    file = arguments.out.with_suffix(".run.yaml")
    file.write_text(RUN.format(text=arguments.text.resolve(), steps=arguments.steps,
                               warmup=min(50, arguments.steps // 4)), encoding="utf-8")
    with Cluster(arguments.programs, workers=4) as cluster:
        for seed in arguments.seeds:
            wanted = None
            for form in FORMS:
                if (form, seed, arguments.steps) in known and (form != "one pipeline" or all(
                        (other, seed, arguments.steps) in known for other in FORMS)):
                    continue
                losses, validation = train(cluster, file, form, seed)
                wanted = wanted or losses[:20]
                apart = max(abs(a - b) / b for a, b in zip(losses[:20], wanted))
                row = {"form": form, "seed": seed, "steps": arguments.steps, "first_20_relative": f"{apart:.3e}",
                       "train_loss": f"{statistics.mean(losses[-LAST:]):.5f}", "validation_loss": f"{validation:.5f}"}
                if (form, seed, arguments.steps) not in known:
                    append_rows(arguments.out, FIELDS, [row])
                print(f"{form}, seed {seed}: {row}", flush=True)
    file.unlink()


def summary(rows, steps):
    table = Table(f"validation loss after {steps} steps, means over seeds",
                  ("exchange", "loss", "against one pipeline", "first 20 losses apart"))
    for form in FORMS:
        own = {seed: row for (name, seed, of), row in rows.items() if name == form and of == steps}
        pairs = [(float(row["validation_loss"]), float(rows["one pipeline", seed, steps]["validation_loss"]))
                 for seed, row in own.items() if ("one pipeline", seed, steps) in rows]
        if not pairs:
            continue
        table.add(form, f"{statistics.mean(one for one, _ in pairs):.4f}",
                  f"{100 * statistics.mean(one / other - 1 for one, other in pairs):+.2f} %",
                  f"{max(float(row['first_20_relative']) for row in own.values()):.1e}")
    table.finish()


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
