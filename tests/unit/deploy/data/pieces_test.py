"""The table of tokens' bytes that a run's samples are made text with: pieces of ids joined are the text."""
import contextlib
import io
import json
import unittest.mock

import support
from support import TEXT, DataTest, byte_level

TEXTS = ("Once upon a time", " two  spaces\tand\nlines", "naïve 日本 \U0001f600!", "x")


def like_llama():
    """Spaces are a character of their own, and what has no token is bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    lines = [f"<0x{byte:02X}>" for byte in range(256)] + ["</s>", "\u2581", "a", "e", "t", "\u2581t", "\u2581time"]
    vocabulary = {token: id_ for id_, token in enumerate(lines)}
    merges = [("\u2581", "t")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token=None))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


class PiecesTest(DataTest):
    def asked(self, tokenizer, texts, chat=False, **files):
        folder = self.tokenizer(tokenizer, **files)
        question = io.StringIO(json.dumps({"texts": texts, "chat": chat}))
        out = io.StringIO()
        from longhaul_data import cli

        with unittest.mock.patch("sys.stdin", question), contextlib.redirect_stdout(out):
            code = cli.main(["tokens", str(folder)])
        self.assertEqual(code, 0)
        return json.loads(out.getvalue())

    def test_pieces_joined_are_the_text(self):
        for tokenizer in (byte_level([TEXT], 400), like_llama()):
            told = self.asked(tokenizer, TEXTS)
            for text, ids in zip(TEXTS, told["ids"], strict=True):
                self.assertEqual(b"".join(bytes.fromhex(told["pieces"][id_]) for id_ in ids).decode(), text)

    def test_special_tokens_are_no_text(self):
        tokenizer = byte_level([TEXT], 400)
        told = self.asked(tokenizer, ["a<|endoftext|>"])
        end = tokenizer.token_to_id("<|endoftext|>")
        self.assertEqual(told["ids"][0][-1], end)
        self.assertEqual(told["pieces"][end], "")
        self.assertIn(end, told["stop"])

    def test_a_prompt_without_text_is_refused(self):
        folder = self.tokenizer(byte_level([TEXT], 400))
        with unittest.mock.patch("sys.stdin", io.StringIO(json.dumps({"texts": [""], "chat": False}))):
            code, _, error = self.command("tokens", folder)
        self.assertEqual(code, 1)
        self.assertIn("expected a prompt with some text", error)


if __name__ == "__main__":
    support.main()
