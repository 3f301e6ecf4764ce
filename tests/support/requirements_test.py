"""A test that lacks root is skipped, or fails where root is required; no test decides that by itself."""
import contextlib
import io
import os
import pathlib
import re
import unittest
from unittest import mock

from requirements import SKIPPED, rootless, without_root

TESTS = pathlib.Path(__file__).resolve().parents[1]
ASKS = re.compile(r"geteuid\(\) != 0|CheckRequirements\(ThisMachine")
SKIPS = re.compile(r"\b77\b|[Ss]kipped|SKIPPED|without_root")
TELLS = re.compile(r"without_root\(|rootless\(|LONGHAUL_REQUIRE_ROOT")


def code(**environment):
    with mock.patch.dict(os.environ, environment), contextlib.redirect_stderr(io.StringIO()) as said:
        if not environment:
            os.environ.pop("LONGHAUL_REQUIRE_ROOT", None)
        return without_root("there is no root"), said.getvalue()


class Requirements(unittest.TestCase):
    def test_skipped_or_failed(self):
        self.assertEqual(code(), (SKIPPED, "skipped: there is no root\n"))
        self.assertEqual(code(LONGHAUL_REQUIRE_ROOT="1"), (1, "LONGHAUL_REQUIRE_ROOT is set, but there is no root\n"))

        with mock.patch.dict(os.environ, {"LONGHAUL_REQUIRE_ROOT": "1"}):
            self.assertIsInstance(rootless("why", KeyError), AssertionError)
        with mock.patch.dict(os.environ, {"LONGHAUL_REQUIRE_ROOT": ""}):
            self.assertIsInstance(rootless("why", KeyError), KeyError)

    def test_all_who_ask_for_root_may_be_made_to_fail(self):
        asking = 0
        for path in [*(TESTS / "multiprocess").rglob("*"), *(TESTS / "deploy").rglob("*"), *(TESTS / "bench").rglob("*")]:
            if path.suffix not in (".py", ".cc", ".h") or not ASKS.search(text := path.read_text()):
                continue
            if not SKIPS.search(text):
                continue
            asking += 1
            with self.subTest(path):
                self.assertTrue(TELLS.search(text), "use requirements.py, or look at LONGHAUL_REQUIRE_ROOT")
        self.assertGreater(asking, 10)


if __name__ == "__main__":
    unittest.main()
