#!/usr/bin/env python3
"""Helper of deploy/quickstart.sh: reads what longhaul prints as JSON. Standard library only.

quickstart_report.py access                     cluster status --json on standard input -> flags
quickstart_report.py measure --program LONGHAUL --cluster NAME --run ID --first A --last B --out FILE
    Follows the run; reads the links' counters when step A and when step B is done, and writes what
    went over them in between.
quickstart_report.py table --folder DIR --rate RATE --first A --last B --run FILE -- TEXTS...
    The comparison.
"""
import argparse
import collections
import json
import math
import pathlib
import re
import signal
import statistics
import subprocess
import sys


def access_flags(status):
    return ["--coordinator", status["coordinator"]["address"], "--token-file", status["token_file"]]


def cluster_status(arguments):
    command = [arguments.program, "cluster", "status", "--name", arguments.cluster, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def sent_by_all(status):
    """Bytes that all workers have sent, counted once, where their uplinks are shaped."""
    total = collections.Counter()
    apart = True
    for worker in status["workers"]:
        uplink = worker["uplink"]
        if uplink is None:
            sys.exit(f"quickstart: the link of {worker['name']} is not shaped, so nothing counts")
        total["bytes"] += uplink["bytes"]
        if uplink["data_bytes"] is None:
            apart = False
        else:
            total["data"] += uplink["data_bytes"]
            total["acknowledgements"] += uplink["acknowledgement_bytes"]
    return dict(total, apart=apart)


def measure_between_steps(lines, arguments):
    begin = None
    for line in lines:
        step = json.loads(line).get("step", 0)
        if begin is None and step >= arguments.first:
            begin = (step, sent_by_all(cluster_status(arguments)))
        elif begin is not None and step >= arguments.last:
            first, before = begin
            after = sent_by_all(cluster_status(arguments))
            result = {key: (after[key] - before[key]) / (step - first)
                      for key in ("bytes", "data", "acknowledgements") if key in after}
            return dict(result, first=first, last=step, apart=after["apart"])
    sys.exit("quickstart: the run ended before its speed could be measured")


def measure(arguments):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    command = [arguments.program, "watch", arguments.run, "--json",
               *access_flags(cluster_status(arguments))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as watch:
        try:
            result = measure_between_steps(watch.stdout, arguments)
        finally:
            watch.terminate()
    pathlib.Path(arguments.out).write_text(json.dumps(result) + "\n")


def unigram_entropy(paths):
    """Nats a byte of a model that knows only how often each byte occurs."""
    counts = collections.Counter()
    for path in paths:
        counts.update(pathlib.Path(path).read_bytes())
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


class Run:
    def __init__(self, folder, label, first, last):
        lines = (folder / f"{label}.steps.jsonl").read_text().splitlines()
        self.steps = {record["step"]: record for record in map(json.loads, lines)}
        self.bytes = json.loads((folder / f"{label}.bytes.json").read_text())
        shaped = [record["seconds"] for step, record in self.steps.items() if first < step <= last]
        self.step_seconds = statistics.median(shaped)
        self.validation = {step: record["validation_loss"]
                           for step, record in self.steps.items() if record["has_validation"]}

    def last_validation(self, step):
        done = [validated for validated in self.validation if validated <= step]
        return (max(done), self.validation[max(done)]) if done else (None, None)


def number(pattern, text):
    return int(re.search(pattern + r"\s*(\d+)", text).group(1))


def size(count):
    for unit in ("B", "KB", "MB"):
        if count < 1000 or unit == "MB":
            return f"{count:.3g} {unit}"
        count /= 1000


def loss_text(step_and_loss):
    step, loss = step_and_loss
    return "none yet" if step is None else f"{loss:.3f} (step {step})"


def print_table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for index, row in enumerate(rows):
        print(f"  {row[0]:<{widths[0]}}   {row[1]:>{widths[1]}}   {row[2]:>{widths[2]}}")
        if index == 0:
            print("  " + "-" * (sum(widths) + 6))


def table(arguments):
    folder = pathlib.Path(arguments.folder)
    none = Run(folder, "none", arguments.first, arguments.last)
    default = Run(folder, "default", arguments.first, arguments.last)
    text = pathlib.Path(arguments.run).read_text()
    tokens = (number("context:", text) * number("microbatches:", text) *
              number("microbatch_size:", text))
    last = max(default.steps)
    seconds = last * default.step_seconds
    reached = min(int(seconds / none.step_seconds), last)
    speed_up = none.step_seconds / default.step_seconds
    entropy = unigram_entropy(arguments.texts)
    rows = [("", "none", "chosen codecs"),
            ("tokens/s", f"{tokens / none.step_seconds:.0f}",
             f"{tokens / default.step_seconds:.0f}"),
            ("step time", f"{none.step_seconds:.2f} s", f"{default.step_seconds:.2f} s")]
    if none.bytes["apart"] and default.bytes["apart"]:
        rows += [("data a step, all links", size(none.bytes["data"]), size(default.bytes["data"])),
                 ("acknowledgements a step", size(none.bytes["acknowledgements"]),
                  size(default.bytes["acknowledgements"]))]
    else:
        rows += [("data and acknowledgements a step", size(none.bytes["bytes"]),
                  size(default.bytes["bytes"]))]
    rows += [(f"validation loss at step {last}", loss_text(none.last_validation(last)),
              loss_text(default.last_validation(last))),
             (f"validation loss after {seconds:.0f} s", loss_text(none.last_validation(reached)),
              loss_text(default.last_validation(last))),
             ("speed-up", "1", f"{speed_up:.2f}x")]
    print(f"\nFour workers on links of {arguments.rate} each way, {last} steps of {tokens} tokens\n")
    print_table(rows)
    print(f"""
  Losses are nats a byte; a model that knows only how often each byte occurs has {entropy:.3f}.
  Speed and bytes: steps {arguments.first + 1} to {arguments.last}, bytes counted by the links' own queues (headers included).
  none: only the first {none.bytes["last"]} steps or so ran at {arguments.rate}; then the links' rate was lifted. Rates do not
  change what is computed: its losses are bit for bit those of a run at {arguments.rate} throughout.
  "After {seconds:.0f} s": none would have done {reached} steps by then, at its step time above.
""")
    failed = []
    for label, run in (("none", none), ("the chosen codecs", default)):
        step, loss = run.last_validation(last)
        if step is None or not loss < entropy:
            failed.append(f"the validation loss with {label} did not get below {entropy:.3f}")
    if failed:
        sys.exit("quickstart: " + "; ".join(failed) + f" in {last} steps; see --steps")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("access")
    for mode, options in (("measure", ("program", "cluster", "run", "out")),
                          ("table", ("folder", "rate", "run"))):
        sub = modes.add_parser(mode)
        for option in ("first", "last"):
            sub.add_argument(f"--{option}", type=int, required=True)
        for option in options:
            sub.add_argument(f"--{option}", required=True)
        if mode == "table":
            sub.add_argument("texts", nargs="+")
    arguments = parser.parse_args()
    if arguments.mode == "access":
        print(*access_flags(json.load(sys.stdin)), sep="\n")
    elif arguments.mode == "measure":
        measure(arguments)
    else:
        table(arguments)


if __name__ == "__main__":
    main()
