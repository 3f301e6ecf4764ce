"""Checks what an assistant reads and says at each turn against transformers' renderings (golden/turns_v1.json), with
templates that rewrite earlier messages as those of Qwen3, Mistral and Llama 3.1 do."""
import json
import os

import support
from support import GOLDEN, DataTest, byte_level

ENDS = ("<|im_end|>", "<|eot_id|>", "</s>")
USER, SAID = {"role": "user", "content": "ask"}, {"role": "assistant", "content": "said"}


def golden():
    return json.loads((GOLDEN / "turns_v1.json").read_text(encoding="utf-8"))


def until_end(text):
    """Without the line break that a template writes after an end token."""
    return text.rstrip() if text.rstrip().endswith(ENDS) else text


class TurnsTest(DataTest):
    def folder_of(self, template, text=None):
        from tokenizers import Tokenizer

        return self.tokenizer(Tokenizer.from_file(str(GOLDEN / "tokenizer.json")), tokenizer_config={
            **golden()["tokens"].get(template, {}),
            "chat_template": text or (GOLDEN / f"{template}.jinja").read_text(encoding="utf-8")})

    def read_back(self):
        """[(text before, text of the targets)] of every stretch of targets, without the end tokens that were added."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.out / "tokenizer/tokenizer.json"))
        decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=False)  # noqa: E731
        found, ids, mask, begin = [], self.ids(), self.mask(), 0
        for at, token in enumerate(ids):
            if token != 0:
                continue
            own, bits = ids[begin:at], mask[begin:at]
            edges = [place for place in range(len(own) + 1) if (bits + [0])[place] != ([0] + bits)[place]]
            found += [[decode(own[:first]), decode(own[first:last])] for first, last in zip(edges[::2], edges[1::2])]
            begin = at + 1
        return found

    def prepared(self, folder, *records):
        return self.prepare("--force", "--tokenizer", folder, "--end-token", "<|endoftext|>",
                            self.jsonl("a.jsonl", *records))

    def test_every_turn_is_as_at_inference(self):
        os.environ["SOURCE_DATE_EPOCH"] = golden()["date"]
        self.addCleanup(os.environ.pop, "SOURCE_DATE_EPOCH")
        for case in golden()["cases"]:
            record = {key: case[key] for key in ("messages", "tools") if case[key]}
            self.prepared(self.folder_of(case["template"]), record)
            self.assertEqual(self.read_back(), [[before, until_end(answer)] for before, answer in case["turns"]],
                             (case["template"], case["conversation"]))

    def test_documents_go_on_where_nothing_is_rewritten(self):
        three = next(case for case in golden()["cases"] if case["conversation"] == "three")["messages"]
        for template, documents in (("chatml", 1), ("dated", 1), ("thinking", 3)):
            said = self.prepared(self.folder_of(template), {"messages": three})
            self.assertEqual(self.manifest()["documents"], documents, template)
            self.assertEqual(f"1 conversation became {documents} documents" in said, documents > 1)
            # Only the last document ends with the conversation.
            ends = [bit for token, bit in zip(self.ids(), self.mask()) if token == 0]
            self.assertEqual(ends, [0] * (documents - 1) + [1])

    def test_the_end_of_a_conversation_is_learned_where_the_last_turn_is_rewritten(self):
        """With the assistant's message at the end the template leaves the system's text out of the user's."""
        self.prepared(self.folder_of("last_user"), {"messages": [{"role": "system", "content": "brief"}, USER, SAID]})
        self.assertEqual(self.read_back(), [["<s>[INST] brief\n\nask[/INST]", " said</s>"]])
        self.assertEqual(self.mask()[-1], 1)

    def test_turns_that_repeat_each_other(self):
        """An earlier turn may have more in common with the prompt's end than the last one."""
        told = [{"role": "system", "content": "brief"}, {"role": "user", "content": "yes"},
                {"role": "assistant", "content": "ok\n\nyes[/INST]"}, {"role": "user", "content": "yes"},
                {"role": "assistant", "content": "no"}]
        self.prepared(self.folder_of("last_user"), {"messages": told})
        self.assertEqual([target for _, target in self.read_back()], [" ok\n\nyes[/INST]</s>", " no</s>"])

    def test_the_assistant_begins(self):
        """Templates look at the first message, so nothing can be rendered before it."""
        messages = [SAID, USER, {"role": "assistant", "content": "more"}]
        for template, end in (("chatml", "<|im_end|>"), ("thinking", "<|im_end|>"), ("dated", "<|eot_id|>")):
            self.prepared(self.folder_of(template), {"messages": messages})
            (before, first), (_, second) = self.read_back()
            self.assertTrue(before.endswith("assistant\n" if end == "<|im_end|>" else "<|end_header_id|>\n\n"), before)
            self.assertEqual(first, "said" + end)
            self.assertTrue(second.endswith("more" + end))

    def test_the_assistant_speaks_twice(self):
        """Qwen3's writes a thought into the last answer alone, so the first one of two is rewritten."""
        self.prepared(self.folder_of("thinking"), {"messages": [USER, SAID, {"role": "assistant", "content": "more"}]})
        empty = "<think>\n\n</think>\n\n"
        self.assertEqual([target for _, target in self.read_back()],
                         [empty + "said<|im_end|>", empty + "more<|im_end|>"])

    def test_what_cannot_be_found_is_refused(self):
        """A generation prompt opens a thought that the message does not have."""
        text = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                "{% if add_generation_prompt %}<assistant>[think]{% endif %}")
        path = self.jsonl("a.jsonl", {"messages": [USER]}, {"messages": [USER, SAID]})
        said = self.prepare("--tokenizer", self.folder_of("chatml", text), path, code=1)
        self.assertIn("a.jsonl:2: what the assistant says cannot be found", said)
        self.assertIn("<assistant>[think]', with the message itself in", said)
        self.assertIn("mark it in the template by {% generation %} and {% endgeneration %}", said)

    def test_marks_in_a_template_count_from_the_completion_on(self):
        text = ("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}")
        self.prepared(self.folder_of("chatml", text), {"prompt": [USER, SAID, USER], "completion": [SAID]})
        self.assertEqual(self.read_back(), [["<user>ask<assistant>said<user>ask<assistant>", "said"]])

    def test_the_end_token_is_learned_once(self):
        """The template ends a message by the tokenizer's end token and a line break."""
        folder = self.folder_of("chatml")
        self.prepare("--tokenizer", folder, "--end-token", "<|im_end|>", self.jsonl("a.jsonl", {"messages": [USER, SAID]}))
        end = self.manifest()["end_token"]
        self.assertEqual(self.ids()[-1], end)
        self.assertEqual(self.mask()[-3:], [1, 0, 0])
        self.assertEqual(self.ids()[-3], end)

    def test_a_target_that_begins_with_a_space_without_a_token(self):
        """Some tokenizers have no token for spaces. The word after it is still a target, and nothing after the end."""
        from tokenizers import Tokenizer, models, pre_tokenizers

        words = {word: number for number, word in enumerate(
            ["<|endoftext|>", "[user]", "[assistant]", "ask", "said", "more", "[unknown]"])}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="[unknown]"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        folder = self.tokenizer(tokenizer, tokenizer_config={"chat_template":
                                "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
                                "{% if add_generation_prompt %}[assistant]{% endif %}"})
        self.prepare("--tokenizer", folder, "--end-token", "<|endoftext|>", self.jsonl(
            "a.jsonl", {"messages": [USER, SAID, USER]}))
        self.assertEqual(self.ids(), [words[word] for word in ("[user]", "ask", "[assistant]", "said", "[user]", "ask",
                                                               "<|endoftext|>")])
        self.assertEqual(self.mask(), [0, 0, 0, 1, 0, 0, 0])

    def test_special_tokens_that_the_vocabulary_lacks(self):
        folder = self.tokenizer(byte_level(["a b"], 270), tokenizer_config={
            "bos_token": "<bos>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"})
        said = self.prepare("--tokenizer", folder, self.jsonl("a.jsonl", {"messages": [USER, SAID]}), code=1)
        self.assertIn("the chat template writes bos_token, which is '<bos>'; the tokenizer tok has no such token", said)


if __name__ == "__main__":
    support.main()
