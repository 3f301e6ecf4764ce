"""LoRA over real processes: trained over two workers, killed, resumed, exported, continued.

usage: lora_test.py BIN_DIR [adapters|dropout|bf16 ...]
       lora_test.py BIN_DIR ranks
"""
import json
import pathlib
import shutil
import struct
import sys

from cases import run_cases
from group_test import GroupCluster
from nearness import expect_near, furthest
from published_test import (HEADS, HIDDEN, KV_HEADS, LAYERS, MLP, expect_same_tensors, make_model,
                            read_safetensors, train)
from training_test import NONE, RUN, GPT, expect_equal, expect_learnt, wait_for

RANK, ALPHA = 4, 6
MODEL = "{ from: base, context: 64 }"
# Published names of modules, with their outputs and inputs.
KV = HIDDEN // HEADS * KV_HEADS
SHAPES = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (KV, HIDDEN), "self_attn.v_proj": (KV, HIDDEN),
          "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (MLP, HIDDEN), "mlp.up_proj": (MLP, HIDDEN),
          "mlp.down_proj": (HIDDEN, MLP)}


def write_run(cluster, name, stages=2, targets="all-linear", steps=40, rank=RANK, dtype="fp32", lora=None):
    text = RUN.format(name=name, steps=steps, stages=stages, schedule="link-aware", links=NONE, transport="ucx")
    lora = f"lora: {lora}" if lora else f"lora: {{ rank: {rank}, alpha: {ALPHA}, targets: {targets} }}"
    text = text.replace(GPT, MODEL).replace("lr: 1e-3", "lr: 3e-2").replace("  seed: 5\n", f"  seed: 5\n  {lora}\n")
    path = cluster.folder / f"{name}.yaml"
    path.write_text(text.replace("  seed: 5\n", f"  seed: 5\n  dtype: {dtype}\n"))
    return path


def submit(cluster, path, *flags):
    return cluster.cli("submit", path, *flags).stdout.split()[0]


def floats(tensor):
    kind, _, raw = tensor
    if kind == "BF16":
        raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
    return struct.unpack(f"<{len(raw) // 4}f", raw)


def merged(base, adapters, name):
    """W + (alpha / rank) B A, in double."""
    module = f"base_model.model.{name.removesuffix('.weight')}"
    a, b = (floats(adapters[f"{module}.lora_{which}.weight"]) for which in "AB")
    rows, columns = base[name][1]
    weights = floats(base[name])
    return [weights[i * columns + j] + ALPHA / RANK * sum(b[i * RANK + k] * a[k * columns + j] for k in range(RANK))
            for i in range(rows) for j in range(columns)]


def splits(cluster):
    """A tied model over two stages learns as over one, to the bit, also where it is killed: the base
    comes anew from where it came first, the adapters from the checkpoint."""
    whole = submit(cluster, write_run(cluster, "whole", stages=1), "--watch")
    losses = cluster.losses(whole)
    expect_learnt("adapters alone", losses)
    run = submit(cluster, write_run(cluster, "split"), "--watch")
    expect_equal("2 stages against 1, tied", cluster.losses(run), losses)

    path = write_run(cluster, "broken")
    broken = cluster.broken_after(10, path)
    other = write_run(cluster, "broken", rank=8)
    refused = cluster.cli("submit", other, "--resume", check=False)
    if refused.returncode != 1 or f"train.lora is {{ rank: {RANK}," not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}: {refused.stderr}")
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == 2)
    write_run(cluster, "broken")
    submit(cluster, path, "--resume")
    wait_for("the end", lambda: cluster.seen(broken)["state"] == "done")
    expect_equal("killed and resumed", cluster.losses(broken), losses)
    return run


def checkpoint_bytes(cluster, run):
    """No more than adapters and two moments each."""
    numbers = LAYERS * sum(RANK * (rows + columns) for rows, columns in SHAPES.values())
    checkpoints = json.loads(cluster.cli("checkpoints", run, "--json").stdout)
    rows = checkpoints["checkpoints"] if isinstance(checkpoints, dict) else checkpoints
    total = sum(int(shard["bytes"]) for shard in rows[-1]["shards"])
    headers = 250 * 3 * LAYERS * 2 * len(SHAPES)
    if not 12 * numbers <= total <= 12 * numbers + headers:
        raise AssertionError(f"{total} bytes of a checkpoint, {12 * numbers} of numbers were expected")
    print(f"ok: a checkpoint has {total} bytes, {12 * numbers} of them adapters and moments", flush=True)


