"""Goodput of a run whose one link goes through a relay, against the slower line of its ends; the relay's line is twice as
fast. Two workers behind routers that translate addresses (tests/multiprocess/reach/nat.py) train without compression, in steps
that overlap, so that the link never rests. Bytes are the link's own, with its headers; TCP's and Ethernet's come on top,
which leaves 95.6% of a line.

usage: relay.py BIN_DIR [--csv FILE] [--rates 20,50] [--steps 12]
"""
import argparse
import csv
import json
import os
import pathlib
import platform
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "multiprocess/reach"))
from nat import RELAY, site  # noqa: E402
from training_test import text_for_training, wait_for  # noqa: E402

WARM_UP = 3
COLUMNS = ["line_mbit", "relay_mbit", "step", "seconds", "link_bytes_each_way", "goodput_mbit"]
RUN = """\
name: relayed-{line}
model: {{ family: gpt, layers: 2, hidden: 64, heads: 4, context: 256 }}
data: {{ text: [text.txt], tokenizer: bytes }}
train: {{ steps: {steps}, microbatches: 16, microbatch_size: 4 }}
pipeline: {{ stages: 2, placement: names, schedule: 2bw }}
links: {{ forward: none, backward: none }}
"""


def train(at, line, steps):
    path = at.folder / f"relayed-{line}.yaml"
    path.write_text(RUN.format(line=line, steps=steps))
    run = at.cli("submit", path, "--watch").stdout.split()[0]
    edge = json.loads(at.cli("status", run, "--json").stdout)["plan"]["assignment"]["edges"][0]
    if edge["transport"] != "relay":
        raise AssertionError(f"the link goes over {edge['transport']}")
    for row in [json.loads(row) for row in at.cli("steps", run, "--json").stdout.splitlines()]:
        if int(row["step"]) <= WARM_UP:
            continue
        each_way = int(row["link_bytes"]) / 2
        yield dict(zip(COLUMNS, [line, 2 * line, row["step"], f"{row['seconds']:.4f}", int(each_way),
                                 f"{8e-6 * each_way / row['seconds']:.2f}"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--csv")
    parser.add_argument("--rates", default="20,50")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    rows = []
    print(f"{platform.release()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder, site(arguments.programs, folder) as at:
        text_for_training(folder)
        at.start_coordinator("--relay", f"0.0.0.0:{RELAY}")
        for name in "ab":
            at.start_worker(name, f"home{name}")
        wait_for("both workers", lambda: at.worker("a") and at.worker("b"))
        at.wait_until_cut_off()
        print("| line of each worker | relay's line | a step | goodput each way | of the line |")
        print("| --- | --- | --- | --- | --- |")
        for line in (int(rate) for rate in arguments.rates.split(",")):
            for home in "ab":
                at.nat.shape_home(home, f"{line}mbit")
            at.nat.shape_public(f"{2 * line}mbit")
            own = list(train(at, line, arguments.steps))
            rows += own
            seconds = sum(float(row["seconds"]) for row in own)
            goodput = 8e-6 * sum(row["link_bytes_each_way"] for row in own) / seconds
            print(f"| {line} Mbit/s | {2 * line} Mbit/s | {seconds / len(own):.2f} s | {goodput:.2f} Mbit/s | "
                  f"{100 * goodput / line:.1f}% |", flush=True)
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
