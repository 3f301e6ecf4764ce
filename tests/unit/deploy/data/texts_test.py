"""Texts become the tokenizer's own ids: every kind of file, splitting, cutting, sizes, the same bytes each time."""
import gzip
import json
import random
import unittest

import support
from support import TEXT, DataTest, encoded

END = 0


def documents(*texts):
    return [token for text in texts for token in [*encoded(text), END]]


class TextsTest(DataTest):
    def test_a_file_is_a_document(self):
        said = self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", TEXT), self.write("b", "\ufeffshort"))
        self.assertEqual(self.ids(), documents(TEXT, "short"))
        made = self.manifest()
        self.assertEqual({key: made[key] for key in ("format", "version", "vocabulary", "bytes_per_token", "packed",
                                                     "chunk_bytes", "documents", "validation", "end_token")},
                         {"format": "longhaul data set", "version": 1, "vocabulary": 500, "bytes_per_token": 2,
                          "packed": 0, "chunk_bytes": 4 << 20, "documents": 2, "validation": [], "end_token": END})
        self.assertEqual(made["tokenizer"]["files"], ["tokenizer.json"])
        self.assertEqual(made["tokenizer"]["end_token"], END)
        self.assertEqual((self.out / "tokenizer/tokenizer.json").read_bytes(),
                         (self.folder / "tok/tokenizer.json").read_bytes())
        self.assertNotIn("mask", made["training"][0])
        self.assertIn("2 documents", said)

    def test_splitting(self):
        text = "one\r\ntwo\n\n\n three\nfour\n \nfive"
        path, tokenizer = self.write("a.txt", text), self.tokenizer()
        for split, expected in ((["LINE"], ["one", "two", " three", "four", "five"]),
                                (["BLANK"], ["one\ntwo", " three\nfour", "five"]),
                                (["\n\n"], ["one\r\ntwo", "\n three\nfour\n \nfive"])):
            self.prepare("--force", "--tokenizer", tokenizer, "--split-on", *split, path)
            self.assertEqual(self.ids(), documents(*expected), split)

    def test_records(self):
        import pyarrow
        from pyarrow import parquet

        texts = [TEXT[:300], "zwei ü", TEXT[300:900]]
        lines = "".join(json.dumps({"id": 1, "body": text}) + "\n" for text in texts).encode()
        paths = [self.write("a.jsonl", lines), self.write("b.jsonl.gz", gzip.compress(lines)),
                 str(self.folder / "c.jsonl.zst"), str(self.folder / "d.parquet")]
        with pyarrow.CompressedOutputStream(paths[2], "zstd") as file:
            file.write(lines)
        parquet.write_table(pyarrow.table({"n": [1, 2, 3], "body": texts}), paths[3], row_group_size=2)
        for path in paths:
            self.prepare("--force", "--tokenizer", self.tokenizer(), "--field", "body", path)
            self.assertEqual(self.ids(), documents(*texts), path)
        self.prepare("--force", "--tokenizer", self.tokenizer(), "--field", "body", *paths)
        self.assertEqual(self.manifest()["documents"], 12)

    def test_validation_and_tokens(self):
        tokenizer = self.tokenizer(tokenizer_config={"eos_token": {"content": "<|im_end|>"}})
        self.prepare("--tokenizer", tokenizer, self.write("a.txt", "one"), "--validation", self.write("b.txt", "two"),
                     "--begin-token", "<|im_start|>")
        self.assertEqual(self.ids(), [1, *encoded("one"), 2])
        self.assertEqual(self.ids("validation"), [1, *encoded("two"), 2])
        self.assertEqual(self.manifest()["validation_documents"], 1)
        self.assertIn("tokenizer_config.json", self.manifest()["tokenizer"]["files"])
        said = self.prepare("--force", "--json", "--tokenizer", tokenizer, str(self.folder / "a.txt"), "--end-token", "17")
        said = json.loads(said)
        self.assertEqual((said["documents"], said["tokens"], said["input_bytes"], said["targets"], said["notes"]),
                         (1, len(encoded("one")) + 1, 3, None, []))
        self.assertEqual(self.ids(), [*encoded("one"), 17])

    def test_the_end_token_of_the_model(self):
        self.prepare("--tokenizer", self.tokenizer(config={"eos_token_id": [2, 0]}), self.write("a.txt", "one"))
        self.assertEqual(self.ids()[-1], 2)

    def test_a_download_of_links(self):
        self.tokenizer(tokenizer_config={"eos_token": "<|im_end|>"})
        snapshot = self.folder / "models--owner--small/snapshots/0123"
        snapshot.mkdir(parents=True)
        for number, name in enumerate(("tokenizer.json", "tokenizer_config.json")):
            blob = self.folder / f"models--owner--small/{number}"
            (self.folder / "tok" / name).rename(blob)
            (snapshot / name).symlink_to(blob)
        self.prepare("--tokenizer", snapshot, self.write("a.txt", "one"))
        self.assertEqual(self.ids(), [*encoded("one"), 2])
        self.assertEqual(self.manifest()["tokenizer"]["name"], "owner/small")
        self.assertFalse((self.out / "tokenizer/tokenizer.json").is_symlink())

    def test_truncation_and_padding_of_the_tokenizer_do_not_count(self):
        tokenizer = support.byte_level([TEXT], 500)
        tokenizer.enable_truncation(4)
        tokenizer.enable_padding(length=50)
        self.prepare("--tokenizer", self.tokenizer(tokenizer), self.write("a.txt", TEXT[:500]))
        self.assertEqual(self.ids(), documents(TEXT[:500]))

    def test_end_tokens_inside_are_said(self):
        said = self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", "one<|endoftext|>two"))
        self.assertIn("1 times the end token <|endoftext|> stands inside", said)
        self.assertEqual(self.manifest()["ends_inside"], 1)

    def test_shards_follow_each_other(self):
        tokenizer, path = self.tokenizer(), self.write("a.txt", TEXT)
        self.prepare("--tokenizer", tokenizer, path)
        whole = self.ids()
        self.prepare("--force", "--tokenizer", tokenizer, "--shard-size", "1KiB", path)
        self.assertEqual(self.ids(), whole)
        entries = self.manifest()["training"]
        self.assertEqual([entry["tokens"] for entry in entries[:-1]], [512] * (len(entries) - 1))
        self.assertEqual(entries[1]["file"], "training-00001.bin")

    def test_more_than_a_chunk_and_four_bytes(self):
        # A vocabulary of the model's that needs four bytes.
        text = "7\n" * 530_000
        path = self.write("a.txt", text)
        self.prepare("--tokenizer", self.tokenizer(), "--vocabulary", "65537", path)
        self.assertEqual(self.manifest()["bytes_per_token"], 4)
        self.assertEqual(self.manifest()["vocabulary"], 65537)
        self.assertEqual(self.manifest()["tokenizer"]["vocabulary"], 500)
        self.assertGreater(len(self.manifest()["training"][0]["chunks"]), 64)
        self.assertEqual(self.ids(), documents(text))

    def test_the_same_bytes_each_time(self):
        records = [{"text": TEXT[at * 17 % 5000:][:at * 37 % 3000]} for at in range(1500)]
        path, tokenizer = self.jsonl("a.jsonl", *records), self.tokenizer()
        self.prepare("--tokenizer", tokenizer, path)
        first = self.files()
        self.prepare("--force", "--tokenizer", tokenizer, path)
        self.assertEqual(self.files(), first)
        self.assertEqual(self.ids(), documents(*(record["text"] for record in records if record["text"])))

    def test_show(self):
        self.prepare("--tokenizer", self.tokenizer(), self.write("a.txt", "The text, which says"))
        code, said, error = self.command("show", self.out, "--check")
        self.assertEqual(code, 0, error)
        self.assertIn("\nThe text, which says<|endoftext|>\n", said)
        code, said, _ = self.command("show", self.out, "--json")
        self.assertEqual(json.loads(said)["documents"], 1)
        with open(self.out / "training-00000.bin", "r+b") as file:
            file.write(b"\7")
        code, said, error = self.command("show", self.out, "--check")
        self.assertEqual((code, said), (1, ""))
        self.assertIn("training-00000.bin: its bytes are not those", error)
        (self.out / "training-00000.bin").write_bytes(b"")
        self.assertEqual(self.command("show", self.out)[0], 1)


