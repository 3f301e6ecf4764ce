"""Holds the stages' logits, loss and gradients against PyTorch's own modules with the same weights.

usage: modules_test.py STAGE_DUMP

Needs a Python that has torch; without it exits with 77, which ctest shows as skipped.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except (ImportError, OSError) as error:
    print(f"skipped: {sys.executable} cannot import torch ({error}). Where there is no GPU, deploy/setup.sh "
          "brings LibTorch's CPU part alone; another Python is named by cmake -DLONGHAUL_TORCH_PYTHON=PATH")
    sys.exit(77)

# Both sides run the same library's kernels, but compose attention and rotary embeddings differently.
TOLERANCE = 2e-5  # of a tensor's largest value

GPT = {"family": "gpt", "layers": 3, "hidden": 48, "heads": 4, "context": 24}
LLAMA = {"family": "llama", "layers": 3, "hidden": 48, "heads": 6, "kv_heads": 2, "context": 24,
         "intermediate": 112, "norm_epsilon": 1e-3}
QWEN = {"family": "llama", "layers": 3, "hidden": 64, "heads": 4, "kv_heads": 1, "context": 24,
        "intermediate": 96, "qkv_bias": True, "rope_theta": 1000000, "norm_epsilon": 1e-6,
        "vocabulary": 300}
MODELS = {
    "gpt": GPT,
    "gpt tied": GPT | {"tied": True},
    "llama": LLAMA,
    "llama, a head of keys for each": LLAMA | {"kv_heads": 6},
    "qwen2.5": QWEN,
    "qwen2.5 tied": QWEN | {"tied": True},
}


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    values = torch.frombuffer(bytearray(data[8 + length:]), dtype=torch.float32)
    return {name: values[entry["data_offsets"][0] // 4:entry["data_offsets"][1] // 4].reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


def causal_attention(queries, keys, values):
    """softmax(QK / sqrt(channels)) V, a head of keys and values repeated for its group of queries."""
    group = queries.shape[1] // keys.shape[1]
    return F.scaled_dot_product_attention(queries, keys.repeat_interleave(group, dim=1),
                                          values.repeat_interleave(group, dim=1), is_causal=True)


def split(x, heads):
    rows, tokens, channels = x.shape
    return x.view(rows, tokens, heads, channels // heads).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


class GptBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(hidden, 3 * hidden), "proj": nn.Linear(hidden, hidden)})
        self.mlp = nn.ModuleDict({"fc": nn.Linear(hidden, 4 * hidden), "proj": nn.Linear(4 * hidden, hidden)})
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x):
        queries, keys, values = (split(part, self.heads)
                                 for part in self.attn["qkv"](self.ln_1(x)).chunk(3, dim=2))
        x = x + self.attn["proj"](merge(causal_attention(queries, keys, values)))
        return x + self.mlp["proj"](self.gelu(self.mlp["fc"](self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, spec, vocabulary):
        super().__init__()
        hidden = spec["hidden"]
        self.wte, self.wpe = nn.Embedding(vocabulary, hidden), nn.Embedding(spec["context"], hidden)
        self.h = nn.ModuleList(GptBlock(hidden, spec["heads"]) for _ in range(spec["layers"]))
        self.ln_f = nn.LayerNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        if spec.get("tied"):
            self.lm_head.weight = self.wte.weight

    def stem(self, ids):
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))

    def blocks(self):
        return self.h

    def logits(self, x):
        return self.lm_head(self.ln_f(x))

    @staticmethod
    def module_name(name):
        return name + ".weight" if name in ("wte", "wpe") else name


def rotate(x, theta):
    """As in Hugging Face's modeling_llama.py: x cos + rotate_half(x) sin."""
    tokens, channels = x.shape[2:]
    frequencies = 1.0 / theta ** (torch.arange(0, channels, 2, dtype=torch.float64) / channels)
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos().float() + torch.cat((-second, first), dim=-1) * angles.sin().float()


class LlamaAttention(nn.Module):
    def __init__(self, spec):
        super().__init__()
        hidden, self.heads = spec["hidden"], spec["heads"]
        self.kv_heads, self.theta = spec["kv_heads"], spec.get("rope_theta", 1e4)
        bias, kv_channels = spec.get("qkv_bias", False), hidden // self.heads * self.kv_heads
        self.q_proj = nn.Linear(hidden, hidden, bias=bias)
        self.k_proj = nn.Linear(hidden, kv_channels, bias=bias)
        self.v_proj = nn.Linear(hidden, kv_channels, bias=bias)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        queries = rotate(split(self.q_proj(x), self.heads), self.theta)
        keys = rotate(split(self.k_proj(x), self.kv_heads), self.theta)
        values = split(self.v_proj(x), self.kv_heads)
        return self.o_proj(merge(causal_attention(queries, keys, values)))


