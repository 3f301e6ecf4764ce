"""Validation, and runs that go on when they were done, over real processes on the loopback interface.

usage: validation_test.py BIN_DIR [imported|clean|more-steps ...]
"""
import json
import pathlib
import struct
import sys

from cases import run_cases
from data_sets_test import write_set
from published_test import read_safetensors
from training_test import DEFAULT, NONE, expect_equal, wait_for

MODELS = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "models"
TIED = ("gpt2", "llama3", "qwen2_5")
UNTIED = ("llama2", "llama2_bf16", "mistral", "qwen3")
MOST_DIFFERENCE = 1e-5
AQSGD = "{ forward: aqsgd, backward: aqsgd }"
IMPORTED = """\
name: {name}
model: {{ from: "{folder}", context: {context}{tied} }}
data: {{ sets: [row0, row1] }}
validation: {{ samples: 8{validation} }}
train: {{ steps: {steps}, microbatches: 2 }}
pipeline: {{ stages: 3, placement: names }}
links: {links}
"""


def rows_of(cluster, run, *flags):
    return [json.loads(line) for line in cluster.cli("steps", run, "--json", *flags).stdout.splitlines()]


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f"{what}: expected {wanted}, got {got}")
    print(f"ok: {what}: {got}", flush=True)


def expected_of(model):
    """The ids of each row, and their loss by transformers."""
    tensors = read_safetensors(MODELS / model / "expected.safetensors")
    _, (rows, width), raw = tensors["input_ids"]
    ids = struct.unpack(f"<{rows * width}i", raw)
    return [list(ids[i * width:(i + 1) * width]) for i in range(rows)], struct.unpack("<f", tensors["loss"][2])[0]


def import_model(cluster, name, model, steps=0, links=DEFAULT, validation="", split=None):
    """A run that begins with a model of the fixtures and validates on the rows of its input_ids."""
    rows, loss = expected_of(model)
    for i, row in enumerate(rows):
        folder = cluster.folder / f"row{i}"
        if not folder.exists():
            write_set(folder, row * 8, validation=row)
            manifest = folder / "dataset.json"
            manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "vocabulary": 96}))
    path = cluster.folder / f"{name}.yaml"
    # A window has one token more than its context.
    path.write_text(IMPORTED.format(
        name=name, folder=MODELS / model, context=len(rows[0]) - 1, steps=steps, links=links, validation=validation,
        tied=", tied: split" if (model in TIED if split is None else split) else ""))
    run = cluster.cli("submit", path, "--watch", check=False).stdout.split()[0]
    status = cluster.status(run)
    if status["state"] != "done":
        raise AssertionError(f"{name} {status['state']}: {status['reason']}")
    return run, status, loss


def imported(cluster):
    """A run of no steps gives the loss that transformers computed; a run of some begins with it."""
    for model in TIED + UNTIED:
        run, status, loss = import_model(cluster, f"only-{model.replace('_', '-')}", model)
        clean, coded = status["clean_validation_loss"], status["validation_loss"]
        if abs(clean - loss) > MOST_DIFFERENCE:
            raise AssertionError(f"{model}: a clean validation loss of {clean}, transformers had {loss}")
        if abs(coded - loss) < MOST_DIFFERENCE:
            raise AssertionError(f"{model}: the codecs lose nothing: {coded}")
        rows = rows_of(cluster, run)
        if [(int(r["step"]), r.get("loss"), r["clean_validation_loss"]) for r in rows] != [(0, None, clean)]:
            raise AssertionError(rows)
        print(f"ok: {model}: clean {clean:.6f}, transformers {loss:.6f}, through codecs {coded:.6f}", flush=True)
    expect("checkpoints of a run of no steps", int(status.get("checkpoint_step", 0)), 0)
    run, status, _ = import_model(cluster, "plain", "qwen3", links=NONE)
    expect("one pass serves both where no link compresses", status["clean_validation_loss"],
           status["validation_loss"])
    run, status, loss = import_model(cluster, "trained", "qwen3", steps=2, links=NONE)
    first = rows_of(cluster, run)[0]
    if int(first["step"]) != 0 or abs(first["validation_loss"] - loss) > MOST_DIFFERENCE:
        raise AssertionError(f"{first}, transformers had {loss}")
    expect("steps after step 0", [int(r["step"]) for r in rows_of(cluster, run, "--after", "0")], [1, 2])
    run, _, _ = import_model(cluster, "not-at-start", "qwen3", steps=2, validation=", at_start: false")
    expect("steps without a validation at the start", [int(r["step"]) for r in rows_of(cluster, run)], [1, 2])
    plan = cluster.cli("plan", cluster.folder / "only-qwen2-5.yaml", "--json")
    expect("stages in the plan of a run of no steps", len(json.loads(plan.stdout)["assignment"]["cells"]), 3)
    refused = cluster.cli("submit", cluster.write_run("random", steps=0), check=False)
    if refused.returncode != 1 or "a run of 0 steps only validates" not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}: {refused.stderr}")
    print(f"ok: {refused.stderr.strip().splitlines()[0]}", flush=True)


