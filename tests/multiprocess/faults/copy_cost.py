"""What copies cost while nothing fails: step times with `recovery.every` and without, in one cluster.

usage: copy_cost.py BIN_DIR [--steps 40] [--every auto] [--spares 1] [--rate 10mbit] [--run FILE]

The runs follow each other. Prints the mean and median step of each, the means' ratio, how often
copies were to be made, and each transfer as its worker tells of it. Needs root: workers are in
network namespaces.
"""
import argparse
import os
import pathlib
import re
import statistics
import sys
import tempfile

from namespace_cluster import namespace_cluster
from training_test import text_for_training
from requirements import without_root



def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", default="auto")
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--rate", default="10mbit")
    parser.add_argument("--run", type=pathlib.Path, help="a run file of four stages")
    options = parser.parse_args()
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        edit = (lambda _: options.run.read_text()) if options.run else None
        means = {}
        with namespace_cluster(options.programs, folder, workers=4 + options.spares,
                               rate=options.rate) as cluster:
            for name, every in (("without", "0"), ("with", options.every)):
                run = cluster.submit(name, "--set", f"name={name}", "--set", "data.text=[text.txt]",
                                     "--set", f"train.steps={options.steps}",
                                     "--set", "checkpoint.every=0",
                                     "--set", f"recovery.every={every}",
                                     "--set", f"recovery.spares={options.spares}", edit=edit)
                status = cluster.wait_for_end(run, deadline_s=60 * options.steps)
                if status["state"] != "done":
                    raise AssertionError(f"{status['state']}: {status['reason']}")
                seconds = [row["seconds"] for row in cluster.steps(run)[3:]]
                means[name] = statistics.mean(seconds)
                for line in cluster.cli("logs", run).stdout.splitlines():
                    if " of the checkpoint of step " in line and " went to " in line:
                        print("  " + line, flush=True)
                said = re.search(r"is copied to another worker (.*)",
                                 status["plan"].get("explanation", ""))
                copied = status.get("copied_step", 0)
                print(f"{name} copies: a step takes {means[name]:.3f} s on average, median "
                      f"{statistics.median(seconds):.3f} s"
                      + (f"; {said.group(1)} The newest set held twice is of step {copied}."
                         if said else ""), flush=True)
        print(f"with copies / without: {means['with'] / means['without']:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
