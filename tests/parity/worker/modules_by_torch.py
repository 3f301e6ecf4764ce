"""Holds every value of the stages' logits, loss and gradients against PyTorch's own modules with the same weights.

usage: modules_by_torch.py STAGE_DUMP [--write]

--write also writes modules.json, for machines without torch. Needs a Python that has torch; without it exits with 77,
which ctest shows as skipped.
"""
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from torch_models import make_model  # noqa: E402 (ends the program where there is no torch)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from modules_test import GOLDEN, golden_name  # noqa: E402
from stage_dumps import TOLERANCE, dumps  # noqa: E402

VALUES = 24  # of a tensor, in modules.json


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
    """(what differs, all that the modules computed). Raises where a tensor of `dump` is another."""
    special = {name for name in dump if "/" in name} | {"ids", "targets", "loss", "logits"}
    parameters = {name: value for name, value in dump.items() if name not in special}
    model = make_model(spec, spec.get("vocabulary", 256))
    weights = {model.module_name(name): value for name, value in parameters.items()}
    if spec.get("tied"):
        weights["lm_head.weight"] = model.lm_head.weight  # the embedding, which is there
    model.load_state_dict(weights)  # strict: names and shapes are those of the modules

    x, after = model.stem(dump["ids"].long()), {}
    for number, block in enumerate(model.blocks()):
        if number > 0:
            after[number] = x
            x.retain_grad()
        x = block(x)
    logits = model.logits(x)
    loss = F.cross_entropy(logits.flatten(0, 1), dump["targets"].long().flatten())
    (loss + model.auxiliary()).backward()

    computed = {"loss": loss.detach().reshape(1), "logits": logits.detach()}
    for number, value in after.items():
        computed |= {f"boundary/{number}": value.detach(), f"boundary_gradient/{number}": value.grad}
    gradients = {name: value.grad for name, value in model.named_parameters()}
    if len(gradients) != len(parameters):
        raise AssertionError(f"{len(parameters)} parameters in the stages, {len(gradients)} in the modules")
    for name in parameters:
        computed[f"gradient/{name}"] = gradients[model.module_name(name)]
    same = Comparison()
    for name, value in dump.items():
        if name in special - {"ids", "targets"}:
            same.add(name, value, computed[golden_name(spec, stages, name)])
    return same, computed


def golden_of(name, tensor):
    flat = tensor.flatten().double()
    places = sorted(random.Random(name).sample(range(len(flat)), min(VALUES, len(flat))))
    return {"shape": list(tensor.shape), "norm": flat.norm().item(), "largest": flat.abs().max().item(),
            "values": [[place, float(f"{flat[place].item():.8g}")] for place in places]}


def main():
    torch.set_num_threads(1)
    golden = {}
    for name, spec, stages, dump in dumps(sys.argv[1]):
        tensors = {key: torch.tensor(values).reshape(shape) for key, (shape, values) in dump.items()}
        try:
            same, computed = compare(spec, stages, tensors)
        except AssertionError as error:
            raise AssertionError(f"{name}, {stages} stages: {error}") from None
        golden.setdefault(name, {key: golden_of(key, value) for key, value in computed.items()})
        print(f"ok: {name}, {stages} stages: {same.count} tensors, the worst differs by "
              f"{same.worst:.1e} of its largest value", flush=True)
    if "--write" in sys.argv[2:]:
        lines = [f" {json.dumps(name)}: {{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}"
                                                          for key, value in tensors.items()) + "}"
                 for name, tensors in golden.items()]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