def validations(cluster, run):
    """{step: (through codecs, clean or None)}"""
    return {int(r["step"]): (r["validation_loss"], r.get("clean_validation_loss"))
            for r in rows_of(cluster, run) if r["has_validation"]}


def train(cluster, name, links, *flags, **options):
    path = cluster.write_run(name, steps=20, links=links, **options)
    run = cluster.cli("submit", path, "--watch", *flags).stdout.split()[0]
    return validations(cluster, run), cluster.losses(run)


def clean(cluster):
    """Which validations are clean; and training is the same whether any of them is."""
    start = ["--set", "validation.at_start=true"]
    plain, _ = train(cluster, "plain", NONE, *start)
    expect("with codec none, both at every validation", {step: a == b for step, (a, b) in plain.items()},
           {0: True, 10: True, 20: True})
    for links in (DEFAULT, AQSGD):
        name = "aqsgd" if links == AQSGD else "tah"
        never, losses = train(cluster, f"{name}-never", links, *start, "--set", "validation.clean=never")
        expect(f"{name}, never", {step: b is not None for step, (_, b) in never.items()},
               {0: False, 10: False, 20: False})
        end, same = train(cluster, f"{name}-end", links, *start)
        expect(f"{name}, end", {step: b is not None for step, (_, b) in end.items()},
               {0: False, 10: False, 20: True})
        expect_equal(f"{name}, a clean validation at the end", same, losses)
        always, same = train(cluster, f"{name}-always", links, *start, "--set", "validation.clean=always")
        expect_equal(f"{name}, clean validations always", same, losses)
        expect(f"{name}, validation through the codecs", {step: a for step, (a, _) in always.items()},
               {step: a for step, (a, _) in never.items()})
        if any(b is None or a == b for a, b in always.values()):
            raise AssertionError(f"{name}: {always}")
        # Untrained parameters are the same; nothing but the codecs tells the runs apart.
        expect(f"{name}, clean before the first step", always[0][1], plain[0][1])


def more_steps(cluster):
    """A run that is done goes on as if it had been asked for all steps at once."""
    for name, links in (("none", NONE), ("tah", DEFAULT)):
        def write(run_name, steps):
            path = cluster.write_run(run_name, steps=steps, links=links)
            path.write_text(path.read_text().replace("kind: cosine", "kind: constant"))
            return path

        whole = cluster.cli("submit", write(f"whole-{name}", 40), "--watch").stdout.split()[0]
        path = write(f"longer-{name}", 20)
        run = cluster.cli("submit", path, "--watch").stdout.split()[0]
        again = cluster.cli("submit", path, "--resume", check=False)
        sentence = "is done after its 20 steps and this file ends at train.steps: 20; raise train.steps"
        if again.returncode != 1 or sentence not in again.stderr:
            raise AssertionError(f"exit {again.returncode}: {again.stderr}")
        print(f"ok: {again.stderr.strip()}", flush=True)
        resumed = cluster.cli("submit", path, "--resume", "--watch", "--set", "train.steps=40").stdout.split()[0]
        expect("the run that goes on", resumed, run)
        expect("its epoch", int(cluster.status(run)["epoch"]), 2)
        expect_equal(f"20 steps and 20 more against 40, {name}", cluster.losses(run), cluster.losses(whole))
        expect("validation losses", {step: a for step, (a, _) in validations(cluster, run).items()},
               {step: a for step, (a, _) in validations(cluster, whole).items()})
        expect("clean validation loss", validations(cluster, run)[40], validations(cluster, whole)[40])
    for shard in cluster.folder.glob(f"worker*/**/*{run}*/**/*.safetensors"):
        shard.unlink()
    cluster.cli("submit", path, "--resume", "--set", "train.steps=60")
    status = wait_for("the failure", lambda: (s := cluster.seen(run))["state"] == "failed" and s)
    if "there is no older one that is whole" not in status["reason"]:
        raise AssertionError(status["reason"])
    print(f"ok: {status['reason']}", flush=True)


if __name__ == "__main__":
    sys.exit(run_cases({"imported": imported, "clean": clean, "more-steps": more_steps}))
