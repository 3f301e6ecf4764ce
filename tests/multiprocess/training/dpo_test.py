"""Direct preference optimization over real processes: trained over two workers, killed, resumed; in replicas, by ranks
that share a stage, over links that compress.

usage: dpo_test.py BIN_DIR [CASE...]
"""
import json
import math
import random
import sys

from cases import run_cases
from data_sets_test import CONTEXT, END, TEXT, write_set
from group_test import GroupCluster, plan_of
from lora_test import submit
from nearness import expect_near
from published_test import make_model
from training_test import DEFAULT, GPT, NONE, RUN, expect_equal, wait_for

PAIRS = 300
LORA = "lora: { rank: 4, alpha: 8, targets: all-linear }"


def write_pairs(folder):
    """Answers that count upwards are preferred to those that count downwards. Pairs are whole in a window."""
    random.seed(11)
    tokens, mask, used = [], [], 0
    for _ in range(PAIRS):
        pair, bits = [], []
        first, prompt = random.randrange(60, 190), random.randrange(2, 6)
        for step in 1, -1:
            answer = random.randrange(3, 9)
            pair += [250 - i for i in range(prompt)] + [first + step * i for i in range(answer)] + [END]
            bits += [0] * prompt + [1] * (answer + 1)
        if used + len(pair) > CONTEXT:
            tokens += [END] * (CONTEXT - used)
            mask += [0] * (CONTEXT - used)
            used = 0
        tokens += pair
        mask += bits
        used += len(pair)
    tokens += [END] * (CONTEXT - used + 1)
    mask += [0] * (CONTEXT - used + 1)
    write_set(folder, tokens, masks=mask, shard_tokens=CONTEXT * 50, packed=CONTEXT)
    path = folder / "dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2, "pairs": PAIRS}))



def begin(cluster):
    if not (cluster.folder / "pairs").exists():
        make_model(cluster.folder / "base", "F32", tied=False)
        write_pairs(cluster.folder / "pairs")


def write_run(cluster, name, stages=2, steps=30, lora=LORA, dpo="dpo: { beta: 0.3 }", sets="pairs", links=NONE):
    text = RUN.format(name=name, steps=steps, stages=stages, schedule="link-aware", links=links, transport="ucx")
    text = text.replace(GPT, f"{{ from: base, context: {CONTEXT} }}").replace("lr: 1e-3", "lr: 3e-2")
    text = text.replace(TEXT, f"data: {{ sets: [{sets}], seed: 3 }}")
    path = cluster.folder / f"{name}.yaml"
    path.write_text(text.replace("  seed: 5\n", f"  seed: 5\n  {lora}\n  {dpo}\n"))
    return path


def rows(cluster, run):
    return [json.loads(line) for line in cluster.cli("steps", run, "--json").stdout.splitlines()]


def expect_preferences(what, all_rows):
    """It begins at log 2, where nothing is preferred, and ends where most of what was chosen is."""
    begun, last = all_rows[0], all_rows[-1]
    if abs(begun["validation_loss"] - math.log(2)) > 1e-9 or begun["validation_preference_accuracy"] != 0:
        raise AssertionError(f"{what}: the first validation is {begun}")
    if abs(all_rows[1]["loss"] - math.log(2)) > 1e-9 or all_rows[1]["preference_margin"] != 0:
        raise AssertionError(f"{what}: the first step is {all_rows[1]}")
    if not (last["loss"] < 0.4 and last["preference_accuracy"] > 0.9 and last["preference_margin"] > 0.5 and
            last["validation_loss"] < 0.4 and last["validation_preference_accuracy"] > 0.8):
        raise AssertionError(f"{what}: the last step is {last}")
    print(f"ok: {what}: a loss of {last['loss']:.4f}, {last['preference_accuracy']:.0%} preferred; in validation "
          f"{last['validation_loss']:.4f} and {last['validation_preference_accuracy']:.0%}", flush=True)


def trains(cluster):
    """Two stages learn what one learns, to the bit, also where a worker is killed; activations have twice the samples
    of gradients."""
    begin(cluster)
    whole = submit(cluster, write_run(cluster, "whole", stages=1), "--watch")
    losses = cluster.losses(whole)
    expect_preferences("one stage", rows(cluster, whole))
    path = write_run(cluster, "split")
    edge = plan_of(cluster, path)["assignment"]["edges"][0]
    forward, backward = (int(edge[way]["bytes"]) for way in ("forward", "backward"))
    # Two sequences of 64 tokens and 32 channels in fp32, and a blob's header.
    if not 2 * 2 * 64 * 32 * 4 <= forward < 2 * 2 * 64 * 32 * 4 + 256 or not backward < 0.51 * forward:
        raise AssertionError(f"{forward} bytes forward and {backward} backward are planned")
    broken = cluster.broken_after(10, path)
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == len(cluster.workers))
    submit(cluster, path, "--resume")
    wait_for("the end", lambda: cluster.seen(broken)["state"] == "done")
    expect_equal("two stages, killed and resumed, against one", cluster.losses(broken), losses)


def refused(cluster):
    """What cannot be, with a sentence."""
    begin(cluster)
    write_set(cluster.folder / "plain", [1 + i % 200 for i in range(2000)] + [END])
    for name, sentence, options in (
            ("no-lora", "the reference of the loss is the model without adapters", {"lora": "dtype: fp32"}),
            ("no-pairs", "it has no pairs of answers", {"sets": "plain"}),
            ("no-dpo", "it has pairs of a chosen and a rejected answer", {"dpo": "on_nonfinite: stop"})):
        got = cluster.cli("submit", write_run(cluster, name, **options), check=False)
        if got.returncode != 1 or sentence not in got.stderr:
            raise AssertionError(f"{name}: exit {got.returncode}: {got.stderr}")
    print("ok: refused with a sentence", flush=True)


def spread(cluster):
    """Two replicas, two ranks a stage, two sequence chunks, and links that compress."""
    begin(cluster)
    whole = submit(cluster, write_run(cluster, "alone", stages=1), "--watch")
    losses = cluster.losses(whole)
    replicas = submit(cluster, write_run(cluster, "replicas"), "--set", "pipeline.replicas=2", "--set",
                      "train.microbatches=2", "--watch")
    expect_near("two replicas against one", cluster.losses(replicas), losses, bound=1e-4)
    expect_preferences("two replicas", rows(cluster, replicas))
    ranks = submit(cluster, write_run(cluster, "ranks"), "--set", "group.tensor=2", "--watch")
    expect_near("two ranks against one", cluster.losses(ranks), losses, bound=1e-3)
    slices = submit(cluster, write_run(cluster, "slices"), "--set", "pipeline.slices=2", "--watch")
    expect_near("two slices against one", cluster.losses(slices), losses, bound=1e-4)
    for name, links in (("tah", DEFAULT), ("predict", '{ forward: "predict/gauss:bits=6", backward: gauss }'),
                        ("aqsgd", '{ forward: "aqsgd:bits=4", backward: gauss }')):
        run = submit(cluster, write_run(cluster, name, links=links, steps=40), "--watch")
        last = rows(cluster, run)[-1]
        if not (last["loss"] < 0.5 and last["preference_accuracy"] > 0.8):
            raise AssertionError(f"{name}: the last step is {last}")
        print(f"ok: {name}: a loss of {last['loss']:.4f}, {last['preference_accuracy']:.0%} preferred", flush=True)


if __name__ == "__main__":
    sys.exit(run_cases({"trains": trains, "refused": refused, "spread": spread}, kind=GroupCluster))