class CuttingTest(unittest.TestCase):
    """Long documents give the ids of the whole."""

    def tokenizers(self):
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

        yield "gpt2", support.plain_tokenizer(), True
        llama3 = support.byte_level([TEXT], 400)
        llama3.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        yield "llama3", llama3, True
        prefix = Tokenizer(models.Unigram())
        prefix.pre_tokenizer = pre_tokenizers.Metaspace()
        prefix.train_from_iterator([TEXT], trainers.UnigramTrainer(
            vocab_size=300, unk_token="<unk>", special_tokens=["<unk>", "</s>"], show_progress=False))
        yield "metaspace", prefix, False
        stripping = support.byte_level([TEXT], 400)
        stripping.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip(), normalizers.Lowercase()])
        yield "stripping", stripping, False

    def test_pieces_give_the_ids_of_the_whole(self):
        from longhaul_data.pieces import Cutter

        rng = random.Random(3)
        parts = ["word", "zwei", " ", "  ", "\n", "\n\n", ".\n", "\t", "1234", "!?", "日本。\n", "é",
                 "e\u0301", "'s", "\r\n", " \n "]
        texts = [TEXT * 2, "".join(rng.choice(parts) for _ in range(20000)), "x" * 9000, "日本語" * 3000,
                 "a b " * 4000]
        for name, tokenizer, cuts in self.tokenizers():
            for number, text in enumerate(texts):
                for size in (700, 2000):
                    pieces = list(Cutter(tokenizer, size).cut([text[:3333], text[3333:]], ("a", "line", 1)))
                    self.assertEqual("".join(piece.text for piece in pieces), text)
                    self.assertEqual([piece.first for piece in pieces], [True] + [False] * (len(pieces) - 1))
                    self.assertEqual([piece.last for piece in pieces], [False] * (len(pieces) - 1) + [True])
                    ids = [token for piece in pieces for token in encoded(piece.text, tokenizer)]
                    self.assertEqual(ids, encoded(text, tokenizer), (name, number, size))
                    if cuts and number < 2:
                        self.assertGreater(len(pieces), len(text) // size // 3, (name, number))


if __name__ == "__main__":
    support.main()
