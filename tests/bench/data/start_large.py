#!/usr/bin/env python3
"""How long a run over a large data set takes to start beside one over a small one, and what memory that takes.

Two workers and a coordinator on the loopback interface train the same model for three steps, in turn over a data set of
--small and of --large MB. The large one's shards are sparse files of zeros: nothing reads more of them than a run
needs. Prints a row a run (from `longhaul submit` to its end), the median difference, and the peak of every process's
resident memory.

usage: start_large.py BIN_DIR [--large 50000] [--small 1] [--repeats 5] [--csv FILE]
"""
import argparse
import csv
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "multiprocess/training"))
from training_test import Cluster  # noqa: E402

CHUNK = 4 << 20
SHARD_MB = 1000
RUN = """\
name: {name}
model: {{ family: gpt, layers: 2, hidden: 32, heads: 2, context: 64 }}
data: {{ sets: [{folder}], upload: false, memory: 32MiB }}
validation: {{ every: 0 }}
train: {{ steps: 3, microbatches: 4 }}
pipeline: {{ stages: 2 }}
links: {{ forward: none, backward: none, measure: false }}
checkpoint: {{ every: 0, at_end: false }}
"""


def write_set(folder, megabytes):
    """Zeros, whose chunks have one hash."""
    folder.mkdir()
    hashes = {}

    def shard(number, size):
        with open(folder / f"training-{number:05}.bin", "wb") as file:
            file.truncate(size)
        for length in {CHUNK, size % CHUNK} - {0, *hashes}:
            hashes[length] = hashlib.sha256(bytes(length)).hexdigest()
        chunks = hashes.get(CHUNK, "") * (size // CHUNK) + (hashes[size % CHUNK] if size % CHUNK else "")
        return {"file": f"training-{number:05}.bin", "offset": 0, "tokens": size // 2, "chunks": chunks}

    sizes = [min(SHARD_MB, megabytes - at) * 1_000_000 for at in range(0, megabytes, SHARD_MB)]
    (folder / "dataset.json").write_text(json.dumps({
        "format": "longhaul data set", "version": 1, "tokenizer": None, "end_token": 0, "vocabulary": 256,
        "bytes_per_token": 2, "packed": 0, "chunk_bytes": CHUNK, "documents": 1, "validation": [],
        "training": [shard(number, size) for number, size in enumerate(sizes)]}))


def peak_mib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"{process.args[0]} has no VmHWM")


def peak_mib_of_submit(cluster, run):
    process = subprocess.Popen([cluster.programs / "longhaul", "submit", run, "--watch", "--coordinator", cluster.address,
                                "--token-file", cluster.token], cwd=cluster.folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise AssertionError(f"longhaul submit {run} ended with {process.returncode}")
    return usage.ru_maxrss / 1024


def measure(programs, folder, megabytes, repeats):
    """({megabytes: seconds of each run}, {megabytes: {process: MiB}})."""
    seconds, peaks = {}, {}
    for size in megabytes:
        write_set(folder / f"set{size}", size)
        (folder / f"run{size}.yaml").write_text(RUN.format(name=f"over-{size}", folder=f"set{size}"))
    # Turns fall on both; peaks are of a whole life, so each size has processes of its own for them.
    with Cluster(programs, folder, 2) as cluster:
        for repeat in range(-1, repeats):
            for size in megabytes:
                began = time.monotonic()
                cluster.cli("submit", f"run{size}.yaml", "--watch")
                taken = time.monotonic() - began
                if repeat < 0:
                    continue  # a cold cache of files
                seconds.setdefault(size, []).append(taken)
                print(f"{size} MB: {taken:.2f} s", flush=True)
    for size in megabytes:
        home = folder / f"alone{size}"
        home.mkdir()
        for path in (f"set{size}", f"run{size}.yaml"):
            (home / path).symlink_to(folder / path)
        with Cluster(programs, home, 2) as cluster:
            submit = peak_mib_of_submit(cluster, f"run{size}.yaml")
            peaks[size] = {name: peak_mib(process) for name, process in cluster.processes.items()}
            peaks[size]["submit"] = submit
    return seconds, peaks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", metavar="BIN_DIR", type=pathlib.Path)
    parser.add_argument("--large", type=int, default=50_000, metavar="MB")
    parser.add_argument("--small", type=int, default=1, metavar="MB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv", type=pathlib.Path)
    arguments = parser.parse_args()
    sizes = (arguments.small, arguments.large)
    with tempfile.TemporaryDirectory(prefix="longhaul-bench-") as folder:
        seconds, peaks = measure(arguments.programs, pathlib.Path(folder), sizes, arguments.repeats)
    medians = {size: statistics.median(seconds[size]) for size in sizes}
    print(f"median: {medians[sizes[0]]:.2f} s over {sizes[0]} MB, {medians[sizes[1]]:.2f} s over {sizes[1]} MB: "
          f"{medians[sizes[1]] - medians[sizes[0]]:+.2f} s")
    for process in peaks[sizes[0]]:
        print(f"peak of {process}: {peaks[sizes[0]][process]:.0f} MiB over {sizes[0]} MB, "
              f"{peaks[sizes[1]][process]:.0f} MiB over {sizes[1]} MB")
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["megabytes", "what", "value"])
            for size in sizes:
                rows.writerows([size, "seconds", f"{value:.3f}"] for value in seconds[size])
                rows.writerows([size, f"peak_mib of {name}", f"{value:.1f}"] for name, value in peaks[size].items())


if __name__ == "__main__":
    main()
