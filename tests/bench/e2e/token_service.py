"""The runs of token_losses.py through the service itself: a cluster of workers, a stage each, with real links that are
not shaped. Rows are those of token_losses.py, so `summary` compares both. The schedule of the learning rate is longhaul's own:
the warm-up, then the cosine over the steps that are left.
"""
import csv
import json
import statistics
import subprocess

import cluster
import token_text

RUN = """\
name: service
model: {{ family: {model}, layers: {layers}, hidden: {hidden}, heads: {heads}, context: {context}{more} }}
data: {{ sets: [{data}] }}
validation: {{ every: {every}, samples: {samples}, clean: always }}
train:
  steps: {steps}
  microbatches: {microbatches}
  microbatch_size: {microbatch_size}
  dtype: {dtype}
  optimizer: {{ lr: {lr}, weight_decay: 0.1, betas: [0.9, 0.95], clip_norm: 1.0 }}
  schedule: {{ kind: cosine, warmup: {warm_up}, final_ratio: 0.1 }}
pipeline: {{ stages: {stages} }}
checkpoint: {{ every: 0, at_end: false }}
"""


def make_data(programs, text, folder):
    """The ids as a data set; returns the sequences of a validation over all of them."""
    import numpy  # pylint: disable=import-outside-toplevel
    about, train, valid = token_text.load(text)
    files = {}
    for name, ids in (("train", train), ("valid", valid)):
        files[name] = folder / f"{name}.npy"
        numpy.save(files[name], ids)
    if not (folder / "data/dataset.json").exists():
        subprocess.run([programs / "longhaul", "data", "prepare", "--as", "tokens", "--vocabulary", str(about["vocabulary"]),
                        "--out", folder / "data", files["train"], "--validation", files["valid"]], check=True)
    return len(valid)


def file_of(options, tokens):
    """The run file of one run, whose pair and seed come later."""
    inner = -(-options.hidden * 8 // 3 // 64) * 64
    step = options.microbatches * options.microbatch_size
    samples = (tokens - 1) // options.context // step * step
    return RUN.format(
        model=options.model, layers=options.stages * options.layers, hidden=options.hidden, heads=options.heads,
        context=options.context, more=f", intermediate: {inner}" if options.model == "llama" else "",
        data=options.out / "data", every=options.steps, samples=samples, steps=options.steps,
        microbatches=options.microbatches, microbatch_size=options.microbatch_size,
        dtype="bf16" if options.device.startswith("cuda") else "fp32", lr=options.lr, warm_up=options.warm_up,
        stages=options.stages)


def row_of(run, options, pair, seed):
    last = run.steps[-1]
    tokens = options.steps * options.microbatches * options.microbatch_size * options.context
    clean = last["clean_validation_loss"]
    return {"seed": seed, "pair": pair, "step": last["step"], "tokens": tokens,
            "bytes": int(options.steps * statistics.median(step["payload_bytes"] for step in run.steps)), "loss": f"{last['validation_loss']:.6f}",
            "clean_loss": f"{last['validation_loss'] if clean is None else clean:.6f}", "error": "",
            "seconds": f"{sum(step['seconds'] for step in run.steps):.1f}"}


def train(options, pairs, done, columns):
    """Runs what `done`, the (pair, seed) that have a row, does not have yet."""
    options.out = options.out.resolve()
    file = options.out / "run.yaml"
    file.write_text(file_of(options, make_data(options.programs, options.text, options.out)))
    rows = options.out / "rows.csv"
    with cluster.Cluster(options.programs, options.stages, device=options.device) as workers:
        for pair in options.pairs:
            for seed in options.seeds:
                if (pair, seed) in done:
                    continue
                forward, backward = pairs[pair]
                run = workers.train(file, {
                    "name": f"{pair.replace('.', '-')}-{seed}", "train.seed": seed, "data.seed": seed,
                    "train.schedule.warmup": options.warm_up,
                    "links": json.dumps({"forward": forward, "backward": backward})})
                row = row_of(run, options, pair, seed)
                with open(rows, "a", newline="", encoding="utf-8") as out:
                    csv.DictWriter(out, columns).writerow(row)
                print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return 0
