#!/usr/bin/env python3
"""Runs the GPU tests of a bundle (tests/gpu.sh) on all GPUs of this machine, several at the same time.

usage: gpu_run.py BUNDLE [--gpus N] [--minutes 10] [--only NAME...] [--out FOLDER]

A job has one, two or four GPUs and sees no others (CUDA_VISIBLE_DEVICES). Up to three jobs share a GPU, because most
wait for processes to start, or for the CPU; those that fill a GPU's memory have it alone. Every program of gpu_tests.txt is
run on one GPU; groups and collectives also on two and on four, where the machine has them. What needs more GPUs than there
are is named as not run. Prints a table with seconds; a test that fails, or that the minutes do not allow, gives exit code 1.
"""
import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

TRAINING = "tests/multiprocess/training"
OPS_TEST = "tests/unit/python/ops_test.py"
# Programs whose tests depend on how many GPUs they see.
GROUPS, COLLECTIVES = "group_gpu_test", "nccl_collective_gpu_test"
# Runs of real daemons: script and case.
RUNS = {1: ["slices_test.py losses", "overlap_test.py losses", "replicas_test.py parity"],
        2: ["group_test.py parity", "composition_test.py parity", "composition_test.py compressed"]}
# Tests of collectives spend most of their time in starting processes and NCCL, those of groups
# in one thread on the CPU.
SHARDS = 4
SHARES = 3  # jobs on a GPU at the same time
ALONE = ("memory_gpu_test", "large_stage_gpu_test")
# Tests of the arithmetic of a pass, for which it is all the same how sums travel.
OF_ANY_LINKS = "*LargeOnGpus*:ComposedOnGpus*:*EveryGradient*"
LONG_FIRST = ("memory_gpu_test", "stage_graphs_gpu_test", "step_loop_gpu_test", "slices_test.py losses")


@dataclasses.dataclass
class Job:
    name: str
    gpus: int
    command: list
    environment: dict = dataclasses.field(default_factory=dict)
    shards: int = 1  # processes that share the job's tests, and its GPUs
    shares: int = 1  # of SHARES, on each of its GPUs
    seconds: float = 0
    result: str = "not run: the time was over"
    tests: str = ""

    def title(self):
        return f"{self.name} on {self.gpus} GPU{'s' * (self.gpus > 1)}"


def jobs_of(bundle, python, count):
    """Every job that this many GPUs allow, and the names of those that they do not."""
    programs = (bundle / "gpu_tests.txt").read_text().split()
    missing = {GROUPS, COLLECTIVES} - set(programs)
    if missing:
        sys.exit(f"gpu_run.py: expected {', '.join(missing)} in {bundle}/gpu_tests.txt")
    jobs = [Job(program, 1, [bundle / "bin" / program], shares=SHARES if program in ALONE else 1)
            for program in programs if program != GROUPS]
    jobs.append(Job(OPS_TEST, 1, [python, "-B", bundle / OPS_TEST, bundle / "bin/longhaul-codec"],
                    {"LONGHAUL_TORCH_OPS": str(bundle / "lib/liblonghaul_torch_ops.so"), "LD_LIBRARY_PATH": None}))
    for gpus in (2, 4):
        jobs.append(Job(GROUPS, gpus, [bundle / "bin" / GROUPS], shards=SHARDS))
        # Smaller groups have had their turn.
        sizes = "*_2" if gpus == 2 else "*_3:*_4"
        jobs.append(Job(COLLECTIVES, gpus, [bundle / "bin" / COLLECTIVES, f"--gtest_filter={sizes}"], shards=SHARDS))
    # As on machines whose GPUs have no direct links.
    jobs.append(Job(f"{GROUPS} without direct links", 2, [bundle / "bin" / GROUPS, f"--gtest_filter=-{OF_ANY_LINKS}"],
                    {"NCCL_P2P_DISABLE": "1"}, shards=SHARDS))
    for gpus, runs in RUNS.items():
        for run in runs:
            script, case = run.split()
            jobs.append(Job(run, gpus, [python, "-B", bundle / TRAINING / script, bundle / "bin", case],
                            {"LONGHAUL_TEST_GPUS": str(gpus)}))
    # Jobs with most GPUs come first, so that the others fill what is left.
    jobs.sort(key=lambda job: (-job.gpus, job.name not in LONG_FIRST))
    return [job for job in jobs if job.gpus <= count], [job.title() for job in jobs if job.gpus > count]


