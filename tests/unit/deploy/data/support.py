"""What the tests of `longhaul data` share: tiny tokenizers, the command line within this process, reading back."""
import contextlib
import functools
import hashlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[4]
SOURCES = ROOT / "deploy/data"
GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
SKIPPED = 77
PACKAGES = ("numpy", "tokenizers", "pyarrow", "jinja2")
sys.path.insert(0, str(SOURCES))


def main():
    """Runs the tests of the calling file. Without the packages it is skipped by name."""
    for package in PACKAGES:
        try:
            __import__(package)
        except ImportError as error:
            print(f"skipped: {sys.executable}: {error}; deploy/setup.sh --data brings it")
            sys.exit(SKIPPED)
    unittest.main()


def byte_level(texts, size, specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>")):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


TEXT = "".join(f"Sentence {number} of the text, which says: \"{number * 7919} things\" — and naïvely more.\n"
               + ("\n  indented, \tand so on...\n\n" if number % 5 == 0 else "") for number in range(400))


@functools.lru_cache(None)
def plain_tokenizer():
    return byte_level([TEXT], 500)


class DataTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.out = self.folder / "set"

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(path)

    def jsonl(self, name, *records):
        return self.write(name, "".join(json.dumps(record) + "\n" for record in records))

    def tokenizer(self, tokenizer=None, **others):
        """A folder of it; `others` are its other files' contents, by name with _ for the dot."""
        folder = self.folder / "tok"
        folder.mkdir(exist_ok=True)
        (tokenizer or plain_tokenizer()).save(str(folder / "tokenizer.json"))
        for name, value in others.items():
            (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
        return str(folder)

    def command(self, *arguments):
        """(exit code, standard output, standard error)"""
        from longhaul_data.cli import main as command

        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            try:
                code = command([str(argument) for argument in arguments])
            except SystemExit as exit_:
                code = exit_.code
        return code, out.getvalue(), error.getvalue()

    def prepare(self, *arguments, code=0):
        """Standard output, or standard error where `code` is not 0."""
        got, out, error = self.command("prepare", "--out", self.out, *arguments)
        self.assertEqual(got, code, out + error)
        self.assertFalse(self.out.with_name("set.partial").exists())
        if code != 0:
            self.assertEqual(out, "")
            return error
        self.check_hashes()
        return out

    def manifest(self):
        return json.loads((self.out / "dataset.json").read_text(encoding="utf-8"))

    def ids(self, name="training"):
        import numpy

        made = self.manifest()
        parts = [numpy.fromfile(self.out / entry["file"], dtype=f"<u{made['bytes_per_token']}", offset=entry["offset"],
                                count=entry["tokens"]) for entry in made[name]]
        return numpy.concatenate(parts).tolist() if parts else []

    def mask(self, name="training"):
        """By the format's words: bit i % 8, the lowest first, of byte i / 8."""
        bits = []
        for entry in self.manifest()[name]:
            data = (self.out / entry["mask"]["file"]).read_bytes()
            self.assertEqual(len(data), (entry["tokens"] + 7) // 8)
            bits += [data[i // 8] >> (i % 8) & 1 for i in range(entry["tokens"])]
        return bits

    def check_hashes(self):
        made = self.manifest()
        size = made["chunk_bytes"]
        for entry in made["training"] + made["validation"]:
            data = (self.out / entry["file"]).read_bytes()[entry["offset"]:]
            data = data[:entry["tokens"] * made["bytes_per_token"]]
            self.assertEqual(entry["chunks"], chunks(data, size))
            if "mask" in entry:
                self.assertEqual(entry["mask"]["chunks"],
                                 chunks((self.out / entry["mask"]["file"]).read_bytes(), size))

    def files(self):
        """{name: bytes} of the data set."""
        return {str(path.relative_to(self.out)): path.read_bytes() for path in self.out.rglob("*") if path.is_file()}


def chunks(data, size):
    return "".join(hashlib.sha256(data[at:at + size]).hexdigest() for at in range(0, len(data), size))


def encoded(text, tokenizer=None):
    return (tokenizer or plain_tokenizer()).encode(text, add_special_tokens=False).ids
