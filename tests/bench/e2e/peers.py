#!/usr/bin/env python3
"""longhaul beside torch.distributed.pipelining: the same model, split, microbatches, optimizer and
links, one after the other in one run. Needs root, for network namespaces, and a Python that has torch.

  tests/bench/e2e/peers.py build/release/bin --rates 10mbit,unlimited
  tests/bench/e2e/peers.py build/release/bin --device cuda --dtype bf16 --stages 4 --layers 48 \\
      --hidden 1600 --heads 25 --context 1024 --vocabulary 50257 --microbatches 32 --lr 1e-4 \\
      --rates 100mbit,500mbit --csv rows.csv

Starts a cluster of real daemons. The peer's ranks (peer_rank.py) run in the workers' network
namespaces, rank i where longhaul has stage i and on its GPU, with the split of longhaul's plan, over Gloo
with --device cpu, with --device cuda over NCCL's sockets, no other way between them. Peers are schedules
of torch.distributed.pipelining with bf16 boundaries: gpipe, 1f1b, interleaved (1F1B with two stages a
rank) and zero-bubble (likewise); 1f1b-int8 sends codes of 8 bits and a scale a token, made by plain PyTorch
(peer_boundary.py); 1f1b-fp32 sends fp32. A rank's layers of the split are divided between its two stages.
longhaul runs with the pairs of codecs of --codecs.

Each stage needs a GPU of its own. --share-gpus lets stages have them in turn, torch's ranks and longhaul's
stages alike, and the table says how many share one: a rank of NCCL that waits runs a kernel meanwhile, with
which the ranks beside it share the GPU's time, so that says little of either.
Neither system clips gradients, and bytes are what the links' queues count. Rendezvous and control go
another way for both. Losses begin alike and fall alike but are not equal: parameters and samples are drawn
differently.

--rates, --peers and --codecs choose what runs, all of it on one cluster (--peers "" or --codecs "": none).
All of that is repeated --repeats times in turn. A row is the median of all counted steps of all repeats,
with the middle half. --json and --csv are written anew after each run, so that what a signal or a failure
cuts off keeps what was measured; --csv has each step.

Exit codes: 0; 1 where something failed or losses did not fall alike; 77 (skipped) where there is no
root or no torch.
"""
import argparse
import collections
import contextlib
import csv
import glob
import io
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import needs
from cluster import CODEC_PAIRS, LONGEST_RUN_S, Cluster, Failed, call
from report import Table, spread, write
from with_torch import SKIPPED, versions_of

RANK = pathlib.Path(__file__).resolve().parent / "peer_rank.py"
# Peer: how the table names it, its schedule and what its stages send each other.
PEERS = {"gpipe": ("GPipe, bf16", "gpipe", "bf16"), "1f1b": ("1F1B, bf16", "1f1b", "bf16"),
         "interleaved": ("interleaved 1F1B, bf16", "interleaved", "bf16"),
         "zero-bubble": ("zero bubble, bf16", "zero-bubble", "bf16"),
         "1f1b-int8": ("1F1B, int8", "1f1b", "int8"), "1f1b-fp32": ("1F1B, fp32", "1f1b", "fp32")}
DEFAULT_PEERS = ("gpipe", "1f1b", "interleaved", "zero-bubble", "1f1b-int8")
CODECS = {**CODEC_PAIRS, "bf16": {"links.forward": "bf16", "links.backward": "bf16"},
          "fast": {"links": "fast"}}
DEFAULT_CODECS = ("bf16", "default", "fast")
PORT = 29500  # of the rendezvous, in the first rank's namespace
OPTIMIZER = {"lr": 1e-3, "betas": [0.9, 0.95], "epsilon": 1e-8, "weight_decay": 0.1}
# Each loss must fall by this share of the largest fall; seeds and codecs make less of a difference in a few steps.
LEAST_FALL_SHARE = 0.5
LEAST_STEPS, LEAST_REPEATS = 5, 3

# NCCL takes ranks of one machine for neighbours, whatever their namespaces; here nothing but the
# namespaces' interfaces may join them.
NCCL_BY_SOCKETS_ALONE = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1",
                         "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0"}


