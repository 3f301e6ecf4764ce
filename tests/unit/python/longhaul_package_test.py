"""The package longhaul without a coordinator: records, pictures, and what it does with what a program prints.

usage: longhaul_package_test.py
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))
import longhaul  # noqa: E402
from longhaul.plot import points_of, ticks  # noqa: E402

RECORD = {"step": 3, "loss": 4.5, "has_validation": False, "validation_loss": 0.0, "gradient_norm": 1.5, "learning_rate": 1e-3,
          "seconds": 0.25, "payload_bytes": 4096, "numerics": 7}


def step(number, loss, **more):
    return longhaul.Step.of({**RECORD, "step": number, "loss": loss, **more})


def program(folder, script):
    """A program in the place of longhaul. It finds its arguments in sys.argv."""
    path = pathlib.Path(folder) / "longhaul"
    path.write_text(f"#!{sys.executable}\nimport json, sys\n{script}\n")
    path.chmod(0o755)
    return longhaul.Client("here:7070", "token", program=path)


class RecordsTest(unittest.TestCase):
    def test_what_was_not_measured_is_none(self):
        one = longhaul.Step.of(RECORD)
        self.assertEqual((one.step, one.loss, one.validation_loss, one.clean_validation_loss), (3, 4.5, None, None))
        self.assertEqual(one.raw["numerics"], 7)
        validated = step(4, None, has_validation=True, validation_loss=4.25, clean_validation_loss=4.125)
        self.assertEqual((validated.loss, validated.validation_loss, validated.clean_validation_loss), (None, 4.25, 4.125))
        self.assertIsNone(step(5, float("nan")).loss)


class PlotTest(unittest.TestCase):
    def test_points(self):
        steps = [step(1, 4.0), step(2, None), step(3, 3.0)]
        self.assertEqual(points_of(steps, "loss", "step"), [(1, 4.0), (3, 3.0)])
        self.assertEqual(points_of(steps, "loss", "seconds"), [(0.25, 4.0), (0.75, 3.0)])

    def test_ticks_are_round_and_within(self):
        self.assertEqual([round(tick, 9) for tick in ticks(2.93, 4.04)], [3.0, 3.5, 4.0])
        self.assertEqual(ticks(0, 1000), [0, 200, 400, 600, 800, 1000])

    def test_a_picture_is_xml_with_every_curve(self):
        picture = longhaul.plot({"none": [step(1, 4.0), step(2, 3.0)], "<b> & c": [step(1, 4.5), step(2, 3.5)], "later": []})
        root = xml.etree.ElementTree.fromstring(picture._repr_svg_())
        name = "{http://www.w3.org/2000/svg}"
        lines = [line.get("points") for line in root.iter(name + "polyline")]
        # From the upper to the lower edge: the largest value is the second run's first, the least the first run's last.
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[1].startswith("60.0,16.0 ") and lines[0].endswith(" 624.0,356.0"), lines)
        texts = [text.text for text in root.iter(name + "text")]
        self.assertIn("<b> & c", texts)
        self.assertNotIn("later", texts)
        with tempfile.TemporaryDirectory() as folder:
            path = picture.save(pathlib.Path(folder) / "curves.svg")
            self.assertEqual(path.read_text(), picture.svg)

    def test_what_cannot_be_drawn_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no step has a validation loss yet"):
            longhaul.plot({"a": [step(1, 4.0)]}, y="validation_loss")
        with self.assertRaisesRegex(ValueError, "expected x of step, seconds"):
            longhaul.plot({"a": [step(1, 4.0)]}, x="loss")


class ClientTest(unittest.TestCase):
    def test_flags_and_values_reach_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            client = program(folder, "print(json.dumps({'run_id': ' '.join(sys.argv[1:])}))")
            run = client.submit("run.yaml", set={"train.steps": 20, "links.forward": "tah:p=0.5", "data.text": ["a b"]}, resume=True)
        self.assertEqual(run.id, 'submit run.yaml --set train.steps=20 --set links.forward="tah:p=0.5" --set data.text=["a b"] '
                                 "--resume --json --coordinator here:7070 --token-file token")

    def test_a_mapping_is_a_run_file(self):
        with tempfile.TemporaryDirectory() as folder:
            client = program(folder, "print(json.dumps({'run_id': open(sys.argv[2]).read() + ' '.join(sys.argv[3:5])}))")
            run = client.submit({"name": "x", "train": {"steps": 3}})
        self.assertEqual(run.id, json.dumps({"name": "x", "train": {"steps": 3}}) + f"--relative-to {os.getcwd()}")

    def test_errors_are_what_the_program_said(self):
        with tempfile.TemporaryDirectory() as folder:
            client = program(folder, "sys.exit(sys.stderr.write('longhaul: run.yaml:1:1: no\\n') and 2)")
            with self.assertRaisesRegex(longhaul.Error, "^run.yaml:1:1: no$") as raised:
                client.submit("run.yaml")
            self.assertEqual(raised.exception.code, 2)
            with self.assertRaisesRegex(longhaul.Error, "^run.yaml:1:1: no$"):
                list(longhaul.Run(client, "a").follow())

    def test_steps_come_one_by_one(self):
        """The program waits for its end between the first step and the second: who follows it has the first by then."""
        with tempfile.TemporaryDirectory() as folder:
            gate = pathlib.Path(folder) / "gate"
            os.mkfifo(gate)
            client = program(folder, f"if sys.argv[1] == 'status': print({json.dumps(json.dumps(status('done')))}); sys.exit()\n"
                             f"record = {RECORD!r}\nprint(json.dumps(record), flush=True)\nopen({str(gate)!r}).read()\n"
                             "print(json.dumps({**record, 'step': 4}))")
            steps = longhaul.Run(client, "a").follow()
            self.assertEqual(next(steps).step, 3)
            gate.write_text("go")
            self.assertEqual([one.step for one in steps], [4])

    def test_a_loop_that_is_left_ends_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            gate = pathlib.Path(folder) / "gate"
            os.mkfifo(gate)
            client = program(folder, f"print(json.dumps({RECORD!r}), flush=True)\nopen({str(gate)!r}).read()")
            steps = longhaul.Run(client, "a").follow()
            next(steps)
            steps.close()  # hangs where the program goes on

    def test_a_failed_run_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            client = program(folder, "if sys.argv[1] == 'status': print(" + json.dumps(json.dumps(status("failed"))) + ")")
            with self.assertRaisesRegex(longhaul.RunFailed, "run a-1 failed at step 2 of 9: it broke"):
                longhaul.Run(client, "a").wait()


def status(state):
    return {"run_id": "a-1", "name": "a", "state": state, "reason": "it broke", "step": 2, "steps": 9, "tokens_per_second": 1.0,
            "seconds_left": 0.0}


if __name__ == "__main__":
    unittest.main()
