"""`longhaul data` as a user calls it: how it finds Python and the sources, exit codes. Argument: the program."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import support
from support import ROOT, SOURCES, DataTest, encoded

PROGRAM = ""


class ProgramTest(DataTest):
    def call(self, *arguments, program=None, code=0, **environment):
        done = subprocess.run([program or PROGRAM, "data", *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, cwd=self.folder, check=False, stdin=subprocess.DEVNULL,
                              env={"PATH": "/usr/bin:/bin", "LONGHAUL_PYTHON": sys.executable, **environment})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done


class CommandTest(ProgramTest):
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


class AddressTest(ProgramTest):
    """Inputs on a hub and on a web server of our own (tests/support/hub_server.py)."""

    @classmethod
    def setUpClass(cls):
        cls.server_folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.server_folder.cleanup)
        cls.server = subprocess.Popen([sys.executable, ROOT / "tests/support/hub_server.py",
                                       pathlib.Path(cls.server_folder.name) / "certificate"],
                                      stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.server.stdout.close)
        cls.addClassCleanup(cls.server.wait)
        cls.addClassCleanup(cls.server.kill)
        words = cls.server.stdout.readline().split()
        cls.ports = {name: int(port) for name, port in zip(words[0::2], words[1::2])}

    def do(self, command, **arguments):
        body = json.dumps([{"do": command, **arguments}]).encode()
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.ports['control']}/", data=body),
                                    timeout=60) as answer:
            return json.load(answer)[0]

    def publish(self, name, files):
        folder = self.folder / "published" / name.replace("/", "-")
        for file, content in files.items():
            self.write(folder / file, content)
        return self.do("publish_folder", repository=f"datasets/{name}", revision="main", folder=str(folder))

    def prepare_at(self, *arguments, code=0, **environment):
        said = self.call("prepare", *arguments, "--out", "set", code=code, HF_HOME=str(self.folder / "none"),
                         HF_ENDPOINT=f"http://127.0.0.1:{self.ports['hub']}", **environment)
        self.assertFalse((self.folder / "set.inputs").exists())
        return said

    def test_a_folder_of_a_hub(self):
        long = "".join(f"Sentence {number}. " for number in range(200))
        self.publish("org/texts", {"README.md": "# Texts", "a.jsonl": json.dumps({"text": "one"}) + "\n",
                                   "b.txt": long, ".gitattributes": "x"})
        for address in ("hf://datasets/org/texts", "hf://datasets/org/texts/"):
            self.prepare_at(address, "--tokenizer", self.tokenizer(), "--force")
            self.assertEqual(self.ids(), [*encoded("one"), 0, *encoded(long), 0])
        self.prepare_at("hf://datasets/org/texts/b.txt", "--tokenizer", self.tokenizer(), "--force")
        self.assertEqual(self.ids(), [*encoded(long), 0])

    def test_a_tokenizer_of_a_hub(self):
        self.write("a.txt", "The text, which says")
        folder = pathlib.Path(self.tokenizer(tokenizer_config={"eos_token": "<|endoftext|>"}))
        self.do("publish_folder", repository="models/org/model", revision="main", folder=str(folder))
        self.prepare_at("a.txt", "--tokenizer", "hf://org/model")
        self.assertEqual(self.ids(), [*encoded("The text, which says"), 0])
        made = self.manifest()["tokenizer"]
        self.assertEqual((made["name"], sorted(made["files"])), ("model", ["tokenizer.json", "tokenizer_config.json"]))
        self.prepare_at("a.txt", "--tokenizer", "hf://org/model/tokenizer.json", "--force")
        self.assertEqual(self.manifest()["tokenizer"]["name"], "model")
        said = self.prepare_at("a.txt", "--tokenizer", "hf://org/no-model", "--force", code=1).stderr
        self.assertIn("hf://org/no-model", said)

    def test_messages_name_addresses(self):
        commit = self.publish("org/bad", {"a.jsonl": '{"text": "one"}\n{"text": 2}\n', "README.md": "x"})
        said = self.prepare_at("hf://datasets/org/bad", "--tokenizer", self.tokenizer(), code=1).stderr
        self.assertIn(f"hf://datasets/org/bad@{commit}/a.jsonl:2: ", said)
        self.assertNotIn("set.inputs", said)
        said = self.prepare_at("hf://datasets/org/nothing", "--tokenizer", self.tokenizer(), code=1).stderr
        self.assertIn("hf://datasets/org/nothing", said)
        self.publish("org/empty", {"README.md": "x"})
        said = self.prepare_at("hf://datasets/org/empty", "--tokenizer", self.tokenizer(), code=1).stderr
        self.assertIn("hf://datasets/org/empty: expected files of text", said)

    def test_private_files_need_the_token(self):
        self.publish("private/texts", {"a.txt": "secret"})
        said = self.prepare_at("hf://datasets/private/texts", "--tokenizer", self.tokenizer(), code=1).stderr
        self.assertIn("401", said)
        self.prepare_at("hf://datasets/private/texts", "--tokenizer", self.tokenizer(), HF_TOKEN="hf_good")
        self.assertEqual(self.ids(), [*encoded("secret"), 0])

    def test_token_files_are_copied(self):
        self.publish("org/tokens", {"a.bin": struct.pack("<3H", 1, 2, 3)})
        self.prepare_at("hf://datasets/org/tokens/a.bin", "--vocabulary", "9")
        self.assertEqual(self.ids(), [1, 2, 3])
        self.assertEqual(self.manifest()["training"][0]["file"], "training-00000.bin")

    def test_signed_addresses_stay_secret(self):
        folder = self.folder / "web"
        self.write(folder / "a.jsonl", '{"text": 2}\n')
        self.do("web_folder", path="/web/", folder=str(folder), etag='"one"')
        address = f"http://127.0.0.1:{self.ports['cdn']}/web/a.jsonl"
        said = self.prepare_at(f"{address}?sig=hidden", "--tokenizer", self.tokenizer(), code=1).stderr
        self.assertIn(f"{address}:1: ", said)
        self.assertNotIn("hidden", said)
        said = self.prepare_at(address.removesuffix("a.jsonl"), "--tokenizer", self.tokenizer(), code=1).stderr
        self.assertIn("name each file", said)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    os.environ.pop("LONGHAUL_DATA_SOURCES", None)
    support.main()
