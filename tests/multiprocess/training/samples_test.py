"""Samples from runs that train, over real processes: what a run learns is the same to the bit.

usage: samples_test.py BIN_DIR [aqsgd|predict|spread|overlap|sets|lost ...]
"""
import json
import pathlib
import shutil
import subprocess
import sys

from aqsgd_test import AQSGD
from cases import run_cases
from data_sets_test import write_set
from training_test import DEFAULT, GPT, NONE, PREDICT, Skipped, expect_equal, wait_for

MODELS = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "models"
STEPS, TOKENS = 150, 6
PROMPTS = ["the quick", "rain falls on slow links over a"]
# As many layers as stages: what a codec makes of a boundary depends on where it lies.
TWO_LAYERS = GPT.replace("layers: 4", "layers: 2")
OF_SETS = """\
name: sets
model: {{ from: "{folder}", context: 32, tied: split }}
data: {{ sets: [set] }}
validation: {{ every: 0 }}
train: {{ steps: 150, microbatches: 2, dtype: fp32, optimizer: {{ lr: 1e-3 }}, lora: {{ rank: 4, alpha: 8, dropout: 0.2 }} }}
pipeline: {{ stages: 3, placement: names }}
links: {{ forward: tah, backward: fixed }}
"""
SAMPLES = f"samples={{every: 30, prompts: {json.dumps(PROMPTS)}, tokens: {TOKENS}}}"


def expect(what, right, got):
    if not right:
        raise AssertionError(f"{what}: {got}")
    print(f"ok: {what}", flush=True)


def rounds_of(cluster, run):
    return cluster.status(run).get("samples", [])


def sampled(cluster, name, *flags, asks=0, **options):
    """Trains with samples, of which some are asked for while it trains. The run's id."""
    path = cluster.write_run(name, steps=STEPS, **options)
    run = cluster.cli("submit", path, "--set", SAMPLES, *flags).stdout.split()[0]
    for ask in range(asks):
        wait_for(f"a step of {run}", lambda: cluster.step(run) > 2 * ask)
        said = cluster.cli("generate", run, "--prompt", PROMPTS[0], "--tokens", "4", "--seed", str(ask), check=False)
        expect("a text while it trains", said.returncode == 0 and said.stdout.startswith(PROMPTS[0]), said)
        expect("it says whose text it is", f"by run {run} after step" in said.stderr, said.stderr)
    wait_for(f"the end of {run}", lambda: cluster.seen(run)["state"] == "done")
    return run


def exported(cluster, run, *flags):
    """The ids that follow the prompts by the run's last checkpoint."""
    folder = cluster.folder / f"export-{run}"
    cluster.cli("export", run, "--out", folder, *flags)
    lines = "".join(" ".join(map(str, prompt.encode())) + "\n" for prompt in PROMPTS)
    said = subprocess.run([cluster.programs / "longhaul-generate", folder, "--temperature", "0", "--tokens", str(TOKENS)],
                          input=lines, capture_output=True, text=True, check=True).stdout
    return [[int(id_) for id_ in part.split()] for part in said.split("\n\n") if part.strip()]


def expect_same_ids(ids, wanted):
    expect("the last round is what the export generates", ids == wanted, (ids, wanted))


def with_codec(cluster, name, links, asks):
    losses = cluster.train(name, steps=STEPS, links=links)
    run = sampled(cluster, f"{name}-samples", links=links, asks=asks)
    expect_equal(f"{name} with samples and without", cluster.losses(run), losses)
    rounds = rounds_of(cluster, run)
    expect("the newest four rounds are kept", [int(r["step"]) for r in rounds] == [60, 90, 120, STEPS], rounds)
    expect("the dashboard has them", cluster.seen(run)["samples"] == rounds, cluster.seen(run).get("samples"))
    ids = [one["ids"] for one in rounds[-1]["samples"]]
    expect_same_ids(ids, exported(cluster, run))
    texts = [one["text"] for one in rounds[-1]["samples"]]
    expect("bytes are text", texts == [bytes(one).decode() for one in ids], texts)
    shown = cluster.cli("generate", run).stdout
    expect("generate without a prompt shows them", all(p + t in shown for p, t in zip(PROMPTS, texts)), shown)


def aqsgd(cluster):
    """A codec that remembers samples does not hear of these. The last round is the exported model's."""
    with_codec(cluster, "aqsgd", AQSGD, asks=2)


def predict(cluster):
    """Neither does one that learns from tokens."""
    with_codec(cluster, "predict", PREDICT, asks=0)


def spread(cluster):
    """Slices of microbatches, replicas, and more texts than a microbatch has rows."""
    flags = ["--set", "pipeline.slices=2", "--set", "pipeline.replicas=2", "--set", "train.microbatch_size=1"]
    path = cluster.write_run("spread", steps=STEPS, stages=2, links=DEFAULT, model=TWO_LAYERS)
    plain = cluster.cli("submit", path, "--watch", *flags).stdout.split()[0]
    run = sampled(cluster, "spread-samples", *flags, stages=2, links=DEFAULT, model=TWO_LAYERS, asks=1)
    expect_equal("slices and replicas, with samples and without", cluster.losses(run), cluster.losses(plain))
    ids = [one["ids"] for one in rounds_of(cluster, run)[-1]["samples"]]
    expect_same_ids(ids, exported(cluster, run))


