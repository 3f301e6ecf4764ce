"""What the tests of `longhaul steps --wandb` and `--mlflow` share: recorded rows, the program, reading W&B's files."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[4]
SOURCES = ROOT / "deploy/steps"
SKIPPED = 77
BEGAN_MS = 1_700_000_000_000
TOKENS = 1024
RUN_FILE = """\
name: tiny
train:
  steps: 8
  optimizer: { lr: 1e-05, nesterov: false }
links: { forward: "tah:4", backward: none }
data: { sets: [a, b] }
"""
sys.path.insert(0, str(SOURCES))


def main(*packages):
    """Runs the tests of the calling file. Without the packages it is skipped by name."""
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            print(f"skipped: {sys.executable}: {error}; deploy/setup.sh --log brings it")
            sys.exit(SKIPPED)
    unittest.main()


def run_line(state="running", **others):
    run = {"id": "tiny-abc123", "name": "tiny", "state": state, "reason": "", "replay": False,
           "ended": state in ("done", "stopped", "failed"), "began_unix_ms": BEGAN_MS, "ended_unix_ms": 0,
           "run_file": RUN_FILE, "tokens_of_replica": TOKENS}
    return {"run": {**run, **others}}


def row(step, **others):
    """A row as `longhaul steps --json` prints it."""
    made = {"step": step, "epoch": 1, "loss": 5 - step / 3, "gradient_norm": 1 / (1 + step),
            "learning_rate": 1e-3 * step, "seconds": 0.5, "has_validation": False, "validation_loss": 0.0,
            "clean_validation_loss": None, "link_bytes": 1000 * step, "payload_bytes": 900 * step, "expert_load": None,
            "squared_norms": [0.25, 4.0], "numerics": 17, "replicas": 1, "first_microbatch": 4 * step}
    if step == 0:
        made.update(loss=None, gradient_norm=0.0, seconds=0.0, squared_norms=[], replicas=0, has_validation=True,
                    validation_loss=6.5)
    return {**made, **others}


class StepsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def start(self, *flags, **environment):
        """The program. No login of the machine on which the tests run is found, and no server is reached."""
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "WANDB_MODE": "offline", **environment}
        if "PYTHONPATH" in os.environ:
            variables.setdefault("PYTHONPATH", os.environ["PYTHONPATH"])
        process = subprocess.Popen([sys.executable, "-B", SOURCES / "main.py", *flags], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                   env=variables)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def pipe(self, lines, *flags, code=0, **environment):
        """Pipes the lines into the program. Returns its answers; with another exit code than 0, its error."""
        text = "".join(json.dumps(line) + "\n" if line else "\n" for line in lines)
        process = self.start(*flags, **environment)
        out, error = process.communicate(text, timeout=120)
        self.assertEqual(process.returncode, code, out + error)
        self.assertNotIn("Traceback", out + error)
        answers = [line.split(" ", 1) for line in out.splitlines()]
        if code != 0:
            self.assertEqual([word for word, _ in answers][-1:], ["error"], out + error)
            return answers[-1][1]
        self.assertEqual(error, "")
        return answers

    def logged(self, answers):
        return [text for word, text in answers if word == "logged"]


def wandb_records(path):
    """Records of one of W&B's files: a log of LevelDB behind 7 bytes. The package writes such files, and has no reader
    of them for Python."""
    from wandb.proto import wandb_internal_pb2

    block, data, at, parts = 32768, pathlib.Path(path).read_bytes(), 7, b""
    assert data[:4] == b":W&B", data[:7]
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        parts += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def items(update):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in update}


class WandbFiles:
    """All that the runs of a folder have, in the order of their names."""

    def __init__(self, folder):
        self.rows, self.config, self.summary, self.runs, self.exits = [], {}, {}, [], []
        for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
            for record in wandb_records(path):
                self._take(record)

    def _take(self, record):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            values = items(record.history.item)
            self.rows.append({key: value for key, value in values.items() if not key.startswith("_") or key == "_step"})
        elif kind == "config":
            self.config.update(items(record.config.update))
        elif kind == "summary":
            self.summary.update(items(record.summary.update))
        elif kind == "run":
            self.runs.append(record.run)
            self.config.update(items(record.run.config.update))
        elif kind == "exit":
            self.exits.append(record.exit.exit_code)
