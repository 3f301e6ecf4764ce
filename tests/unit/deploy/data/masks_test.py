"""Checks which tokens' loss counts: prompts and completions, conversations, packing; bit by bit. Conversations are rendered and
tokenized as transformers does it (golden/chat_v1.json)."""
import json
import unittest

import support
from support import GOLDEN, TEXT, DataTest, encoded

END = 0


def golden():
    return json.loads((GOLDEN / "chat_v1.json").read_text(encoding="utf-8"))


class PromptsTest(DataTest):
    def test_prompts_and_completions(self):
        pairs = [("What is it? ", "A text."), ("", "alone"), ("only asked", "")]
        path = self.jsonl("a.jsonl", *({"prompt": prompt, "completion": completion} for prompt, completion in pairs))
        said = self.prepare("--tokenizer", self.tokenizer(), path)
        ids, mask = [], []
        for prompt, completion in pairs:
            before, after = encoded(prompt), encoded(completion)
            ids += [*before, *after, END]
            bits = [0] * len(before) + [1] * (len(after) + 1)
            mask += [0, *bits[1:]]  # a document's first token is no target
        self.assertEqual(self.ids(), ids)
        self.assertEqual(self.mask(), mask)
        self.assertIn(f"targets: {sum(mask)} tokens", said)
        self.assertEqual(self.manifest()["documents"], 3)

    def test_texts_beside_them_have_masks_too(self):
        path = self.jsonl("a.jsonl", {"prompt": "ask ", "completion": "say"})
        self.prepare("--tokenizer", self.tokenizer(), path, self.write("b.txt", "plain text"), "--begin-token", "1")
        asked, said, plain = encoded("ask "), encoded("say"), encoded("plain text")
        self.assertEqual(self.ids(), [1, *asked, *said, END, 1, *plain, END])
        self.assertEqual(self.mask(), [0] + [0] * len(asked) + [1] * (len(said) + 1) + [0] + [1] * (len(plain) + 1))

    def test_masks_of_shards(self):
        records = [{"prompt": TEXT[at:at + at % 50], "completion": TEXT[at:at + at % 90]} for at in range(300)]
        path, tokenizer = self.jsonl("a.jsonl", *records), self.tokenizer()
        self.prepare("--tokenizer", tokenizer, path)
        ids, mask = self.ids(), self.mask()
        self.prepare("--force", "--tokenizer", tokenizer, "--shard-size", "666", path)
        self.assertEqual(self.manifest()["training"][0]["tokens"], 333)
        self.assertEqual((self.ids(), self.mask()), (ids, mask))

    def test_parquet(self):
        import pyarrow
        from pyarrow import parquet

        path = self.folder / "a.parquet"
        parquet.write_table(pyarrow.table({"prompt": ["one ", "two "], "completion": ["1", "2"]}), path)
        self.prepare("--tokenizer", self.tokenizer(), path)
        same = self.jsonl("a.jsonl", {"prompt": "one ", "completion": "1"}, {"prompt": "two ", "completion": "2"})
        first = self.files()
        self.prepare("--force", "--tokenizer", self.tokenizer(), same)
        self.assertEqual(self.files(), first)


