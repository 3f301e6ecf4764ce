"""Llama with a mixture of experts for an MLP."""
import torch
import torch_llama
from torch import nn


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
        self.experts = nn.ModuleList(
            torch_llama.Mlp(hidden, spec["expert_intermediate"]) for _ in range(spec["experts"]))
        self.shared_expert = torch_llama.Mlp(hidden, shared) if shared else None
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


class Model(torch_llama.Model):
    @staticmethod
    def mlp(spec):
        return Mixture(spec)
