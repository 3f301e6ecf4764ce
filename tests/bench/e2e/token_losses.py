#!/usr/bin/env python3
"""What codecs of links cost in loss where words are tokens: one model from scratch, cut into stages, for
each pair of codecs and seed, at most one pass over a text. One process computes all stages; their boundaries go through
longhaul's codecs as operators of PyTorch (python/README.md), forward and backward, a microbatch at a time.

  token_losses.py text --out text --tokens 21000000 /usr/include /usr/share      once; needs PyPI's `tokenizers`
  token_losses.py train --text text --out losses --device cuda:0 --minutes 9     again and again, until it ends with 0
  token_losses.py service --programs build/release/bin --text text --out real --device cuda:0      the same by workers
  token_losses.py summary losses

`train` writes rows.csv, each row as it comes: loss through the codecs and with clean boundaries over validation. Runs
come in the order of --pairs, each for all --seeds. Stopped by --minutes, the same command goes on with the runs that
are not whole; two of them may run at a time with other --seeds or --pairs, one on each GPU. `summary` compares each
pair with `none`, seed by seed.

Exit codes: 0; 75 where runs are missing: call again; 77 (skipped) without torch.
"""
import argparse
import contextlib
import csv
import json
import math
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIPPED, UNFINISHED = 77, 75
FIXED3 = "fixed:bits=3,rounding=stochastic"
FIXED4 = "fixed:bits=4,rounding=stochastic"
DITHER2 = "dither:bits=2"
PAIRS = {  # forward, backward
    "none": ("none", "none"),
    "tah4": ("tah", FIXED4),
    "paper": ("tah", "fixed:bits=6"),
    "predict4": ("predict/gauss:bits=4", FIXED3),
    "predict3": ("predict/gauss:bits=3", FIXED3),
    "aqsgd": ("aqsgd:bits=4", "fixed:bits=8"),
    "gauss4": ("gauss:bits=4", FIXED4),
    # More of them, by name alone.
    "aqsgd-dither2": ("aqsgd:bits=4", DITHER2),
    "gauss4-fixed3": ("gauss:bits=4", FIXED3),
    "gauss3-fixed3": ("gauss:bits=3", FIXED3),
    "none-fixed3": ("none", FIXED3),
    "predict4-fixed4": ("predict/gauss:bits=4", FIXED4),
    "predict3-fixed4": ("predict/gauss:bits=3", FIXED4),
    "none-dither2": ("none", DITHER2),
    "predict5-dither2": ("predict/gauss:bits=5", DITHER2),
    "predict4-dither3": ("predict/gauss:bits=4", "dither:bits=3"),
    "predict4-dither2": ("predict/gauss:bits=4", DITHER2),
    "predict4-dither1.5": ("predict/gauss:bits=4", "dither:bits=1.5"),
    "gauss5-dither2": ("gauss:bits=5", DITHER2),
    "predict4-tokens": ("predict:pairs=0/gauss:bits=4", FIXED3),
    "predict3-tokens": ("predict:pairs=0/gauss:bits=3", FIXED3),
    "predict4-no-prior": ("predict:prior=0/gauss:bits=4", FIXED3),
    "predict3-no-prior": ("predict:prior=0/gauss:bits=3", FIXED3),
}
STANDARD = list(PAIRS)[:7]
TARGETS = {"predict4": 0.5, "predict3": 1.5, "predict5-dither2": 0.5, "predict4-dither2": 1.5}  # percent of loss, in runs of at least
TARGET_TOKENS = 20_000_000
COLUMNS = ("seed", "pair", "step", "tokens", "bytes", "loss", "clean_loss", "error", "seconds")
# Quantiles of Student's distribution by degrees of freedom; both tails together have 5 %.
QUANTILES = (math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    text = commands.add_parser("text")
    text.add_argument("paths", nargs="+", type=pathlib.Path, help="folders")
    text.add_argument("--out", type=pathlib.Path, required=True)
    text.add_argument("--vocabulary", type=int, default=32768)
    text.add_argument("--tokens", type=int, default=21_000_000)
    text.add_argument("--valid-tokens", type=int, default=1_100_000)
    train = commands.add_parser("train")
    service = commands.add_parser("service")
    service.add_argument("--programs", type=pathlib.Path, required=True, metavar="BIN_DIR")
    for one in (train, service):
        add_training(one)
    train.add_argument("--minutes", type=float, default=math.inf)
    summary = commands.add_parser("summary")
    summary.add_argument("folders", nargs="+", type=pathlib.Path, help="of `train` or `service`")
    return parser.parse_args()


def add_training(train):
    train.add_argument("--text", type=pathlib.Path, required=True, metavar="DIR", help="what `text` wrote")
    train.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    train.add_argument("--device", default="cpu", help="cpu or cuda:N (default %(default)s)")
    train.add_argument("--pairs", nargs="+", choices=PAIRS, default=STANDARD, metavar="PAIR",
                       help=f"of {', '.join(PAIRS)} (default: the first {len(STANDARD)})")
    train.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    for flag, default, what in (
            ("--stages", 8, ""), ("--layers", 1, "a stage"), ("--hidden", 512, "channels"), ("--heads", 8, ""),
            ("--context", 1024, "tokens of a sequence"), ("--microbatches", 16, "a step"),
            ("--microbatch-size", 1, "sequences"), ("--steps", 1221, ""), ("--warm-up", 100, "steps"),
            ("--validate-every", 0, "steps, of a part of validation; 0: at the end alone"),
            ("--validate-part", 64, "sequences of that part"), ("--threads", 1, "on the CPU")):
        train.add_argument(flag, type=int, default=default, help=f"{what} (default %(default)s)".strip())
    train.add_argument("--model", choices=("gpt", "llama"), default="gpt", help="kind of layers (default %(default)s)")
    train.add_argument("--lr", type=float, default=1e-3, help="(default %(default)s)")


def read_rows(folders):
    """{(pair, seed): {step: row}}; of a row that came twice the later one."""
    runs = {}
    for folder in folders:
        path = folder / "rows.csv"
        if not path.exists():
            continue
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                runs.setdefault((row["pair"], int(row["seed"])), {})[int(row["step"])] = row
    return runs


def settings_of(options):
    names = ("model", "stages", "layers", "hidden", "heads", "context", "microbatches", "microbatch_size", "steps",
             "warm_up", "lr", "validate_every", "validate_part")
    about = json.loads((options.text / "text.json").read_text())
    return {**{name: getattr(options, name) for name in names}, "text": about, "dtype":
            "bf16" if options.device.startswith("cuda") else "fp32"}


def open_folder(options):
    """Makes the folder ready: rows.csv is there, and the settings in it are these."""
    options.out.mkdir(parents=True, exist_ok=True)
    settings, known = settings_of(options), options.out / "settings.json"
    if not known.exists():
        known.write_text(json.dumps(settings, indent=1) + "\n")
    elif json.loads(known.read_text()) != settings:
        sys.exit(f"{known} has other settings than the command line; repeat those, or take another --out")
    with contextlib.suppress(FileExistsError), open(options.out / "rows.csv", "x", encoding="utf-8") as file:
        file.write(",".join(COLUMNS) + "\n")


class Training:
    """A run."""

    def __init__(self, torch, options, pair, seed, data):
        from token_model import Link, Model  # pylint: disable=import-outside-toplevel
        self.torch, self.options, self.pair, self.seed = torch, options, pair, seed
        about, self.train, self.valid = data
        self.began = time.monotonic()
        self.device = torch.device(options.device)
        torch.manual_seed(seed)
        message = (options.microbatch_size, options.context, options.hidden)
        self.links = [Link(PAIRS[pair], message, about["vocabulary"], self.device) for _ in range(options.stages - 1)]
        self.model = Model(options.model, about["vocabulary"], options.hidden, options.heads, options.context,
                           options.stages, options.layers).to(self.device)
        cuda = self.device.type == "cuda"
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                            {"params": others, "weight_decay": 0.0}], lr=options.lr,
                                           betas=(0.9, 0.95), fused=cuda)
        self.autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=cuda)
        windows = (len(self.train) - 1) // options.context
        self.samples = options.microbatches * options.microbatch_size
        if options.steps * self.samples > windows:
            sys.exit(f"{options.steps} steps of {self.samples} sequences are more than one pass over {windows}")
        self.order = torch.randperm(windows, generator=torch.Generator().manual_seed(seed))
        self.loss = torch.zeros((), device=self.device)

    def _loss(self, text, windows, seed=None, clean=False):
        """The loss of these windows of the text. `seed`: of the codecs' random numbers; None outside training."""
        torch, context = self.torch, self.options.context
        rows = torch.stack([text[window * context:window * context + context + 1] for window in windows])
        ids = rows[:, :-1].contiguous()
        there = rows.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else rows

        def cross(x, boundary):
            if clean:
                return x
            return self.links[boundary](x, ids, seed is not None, (seed or 0) * len(self.links) + boundary)

        with self.autocast:
            return self.model(there[:, :-1], there[:, 1:], cross)

    def step(self, number, measures):
        options = self.options
        for link in self.links:
            link.measures = measures
        rate = min((number + 1) / max(options.warm_up, 1), 1) * (
            0.1 + 0.45 * (1 + math.cos(math.pi * number / options.steps)))
        for group in self.optimizer.param_groups:
            group["lr"] = options.lr * rate
        windows = self.order[number * self.samples:(number + 1) * self.samples].tolist()
        loss = self._loss(self.train, windows, seed=self.seed * 1_000_003 + number)
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.detach()

    def validate(self, part):
        """Losses through the codecs and with clean boundaries; of the first `part` sequences, or all (0)."""
        torch, losses = self.torch, []
        windows = (len(self.valid) - 1) // self.options.context
        windows = min(part or windows, windows) // self.samples * self.samples
        for clean in (False, True):
            if clean and self.pair == "none":
                losses.append(losses[0])
                break
            total = torch.zeros((), device=self.device, dtype=torch.float64)
            with torch.no_grad():
                for first in range(0, windows, self.samples):
                    total += self._loss(self.valid, range(first, first + self.samples), clean=clean).double()
            losses.append(total.item() * self.samples / windows)
        return losses

    def row(self, step, part):
        error = statistics.mean(float(link.error) for link in self.links)  # of training
        for link in self.links:
            link.measures = False
        loss, clean = self.validate(part)
        for link in self.links:
            link.check()
        messages = step * self.options.microbatches
        return {"seed": self.seed, "pair": self.pair, "step": step,
                "tokens": step * self.samples * self.options.context,
                "bytes": messages * sum(link.bytes_of_message for link in self.links), "loss": f"{loss:.6f}",
                "clean_loss": f"{clean:.6f}", "error": f"{error:.4f}",
                "seconds": f"{time.monotonic() - self.began:.1f}"}

    def run(self, deadline, keep):
        """Whether it was whole before the deadline."""
        every = self.options.validate_every
        for number in range(self.options.steps):
            done = number + 1
            looks = done == self.options.steps or (every and done % every == 0)
            self.step(number, looks)
            if number % 16 == 0 and not math.isfinite(self.loss.item()):
                print(f"  step {done}: the loss is {self.loss.item()}", flush=True)
            if time.monotonic() > deadline:
                return False
            if looks:
                keep(self.row(done, 0 if done == self.options.steps else self.options.validate_part))
        return True


