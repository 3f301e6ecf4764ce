"""Models out of and into Hugging Face's folders, over real processes on the loopback interface.

usage: published_test.py BIN_DIR
"""
import json
import pathlib
import random
import shutil
import struct
import sys
import tempfile

from training_test import NONE, RUN, Cluster, GPT, text_for_training, wait_for

LAYERS, HIDDEN, HEADS, KV_HEADS, MLP, ROWS = 4, 32, 4, 2, 64, 256
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": HIDDEN,
    "intermediate_size": MLP, "max_position_embeddings": 512, "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "vocab_size": ROWS, "bos_token_id": 1, "use_cache": True, "torch_dtype": "float32",
}
# What parameters are worth does not change at this rate, whatever the gradients are.
STANDING_STILL = ("lr: 1e-3", "lr: 1e-30")


def shapes(tied):
    kv = HIDDEN // HEADS * KV_HEADS
    yield "model.embed_tokens.weight", (ROWS, HIDDEN)
    for layer in range(LAYERS):
        block = f"model.layers.{layer}."
        yield block + "input_layernorm.weight", (HIDDEN,)
        for name, rows in (("q", HIDDEN), ("k", kv), ("v", kv)):
            yield f"{block}self_attn.{name}_proj.weight", (rows, HIDDEN)
            yield f"{block}self_attn.{name}_proj.bias", (rows,)
        yield block + "self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        yield block + "post_attention_layernorm.weight", (HIDDEN,)
        yield block + "mlp.gate_proj.weight", (MLP, HIDDEN)
        yield block + "mlp.up_proj.weight", (MLP, HIDDEN)
        yield block + "mlp.down_proj.weight", (HIDDEN, MLP)
    yield "model.norm.weight", (HIDDEN,)
    if not tied:
        yield "lm_head.weight", (ROWS, HIDDEN)


def make_model(folder, kind, tied):
    """Random numbers in Qwen2.5's layout. `kind`: F32, BF16, or MIXED, with norms and head in F32."""
    random.seed(7)
    tensors = {}
    for name, shape in shapes(tied):
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [random.gauss(1 if "norm" in name else 0, 0.1) for _ in range(count)]
        raw = struct.pack(f"<{count}f", *values)
        own = kind if kind != "MIXED" else "F32" if "norm" in name or "head" in name else "BF16"
        if own == "BF16":
            raw = b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4))
        tensors[name] = (own, shape, raw)
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    torch_dtype = "float32" if kind == "F32" else "bfloat16"
    config = {**CONFIG, "tie_word_embeddings": tied, "torch_dtype": torch_dtype}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "tokenizer.json").write_text('{"made": "for this test"}')
    return tensors


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))


def read_safetensors(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], tuple(t["shape"]), data[8 + size:][slice(*t["data_offsets"])])
            for name, t in header.items()}


def write_run(cluster, name, model, stages, steps=2):
    text = RUN.format(name=name, steps=steps, stages=stages, schedule="link-aware", links=NONE, transport="ucx")
    text = text.replace(GPT, model).replace(*STANDING_STILL).replace("every: 10, samples", "every: 1, samples")
    text = text.replace("warmup: 5", "warmup: 1")
    path = cluster.folder / f"{name}.yaml"
    path.write_text(text)
    return path


def train(cluster, name, model, stages):
    run = cluster.cli("submit", write_run(cluster, name, model, stages), "--watch").stdout.split()[0]
    return run, cluster.status(run)["validation_loss"]


def expect_same_tensors(what, got, wanted):
    if list(sorted(got)) != list(sorted(wanted)):
        raise AssertionError(f"{what}: {sorted(set(got) ^ set(wanted))} are in one alone")
    for name, tensor in wanted.items():
        if got[name] != tensor:
            raise AssertionError(f"{what}: {name}: {got[name][:2]} differs from {tensor[:2]}")
    print(f"ok: {what}: {len(wanted)} tensors, bit-identical", flush=True)


