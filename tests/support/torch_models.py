"""GPT's and Llama's models, and one with experts, composed of PyTorch's own modules, to compare the stages with.

Parameters have the stages' names (module_name), shapes and layout. Importing this where torch cannot be
imported ends the program with 77, which ctest shows as skipped.
"""
import functools
import sys

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except (ImportError, OSError) as error:
    print(f"skipped: {sys.executable} cannot import torch ({error}). Where there is no GPU, deploy/setup.sh "
          "brings LibTorch's CPU part alone; another Python is named by cmake -DLONGHAUL_TORCH_PYTHON=PATH")
    sys.exit(77)


def causal_attention(queries, keys, values):
    """softmax(QK / sqrt(channels)) V, a head of keys and values repeated for its group of queries."""
    group = queries.shape[1] // keys.shape[1]
    if group == 1:
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
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

    def keep(self, first_layer, layers, stem, head):
        """Some of its layers alone: a pipeline's stage."""
        self.h = self.h[first_layer:first_layer + layers]
        if not stem:
            self.wte = self.wpe = None
        if not head:
            self.ln_f = self.lm_head = None

    def stem(self, ids):
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))

    def blocks(self):
        return self.h

    def auxiliary(self):
        return 0.0

    def logits(self, x):
        return self.lm_head(self.ln_f(x))

    @staticmethod
    def module_name(name):
        return name + ".weight" if name in ("wte", "wpe") else name


@functools.lru_cache
def rotary_tables(tokens, channels, theta, device):
    """Cosines and sines of the angles, each (tokens, channels)."""
    frequencies = 1.0 / theta ** (torch.arange(0, channels, 2, dtype=torch.float64) / channels)
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().float().to(device), angles.sin().float().to(device)


def rotate(x, theta):
    """As in Hugging Face's modeling_llama.py: x cos + rotate_half(x) sin."""
    cosines, sines = rotary_tables(*x.shape[2:], theta, x.device)
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


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


class Mixture(nn.Module):
    """Every expert computes every token; those that the router did not choose count nothing."""
    def __init__(self, spec):
        super().__init__()
        hidden, shared = spec["hidden"], spec.get("shared_intermediate", 0)
        self.chosen, self.normalizes = spec["experts_per_token"], spec.get("normalize_router", True)
        self.factor = 0.0
        if spec.get("balance", "loss") == "loss":
            self.factor = spec.get("balance_loss", 1e-3) * spec["experts"] / spec["layers"]
        self.gate = nn.Linear(hidden, spec["experts"], bias=False)
        self.experts = nn.ModuleList(LlamaMlp(hidden, spec["expert_intermediate"]) for _ in range(spec["experts"]))
        self.shared_expert = LlamaMlp(hidden, shared) if shared else None
        self.shared_expert_gate = nn.Linear(hidden, 1, bias=False) if shared else None
        self.auxiliary = 0.0

    def forward(self, x):
        rows = x.flatten(0, 1)
        scores = self.gate(rows).softmax(-1)
        taken = torch.zeros_like(scores).scatter(1, scores.topk(self.chosen, dim=-1).indices, 1.0)
        weights = scores * taken
        if self.normalizes:
            weights = weights / weights.sum(-1, keepdim=True)
        self.auxiliary = self.factor * (taken.mean(0) * scores.mean(0)).sum()
        y = sum(weights[:, number:number + 1] * expert(rows) for number, expert in enumerate(self.experts))
        if self.shared_expert is not None:
            y = y + torch.sigmoid(self.shared_expert_gate(rows)) * self.shared_expert(rows)
        return y.view_as(x)


class LlamaBlock(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(spec["hidden"], eps=spec["norm_epsilon"])
        self.self_attn = LlamaAttention(spec)
        self.post_attention_layernorm = nn.RMSNorm(spec["hidden"], eps=spec["norm_epsilon"])
        self.mlp = Mixture(spec) if spec["family"] == "moe" else LlamaMlp(spec["hidden"], spec["intermediate"])

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

    def keep(self, first_layer, layers, stem, head):
        """Some of its layers alone: a pipeline's stage."""
        self.model["layers"] = self.model["layers"][first_layer:first_layer + layers]
        if not stem:
            del self.model["embed_tokens"]
        if not head:
            del self.model["norm"]
            self.lm_head = None

    def stem(self, ids):
        return self.model["embed_tokens"](ids)

    def blocks(self):
        return self.model["layers"]

    def auxiliary(self):
        """What the forward before this adds to the loss: the sum over its blocks."""
        return sum(getattr(block.mlp, "auxiliary", 0.0) for block in self.blocks())

    def logits(self, x):
        return self.lm_head(self.model["norm"](x))

    @staticmethod
    def module_name(name):
        return name


def make_model(spec, vocabulary):
    """`spec`: the keys of a run file's `model`; `vocabulary`: rows of embedding and head."""
    return (Gpt if spec["family"] == "gpt" else Llama)(spec, vocabulary)
