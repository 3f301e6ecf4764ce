"""Llama."""
import functools

import torch
from torch import nn

from torch_models import causal_attention, merge, split


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


class Attention(nn.Module):
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


class Mlp(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, spec, mlp):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(spec["hidden"], eps=spec["norm_epsilon"])
        self.self_attn = Attention(spec)
        self.post_attention_layernorm = nn.RMSNorm(spec["hidden"], eps=spec["norm_epsilon"])
        self.mlp = mlp

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, spec, vocabulary):
        super().__init__()
        hidden = spec["hidden"]
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(vocabulary, hidden),
            "layers": nn.ModuleList(Block(spec, self.mlp(spec)) for _ in range(spec["layers"])),
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
    def mlp(spec):
        """The MLP of a block."""
        return Mlp(spec["hidden"], spec["intermediate"])

    @staticmethod
    def module_name(name):
        return name
