"""A broken promise ends a benchmark with a failure, and every benchmark can break one."""
import contextlib
import inspect
import io
import math
import unittest

import run
from promises import Promises


def held(check, slack=1.0):
    promises = Promises(slack)
    with contextlib.redirect_stderr(io.StringIO()):
        check(promises)
    return promises.held


class PromisesTest(unittest.TestCase):
    def test_limits(self):
        for figure, wanted in [(1.0, True), (0.9, True), (1.1, True), (0.8, False), (1.2, False), (math.nan, False),
                               (math.inf, False)]:
            with self.subTest(figure):
                self.assertEqual(held(lambda p, f=figure: p.within("it", f, least=0.9, most=1.1)), wanted)

    def test_slack_widens_limits_and_nothing_else(self):
        self.assertTrue(held(lambda p: p.within("it", 2.1, most=1.1), slack=2))
        self.assertFalse(held(lambda p: p.within("it", 2.3, most=1.1), slack=2))
        self.assertTrue(held(lambda p: p.within("it", 0.5, least=0.9), slack=2))
        self.assertFalse(held(lambda p: p.trained("it", [], 1), slack=100))

    def test_steps(self):
        two = [{"loss": 3.0}, {"loss": 2.0}]
        self.assertTrue(held(lambda p: p.trained("it", two, 2)))
        self.assertFalse(held(lambda p: p.trained("it", two, 3)))
        self.assertFalse(held(lambda p: p.trained("it", [{"loss": 3.0}, {"loss": math.nan}], 2)))

    def test_one_that_held_mends_nothing(self):
        def check(promises):
            promises.holds("one", False)
            promises.holds("two", True)
        self.assertFalse(held(check))

    def test_every_benchmark_can_fail(self):
        for name, module in run.BENCHMARKS.items():
            with self.subTest(name):
                self.assertNotRegex(inspect.getsource(module.measure), r"return (True|.* or arguments\.device ==)")


if __name__ == "__main__":
    unittest.main()
