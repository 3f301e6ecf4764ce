"""expect_output.py holds both the exit code and the output of a command."""
import pathlib
import subprocess
import sys
import unittest

EXPECT = pathlib.Path(__file__).resolve().parent / "expect_output.py"
TESTS = EXPECT.parents[1]


def exit_code(pattern, script):
    return subprocess.run([sys.executable, EXPECT, pattern, "sh", "-c", script], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


class ExpectOutput(unittest.TestCase):
    def test_holds_the_exit_code_and_the_output(self):
        self.assertEqual(exit_code("one.*two", "echo one; echo two >&2"), 0)
        self.assertEqual(exit_code("one", "echo one; exit 3"), 3)
        self.assertEqual(exit_code("one", "echo two"), 1)
        self.assertEqual(exit_code("one", "echo one; kill -9 $$"), 1)
        self.assertEqual(exit_code("one", "exit 77"), 77)  # skipped

    def test_no_test_ignores_exit_codes(self):
        for path in TESTS.rglob("CMakeLists.txt"):
            with self.subTest(path):
                self.assertNotIn("PASS_REGULAR_EXPRESSION", path.read_text(), "use expect_output.py")


if __name__ == "__main__":
    unittest.main()
