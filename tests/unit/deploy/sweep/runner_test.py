"""How long a sweep still takes, and how it waits for a run."""
import subprocess
import sys
import unittest

import sample  # noqa: F401 (finds longhaul_sweep)
from longhaul_sweep.cluster import Failed, call
from longhaul_sweep.runner import Runner, TimeLeft, statuses


class TimeLeftTest(unittest.TestCase):
    def test_counts_network_and_what_points_took_beyond(self):
        left = TimeLeft([10, 20, 5])
        left.begin()
        self.assertIsNone(left.estimate(8))  # how much the others take beyond their links is not known
        left.ended(13)
        left.begin()
        self.assertIsNone(left.estimate(0))
        self.assertEqual(left.estimate(8), 8 + 5 + 3)
        left.ended(19)  # faster than its links allow: nothing beyond
        left.begin()
        self.assertEqual(left.estimate(4), 4)

    def test_the_only_point_is_known_at_once(self):
        left = TimeLeft([10])
        left.begin()
        self.assertEqual(left.estimate(7), 7)


class WaitingTest(unittest.TestCase):
    def test_lines_that_come_in_pieces(self):
        program = "import sys, time\nfor part in ('{\"a\":', ' 1}\\n{\"a\": 2}\\n'):\n  print(part, end='', flush=True)\n  time.sleep(0.4)\n"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            seen = list(statuses(process))
        self.assertEqual([one for one in seen if one], [{"a": 1}, {"a": 2}])
        self.assertIn(None, seen)  # patience is looked at also where nothing comes

    def test_patience(self):
        status = {"state": "queued", "step": 0, "steps": 0, "reason": "no workers"}
        with self.assertRaisesRegex(Failed, "waited 1m00s in vain for its workers: no workers"):
            Runner._check_patience(status, 61, 1)
        Runner._check_patience({**status, "state": "running"}, 61, 1)
        with self.assertRaisesRegex(Failed, "nothing has changed for 20m00s at step 0"):
            Runner._check_patience({**status, "state": "running"}, 2000, 1300)

    def test_a_program_that_fails_says_why(self):
        failing = [sys.executable, "-c", "import sys; sys.exit('no such run')"]
        with self.assertRaisesRegex(Failed, "^no such run$"):
            call(failing, plain=True)
        with self.assertRaisesRegex(Failed, "ended with 1:\nno such run$"):
            call(failing)


if __name__ == "__main__":
    unittest.main()
