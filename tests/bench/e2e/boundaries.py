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
import time

import needs
from cluster import ROOT, Failed

START_S, TRAIN_S = 60, 3600


class Daemons:
    """A coordinator and workers over 127.0.0.1 for the length of a `with` block."""

    def __init__(self, programs, folder, workers, dump, every):
        self.programs, self.folder, self.processes = programs, folder, []
        self.count, self.dump, self.every = workers, dump, every

    def __enter__(self):
        self.token = self.folder / "token"
        self.token.write_text(f"{self.folder.name}-only-for-this-run\n")
        self.token.chmod(0o600)
        try:
            self._start("coordinator", "longhaul-coordinator", "--listen", "127.0.0.1:0")
            address = self.folder / "coordinator/address"
            self._wait("the coordinator", address.exists)
            self.address = address.read_text().strip()
            for number in range(1, self.count + 1):
                self._start(f"worker{number}", "longhaul-worker", "--coordinator", self.address,
                            "--name", f"worker{number}", "--dump-boundaries", self.dump,
                            "--dump-every", str(self.every))
            self._wait("the workers", self._all_connected)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=START_S)

    def _start(self, name, program, *arguments):
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen(
                [self.programs / program, *arguments, "--state-dir", self.folder / name,
                 "--token-file", self.token], stdout=log, stderr=log))

    def _wait(self, what, condition):
        end = time.monotonic() + START_S
        while not condition():
            if time.monotonic() > end:
                raise Failed(f"waited {START_S} s in vain for {what}")
            time.sleep(0.05)

    def _all_connected(self):
        rows = json.loads(self.cli("workers", "--json"))
        rows = rows["workers"] if isinstance(rows, dict) else rows
        return sum(bool(row.get("connected")) for row in rows) == self.count

    def cli(self, *arguments):
        done = subprocess.run([self.programs / "longhaul", *arguments, "--coordinator", self.address,
                               "--token-file", self.token], capture_output=True, text=True,
                              timeout=TRAIN_S, check=False)
        if done.returncode != 0:
            raise Failed(f"longhaul {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout


def train(arguments, folder, dump):
    """Loss before and after."""
    with Daemons(arguments.programs, folder, arguments.workers, dump,
                 max(1, arguments.steps // arguments.dumps)) as daemons:
        settings = [f"train.steps={arguments.steps}", f"pipeline.stages={arguments.workers}",
                    "links.forward=none", "links.backward=none", "validation.every=0",
                    *arguments.set]
        run = daemons.cli("submit", arguments.run, "--watch",
                          *[word for setting in settings for word in ("--set", setting)]).split()[0]
        steps = [json.loads(line) for line in daemons.cli("steps", run, "--json").splitlines()]
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