class Machine:
    """GPUs of which jobs take shares and give them back."""

    def __init__(self, visible, deadline, logs):
        self.free, self.deadline, self.logs = {gpu: SHARES for gpu in visible}, deadline, logs
        self.changed = threading.Condition()

    def run(self, jobs):
        waiting, threads = list(jobs), []
        with self.changed:
            while waiting and time.monotonic() < self.deadline:
                job, gpus = next(((job, gpus) for job in waiting if (gpus := self.place_of(job))), (None, None))
                if job is None:
                    self.changed.wait(timeout=1)
                    continue
                waiting.remove(job)
                for gpu in gpus:
                    self.free[gpu] -= job.shares
                threads.append(threading.Thread(target=self.carry_out, args=(job, gpus)))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def place_of(self, job):
        """The GPUs with most room, in their order; None if they are too few."""
        room = sorted((gpu for gpu in self.free if self.free[gpu] >= job.shares), key=lambda gpu: -self.free[gpu])
        return [gpu for gpu in self.free if gpu in room[:job.gpus]] if len(room) >= job.gpus else None

    def carry_out(self, job, gpus):
        began = time.monotonic()
        try:
            self.start_and_wait(job, gpus)
        except OSError as error:
            job.result = f"FAILED: {error}"
        job.seconds = time.monotonic() - began
        print(f"{job.seconds:7.1f} s  {job.title()}: {job.result}", flush=True)
        with self.changed:
            for gpu in gpus:
                self.free[gpu] += job.shares
            self.changed.notify()

    def start_and_wait(self, job, gpus):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpus), "LONGHAUL_REQUIRE_GPU": "1",
                       **job.environment}
        children = []
        for shard in range(job.shards):
            own = {key: value for key, value in environment.items() if value is not None}
            if job.shards > 1:
                own |= {"GTEST_TOTAL_SHARDS": str(job.shards), "GTEST_SHARD_INDEX": str(shard)}
            log = self.logs / f"{re.sub(r'[^a-z0-9]+', '_', job.title().lower())}_{shard}.log"
            with open(log, "wb") as out:
                children.append((log, subprocess.Popen([str(word) for word in job.command], stdout=out,
                                                       stderr=subprocess.STDOUT, env=own, start_new_session=True)))
        ended = []
        for log, child in children:
            try:
                ended.append((log, child.wait(max(1, self.deadline - time.monotonic()))))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
                ended.append((log, "killed: the time was over"))
        said = [log.read_text(errors="replace") for log, _ in ended]
        job.tests = counted("\n".join(said))
        bad = [(log, code) for log, code in ended if code != 0]
        job.result = f"FAILED: {', '.join(str(code) for _, code in bad)}" if bad else "passed"
        for log, _ in bad:
            print(f"--- the end of {log}\n{log.read_text(errors='replace')[-3000:]}", flush=True)


def counted(said):
    """What GoogleTest counted, over all shards."""
    def total(pattern):
        return sum(map(int, re.findall(pattern, said)))
    passed, skipped, failed = (total(rf"\[  {word}  \] (\d+) test") for word in ("PASSED", "SKIPPED", "FAILED"))
    if passed + skipped + failed == 0:
        return ""
    return f"{passed} tests" + f", {skipped} skipped" * (skipped > 0) + f", {failed} failed" * (failed > 0)


def visible_gpus(python, most):
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = int(subprocess.run([python, "-c", "import torch; print(torch.cuda.device_count())"], check=True,
                               capture_output=True, text=True).stdout)
    if count == 0:
        sys.exit("gpu_run.py: expected a GPU, PyTorch sees none; look at nvidia-smi")
    return (listed.split(",") if listed else [str(gpu) for gpu in range(count)])[:min(count, most)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("--gpus", type=int, default=1 << 10, help="at most so many of those there are")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="programs or scripts; default all")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the table and the logs of what failed")
    arguments = parser.parse_args()
    began = time.monotonic()
    logs = arguments.bundle / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    gpus = visible_gpus(sys.executable, arguments.gpus)
    jobs, too_large = jobs_of(arguments.bundle, sys.executable, len(gpus))
    if arguments.only:
        jobs = [job for job in jobs if any(name in job.name for name in arguments.only)]
        if not jobs:
            parser.error(f"--only: nothing is called {' or '.join(arguments.only)}")
    Machine(gpus, began + 60 * arguments.minutes, logs).run(jobs)
    failed = [job for job in jobs if job.result != "passed"]
    lines = [f"{job.seconds:7.1f} s  {job.title():55} {job.result:10} {job.tests}" for job in
             sorted(jobs, key=lambda job: -job.seconds)]
    lines += [f"      -    {name:55} not run: there are {len(gpus)}" for name in too_large]
    lines.append(f"{len(jobs) - len(failed)} passed, {len(failed)} failed on {len(gpus)} GPU{'s' * (len(gpus) > 1)} in "
                 f"{time.monotonic() - began:.0f} s" + f": {', '.join(job.title() for job in failed)}" * bool(failed))
    print("\n" + "\n".join(lines), flush=True)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "gpu_run.txt").write_text("\n".join(lines) + "\n")
        with open(arguments.out / "failed.log", "w", encoding="utf-8") as out:
            for job in failed:
                for log in sorted(logs.glob(f"{re.sub(r'[^a-z0-9]+', '_', job.title().lower())}_*.log")):
                    out.write(f"=== {log.name}\n{log.read_text(errors='replace')[-200_000:]}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