def export(cluster, run, base):
    cluster.cli("export", run, "--out", cluster.folder / "adapters")
    folder = cluster.folder / "adapters"
    names = sorted(path.name for path in folder.iterdir())
    if names != ["adapter_config.json", "adapter_model.safetensors", "tokenizer.json"]:
        raise AssertionError(f"the export has {names}")
    config = json.loads((folder / "adapter_config.json").read_text())
    wanted = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "bias": "none",
              "fan_in_fan_out": False, "base_model_name_or_path": str(cluster.folder / "base"),
              "target_modules": [name.split(".")[1] for name in SHAPES]}
    if {key: config.get(key) for key in wanted} != wanted:
        raise AssertionError(f"{config} instead of {wanted}")
    cluster.cli("export", run, "--out", cluster.folder / "named", "--base", "owner/model")
    named = json.loads((cluster.folder / "named" / "adapter_config.json").read_text())["base_model_name_or_path"]
    if named != "owner/model":
        raise AssertionError(f"--base owner/model: the adapters are of {named}")
    adapters = read_safetensors(folder / "adapter_model.safetensors")
    shapes = {}
    for layer in range(LAYERS):
        for name, (outputs, inputs) in SHAPES.items():
            module = f"base_model.model.model.layers.{layer}.{name}"
            shapes[f"{module}.lora_A.weight"] = ("F32", (RANK, inputs))
            shapes[f"{module}.lora_B.weight"] = ("F32", (outputs, RANK))
    if {name: tensor[:2] for name, tensor in adapters.items()} != shapes:
        raise AssertionError(f"{sorted(adapters)} instead of {sorted(shapes)}")
    print(f"ok: PEFT's layout: {len(adapters)} tensors", flush=True)

    # The folder may be gone: the coordinator has what was uploaded.
    shutil.move(cluster.folder / "base", cluster.folder / "moved")
    cluster.cli("export", run, "--merged", "--out", cluster.folder / "merged")
    shutil.move(cluster.folder / "moved", cluster.folder / "base")
    tensors = read_safetensors(cluster.folder / "merged" / "model.safetensors")
    if list(sorted(tensors)) != list(sorted(base)):
        raise AssertionError(f"merged: {sorted(set(tensors) ^ set(base))} are in one alone")
    changed = {f"model.layers.{layer}.{name}.weight" for layer in range(LAYERS) for name in SHAPES}
    expect_same_tensors("merged, what has no adapters", {n: t for n, t in tensors.items() if n not in changed},
                        {n: t for n, t in base.items() if n not in changed})
    for name in changed:
        apart = furthest(f"merged, {name}", floats(tensors[name]), merged(base, adapters, name), relative=False)
        if apart > 1e-6 or tensors[name][:2] != base[name][:2]:
            raise AssertionError(f"merged, {name}: differs by {apart}")
    config = json.loads((cluster.folder / "merged" / "config.json").read_text())
    if not config["tie_word_embeddings"]:
        raise AssertionError("the merged model is not tied any more")

    # A run that stands still over the merged model validates as the one that trained it.
    own = cluster.status(run)["validation_loss"]
    _, again = train(cluster, "stands-still", "{ from: merged, context: 64 }", 1)
    if abs(own - again) > 1e-5:
        raise AssertionError(f"a validation loss of {own}, and of {again} merged")
    print(f"ok: merged: a validation loss of {again:.6f}, and of {own:.6f} in training", flush=True)


def validations(cluster, run):
    rows = [json.loads(line) for line in cluster.cli("steps", run, "--json").stdout.splitlines()]
    return {int(row["step"]): row["validation_loss"] for row in rows if row.get("validation_loss") is not None}


