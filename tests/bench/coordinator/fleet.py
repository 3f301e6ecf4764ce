"""Kills a coordinator with many workers, starts it again, and measures how long it takes until all are welcome.

usage: fleet.py BIN_DIR [--workers 1000] [--processes 4] [--kills 3] [--csv FILE]

The workers are sessions of longhaul-fleet, each with a certificate of its own. Coordinator and fleet share the machine, so
their CPU times are printed apart.
"""
import argparse
import csv
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

PATIENCE_S = 120
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """What a process has used of the processors so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def wait_until(what, condition, patience_s=PATIENCE_S):
    """Asks again and again, until the answer is true."""
    end = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < end, f"no {what} within {patience_s} s"
        time.sleep(0.1)
    return found


class Coordinator:
    """One coordinator, which may be killed and started again at its address."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.address, self.process = "127.0.0.1:0", None

    def start(self):
        address_file = self.folder / "state" / "address"
        address_file.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [self.program, "--listen", self.address, "--state-dir", self.folder / "state", "--worker-token-file",
             self.folder / "workers"], stdout=subprocess.DEVNULL, stderr=open(self.folder / "log", "ab"))
        wait_until("address", lambda: address_file.exists() and address_file.read_text(encoding="utf-8").strip())
        self.address = address_file.read_text(encoding="utf-8").strip()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def workers(self):
        """How many are connected."""
        asked = subprocess.run(
            [self.program.with_name("longhaul"), "status", "--json", "--coordinator", self.address, "--token-file",
             self.folder / "state" / "token"], env={**os.environ, "LONGHAUL_IDENTITY": str(self.folder / "admin.pem")},
            capture_output=True, text=True)
        return json.loads(asked.stdout)["workers"] if asked.returncode == 0 else 0


class Fleet:
    """One process of longhaul-fleet."""

    def __init__(self, program, folder, address, workers, first):
        self.process = subprocess.Popen(
            [program, "--coordinator", address, "--token-file", folder / "workers", "--folder", folder / "keys",
             "--workers", str(workers), "--first", str(first)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def stop(self):
        self.process.stdin.close()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def measure(options, folder, writer):
    coordinator = Coordinator(options.bin / "longhaul-coordinator", folder)
    coordinator.start()
    each = options.workers // options.processes
    fleets = [Fleet(options.bin / "longhaul-fleet", folder, coordinator.address, each, i * each)
              for i in range(options.processes)]
    try:
        count = each * len(fleets)
        # Each first makes a key and joins.
        wait_until("workers", lambda: coordinator.workers() == count, patience_s=5 * PATIENCE_S)
        print(f"{count} workers are there", flush=True)
        for kill in range(1, options.kills + 1):
            time.sleep(3)
            used = [cpu_seconds(fleet.process.pid) for fleet in fleets]
            begin = time.time()
            coordinator.kill()
            coordinator.start()
            up = time.time() - begin
            wait_until("workers", lambda: coordinator.workers() == count)
            back = time.time() - begin
            own = cpu_seconds(coordinator.process.pid)
            theirs = sum(cpu_seconds(fleet.process.pid) for fleet in fleets) - sum(used)
            print(f"kill {kill}: the port is back after {up:.2f} s, all {count} workers after {back:.2f} s; "
                  f"CPU: coordinator {own:.2f} s, workers {theirs:.2f} s", flush=True)
            if not back <= options.limit:
                raise AssertionError(f"kill {kill}: all workers were back after {back:.1f} s, expected {options.limit:g} at most")
            writer.writerow([kill, count, f"{up:.2f}", f"{back:.2f}", f"{own:.2f}", f"{theirs:.2f}"])
    finally:
        for fleet in fleets:
            fleet.stop()
        coordinator.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--limit", type=float, default=10, metavar="SECONDS",
                        help="from a kill until all workers are back (default %(default)s)")
    parser.add_argument("--csv", default=os.devnull)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open(options.csv, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["kill", "workers", "port_s", "all_welcome_s", "coordinator_cpu_s", "workers_cpu_s"])
        measure(options, pathlib.Path(folder), writer)


if __name__ == "__main__":
    main()