def round_trip(cluster, kind):
    """Untied: import, export, import, export."""
    source = cluster.folder / f"from-{kind}"
    wanted = make_model(source, kind, tied=False)
    first, loss = train(cluster, f"whole-{kind.lower()}", f"{{ from: {source.name}, context: 64 }}", 4)
    out = cluster.folder / f"out-{kind}"
    cluster.cli("export", first, "--out", out)
    expect_same_tensors(f"{kind}, exported", read_safetensors(out / "model.safetensors"), wanted)
    config = json.loads((out / "config.json").read_text())
    original = json.loads((source / "config.json").read_text())
    if config != original:
        raise AssertionError(f"config.json: {config} instead of {original}")
    if (out / "tokenizer.json").read_bytes() != (source / "tokenizer.json").read_bytes():
        raise AssertionError("another tokenizer.json")
    again, loss_again = train(cluster, f"again-{kind.lower()}", f"{{ from: {out.name}, context: 64 }}", 1)
    if abs(loss - loss_again) > 1e-6:
        raise AssertionError(f"a loss of {loss}, and of {loss_again} after the round trip")
    cluster.cli("export", again, "--step", "2", "--out", cluster.folder / f"out-again-{kind}")
    expect_same_tensors(f"{kind}, exported again",
                        read_safetensors(cluster.folder / f"out-again-{kind}" / "model.safetensors"), wanted)
    refused = cluster.cli("export", again, "--out", out, check=False)
    if refused.returncode != 1 or "is there already" not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}: {refused.stderr}")
    wide = cluster.folder / f"wide-{kind}"
    cluster.cli("export", first, "--out", wide, "--dtype", "fp32")
    if {t[0] for t in read_safetensors(wide / "model.safetensors").values()} != {"F32"}:
        raise AssertionError("--dtype fp32 has other types")
    leftover = [p.name for p in cluster.folder.iterdir() if ".partial-" in p.name]
    if leftover:
        raise AssertionError(f"left behind: {leftover}")


def tied(cluster):
    source = cluster.folder / "tied"
    make_model(source, "F32", tied=True)
    _, one = train(cluster, "tied-one", "{ from: tied, context: 64 }", 1)
    _, four = train(cluster, "tied-four", "{ from: tied, context: 64, tied: true }", 4)
    run, split = train(cluster, "tied-split", "{ from: tied, context: 64, tied: split }", 4)
    if max(one, four, split) - min(one, four, split) > 1e-6:
        raise AssertionError(f"tied in one stage: a loss of {one}; over four: {four}; split over four: {split}")
    cluster.cli("export", run, "--out", cluster.folder / "untied")
    tensors = read_safetensors(cluster.folder / "untied" / "model.safetensors")
    if tensors["lm_head.weight"] != tensors["model.embed_tokens.weight"]:
        raise AssertionError("the split head began with something else than the embedding")
    if json.loads((cluster.folder / "untied" / "config.json").read_text())["tie_word_embeddings"]:
        raise AssertionError("the export says that it is tied")
    print(f"ok: tied in one stage, over four, and split over four: a loss of {one:.6f}", flush=True)


def elsewhere(cluster):
    """The folder is gone when workers want it: what was uploaded counts, and without upload nothing."""
    wanted = make_model(cluster.folder / "gone", "F32", tied=False)
    make_model(cluster.folder / "gone-too", "F32", tied=False)
    cluster.kill("worker4")
    wait_for("three workers", lambda: len(cluster.connected()) == 3)
    run = cluster.cli("submit", write_run(cluster, "gone", "{ from: gone, context: 64 }", 4)).stdout.split()[0]
    shutil.rmtree(cluster.folder / "gone")
    cluster.start_worker(4)
    wait_for("the end", lambda: cluster.seen(run)["state"] == "done")
    cluster.cli("export", run, "--out", cluster.folder / "gone-out")
    expect_same_tensors("uploaded, exported", read_safetensors(cluster.folder / "gone-out" / "model.safetensors"),
                        wanted)
    # The same content would not be uploaded again, so other numbers are needed here.
    changed = cluster.folder / "gone-too" / "model.safetensors"
    changed.write_bytes(changed.read_bytes()[:-4] + struct.pack("<f", 0.5))
    cluster.kill("worker4")
    wait_for("three workers", lambda: len(cluster.connected()) == 3)
    model = "{ from: gone-too, context: 64, upload: false }"
    run = cluster.cli("submit", write_run(cluster, "gone-too", model, 4)).stdout.split()[0]
    changed.unlink()
    cluster.start_worker(4)
    status = wait_for("the failure", lambda: (s := cluster.seen(run))["state"] == "failed" and s)
    if "neither this worker's folder nor the coordinator has" not in status["reason"]:
        raise AssertionError(status["reason"])
    print(f"ok: {status['reason']}", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with Cluster(sys.argv[1], folder, workers=4) as cluster:
            round_trip(cluster, "F32")
            round_trip(cluster, "BF16")
            round_trip(cluster, "MIXED")
            tied(cluster)
            elsewhere(cluster)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    main()