def continues(cluster, run):
    """A run over the export begins where the run before ended, and learns more."""
    own = cluster.status(run)["validation_loss"]
    path = write_run(cluster, "continued", steps=20, lora="{ from: adapters }")
    shown = cluster.cli("plan", path, "--show-config").stdout
    for line in (f"rank: {RANK}", f"alpha: {ALPHA}", "rslora: false", "dropout: 0"):
        if line not in shown:
            raise AssertionError(f"no {line} in {shown}")
    again = submit(cluster, path, "--watch")
    begun = validations(cluster, again)[0]
    if abs(begun - own) > 1e-6:
        raise AssertionError(f"a validation loss of {own}, and of {begun} where the adapters are continued")
    if not cluster.status(again)["validation_loss"] < begun:
        raise AssertionError("the adapters learnt no more")
    print(f"ok: continued: a validation loss of {begun:.6f} at first, of {own:.6f} at the end before", flush=True)
    refused = cluster.cli("submit", write_run(cluster, "other-rank", lora="{ from: adapters, rank: 8 }"), check=False)
    if refused.returncode != 1 or f"train.lora.rank: expected {RANK}" not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}: {refused.stderr}")


def drops(cluster):
    """Two stages drop what one drops, also where a worker is lost and steps run again."""
    if not (cluster.folder / "base").exists():
        make_model(cluster.folder / "base", "F32", tied=True)
    lora = f"{{ rank: {RANK}, alpha: {ALPHA}, targets: all-linear, rslora: true, dropout: 0.2 }}"
    whole = submit(cluster, write_run(cluster, "dropped-whole", stages=1, lora=lora), "--watch")
    losses = cluster.losses(whole)
    path = write_run(cluster, "dropped", lora=lora)
    broken = cluster.broken_after(10, path)
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == 2)
    submit(cluster, path, "--resume")
    wait_for("the end", lambda: cluster.seen(broken)["state"] == "done")
    expect_equal("dropout over 2 stages, killed and resumed, against 1", cluster.losses(broken), losses)
    cluster.cli("export", whole, "--out", cluster.folder / "dropped-adapters")
    config = json.loads((cluster.folder / "dropped-adapters" / "adapter_config.json").read_text())
    if not config["use_rslora"] or config["lora_dropout"] != 0.2:
        raise AssertionError(f"{config}")


def quantized(cluster, base, plain):
    """Over a base in NF4 or INT8 adapters learn what they learn over the published one, within 1 %. Killed and
    resumed they learn the same, to the bit; and they are merged into the published numbers."""
    wholes = {}
    for kind in "nf4", "int8":
        lora = f"{{ rank: {RANK}, alpha: {ALPHA}, targets: all-linear, quantize_base: {kind} }}"
        whole = submit(cluster, write_run(cluster, f"{kind}-whole", stages=1, lora=lora), "--watch")
        losses = wholes[kind] = cluster.losses(whole)
        if losses == plain:
            raise AssertionError(f"{kind}: the base was not quantized")
        own, other = (sum(of[-10:]) / 10 for of in (losses, plain))
        if abs(own - other) > 0.01 * other:
            raise AssertionError(f"{kind}: a loss of {own}, and of {other} over the published base")
        print(f"ok: {kind}: a loss of {own:.6f} in the last steps, of {other:.6f} over the published base", flush=True)
    path = write_run(cluster, "nf4", lora=lora.replace("int8", "nf4"))
    broken = cluster.broken_after(10, path)
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == 2)
    write_run(cluster, "nf4", lora=lora)
    refused = cluster.cli("submit", path, "--resume", check=False)
    if refused.returncode != 1 or "quantize_base: nf4" not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}: {refused.stderr}")
    write_run(cluster, "nf4", lora=lora.replace("int8", "nf4"))
    submit(cluster, path, "--resume")
    wait_for("the end", lambda: cluster.seen(broken)["state"] == "done")
    expect_equal("nf4 over 2 stages, killed and resumed, against 1", cluster.losses(broken), wholes["nf4"])
    cluster.cli("export", broken, "--out", cluster.folder / "nf4-adapters")
    cluster.cli("export", broken, "--merged", "--out", cluster.folder / "nf4-merged")
    adapters = read_safetensors(cluster.folder / "nf4-adapters" / "adapter_model.safetensors")
    tensors = read_safetensors(cluster.folder / "nf4-merged" / "model.safetensors")
    for name in (f"model.layers.{layer}.{name}.weight" for layer in range(LAYERS) for name in SHAPES):
        apart = furthest(f"merged, {name}", floats(tensors[name]), merged(base, adapters, name), relative=False)
        if apart > 1e-6:
            raise AssertionError(f"nf4, merged, {name}: differs by {apart} from the published numbers and adapters")
    print("ok: nf4: adapters are merged into the published numbers", flush=True)


