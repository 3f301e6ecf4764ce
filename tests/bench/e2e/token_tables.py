#!/usr/bin/env python3
"""What tables of predict would explain: tables of many kinds learn side by side in one exact training run, and each kind
is asked how much of the activations' energy it leaves. Kinds differ by less than the losses of two seeds do.

  token_tables.py --text text --out rows.csv --device cuda:0     `text`: what `token_losses.py text` wrote

The text is cut into microbatches of one sequence, after each of which the tables learn. Rows come after each quarter of
the steps. `left`: sum of (x - prediction)^2 over that of x^2; `left_rare`: of tokens that were seen less than three times.
"""
import argparse
import csv
import math
import pathlib
import sys

import torch
import token_text
from token_model import Model

HASH_BEFORE, HASH_TOKEN = 0x9e3779b97f4a7c15 - (1 << 64), 0xc2b2ae3d27d4eb4f - (1 << 64)  # codec/predict/arithmetic.h
COLUMNS = ("model", "layers", "step", "boundary", "kind", "left", "left_rare")
PAIRS = 65536


class Rows:
    """A table: a row of means for each key, towards which it moves by at least `rate`."""

    def __init__(self, rows, channels, device, dtype, rate, prior):
        self.rows = torch.zeros(rows, channels, device=device, dtype=dtype)
        self.counts = torch.zeros(rows, device=device)
        self.rate, self.prior = rate, prior

    def at(self, keys):
        return self.rows[keys].float()

    def learn(self, values, groups):
        unique, inverse, counts = groups
        means = torch.zeros(len(unique), values.shape[1], device=values.device).index_add_(0, inverse, values)
        old, seen = self.rows[unique].float(), self.counts[unique] + counts
        self.counts[unique] = seen
        rate = (counts / (seen + self.prior)).clamp(min=self.rate)[:, None]
        self.rows[unique] = (old + rate * (means / counts[:, None] - old)).to(self.rows.dtype)


class Kind:
    """Tables of one boundary. `more`: pairs, places or before (the previous token), beside the tokens' own rows."""

    def __init__(self, vocabulary, channels, device, rate=0.05, mean_rate=0.02, mean=True, dtype=torch.float32, more=None):
        self.mean = torch.zeros(channels, device=device)
        self.has_mean, self.mean_rate, self.seen, self.more = mean, mean_rate, 0, more
        self.tokens = Rows(vocabulary, channels, device, dtype, rate, prior=0)
        rows = {None: 0, "pairs": PAIRS, "places": 4096, "before": vocabulary}[more]
        self.others = Rows(rows, channels, device, dtype, rate, prior=4)
        self.left = torch.zeros(2, device=device, dtype=torch.float64)  # of all tokens, of rare ones

    def step(self, x, keys, rare):
        ids, groups = keys["tokens"]
        of_token = self.mean + self.tokens.at(ids)
        of_more = self.others.at(keys[self.more][0]) if self.more else 0
        unknown = x - of_token - of_more
        energy = unknown.square().sum(1)
        self.left += torch.stack((energy.sum(), energy[rare].sum())).double()
        # The first message teaches the mean alone.
        if self.seen or not self.has_mean:
            self.tokens.learn(x - self.mean, groups)
            if self.more == "pairs":
                self.others.learn(x - self.mean - self.tokens.at(ids), keys["pairs"][1])
            elif self.more:
                self.others.learn(unknown + of_more, keys[self.more][1])
        self.seen += len(ids)
        if self.has_mean:
            self.mean += max(len(ids) / self.seen, self.mean_rate) * (x.mean(0) - self.mean)


