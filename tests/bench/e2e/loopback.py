"""Daemons of this machine that talk over the loopback interface, which needs no rights."""
import json
import os
import subprocess
import time

from cluster import Failed

START_S, TRAIN_S = 120, 3600


class Daemons:
    """A coordinator and workers over 127.0.0.1 for the length of a `with` block."""

    def __init__(self, programs, folder, workers, worker_flags=(), coordinator_flags=()):
        self.programs, self.folder, self.processes = programs, folder, []
        self.count, self.worker_flags = workers, worker_flags
        self.coordinator_flags = coordinator_flags

    def __enter__(self):
        self.token = self.folder / "token"
        os.environ["LONGHAUL_HOME"] = str(self.folder / "home")
        try:
            self._start("coordinator", "longhaul-coordinator", "--listen", "127.0.0.1:0",
                        *self.coordinator_flags)
            address = self.folder / "coordinator/address"
            self._wait("the coordinator", address.exists)
            self.address = address.read_text().strip()
            for number in range(1, self.count + 1):
                self._start(f"worker{number}", "longhaul-worker", "--coordinator", self.address,
                            "--name", f"worker{number}", "--data-root", "/", *self.worker_flags)
            self._wait("the workers", self._all_connected)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=START_S)

    def _start(self, name, program, *arguments):
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen(
                [self.programs / program, *arguments, "--state-dir", self.folder / name,
                 "--token-file", self.token], stdout=log, stderr=log))

    def _wait(self, what, condition):
        end = time.monotonic() + START_S
        while not condition():
            if time.monotonic() > end:
                raise Failed(f"waited {START_S} s in vain for {what}")
            time.sleep(0.05)

    def _all_connected(self):
        rows = json.loads(self.cli("workers", "--json"))
        rows = rows["workers"] if isinstance(rows, dict) else rows
        return sum(bool(row.get("connected")) for row in rows) == self.count

    def cli(self, *arguments):
        done = subprocess.run([self.programs / "longhaul", *arguments, "--coordinator", self.address,
                               "--token-file", self.token], capture_output=True, text=True,
                              timeout=TRAIN_S, check=False)
        if done.returncode != 0:
            raise Failed(f"longhaul {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def train(self, run_file, settings):
        """The records of the run's steps."""
        run = self.cli("submit", run_file, "--watch",
                       *[word for setting in settings for word in ("--set", setting)]).split()[0]
        return [json.loads(line) for line in self.cli("steps", run, "--json").splitlines()]
