"""Benchmarks look for what they need before they measure, and keep what they have when a later part fails."""
import argparse
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import run
from cluster import Failed
from report import Table

HERE = pathlib.Path(__file__).resolve().parent


def arguments_of(module, *words):
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(words)


class Needs(unittest.TestCase):
    def test_every_benchmark_of_run_names_all_missing_programs_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, module in run.BENCHMARKS.items():
                arguments = arguments_of(module)
                arguments.programs = pathlib.Path(folder)
                with self.subTest(name), self.assertRaises(Failed) as caught:
                    module.check_needs(arguments)
                for program in ("longhaul-coordinator", "longhaul-worker", "ninja -C"):
                    self.assertIn(program, str(caught.exception))

    def test_the_others_do_so_too(self):
        root = os.geteuid() == 0
        with tempfile.TemporaryDirectory() as folder:
            for words in (["boundaries.py", "--programs", folder], ["stage_eager.py", folder],
                          *([["peers.py", folder], ["curves.py", folder, "--out", f"{folder}/out"]]
                            if root else [])):
                done = subprocess.run([sys.executable, HERE / words[0], *words[1:]], text=True,
                                      capture_output=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 1, words)
                self.assertIn("missing; build with: ninja -C", done.stderr)
            self.assertEqual(os.listdir(folder), [], "something was begun")

    def test_a_text_that_is_not_there_is_said_first(self):
        arguments = arguments_of(run.BENCHMARKS["codecs"], "--text", "/nowhere/text")
        arguments.programs = "unused"
        with mock.patch("needs.check_programs"), self.assertRaisesRegex(Failed, "/nowhere/text"):
            run.BENCHMARKS["codecs"].check_needs(arguments)


class Partial(unittest.TestCase):
    def test_what_was_measured_before_a_failure_is_printed_and_written(self):
        benchmark = mock.Mock()
        benchmark.table_of.return_value = Table("Some", ["what", "figure"])

        def measure(_, table):
            table.add("first", 1)
            raise Failed("the second")

        benchmark.measure.side_effect = measure
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.dict(run.BENCHMARKS, {"some": benchmark}):
            path = pathlib.Path(folder) / "some.json"
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), \
                    self.assertRaisesRegex(Failed, "the second"):
                run.measure(argparse.Namespace(name="some", json=path))
            written = json.loads(path.read_text())
        self.assertIn("INCOMPLETE", printed.getvalue())
        self.assertIn("first", printed.getvalue())
        self.assertEqual(written["rows"], [{"what": "first", "figure": "1"}])
        self.assertFalse(written["complete"])


if __name__ == "__main__":
    unittest.main()