def half(cluster):
    """In bf16, with PEFT's usual modules: what is frozen comes out bit for bit as it went in."""
    base = make_model(cluster.folder / "half", "BF16", tied=True)
    path = write_run(cluster, "half", targets="[q_proj, v_proj]", steps=20, dtype="bf16")
    path.write_text(path.read_text().replace("from: base", "from: half"))
    run = submit(cluster, path, "--watch")
    expect_learnt_something(cluster.losses(run))
    cluster.cli("export", run, "--merged", "--out", cluster.folder / "half-merged")
    tensors = read_safetensors(cluster.folder / "half-merged" / "model.safetensors")
    same = {n: t for n, t in base.items() if not n.endswith(("q_proj.weight", "v_proj.weight"))}
    expect_same_tensors("bf16, merged, what has no adapters", {n: t for n, t in tensors.items() if n in same}, same)
    if tensors["model.layers.0.self_attn.q_proj.weight"] == base["model.layers.0.self_attn.q_proj.weight"]:
        raise AssertionError("the adapters changed nothing")


def shared(cluster):
    """Stages of two ranks train the adapters that stages of one rank train, and are continued by one rank."""
    make_model(cluster.folder / "base", "F32", tied=True)
    lora = f"{{ rank: {RANK}, alpha: {ALPHA}, targets: all-linear, dropout: 0.1 }}"
    one = submit(cluster, write_run(cluster, "one", steps=20, lora=lora), "--watch")
    two = submit(cluster, write_run(cluster, "two", steps=20, lora=lora), "--set", "group.tensor=2", "--watch")
    expect_near("adapters, 2 ranks against 1", cluster.losses(two), cluster.losses(one), bound=1e-3)
    cluster.cli("export", two, "--out", cluster.folder / "adapters")
    for name, flags in ("from-two", []), ("from-two-by-two", ["--set", "group.tensor=2"]):
        path = write_run(cluster, name, steps=5, lora="{ from: adapters, dropout: 0 }")
        begun = validations(cluster, submit(cluster, path, *flags, "--watch"))[0]
        own = cluster.status(two)["validation_loss"]
        if abs(begun - own) > 1e-4 * own:
            raise AssertionError(f"{name}: a validation loss of {own}, and of {begun} continued")
    # Each rank quantizes its own share, in blocks of its own: near, not the same.
    lora = lora.replace("dropout: 0.1", "dropout: 0.1, quantize_base: nf4")
    quantized_by_two = submit(cluster, write_run(cluster, "two-nf4", steps=20, lora=lora), "--set", "group.tensor=2",
                              "--watch")
    expect_near("nf4, 2 ranks against 1 rank of fp32", cluster.losses(quantized_by_two), cluster.losses(one),
                bound=5e-2)
    print(f"ok: adapters of 2 ranks are continued: {begun:.6f}, {own:.6f} before", flush=True)


def expect_learnt_something(losses):
    if not losses[-1] < losses[0]:
        raise AssertionError(f"nothing was learnt: {losses}")


def planned(cluster):
    path = write_run(cluster, "planned")
    plan = json.loads(cluster.cli("plan", path, "--json").stdout)
    cells = (plan.get("plan") or plan)["assignment"]["cells"]
    if len(cells) != 2:
        raise AssertionError(f"the plan has {cells}")
    refused = cluster.cli("submit", write_run(cluster, "unknown", targets="[c_attn]"), check=False)
    if refused.returncode != 1 or "no block of family llama has a module 'c_attn'" not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}: {refused.stderr}")
    print(f"ok: {refused.stderr.strip()}", flush=True)


def adapters(cluster):
    base = make_model(cluster.folder / "base", "F32", tied=True)
    planned(cluster)
    run = splits(cluster)
    checkpoint_bytes(cluster, run)
    export(cluster, run, base)
    continues(cluster, run)
    quantized(cluster, base, cluster.losses(run))


CASES = {"adapters": adapters, "dropout": drops, "bf16": half}

if __name__ == "__main__":
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir() or set(sys.argv[2:]) - {*CASES, "ranks"}:
        sys.exit(__doc__)
    if sys.argv[2:] == ["ranks"]:
        sys.exit(run_cases({"ranks": shared}, GroupCluster, workers=2))
    sys.exit(run_cases(CASES, workers=2))
