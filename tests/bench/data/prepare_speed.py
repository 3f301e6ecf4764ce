#!/usr/bin/env python3
"""How fast `longhaul data prepare` is beside the tokenizers package's own encode_batch_fast over the same batches.

Makes a text from a seeded generator (or takes --text FILE, a .txt or .jsonl), trains a byte-level BPE on a sample of
it, and then takes both times in turn: encode_batch_fast alone over batches that are in memory, and all of prepare,
from the files to the data set's folder. The text is in --slices files, and the turns change after each, so that what
else the machine does falls on both. Prints a row a repetition and the median ratio.

usage: prepare_speed.py [--megabytes 100] [--slices 10] [--repeats 3] [--text FILE] [--vocabulary 32000] [--csv FILE]

Needs the packages of deploy/data/requirements.txt; exit code 77 where they are missing.
"""
import argparse
import csv
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "deploy/data"))
SKIPPED = 77
SAMPLE_BYTES = 8_000_000


def words(rng, count):
    """Made of syllables, so that a BPE finds parts in them."""
    onsets = "b c d f g h j k l m n p r s t v w br ch cl dr fl gr pl pr sh sl st th tr".split() + [""]
    vowels = "a e i o u ai ea ee io ou".split()
    codas = "n r s t l m nd ng st ck".split() + [""] * 6
    made = set()
    while len(made) < count:
        made.add("".join(rng.choice(onsets) + rng.choice(vowels) + rng.choice(codas)
                         for _ in range(rng.choice((1, 1, 2, 2, 2, 3, 3, 4)))))
    made = sorted(made)
    rng.shuffle(made)
    return made