class ChatTest(DataTest):
    def test_texts_are_those_of_transformers(self):
        from longhaul_data.chat import Chat
        from longhaul_data.fields import Names
        from longhaul_data.messages import Conversation, Reader

        where = ("a", "line", 1)
        for case in golden()["cases"]:
            text = (GOLDEN / f"{case['template']}.jinja").read_text(encoding="utf-8")
            chat = Chat(lambda with_tools, text=text: text, golden()["tokens"][case["template"]])
            messages = Reader(where, Names()).messages(case["messages"], "messages")
            [[piece]] = chat.pieces(where, Conversation(messages, case["tools"]))
            self.assertEqual(piece.text, case["text"], (case["template"], case["conversation"]))

    @staticmethod
    def case(template, conversation):
        return next(case for case in golden()["cases"]
                    if (case["template"], case["conversation"]) == (template, conversation))

    def folder_of(self, template):
        from tokenizers import Tokenizer

        return self.tokenizer(Tokenizer.from_file(str(GOLDEN / "tokenizer.json")), tokenizer_config={
            **golden()["tokens"][template], "chat_template": (GOLDEN / f"{template}.jinja").read_text()})

    def prepared(self, case, template=None, end="<|endoftext|>"):
        path = self.jsonl("a.jsonl", {key: case[key] for key in ("messages", "tools") if case[key]})
        self.prepare("--force", "--tokenizer", self.folder_of(template or case["template"]), "--end-token", end, path)

    def test_ids_and_masks_are_those_of_transformers(self):
        for case in golden()["cases"]:
            name = (case["template"], case["conversation"])
            self.prepared(case)
            self.assertEqual(self.ids(), [*case["ids"], END], name)
            if "mask" in case:
                answered = case["messages"][-1]["role"] == "assistant"
                self.assertEqual(self.mask(), [*case["mask"], int(answered)], name)

    def test_masks_by_prefixes_are_those_by_generation_blocks(self):
        count = 0
        for case in golden()["cases"]:
            if case["template"] != "chatml_generation":
                continue
            self.prepared(case)
            by_blocks = self.ids(), self.mask()
            self.prepared(case, template="chatml")
            self.assertEqual((self.ids(), self.mask()), by_blocks, case["conversation"])
            count += sum(case["mask"])
        self.assertGreater(count, 40)

    def test_prefixes_of_llama3(self):
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(GOLDEN / "tokenizer.json"))
        case = self.case("llama3", "two")
        self.prepared(case)
        targets = tokenizer.decode([token for token, bit in zip(self.ids(), self.mask()) if bit],
                                   skip_special_tokens=False)
        self.assertEqual(targets, "It is Paris. \U0001f1eb\U0001f1f7<|eot_id|>"
                         "105 km²\n\nthat is all<|eot_id|><|endoftext|>")

    def test_an_end_token_that_the_template_writes_is_not_repeated(self):
        case = self.case("inst", "one")
        self.prepared(case, end="</s>")
        self.assertEqual(self.ids(), case["ids"])
        self.assertEqual(self.mask()[-1], 1)

    def test_a_named_template_and_a_file(self):
        folder = self.tokenizer(tokenizer_config={"chat_template": [
            {"name": "default", "template": "{% for m in messages %}{{ m.content }}|{% endfor %}"},
            {"name": "tool_use", "template": "tools:{{ tools | length }}"}]})
        asked = [{"role": "user", "content": "ask"}]
        other = self.jsonl("b.jsonl", {"prompt": "a ", "completion": "b"})
        path = self.jsonl("a.jsonl", {"messages": asked}, {"messages": asked, "tools": [{"name": "<f>"}]})
        said = self.prepare("--tokenizer", folder, path, other)
        pair = [*encoded("a "), *encoded("b"), END]
        self.assertEqual(self.ids(), [*encoded("ask|"), END, *encoded("tools:1"), END, *pair])
        self.assertEqual(sum(self.mask()), len(encoded("b")) + 1)
        self.assertIn("2 documents without a token whose loss counts, the first of " + path + ":1", said)
        template = self.write("t.jinja", "{{ messages[0].content | upper }}")
        self.prepare("--force", "--tokenizer", folder, path, other, "--chat-template", template)
        self.assertEqual(self.ids(), [*encoded("ASK"), END] * 2 + pair)

    def test_what_a_template_refuses_is_named(self):
        folder = self.tokenizer(tokenizer_config={"chat_template": (GOLDEN / "inst.jinja").read_text(),
                                                  "bos_token": "x", "eos_token": "<|im_end|>"})
        asked, said = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
        path = self.jsonl("a.jsonl", {"messages": [asked, said]}, {"messages": [asked, asked]})
        self.assertIn("a.jsonl:2: the chat template refuses the messages: roles must alternate",
                      self.prepare("--tokenizer", folder, path, code=1))
        for record, problem in (({"messages": []}, "expected a list of messages in 'messages', got an empty list"),
                                ({"messages": [{"content": "a"}]}, "expected an object with a 'role' and a 'content' as "
                                 "message 1 of 'messages', got 'content'"),
                                ({"messages": 7}, "expected a list of messages in 'messages', got a number")):
            self.assertIn("a.jsonl:1: " + problem,
                          self.prepare("--tokenizer", folder, self.jsonl("a.jsonl", record), code=1))

    def test_a_sandbox(self):
        folder = self.tokenizer(chat_template={
            "chat_template": "{{ messages.__class__.__mro__ }}{{ messages.append(1) }}"})
        path = self.jsonl("a.jsonl", {"messages": [{"role": "user", "content": "a"}]})
        self.assertIn("a.jsonl:1: the chat template refuses", self.prepare("--tokenizer", folder, path, code=1))

    def test_the_date_is_said(self):
        import os

        folder = self.tokenizer(chat_template={"chat_template": "{{ strftime_now('%Y-%m-%d') }}"})
        path = self.jsonl("a.jsonl", {"messages": [{"role": "user", "content": "a"}]})
        other = self.jsonl("b.jsonl", {"prompt": "a ", "completion": "b"})
        os.environ["SOURCE_DATE_EPOCH"] = "86400"
        self.addCleanup(os.environ.pop, "SOURCE_DATE_EPOCH")
        self.assertIn("SOURCE_DATE_EPOCH fixes it", self.prepare("--tokenizer", folder, path, other))
        self.assertEqual(self.ids(), [*encoded("1970-01-02"), END, *encoded("a "), *encoded("b"), END])


