"""Goodput of a run whose one link goes through a relay, against the slower line of its ends; the relay's line is twice as
fast. And of one whose link is direct, with the same lines. Two workers behind routers that translate addresses (tests/multiprocess/reach/nat.py) train without compression, in steps
that overlap, so that the link never rests. Bytes are the link's own, with its headers; TCP's and Ethernet's come on top,
which leaves 95.6% of a line.

usage: relay.py BIN_DIR [--csv FILE] [--rates 20,50] [--steps 12] [--repeats 1]
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
LEAST_GOODPUT = 0.7  # of the slower line
COLUMNS = ["repeat", "way", "line_mbit", "relay_mbit", "step", "seconds", "link_bytes_each_way",
           "goodput_mbit"]
RUN = """\
name: {way}-{line}
model: {{ family: gpt, layers: 2, hidden: 64, heads: 4, context: 256 }}
data: {{ text: [text.txt], tokenizer: bytes }}
train: {{ steps: {steps}, microbatches: 16, microbatch_size: 4 }}
pipeline: {{ stages: 2, placement: names, schedule: 2bw }}
transport: grpc
links: {{ forward: none, backward: none, encrypt: required }}
"""


def train(at, repeat, way, line, steps):
    path = at.folder / f"{way}-{line}.yaml"
    path.write_text(RUN.format(way=way, line=line, steps=steps))
    run = at.cli("submit", path, "--watch").stdout.split()[0]
    edge = json.loads(at.cli("status", run, "--json").stdout)["plan"]["assignment"]["edges"][0]
    if edge["transport"] != way:
        raise AssertionError(f"the link goes over {edge['transport']}")
    for row in [json.loads(row) for row in at.cli("steps", run, "--json").stdout.splitlines()]:
        if int(row["step"]) <= WARM_UP:
            continue
        each_way = int(row["link_bytes"]) / 2
        yield dict(zip(COLUMNS, [repeat, way, line, 2 * line, row["step"], f"{row['seconds']:.4f}", int(each_way),
                                 f"{8e-6 * each_way / row['seconds']:.2f}"]))


def show(at, repeat, way, line, steps):
    for home in "ab":
        at.nat.shape_home(home, f"{line}mbit")
    at.nat.shape_public(f"{2 * line}mbit")
    rows = list(train(at, repeat, way, line, steps))
    seconds = sum(float(row["seconds"]) for row in rows)
    goodput = 8e-6 * sum(row["link_bytes_each_way"] for row in rows) / seconds
    if len(rows) != steps - WARM_UP or not LEAST_GOODPUT * line <= goodput <= line:
        raise AssertionError(f"{way}, {line} Mbit/s: {len(rows)} steps of {steps - WARM_UP}, goodput {goodput:.2f} Mbit/s, "
                             f"expected {LEAST_GOODPUT * line:.2f} to {line}")
    print(f"| {repeat} | {way} | {line} Mbit/s | {2 * line} Mbit/s | {seconds / len(rows):.2f} s | {goodput:.2f} Mbit/s | "
          f"{100 * goodput / line:.1f}% |", flush=True)
    return rows


def with_peer(at, name, namespace):
    """Worker a and this one, and nobody else."""
    wait_for("the last one to leave", lambda: all(not at.worker(other) for other in "bc"))
    at.start_worker(name, namespace)
    wait_for("both workers", lambda: at.worker("a") and at.worker(name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--csv")
    parser.add_argument("--rates", default="20,50")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    rows = []
    print(f"{platform.release()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder, site(arguments.programs, folder) as at:
        text_for_training(folder)
        at.start_coordinator("--relay", f"0.0.0.0:{RELAY}")
        at.start_worker("a", "homea")
        print("| repeat | way | slower line | the other, or the relay's | a step | goodput each way | of the line |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        rates = [int(rate) for rate in arguments.rates.split(",")]
        for repeat in range(1, arguments.repeats + 1):
            with_peer(at, "b", "homeb")
            at.wait_until_cut_off()
            for line in rates:
                rows += show(at, repeat, "relay", line, arguments.steps)
            at.processes.end("b")
            # One that the other dials, on the relay's line: the same without a relay.
            with_peer(at, "c", "pub")
            wait_for("a way to it", lambda: (at.worker("c") or {}).get("can_talk_to", 0) >= 1)
            for line in rates:
                rows += show(at, repeat, "grpc", line, arguments.steps)
            at.processes.end("c")
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
