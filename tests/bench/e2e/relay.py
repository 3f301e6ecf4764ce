"""Goodput of a link through a relay, both ways at once, against the slower line of its ends; the relay's line is twice as
fast. Two workers behind routers that translate addresses (tests/multiprocess/reach/nat.py). What is shown is what the
workers measure before a plan, over the link that a run would have: sealed, with headers.

usage: relay.py BIN_DIR [--csv FILE] [--rates 20,100] [--times 3]
"""
import argparse
import csv
import os
import pathlib
import platform
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "multiprocess/reach"))
from nat import RELAY, site  # noqa: E402
from training_test import NONE, RUN, text_for_training, wait_for  # noqa: E402

COLUMNS = ["line_mbit", "relay_mbit", "time", "from", "to", "goodput_mbit", "of_the_line", "round_trip_ms"]


def measure(at, line, time):
    path = at.folder / "run.yaml"
    path.write_text(RUN.format(name="relayed", steps=20, stages=2, schedule="link-aware", links=NONE, transport="ucx"))
    at.cli("plan", path)
    for link in at.workers()["links"]:
        if link["transport"] != "relay":
            raise AssertionError(f"the link goes over {link['transport']}")
        goodput = link["goodput_bits_per_second"] / 1e6
        yield dict(zip(COLUMNS, [line, 2 * line, time, link["from_worker"], link["to_worker"], f"{goodput:.2f}",
                                 f"{goodput / line:.3f}", f"{link['round_trip_seconds'] * 1e3:.2f}"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--csv")
    parser.add_argument("--rates", default="20,100")
    parser.add_argument("--times", type=int, default=3)
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
        print("| line of each worker | relay's line | goodput, the slower way | of the line | round trip |")
        print("| --- | --- | --- | --- | --- |")
        for line in (int(rate) for rate in arguments.rates.split(",")):
            for home in "ab":
                at.nat.shape_home(home, f"{line}mbit")
            at.nat.shape_public(f"{2 * line}mbit")
            own = [row for time in range(arguments.times) for row in measure(at, line, time)]
            rows += own
            worst = min(own, key=lambda row: float(row["goodput_mbit"]))
            print(f"| {line} Mbit/s | {2 * line} Mbit/s | {worst['goodput_mbit']} Mbit/s | "
                  f"{float(worst['of_the_line']) * 100:.1f}% | {worst['round_trip_ms']} ms |", flush=True)
    if arguments.csv:
        with open(arguments.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
