"""Holds adapters of LoRA that longhaul exports, and what it computes with them, against PEFT.

usage: peft_test.py LORA_EXPORT MODELS

Of every folder of MODELS, with adapters at PEFT's usual modules and at all: PEFT loads the adapters
and computes the same logits, merges the same weights, and has the same modules and shapes by itself.

Needs a Python that has torch, transformers and peft; without them exits with 77, which ctest shows as
skipped.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import peft
    import torch
    import transformers
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as USUAL
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
except (ImportError, OSError) as error:
    print(f"skipped: {sys.executable} cannot import peft ({error}); another Python is named by "
          "cmake -DLONGHAUL_TRANSFORMERS_PYTHON=PATH")
    sys.exit(77)

MOST_APART = 1e-4  # of logits


def base_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def logits_of(model, ids):
    with torch.no_grad():
        return model.eval()(input_ids=ids, use_cache=False).logits.float()


def apart(what, got, wanted, most):
    if got.shape != wanted.shape:
        raise AssertionError(f"{what}: {tuple(got.shape)} instead of {tuple(wanted.shape)}")
    largest = (got - wanted).abs().max().item()
    if not largest <= most:
        raise AssertionError(f"{what}: differ by {largest:.2e}, {most:g} are allowed")
    return largest


def expect_same_keys(what, got, wanted):
    if set(got) != set(wanted):
        raise AssertionError(f"{what}: {sorted(set(got) ^ set(wanted))[:8]} are in one alone")


def check(export, folder, targets, out):
    subprocess.run([export, folder, targets, out], check=True, timeout=60)
    computed, ours = load_file(out / "computed.safetensors"), load_file(out / "adapters/adapter_model.safetensors")
    ids, wanted = computed["input_ids"], computed["logits"]

    # The modules, names and shapes that PEFT makes when it is asked for the same.
    config = peft.LoraConfig.from_pretrained(out / "adapters")
    base = base_of(folder)
    known = set(USUAL.get(base.config.model_type, []))  # PEFT knows no usual modules of some models
    asked = {"usual": None if known else sorted(config.target_modules), "all-linear": "all-linear"}[targets]
    fresh = peft.get_peft_model(base, peft.LoraConfig(
        r=3, lora_alpha=7.5, target_modules=asked, task_type="CAUSAL_LM", fan_in_fan_out=config.fan_in_fan_out,
        rank_pattern=config.rank_pattern))
    theirs = peft.get_peft_model_state_dict(fresh)
    expect_same_keys(f"{folder.name}, {targets}", ours, theirs)
    for name, tensor in theirs.items():
        if ours[name].shape != tensor.shape:
            raise AssertionError(f"{name}: {tuple(ours[name].shape)} instead of {tuple(tensor.shape)}")
    if targets == "usual" and known and set(config.target_modules) != known:
        raise AssertionError(f"{folder.name}: {config.target_modules} are not {known}")

    plain = logits_of(base_of(folder), ids)
    loaded = peft.PeftModel.from_pretrained(base_of(folder), out / "adapters")
    for name, tensor in peft.get_peft_model_state_dict(loaded).items():
        if not torch.equal(tensor, ours[name]):
            raise AssertionError(f"{name} was loaded as other numbers")
    got = logits_of(loaded, ids)
    if (got - plain).abs().max().item() < 100 * MOST_APART:
        raise AssertionError(f"{folder.name}: these adapters change nothing")
    difference = apart(f"{folder.name}, {targets}, by PEFT", got, wanted, MOST_APART)

    merged, info = AutoModelForCausalLM.from_pretrained(
        out / "merged", dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        raise AssertionError(f"{folder.name}, merged: {wrong}")
    apart(f"{folder.name}, {targets}, merged", logits_of(merged, ids), wanted, MOST_APART)
    by_peft = loaded.merge_and_unload().state_dict()
    expect_same_keys(f"{folder.name}, {targets}, merged", merged.state_dict(), by_peft)
    for name, tensor in merged.state_dict().items():
        apart(name, tensor, by_peft[name], 1e-6)
    print(f"ok: {folder.name}, {targets}: {len(ours)} tensors, logits differ by {difference:.1e}", flush=True)


def main():
    export, models = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="longhaul-peft-") as temporary:
        for folder in sorted(path for path in models.iterdir() if (path / "config.json").exists()):
            for targets in ("usual", "all-linear"):
                check(export, folder, targets, pathlib.Path(temporary) / f"{folder.name}-{targets}")


if __name__ == "__main__":
    main()
