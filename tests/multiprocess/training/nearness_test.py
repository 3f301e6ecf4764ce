"""nearness.py fails on what is far and on what is no number, and tests compare with nothing else."""
import contextlib
import io
import math
import pathlib
import re
import unittest

from nearness import expect_near, furthest

TESTS = pathlib.Path(__file__).resolve().parents[2]
# A maximum of differences drops NaN, unless NaN comes first. Pages of results (bench/figures) print rows and judge nothing.
OWN_MAXIMUM = re.compile(r"\bmax\(\s*abs\(")


def near(*arguments, **options):
    with contextlib.redirect_stdout(io.StringIO()):
        return expect_near("losses", *arguments, **options)


class Nearness(unittest.TestCase):
    def test_says_how_far_the_furthest_is(self):
        self.assertAlmostEqual(near([1.0, 2.02, -4.0], [1.0, 2.0, -4.0], bound=0.011), 0.01)
        self.assertAlmostEqual(near([1.0, 20.5], [1.0, 20.0], bound=0.6, relative=False), 0.5)
        self.assertEqual(near([3.0], [3.0], bound=0), 0)

    def test_fails_on_what_is_far(self):
        for got, wanted in [([1.0, 2.1], [1.0, 2.0]), ([-1.0], [1.0]), ([2.1, 1.0], [2.0, 1.0])]:
            with self.subTest(got), self.assertRaisesRegex(AssertionError, "losses differ by"):
                near(got, wanted, bound=0.01)

    def test_fails_on_what_is_not_finite(self):
        for bad in (math.nan, math.inf, -math.inf):
            for place in range(3):
                one = [1.0, 2.0, 3.0]
                other = list(one)
                other[place] = bad
                for got, wanted in [(other, one), (one, other), (other, other)]:
                    with self.subTest(got=got, wanted=wanted), self.assertRaisesRegex(AssertionError, "expected finite"):
                        near(got, wanted, bound=math.inf)

    def test_fails_on_other_counts_and_on_none(self):
        for got, wanted in [([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([], [])]:
            with self.subTest(got), self.assertRaisesRegex(AssertionError, "numbers, expected"):
                furthest("losses", got, wanted)

    def test_no_other_test_takes_a_maximum_of_differences(self):
        self.assertRegex("worst = max(abs(a - b) for", OWN_MAXIMUM)
        for path in TESTS.rglob("*.py"):
            if path.name not in ("nearness.py", "nearness_test.py") and TESTS / "bench/figures" not in path.parents:
                with self.subTest(path):
                    self.assertIsNone(OWN_MAXIMUM.search(path.read_text()), "use furthest() or all() with a bound")


if __name__ == "__main__":
    unittest.main()
