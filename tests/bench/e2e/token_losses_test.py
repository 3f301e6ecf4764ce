"""token_losses.py at a tiny size: its summary, a text, a training that is stopped and goes on; and token_tables.py.

usage: token_losses_test.py

Exits with 77, which ctest shows as skipped, where this Python has no torch, numpy or tokenizers; the summary is tested
first.
"""
import csv
import pathlib
import subprocess
import sys
import tempfile

from token_losses import COLUMNS, UNFINISHED

PROGRAM = pathlib.Path(__file__).with_name("token_losses.py")
ROOT = PROGRAM.parents[3]
TINY = ("--stages", "3", "--hidden", "32", "--heads", "2", "--context", "16", "--microbatches", "2", "--steps", "6",
        "--warm-up", "2", "--validate-every", "4", "--validate-part", "4", "--seeds", "1", "2")
PAIRS = ("none", "tah4", "predict4", "aqsgd")


def call(*words, expected=0):
    done = subprocess.run([sys.executable, "-B", PROGRAM, *map(str, words)], capture_output=True, text=True,
                          check=False)
    if done.returncode != expected:
        raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def rows_of(folder):
    with open(folder / "rows.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check(what, fine, seen):
    if not fine:
        raise AssertionError(f"{what}: {seen}")
    print(f"ok: {what}", flush=True)


def summary(folder):
    """Differences are taken seed by seed; a row that came again replaces the first."""
    losses = {"none": (5.0, 6.0, 7.0), "predict4": (5.01, 6.03, 7.007), "predict3": (5.05, 6.12, 7.07)}
    with open(folder / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="0")
        writer.writeheader()
        for pair, values in losses.items():
            for seed, loss in enumerate(values):
                for again in (1, 0):
                    writer.writerow({"seed": seed, "pair": pair, "step": 10, "tokens": 20_000_000, "bytes": 1_000_000,
                                     "loss": loss + again, "clean_loss": loss + again})
        writer.writerow({"seed": 0, "pair": "gauss4", "step": 5, "tokens": 50, "loss": 1, "clean_loss": 1})
    text = call("summary", folder)
    # 0.2, 0.5 and 0.1 percent: mean 0.267, deviation 0.208, times 4.303 / sqrt(3).
    check("mean and interval", "+0.27 (-0.25 to +0.78)" in text, text)
    check("an interval that ends above the target shows nothing", "not shown: 0.5" in text, text)
    check("1, 2 and 1 percent", "+1.33 (-0.10 to +2.77)" in text and "not shown: 1.5" in text, text)
    check("what is not whole is no row", "gauss4" not in text, text)


def training(folder):
    print(call("text", "--out", folder / "text", "--vocabulary", 600, "--tokens", 4000, "--valid-tokens", 400,
               ROOT / "docs"))
    train = ("train", "--text", folder / "text", "--out", folder / "losses", *TINY, "--pairs", *PAIRS)
    call(*train, "--minutes", 0, expected=UNFINISHED)
    check("no time, no rows", not rows_of(folder / "losses"), rows_of(folder / "losses"))
    call(*train)
    rows = rows_of(folder / "losses")
    check("a row for each look", [(row["pair"], row["seed"], row["step"]) for row in rows] ==
          [(pair, seed, step) for pair in PAIRS for seed in "12" for step in "46"], rows)
    by_pair = {row["pair"]: row for row in rows if row["step"] == "6" and row["seed"] == "1"}
    check("codecs send less", int(by_pair["none"]["bytes"]) > 3 * int(by_pair["predict4"]["bytes"]), by_pair)
    check("they lose little, and something", all(
        0 < abs(float(by_pair[pair]["loss"]) / float(by_pair["none"]["loss"]) - 1) < 0.05 for pair in PAIRS[1:]),
        by_pair)
    before = (folder / "losses/rows.csv").read_bytes()
    call(*train)
    check("what is whole is not done again", (folder / "losses/rows.csv").read_bytes() == before, "other rows")
    done = subprocess.run([sys.executable, "-B", PROGRAM, *map(str, train), "--lr", "1"], capture_output=True,
                          text=True, check=False)
    check("other settings are refused", done.returncode == 1 and "other settings" in done.stderr, done.stderr)
    deep = ("train", "--text", folder / "text", "--out", folder / "deep", *TINY, "--model", "llama", "--layers", "2")
    call(*deep, "--pairs", "none", "predict4", "--seeds", 1)
    losses = {row["pair"]: float(row["loss"]) for row in rows_of(folder / "deep")}
    check("Llama's layers, two a stage", 0 < abs(losses["predict4"] / losses["none"] - 1) < 0.05, losses)
    check("the summary has all", all(f"| {pair} |" in call("summary", folder / "losses") for pair in PAIRS), "")


def tables(folder):
    rows = folder / "tables.csv"
    subprocess.run([sys.executable, "-B", PROGRAM.with_name("token_tables.py"), "--text", folder / "text", "--out", rows,
                    "--steps", "8", "--hidden", "32", "--heads", "2", "--stages", "3", "--context", "16",
                    "--microbatches", "2", "--boundaries", "0", "1"], check=True)
    with open(rows, newline="", encoding="utf-8") as file:
        last = {row["kind"]: float(row["left"]) for row in csv.DictReader(file) if row["step"] == "8"}
    fp32, bf16 = (last["mean and tokens, rate 0.05" + dtype] for dtype in ("", ", bf16"))
    check("all tables explain something, and those of bf16 as much", len(last) == 11 and abs(bf16 / fp32 - 1) < 0.01 and
          all(0 < left < 0.9 for left in last.values()), last)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "made").mkdir()
        summary(folder / "made")
        try:
            import numpy  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
            import tokenizers  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
            import torch  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        except (ImportError, OSError) as error:
            print(f"skipped the training: {sys.executable}: {error}")
            return 77
        training(folder)
        tables(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