class PackTest(DataTest):
    def expected(self, documents, context, cut):
        """By the rules' words, token by token: [(ids, mask)] of documents to (ids, mask)."""
        ids, mask = [], []
        for own, bits in documents:
            bits = [0, *bits[1:]]
            parts = [(own[at:at + context], bits[at:at + context]) for at in range(0, len(own), context)]
            for part, part_bits in parts[:1] if cut else parts:
                room = -len(ids) % context or context
                if len(part) > room:
                    ids += [END] * room
                    mask += [0] * room
                ids += part
                mask += [0, *part_bits[1:]]
        room = -len(ids) % context + 1
        return ids + [END] * room, mask + [0] * room

    def check_windows(self, context):
        ids, mask = self.ids(), self.mask()
        self.assertEqual(len(ids) % context, 1)
        self.assertEqual([mask[at] for at in range(0, len(mask), context)], [0] * (len(mask) // context + 1))
        self.assertEqual(self.manifest()["packed"], context)

    def test_texts(self):
        texts = [TEXT[at * 31:][:at * 29 % 400 + 1] for at in range(60)]
        path, tokenizer = self.jsonl("a.jsonl", *({"text": text} for text in texts)), self.tokenizer()
        for context in (2, 16, 50, 100):
            said = self.prepare("--force", "--tokenizer", tokenizer, "--pack", str(context), path)
            documents = [([*encoded(text), END], [1] * (len(encoded(text)) + 1)) for text in texts]
            ids, mask = self.expected(documents, context, cut=False)
            self.assertEqual(self.ids(), ids, context)
            self.assertEqual(self.mask(), mask, context)
            self.check_windows(context)
            longer = sum(len(own) > context for own, _ in documents)
            if longer:
                self.assertIn(f"{longer} documents are longer than {context} tokens and were cut; 0 tokens", said)

    def test_prompts(self):
        pairs = [(TEXT[at * 31:][:at * 29 % 200], TEXT[at * 17:][:at * 13 % 100]) for at in range(40)]
        path = self.jsonl("a.jsonl", *({"prompt": prompt, "completion": completion} for prompt, completion in pairs))
        said = self.prepare("--tokenizer", self.tokenizer(), "--pack", "64", path)
        documents = [([*encoded(prompt), *encoded(completion), END],
                      [0] * len(encoded(prompt)) + [1] * (len(encoded(completion)) + 1))
                     for prompt, completion in pairs]
        self.assertEqual((self.ids(), self.mask()), self.expected(documents, 64, cut=True))
        self.check_windows(64)
        dropped = sum(max(0, len(own) - 64) for own, _ in documents)
        self.assertGreater(dropped, 0)
        self.assertIn(f"{dropped} tokens of conversations and completions were left out", said)

    def test_long_documents_in_pieces_and_shards(self):
        # Longer than a piece, than a batch and than many windows.
        from longhaul_data import pieces

        text = TEXT * 6
        self.assertGreater(len(text), pieces.PIECE_CHARACTERS)
        path, tokenizer = self.write("a.txt", text), self.tokenizer()
        self.prepare("--tokenizer", tokenizer, "--pack", "100", "--shard-size", "2001", path)
        own = [*encoded(text), END]
        self.assertEqual((self.ids(), self.mask()), self.expected([(own, [1] * len(own))], 100, cut=False))
        self.assertEqual(self.manifest()["training"][0]["tokens"], 1000)
        self.check_windows(100)

    def test_validation_is_packed_too(self):
        path = self.write("a.txt", "one")
        self.prepare("--tokenizer", self.tokenizer(), "--pack", "8", path, "--validation", self.write("b.txt", "two"))
        own = encoded("two")
        self.assertEqual(self.ids("validation"), [*own, END] + [END] * (8 - len(own)))
        self.assertEqual(self.mask("validation"), [0] + [1] * len(own) + [0] * (8 - len(own)))


if __name__ == "__main__":
    support.main()
