"""`longhaul generate` of a folder, as a user calls it. Arguments: longhaul, longhaul-generate."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import support
from support import ROOT, DataTest

LONGHAUL, IDS = "", ""
MODEL = ROOT / "tests/fixtures/models/qwen2_5"
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}:{% endif %}"


def run(*command, text=None, code=0):
    done = subprocess.run([*map(str, command)], input=text, capture_output=True, text=True, timeout=60, check=False,
                          env={"PATH": "/usr/bin:/bin", "LONGHAUL_PYTHON": sys.executable})
    assert done.returncode == code, done.stdout + done.stderr
    return done


class GenerateTest(DataTest):
    def generate(self, *arguments, folder=MODEL, **keywords):
        return run(LONGHAUL, "generate", folder, *arguments, **keywords)

    def greedy(self, prompt, tokens):
        """(ids of the prompt, ids that follow, the tokenizer)."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        said = run(IDS, MODEL, "--tokens", tokens, "--temperature", 0, text=" ".join(map(str, ids)) + "\n").stdout
        return ids, [int(word) for word in said.split()], tokenizer

    def test_the_text_is_that_of_the_ids(self):
        _, ids, tokenizer = self.greedy("Hello there", 12)
        self.assertEqual(len(ids), 12)
        said = self.generate("--prompt", "Hello there", "--tokens", 12, "--temperature", 0).stdout
        self.assertEqual(said, "Hello there" + tokenizer.decode(ids) + "\n")

    def test_a_seed_is_a_text(self):
        texts = {seed: self.generate("--prompt", "Hello", "--tokens", 16, "--seed", seed).stdout for seed in (1, 2)}
        self.assertNotEqual(texts[1], texts[2])
        self.assertEqual(texts[1], self.generate("--prompt", "Hello", "--tokens", 16, "--seed", 1).stdout)

    def test_a_text_ends_with_the_context(self):
        ids, follow, _ = self.greedy("Hello there", 1000)
        self.assertEqual(len(ids) + len(follow), 33)  # of the 33rd nothing follows
        said = self.generate("--prompt", "Hello there, " * 4, code=1)
        self.assertIn("expected a text of at most 32 tokens, the model's context, got ", said.stderr)

    def test_a_chat_begins_as_the_template_says(self):
        said = self.generate("--prompt", "Hi", "--chat", code=1).stderr
        self.assertIn("--chat: the model's tokenizer has no chat template", said)
        folder = self.folder / "chat"
        shutil.copytree(MODEL, folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
        _, ids, tokenizer = self.greedy("<user>Hi:", 8)
        said = self.generate("--prompt", "Hi", "--chat", "--tokens", 8, "--temperature", 0, folder=folder).stdout
        self.assertEqual(said, tokenizer.decode(ids) + "\n")

    def test_wrong_input_is_named(self):
        self.assertIn("--prompt: expected some text", self.generate("--prompt", "", code=1).stderr)
        self.assertIn("FROM: expected tokenizer.json", self.generate(
            "--prompt", "a", folder=ROOT / "tests/fixtures/models/gpt2", code=1).stderr)
        self.assertIn("--top-p", self.generate("--prompt", "a", "--top-p", 2, code=2).stderr)
        self.assertIn("--prompt", self.generate(code=2).stderr)
        self.assertIn("below the vocabulary of 96; came 200", run(IDS, MODEL, text="1 200\n", code=1).stderr)
        self.assertIn("expected token ids", run(IDS, MODEL, text="1 a\n", code=1).stderr)
        self.assertIn("config.json", run(IDS, self.folder, text="1\n", code=1).stderr)


if __name__ == "__main__":
    IDS = str(pathlib.Path(sys.argv.pop()).resolve())
    LONGHAUL = str(pathlib.Path(sys.argv.pop()).resolve())
    os.environ.pop("LONGHAUL_DATA_SOURCES", None)
    support.main()
