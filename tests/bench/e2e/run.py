#!/usr/bin/env python3
"""End-to-end benchmarks of longhaul: each starts a cluster of real daemons, trains on it, prints a
table, and leaves nothing running. Standard library only; needs root, for network namespaces, but for norms, scrape and takeover.

  tests/bench/e2e/run.py wire                bytes on the wire against the formats' sizes
  tests/bench/e2e/run.py step --cores 2      step time on slow links, bound, simulator
  tests/bench/e2e/run.py sim                 step time on fast links against the simulator
  tests/bench/e2e/run.py idle                idle daemons, start-up times
  tests/bench/e2e/run.py replay --cores 2    what eight workers of a replay take of two cores
  tests/bench/e2e/run.py placement           steps of workers as placed and by name, and predictions
  tests/bench/e2e/run.py overhead            what a worker adds to its compute
  tests/bench/e2e/run.py groups              what a slow link takes longer beside stages that ranks share
  tests/bench/e2e/run.py tables              memory and steps of a codec that knows the tokens
  tests/bench/e2e/run.py codecs              loss and speed of the quickstart's run, codec by codec
  tests/bench/e2e/run.py norms               its largest gradient norms, codec by codec
  tests/bench/e2e/run.py scrape              what metrics cost: a scrape of 64 workers; no root
  tests/bench/e2e/run.py takeover            how soon a standby serves when its coordinator is killed; no root

What a benchmark needs is looked for first, and where a later part fails, the table has what was
measured until then.

A new benchmark is a module with add_arguments(parser), check_needs(arguments), table_of(arguments),
which gives an empty report.Table, and measure(arguments, table), which fills it and gives whether what
the benchmark promises holds; and a line in BENCHMARKS.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys

import codecs_side_by_side
import groups
import idle
import needs
import norms
import overhead
import placement
import replay
import scrape
import sim
import step
import tables
import takeover
import wire
from cluster import ROOT, Failed

BENCHMARKS = {"wire": wire, "step": step, "sim": sim, "idle": idle,
              "codecs": codecs_side_by_side, "replay": replay, "overhead": overhead,
              "norms": norms, "scrape": scrape, "takeover": takeover, "placement": placement, "groups": groups, "tables": tables}


def pin(count):
    """To the first `count` cores that this process may use; what it starts inherits that."""
    allowed = sorted(os.sched_getaffinity(0))
    if not 1 <= count <= len(allowed):
        raise Failed(f"--cores: expected 1 to {len(allowed)}, got {count}")
    os.sched_setaffinity(0, allowed[:count])


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--cores", type=int, help="pin everything to so many cores")
    common.add_argument("--programs", default=ROOT / "build/release/bin", type=pathlib.Path,
                        help="folder of the programs (default %(default)s)")
    common.add_argument("--json", type=pathlib.Path, help="also write the table to this file")
    common.add_argument("--slack", type=float, default=1.0,
                        help="limits of times are so many times as wide, for a machine that does other work meanwhile")
    names = parser.add_subparsers(dest="name", required=True)
    for name, module in BENCHMARKS.items():
        module.add_arguments(names.add_parser(name, help=module.__doc__, parents=[common],
                                              description=module.__doc__))
    return parser.parse_args()


def measure(arguments):
    benchmark = BENCHMARKS[arguments.name]
    benchmark.check_needs(arguments)
    table, good = benchmark.table_of(arguments), None
    try:
        good = benchmark.measure(arguments, table)
    finally:
        table.finish(arguments.json, complete=good is not None)
    if not good:
        print(f"{arguments.name}: outside of what it promises", file=sys.stderr)
    return 0 if good else 1


def main():
    arguments = parse()
    if getattr(BENCHMARKS[arguments.name], "NEEDS_ROOT", True):
        needs.root_or_skip()
    # A signal ends the `with` blocks, and with them the cluster.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if arguments.cores:
            pin(arguments.cores)
        return measure(arguments)
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"{arguments.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
