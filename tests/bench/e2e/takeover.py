"""How long a standby takes to take over from a coordinator that is killed, while workers train.

Two coordinators and two workers on the loopback interface; the one that was killed follows the other, and then it is the
other's turn. Rows go to --csv.
"""
import json
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

import needs
from cluster import Failed
from loopback import Daemons
from report import Table, append_rows, machine

NEEDS_ROOT = False

RUN = """\
name: takeover
model: {{ family: gpt, layers: 4, hidden: 64, heads: 4, context: 64 }}
data: {{ text: [{text}], tokenizer: bytes }}
train: {{ steps: 1000000, microbatches: 4 }}
pipeline: {{ stages: 2 }}
transport: grpc
links: {{ forward: tah, backward: "fixed:bits=4" }}
checkpoint: {{ every: 100 }}
recovery: {{ attempts: 0 }}
"""
LIMIT_S, PATIENCE_S = 10, 120
COLUMNS = ["kill", "answers", "new step", "steps without a record"]


def add_arguments(parser):
    parser.add_argument("--kills", type=int, default=5, help="default %(default)s")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS",
                        help="to a new step, default %(default)s")
    parser.add_argument("--csv", type=pathlib.Path, help="file to add the rows to")


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)


def table_of(arguments):
    return Table(f"Seconds from a kill of the coordinator to its standby's first answer, and to the first step that it records; "
                 f"at most {LIMIT_S} s are expected", COLUMNS)


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Pair(Daemons):
    """Its coordinators are called `coordinator` and `standby` after what they are at first."""

    def __init__(self, programs, folder):
        self.addresses = {"coordinator": free_address(), "standby": free_address()}
        super().__init__(programs, folder, 2, ["--data-address", "127.0.0.1:0", "--transport", "grpc"])

    def _start(self, name, program, *arguments):
        if name == "coordinator" and len(self.processes) == 0:
            arguments = ["--listen", self.addresses[name]]
        if name.startswith("worker"):
            arguments = [self.both() if one == self.address else one for one in arguments]
        super()._start(name, program, *arguments)

    def both(self):
        return ",".join(self.addresses.values())

    def follow(self, name, leader):
        self._start(name, "longhaul-coordinator", "--listen", self.addresses[name], "--standby", self.addresses[leader])
        process = self.processes[-1]
        if not (self.folder / "witness").exists():
            self.watch()
        record = self.folder / leader / "leadership.json"
        witness = self.folder / "witness/witness.json"
        self._wait("both to be in sync", lambda: all(
            path.exists() and len(json.loads(path.read_text())["in_sync"]) == 2 for path in (record, witness)))
        return process

    def watch(self):
        token = self.folder / "witness-token"
        token.touch(mode=0o600)
        token.write_text(self.cli("token", "create", "--role", "witness"))
        with open(self.folder / "witness.log", "w", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen(
                [self.programs / "longhaul-coordinator", "witness", "--coordinator", self.both(), "--state-dir",
                 self.folder / "witness", "--token-file", token], stdout=log, stderr=log))

    def step(self, run):
        """The last one; None where nobody answers."""
        done = subprocess.run([self.programs / "longhaul", "status", run, "--json", "--coordinator", self.both(),
                               "--token-file", self.token], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return int(json.loads(done.stdout).get("step", 0)) if done.returncode == 0 else None


def await_step(pair, run, later_than):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        step = pair.step(run)
        if step is not None and step > later_than:
            return step
        time.sleep(0.02)
    raise Failed(f"no step after {PATIENCE_S} s")


def missing(pair, run):
    """Steps between the first and the last that have no record."""
    pair.address = pair.both()
    steps = [int(json.loads(line)["step"]) for line in pair.cli("steps", run, "--json").splitlines()]
    return steps[-1] - steps[0] + 1 - len(steps)


def measure(arguments, table):
    rows = []
    with tempfile.TemporaryDirectory(prefix="longhaul-takeover-") as folder, \
            Pair(arguments.programs.resolve(), pathlib.Path(folder)) as pair:
        text, run_file = pair.folder / "text.txt", pair.folder / "run.yaml"
        text.write_text("It was a dark and stormy night. " * 4000)
        run_file.write_text(RUN.format(text=text))
        run = pair.cli("submit", run_file).split()[0]
        leader, follower, leading = "coordinator", "standby", pair.processes[0]
        for kill in range(1, arguments.kills + 1):
            following = pair.follow(follower, leader)
            await_step(pair, run, 0)
            began = time.monotonic()
            leading.kill()
            leading.wait()
            at = await_step(pair, run, -1)
            answered = time.monotonic() - began
            await_step(pair, run, at)
            trained = time.monotonic() - began
            lost = missing(pair, run)
            table.add(kill, f"{answered:.2f} s", f"{trained:.2f} s", lost)
            rows.append({"kill": kill, "answers_s": f"{answered:.3f}", "new_step_s": f"{trained:.3f}", "steps_missing": lost,
                         "machine": machine()})
            leader, follower, leading = follower, leader, following
    if arguments.csv:
        append_rows(arguments.csv, list(rows[0]), rows)
    slowest = max(float(row["new_step_s"]) for row in rows)
    print(f"median {statistics.median(float(row['new_step_s']) for row in rows):.2f} s to a new step, slowest {slowest:.2f} s")
    return slowest <= arguments.limit and not any(row["steps_missing"] for row in rows)
