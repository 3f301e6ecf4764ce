"""Files of records: JSON arrays, tables, marks and line ends of other systems; and all errors of a file at once."""
import gzip
import json

import support
from support import TEXT, DataTest, encoded

END = 0


def documents(*texts):
    return [token for text in texts for token in [*encoded(text), END]]


class RecordsTest(DataTest):
    def check(self, path, *texts, options=()):
        self.prepare("--force", "--tokenizer", self.tokenizer(), path, *options)
        self.assertEqual(self.ids(), documents(*texts), path)

    def refused(self, path, *problems, options=()):
        said = self.prepare("--force", "--tokenizer", self.tokenizer(), path, *options, code=1)
        for problem in problems:
            self.assertIn(problem, said)
        return said

    def test_json_arrays(self):
        records = [{"text": "one"}, {"text": "two\n\"}]{", "more": [1, {"a": None}]}, {"text": "drei ü"}]
        for number, content in enumerate((
                json.dumps(records), json.dumps(records, indent=2), json.dumps(records, ensure_ascii=False, indent=1),
                "\ufeff\r\n " + json.dumps(records, indent=1).replace("\n", "\r\n"),
                "\n".join(map(json.dumps, records)), "\n".join(json.dumps(record, indent=3) for record in records))):
            self.check(self.write(f"{number}.json", content), *(record["text"] for record in records))
        self.check(self.write("a.json.gz", gzip.compress(json.dumps(records).encode())),
                   *(record["text"] for record in records))
        self.check(self.write("records", json.dumps(records)), *(record["text"] for record in records),
                   options=("--as", "json"))

    def test_json_arrays_of_many_blocks(self):
        from longhaul_data import files

        block, files.BLOCK_BYTES = files.BLOCK_BYTES, 97
        self.addCleanup(setattr, files, "BLOCK_BYTES", block)
        texts = [TEXT[at * 13:][:at * 29 % 700 + 1] for at in range(90)]
        records = [{"n": -1.25e10 * at, "ok": at % 2 == 0, "text": text, "none": None} for at, text in enumerate(texts)]
        self.check(self.write("a.json", json.dumps(records, indent=1)), *texts)
        self.check(self.write("b.json", json.dumps(records)), *texts)

    def test_what_is_wrong_in_json_arrays(self):
        good = '[\n {"text": "good"},\n'
        for content, problem in (
                (good + ' {"text": 7},\n {"text": null}]', "a.json line 3, record 2: expected text in 'text', got a number"),
                (good + ' [1]]', "a.json line 3, record 2: expected an object, got a list"),
                (good + ' {"text" "x"}]', "a.json:3: expected JSON; Expecting ':' delimiter"),
                (good + ' {"text": "x"}', "a.json:3: expected ',' or ']' after record 2 of the array, got the end of the "
                 "file"),
                (good + ' {"text": "x"} {"text": "y"}]', "a.json:3: expected ',' or ']' after record 2 of the array, got "
                 "'{'"),
                (good + ' {"text": "x', "a.json:3: expected JSON; Unterminated string"),
                (good + ' ]', "a.json:3: expected JSON; Expecting value"),
                ('[{"text": "x"}]\n]', "a.json:2: expected the end of the file after the array, got more"),
                ('["x"]', "a.json line 1, record 1: expected an object, got text"),
                ('{"data": [{"text": "x"}]}', "got 'data'"), ("", "expected a document at least"), ("[]", "expected a "
                 "document at least"), (b'[{"text": "\xff"}]', "a.json:1: expected UTF-8, got the byte 0xff")):
            self.refused(self.write("a.json", content), problem)

    def test_tables(self):
        self.check(self.write("a.csv", 'id,text\r\n1,one\r\n\r\n2,"two, ""so""\r\nand more"\r\n3,drei ü'),
                   "one", 'two, "so"\r\nand more', "drei ü")
        self.check(self.write("a.tsv", "text\tid\none, more\t1\n"), "one, more")
        self.check(self.write("b.csv", "\ufefftext\n" + "x" * 200_000 + "\n"), "x" * 200_000)
        self.check(self.write("c.csv.gz", gzip.compress(b"text\none\n")), "one")
        for content, problem in (
                ("text,id\none,1\ntwo\nthree,3,3\n", "a.csv:3: expected 2 fields as in the first line, got 1"),
                ("text,id\none,1\ntwo\nthree,3,3\n", "a.csv:4: expected 2 fields as in the first line, got 3"),
                ("text,text\n1,2\n", "a.csv:1: expected names of fields, each once, got text, text"),
                ('text\none\n"two\nthree\n', "a.csv:3: expected fields between ',', quoted by \"; unexpected end of data"),
                ('text\n"one"s\n', "a.csv:2: expected fields between ','"), ("body\none\n", "got 'body'"),
                (b"text\none\n\xe9\n", "a.csv:3: expected UTF-8, got the byte 0xe9")):
            self.refused(self.write("a.csv", content), problem)

    def test_conversations_in_a_table(self):
        import csv
        import io

        folder = self.tokenizer(tokenizer_config={"chat_template": "{% for m in messages %}{{ m.content }}|{% endfor %}"})
        out = io.StringIO()
        csv.writer(out).writerows([["messages", "tools"], [json.dumps([
            {"role": "user", "content": "ask, \"now\""}, {"role": "assistant", "content": "say"}]), ""]])
        self.prepare("--tokenizer", folder, self.write("a.csv", out.getvalue()))
        self.assertEqual(self.ids(), documents('ask, "now"|say|'))
        said = self.prepare("--force", "--tokenizer", folder, self.write("a.csv", "messages\n[{'role': 'user'}]\n"), code=1)
        self.assertIn("a.csv:2: expected a list or its JSON text in 'messages'", said)

    def test_marks_and_line_ends_of_other_systems(self):
        self.check(self.write("a.jsonl", b'\xef\xbb\xbf{"text": "one"}\r\n\r\n{"text": "two\\r\\n"}\r\n'), "one", "two\r\n")
        # Characters that some readers take for the end of a line.
        self.check(self.write("b.jsonl", '{"text": "one\u2028two\u0085three"}\n'), "one\u2028two\u0085three")
        self.check(self.write("c.jsonl.gz", gzip.compress(b'\xef\xbb\xbf{"text": "one"}\r\n')), "one")
        self.refused(self.write("d.jsonl", '{"text": "one"}\n'.encode("utf-16")),
                     "d.jsonl:1: expected UTF-8, got UTF-16; convert the file: iconv -f UTF-16")
        self.refused(self.write("e.jsonl", '{\n "text": "one"\n}\n'), "e.jsonl:1: ", "records of several lines need --as json")
        self.refused(self.write("f.jsonl", b'{"text": "one"}\n\xef\xbb\xbf{"text": "two"}\n'), "f.jsonl:2: expected a JSON")

    def test_keys_that_stand_twice(self):
        twice = '{"text": "one", "text": "two"}\n'
        self.refused(self.write("a.jsonl", '{"text": "one"}\n' + twice), "a.jsonl:2: the key 'text' stands twice in an object")
        self.refused(self.write("a.json", "[" + twice + "]"), "a.json:1: the key 'text' stands twice in an object")
        self.check(self.write("b.jsonl", '{"text": "one", "a": {"b": 1}, "c": {"b": 1}}'), "one")

    def test_all_errors_of_a_file(self):
        bad = '{"text": 1}\n{"body": "x"}\n{"text": \n[1]\n' + '{"text": null}\n' * 6
        said = self.refused(self.write("a.jsonl", '{"text": "good"}\n' + bad + '{"text": "good"}\n')).splitlines()
        self.assertEqual([line.split(": ")[0].rpartition("/")[2] for line in said],
                         ["a.jsonl:2", "a.jsonl:3", "a.jsonl:4", "a.jsonl:5", "a.jsonl:6", "a.jsonl"])
        self.assertTrue(said[-1].endswith("a.jsonl: 5 more records are refused"), said)
        many = self.refused(self.write("a.jsonl", '{"text": "good"}\n' + '{"text": 1}\n' * 5000))
        self.assertIn("at least 995 more records are refused", many)
        # A file that cannot be read on still tells what was found before.
        content = gzip.compress(b'{"text": "good"}\n{"text": 1}\n' + b'{"text": "good"}\n' * 99_999)
        self.refused(self.write("b.jsonl.gz", content[:-9]), "b.jsonl.gz:2: expected text in 'text', got a number",
                     "b.jsonl.gz: reading failed after")

    def test_pointers_of_git_lfs(self):
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
        for name in ("a.jsonl", "a.txt", "a.parquet", "a.json", "a.csv", "a"):
            self.refused(self.write(name, pointer), f"{name}: a Git LFS pointer, not the file itself; `git lfs pull`")
        code, _, said = self.command("prepare", "--out", self.out, "--vocabulary", "9", self.write("a.bin", pointer))
        self.assertEqual(code, 1)
        self.assertIn("a.bin: a Git LFS pointer", said)
        text = self.write("b.txt", "text")
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            folder = self.tokenizer()
            self.write(f"tok/{name}", pointer)
            options = (self.jsonl("c.jsonl", {"messages": [{"role": "user", "content": "a"}]}),)
            self.assertIn(f"{name}: a Git LFS pointer",
                          self.prepare("--force", "--tokenizer", folder, text, *options, code=1))
            (self.folder / "tok" / name).unlink()


