#!/usr/bin/env python3
"""What a stage's forward and backward take where attention is within a window, within documents, or over
capped scores, beside the same layers that attend to everything before.

  tests/bench/e2e/attention_kinds.py build/gpu/bin --device cuda > docs/results/rows/attention_kinds.txt

BIN_DIR: where stage_passes is (tests/bench/worker/stage_passes.cc; tests/gpu.sh brings it to build/gpu/bin).
Every kind runs in a process of its own, one after the other; the ratio is to `plain` of the same context in
the same run. A step is one microbatch forward and backward, median of --steps.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from with_torch import environment_of, libraries_of

KINDS = {
    "plain": ({}, None),
    "window 1024": ({"window": 1024}, None),
    "documents of 500": ({}, 500),
    "window 1024, documents of 3000": ({"window": 1024}, 3000),
    "capped scores": ({"attention_cap": 50.0}, None),
    "capped scores, window 1024 in half of the layers": (
        {"attention_cap": 50.0, "window": 1024, "full_every": 2}, None),
}


def run_file(context, layers, recompute, more):
    model = {"family": "llama", "layers": layers + 2, "hidden": 2048, "heads": 16, "kv_heads": 4,
             "intermediate": 5632, "context": context, "vocabulary": 32000, **more}
    return {"name": "attention", "model": model, "data": {"text": ["none"]},
            "train": {"steps": 100, "microbatches": 1, "microbatch_size": 1, "dtype": "bf16"},
            "pipeline": {"recompute": recompute}}


def seconds(options, context, more, documents):
    job = {"run": run_file(context, options.layers, options.recompute, more), "layers": options.layers,
           "last": False, "device": options.device, "threads": 4, "graphs": options.device != "cpu",
           "timing_only": True}
    if documents:
        job["documents"] = documents
    lines = [json.dumps(job), json.dumps({"steps": 3}), json.dumps({"steps": options.steps})]
    done = subprocess.run([options.programs / "stage_passes"], input="\n".join(lines) + "\n", text=True,
                          capture_output=True, check=False, env=options.environment)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != 3:
        return None, (done.stderr or done.stdout).strip().splitlines()[-1:]
    return statistics.median(answers[-1]["seconds"]), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--recompute", default="none", choices=("none", "blocks", "stage"))
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--python", default=sys.executable, help="one that has torch (default: this)")
    options = parser.parse_args()
    options.environment = environment_of((options.programs / "stage_passes").resolve(),
                                         lambda: libraries_of(options.python))
    print("| context | attention | ms a step | to plain |\n| --- | --- | --- | --- |")
    for context in options.contexts:
        plain = None
        for name, (more, documents) in KINDS.items():
            value, problem = seconds(options, context, more, documents)
            if value is None:
                print(f"| {context} | {name} | failed: {problem} | |", flush=True)
                continue
            plain = plain or value
            print(f"| {context} | {name} | {1e3 * value:.1f} | {value / plain:.2f} |", flush=True)


if __name__ == "__main__":
    main()