def names(allowed):
    def parse(text):
        chosen = [name for name in text.split(",") if name]
        for name in chosen:
            if name not in allowed:
                raise argparse.ArgumentTypeError(
                    f"expected some of {','.join(allowed)}, got '{name}'")
        return chosen
    return parse


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, metavar="BIN_DIR",
                        help="folder of longhaul's programs")
    parser.add_argument("--family", choices=("gpt", "llama"), default="gpt")
    for flag, default, what in (
            ("--stages", 4, ""), ("--layers", 4, ""), ("--hidden", 256, "channels of a boundary"),
            ("--context", 256, "tokens of a sequence"), ("--microbatches", 16, "a step"),
            ("--microbatch-size", 1, "sequences"), ("--vocabulary", 256, "rows of embedding and head"),
            ("--threads", 1, "of a stage, on the CPU"), ("--steps", 5, "that count"),
            ("--repeats", 3, "of everything"),
            ("--warm-up", 1, "steps that do not count, at least 1: links open")):
        parser.add_argument(flag, type=int, default=default,
                            help=f"{what} (default %(default)s)".strip())
    parser.add_argument("--heads", type=int, help="default: of 64 channels")
    parser.add_argument("--kv-heads", type=int, help="llama; default: as many as heads")
    parser.add_argument("--intermediate", type=int,
                        help="llama, width of the MLP; default: 8/3 of --hidden, up to a multiple of 64")
    parser.add_argument("--rope-theta", type=float, default=1e4, help="llama (default %(default)s)")
    parser.add_argument("--qkv-bias", action="store_true", help="llama: as Qwen2.5")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32",
                        help="of compute (default %(default)s)")
    parser.add_argument("--lr", type=float, default=OPTIMIZER["lr"])
    parser.add_argument("--text", default="/usr/share/common-licenses/*-[0-9]*", metavar="GLOB")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rates", type=lambda text: text.split(","), default=["10mbit", "unlimited"],
                        help="of every interface, each way (default 10mbit,unlimited)")
    parser.add_argument("--share-gpus", action="store_true",
                        help="stages may share GPUs; else each has one of its own")
    parser.add_argument("--peers", type=names(PEERS), default=list(DEFAULT_PEERS),
                        help=f"of {','.join(PEERS)} (default {','.join(DEFAULT_PEERS)})")
    parser.add_argument("--codecs", type=names(CODECS), default=list(DEFAULT_CODECS),
                        help=f"of longhaul's runs, of {','.join(CODECS)} (default {','.join(DEFAULT_CODECS)})")
    parser.add_argument("--python", default=sys.executable, help="one that has torch (default: this)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all of it there")
    parser.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="write each counted step there")
    arguments = parser.parse_args()
    if arguments.stages < 2 or min(arguments.warm_up, arguments.steps, arguments.repeats) < 1:
        parser.error("expected --stages of at least 2, --warm-up, --steps and --repeats of at least 1")
    return arguments


