"""What the ways of reaching a worker give and cost (docs/guide/rented_machines.md), measured: two workers in network
namespaces, joined by a line of 20 Mbit/s each way, train without compression.

usage: ways.py BIN_DIR
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from reach_test import (GATEWAY, NONE, PUBLIC, PUBLISHED, RUN, Processes, TwoSides, chain_of_namespaces,
                        text_for_training, wait_for)

RATE, STEPS, WARM_UP = "20mbit", 60, 5


def shape(namespace, address):
    rows = json.loads(subprocess.run(["ip", "-n", namespace, "-j", "-4", "addr"], check=True,
                                     capture_output=True, text=True).stdout)
    device = next(row["ifname"] for row in rows
                  if any(one["local"] == address for one in row["addr_info"]))
    subprocess.run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", RATE,
                    "burst", "128kb", "latency", "500ms"], check=True)


def measure(sides, title, transport, start_b):
    sides.start_worker("a", sides.public, PUBLIC)
    wait_for("worker a", lambda: sides.worker("a"))
    begin = time.monotonic()
    start_b()
    wait_for("worker b", lambda: sides.worker("b"))
    connected = time.monotonic() - begin
    wait_for("a link between them", lambda: sides.worker("a").get("can_talk_to") == 1 or
             sides.cannot_talk())
    path = sides.folder / f"{transport}.yaml"
    path.write_text(RUN.format(name=title[1], steps=STEPS, stages=2, schedule="link-aware", links=NONE,
                               transport=transport))
    begin = time.monotonic()
    run = sides.cli("submit", path, "--watch").stdout.split()[0]
    whole = time.monotonic() - begin
    steps = [json.loads(line) for line in sides.cli("steps", run, "--json").stdout.splitlines()]
    seconds = sorted(step["seconds"] for step in steps[WARM_UP:])
    before = whole - sum(step["seconds"] for step in steps)
    print(f"| {title} | {connected:.1f} s | {before:.1f} s | {seconds[len(seconds) // 2] * 1e3:.0f} ms |", flush=True)
    for name in ("a", "b"):
        sides.processes.end(name)
    wait_for("both to leave", lambda: not sides.worker("a") and not sides.worker("b"))


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as name, \
            chain_of_namespaces("pub", "gate", "priv") as namespaces:
        folder = pathlib.Path(name)
        text_for_training(folder)
        public, gateway, _ = namespaces
        shape(public, PUBLIC)
        shape(gateway, GATEWAY)
        with Processes(folder) as processes:
            sides = TwoSides(pathlib.Path(sys.argv[1]).resolve(), folder, processes, namespaces)
            print("| way | start to connected | submit to the first step, and the end | a step |")
            print("| --- | --- | --- | --- |")
            for transport in ("tcp", "grpc"):
                measure(sides, f"(a) own address, {transport}", transport, lambda transport=transport: (
                    sides.start_worker("b", gateway, PUBLIC, "--transport", transport)))
            measure(sides, "(b) published port, tcp", "tcp", lambda: sides.start_b(PUBLISHED))
            measure(sides, "(c) private network, ucx", "ucx",
                    lambda: sides.start_worker("b", gateway, PUBLIC, "--transport", "ucx"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