def overlap(cluster):
    """Steps that overlap, and a step that a round keeps from beginning early."""
    losses = cluster.train("plain", steps=STEPS, stages=3, schedule="2bw", links=NONE)
    run = sampled(cluster, "overlap-samples", stages=3, schedule="2bw", links=NONE, asks=2)
    expect_equal("steps that overlap, with samples and without", cluster.losses(run), losses)
    ids = [one["ids"] for one in rounds_of(cluster, run)[-1]["samples"]]
    expect_same_ids(ids, exported(cluster, run))


def sets(cluster):
    """Prompts and texts by the tokenizer of a data set; adapters with dropout."""
    prompts = ["the quick", "Rain"]
    samples = f"samples={{every: 7, prompts: {json.dumps(prompts)}, tokens: 3}}"
    data = cluster.folder / "set"
    write_set(data, [i * i % 96 for i in range(4000)])
    manifest = data / "dataset.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "vocabulary": 96}))
    (data / "tokenizer").mkdir()
    shutil.copy(MODELS / "qwen2_5" / "tokenizer.json", data / "tokenizer")
    path = cluster.folder / "sets.yaml"
    (base := cluster.folder / "base").mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(MODELS / "qwen2_5" / file, base)
    path.write_text(OF_SETS.format(folder=base))
    plain = cluster.cli("submit", path, "--watch").stdout.split()[0]
    submitted = cluster.cli("submit", path, "--set", samples, check=False)
    if "Python" in submitted.stderr:
        raise Skipped(submitted.stderr.strip())
    run = submitted.stdout.split()[0]
    wait_for(f"a step of {run}", lambda: cluster.step(run) > 2)
    asked = json.loads(cluster.cli("generate", run, "--prompt", "the", "--tokens", "4", "--json").stdout)
    wait_for(f"the end of {run}", lambda: cluster.seen(run)["state"] == "done")
    expect_equal("adapters with dropout, with samples and without", cluster.losses(run), cluster.losses(plain))
    tokens = json.loads((data / "tokenizer" / "tokenizer.json").read_text())["model"]["vocab"]
    characters = {id_: token.replace("\u0120", " ") for token, id_ in tokens.items()}
    newest = rounds_of(cluster, run)[-1]["samples"]
    for one in asked["round"]["samples"] + newest:
        text = "".join(characters[id_] for id_ in one["ids"])
        expect("text is that of the tokens", one["text"].isascii() and one["text"] == text, (one, text))
    expect("the prompts are shown", [one["prompt"] for one in newest] == prompts, newest)
    shutil.rmtree(data / "tokenizer")
    refused = cluster.cli("submit", path, "--set", samples, check=False)
    expect("without a tokenizer nothing is submitted",
           refused.returncode == 1 and "there is no tokenizer.json in" in refused.stderr, refused.stderr)
    ids = samples.replace("tokens: 3", "tokens: 3, ids: [[1, 2], [3]]")
    run = cluster.cli("submit", path, "--watch", "--set", ids, "--set", "train.steps=3").stdout.split()[0]
    told = cluster.cli("generate", run).stdout
    expect("ids do without a tokenizer", "the quick tokens" in told, told)


def lost(cluster):
    """A worker that dies among rounds of samples costs what it costs in a step: the run recovers and learns the same."""
    losses = cluster.train("whole", steps=STEPS, links=NONE)
    path = cluster.write_run("lost", steps=STEPS, links=NONE)
    often = SAMPLES.replace("every: 30", "every: 1")
    run = cluster.cli("submit", path, "--set", often, "--set", "recovery.attempts=5").stdout.split()[0]
    wait_for(f"a checkpoint of {run}", lambda: cluster.checkpoint_step(run) >= 20)
    asking = subprocess.Popen([cluster.programs / "longhaul", "generate", run, "--prompt", "the", "--tokens", "50",
                               "--coordinator", cluster.address, *cluster.access()],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    cluster.kill("worker2")
    said = asking.communicate(timeout=100)
    expect("a text or the reason why there is none", asking.returncode == 0 or run in said[1], said)
    cluster.start_worker(2)
    wait_for(f"the end of {run}", lambda: cluster.seen(run)["state"] in ("done", "failed"))
    expect_equal("a worker lost among samples", cluster.losses(run), losses)
    expect("it recovered", int(cluster.status(run)["epoch"]) > 1, cluster.status(run)["epoch"])
    steps = [int(r["step"]) for r in rounds_of(cluster, run)]
    expect("the newest rounds are kept, each once", steps == list(range(STEPS - 3, STEPS + 1)), steps)


if __name__ == "__main__":
    sys.exit(run_cases({"aqsgd": aqsgd, "predict": predict, "spread": spread, "overlap": overlap, "sets": sets, "lost": lost}))
