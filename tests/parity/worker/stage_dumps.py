"""What stages of a few small models compute of one microbatch, as stage_dump writes it."""
import array
import json
import pathlib
import struct
import subprocess
import tempfile

# Both sides run the same library's kernels, but compose attention and rotary embeddings differently.
TOLERANCE = 2e-5  # of a tensor's largest value

GPT = {"family": "gpt", "layers": 3, "hidden": 48, "heads": 4, "context": 24}
LLAMA = {"family": "llama", "layers": 3, "hidden": 48, "heads": 6, "kv_heads": 2, "context": 24,
         "intermediate": 112, "norm_epsilon": 1e-3}
QWEN = {"family": "llama", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 1, "context": 24,
        "intermediate": 96, "qkv_bias": True, "rope_theta": 1000000, "norm_epsilon": 1e-6,
        "vocabulary": 300}
MIXTRAL = {"family": "moe", "layers": 3, "hidden": 48, "heads": 6, "kv_heads": 2, "context": 24,
           "experts": 5, "experts_per_token": 2, "expert_intermediate": 32, "norm_epsilon": 1e-3,
           "balance_loss": 0.5}
QWEN_MOE = MIXTRAL | {"qkv_bias": True, "shared_intermediate": 40, "normalize_router": False, "experts_per_token": 3}
MODELS = {
    "gpt": GPT,
    "gpt tied": GPT | {"tied": True},
    "llama": LLAMA,
    "llama, a head of keys for each": LLAMA | {"kv_heads": 6},
    "qwen2.5": QWEN,
    "qwen2.5 tied": QWEN | {"tied": True},
    "mixtral": MIXTRAL,
    "mixtral, nothing balances": MIXTRAL | {"balance": "none"},
    "qwen2-moe": QWEN_MOE,
    "qwen2-moe tied": QWEN_MOE | {"tied": True},
}


def read_safetensors(path):
    """{name: (shape, floats)}"""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = entry["shape"], array.array("f", data[8 + length + begin:8 + length + end])
    return tensors


def splits(spec):
    """Into how many stages: a tied model is whole."""
    return (1,) if spec.get("tied") else (1, 2, 3)


def blocks_before(spec, stages, boundary):
    return spec["layers"] // stages * (boundary + 1)


def dumps(program):
    """(name, spec, stages, tensors) of every model and split."""
    with tempfile.TemporaryDirectory(prefix="longhaul-modules-") as folder:
        run, out = pathlib.Path(folder, "run.yaml"), pathlib.Path(folder, "out.safetensors")
        for name, spec in MODELS.items():
            keys = ", ".join(f"{key}: {str(value).lower()}" for key, value in spec.items())
            for stages in splits(spec):
                run.write_text(f"name: modules\nmodel: {{ {keys} }}\ndata: {{ text: none.txt }}\n"
                               f"train: {{ steps: 1, microbatches: 1, microbatch_size: 2 }}\n"
                               f"pipeline: {{ stages: {stages} }}\n")
                subprocess.run([program, run, str(stages), out], check=True, timeout=60)
                yield name, spec, stages, read_safetensors(out)
