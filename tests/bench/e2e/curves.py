#!/usr/bin/env python3
"""Loss curves of one model, trained from scratch once for each pair of codecs, against steps and against
the hours that these steps take on slow links. Needs root, for network namespaces.

  tests/bench/e2e/curves.py build/release/bin --out curves --device cuda:0-3 --text 'corpus/*.txt' \\
      --rate 100mbit --minutes 55

Each pair has a local cluster of its own, whose links are not shaped; on GPUs all of its workers share one,
and --pairs-per-device train at a time. Losses do not depend on links, so a step's seconds are those of a
few steps on links of --rate, trained afterwards, one pair at a time on a device: hours are steps times
their median. (aqsgd's are those of a first pass over the samples, which sends them whole.)

Stopped by --minutes, a signal or a crash, the same command goes on with what is in --out, also on
another machine to which that folder was copied: it has the text, and of each unfinished pair
the cluster's state with its checkpoints. Of a finished pair it has the losses alone. Every call writes
curves.json and curves.html of what there is.

Exit codes: 0; 1 where a pair failed; 75 where pairs are unfinished: call again; 77 (skipped) without root.
"""
import argparse
import contextlib
import fcntl
import glob
import hashlib
import json
import math
import os
import pathlib
import queue
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import needs
from cluster import CODEC_PAIRS, Cluster, Failed, call
from longhaul_sweep.report import losses_page
from longhaul_sweep.machine import this_machine
from report import Table, machine, write

UNFINISHED = 75
ENDED = ("done", "failed", "stopped")
LOOK_EVERY_S = 0.5
RATE_WARM_UP = 1  # steps on shaped links that do not count: links open


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR",
                        help="folder of longhaul's programs")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR",
                        help="keeps everything; made where it is not there")
    parser.add_argument("--codecs", nargs="+", choices=CODEC_PAIRS, default=list(CODEC_PAIRS),
                        help="which pairs (default: all)")
    parser.add_argument("--device", default="cpu",
                        help="cpu, cuda:N or cuda:A-B: pairs on each GPU (default %(default)s)")
    for flag, default, what in (
            ("--stages", 2, "workers of a cluster"), ("--layers", 12, ""), ("--hidden", 768, "channels"),
            ("--heads", 12, ""), ("--context", 1024, "tokens of a sequence"),
            ("--microbatches", 32, "a step"), ("--microbatch-size", 1, "sequences"),
            ("--steps", 2000, ""), ("--warm-up", 100, "steps until the learning rate is whole"),
            ("--validate-every", 50, "steps"), ("--validation-samples", 64, "sequences"),
            ("--checkpoint-every", 100, "steps, the most that a crash costs"), ("--seed", 1, ""),
            ("--threads", 1, "of a stage, on the CPU"),
            ("--pairs-per-device", 1, "that train at a time"),
            ("--rate-steps", 3, "that count, at --rate")):
        parser.add_argument(flag, type=int, default=default,
                            help=f"{what} (default %(default)s)".strip())
    parser.add_argument("--lr", type=float, default=6e-4, help="(default %(default)s)")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16",
                        help="of compute (default %(default)s)")
    parser.add_argument("--text", default="/usr/share/common-licenses/*-[0-9]*", metavar="GLOB",
                        help="copied into --out (default %(default)s)")
    parser.add_argument("--tokenizer", default="bytes", help="(default %(default)s)")
    parser.add_argument("--cache-limit", default="64GiB",
                        help="disk of a worker that aqsgd may take (default %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="changes another key of the run file; repeatable")
    parser.add_argument("--rate", help="of every link, each way, for the hours (100mbit); default: none")
    parser.add_argument("--step-seconds", action="append", default=[], metavar="PAIR=SECONDS",
                        help="of a pair's step at that rate, instead of measuring it; repeatable")
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="until what trains is stopped, with a checkpoint")
    arguments = parser.parse_args()
    try:
        arguments.devices = devices_of(arguments.device)
        arguments.step_seconds = dict(seconds_of(text) for text in arguments.step_seconds)
    except ValueError as error:
        parser.error(str(error))
    return arguments


