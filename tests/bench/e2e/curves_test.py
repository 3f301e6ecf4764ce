"""curves.py, killed, stopped, and called again until it is done. Argument: the folder of the programs.
Ends with 77 where there are no rights for network namespaces."""
import contextlib
import glob
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from curves import UNFINISHED
from needs import without_root

CURVES = pathlib.Path(__file__).resolve().parent / "curves.py"
PROGRAMS = ""
STEPS = 600  # many more than the daemons that a kill leaves train before they are found
TINY = ["--layers", "2", "--hidden", "32", "--heads", "2", "--context", "32", "--microbatches", "16",
        "--steps", str(STEPS), "--warm-up", "5", "--validate-every", "100", "--validation-samples", "4",
        "--checkpoint-every", "10", "--dtype", "fp32", "--lr", "2e-3",
        "--text", "/usr/share/common-licenses/GPL-2", "--rate", "100mbit", "--rate-steps", "1",
        "--step-seconds", "paper=36"]
PATIENCE_S = 60


def start(out, *more, **options):
    return subprocess.Popen([sys.executable, CURVES, PROGRAMS, "--out", out, *TINY, *more],
                            stdout=subprocess.PIPE, text=True, **options)


def finish(out, *more):
    """The exit code, and what it printed."""
    with start(out, *more) as process:
        printed, _ = process.communicate(timeout=3 * PATIENCE_S)
        return process.returncode, printed


def await_checkpoint(folder, later_than):
    """Gives the time at which it was written."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        times = []
        for path in glob.glob(f"{folder}/**/*.params.safetensors", recursive=True):
            with contextlib.suppress(FileNotFoundError):  # an older one that goes
                times.append(os.stat(path).st_mtime_ns)
        if times and max(times) > later_than:
            return max(times)
        time.sleep(0.01)
    raise AssertionError(f"no checkpoint under {folder} in {PATIENCE_S} s")


class Curves(unittest.TestCase):
    def killed_and_stopped(self, broken):
        """What was written of a curve whose program was killed, begun again and stopped."""
        with start(broken, "--codecs", "none", "paper") as process:
            written = await_checkpoint(broken, 0)
            process.kill()
        self.assertFalse((broken / "none.json").exists())

        with start(broken, "--codecs", "none", "paper", stderr=subprocess.PIPE) as process:
            # The daemons that the kill left write checkpoints, too, until they are found.
            self.assertIn("none: begins", process.stderr.readline())
            await_checkpoint(broken, written)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, UNFINISHED, said)
        return json.loads((broken / "none.json").read_text())

    def test_goes_on_after_a_kill_and_a_stop_as_if_unbroken(self):
        with tempfile.TemporaryDirectory(prefix="longhaul-curves-") as name:
            whole = pathlib.Path(name) / "whole"
            for attempt in range(5):
                broken = pathlib.Path(name) / f"broken{attempt}"
                stopped = self.killed_and_stopped(broken)
                if stopped["state"] != "done":
                    break
                print("trained to its end by the daemons that the kill left", file=sys.stderr)
            self.assertEqual(stopped["state"], "stopped")
            self.assertLess(len(stopped["steps"]), STEPS)

            # Where it lies does not matter.
            moved = broken.rename(broken.with_name("moved"))
            code, printed = finish(moved, "--codecs", "none", "paper")
            self.assertEqual(code, 0, printed)
            self.assertEqual(finish(whole, "--codecs", "none")[0], 0)

            result, unbroken = (json.loads((folder / "curves.json").read_text())
                                for folder in (moved, whole))
            none, paper = result["pairs"]
            self.assertEqual([step["step"] for step in none["steps"]], list(range(1, STEPS + 1)))
            self.assertEqual([(step["loss"], step["validation_loss"]) for step in none["steps"]],
                             [(step["loss"], step["validation_loss"])
                              for step in unbroken["pairs"][0]["steps"]])
            self.assertEqual([point["step"] for point in none["curve"]], list(range(100, STEPS + 1, 100)))
            self.assertGreater(none["step_seconds"], 0)
            self.assertEqual(paper["curve"][-1]["hours"], STEPS * 36 / 3600)
            self.assertNotEqual(paper["curve"], none["curve"])
            drawn = json.loads(re.search('id="data">(.*?)</script>', (moved / "curves.html").read_text(), re.DOTALL)[1])
            self.assertEqual([len(point["losses"]["values"]) for point in drawn["points"]], [len(one["curve"]) for one in (none, paper)])
            self.assertEqual(drawn["points"][1]["losses"]["seconds"][-1], STEPS * 36)
            self.assertIn("paper", printed)

            # Done: it only reports. With other settings it refuses.
            self.assertEqual(finish(moved, "--codecs", "none", "paper")[0], 0)
            self.assertEqual(finish(moved, "--lr", "1")[0], 1)


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit(without_root("network namespaces need root"))
    PROGRAMS = sys.argv.pop(1)
    unittest.main()
