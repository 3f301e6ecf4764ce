#!/usr/bin/env python3
"""The portable bundle on a machine with a GPU and nothing of ours: unpacks it, has workers on that GPU
train through shaped links, and holds the losses against those of workers on the CPU.

usage: gpu_bundle.py ARCHIVE [--device cuda:0] [--steps 20]

Needs root (network namespaces), and PyTorch 2.11 in python3 (or what the bundle's ./install fetches).
With --device cpu it tries itself where there is no GPU. Prints what it measured; exit code 1 where
something is not as it should be.
"""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

RUN = """\
name: {name}
model: {{ family: gpt, layers: 4, hidden: 256, heads: 8, context: 256 }}
data: {{ text: [text.txt] }}
validation: {{ every: 0 }}
train: {{ steps: {steps}, microbatches: 8, dtype: {dtype}, seed: 5, optimizer: {{ lr: 2e-4 }} }}
pipeline: {{ stages: 2 }}
links: {links}
"""
NONE = "{ forward: none, backward: none }"
DEFAULT = '{ forward: tah, backward: "fixed:bits=4,rounding=stochastic" }'
# Largest difference of a loss, in nats, that another order of sums makes in fp32 and in bf16.
TOLERANCE = {"fp32": 5e-3, "bf16": 5e-2}


class Bundle:
    def __init__(self, archive, folder):
        began = time.monotonic()
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
        self.root = next(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
        self.folder = pathlib.Path(folder)
        print(f"unpacked in {time.monotonic() - began:.1f} s", flush=True)

    def call(self, program, *arguments, timeout=300):
        done = subprocess.run([self.root / "bin" / program, *arguments], capture_output=True,
                              text=True, timeout=timeout, cwd=self.folder, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{program} {arguments}: {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    @contextlib.contextmanager
    def cluster(self, device):
        name = device.replace(":", "")
        began = time.monotonic()
        self.call("longhaul", "cluster", "up", "--name", name, "--workers", "2", "--rate", "1gbit",
                  "--device", device)
        print(f"two workers on {device} connected in {time.monotonic() - began:.1f} s", flush=True)
        try:
            state = json.loads(self.call("longhaul", "cluster", "status", "--name", name, "--json"))
            yield Cluster(self, ["--coordinator", state["coordinator"]["address"], "--token-file",
                                 state["token_file"]])
        finally:
            self.call("longhaul", "cluster", "down", "--name", name)


class Cluster:
    def __init__(self, bundle, where):
        self.bundle, self.where = bundle, where

    def cli(self, *arguments):
        return self.bundle.call("longhaul", *arguments, *self.where)

    def train(self, name, steps, dtype, links):
        path = self.bundle.folder / f"{name}.yaml"
        path.write_text(RUN.format(name=name, steps=steps, dtype=dtype, links=links))
        run = self.cli("submit", str(path)).split()[0]
        self.cli("watch", run)
        status = json.loads(self.cli("status", run, "--json"))
        if status["state"] != "done":
            raise AssertionError(f"{name}: {status['state']}: {status['reason']}")
        rows = [json.loads(line) for line in self.cli("steps", run, "--json").splitlines()]
        seconds = sorted(row["seconds"] for row in rows)
        print(f"{name}: loss {rows[0]['loss']:.3f} to {rows[-1]['loss']:.3f}, "
              f"{seconds[len(seconds) // 2] * 1e3:.0f} ms a step", flush=True)
        return [row["loss"] for row in rows]


def text_for_training(folder):
    """Text of this machine's Python library, which every machine has."""
    source = pathlib.Path(json.__file__).parent.parent
    text = "".join(path.read_text(errors="ignore") for path in sorted(source.glob("*.py"))[:30])
    (pathlib.Path(folder) / "text.txt").write_text(text[:500_000])


def compare(what, some, others, tolerance):
    differences = [abs(a - b) for a, b in zip(some, others, strict=True)]
    if not all(difference <= tolerance for difference in differences):  # NaN is not
        raise AssertionError(f"{what}: losses differ by {differences}, expected {tolerance} at most")
    print(f"{what}: losses differ by {max(differences):.2g} at most", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = Bundle(pathlib.Path(arguments.archive).resolve(), folder)
        text_for_training(folder)
        if arguments.device != "cpu":
            print(bundle.call("longhaul-codec", "bench", "--device", arguments.device, "--codec",
                              "tah", "--dtype", "bf16", "--elements", "65536000", "--channels",
                              "1600", "--samples", "40"), flush=True)
        losses = {}
        for device in ["cpu", arguments.device]:
            with bundle.cluster(device) as cluster:
                for worker in json.loads(cluster.cli("workers", "--json"))["workers"]:
                    print(f"{worker['name']}: {worker['devices']}", flush=True)
                for dtype in TOLERANCE:
                    losses[device, dtype] = cluster.train(
                        f"{device.replace(':', '')}-{dtype}", arguments.steps, dtype, NONE)
                tah = cluster.train(f"{device.replace(':', '')}-tah", arguments.steps, "bf16",
                                    DEFAULT)
                if not tah[-1] < tah[0] - 0.5:
                    raise AssertionError(f"nothing was learnt through tah: {tah}")
        for dtype, tolerance in TOLERANCE.items():
            compare(f"{arguments.device} and cpu, {dtype}", losses[arguments.device, dtype],
                    losses["cpu", dtype], tolerance)
    print("ok: the bundle trains here", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