class LlamaMlp(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(spec["hidden"], eps=spec["norm_epsilon"])
        self.self_attn = LlamaAttention(spec)
        self.post_attention_layernorm = nn.RMSNorm(spec["hidden"], eps=spec["norm_epsilon"])
        self.mlp = LlamaMlp(spec["hidden"], spec["intermediate"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, spec, vocabulary):
        super().__init__()
        hidden = spec["hidden"]
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(vocabulary, hidden),
            "layers": nn.ModuleList(LlamaBlock(spec) for _ in range(spec["layers"])),
            "norm": nn.RMSNorm(hidden, eps=spec["norm_epsilon"]),
        })
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)
        if spec.get("tied"):
            self.lm_head.weight = self.model["embed_tokens"].weight

    def stem(self, ids):
        return self.model["embed_tokens"](ids)

    def blocks(self):
        return self.model["layers"]

    def logits(self, x):
        return self.lm_head(self.model["norm"](x))

    @staticmethod
    def module_name(name):
        return name


class Comparison:
    def __init__(self):
        self.worst, self.count = 0.0, 0

    def add(self, what, got, wanted):
        if got.shape != wanted.shape:
            raise AssertionError(f"{what}: {tuple(got.shape)} from the stage, {tuple(wanted.shape)} from the modules")
        size = wanted.abs().max().item()
        error = (got - wanted).abs().max().item() / size
        if not (size > 0 and error <= TOLERANCE):
            raise AssertionError(f"{what}: differs by {error:.2e} of its largest value, {size:.3g}; "
                                 f"{TOLERANCE:g} is allowed")
        self.worst, self.count = max(self.worst, error), self.count + 1


def compare(spec, stages, dump):
    """Raises where a tensor of `dump` is not that of the modules."""
    special = {name for name in dump if "/" in name} | {"ids", "targets", "loss", "logits"}
    parameters = {name: value for name, value in dump.items() if name not in special}
    model = (Gpt if spec["family"] == "gpt" else Llama)(spec, spec.get("vocabulary", 256))
    weights = {model.module_name(name): value for name, value in parameters.items()}
    if spec.get("tied"):
        weights["lm_head.weight"] = model.lm_head.weight  # the embedding, which is there
    model.load_state_dict(weights)  # strict: names and shapes are those of the modules

    x, boundaries = model.stem(dump["ids"].long()), {}
    for number, block in enumerate(model.blocks()):
        per_stage = spec["layers"] // stages
        if number > 0 and number % per_stage == 0 and number // per_stage < stages:
            boundaries[number // per_stage - 1] = x
            x.retain_grad()
        x = block(x)
    logits = model.logits(x)
    loss = F.cross_entropy(logits.flatten(0, 1), dump["targets"].long().flatten())
    loss.backward()

    same = Comparison()
    same.add("loss", dump["loss"], loss.detach().reshape(1))
    same.add("logits", dump["logits"], logits.detach())
    if len(boundaries) != stages - 1:
        raise AssertionError(f"{len(boundaries)} boundaries of {stages} stages")
    for number, value in boundaries.items():
        same.add(f"boundary {number}", dump[f"boundary/{number}"], value.detach())
        same.add(f"gradient of boundary {number}", dump[f"boundary_gradient/{number}"], value.grad)
    gradients = {name: value.grad for name, value in model.named_parameters()}
    if len(gradients) != len(parameters):
        raise AssertionError(f"{len(parameters)} parameters in the stages, {len(gradients)} in the modules")
    for name in parameters:
        same.add(f"gradient of {name}", dump[f"gradient/{name}"], gradients[model.module_name(name)])
    return same


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="longhaul-modules-") as folder:
        for name, spec in MODELS.items():
            keys = ", ".join(f"{key}: {str(value).lower()}" for key, value in spec.items())
            run, out = pathlib.Path(folder, "run.yaml"), pathlib.Path(folder, "out.safetensors")
            for stages in (1,) if spec.get("tied") else (1, 2, 3):
                run.write_text(f"name: modules\nmodel: {{ {keys} }}\ndata: {{ text: none.txt }}\n"
                               f"train: {{ steps: 1, microbatches: 1, microbatch_size: 2 }}\n"
                               f"pipeline: {{ stages: {stages} }}\n")
                subprocess.run([sys.argv[1], run, str(stages), out], check=True, timeout=60)
                try:
                    same = compare(spec, stages, read_safetensors(out))
                except AssertionError as error:
                    raise AssertionError(f"{name}, {stages} stages: {error}") from None
                print(f"ok: {name}, {stages} stages: {same.count} tensors, the worst differs by "
                      f"{same.worst:.1e} of its largest value", flush=True)


if __name__ == "__main__":
    main()
