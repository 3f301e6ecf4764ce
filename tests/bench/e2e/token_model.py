"""A GPT whose layers are cut by links, in one process: what stages on several workers compute. Each link has the codecs
themselves (python/README.md): what is decoded goes on, and so do gradients on their way back.
"""
import math

import torch
from torch import nn
from torch.nn import functional

ops = torch.ops.longhaul


class Through(torch.autograd.Function):
    """A tensor as the stage below sees it, and its gradient as the stage above does."""

    @staticmethod
    def forward(ctx, x, link, ids, learns, seed):
        ctx.link, ctx.seed = link, seed
        return link.forward(x, ids, learns, seed)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.link.backward(gradient, ctx.seed), None, None, None, None


class Link:
    """`message`: samples, tokens and channels of a microbatch. A batch is several of them, in order."""

    def __init__(self, codecs, message, vocabulary, device):
        self.codec, self.backward_codec = codecs
        self.tables = None
        if self.codec.startswith("predict"):
            self.tables = torch.classes.longhaul.PredictLink(self.codec, vocabulary, list(message), str(device))
        forward = (self.tables.encoded_bytes() if self.tables is not None
                   else ops.max_encoded_bytes(list(message), self.codec))
        self.bytes_of_message = forward + ops.max_encoded_bytes(list(message), self.backward_codec)
        self.measures, self.error = False, None  # the relative error of what arrived last

    def forward(self, x, ids, learns, seed):
        if self.tables is not None:
            y = self.tables.transfer(x, ids, learns)
        else:
            y = x if self.codec == "none" else ops.roundtrip(x, self.codec, seed=seed)
        if self.measures:
            self.error = (y - x).norm() / x.norm()
        return y

    def backward(self, gradient, seed):
        if self.backward_codec == "none":
            return gradient
        return ops.roundtrip(gradient.contiguous(), self.backward_codec, seed=seed, direction="backward")

    def __call__(self, x, ids, learns, seed):
        return Through.apply(x, self, ids, learns, seed)

    def check(self):
        if self.tables is not None:
            self.tables.check()


class GptLayer(nn.Module):
    """LayerNorm, learned places (in Model), GELU."""

    def __init__(self, hidden, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm, self.norm_mlp = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        begin_weights((self.qkv, self.wide), (self.out, self.narrow), layers)

    def forward(self, x, _):
        q, k, v = heads_of(self.qkv(self.norm(x)), self.heads)
        x = x + self.out(attention(q, k, v))
        return x + self.narrow(functional.gelu(self.wide(self.norm_mlp(x)), approximate="tanh"))


class LlamaLayer(nn.Module):
    """RMSNorm, rotated places, SwiGLU; no biases."""

    def __init__(self, hidden, heads, layers):
        super().__init__()
        self.heads = heads
        inner = -(-hidden * 8 // 3 // 64) * 64
        self.norm, self.norm_mlp = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.gate_up, self.down = nn.Linear(hidden, 2 * inner, bias=False), nn.Linear(inner, hidden, bias=False)
        begin_weights((self.qkv, self.gate_up), (self.out, self.down), layers)

    def forward(self, x, rotation):
        q, k, v = heads_of(self.qkv(self.norm(x)), self.heads)
        x = x + self.out(attention(rotated(q, rotation), rotated(k, rotation), v))
        gate, up = self.gate_up(self.norm_mlp(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


def begin_weights(first, last, layers):
    for linear in (*first, *last):
        nn.init.normal_(linear.weight, std=0.02 if linear in first else 0.02 / math.sqrt(2 * layers))
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


def heads_of(qkv, heads):
    samples, tokens, wide = qkv.shape
    return (part.view(samples, tokens, heads, -1).transpose(1, 2) for part in qkv.split(wide // 3, dim=2))


def attention(q, k, v):
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).flatten(2)


def rotated(x, rotation):
    cos, sin = rotation
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


LAYERS = {"gpt": GptLayer, "llama": LlamaLayer}


class Model(nn.Module):
    """Stages of as many layers each. `kind`: of LAYERS."""

    def __init__(self, kind, vocabulary, hidden, heads, context, stages, layers_per_stage):
        super().__init__()
        layers = stages * layers_per_stage
        self.layers_per_stage = layers_per_stage
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.places = nn.Embedding(context, hidden) if kind == "gpt" else None
        self.layers = nn.ModuleList(LAYERS[kind](hidden, heads, layers) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden) if kind == "gpt" else nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        for weights in (self.tokens.weight, self.head.weight, *([] if self.places is None else [self.places.weight])):
            nn.init.normal_(weights, std=0.02)
        half = hidden // heads // 2
        angles = torch.outer(torch.arange(context).float(), 10000.0 ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, targets, cross):
        """The mean loss. `cross(x, boundary)`: what comes out of a link."""
        x = self.tokens(ids)
        if self.places is not None:
            x = x + self.places(torch.arange(ids.shape[1], device=ids.device))
        rotation = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for number, layer in enumerate(self.layers):
            if number and number % self.layers_per_stage == 0:
                x = cross(x, number // self.layers_per_stage - 1)
            x = layer(x, rotation)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
