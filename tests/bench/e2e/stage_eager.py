#!/usr/bin/env python3
"""A stage's layers, forward and backward, beside the same layers in eager PyTorch, on one device, taking
turns in one run. Needs a Python that has torch.

  tests/bench/e2e/stage_eager.py build/gpu/bin --device cuda
  tests/bench/e2e/stage_eager.py build/gpu/bin --device cuda --last
  tests/bench/e2e/stage_eager.py build/release/bin --layers 2 --hidden 256 --heads 4 --context 128

BIN_DIR: where stage_passes is (tests/bench/worker/stage_passes.cc; tests/gpu.sh brings it to build/gpu/bin).
Both compute in --dtype over fp32 parameters, cast weights once a step (eager in its first forward, which
counts; longhaul with the optimizer's step), take and give boundary tensors of fp32, and attend by
scaled_dot_product_attention. With --last the model's norm, head and loss follow the layers. A step is
--microbatches times forward and backward; the optimizer's step between does not count. longhaul's passes
are whole on the device when they end, for a message follows; so are those of `eager`. `eager, ahead` waits
for the device at the step's end only, as where nothing is sent. The ratio is longhaul's speed to theirs:
at least 1 where it is not slower.

Exit codes: 0; 1 where something failed; 77 (skipped) where there is no torch.
"""
import argparse
import contextlib
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

import needs
from cluster import Failed
from report import Table, spread
from with_torch import SKIPPED, environment_of, versions_of

EAGER = pathlib.Path(__file__).resolve().parent / "eager_passes.py"


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR")
    for flag, default, what in (
            ("--layers", 6, "of the stage"), ("--hidden", 1600, "channels"), ("--heads", 25, ""),
            ("--context", 1024, "tokens of a sequence"),
            ("--vocabulary", 50257, "rows of the head"), ("--microbatches", 8, "a step"),
            ("--microbatch-size", 1, "sequences"), ("--threads", 1, "on the CPU"),
            ("--rounds", 5, "turns of each"), ("--steps", 5, "that count, in a turn"),
            ("--warm-up", 2, "steps before them that do not, in each turn")):
        parser.add_argument(flag, type=int, default=default,
                            help=f"{what} (default %(default)s)".strip())
    parser.add_argument("--last", action="store_true", help="the model's last stage")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16",
                        help="of compute (default %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default %(default)s)")
    parser.add_argument("--python", default=sys.executable, help="one that has torch (default: this)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all of it there")
    arguments = parser.parse_args()
    if min(arguments.steps, arguments.rounds, arguments.microbatches) < 1:
        parser.error("expected --steps, --rounds and --microbatches of at least 1")
    return arguments


def job_of(arguments):
    """What both sides read. The model has more layers than the stage, which is not its first."""
    return {
        "layers": arguments.layers, "last": arguments.last,
        "device": arguments.device, "threads": arguments.threads,
        "run": {
            "name": "stage-eager",
            "model": {"family": "gpt", "layers": arguments.layers + 2, "hidden": arguments.hidden,
                      "heads": arguments.heads, "context": arguments.context,
                      "vocabulary": arguments.vocabulary},
            "data": {"text": ["none"]},
            "train": {"steps": 1, "microbatches": arguments.microbatches,
                      "microbatch_size": arguments.microbatch_size, "dtype": arguments.dtype,
                      "optimizer": {"kind": "adamw", "lr": 1e-5, "betas": [0.9, 0.95],
                                    "epsilon": 1e-8, "weight_decay": 0.1}}}}


class Side:
    """A process that answers a line of JSON with one."""

    def __init__(self, command, job, environment=None):
        # pylint: disable-next=consider-using-with  # Ended by __exit__.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)
        self.name = pathlib.Path(command[-1]).name
        self.job = job

    def __enter__(self):
        self.parameters = self.ask(self.job)["parameters"]
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, request):
        with contextlib.suppress(BrokenPipeError):  # It has ended; the answer is then empty.
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise Failed(f"{self.name} ended with {self.process.wait()} in the place of an answer")
        return json.loads(answer)


def measure(arguments, versions, seconds):
    """Adds to `seconds`, by name, those of each step that counts."""
    job, program = job_of(arguments), arguments.programs.resolve() / "stage_passes"
    with contextlib.ExitStack() as stack:
        def ours(graphs=True, deterministic=False):
            train = {**job["run"]["train"], "deterministic": deterministic}
            return stack.enter_context(Side(
                [program], {**job, "graphs": graphs, "run": {**job["run"], "train": train}},
                environment_of(program, versions["libraries"])))

        longhaul = ours()
        eager = stack.enter_context(Side([arguments.python, EAGER], job))
        if longhaul.parameters != eager.parameters:
            raise Failed(f"expected equal stages; longhaul's has {longhaul.parameters} parameters, "
                         f"eager's {eager.parameters}")
        sides = {"longhaul": (longhaul, {}), "eager": (eager, {"ahead": False}),
                 "eager, ahead": (eager, {"ahead": True})}
        if arguments.device != "cpu":
            sides["longhaul, deterministic"] = (ours(deterministic=True), {})
            sides["longhaul, no graphs"] = (ours(graphs=False), {})
        for _ in range(arguments.rounds):
            for name, (side, options) in sides.items():
                steps = side.ask({"steps": arguments.warm_up + arguments.steps, **options})["seconds"]
                seconds.setdefault(name, []).extend(steps[arguments.warm_up:])


def compare(arguments, versions):
    table = Table(
        f"{arguments.layers} layers of GPT"
        + (f", norm, a head of {arguments.vocabulary} rows and loss" if arguments.last else "")
        + f", hidden {arguments.hidden}, {arguments.heads} heads, "
        f"{arguments.context} tokens, {arguments.dtype} on {arguments.device}"
        + "".join(f" ({gpu})" for gpu in versions["gpus"][:1] if arguments.device != "cpu")
        + f"; ms of a microbatch, forward and backward: median (middle half) of {arguments.rounds} x "
        f"{arguments.steps} steps of {arguments.microbatches} microbatches of "
        f"{arguments.microbatch_size}; ratio: longhaul's speed to it",
        ["who", "ms", "ratio"])
    seconds, complete = {}, False
    try:
        measure(arguments, versions, seconds)
        complete = True
    finally:
        show(arguments, versions, table, seconds, complete)


def show(arguments, versions, table, seconds, complete):
    if "longhaul" not in seconds:
        return
    medians = {name: statistics.median(steps) for name, steps in seconds.items()}
    ratios = {name: median / medians["longhaul"] for name, median in medians.items()}
    for name, steps in seconds.items():
        table.add(name, spread([1e3 * step / arguments.microbatches for step in steps]),
                  f"{ratios[name]:.3f}")
    table.finish(complete=complete)
    print(f"torch {versions['torch']}")
    if arguments.json:
        arguments.json.write_text(json.dumps({
            "command": shlex.join(sys.argv), "machine": table.machine, "versions": versions,
            "job": job_of(arguments), "complete": complete, "step_seconds": seconds, "ratios": ratios}, indent=1) + "\n")


def main():
    arguments = parse()
    try:
        needs.check_programs(arguments.programs, ["stage_passes"])
        versions = versions_of(arguments.python, EAGER)
        if versions is None:
            return SKIPPED
        compare(arguments, versions)
        return 0
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"stage_eager: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