class LongTest(DataTest):
    def setUp(self):
        super().setUp()
        from longhaul_data import pieces

        self.addCleanup(setattr, pieces, "MAX_PIECE_CHARACTERS", pieces.MAX_PIECE_CHARACTERS)
        pieces.MAX_PIECE_CHARACTERS = 512 << 10

    def test_a_line_without_a_break(self):
        """Its memory is that of MAX_PIECE_CHARACTERS. The line's number is said."""
        text = TEXT * 9 + "one\ntwo\n" + "x" * (1 << 20) + "\nend"
        said = self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", text), code=1)
        self.assertIn(f"a.txt:{text.count(chr(10))}: a line with more than 0 Mi characters without a place where", said)
        said = self.prepare("--tokenizer", self.tokenizer(), self.jsonl("a.jsonl", {"text": "a"}, {"text": text}), code=1)
        self.assertIn("a.jsonl:2: a line with more than 0 Mi characters", said)
        said = self.prepare("--tokenizer", self.tokenizer(), self.jsonl(
            "a.jsonl", {"prompt": "a", "completion": "b"}, {"prompt": text, "completion": "b"}), code=1)
        self.assertIn(f"a.jsonl:2: expected a conversation or a completion of at most 0 Mi characters, got {len(text):,}",
                      said)

    def test_long_lines_with_breaks(self):
        text = ("words and more " * 70_000).strip()
        self.assertGreater(len(text), 1 << 20)
        self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", text))
        self.assertEqual(self.ids(), documents(text))

    def test_long_batches_are_encoded_one_at_a_time(self):
        import threading
        import time

        from longhaul_data import encode

        self.addCleanup(setattr, encode, "LONG_CHARACTERS", encode.LONG_CHARACTERS)
        self.addCleanup(setattr, encode.Encoder, "_encode", encode.Encoder._encode)
        whole, lock, seen = encode.Encoder._encode, threading.Lock(), [0, 0]  # now, at most

        def noted(encoder, batch):
            with lock:
                seen[0] += 1
                seen[1] = max(seen)
            time.sleep(0.02)
            made = whole(encoder, batch)
            with lock:
                seen[0] -= 1
            return made

        encode.Encoder._encode = noted
        texts = ["x" * 90_000 + str(number) for number in range(40)]
        path = self.jsonl("a.jsonl", *({"text": text} for text in texts))
        for limit, most in ((1 << 30, encode.THREADS), (1000, 1)):
            encode.LONG_CHARACTERS, seen[1] = limit, 0
            self.prepare("--force", "--tokenizer", self.tokenizer(), path)
            self.assertEqual(self.ids(), documents(*texts))
            self.assertEqual(seen, [0, most])


if __name__ == "__main__":
    support.main()
