"""Two coordinators that may lead, a witness that votes, and two workers: real daemons, each on a machine of its own.

The machines are network namespaces where this process may make them (namespaces.py). Coordinators run with the two
libraries that harm their disks and clocks (stall.cc, pause.cc), which do nothing until they are told to.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

for folder in ("training", "standby"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))
from training_test import DEADLINE_S, NONE, RUN, Cluster, expect_equal, text_for_training, wait_for  # noqa: E402

SEATS = ("one", "two")
PORT = 7070
GOES_ON, STALLED, FULL = 0, 1, 2  # what a disk does (stall.cc)


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def other(seat):
    return "two" if seat == "one" else "one"


class Trio(Cluster):
    def __init__(self, programs, folder, machines, witness=True):
        self.machines, folder = machines, pathlib.Path(folder)
        self.apart = hasattr(machines, "cut")
        self.addresses = {seat: f"{machines.addresses[seat]}:{PORT}" if self.apart else free_address() for seat in SEATS}
        self.controls = {}
        for seat in SEATS:
            for kind, size in (("disk", 4), ("pause", 8)):
                path = folder / f"{seat}.{kind}"
                path.write_bytes(bytes(size))
                self.controls[seat, kind] = open(path, "r+b", buffering=0)  # noqa: SIM115
        self.folder, self.processes = folder, {}
        try:
            super().__init__(programs, folder, 2)
            text_for_training(self.folder)
            if witness:
                self.start_witness()
            self.start_seat("two")
            self.await_pair()
        except BaseException as failure:
            self.__exit__(type(failure))
            raise

    def __exit__(self, kind, *rest):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
        for seat in SEATS:
            self.disk(seat, GOES_ON)
        super().__exit__(kind, *rest)

    # Daemons.
    def start(self, name, program, *arguments, cwd=None):
        if name == "coordinator":  # the first that the base class starts
            (self.folder / "coordinator").symlink_to("one")
            return self.start_seat("one")
        if name.startswith("worker"):
            arguments = [self.both() if one == self.address else one for one in arguments]
        return self.spawn(name, program, *arguments)

    def spawn(self, name, program, *arguments, surroundings=None, token=None):
        log = open(self.folder / f"{name}.log", "a", encoding="utf-8")  # noqa: SIM115
        self.processes[name] = subprocess.Popen(
            [*self.machines.command(name), self.programs / program, *arguments, "--state-dir", self.folder / name,
             "--token-file", token or self.token], stdout=log, stderr=log, env={**os.environ, **(surroundings or {})})

    def start_seat(self, seat, *flags):
        # Equal flags for both, but for whom they dial: nobody types anything after a takeover. Only the very first
        # start says that the second one follows.
        is_new = seat == "two" and not (self.folder / seat).exists()
        flags = ("--standby" if is_new else "--peer", self.addresses[other(seat)], *flags)
        harm = ":".join(str(self.programs / f"liblonghaul_{name}.so") for name in ("stall", "pause"))
        self.spawn(seat, "longhaul-coordinator", "--listen", self.addresses[seat], *flags, surroundings={
            "LD_PRELOAD": harm, "LONGHAUL_TEST_DISK": str(self.folder / seat) + "/",
            "LONGHAUL_TEST_DISK_STATE": str(self.folder / f"{seat}.disk"),
            "LONGHAUL_TEST_PAUSE": str(self.folder / f"{seat}.pause")})

    def start_clone(self, seat, copy):
        """Starts a coordinator on a copy of the seat's folder, on a machine of its own. Gives its address."""
        address = f"{self.machines.addresses['hub']}:{PORT}"
        shutil.copytree(copy, self.folder / "clone")
        log = open(self.folder / "clone.log", "a", encoding="utf-8")  # noqa: SIM115
        self.processes["clone"] = subprocess.Popen(
            [*self.machines.command("hub"), self.programs / "longhaul-coordinator", "--listen", address, "--peer",
             self.addresses[other(seat)], "--state-dir", self.folder / "clone", "--token-file", self.token],
            stdout=log, stderr=log)
        return address

    def start_witness(self, anew=False):
        """`anew`: it has lost its folder, so it joins as another member."""
        token = self.folder / "witness.token"
        if anew or not token.exists():
            token.write_text(self.cli("token", "create", "--role", "witness").stdout)
            token.chmod(0o600)
        self.spawn("witness", "longhaul-coordinator", "witness", "--coordinator", self.both(), token=token)

    def both(self):
        return ",".join(self.addresses.values())

    def leadership(self, seat):
        path = self.folder / seat / "leadership.json"
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return {}

    def witness_record(self):
        try:
            return json.loads((self.folder / "witness" / "witness.json").read_text())
        except (OSError, ValueError):
            return {}

    def first_witness(self):
        """The name of the witness that joined first."""
        said = json.loads(self.cli("members", "--json").stdout)
        rows = said["members"] if isinstance(said, dict) else said
        return min((row for row in rows if row["role"] == "witness"), key=lambda row: int(row["joined_unix_ms"]))["name"]

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    # Calls. A client of the test may name one coordinator alone.
    def cli(self, *arguments, check=True, address=None, timeout=DEADLINE_S):
        result = subprocess.run(
            [*self.machines.command("hub"), self.programs / "longhaul", *arguments, "--coordinator",
             address or self.both(), *self.access()],
            capture_output=True, text=True, timeout=timeout, check=False, cwd=self.folder)
        if check and result.returncode != 0:
            raise AssertionError(f"longhaul {arguments}: {result.returncode}\n{result.stderr}")
        return result

    def ask(self, address, *arguments):
        """As History's clients call: the exit code and what was said."""
        done = self.cli(*arguments, check=False, address=address)
        return done.returncode, done.stdout + done.stderr

    def step_at(self, seat, run):
        """The newest step that this coordinator knows of. One that is unsure whether it leads may know of old ones only."""
        done = self.cli("status", run, "--json", check=False, address=self.addresses[seat])
        return int(json.loads(done.stdout).get("step", 0)) if done.returncode == 0 else 0

    def seen(self, run):
        return self.status(run)

    def info(self, address=None):
        """Who leads, by what it says itself; {} where nobody says anything."""
        done = self.cli("status", "--json", check=False, address=address)
        if done.returncode != 0:
            return {}
        said = json.loads(done.stdout)
        return said.get("leadership", said)

    def leader(self):
        """The seat whose record says that it leads, the one with the newest term first."""
        leads = [(self.leadership(seat).get("term", 0), seat) for seat in SEATS
                 if self.leadership(seat).get("role") in ("coordinator", "leader")]
        return max(leads)[1] if leads else None

    def await_pair(self):
        """Both coordinators have everything, and both know it."""
        wait_for("both to be in sync", lambda: any(
            len(self.leadership(seat).get("in_sync", [])) == 2 for seat in [self.leader()] if seat))

    # Runs.
    def submit(self, name, steps, *flags):
        path = self.folder / f"{name}.yaml"
        path.write_text(RUN.format(name=name, steps=steps, stages=2, schedule="1f1b", transport="grpc", links=NONE))
        return self.cli("submit", path, "--set", "train.schedule.kind=constant", *flags).stdout.split()[0]

    def unplaceable(self):
        """A run file for clients: three stages, and there are two workers."""
        path = self.folder / "unplaceable.yaml"
        path.write_text(RUN.format(name="x", steps=30, stages=3, schedule="1f1b", transport="grpc", links=NONE))
        return path

    def steps_of(self, run):
        rows = map(json.loads, self.cli("steps", run, "--json").stdout.splitlines())
        return {int(row["step"]): row for row in rows}

    # Faults of a seat.
    def disk(self, seat, what):
        self.write_control(seat, "disk", struct.pack("i", what))

    def write_control(self, seat, kind, value):
        control = self.controls[seat, kind]
        control.seek(0)
        control.write(value)

    def pause(self, seat):
        """As a hypervisor pauses a machine: it answers nothing, and has no time meanwhile."""
        if self.apart:
            self.machines.link(seat, up=False)
        self.processes[seat].send_signal(signal.SIGSTOP)
        self.paused_at = time.monotonic()

    def unpause(self, seat):
        slept = int(1e9 * (time.monotonic() - self.paused_at))
        control = self.controls[seat, "pause"]
        control.seek(0)
        before = struct.unpack("q", control.read(8))[0]
        self.write_control(seat, "pause", struct.pack("q", before + slept))
        if self.apart:
            self.machines.link(seat, up=True)
        self.processes[seat].send_signal(signal.SIGCONT)

    def copy_of(self, name):
        """A copy of the daemon's folder at one moment, as a snapshot of its disk has it; for put_back."""
        copy = self.folder / f"{name}.copy"
        shutil.rmtree(copy, ignore_errors=True)
        self.processes[name].send_signal(signal.SIGSTOP)
        try:
            shutil.copytree(self.folder / name, copy)
        finally:
            self.processes[name].send_signal(signal.SIGCONT)
        return copy

    def put_back(self, name, copy, only=None):
        """`only`: a pattern; files that do not fit it stay as they are."""
        folder = self.folder / name
        if only is None:
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
            return
        for path in folder.glob(only):
            path.unlink()
        for path in copy.glob(only):
            shutil.copy2(path, folder / path.name)
