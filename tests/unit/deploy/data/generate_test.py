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

    def test_embeddings_that_depend_on_the_length_are_those_of_each_text(self):
        # What transformers takes: short factors up to 16 tokens, long ones beyond.
        short, long = "9 15 24 4 48 80 56 67", "9 15 24 4 48 80 56 67 60 2 31 81 42 72 78 95 44 61 93 9"
        said = run(IDS, ROOT / "tests/fixtures/models/phi3_long", "--tokens", 8, "--temperature", 0,
                   text=f"{short}\n{long}\n{short}\n").stdout
        texts = [list(map(int, text.split())) for text in said.strip().split("\n\n")]
        self.assertEqual(texts, [[66, 28, 88, 36, 28, 82, 82, 32], [35] * 8, [66, 28, 88, 36, 28, 82, 82, 32]])

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

    def copy(self, name, **files):
        """The model in a folder of its own, with changed files."""
        folder = self.folder / name
        shutil.copytree(MODEL, folder)
        for file, change in files.items():
            path = folder / f"{file}.json"
            kept = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps({**kept, **change}))
        return folder

    def test_end_tokens_are_those_of_all_files(self):
        prompt, ids, tokenizer = self.greedy("The rain", 12)
        self.assertGreater(len(set(ids)), 3)
        places = {id_: ids.index(id_) for id_ in ids}
        later = sorted(places, key=places.get)[1:4]  # not the first: something is to be seen
        for name, files in (("generation", {"generation_config": {"eos_token_id": [later[1], later[0]]}}),
                            ("config", {"config": {"eos_token_id": [later[0]]}}),
                            ("both", {"generation_config": {"eos_token_id": later[2]}, "config": {"eos_token_id": later[0]}})):
            folder = self.copy(name, **files)
            said = self.generate("--prompt", "The rain", "--tokens", 12, "--temperature", 0, folder=folder).stdout
            whole = tokenizer.decode(prompt + ids[:places[later[0]]])
            self.assertEqual(said, "The rain" + whole[len(tokenizer.decode(prompt)):] + "\n", name)

    def sentencepiece_like(self, folder):
        """A tokenizer with a space before each word, which a decoder strips from the first word of what it decodes."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        vocabulary = {f"\u2581w{k}": k for k in range(96)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="\u2581w0"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        tokenizer.save(str(folder / "tokenizer.json"))
        return tokenizer

    def test_words_keep_their_spaces(self):
        folder = self.copy("spaces", tokenizer_config={})
        (folder / "tokenizer_config.json").write_text("{}")
        tokenizer = self.sentencepiece_like(folder)
        said = self.generate("--prompt", "w7 w9", "--tokens", 5, "--temperature", 0, folder=folder).stdout
        ids = [int(word) for word in run(IDS, folder, "--tokens", 5, "--temperature", 0, text="7 9\n").stdout.split()]
        self.assertEqual(said, tokenizer.decode([7, 9, *ids]) + "\n")
        self.assertTrue(said.startswith("w7 w9 w"), said)

    def test_a_text_begins_with_the_token_that_the_tokenizer_puts(self):
        from tokenizers import processors

        wanted = run(IDS, MODEL, "--tokens", 6, "--temperature", 0, text="3 7 9\n").stdout
        for name in ("processor", "flag"):
            folder = self.copy(name)
            tokenizer = self.sentencepiece_like(folder)
            config = {"bos_token": "\u2581w3", "eos_token": "\u2581w95"}
            if name == "processor":  # with an end token, which a text that goes on has not
                tokenizer.post_processor = processors.TemplateProcessing(
                    single="\u2581w3 $A \u2581w95", special_tokens=[("\u2581w3", 3), ("\u2581w95", 95)])
                tokenizer.save(str(folder / "tokenizer.json"))
            else:
                config["add_bos_token"] = True
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            said = self.generate("--prompt", "w7 w9", "--tokens", 6, "--temperature", 0, folder=folder).stdout
            begun = tokenizer.decode([3, 7, 9], skip_special_tokens=True)
            text = tokenizer.decode([3, 7, 9, *map(int, wanted.split())], skip_special_tokens=True)
            self.assertEqual(said, "w7 w9" + text[len(begun):] + "\n", name)

    def test_outputs_that_are_not_finite_are_an_error(self):
        folder = self.copy("broken")
        path = folder / "model.safetensors"
        content = bytearray(path.read_bytes())
        data = 8 + int.from_bytes(content[:8], "little")
        begin, end = json.loads(content[8:data])["model.norm.weight"]["data_offsets"]
        content[data + begin:data + end] = b"\xff" * (end - begin)  # NaN in any type
        path.write_bytes(content)
        for temperature in (0, 1):
            failed = self.generate("--prompt", "The rain", "--temperature", temperature, folder=folder, code=1)
            self.assertIn("the model's outputs are not finite", failed.stderr)
            self.assertEqual(failed.stdout, "")

    def test_a_prompt_is_utf8_and_printed_once_the_model_is_read(self):
        done = subprocess.run([LONGHAUL, "generate", str(MODEL), b"--prompt=\xff\xfea"], capture_output=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "LONGHAUL_PYTHON": sys.executable})
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"--prompt: expected UTF-8", done.stderr)
        folder = self.copy("refused", config={"hidden_act": "tanh"})
        failed = self.generate("--prompt", "The rain", folder=folder, code=1)
        self.assertEqual(failed.stdout, "")
        self.assertTrue(failed.stderr.startswith("longhaul-generate: "), failed.stderr)

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
