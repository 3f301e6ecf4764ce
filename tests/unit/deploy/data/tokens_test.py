"""Tokens that only tokenizer_config.json or added_tokens.json has get the ids that transformers gives
(golden/added_v1.json), or are refused by name."""
import json

import support
from support import GOLDEN, TEXT, DataTest, byte_level, encoded


def token(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": True, **flags}


class TokensTest(DataTest):
    def golden_tokenizer(self, **files):
        from tokenizers import Tokenizer

        for left in self.folder.glob("tok/*"):
            left.unlink()
        return self.tokenizer(Tokenizer.from_file(str(GOLDEN / "tokenizer.json")), **files)

    def test_ids_are_those_of_transformers(self):
        for case in json.loads((GOLDEN / "added_v1.json").read_text(encoding="utf-8"))["cases"]:
            self.prepare("--force", "--tokenizer", self.golden_tokenizer(**case["files"]),
                         self.write("a.txt", case["text"]))
            self.assertEqual(self.ids(), [*case["ids"], case["end_token"]], case["case"])
            vocabulary = self.manifest()["vocabulary"]
            self.assertGreater(vocabulary, max(self.ids()))
            code, shown, error = self.command("show", self.out)
            self.assertEqual((code, error), (0, ""))
            if case["case"] == "new tokens":
                self.assertEqual(vocabulary, 342)
                self.assertIn("What is<|tool|> it? <|im_end|> [END]   else", shown)

    def test_an_id_that_the_token_does_not_get(self):
        for wrong in (339, 341):
            files = {"tokenizer_config": {"eos_token": "</s>", "added_tokens_decoder": {str(wrong): token("<|tool|>")}}}
            said = self.prepare("--tokenizer", self.golden_tokenizer(**files), self.write("a.txt", "text"), code=1)
            self.assertIn(f"gives '<|tool|>' the id {wrong}, but after the tokens of tokenizer.json it gets 340", said)
        said = self.prepare("--tokenizer", self.golden_tokenizer(tokenizer_config={"added_tokens_decoder": {"x": 1}}),
                            self.write("a.txt", "text"), code=1)
        self.assertIn("expected added tokens with an id and a 'content'", said)

    def test_an_end_token_that_the_vocabulary_lacks(self):
        for files in ({"tokenizer_config": {"eos_token": "<end>"}}, {"special_tokens_map": {"eos_token": {"content": "<end>"}}}):
            for left in self.folder.glob("tok/*"):
                left.unlink()
            folder, text = self.tokenizer(**files), self.write("a.txt", "text")
            said = self.prepare("--force", "--tokenizer", folder, text, code=1)
            self.assertIn("the tokenizer tok names '<end>' as its eos_token, which its vocabulary lacks; name the token that "
                          "ends a document with --end-token", said)
            self.prepare("--force", "--tokenizer", folder, text, "--end-token", "<|im_end|>")
            self.assertEqual(self.ids(), [*encoded("text"), 2])

    def test_no_end_token_is_named(self):
        """A well-known one is taken, as the guide says."""
        self.prepare("--tokenizer", self.tokenizer(byte_level([TEXT], 300), tokenizer_config={"eos_token": None}),
                     self.write("a.txt", "text"))
        self.assertEqual(self.ids()[-1], 0)


if __name__ == "__main__":
    support.main()