def model_of(arguments):
    """The keys of a run file's `model`, which are the peer's, too."""
    heads = arguments.heads or max(1, arguments.hidden // 64)
    model = {"family": arguments.family, "layers": arguments.layers, "hidden": arguments.hidden,
             "heads": heads, "context": arguments.context, "vocabulary": arguments.vocabulary}
    if arguments.family == "llama":
        model |= {"kv_heads": arguments.kv_heads or heads,
                  "intermediate": arguments.intermediate or -(-8 * arguments.hidden // 192) * 64,
                  "rope_theta": arguments.rope_theta, "norm_epsilon": 1e-6,
                  "qkv_bias": arguments.qkv_bias}
    return model


def run_spec(arguments):
    """What a run file says."""
    return {
        "name": "peers", "model": model_of(arguments),
        "data": {"text": [arguments.text], "tokenizer": "bytes", "seed": 1},
        "validation": {"every": 0},
        "train": {
            "steps": arguments.warm_up + arguments.steps, "microbatches": arguments.microbatches,
            "microbatch_size": arguments.microbatch_size, "dtype": arguments.dtype, "seed": 1,
            "optimizer": {"kind": "adamw", **OPTIMIZER, "lr": arguments.lr, "clip_norm": 0},
            "schedule": {"kind": "constant", "warmup": 0}},
        "pipeline": {"stages": arguments.stages, "threads_per_stage": arguments.threads},
        # The links are measured when the split is planned; a run's bytes are then its own.
        "links": {"measure": False},
        "checkpoint": {"every": 0, "keep": 1, "at_end": False}}


def split_of(plan):
    return [(cell["worker_name"], cell["layers"]) for cell in plan["assignment"]["cells"]]


def uplinks(cluster):
    """{worker: bytes that its egress queue has counted}; empty where links are not shaped."""
    return {worker["name"]: worker["uplink"]["bytes"] for worker in cluster.state()["workers"]
            if worker["uplink"] is not None}


def interfaces(worker):
    """In a worker's namespace: the name of its data interface and the address of its control interface."""
    found = json.loads(call(["ip", "-n", worker["network"], "-json", "-4", "addr", "show"]))
    addresses = {entry["ifname"]: entry["addr_info"][0]["local"] for entry in found
                 if entry["ifname"] != "lo" and entry["addr_info"]}
    data = next(name for name, address in addresses.items() if address == worker["data_address"])
    return data, next(address for name, address in addresses.items() if name != data)


@contextlib.contextmanager
def ended_after(processes):
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def finish(ranks, logs):
    """What each rank printed. Ends as soon as one fails, for the others wait for it."""
    waiting, end = dict(enumerate(ranks)), time.monotonic() + LONGEST_RUN_S
    while waiting:
        if time.monotonic() > end:
            raise Failed(f"waited {LONGEST_RUN_S} s in vain for ranks {sorted(waiting)}")
        for number, process in list(waiting.items()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(timeout=0.1) != 0:
                    raise Failed(f"rank {number} ended with {process.returncode}:\n"
                                 f"{logs[number].with_suffix('.err').read_text()[-3000:]}")
                del waiting[number]
    return [json.loads(log.read_text().splitlines()[-1]) for log in logs]


def train_peer(cluster, python, job, workers, folder):
    """Seconds of each step, that of the slowest rank, and losses."""
    by_name = {worker["name"]: worker for worker in cluster.state()["workers"]}
    ranks, logs = [], []
    _, rendezvous = interfaces(by_name[workers[0]])
    path = folder / "job.json"
    path.write_text(json.dumps({**job, "rendezvous": f"tcp://{rendezvous}:{PORT}",
                                "devices": [by_name[name]["device"] for name in workers]}))
    with contextlib.ExitStack() as files, ended_after(ranks):
        for rank, name in enumerate(workers):
            data, _ = interfaces(by_name[name])
            environment = {**os.environ, "OMP_NUM_THREADS": str(job["threads"]),
                           "GLOO_SOCKET_IFNAME": data, "NCCL_SOCKET_IFNAME": f"={data}",
                           "NCCL_HOSTID": name, **NCCL_BY_SOCKETS_ALONE}
            logs.append(folder / f"rank{rank}.out")
            out, err = (files.enter_context(open(logs[-1].with_suffix(suffix), "w", encoding="utf-8"))
                        for suffix in (".out", ".err"))
            ranks.append(subprocess.Popen(
                ["ip", "netns", "exec", by_name[name]["network"], python, RANK, path,
                 str(rank)], env=environment, stdout=out, stderr=err))
        results = finish(ranks, logs)
    return [max(step) for step in zip(*(result["seconds"] for result in results))], \
        results[-1]["losses"]


class Comparison:
    """All that is measured on one cluster."""

    def __init__(self, cluster, arguments, versions, folder):
        self.cluster, self.arguments, self.folder = cluster, arguments, folder
        self.versions = versions
        self.spec = run_spec(arguments)
        self.sharing = sharing_of([worker["device"] for worker in cluster.state()["workers"]])
        self.run_file = folder / "peers.yaml"
        self.run_file.write_text(json.dumps(self.spec))  # JSON is YAML
        self.table, self.measurements = table_of(self.spec, arguments, self.sharing), []

    def at(self, rate):
        self.cluster.set_rate(rate)
        split = split_of(json.loads(self.cluster.cli(
            "plan", self.run_file, "--json", "--set", "links.measure=true", "--set",
            "links.forward=none", "--set", "links.backward=none", timeout=LONGEST_RUN_S)))
        first = len(self.measurements)
        try:
            for _ in range(self.arguments.repeats):
                for peer in self.arguments.peers:
                    name, schedule, boundary = PEERS[peer]
                    self._measure(rate, "torch", name,
                                  lambda: self._train_peer(schedule, boundary, split))
                for codec in self.arguments.codecs:
                    self._measure(rate, "longhaul", codec, lambda: self._train_longhaul(codec))
        finally:
            for row in self.measurements[first:]:
                self._show(row)

    def _measure(self, rate, who, setting, train):
        """`train` gives seconds and losses of all steps, and the split."""
        before = uplinks(self.cluster)
        seconds, losses, split = train()
        after, spec = uplinks(self.cluster), self.spec["train"]
        row = next((row for row in self.measurements
                    if (row["rate"], row["who"], row["setting"]) == (rate, who, setting)), None)
        if row is None:
            row = {"rate": rate, "who": who, "setting": setting, "seconds_of_repeats": [], "losses": losses,
                   "split": split}
            self.measurements.append(row)
        row["seconds_of_repeats"].append(seconds[self.arguments.warm_up:])
        row["seconds"] = [step for repeat in row["seconds_of_repeats"] for step in repeat]
        row["median_seconds"] = statistics.median(row["seconds"])
        tokens = (spec["microbatches"] * spec["microbatch_size"] * self.spec["model"]["context"])
        row["tokens_per_second"] = tokens / row["median_seconds"]
        row["uplink_bytes_per_step"] = {name: (after[name] - before[name]) / spec["steps"]
                                        for name in after}
        self.save(complete=False)

    def _train_peer(self, schedule, boundary, split):
        spec = self.spec["train"]
        job = {"schedule": schedule, "boundary": boundary, "model": self.spec["model"],
               "split": [layers for _, layers in split],
               **{key: spec[key] for key in ("microbatches", "microbatch_size", "dtype", "steps",
                                             "seed", "optimizer")},
               "threads": self.arguments.threads, "text": self.arguments.text,
               "deadline_s": LONGEST_RUN_S}
        return *train_peer(self.cluster, self.arguments.python, job, [name for name, _ in split],
                           self.folder), split

    def _train_longhaul(self, codec):
        done = self.cluster.train(self.run_file, CODECS[codec])
        return ([step["seconds"] for step in done.steps], [step["loss"] for step in done.steps],
                split_of(done.plan))

    def _ratio(self, row):
        """The row's speed by that of the fastest peer at its rate; None if no peer has run at it."""
        best = min((other["median_seconds"] for other in self.measurements
                    if other["who"] == "torch" and other["rate"] == row["rate"]), default=None)
        return best and best / row["median_seconds"]

    def _show(self, row):
        ratio, uplink = self._ratio(row), row["uplink_bytes_per_step"]
        self.table.add(row["rate"], row["who"], row["setting"], spread(row["seconds"]),
                       f"{row['tokens_per_second']:.0f}",
                       f"{max(uplink.values()) / 1e6:.2f}" if uplink else None,
                       f"{ratio:.2f}" if ratio else None,
                       f"{row['losses'][0]:.3f} to {row['losses'][-1]:.3f}")

    def save(self, complete):
        """`complete`: no run is missing."""
        if self.arguments.csv:
            write(self.arguments.csv, self._rows())
        if not self.arguments.json:
            return
        write(self.arguments.json, json.dumps({
            "command": shlex.join(sys.argv), "machine": self.table.machine,
            "versions": self.versions, "device": self.arguments.device, "sharing": self.sharing,
            "run_file": self.spec, "complete": complete, "objections": list(self.objections()),
            "measurements": [{**row, "ratio_to_best_peer": self._ratio(row)}
                             for row in self.measurements]}, indent=1) + "\n")

    def _rows(self):
        """CSV: each counted step."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["rate", "who", "setting", "stages", "gpus", "repeat", "step", "seconds",
                         "tokens_a_step", "busiest_uplink_mb"])
        spec = self.spec["train"]
        tokens = spec["microbatches"] * spec["microbatch_size"] * self.spec["model"]["context"]
        for row in self.measurements:
            uplink = row["uplink_bytes_per_step"]
            for repeat, steps in enumerate(row["seconds_of_repeats"], 1):
                for step, seconds in enumerate(steps, self.arguments.warm_up + 1):
                    writer.writerow([
                        row["rate"], row["who"], row["setting"], self.arguments.stages,
                        len(self.sharing["stages_of_gpu"]) if self.sharing else 0, repeat, step,
                        f"{seconds:.6g}", tokens,
                        f"{max(uplink.values()) / 1e6:.3f}" if uplink else ""])
        return text.getvalue()

    def objections(self):
        """Sentences: what makes the comparison worth less."""
        for row in self.measurements:
            same = [other for other in self.measurements if other["rate"] == row["rate"]]
            label = f"{row['rate']}, {row['who']} {row['setting']}"
            if row["split"] != same[0]["split"]:
                yield f"{label}: split {row['split']}, where {same[0]['setting']} has {same[0]['split']}"
            fall = row["losses"][0] - row["losses"][-1]
            most = max(other["losses"][0] - other["losses"][-1] for other in same)
            if fall < LEAST_FALL_SHARE * most or fall <= 0:
                yield (f"{label}: the loss fell by {fall:.3f}, from {row['losses'][0]:.3f}; elsewhere at "
                       f"this rate by {most:.3f}")


def sharing_of(devices):
    """How stages share GPUs: {"stages_of_gpu", "sentence"}; None on the CPU."""
    if devices[0] == "cpu":
        return None
    stages = dict(sorted(collections.Counter(devices).items()))
    counts = sorted(set(stages.values()))
    return {"stages_of_gpu": stages,
            "sentence": f"{len(devices)} stages on {len(stages)} GPU{'s' * (len(stages) > 1)}, "
                        f"{' or '.join(map(str, counts))} to a GPU, torch's and longhaul's alike"}


def table_of(spec, arguments, sharing):
    model = ", ".join(f"{key} {value}" for key, value in spec["model"].items())
    return Table(
        f"{model}; {arguments.stages} stages, {arguments.microbatches} microbatches of "
        f"{arguments.microbatch_size}, {arguments.dtype} on {arguments.device}; seconds a step, median "
        f"(middle half) of {arguments.repeats} times {arguments.steps} after {arguments.warm_up}; MB: on the "
        "busiest uplink, a step (links that are not shaped count nothing); ratio: of speed, to the best peer at that rate"
        + (f"\n{sharing['sentence']}" if sharing else ""),
        ["rate", "who", "schedule/codecs", "step s", "tokens/s", "MB", "ratio", "loss"])


def compare(arguments, versions):
    """Whether there is nothing to object."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory(prefix="longhaul-peers-")))
        cluster = stack.enter_context(Cluster(arguments.programs, workers=arguments.stages,
                                              device=devices_of(arguments, versions)))
        comparison = Comparison(cluster, arguments, versions, folder)
        try:
            for rate in arguments.rates:
                comparison.at(rate)
        except BaseException:
            comparison.table.finish(complete=False)
            raise
    objections = list(comparison.objections())
    comparison.table.finish()
    print(f"{versions['longhaul']}, torch {versions['torch']}")
    for objection in objections:
        print(f"Note: {objection}")
    if arguments.steps < LEAST_STEPS or arguments.repeats < LEAST_REPEATS:
        print(f"Note: a trial; what is published has at least {LEAST_STEPS} steps and {LEAST_REPEATS} repeats")
    comparison.save(complete=True)
    return not objections


def devices_of(arguments, versions):
    """What the cluster's workers share: of GPUs no more than there are stages."""
    if arguments.device == "cpu":
        return "cpu"
    return f"cuda:0-{min(len(versions['gpus']), arguments.stages) - 1}"


def installed(arguments):
    """Versions; None where no torch can be imported, which is then said."""
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(*(glob.glob(arguments.text) or [arguments.text]))
    versions = versions_of(arguments.python, RANK)
    if versions is None:
        return None
    if arguments.device == "cuda" and not versions["gpus"]:
        raise Failed("--device cuda: expected a GPU, torch sees none; look at nvidia-smi, or take "
                     "--device cpu")
    if arguments.device == "cuda" and len(versions["gpus"]) < arguments.stages and not arguments.share_gpus:
        raise Failed(f"--stages {arguments.stages}: expected a GPU for each, got {len(versions['gpus'])}; take "
                     "fewer stages, or --share-gpus where a comparison in which ranks wait for each other's "
                     "kernels is good enough")
    return {"longhaul": call([arguments.programs / "longhaul", "--version"]).strip(), **versions}


def main():
    arguments = parse()
    needs.root_or_skip()
    # A signal ends the `with` blocks, and with them the ranks and the cluster.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        versions = installed(arguments)
        if versions is None:
            return SKIPPED
        return 0 if compare(arguments, versions) else 1
    except (Failed, OSError, subprocess.SubprocessError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
