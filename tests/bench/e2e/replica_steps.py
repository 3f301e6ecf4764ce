#!/usr/bin/env python3
"""How long steps of two replicas take, beside what the plan predicts: replays of a GPT of GPT-2 small's
size on shaped links, whose passes are slept, or on GPUs. Needs root, for network namespaces.

  tests/bench/e2e/replica_steps.py build/release/bin --out steps.csv --of before
  tests/bench/e2e/replica_steps.py build/release/bin --out steps.csv --of before --device cuda:0-1 --rate 1gbit

Every step that counts adds a row to --out, with what --of says of the programs.

Exit codes: 0; 1 where a run failed; 77 (skipped) without root.
"""
import argparse
import pathlib
import statistics
import sys

import needs
from cluster import ROOT, Cluster, Failed
from report import Table, append_rows, machine, read_rows

FILE = ROOT / "deploy/runs/replicas_gpt2_replay.yaml"
FILE_OF_GPUS = ROOT / "deploy/runs/replicas_gpt2.yaml"
# Stages of a replica, and what a run changes in the file. As it is, lines are the bottleneck of passes of three stages;
# where compute is slow, it is: a stage of twelve layers takes 1.2 s backward.
SLOW = {"replay.layers.block_forward": "50ms", "replay.layers.block_backward": "100ms"}
CASES = {
    "3 stages, lines slow": (3, {}),
    "3 stages, compute slow": (3, {**SLOW, "links.forward": "bf16", "links.backward": "bf16"}),
    "1 stage, compute slow": (1, SLOW),
    "1 stage, 1 microbatch": (1, {**SLOW, "train.microbatches": 1}),
}
APART = 8  # steps of local-sgd
FORMS = {
    "bf16": {"pipeline.gradients": "bf16", "pipeline.parameters": "bf16"},
    "sdp4bit": {"pipeline.gradients": "sdp4bit", "pipeline.parameters": "difference4"},
    "tagc": {"pipeline.gradients": "tagc", "pipeline.parameters": "difference4"},
}
for name, delay in (("local-sgd", ""), ("local-sgd, delayed", ",delay=0.75")):
    FORMS[name] = {"pipeline.gradients": f"'local-sgd:steps={APART}{delay}'", "pipeline.parameters": "difference4"}
FIELDS = ("of", "case", "form", "step", "seconds", "predicted_seconds")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR", help="folder of longhaul's programs")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="CSV", help="rows, kept from call to call")
    parser.add_argument("--of", required=True, help="what the rows are of")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="of replays")
    parser.add_argument("--device", default="cpu", help="cuda:A-B: it computes there, and nothing is replayed")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["sdp4bit"])
    parser.add_argument("--rate", default="100mbit", help="of each worker's line, each way")
    parser.add_argument("--steps", type=int, default=3, help="that count, of replicas that train together")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changes the run file")
    return parser.parse_args()


def counted(arguments, form):
    """Steps that count: behind the first one; of replicas that train apart a round with an exchange, but the first and
    the last one."""
    if form.startswith("local-sgd"):
        return range(APART + 1, 2 * APART + 1), 3 * APART
    return range(2, arguments.steps + 2), arguments.steps + 1


def measure(arguments):
    print(f"{machine()}; {arguments.rate} to and from each worker", flush=True)
    on_gpus = arguments.device != "cpu"
    file = FILE_OF_GPUS if on_gpus else FILE
    cases = {case: CASES[case] for case in arguments.cases}
    if on_gpus:
        cases = {f"on GPUs, {arguments.rate}": (1, {})}
    most = max(stages for stages, _ in cases.values())
    with Cluster(arguments.programs, workers=2 * most, rate=arguments.rate, device=arguments.device) as cluster:
        for case, (stages, changes) in cases.items():
            for form in arguments.forms:
                count, steps = counted(arguments, form)
                run = cluster.train(file, {"train.steps": steps, "pipeline.stages": stages, **changes, **FORMS[form],
                                           **dict(word.split("=", 1) for word in arguments.set)})
                predicted = run.prediction["step_seconds"]
                rows = [{"of": arguments.of, "case": case, "form": form, "step": step["step"],
                         "seconds": f"{step['seconds']:.3f}", "predicted_seconds": f"{predicted:.3f}"}
                        for step in run.steps if int(step["step"]) in count]
                append_rows(arguments.out, FIELDS, rows)
                print(f"{case}, {form}: {[row['seconds'] for row in rows]}, predicted {predicted:.3f}", flush=True)


def summary(rows):
    table = Table("steps: medians; of replicas that train apart means over a round",
                  ("case", "form", "of", "seconds", "predicted"))
    for case, form, of in dict.fromkeys((row["case"], row["form"], row["of"]) for row in rows):
        own = [row for row in rows if (row["case"], row["form"], row["of"]) == (case, form, of)]
        middle = statistics.mean if form.startswith("local-sgd") else statistics.median
        table.add(case, form, of, f"{middle(float(row['seconds']) for row in own):.2f}",
                  f"{float(own[-1]['predicted_seconds']):.2f}")
    table.finish()


def main():
    arguments = parse()
    needs.root_or_skip()
    try:
        needs.check_programs(arguments.programs, needs.CLUSTER)
        measure(arguments)
        summary(read_rows(arguments.out))
    except Failed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()
