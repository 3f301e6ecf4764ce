"""The state folders of a whole installation: two coordinators, their witness and two workers, with two runs. They are
kept packed, one archive for each version from 0.2.0 on, and opened by today's programs (upgrade_test.py).

usage: kept_state.py BIN_DIR ARCHIVE.tar.xz

makes the archive of the version in BIN_DIR. Do that once for every release, and do not change archives that exist.
"""
import contextlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "leadership"))
from namespaces import OneMachine  # noqa: E402
from trio import SEATS, Trio, other, wait_for  # noqa: E402

DAEMONS = (*SEATS, "witness", "worker1", "worker2")
# What a machine would carry over: folders of state, who the user is, tokens.
KEPT = (*DAEMONS, "home", "token", "witness.token", "golden.json", "done.yaml", "stopped.yaml", "text.txt")
STEPS, STOPPED_AFTER = 24, 10
RUN = """\
name: {name}
model: {{ family: gpt, layers: 2, hidden: 16, heads: 2, context: 32 }}
data: {{ text: [text.txt], tokenizer: bytes, seed: 3 }}
validation: {{ share: 0.1, every: 10, samples: 4 }}
train:
  steps: {steps}
  microbatches: 2
  microbatch_size: 2
  seed: 5
  optimizer: {{ kind: adamw, lr: 3e-3 }}
  schedule: {{ kind: constant, warmup: 2 }}
pipeline: {{ stages: 2, placement: names }}
transport: tcp
links: {{ forward: tah, backward: "fixed:bits=4,rounding=stochastic", measure: false }}
checkpoint: {{ every: 4, keep: 1 }}
recovery: {{ attempts: 0 }}
"""


class Installation(Trio):
    """Two coordinators, a witness and two workers, which open the folders of state in `folder`, or make new ones."""

    def __init__(self, programs, folder):
        self.opened = all((pathlib.Path(folder) / name).is_dir() for name in DAEMONS)
        for name in DAEMONS:
            (pathlib.Path(folder) / name / "address").unlink(missing_ok=True)  # of a port that others may have now
        super().__init__(programs, folder, OneMachine())
        text = self.folder / "text.txt"  # short, so that the archive is small
        text.write_text(text.read_text()[:20_000])

    def start(self, name, program, *arguments, cwd=None):
        super().start(name, program, *arguments, cwd=cwd)
        if name == "coordinator" and self.opened:  # neither leads without a vote
            super().start_witness()
            self.start_seat("two")

    def start_seat(self, seat, *flags):
        if seat in self.processes:
            return
        is_new = seat == "two" and not self.opened
        self.spawn(seat, "longhaul-coordinator", "--listen", self.addresses[seat],
                   "--standby" if is_new else "--peer", self.addresses[other(seat)], *flags)

    def start_witness(self, anew=False):
        if "witness" not in self.processes:
            super().start_witness(anew)

    def submit_kept(self, name, steps, *flags):
        path = self.folder / f"{name}.yaml"
        path.write_text(RUN.format(name=name, steps=steps))
        return self.cli("submit", path, *flags).stdout.split()[0]

    def resume_kept(self, name, steps):
        path = self.folder / f"{name}.yaml"
        path.write_text(RUN.format(name=name, steps=steps))
        return self.cli("submit", path, "--resume", "--watch").stdout.split()[0]

    def await_state(self, run, state):
        wait_for(f"{run} to be {state}", lambda: self.status(run)["state"] == state)


@contextlib.contextmanager
def clock_of(programs, folder, unix_s):
    """Children have a wall clock that begins at that time: certificates of the archive are valid for some weeks."""
    shift = pathlib.Path(folder) / "clock"
    shift.write_bytes(struct.pack("=q", round(unix_s - time.time())))
    os.environ["LD_PRELOAD"] = str(pathlib.Path(programs).resolve() / "liblonghaul_clock_shift.so")
    os.environ["LONGHAUL_TEST_CLOCK_SHIFT"] = str(shift)
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"], os.environ["LONGHAUL_TEST_CLOCK_SHIFT"]


def make(programs, archive):
    version = subprocess.run([pathlib.Path(programs) / "longhaul", "--version"], capture_output=True, text=True,
                             check=True).stdout.split()[-1]
    with tempfile.TemporaryDirectory(prefix="longhaul-kept-") as folder:
        with Installation(programs, folder) as kept:
            done = kept.submit_kept("done", STEPS, "--watch")
            unbroken = kept.submit_kept("unbroken", STEPS, "--watch")
            losses = kept.losses(unbroken)
            kept.cli("rm", unbroken)
            stopped = kept.submit_kept("stopped", STOPPED_AFTER, "--watch")
            kept.await_pair()
            golden = {"version": version, "made_unix_s": int(time.time()),
                      "done": done, "stopped": stopped, "losses_done": kept.losses(done),
                      "losses_stopped": kept.losses(stopped), "losses_unbroken": losses,
                      "terms": {seat: kept.leadership(seat)["term"] for seat in SEATS}}
        pathlib.Path(folder, "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
        pathlib.Path(folder, "coordinator").unlink()
        with tarfile.open(archive, "w:xz", preset=9) as packed:
            for name in KEPT:
                packed.add(pathlib.Path(folder, name), name)
    print(f"{archive}: version {golden['version']}, {os.path.getsize(archive) / 1e3:.0f} kB")


if __name__ == "__main__":
    if len(sys.argv) != 3 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    make(sys.argv[1], sys.argv[2])
