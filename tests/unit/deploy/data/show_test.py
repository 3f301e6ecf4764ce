"""`data show --text`: the first documents as text, the tokens whose loss counts marked."""
import contextlib
import io
import os
import unittest.mock

import support
from support import TEXT, DataTest

OPEN, CLOSE = "\N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}", "\N{MATHEMATICAL RIGHT WHITE SQUARE BRACKET}"


class ShowTextTest(DataTest):
    def shown(self, count, *options):
        code, out, error = self.command("show", self.out, "--text", count, *options)
        self.assertEqual((code, error), (0, ""))
        return out

    def test_documents_and_targets(self):
        path = self.jsonl("a.jsonl", {"prompt": "ask ", "completion": "say"}, {"prompt": "", "completion": "?!naïve 日本"},
                          {"prompt": "one", "completion": "two"})
        self.prepare("--tokenizer", self.tokenizer(), path)
        said = self.shown(2).splitlines()
        self.assertEqual(len(said), 4, said)
        self.assertRegex(said[0], r"^--- document 1: \d+ tokens, \d+ targets$")
        self.assertEqual(said[1], f"ask {OPEN}say<|endoftext|>{CLOSE}")
        # The first token of a document is none.
        self.assertEqual(said[3], f"?{OPEN}!naïve 日本<|endoftext|>{CLOSE}")
        self.assertEqual(len(self.shown(9).splitlines()), 6)

    def test_a_mark_inside_a_character(self):
        """A token may be a part of a character; the character stands where it is whole."""
        from longhaul_data import excerpt

        document = excerpt.Document()
        ids = support.plain_tokenizer().encode("\U0001f600x").ids
        self.assertEqual(len(ids), 5)
        document.ids, document.mask = ids, [0, 0, 1, 1, 1]
        decode = lambda some: support.plain_tokenizer().decode(some, skip_special_tokens=False)  # noqa: E731
        self.assertEqual(excerpt.marked(document, decode, ("[", "]")), "[\U0001f600x]")

    def test_texts_without_a_mask(self):
        self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", "one"), self.write("b.txt", "two"))
        self.assertIn(f"{OPEN}one<|endoftext|>{CLOSE}", self.shown(1))
        self.assertNotIn("two", self.shown(1))

    def test_packed_documents(self):
        """Padding is no document, and a window begins one."""
        path = self.jsonl("a.jsonl", *({"prompt": f"ask {number} ", "completion": "say " * 3} for number in range(3)))
        self.prepare("--tokenizer", self.tokenizer(), "--pack", "64", path, self.write("b.txt", TEXT[:400]))
        said = self.shown(99)
        heads = [line for line in said.splitlines() if line.startswith("--- document ")]
        self.assertGreater(len(heads), 4)
        for number in range(3):
            self.assertIn(f"ask {number} {OPEN}say say say <|endoftext|>{CLOSE}", said)
        for head in heads[3:]:
            self.assertLessEqual(int(head.split(": ")[1].split(" ")[0]), 64, head)

    def test_long_documents_are_cut(self):
        from longhaul_data import excerpt

        self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", TEXT * 20), self.write("b.txt", "two"),
                     "--shard-size", "6KiB")
        said = self.shown(2)
        self.assertIn(f"{len(self.ids()) - excerpt.SHOWN_TOKENS - len(support.encoded('two')) - 1:,} more tokens", said)
        self.assertIn("two", said)

    def test_tokens_without_a_tokenizer(self):
        self.prepare("--vocabulary", "9", "--end-token", "0", self.write("a.bin", bytes([5, 0, 6, 0, 0, 0, 7, 0, 0, 0])))
        self.assertEqual(self.shown(2).splitlines()[1::2], [f"{OPEN}5 6 0{CLOSE}", f"{OPEN}7 0{CLOSE}"])

    def test_colour_on_a_terminal(self):
        self.prepare("--tokenizer", self.tokenizer(), self.jsonl("a.jsonl", {"prompt": "ask ", "completion": "say\x1b[2J"}))
        from longhaul_data.cli import main

        def on(stream, **environment):
            with contextlib.redirect_stdout(stream), unittest.mock.patch.dict(os.environ, environment):
                self.assertEqual(main(["show", str(self.out), "--text", "1"]), 0)
            stream.flush()
            return stream

        terminal = io.StringIO()
        terminal.isatty = lambda: True
        self.assertIn("ask \x1b[1;32msay\ufffd[2J<|endoftext|>\x1b[0m\n", on(terminal, NO_COLOR="").getvalue())
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        self.assertIn(f"ask {OPEN}say", on(terminal, NO_COLOR="1").getvalue())
        ascii_alone = on(io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace"))
        self.assertIn(b"ask [[say", ascii_alone.buffer.getvalue())


if __name__ == "__main__":
    support.main()
