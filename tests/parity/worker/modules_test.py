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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from torch_models import make_model  # noqa: E402 (ends the program where there is no torch)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

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
    model = make_model(spec, spec.get("vocabulary", 256))
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
