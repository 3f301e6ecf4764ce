#!/usr/bin/env python3
"""A stage on a group of GPUs against the same stage on one: forward and backward of some layers.

Every variant is a process that keeps its stage; rounds take turns between them, and what counts is
the median over rounds of the ratio in a round. Needs as many GPUs as ranks.
"""
import argparse
import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time

SHAPES = {
    "llama-3-8b": {
        "model": {"family": "llama", "hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 14336,
                  "context": 4096, "vocabulary": 128256, "rope_theta": 500000},
        "microbatch_size": 1},
    "gpt2-large": {
        "model": {"hidden": 1280, "heads": 20, "context": 1024, "vocabulary": 50257},
        "microbatch_size": 1},
    # Routers send tokens to experts by Zipf's law, so that some experts get many.
    "moe": {
        "model": {"family": "moe", "hidden": 2048, "heads": 16, "kv_heads": 4, "context": 4096,
                  "vocabulary": 151936, "experts": 64, "experts_per_token": 8, "expert_intermediate": 768},
        "microbatch_size": 1, "layers": 4, "zipf": 1.0, "collectives": "none,zip"},
}


class Stage:
    """A process with a stage, that makes steps when it is told to."""

    def __init__(self, program, shape, layers, devices, collectives, environment, experts=1, share=1.0,
                 sequence=False, path=""):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | environment)
        run = {"name": "group", "model": {**SHAPES[shape]["model"], "layers": layers},
               "data": {"text": ["unused"]},
               # Moments in bf16, so that all variants' stages fit a GPU together; weights stay as they are.
               "train": {"steps": 1, "microbatches": 4, "dtype": "bf16",
                         "microbatch_size": SHAPES[shape]["microbatch_size"],
                         "optimizer": {"lr": 1e-9, "moments": "bf16"}}}
        job = {"run": run, "layers": layers, "last": False, "threads": 1,
               "graphs": True, "collectives": collectives, "p": share, "sequence": sequence, "path": path}
        if "zipf" in SHAPES[shape]:
            job["zipf"] = SHAPES[shape]["zipf"]
        else:
            job["timing_only"] = True
        if experts > 1:
            job["experts"] = experts
        job["devices" if "," in devices or "-" in devices else "device"] = devices
        self.experts = []
        self.tell(job)

    def tell(self, job):
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        while line and not line.startswith("{"):  # what the stage says to people
            print(f"  {line.rstrip()}", file=sys.stderr, flush=True)
            line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[0]} ended with code {self.process.wait()}")
        return json.loads(line)

    def seconds(self, steps):
        self.tell({"steps": steps})
        answer = self.answer()
        self.experts = answer.get("experts", [])
        return statistics.median(answer["seconds"]) / 4

    def close(self):
        self.process.kill()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", help="the folder with stage_passes")
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--layers", type=int, help="default: 8, of experts 4")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--host-path", action="store_true", help="NCCL without direct links (NCCL_P2P_DISABLE=1)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5, help="of a round; 4 microbatches each")
    parser.add_argument("--collectives",
                        help="default: none,taco,zip; of experts none,zip; free: without sums, what ranks compute; "
                             "bounded: zip for whose sizes nobody waits; none@nccl, zip@mapped: by that way "
                             "alone (default: NCCL over direct links, else host memory that GPUs map)")
    parser.add_argument("--shares", default="1", help="of channels that ranks sum (p), each a variant: 1,0.5")
    parser.add_argument("--sequence", action="store_true", help="ranks have their parts of the tokens between sums")
    parser.add_argument("--csv")
    args = parser.parse_args()
    program = os.path.join(args.bin, "stage_passes")
    if not os.access(program, os.X_OK):
        sys.exit(f"expected {program}; build the target stage_passes")

    def stop(signal_number, frame):
        sys.exit(f"ended by signal {signal_number}")

    signal.signal(signal.SIGTERM, stop)
    rows = []
    for shape in args.shape or SHAPES:
        times, experts = {}, []
        try:
            measure(args, program, shape, times, experts)
        finally:  # what there is, whatever came between
            rounds = min(map(len, times.values()), default=0)
            if rounds:
                rows += report(args, shape, {name: seconds[:rounds] for name, seconds in times.items()}, experts)
            if args.csv and rows:
                with open(args.csv, "w", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, rows[0])
                    writer.writeheader()
                    writer.writerows(rows)


def layers_of(args, shape):
    return args.layers or SHAPES[shape].get("layers", 8)


def measure(args, program, shape, times, experts):
    """Seconds by variant and round, into `times`; loads of experts into `experts`."""
    layers = layers_of(args, shape)
    environment = {"NCCL_P2P_DISABLE": "1"} if args.host_path else {}
    collectives = (args.collectives or SHAPES[shape].get("collectives", "none,taco,zip")).split(",")
    parts = args.ranks if "experts" in SHAPES[shape]["model"] else 1
    print(f"{shape}, {layers} layers, bf16, forward + backward of a microbatch; "
          f"{'host path' if args.host_path else 'direct links'}", flush=True)
    began = time.monotonic()
    stages = {"one GPU": Stage(program, shape, layers, "cuda:0", "none", {})}
    try:
        for what in collectives:
            for share in args.shares.split(","):
                name = f"{args.ranks} GPUs, {what}" + (f", p {share}" if share != "1" else "")
                codec, _, path = what.partition("@")
                stages[name] = Stage(program, shape, layers, f"cuda:0-{args.ranks - 1}", codec, environment,
                                     parts, float(share), args.sequence, path)
        times.update({name: [] for name in stages})
        for stage in stages.values():  # they start side by side
            stage.answer()
        for name, stage in stages.items():
            print(f"  {time.monotonic() - began:.0f} s: {name} warms up", file=sys.stderr, flush=True)
            stage.seconds(2)
        for number in range(args.rounds):
            print(f"  {time.monotonic() - began:.0f} s: round {number + 1}", file=sys.stderr, flush=True)
            for name, stage in stages.items():
                times[name].append(stage.seconds(args.steps))
                experts[:] = stage.experts
    finally:
        for stage in stages.values():
            stage.close()


def report(args, shape, times, experts):
    if experts:
        print(f"  tokens of a block's most used expert over the mean: "
              f"{', '.join(f'{block:.2f}' for block in experts)}", flush=True)
    rows = []
    first_group = list(times.values())[1]
    for name, seconds in times.items():
        to_one = statistics.median(a / b for a, b in zip(times["one GPU"], seconds))
        to_group = statistics.median(a / b for a, b in zip(first_group, seconds))
        rows.append({"shape": shape, "layers": layers_of(args, shape), "host_path": args.host_path, "sequence": args.sequence,
                     "variant": name, "rounds": len(seconds),
                     "ms": round(1e3 * statistics.median(seconds), 3),
                     "ms_least": round(1e3 * min(seconds), 3), "ms_most": round(1e3 * max(seconds), 3),
                     "x_one_gpu": round(to_one, 3), "x_first_group": round(to_group, 3)})
        print(f"  {name:20} {rows[-1]['ms']:9.3f} ms  ({rows[-1]['ms_least']:.3f} - {rows[-1]['ms_most']:.3f})"
              f"  {to_one:6.3f} x one GPU  {to_group:6.3f} x the first group", flush=True)
    return rows


if __name__ == "__main__":
    main()
