"""Pairs of a chosen and a rejected answer (`--pairs`): formats of TRL, whole pairs in each window, what is left out."""
import json

import support
from support import DataTest, encoded

END = 0
CHATML = support.GOLDEN / "chatml.jinja"


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


class PairsTest(DataTest):
    def pairs(self, *records, pack=128, options=()):
        """Prepares a set of the records: ((ids, mask) of the chosen document, the same of the rejected one) of each."""
        self.summary = json.loads(self.prepare(
            "--force", "--json", "--tokenizer", self.tokenizer(), "--end-token", "<|endoftext|>", "--chat-template",
            CHATML, "--pairs", "--pack", pack, self.jsonl("a.jsonl", *records), *options))
        return self.read(pack)

    def read(self, pack):
        """By the format's words: documents 2k and 2k + 1 of a window, where both have a target."""
        ids, mask, pairs = self.ids(), self.mask(), []
        self.assertEqual(len(ids) % pack, 1)  # the last window reads one token more
        self.assertEqual(mask[-1], 0)
        for at in range(0, len(ids) - 1, pack):
            documents, begin = [], at
            for end in (i + 1 for i in range(at, at + pack) if ids[i] == END):
                documents.append((ids[begin:end], mask[begin:end]))
                begin = end
            self.assertEqual(begin, at + pack, "a window's last document has an end")
            found = [pair for pair in zip(documents[::2], documents[1::2]) if sum(pair[0][1]) and sum(pair[1][1])]
            rest = documents[2 * len(found):]
            self.assertEqual([document for document, _ in rest], [[END]] * len(rest))
            self.assertEqual(sum(sum(bits) for _, bits in rest), 0)
            pairs += found
        self.assertEqual(self.manifest()["pairs"], len(pairs))
        self.assertEqual(self.manifest()["documents"], 2 * len(pairs))
        return pairs

    def text(self, ids):
        return support.plain_tokenizer().decode(ids, skip_special_tokens=False)

    def answers(self, pairs):
        """(prompt, answer) as texts, of each document."""
        split = []
        for pair in pairs:
            for ids, mask in pair:
                first = mask.index(1)
                split.append((self.text(ids[:first]),
                              self.text([token for token, bit in zip(ids[first:], mask[first:]) if bit])))
        return split

    def test_texts_with_a_prompt(self):
        pairs = self.pairs({"prompt": "Is it slow? ", "chosen": "No.", "rejected": "Yes, it is."})
        (chosen, mask), (rejected, other) = pairs[0]
        self.assertEqual(chosen, [*encoded("Is it slow? "), *encoded("No."), END])
        self.assertEqual(rejected, [*encoded("Is it slow? "), *encoded("Yes, it is."), END])
        prompt = len(encoded("Is it slow? "))
        self.assertEqual(mask, [0] * prompt + [1] * (len(chosen) - prompt))
        self.assertEqual(other, [0] * prompt + [1] * (len(rejected) - prompt))
        self.assertEqual(self.manifest()["version"], 2)
        self.assertEqual(self.manifest()["packed"], 128)
        self.assertEqual(self.manifest()["ends_inside"], 0)
        self.assertEqual(self.summary["pairs"], 1)

    def test_texts_without_a_prompt_share_a_beginning(self):
        asked = "Human: hi\n\nAssistant:"
        pairs = self.pairs({"chosen": f"{asked} Hello there.", "rejected": f"{asked} Help!"})
        self.assertEqual(self.answers(pairs), [(asked, " Hello there.<|endoftext|>"), (asked, " Help!<|endoftext|>")])

    def test_conversations_with_and_without_a_prompt(self):
        chosen, rejected = said("Blue."), said("Green.")
        records = ({"prompt": [user("Sky?")], "chosen": [chosen], "rejected": [rejected]},
                   {"prompt": "Sky?", "chosen": [user("Sky?"), chosen], "rejected": [user("Sky?"), rejected]},
                   {"chosen": [user("Sky?"), chosen], "rejected": [user("Sky?"), rejected]})
        pairs = self.pairs(*records, pack=256)
        self.assertEqual(len(pairs), 3)
        self.assertEqual(pairs[1], pairs[0])
        self.assertEqual(pairs[2], pairs[0])
        (prompt, answer), (other_prompt, other) = self.answers(pairs[:1])
        self.assertEqual(prompt, other_prompt)
        self.assertTrue(prompt.endswith("<|im_start|>user\nSky?<|im_end|>\n<|im_start|>assistant\n"), prompt)
        self.assertEqual(answer, "Blue.<|im_end|><|endoftext|>")
        self.assertEqual(other, "Green.<|im_end|><|endoftext|>")

    def test_turns_that_both_sides_share_are_a_prompt(self):
        shared = [user("One?"), said("Yes."), user("Two?")]
        pairs = self.pairs({"chosen": [*shared, said("Also.")], "rejected": [*shared, said("No.")]}, pack=256)
        self.assertEqual([answer for _, answer in self.answers(pairs)],
                         ["Also.<|im_end|><|endoftext|>", "No.<|im_end|><|endoftext|>"])

    def test_windows_have_whole_pairs(self):
        records = [{"prompt": f"{n} ", "chosen": "x" * (1 + n % 17), "rejected": "yes " * (1 + n % 5)}
                   for n in range(60)]
        pairs = self.pairs(*records, pack=60)
        self.assertEqual([self.text(pair[0][0]) for pair in pairs],
                         [f"{r['prompt']}{r['chosen']}<|endoftext|>" for r in records])
        self.assertEqual([self.text(pair[1][0]) for pair in pairs],
                         [f"{r['prompt']}{r['rejected']}<|endoftext|>" for r in records])

    def test_what_is_left_out_is_counted(self):
        pairs = self.pairs({"prompt": "a ", "chosen": "b", "rejected": "c"},
                           {"prompt": "same ", "chosen": "b", "rejected": "b"},
                           {"chosen": [user("q"), said("r")], "rejected": [user("q"), said("r")]},
                           {"prompt": "long ", "chosen": "word " * 40, "rejected": "c"}, pack=32)
        self.assertEqual(len(pairs), 1)
        self.assertEqual([note for note in self.summary["notes"] if "left out" in note],
                         ["1 pair left out: the two answers with their prompts are longer than 32 tokens (--pack)",
                          "2 pairs left out: both answers are the same"])

    def refused(self, sentence, *records, options=("--pairs", "--pack", 64)):
        said_ = self.prepare("--force", "--tokenizer", self.tokenizer(), "--end-token", "<|endoftext|>",
                             "--chat-template", CHATML, self.jsonl("a.jsonl", *records), *options, code=1)
        self.assertIn(sentence, said_)

    def test_refused(self):
        good = {"prompt": "a ", "chosen": "b", "rejected": "c"}
        self.refused("expected --pack CONTEXT, too", good, options=("--pairs",))
        self.refused("expected the fields 'chosen' and 'rejected' (--pairs), got 'text'", {"text": "a"})
        self.refused("the files: expected a pair at least, got none; 1 pair left out: both answers are the same",
                     {"prompt": "a ", "chosen": "b", "rejected": "b"})
        self.refused("expected text in 'rejected' as in the prompt, got a number",
                     {"prompt": "a ", "chosen": "b", "rejected": 3})
        self.refused("a.jsonl:2: expected the field 'rejected', got 'prompt', 'chosen'", good,
                     {"prompt": "a ", "chosen": "b"})
        self.refused("expected a message of 'assistant' in 'rejected'",
                     {"chosen": [user("q"), said("r")], "rejected": [user("q"), user("r")]})
        self.refused("the end token also stands inside of a document of a pair",
                     {"prompt": "a<|endoftext|> ", "chosen": "b", "rejected": "c"})

    def test_other_names_and_validation(self):
        held_out = self.jsonl("v.jsonl", {"prompt": "v ", "good": "b", "bad": "c"})
        self.pairs({"prompt": "a ", "good": "b", "bad": "c"},
                   options=("--map", "chosen=good", "--map", "rejected=bad", "--validation", held_out))
        self.assertEqual(self.manifest()["validation_documents"], 2)
        code, out, _ = self.command("show", self.out)
        self.assertEqual(code, 0)
        self.assertIn("pairs\t1\n", out)

    def test_without_pairs_the_chosen_side_is_trained_alone(self):
        self.prepare("--tokenizer", self.tokenizer(), "--end-token", "<|endoftext|>",
                     self.jsonl("a.jsonl", {"prompt": "a ", "chosen": "b", "rejected": "c"}))
        self.assertEqual(self.manifest()["version"], 1)
        self.assertNotIn("pairs", self.manifest())
        self.assertEqual(self.text(self.ids()), "a b<|endoftext|>")


if __name__ == "__main__":
    support.main()