KINDS = {
    "tokens, rate 0.02": {"mean": False, "rate": 0.02},
    "tokens and pairs, rate 0.02": {"mean": False, "rate": 0.02, "more": "pairs"},
    "mean and tokens, rate 0.02": {"rate": 0.02},
    "mean and tokens, rate 0.05": {},
    "mean and tokens, both rates 0.05": {"mean_rate": 0.05},
    "mean and tokens, rate 0.1": {"rate": 0.1},
    "mean and tokens, rate 0.2": {"rate": 0.2},
    "mean and tokens, rate 0.05, bf16": {"dtype": torch.bfloat16},
    "mean, tokens and places": {"more": "places"},
    "mean, tokens and pairs": {"more": "pairs"},
    "mean, tokens and before": {"more": "before"},
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", choices=("gpt", "llama"), default="gpt")
    for flag, default in (("--steps", 610), ("--hidden", 512), ("--heads", 8), ("--stages", 8), ("--layers", 1),
                          ("--context", 1024), ("--microbatches", 16), ("--warm-up", 100)):
        parser.add_argument(flag, type=int, default=default, help="(default %(default)s)")
    parser.add_argument("--boundaries", type=int, nargs="+", default=[1, 5], help="from 0 on (default %(default)s)")
    return parser.parse_args()


def keys_of(ids, device):
    """For each kind of table: the rows of the tokens; and which tokens share a row, how many."""
    before = torch.cat((torch.zeros(1, dtype=torch.int64), ids[:-1]))
    keys = {"tokens": ids, "before": before, "places": torch.arange(len(ids)),
            "pairs": ((before * HASH_BEFORE + ids * HASH_TOKEN) >> 48) & (PAIRS - 1)}

    def groups(key):
        unique, inverse, counts = key.unique(return_inverse=True, return_counts=True)
        return unique.to(device), inverse.to(device), counts.float().to(device)
    return {name: (key.to(device), groups(key)) for name, key in keys.items()}


def main():
    options = parse()
    device = torch.device(options.device)
    about, ids, _ = token_text.load(options.text)
    data = torch.from_numpy(ids.astype("int64"))
    torch.manual_seed(1)
    model = Model(options.model, about["vocabulary"], options.hidden, options.heads, options.context, options.stages,
                  options.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    kinds = {b: {name: Kind(about["vocabulary"], options.hidden, device, **how) for name, how in KINDS.items()}
             for b in options.boundaries}
    energy = {b: torch.zeros(2, device=device, dtype=torch.float64) for b in options.boundaries}
    seen = torch.zeros(about["vocabulary"])
    order = torch.randperm((len(data) - 1) // options.context, generator=torch.Generator().manual_seed(1))
    with open(options.out, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for step in range(options.steps):
            windows = order[step * options.microbatches:(step + 1) * options.microbatches].tolist()
            rows = torch.stack([data[w * options.context:(w + 1) * options.context + 1] for w in windows])
            there, kept = rows.to(device), {}

            def cross(x, boundary):
                kept[boundary] = x.detach()  # noqa: B023: used in this step alone  pylint: disable=cell-var-from-loop
                return x
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min((step + 1) / options.warm_up, 1) * (
                    0.1 + 0.45 * (1 + math.cos(math.pi * step / options.steps)))
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = model(there[:, :-1], there[:, 1:], cross)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                for number, row in enumerate(rows):
                    keys, rare = keys_of(row[:-1].contiguous(), device), (seen[row[:-1]] < 3).to(device)
                    seen.index_add_(0, row[:-1], torch.ones(options.context))
                    for b in options.boundaries:
                        x = kept[b][number].float()
                        own = x.square().sum(1)
                        energy[b] += torch.stack((own.sum(), own[rare].sum())).double()
                        for kind in kinds[b].values():
                            kind.step(x, keys, rare)
            if (step + 1) % max(options.steps // 4, 1):
                continue
            for b in options.boundaries:
                for name, kind in kinds[b].items():
                    left = (kind.left / energy[b]).tolist()
                    writer.writerow((options.model, options.layers, step + 1, b, name, *(f"{one:.4f}" for one in left)))
                    kind.left.zero_()
                energy[b].zero_()
            file.flush()
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
