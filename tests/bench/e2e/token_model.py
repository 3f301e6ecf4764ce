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


class Block(nn.Module):
    def __init__(self, hidden, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm, self.norm_mlp = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        for linear in (self.qkv, self.wide):
            nn.init.normal_(linear.weight, std=0.02)
        for linear in (self.out, self.narrow):
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * layers))
        for linear in (self.qkv, self.out, self.wide, self.narrow):
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        samples, tokens, hidden = x.shape
        q, k, v = (part.view(samples, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm(x)).split(hidden, dim=2))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(samples, tokens, hidden))
        return x + self.narrow(functional.gelu(self.wide(self.norm_mlp(x)), approximate="tanh"))


class Gpt(nn.Module):
    """A layer a stage."""

    def __init__(self, vocabulary, hidden, heads, context, stages):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(context, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, stages) for _ in range(stages))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)
        for weights in (self.tokens.weight, self.places.weight, self.head.weight):
            nn.init.normal_(weights, std=0.02)

    def forward(self, ids, targets, cross):
        """The mean loss. `cross(x, boundary)`: what comes out of a link."""
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for number, block in enumerate(self.blocks):
            x = block(x if number == 0 else cross(x, number - 1))
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
