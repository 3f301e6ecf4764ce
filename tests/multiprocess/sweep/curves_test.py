"""`longhaul curves`: runs with several pairs of codecs without root, codecs that are classes of Python among them.

usage: curves_test.py BIN_DIR

A class that loses nothing has the losses of `none`, bit by bit. One that dies, and one whose module may not run, are
points that failed with a sentence; the others run. Nothing is left. With LONGHAUL_TEST_GPUS=1 the workers share a GPU, from
which tensors go to the classes and back.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2] / "support"))
CODECS = HERE.parents[2] / "support/python_codecs"
SKIPPED = 77
DEVICE = ["--device", "cuda:0"] if int(os.environ.get("LONGHAUL_TEST_GPUS", "0")) else []
DEADLINE_S = 200

STUDY = """\
title: A <little> study
base:
  name: little
  model: { family: gpt, layers: 2, hidden: 32, heads: 2, context: 32 }
  data: { text: [text.txt], tokenizer: bytes }    # relative to this file
  validation: { share: 0.1, every: 2, samples: 2 }
  train: { steps: 4, microbatches: 2, seed: 5 }
  pipeline: { stages: 2 }
  checkpoint: { every: 0, keep: 1 }
  recovery: { attempts: 0 }
links:
  none: exact
  same: { forward: "python:python_codecs:Planes,bits=33", backward: "python:python_codecs:Planes,bits=33" }
"""
FAULTY = """\
  dies: { forward: none, backward: "python:python_codecs:Mortal,step=3" }
  foreign: { forward: "python:os:abort", backward: none }
"""


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


class Study:
    def __init__(self, programs, folder):
        self.program, self.folder, self.out = pathlib.Path(programs).resolve() / "longhaul", pathlib.Path(folder), pathlib.Path(folder) / "out"
        (self.folder / "texts").mkdir()
        (self.folder / "texts/text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)

    def run(self, text, code, *flags):
        (self.folder / "texts/study.yaml").write_text(text)
        done = subprocess.run([self.program, "curves", self.folder / "texts/study.yaml", "--out", self.out, *DEVICE, *flags],
                              capture_output=True, text=True, check=False, timeout=DEADLINE_S, cwd=CODECS)
        check(done.returncode == code, "exit code", done.returncode, done.stdout, done.stderr)
        return done

    def points(self):
        return {point["links"]: point for point in json.loads((self.out / "results.json").read_text())["points"]}

    def nothing_left(self):
        check(not (self.out / ".cluster").exists(), "the cluster's folder is left")
        for command in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = command.read_bytes()
            except OSError:
                continue
            check(str(self.folder).encode() not in words, "a daemon is left:", words)


def refused(study):
    done = study.run(STUDY.replace("layers: 2", "layers: two"), 1)
    check("study.yaml:4:33: model.layers: expected a whole number" in done.stderr, done.stderr)
    done = study.run("rates: [1gbit]\n" + STUDY, 1)
    check("losses do not depend on them" in done.stderr and "longhaul sweep" in done.stderr, done.stderr)
    check(not study.out.exists(), "something was started")


def compared(study):
    done = study.run(STUDY + FAULTY, 1, "--python-codec", "python_codecs")
    points = study.points()
    check("2 of 4 points done, 2 failed" in done.stderr, done.stderr)
    none, same = points["none"], points["same"]
    losses = [[(step["step"], step["loss"], step["validation_loss"]) for step in point["curve"]] for point in (none, same)]
    check(losses[0] == losses[1] and [loss[0] for loss in losses[0]] == [1, 2, 3, 4], losses)
    check(0 < same["payload_bytes_per_step"] < none["payload_bytes_per_step"], same, none)
    check("was killed by signal 9" in points["dies"]["reason"] and "python:python_codecs:Mortal" in points["dies"]["reason"],
          points["dies"])
    check("the module os of Python may not run here (permitted: python_codecs)" in points["foreign"]["reason"], points["foreign"])
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    check([row[0] for row in rows] == ["codecs", "none", "same", "dies", "foreign"], rows)
    check(rows[1][3:5] == rows[2][3:5] == [f"{losses[0][-1][1]:.4f}", f"{losses[0][-1][2]:.4f}"], rows)
    report = (study.out / "report.html").read_text()
    check("A &lt;little&gt; study" in report and "Loss" in report and "<h2>Throughput" not in report, "report")
    # Again: nothing to do.
    before = (study.out / "results.json").read_bytes()
    check("going on: 0 of 4 points are left" in study.run(STUDY + FAULTY, 1, "--python-codec", "python_codecs").stderr, "it ran again")
    check((study.out / "results.json").read_bytes() == before, "results changed")


def has_numpy():
    pythons = [os.environ.get("LONGHAUL_PYTHON", ""), str(HERE.parents[3] / ".deps/venv/bin/python"), "python3"]
    return any(python and subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0
               for python in pythons if not python or "/" not in python or pathlib.Path(python).exists())


def main():
    if not has_numpy():
        print("skipped: there is no Python with numpy", file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="longhaul-curves-") as folder:
        study = Study(sys.argv[1], folder)
        refused(study)
        compared(study)
        study.nothing_left()
    print("ok: the curves of codecs, with classes of Python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
