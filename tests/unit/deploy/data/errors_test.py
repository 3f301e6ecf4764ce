"""Sentences for what is wrong, with file and line; and nothing half written, whatever ends the command."""
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

import support
from support import SOURCES, TEXT, DataTest, encoded


class ErrorsTest(DataTest):
    def test_lines(self):
        good = b'{"text": "good"}\n'
        for content, problem in (
                (good + b'{"text": "bad\n', "a.jsonl:2: expected a JSON object in one line; "),
                (good + b"\n" + good + b"[1]\n", "a.jsonl:4: expected a JSON object, got a list; an array of records needs --as json"),
                (good + b'{"body": "x"}\n', "a.jsonl:2: expected the field 'text', got 'body'"),
                (good + b'{"text": 7}\n', "a.jsonl:2: expected text in 'text', got a number"),
                (good + b'{"text": null}\n', "a.jsonl:2: expected text in 'text', got null"),
                (good + b'{"text": "\xff"}\n', "a.jsonl:2: expected UTF-8, got the byte 0xff at column 11"),
                (good + b'{"text": "a\\ud800b"}\n', "a.jsonl:2: expected text, got half of a surrogate pair, U+D800"),
                (b'{"id": 1}\n', "or 'messages' ('conversations', 'chosen', 'instruction' and 'output' are taken, too), got 'id'"),
                (b'{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n',
                 "a.jsonl:2: expected the field 'completion'"),
                (b"\n", "expected a document at least, the files have none")):
            said = self.prepare("--tokenizer", self.tokenizer(), self.write("a.jsonl", content), code=1)
            self.assertIn(problem, said)
            self.assertFalse(self.out.exists())

    def test_texts(self):
        for content, problem in (
                (b"one\ntwo\nth\xe9ree\n", "a.txt:3: expected UTF-8, got the byte 0xe9"),
                (b"x\n" * 700_000 + b"\xff", "a.txt:700001: expected UTF-8, got the byte 0xff"),
                (b"one\n\xc3", "a.txt:2: expected UTF-8, but the file ends inside a character"),
                (b"", "expected a document at least")):
            self.assertIn(problem, self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", content), code=1))

    def test_parquet(self):
        import pyarrow
        from pyarrow import parquet

        path = self.folder / "a.parquet"
        parquet.write_table(pyarrow.table({"text": ["one", None, "three"]}), path)
        self.assertIn("a.parquet row 2: expected text in 'text', got null",
                      self.prepare("--tokenizer", self.tokenizer(), path, code=1))
        self.assertIn("expected the field 'body' (--field), got 'text'",
                      self.prepare("--tokenizer", self.tokenizer(), "--field", "body", path, code=1))
        parquet.write_table(pyarrow.table({"text": [TEXT[at:] for at in range(300)]}), path, compression="none")
        content = bytearray(path.read_bytes())
        middle = len(content) // 3
        content[middle:middle + 90_000] = random.Random(1).randbytes(90_000)
        path.write_bytes(content)
        said = self.prepare("--tokenizer", self.tokenizer(), path, code=1)
        self.assertIn("a.parquet", said)
        path.write_bytes(content[:1000])
        self.assertIn("a.parquet: expected a parquet file",
                      self.prepare("--tokenizer", self.tokenizer(), path, code=1))

    def test_compressed(self):
        import gzip

        content = gzip.compress(b'{"text": "good"}\n' * 9999)
        said = self.prepare("--tokenizer", self.tokenizer(), self.write("a.jsonl.gz", content[:-20]), code=1)
        self.assertIn("a.jsonl.gz: reading failed after", said)
        said = self.prepare("--tokenizer", self.tokenizer(), self.write("b.jsonl.zst", b"no zstd"), code=1)
        self.assertIn("b.jsonl.zst: reading failed", said)

    def test_no_place_to_split(self):
        from longhaul_data import texts

        whole, texts.MAX_CHARACTERS = texts.MAX_CHARACTERS, 1000
        self.addCleanup(setattr, texts, "MAX_CHARACTERS", whole)
        path = self.write("a.txt", "one\n---\n" + "x" * 2000)
        said = self.prepare("--tokenizer", self.tokenizer(), "--split-on=---\n", path, code=1)
        self.assertIn("a.txt: no place to split in 0 Mi characters from line 3; expected '---\\n'", said)

    def test_terminals_are_not_obeyed(self):
        said = self.prepare("--tokenizer", self.tokenizer(), self.jsonl("a.jsonl", {"\033[2J": 1}), code=1)
        self.assertIn("got '\ufffd[2J'", said)
        self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", "one\033[2J"))
        self.assertIn("one\ufffd[2J", self.command("show", self.out)[1])

    def test_a_full_disk(self):
        import resource

        path, tokenizer = self.write("a.txt", TEXT), self.tokenizer()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            said = self.prepare("--tokenizer", tokenizer, path, code=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertIn("training-00000.bin: writing failed; File too large", said)

    def test_all_at_once(self):
        said = self.prepare("--tokenizer", self.folder / "none", self.folder / "gone.txt", self.write("a.tar", "a,b"),
                            "--validation", self.write("b.jsonl", "x"), self.folder, code=1)
        self.assertEqual(len(said.splitlines()), 5, said)
        for problem in ("--tokenizer: expected tokenizer.json or a folder that has it", "gone.txt: No such file",
                        "a.tar: .tar is not taken; unpack it first", "b.jsonl:1: expected a JSON object in one line",
                        "expected a file, got a folder"):
            self.assertIn(problem, said)

    def test_tokenizers(self):
        text = self.write("a.txt", "text")
        self.assertIn("tokenizer.json: expected a tokenizer of the package tokenizers",
                      self.prepare("--tokenizer", self.write("bad/tokenizer.json", "{}"), text, code=1))
        self.assertIn("--vocabulary: the tokenizer tok has ids up to 499, so expected at least 500, got 300",
                      self.prepare("--tokenizer", self.tokenizer(), "--vocabulary", "300", text, code=1))
        nameless = support.byte_level([TEXT], 300, specials=["<s>"])
        self.assertIn("names no end token (eos_token)",
                      self.prepare("--tokenizer", self.tokenizer(nameless), text, code=1))
        for arguments, problem in ((("--end-token", "<end>"), "--end-token: the tokenizer tok has no token '<end>'"),
                                   (("--end-token", "300"), "--end-token: expected an id below 300"),
                                   (("--end-token", "1", "--begin-token", "<b>"), "--begin-token: the tokenizer")):
            self.assertIn(problem, self.prepare("--tokenizer", self.tokenizer(nameless), *arguments, text, code=1))
        self.assertIn("tokenizer_config.json: expected JSON", self.prepare(
            "--tokenizer", str(pathlib.Path(self.write("tok/tokenizer_config.json", "{")).parent), text, code=1))
        chat = self.jsonl("a.jsonl", {"messages": [{"role": "user", "content": "a"}]})
        (self.folder / "tok/tokenizer_config.json").unlink()
        self.assertIn("the tokenizer has no chat template", self.prepare(
            "--tokenizer", self.tokenizer(), chat, code=1))
        self.assertIn("the chat template cannot be read", self.prepare(
            "--tokenizer", self.tokenizer(), chat, "--chat-template", self.write("t", "{% if %}"), code=1))

    def test_usage(self):
        for arguments in (("--pack", "1"), ("--shard-size", "5x"), ("--split-on", ""), ("--vocabulary", "-1")):
            code, _, error = self.command("prepare", "--out", self.out, *arguments, "a.txt")
            self.assertEqual(code, 2, error)
        self.assertIn("--copy is for token files", self.prepare("--tokenizer", "t", "--copy", "a.txt", code=1))

    def test_show(self):
        self.assertIn("expected a data set, which has a file dataset.json", self.command("show", self.folder)[2])
        self.write("set/dataset.json", '{"format": "longhaul data set", "version": 3}')
        self.assertIn("expected version 1 or 2, got 3", self.command("show", self.out)[2])


class ProgressTest(unittest.TestCase):
    def line(self, terminal):
        import io

        from longhaul_data import progress

        stream = io.StringIO()
        stream.isatty = lambda: terminal
        shown = progress.Progress(100_000_000, stream)
        shown._began -= 10
        shown._next = 0
        shown.file_done(20_000_000)
        shown.read(5_000_000)
        shown.clear()
        return stream.getvalue()

    def test_a_line_on_a_terminal_alone(self):
        self.assertEqual(self.line(False), "")
        self.assertRegex(self.line(True), "^\r25 of 100 MB, 2.5 MB/s, 0:(29|30) left\033\\[K\r\033\\[K$")


class FolderTest(DataTest):
    def test_what_is_there_stays(self):
        arguments = ("--tokenizer", self.tokenizer(), self.write("a.txt", "text"))
        self.write("set/notes.txt", "mine")
        self.assertIn("set is there already", self.prepare(*arguments, code=1))
        self.assertIn("is no data set, so --force does not replace it", self.prepare("--force", *arguments, code=1))
        self.assertEqual(sorted(self.files()), ["notes.txt"])
        (self.out / "notes.txt").unlink()
        self.prepare(*arguments)  # an empty folder is as good as none
        inside = self.out / "in.txt"
        inside.write_text("text")
        self.assertIn("in.txt: lies in the folder that --out names",
                      self.prepare("--force", *arguments, inside, code=1))
        self.prepare("--force", *arguments)
        self.assertFalse(inside.exists())
        self.assertEqual(self.ids(), [*encoded("text"), 0])
        first = self.files()
        self.assertIn("a.txt:1", self.prepare("--force", "--tokenizer", str(self.folder / "tok"),
                                              self.write("a.txt", b"\xff"), code=1))
        self.assertEqual(self.files(), first)
        self.assertIn("there is no folder", self.command("prepare", "--out", self.folder / "no/set", *arguments)[2])

    def start(self, *arguments):
        """The command as a process, once it writes tokens."""
        text = self.jsonl("big.jsonl", *[{"text": TEXT}] * 3000)
        process = subprocess.Popen(
            [sys.executable, "-B", str(SOURCES / "main.py"), "prepare", "--tokenizer", self.tokenizer(), "--out",
             str(self.out), *arguments, text], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        written = self.out.with_name("set.partial") / "training-00000.bin"
        deadline = time.monotonic() + 60
        while not (written.exists() and written.stat().st_size):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return process

    def test_kill_leaves_no_data_set(self):
        process = self.start()
        arguments = ("--tokenizer", str(self.folder / "tok"), self.write("a.txt", "text"))
        code, _, error = self.command("prepare", "--out", self.out, *arguments)
        self.assertEqual(code, 1)
        self.assertIn("another process is writing", error)
        process.kill()
        process.communicate()
        self.assertFalse(self.out.exists())
        self.assertTrue(self.out.with_name("set.partial").exists())
        self.prepare(*arguments)  # and removes what was left
        self.assertEqual(self.ids(), [*encoded("text"), 0])

    def test_interrupts_leave_nothing(self):
        self.write("set/dataset.json", "{}")
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("--force")
            os.kill(process.pid, number)
            out, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, error)
            self.assertEqual((out, error), ("", "interrupted; nothing was written\n"))
            self.assertFalse(self.out.with_name("set.partial").exists())
            self.assertEqual((self.out / "dataset.json").read_text(), "{}")


if __name__ == "__main__":
    support.main()