def train(options):
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except (ImportError, OSError) as error:
        print(f"skipped: {sys.executable} cannot import torch ({error})")
        return SKIPPED
    sys.path.insert(0, str(ROOT / "python"))
    import longhaul_codecs  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
    import token_text  # pylint: disable=import-outside-toplevel
    deadline = time.monotonic() + 60 * options.minutes
    open_folder(options)
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = True
    about, ids, valid = token_text.load(options.text)
    data = (about, *(torch.from_numpy(part.astype("int64")) for part in (ids, valid)))
    longest = 0
    for pair in options.pairs:
        for seed in options.seeds:
            if options.steps in read_rows([options.out]).get((pair, seed), {}):
                continue
            if time.monotonic() + longest > deadline:
                print(f"no time is left for {pair}, seed {seed}; call again")
                return UNFINISHED
            run = Training(torch, options, pair, seed, data)

            def keep(row):
                with open(options.out / "rows.csv", "a", newline="", encoding="utf-8") as file:
                    csv.DictWriter(file, COLUMNS).writerow(row)
                print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)

            if not run.run(deadline, keep):
                print(f"time was up in {pair}, seed {seed}, whose run begins anew; call again")
                return UNFINISHED
            longest = max(longest, time.monotonic() - run.began)
            del run
    return 0


