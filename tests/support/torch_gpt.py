"""GPT-2."""
import torch
from torch import nn

from torch_models import causal_attention, merge, split


class Block(nn.Module):
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


class Model(nn.Module):
    def __init__(self, spec, vocabulary):
        super().__init__()
        hidden = spec["hidden"]
        self.wte, self.wpe = nn.Embedding(vocabulary, hidden), nn.Embedding(spec["context"], hidden)
        self.h = nn.ModuleList(Block(hidden, spec["heads"]) for _ in range(spec["layers"]))
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
