"""What the tables of `predict` take of two workers' memory, beside what the plan counts, and whether steps are still as
planned: a replay of two stages, whose codecs are real, with and without it. Every id comes, so every row is used."""
import array
import hashlib
import itertools
import json
import pathlib
import random
import re
import statistics
import tempfile

import needs
from cluster import ROOT, Cluster, Failed
from report import Table, spread

FILE = ROOT / "deploy/runs/gpt2_xl_replay.yaml"
STAGES = 2
PLAIN = "gauss:bits=4"
PREDICTS = f"predict:pairs=65536/{PLAIN}"
SHAPES = ("50257x1600x25", "151936x2048x16")
MICROBATCHES, SEQUENCES = 8, 4  # of a step, of a microbatch
CONTEXT = 1024
CHUNK = 4096


def add_arguments(parser):
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="IDSxCHANNELSxHEADS", help="default: %(default)s")
    parser.add_argument("--rate", default="100mbit", help="of every link (default %(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="that count, of each run (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=1, help="that do not count (default %(default)s)")


def check_needs(arguments):
    for shape in arguments.shapes:
        if len([word for word in shape.split("x") if word.isdigit()]) != 3:
            raise Failed(f"--shapes: expected IDSxCHANNELSxHEADS, got {shape}")
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(FILE)


def table_of(arguments):
    return Table(
        f"{STAGES} stages of {FILE.name} at {arguments.rate}, two layers, codecs real: GB that {PREDICTS} takes more than "
        f"{PLAIN}, as planned and at most in the daemon; step seconds, median (middle half) of {arguments.steps}",
        ["ids", "channels", "stage", "planned", "taken", "step", "predicted", "step/predicted"])


def peak_bytes(pid):
    """The largest memory of the process since it began, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def write_run_file(folder, ids, steps):
    """Writes a run file and its data set, which repeats all ids in a random order."""
    shuffled = list(range(ids))
    random.Random(1).shuffle(shuffled)
    tokens = steps * MICROBATCHES * SEQUENCES * CONTEXT + 1
    if tokens <= ids:
        raise Failed(f"--steps: {steps} steps have {tokens - 1} tokens, which are not all of {ids} ids")
    raw = array.array("I", itertools.islice(itertools.cycle(shuffled), tokens)).tobytes()
    (folder / "training-00000.bin").write_bytes(raw)
    chunks = "".join(hashlib.sha256(raw[at:at + CHUNK]).hexdigest() for at in range(0, len(raw), CHUNK))
    (folder / "dataset.json").write_text(json.dumps({
        "format": "longhaul data set", "version": 1, "tokenizer": None, "end_token": 0, "vocabulary": ids,
        "bytes_per_token": 4, "packed": 0, "chunk_bytes": CHUNK, "documents": 1, "validation": [],
        "training": [{"file": "training-00000.bin", "offset": 0, "tokens": tokens, "chunks": chunks}]}))
    text, replaced = re.subn(r"data:\n(?:  .*\n)+", f"data: {{ sets: ['{folder}'] }}\n", FILE.read_text())
    if replaced != 1:
        raise Failed(f"{FILE}: expected one section data, found {replaced}")
    path = folder / FILE.name
    path.write_text(text)
    return path


def trained(arguments, shape, codec):
    """The run, and what each worker took at most. Of daemons of their own: these never give memory back."""
    ids, channels, heads = shape.split("x")
    steps = arguments.warm_up + arguments.steps
    with tempfile.TemporaryDirectory(prefix="longhaul-tables-") as folder, \
            Cluster(arguments.programs, workers=STAGES, rate=arguments.rate) as cluster:
        run = cluster.train(write_run_file(pathlib.Path(folder), int(ids), steps), {
            "train.steps": steps, "train.microbatches": MICROBATCHES, "train.microbatch_size": SEQUENCES,
            "validation.every": 0, "pipeline.stages": STAGES, "model.layers": STAGES, "model.hidden": channels,
            "model.heads": heads, "model.vocabulary": ids, "model.context": CONTEXT, "replay.codecs": "real",
            "links.forward": codec, "links.backward": "'fixed:bits=3,rounding=stochastic'"})
        pids = {worker["name"]: worker["pid"] for worker in cluster.state()["workers"]}
        cells = run.plan["assignment"]["cells"]
        return run, [peak_bytes(pids[cell["worker_name"]]) for cell in cells]


def measure(arguments, table):
    as_planned = True
    for shape in arguments.shapes:
        (plain, least), (run, most) = (trained(arguments, shape, codec) for codec in (PLAIN, PREDICTS))
        seconds, predicted = run.step_seconds(after=arguments.warm_up), run.prediction["step_seconds"]
        for stage in range(STAGES):
            with_it, without = (int(one.plan["assignment"]["cells"][stage]["memory_bytes"]) for one in (run, plain))
            planned = with_it - without
            taken = most[stage] - least[stage]
            as_planned = as_planned and taken <= planned
            table.add(*shape.split("x")[:2], stage, f"{planned / 1e9:.2f}", f"{taken / 1e9:.2f}", spread(seconds),
                      f"{predicted:.3f}", f"{statistics.median(seconds) / predicted:.3f}")
    return as_planned