def interval(values):
    """Mean and half of the 95 % interval; nan where there is one value."""
    if len(values) < 2:
        return statistics.mean(values), math.nan
    quantile = QUANTILES[min(len(values) - 1, len(QUANTILES) - 1)]
    return statistics.mean(values), quantile * statistics.stdev(values) / math.sqrt(len(values))


def summary(options):
    runs = read_rows(options.folders)
    if not runs:
        sys.exit("expected rows.csv in these folders, with rows")
    last = max(step for rows in runs.values() for step in rows)
    final = {key: rows[last] for key, rows in runs.items() if last in rows}
    print(f"after {last} steps of {int(next(iter(final.values()))['tokens']) // last} tokens; differences to none in "
          "percent, seed by seed: mean and 95 % interval")
    print("| pair | forward + backward | MB | seeds | through codecs | clean | difference through codecs | clean | "
          "upper end of the worse | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for pair, codecs in PAIRS.items():
        seeds = sorted(seed for name, seed in final if name == pair)
        if not seeds:
            continue
        rows = [final[pair, seed] for seed in seeds]
        cells = [pair, " + ".join(f"`{codec}`" for codec in codecs), f"{int(rows[0]['bytes']) / 1e6:,.0f}",
                 str(len(seeds))]
        cells += [f"{statistics.mean(float(row[name]) for row in rows):.4f}" for name in ("loss", "clean_loss")]
        paired = [seed for seed in seeds if ("none", seed) in final]
        verdict = ""
        if pair != "none" and paired:
            uppers = []
            for name in ("loss", "clean_loss"):
                mean, half = interval([100 * (float(final[pair, seed][name]) / float(final["none", seed]["loss"]) - 1)
                                       for seed in paired])
                ends = "" if math.isnan(half) else f" ({mean - half:+.2f} to {mean + half:+.2f})"
                cells.append(f"{mean:+.2f}{ends}")
                uppers.append(mean + half)
            upper = max(uppers) if all(map(math.isfinite, uppers)) else math.nan
            cells.append("" if math.isnan(upper) else f"{upper:+.2f}")
            if pair in TARGETS and int(rows[0]["tokens"]) >= TARGET_TOKENS:
                verdict = f"{'met' if upper <= TARGETS[pair] else 'not shown'}: {TARGETS[pair]}"
        else:
            cells += ["", "", ""]
        print("| " + " | ".join(cells + [verdict]) + " |")
    return 0


def main():
    options = parse()
    if options.command == "summary":
        return summary(options)
    if options.command == "train":
        return train(options)
    if options.command == "service":
        import token_service  # pylint: disable=import-outside-toplevel
        open_folder(options)
        done = {key for key, rows in read_rows([options.out]).items() if options.steps in rows}
        return token_service.train(options, PAIRS, done, COLUMNS)
    import token_text  # pylint: disable=import-outside-toplevel
    print(json.dumps(token_text.build(options.out, options.paths, options.vocabulary, options.tokens,
                                      options.valid_tokens), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