def generate(paths, size, seed):
    """Files of `size` bytes in all: documents of 100 bytes to 20 KB, words by Zipf's law, a number and punctuation
    now and then."""
    rng = random.Random(seed)
    vocabulary = words(rng, 60_000)
    weights = [1 / (rank + 2) for rank in range(len(vocabulary))]
    totals, total = [], 0.0
    for weight in weights:
        total += weight
        totals.append(total)
    for path in paths:
        write_documents(path, size // len(paths), rng, vocabulary, totals)


def write_documents(path, size, rng, vocabulary, totals):
    written = 0
    with open(path, "w", encoding="utf-8") as file:
        while written < size:
            chosen = rng.choices(vocabulary, cum_weights=totals, k=int(rng.lognormvariate(6, 1)) % 4000 + 16)
            for at in range(0, len(chosen), 11):
                chosen[at] = chosen[at].capitalize() if at % 2 else str(rng.randrange(3000))
                chosen[at - 1] += rng.choice((".", ",", ".\n", ";", "?", ".\n\n"))
            line = json.dumps({"text": " ".join(chosen)}, ensure_ascii=False) + "\n"
            file.write(line)
            written += len(line)


def sample(path):
    with open(path, encoding="utf-8") as file:
        text = file.read(SAMPLE_BYTES)
    if path.suffix != ".jsonl":
        return [text]
    return [json.loads(line)["text"] for line in text.split("\n")[:-1]]


def train(texts, size, path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(str(path))


class Nothing:
    """A progress that is not shown."""

    def read(self, position):
        pass

    def file_done(self, size):
        pass


def preparation(tokenizer, text, out):
    from longhaul_data.cli import parse
    from longhaul_data.prepare import TextPreparation

    return TextPreparation(parse(["prepare", "--force", "--tokenizer", str(tokenizer), "--out", str(out), str(text)]))


def wheel_alone(tokenizer, text, out):
    """Takes the batches that prepare makes into memory; then `measured` of encode_batch_fast alone over them."""
    from longhaul_data.prepare import Counts

    prepared = preparation(tokenizer, text, out)
    batches = [[piece.text for piece in batch]
               for batch in prepared.batches(prepared._training, Nothing(), Counts())]
    backend = prepared._tokenizer.backend

    def encode():
        for batch in batches:
            backend.encode_batch_fast(batch, add_special_tokens=False)

    return measured(encode)[1]


def whole(tokenizer, text, out):
    """`measured` of all that the command does, and the number of tokens. What does not grow with the text, such as
    loading the tokenizer, is apart: (its seconds, the rest, tokens)."""
    prepared, loading = measured(preparation, tokenizer, text, out)
    summary, rest = measured(prepared.run)
    return loading, rest, sum(entry["tokens"] for entry in summary.manifest["training"])


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'}, {os.cpu_count()} cores"


def busy_seconds():
    """Busy time of all cores since the start, by every process, in /proc/stat's ticks."""
    with open("/proc/stat", encoding="utf-8") as file:
        ticks = list(map(int, file.readline().split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def measured(call, *arguments):
    """(result, (seconds, own seconds of cores, those that other processes took meanwhile))."""
    others, own, began = busy_seconds(), time.process_time(), time.perf_counter()
    result = call(*arguments)
    seconds, own = time.perf_counter() - began, time.process_time() - own
    return result, (seconds, own, max(0.0, busy_seconds() - others - own))


def added(one, other):
    return tuple(map(sum, zip(one, other)))


def repetition(tokenizer, texts, out):
    """(of the wheel alone, of prepare, tokens); the first two as by `measured`."""
    alone = prepared = (0.0, 0.0, 0.0)
    tokens = 0
    for number, text in enumerate(texts):
        alone = added(alone, wheel_alone(tokenizer, text, out))
        loading, rest, count = whole(tokenizer, text, out)
        prepared = added(prepared, rest)
        if number == 0:
            prepared = added(prepared, loading)
        tokens += count
    return alone, prepared, tokens


def row_of(number, size, tokens, wheel, prepare):
    """`wheel` and `prepare`: (seconds, own seconds of cores, others')."""
    row = {"repetition": number, "bytes": size, "tokens": tokens, "ratio": round(wheel[0] / prepare[0], 4)}
    for name, values in (("wheel", wheel), ("prepare", prepare)):
        for what, value in zip(("seconds", "own_cpu_seconds", "others_cpu_seconds"), values):
            row[f"{name}_{what}"] = round(value, 2)
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--slices", type=int, default=10, metavar="N", help="files that the text is in (10)")
    parser.add_argument("--csv", type=pathlib.Path)
    arguments = parser.parse_args()
    try:
        import numpy  # noqa: F401
        import tokenizers
    except ImportError as error:
        print(f"skipped: {sys.executable}: {error}; deploy/setup.sh --data brings it")
        return SKIPPED
    rows = []
    with tempfile.TemporaryDirectory(prefix="longhaul-prepare-") as name:
        folder = pathlib.Path(name)
        texts = [arguments.text]
        if arguments.text is None:
            texts = [folder / f"text-{number}.jsonl" for number in range(arguments.slices)]
            generate(texts, int(arguments.megabytes * 1e6), arguments.seed)
        tokenizer = folder / "tokenizer.json"
        train(sample(texts[0]), arguments.vocabulary, tokenizer)
        size = sum(text.stat().st_size for text in texts)
        print(f"{machine()}; tokenizers {tokenizers.__version__}; {size / 1e6:.1f} MB in {len(texts)} files")
        print("repetition\twheel alone\tprepare\tratio\ttokens\tseconds of cores: own, others' (wheel; prepare)")
        for number in range(1, arguments.repeats + 1):
            alone, prepared, tokens = repetition(tokenizer, texts, folder / "out")
            rows.append(row_of(number, size, tokens, alone, prepared))
            print(f"{number}\t{alone[0]:.2f} s, {size / alone[0] / 1e6:.2f} MB/s\t{prepared[0]:.2f} s, "
                  f"{size / prepared[0] / 1e6:.2f} MB/s\t{rows[-1]['ratio']:.3f}\t{tokens}\t"
                  f"{alone[1]:.1f}, {alone[2]:.1f}; {prepared[1]:.1f}, {prepared[2]:.1f}", flush=True)
    print(f"median ratio: {statistics.median(row['ratio'] for row in rows):.3f} of encode_batch_fast alone")
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
