"""`longhaul data` as a user calls it: how it finds Python and the sources, exit codes. Argument: the program."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import support
from support import SOURCES, DataTest, encoded

PROGRAM = ""


class CommandTest(DataTest):
    def call(self, *arguments, program=None, code=0, **environment):
        done = subprocess.run([program or PROGRAM, "data", *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, cwd=self.folder, check=False, stdin=subprocess.DEVNULL,
                              env={"PATH": "/usr/bin:/bin", "LONGHAUL_PYTHON": sys.executable, **environment})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_prepare_and_show(self):
        self.write("a b.txt", "The text, which says")
        self.write("ps", "two")  # named as a command is
        self.call("prepare", "ps", "a b.txt", "--tokenizer", self.tokenizer(), "--out", "set")
        self.assertEqual(self.ids(), [*encoded("two"), 0, *encoded("The text, which says"), 0])
        self.assertIn("two<|endoftext|>The text, which says", self.call("show", "set").stdout)
        self.assertEqual(json.loads(self.call("show", "set", "--json").stdout)["documents"], 2)

    def test_files_of_the_current_folder_are_not_run(self):
        """Python's own modules and packages have names that a file may have, too."""
        for name in ("token", "tokenize", "json", "random", "numpy", "gzip", "jinja2"):
            self.write(f"{name}.py", f"open('ran', 'a').write('{name}')\n")
        self.write("tokenizers/__init__.py", "open('ran', 'a').write('tokenizers')\n")
        self.write("a.txt", "The text")
        self.call("prepare", "a.txt", "--tokenizer", self.tokenizer(), "--out", "set")
        self.call("show", "set")
        self.assertFalse((self.folder / "ran").exists())
        self.assertEqual(self.ids(), [*encoded("The text"), 0])

    def test_packages_of_pythonpath(self):
        """The system's Python may have none of them."""
        bare = self.folder / "bare"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
        packages = str(pathlib.Path(sys.modules["numpy"].__file__).parent.parent)
        self.write("a.txt", "The text")
        self.call("prepare", "a.txt", "--tokenizer", self.tokenizer(), "--out", "set", PYTHONPATH=packages,
                  LONGHAUL_PYTHON=str(bare / "bin/python"))
        self.assertEqual(self.ids(), [*encoded("The text"), 0])

    def test_exit_codes(self):
        self.assertIn("--split-on", self.call("prepare", "--help").stdout)
        self.assertIn("expected a command: prepare, show", self.call(code=2).stderr)
        self.assertIn("--out", self.call("prepare", "a.txt", code=2).stderr)
        self.call("show", "set", "--no-such", code=2)
        self.assertIn("set: expected a data set", self.call("show", "set", code=1).stderr)
        self.assertIn("did you mean 'prepare'", self.call("prepar", code=2).stderr)

    def test_what_is_missing_is_said_with_the_command_that_brings_it(self):
        bare = self.folder / "bare"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
        said = self.call("show", "set", code=1, LONGHAUL_PYTHON=str(bare / "bin/python")).stderr
        self.assertIn("expected a Python that has numpy and tokenizers", said)
        self.assertIn("No module named 'numpy'", said)
        self.assertIn("deploy/setup.sh --data", said)
        self.assertIn("/no/python", self.call("show", "set", code=1, LONGHAUL_PYTHON="/no/python").stderr)
        said = self.call("show", "set", code=1, LONGHAUL_DATA_SOURCES="/no/such").stderr
        self.assertIn("LONGHAUL_DATA_SOURCES: expected a folder with main.py, got /no/such", said)

    def test_an_installation(self):
        root = self.folder / "opt"
        (root / "bin").mkdir(parents=True)
        shutil.copy(PROGRAM, root / "bin/longhaul")
        said = self.call("show", "set", program=root / "bin/longhaul", code=1).stderr
        self.assertIn(f"expected the Python sources of `longhaul data` in {root}/share/longhaul/data", said)
        shutil.copytree(SOURCES, root / "share/longhaul/data", ignore=shutil.ignore_patterns("__pycache__"))
        said = self.call("show", "set", program=root / "bin/longhaul", code=1).stderr
        self.assertIn("set: expected a data set", said)
        said = self.call("show", "set", program=root / "bin/longhaul", code=1, LONGHAUL_PYTHON="/no/python").stderr
        self.assertIn(f"pip install --no-deps -r {root}/share/longhaul/data/requirements.txt", said)
        self.assertFalse(list(root.rglob("__pycache__")))


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    os.environ.pop("LONGHAUL_DATA_SOURCES", None)
    support.main()