def devices_of(text):
    """One for each pair that trains at a time, as `cluster up --device` takes it."""
    if text == "cpu":
        return ["cpu"]
    match = re.fullmatch(r"cuda:(\d+)(?:-(\d+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise ValueError(f"--device: expected cpu, cuda:N or cuda:A-B, got '{text}'")
    return [f"cuda:{index}" for index in range(first, last + 1)]


def seconds_of(text):
    pair, _, seconds = text.partition("=")
    if pair not in CODEC_PAIRS or not re.fullmatch(r"\d+(\.\d+)?", seconds):
        raise ValueError(f"--step-seconds: expected one of {', '.join(CODEC_PAIRS)}, =, and seconds, "
                         f"got '{text}'")
    return pair, float(seconds)


def settings_of(arguments):
    """What decides the losses, and must not change between calls. `run`: what a run file says."""
    return {
        "run": {
            "name": "curves",
            "model": {"family": "gpt", "layers": arguments.layers, "hidden": arguments.hidden,
                      "heads": arguments.heads, "context": arguments.context},
            "data": {"text": ["text/*"], "tokenizer": arguments.tokenizer, "seed": arguments.seed},
            "validation": {"share": 0.05, "every": arguments.validate_every,
                           "samples": arguments.validation_samples},
            "train": {
                "steps": arguments.steps, "microbatches": arguments.microbatches,
                "microbatch_size": arguments.microbatch_size, "dtype": arguments.dtype,
                "seed": arguments.seed,
                "optimizer": {"kind": "adamw", "lr": arguments.lr, "betas": [0.9, 0.95],
                              "weight_decay": 0.1, "clip_norm": 1.0},
                "schedule": {"kind": "cosine", "warmup": arguments.warm_up}},
            "pipeline": {"stages": arguments.stages, "threads_per_stage": arguments.threads},
            "checkpoint": {"every": arguments.checkpoint_every, "keep": 1, "at_end": False},
            "recovery": {"attempts": 0}},  # this program resumes
        "set": dict(setting.partition("=")[::2] for setting in arguments.set),
        "text": arguments.text}


class Folder:
    """What outlives a call: settings.json, run.yaml, text/, PAIR.json, PAIR.cluster/."""

    def __init__(self, arguments):
        self.path = arguments.out.resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        # pylint: disable-next=consider-using-with  # Held until the program ends.
        self.lock = open(self.path / "lock", "w", encoding="utf-8")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed(f"{self.path} is in use by another call") from None
        self.run_file, self.settings = self.path / "run.yaml", settings_of(arguments)
        known = self.path / "settings.json"
        if not known.exists():
            self._copy_text(arguments.text)
            self.run_file.write_text(json.dumps(self.settings["run"], indent=1))  # JSON is YAML
            write(known, json.dumps(self.settings, indent=1))
        elif json.loads(known.read_text()) != self.settings:
            raise Failed(f"{known} has other settings than the command line; repeat those, or take "
                         "another --out")

    def _copy_text(self, pattern):
        paths = sorted(path for path in glob.glob(pattern) if os.path.isfile(path))
        if not paths:
            raise Failed(f"--text {pattern}: expected files, found none")
        (self.path / "text").mkdir(exist_ok=True)
        for number, path in enumerate(paths):
            shutil.copyfile(path, self.path / "text" / f"{number:05}")

    def state(self, pair):
        return self.path / f"{pair}.cluster"

    def result(self, pair):
        """{"state", "steps", ...}; None where there is none."""
        path = self.path / f"{pair}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def keep(self, pair, result):
        write(self.path / f"{pair}.json", json.dumps(result, indent=1) + "\n")

    def cluster_name(self, number):
        """The same in each call, so that it finds what a killed one left."""
        return f"c{hashlib.sha256(str(self.path).encode()).hexdigest()[:7]}_{number}"


class Trainer:
    """Trains pairs until `stop` is set."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.stop, self.starting = threading.Event(), threading.Lock()
        # Where a pair may train, and where one may measure with the device to itself.
        self.devices, self.measuring = queue.SimpleQueue(), queue.SimpleQueue()
        for device in arguments.devices:
            self.measuring.put(device)
        for device in arguments.devices * arguments.pairs_per_device:
            self.devices.put(device)

    def _cluster(self, stack, pair, device, **options):
        # One after the other: each takes addresses that no other has.
        with self.starting:
            name = self.folder.cluster_name(list(CODEC_PAIRS).index(pair))
            return stack.enter_context(Cluster(
                self.arguments.programs, workers=self.arguments.stages, device=device, name=name,
                **options))

    def _changes(self, pair, **more):
        changes = {"train.schedule.warmup": self.arguments.warm_up, **CODEC_PAIRS[pair],
                   **self.folder.settings["set"], **more}
        if pair == "aqsgd":
            changes["links.cache_limit"] = self.arguments.cache_limit
        return changes

    @contextlib.contextmanager
    def _one_of(self, devices):
        """A device for the length of a `with` block; None where it is to stop."""
        device = devices.get()
        try:
            yield None if self.stop.is_set() else device
        finally:
            devices.put(device)

    def train(self, pair):
        """Until the pair is done; gives the state it is in."""
        known = self.folder.result(pair)
        if known and known["state"] == "done":
            return "done"
        with self._one_of(self.devices) as device:
            if device is None:
                return "waiting"
            print(f"{pair}: begins on {device}", file=sys.stderr, flush=True)
            with contextlib.ExitStack() as stack:
                cluster = self._cluster(stack, pair, device, folder=self.folder.state(pair))
                result = self._train(cluster, pair)
            self.folder.keep(pair, result)
            if result["state"] == "done":
                shutil.rmtree(self.folder.state(pair))
            print(f"{pair}: {result['state']} after step {len(result['steps'])}", file=sys.stderr,
                  flush=True)
            return result["state"]

    def _train(self, cluster, pair):
        runs = json.loads(cluster.cli("ps", "--json"))["runs"]
        if runs:
            run = runs[0]["run_id"]
            # The coordinator finds out first that its workers are not those that it knew.
            status = cluster.wait_for(run, "the end of its last epoch",
                                      lambda status: status["state"] in ENDED)
            if status["state"] != "done":
                cluster.submit(self.folder.run_file, self._changes(pair), resume=True)
        else:
            run = cluster.submit(self.folder.run_file, self._changes(pair))
        status = cluster.wait_for(run, "its end",
                                  lambda status: status["state"] == "done" or self.stop.is_set(),
                                  longest_s=math.inf, pause_s=LOOK_EVERY_S, wake=self.stop)
        if status["state"] != "done":
            cluster.cli("stop", run)
            status = cluster.wait_for(run, "its stop", lambda status: status["state"] in ENDED)
        edges = status["plan"]["assignment"]["edges"] if status.get("plan") else []
        forward, backward = (edges[0][way]["codec"] if edges else None
                             for way in ("forward", "backward"))
        return {"pair": pair, "state": status["state"], "run": run, "codecs": CODEC_PAIRS[pair],
                "forward": forward, "backward": backward,
                "steps": cluster.lines("steps", run)}

    def measure(self, pair, rate):
        """Seconds of the pair's steps on links of `rate`, kept beside its losses; "done", or "waiting"
        where it is to stop."""
        result = self.folder.result(pair)
        if rate in result.get("at_rate", {}):
            return "done"
        with self._one_of(self.measuring) as device:
            if device is None:
                return "waiting"
            print(f"{pair}: measures steps at {rate} on {device}", file=sys.stderr, flush=True)
            with contextlib.ExitStack() as stack:
                cluster = self._cluster(stack, pair, device, rate=rate)
                steps = RATE_WARM_UP + self.arguments.rate_steps
                done = cluster.train(self.folder.run_file, self._changes(
                    pair, **{"train.steps": steps, "train.schedule.warmup": 0,
                             "validation.every": 0, "checkpoint.every": 0}))
        seconds = done.step_seconds(RATE_WARM_UP)
        self.folder.keep(pair, {**result, "at_rate": {**result.get("at_rate", {}), rate: seconds}})
        return "done"


def step_seconds(arguments, pair, result):
    """Median at --rate, or what was given; None where it is not known."""
    measured = result.get("at_rate", {}).get(arguments.rate)
    return arguments.step_seconds.get(pair) or (statistics.median(measured) if measured else None)


def curve_of(result, seconds):
    """One row for each validation: step, hours if known, loss."""
    return [{"step": step["step"], "hours": seconds and step["step"] * seconds / 3600,
             "validation_loss": step["validation_loss"]}
            for step in result["steps"] if step["has_validation"]]


def point_of(result, seconds):
    """The pair as a point of a sweep, whose steps take `seconds` each, if known."""
    curve = [{"step": step["step"], "seconds": seconds or step["seconds"], "loss": step["loss"],
              "validation_loss": step["validation_loss"] if step["has_validation"] else None,
              "clean_validation_loss": step["clean_validation_loss"]} for step in result["steps"]]
    return {"links": f"{result['pair']} ({result['forward']} / {result['backward']})", "schedule": "", "variant": "", "repeat": 1,
            "rate_bits_per_second": 0, "delay_seconds": 0, "state": "done", "replayed": False, "steps": len(curve), "curve": curve,
            "tokens_per_second": 0, "step_seconds": 0, "simulated_seconds": 0, "stages": [],
            "ended_unix_ms": 1000 * int(time.time())}


def report(arguments, folder):
    """Prints the table; writes curves.json and curves.html."""
    run = folder.settings["run"]
    model, train = run["model"], run["train"]
    heading = (f"{model['layers']} layers of {model['hidden']} channels, {run['data']['tokenizer']}, "
               f"{train['microbatches']} x {train['microbatch_size']} x {model['context']} tokens a "
               f"step, {train['dtype']} on {arguments.device}, lr {train['optimizer']['lr']:g}"
               + "".join(f", {key}={value}" for key, value in folder.settings["set"].items()))
    hours = f"hours = steps x median seconds of a step at {arguments.rate or 'the given links'}"
    table = Table(f"{heading}; {hours}; losses in nats a token, training: mean of the last 20 steps",
                  ["pair", "forward", "backward", "steps", "training", "validation", "least", "step s",
                   "hours"])
    pairs = []
    for pair in arguments.codecs:
        result = folder.result(pair)
        if result is None or not result["steps"]:
            continue
        seconds = step_seconds(arguments, pair, result)
        curve = curve_of(result, seconds)
        losses, last = [point["validation_loss"] for point in curve], result["steps"][-1]["step"]
        table.add(pair, result["forward"], result["backward"], last,
                  f"{statistics.mean(step['loss'] for step in result['steps'][-20:]):.4f}",
                  f"{losses[-1]:.4f}" if losses else None, f"{min(losses):.4f}" if losses else None,
                  f"{seconds:.3f}" if seconds else None,
                  f"{last * seconds / 3600:.3f}" if seconds else None)
        pairs.append({**result, "step_seconds": seconds, "curve": curve})
    table.print()
    write(folder.path / "curves.json", json.dumps({
        "command": shlex.join(sys.argv), "machine": machine(), "settings": folder.settings,
        "version": call([arguments.programs / "longhaul", "--version"]).strip(), "hours": hours,
        "rate": arguments.rate, "pairs": pairs}, indent=1) + "\n")
    version = call([arguments.programs / "longhaul", "--version"]).split()[-1]
    write(folder.path / "curves.html", losses_page(
        {"title": heading, "version": version, "machine": this_machine(),
         "points": [point_of(pair, pair["step_seconds"]) for pair in pairs]}, hours))
    print(f"{folder.path}/curves.json, {folder.path}/curves.html")


def attempt(what, pair, *more):
    """Returns what `what` returns. Where that fails: prints the reason and returns None."""
    try:
        return what(pair, *more)
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"curves: {pair}: {error}", file=sys.stderr, flush=True)
        return None


def train_all(arguments, folder):
    """The exit code."""
    trainer = Trainer(arguments, folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: trainer.stop.set())
    if arguments.minutes < math.inf:
        timer = threading.Timer(60 * arguments.minutes, trainer.stop.set)
        timer.daemon = True
        timer.start()
    with ThreadPoolExecutor(len(arguments.devices) * arguments.pairs_per_device) as pool:
        states = list(pool.map(lambda pair: attempt(trainer.train, pair), arguments.codecs))
        done = [pair for pair, state in zip(arguments.codecs, states) if state == "done"]
        if arguments.rate:
            unknown = [pair for pair in done if pair not in arguments.step_seconds]
            states += pool.map(lambda pair: attempt(trainer.measure, pair, arguments.rate), unknown)
    report(arguments, folder)
    if None in states or "failed" in states:
        return 1
    return 0 if set(states) == {"done"} else UNFINISHED


def main():
    arguments = parse()
    needs.root_or_skip()
    try:
        needs.check_programs(arguments.programs, needs.CLUSTER)
        return train_all(arguments, Folder(arguments))
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"curves: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
