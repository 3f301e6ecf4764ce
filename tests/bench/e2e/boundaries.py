#!/usr/bin/env python3
"""What the codecs lose of a trained model's boundary tensors: trains a run file's model on workers
of this machine, which dump their boundary tensors, and prints longhaul-codec's tables of them. Needs
no rights: the workers talk over the loopback interface.

  tests/bench/e2e/boundaries.py                      the quickstart's model, 400 steps
  tests/bench/e2e/boundaries.py --keep FOLDER        leaves the tensors there, as .npy files
"""
import argparse
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

import needs
from cluster import ROOT, Failed
from loopback import Daemons


def train(arguments, folder, dump):
    """Loss before and after."""
    every = max(1, arguments.steps // arguments.dumps)
    with Daemons(arguments.programs, folder, arguments.workers,
                 ["--dump-boundaries", dump, "--dump-every", str(every)]) as daemons:
        settings = [f"train.steps={arguments.steps}", f"pipeline.stages={arguments.workers}",
                    "links.forward=none", "links.backward=none", "validation.every=0",
                    *arguments.set]
        steps = daemons.train(arguments.run, settings)
    return steps[0]["loss"], steps[-1]["loss"]


def show(arguments, direction, files):
    """Tables of one direction's tensors."""
    if not files:
        raise Failed(f"no {direction} tensor was dumped")
    for command in ("errors", "ablate"):
        if not arguments.json:
            print(f"== {command}, {direction} ==", flush=True)
        flags = ["--json"] if arguments.json else ["--summary"]
        subprocess.run([arguments.programs / "longhaul-codec", command, *flags, *files], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=ROOT / "build/release/bin", type=pathlib.Path)
    parser.add_argument("--run", default=ROOT / "deploy/runs/quickstart.yaml", type=pathlib.Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="changes a key of the run file")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--dumps", type=int, default=4, help="steps that are dumped")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the tensors")
    parser.add_argument("--json", action="store_true", help="print JSON documents")
    arguments = parser.parse_args()
    arguments.programs = arguments.programs.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="longhaul-boundaries-")))
        dump = arguments.keep.resolve() if arguments.keep else folder / "dump"
        try:
            needs.check_programs(arguments.programs, (*needs.CLUSTER, "longhaul-codec"))
            needs.check_files(arguments.run)
            first, last = train(arguments, folder, dump)
            files = sorted(dump.rglob("*.npy"))
            print(f"{arguments.run.name}: {arguments.steps} steps, loss {first:.3f} to {last:.3f}; "
                  f"{len(files)} tensors", file=sys.stderr)
            for direction in ("forward", "backward"):
                show(arguments, direction, [file for file in files if file.stem.endswith(direction)])
        except (Failed, OSError, subprocess.SubprocessError) as error:
            print(f"boundaries: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
