"""Conversations in the formats that people have become the same documents, and nothing that is no text is trained."""
import json

import support
from support import DataTest

TEMPLATE = ("{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
            "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}"
            "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
ASK, SAY = {"role": "user", "content": "ask"}, {"role": "assistant", "content": "say"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def call(arguments, content=None, **more):
    return {"role": "assistant", "content": content, **more,
            "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": arguments}}]}


class ConversationsTest(DataTest):
    def folder_of(self, template=TEMPLATE):
        return self.tokenizer(tokenizer_config={"chat_template": template})

    def texts(self, path, *options, template=TEMPLATE):
        """Documents as `show` marks them: what is learned in brackets, end tokens left out."""
        self.said = self.prepare("--force", "--tokenizer", self.folder_of(template), path, *options)
        code, shown, error = self.command("show", self.out, "--text", "99")
        self.assertEqual(code, 0, error)
        shown = shown.replace("\N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}", "{{").replace(
            "\N{MATHEMATICAL RIGHT WHITE SQUARE BRACKET}", "}}").replace("<|endoftext|>", "").replace("{{}}", "")
        return [part.partition("\n")[2].removesuffix("\n") for part in shown.split("--- document ")[1:]]

    def check(self, text, *records, options=(), name="a.jsonl", **keywords):
        for record in records:
            self.assertEqual(self.texts(self.jsonl(name, record), *options, **keywords), [text], record)

    def refused(self, problem, *records, options=(), template=TEMPLATE):
        """The last record is the wrong one."""
        said = self.prepare("--force", "--tokenizer", self.folder_of(template), self.jsonl("a.jsonl", *records),
                            *options, code=1)
        self.assertIn(f"a.jsonl:{len(records)}: {problem}", said)

    def test_formats(self):
        turns = [{"from": "human", "value": "ask"}, {"from": "gpt", "value": "say"}]
        self.check("<user>ask<assistant>{{say}}", {"messages": [ASK, SAY]}, {"conversations": turns},
                   {"conversations": [ASK, SAY]}, {"conversations": json.dumps(turns)},
                   {"instruction": "ask", "input": "", "output": "say"}, {"instruction": "ask", "output": "say"},
                   {"prompt": [ASK], "completion": [SAY]}, {"prompt": "ask", "completion": [SAY]},
                   {"prompt": [ASK], "completion": "say"},
                   {"prompt": [ASK], "chosen": [SAY], "rejected": [SAY]},
                   {"chosen": [ASK, SAY], "rejected": [ASK, {"role": "assistant", "content": "no"}]},
                   {"prompt": "ask", "chosen": [ASK, SAY]}, {"prompt": "ask", "chosen": [SAY], "rejected": [SAY]})
        self.check("ask{{say}}", {"prompt": "ask", "chosen": "say", "rejected": "no"},
                   {"prompt": "ask", "completion": "say"})
        self.check("<system>brief<user>ask\nmore<assistant>{{say}}",
                   {"system": "brief", "instruction": "ask", "input": "more", "output": "say"},
                   {"system": "brief", "messages": [{"role": "user", "content": "ask\nmore"}, SAY]})
        self.check("<user>one<assistant>{{two}}<user>ask<assistant>{{say}}",
                   {"history": [["one", "two"]], "instruction": "ask", "output": "say"})
        # What stands in the prompt is no target, whoever says it.
        self.check("<user>ask<assistant>say<user>ask<assistant>{{say}}",
                   {"prompt": [ASK, SAY, ASK], "completion": [SAY]},
                   {"chosen": [ASK, SAY, ASK, SAY], "rejected": [ASK, SAY, ASK, {**SAY, "content": "no"}]},
                   {"prompt": [ASK, SAY, ASK], "chosen": [ASK, SAY, ASK, SAY]})

    def test_other_names(self):
        self.check("<user>ask<assistant>{{say}}",
                   {"dialog": [{"speaker": "person", "utterance": "ask"}, {"speaker": "bot", "utterance": "say"}]},
                   options=("--map", "messages=dialog", "--map", "role=speaker", "--map", "content=utterance", "--map",
                            "assistant=bot", "--map", "user=person"))
        self.check("<user>ask<assistant>{{say}}", {"q": "ask", "a": "say"},
                   options=("--map", "instruction=q", "--map", "output=a"))
        self.check("{{say}}", {"body": "say"}, options=("--map", "text=body"))
        said = self.prepare("--tokenizer", self.folder_of(), self.jsonl("a.jsonl", {"dialog": [ASK, SAY]}), "--map",
                            "messages=talk", "--force", code=1)
        self.assertIn("expected the field 'talk' (--map messages=talk), got 'dialog'", said)
        said = self.prepare("--tokenizer", self.folder_of(), str(self.folder / "a.jsonl"), "--map", "dialog=messages",
                            "--force", code=1)
        self.assertIn("--map: expected OURS=THEIRS, where OURS is one of text, messages, ", said)

    def test_a_message_without_text(self):
        self.check("<user>ask<assistant>{{[add {\"a\": 2}]}}", {"messages": [ASK, call({"a": 2})]},
                   {"messages": [ASK, {key: value for key, value in call({"a": 2}).items() if key != "content"}]})
        # None for a template that asks, and no text for one that does not.
        self.check("<user>ask<assistant>{{none}}", {"messages": [ASK, call({})]}, template=
                   "{% for m in messages %}<{{ m.role }}>{% if m.content is none %}none{% else %}{{ m.content }}{% endif %}"
                   "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
        null = "expected text in 'content' of message 2 of 'messages', got null; only a message with tool calls"
        self.refused(null, {"messages": [ASK, {"role": "assistant", "content": None}]})
        self.refused(null, {"messages": [ASK, SAY]}, {"messages": [ASK, {"role": "assistant"}]})
        self.refused(null, {"messages": [ASK, {"role": "assistant", "content": None, "tool_calls": []}]})
        self.refused("expected text in 'content' of message 1 of 'messages', got null",
                     {"messages": [{"role": "user", "content": None}, SAY]})

    def test_parts(self):
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "sk", "image_url": None}]
        self.check("<user>ask<assistant>{{say}}", {"messages": [{"role": "user", "content": parts}, SAY]},
                   {"prompt": [{"role": "user", "content": parts}], "completion": [SAY]})
        for part, got in (({"type": "image_url", "image_url": {"url": "x"}}, "the type 'image_url'"),
                          ({"type": "input_audio"}, "the type 'input_audio'"), ({"type": "text"}, "'type'"), (7, "a number"),
                          ([["ask"]], "a list")):
            self.refused("expected text as part 2 of message 1 of 'messages' ({\"type\": \"text\", \"text\": ...}), got "
                         + got, {"messages": [{"role": "user", "content": [parts[0], part]}, SAY]})
        for content, got in (([], "an empty list"), (5, "a number"), (True, "a boolean"), ({"a": 1}, "an object")):
            self.refused(f"expected text in 'content' of message 1 of 'messages', got {got}",
                         {"messages": [{"role": "user", "content": content}, SAY]})

    def test_tool_calls_have_one_form(self):
        told = "<user>ask<assistant>{{[add {\"a\": 2, \"b\": \"ü\"}]}}<tool>5<assistant>{{say}}"
        tail = [{"role": "tool", "content": "5"}, SAY]
        arguments = {"a": 2, "b": "ü"}
        bare = {"role": "assistant", "content": "", "tool_calls": [{"name": "add", "arguments": arguments}]}
        old = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": json.dumps(arguments)}}
        self.check(told, *({"messages": [ASK, first, *tail]} for first in (
            call(arguments), call(json.dumps(arguments)), call(json.dumps(arguments, ensure_ascii=False)), bare, old)))
        self.check(told, {"conversations": [
            {"from": "human", "value": "ask"},
            {"from": "function_call", "value": json.dumps({"name": "add", "arguments": arguments})},
            {"from": "observation", "value": "5"}, {"from": "gpt", "value": "say"}]})
        self.check("<user>ask<assistant>{{[add {}]}}", {"messages": [ASK, call("")]}, {"messages": [ASK, call(None)]})
        # For templates that append the arguments to a text, or print them, they are JSON text.
        for expression in ("'args ' + c.function.arguments", "'args ' ~ c.function.arguments",
                           "'args ' + (c.function.arguments | string)"):
            self.check("<user>ask<assistant>{{args {\"a\": 2, \"b\": \"ü\"}}}", {"messages": [ASK, call(arguments)]},
                       template=TEMPLATE.replace("'<{{ m.role }}>'", "").replace(
                           "[{{ c.function.name }} {{ c.function.arguments | tojson }}]", "{{ " + expression + " }}"))
        for wrong, problem in (("{\"a\"", "expected an object or its JSON text as arguments of tool call 1 of message 2"),
                               ("[1]", "expected an object as arguments of tool call 1 of message 2 of 'messages', got a "
                                "list")):
            self.refused(problem, {"messages": [ASK, call(wrong)]})
        self.refused("expected a list in 'tool_calls' of message 1 of 'messages', got a number",
                     {"messages": [{**ASK, "tool_calls": 1}, SAY]})
        self.refused("expected a function with a 'name' as tool call 1 of message 2 of 'messages', got 'arguments'",
                     {"messages": [ASK, {**SAY, "tool_calls": [{"function": {"arguments": "{}"}}]}]})

    def test_tools_and_results(self):
        self.check(json.dumps([TOOL]) + "\n<user>ask<assistant>{{say}}", {"messages": [ASK, SAY], "tools": [TOOL]},
                   {"messages": [ASK, SAY], "tools": json.dumps([TOOL])})
        self.check("<user>ask<assistant>{{say}}", {"messages": [ASK, SAY], "tools": None},
                   {"messages": [ASK, SAY], "tools": []}, {"messages": [ASK, SAY], "tools": ""})
        self.check("<user>ask<tool>{\"sum\": 5}<assistant>{{say}}",
                   {"messages": [ASK, {"role": "tool", "content": {"sum": 5}}, SAY]})
        self.refused("expected a list or its JSON text in 'tools'", {"messages": [ASK, SAY], "tools": "add"})
        # A template that knows no tools loses them.
        plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
        self.texts(self.jsonl("a.jsonl", {"messages": [ASK, call({}), SAY], "tools": [TOOL]}), template=plain)
        self.assertIn("leaves out the text or the tool calls of 1 message, first in", self.said)
        self.assertIn("leaves out 1 tool, first in", self.said)

    def test_nulls_of_columns(self):
        import pyarrow
        from pyarrow import parquet

        other = {"type": "function", "function": {"name": "sub", "arguments": {"b": "x", "deep": {"c": [1]}}}}
        records = [{"messages": [ASK, call({"a": 2})]}, {"messages": [ASK, {**call({}), "tool_calls": [other]}, SAY]}]
        path = self.folder / "a.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(records), path)
        columns = parquet.read_table(path).to_pylist()
        self.assertIn("b", columns[0]["messages"][1]["tool_calls"][0]["function"]["arguments"])  # it is padded
        want = ["<user>ask<assistant>{{[add {\"a\": 2}]}}",
                "<user>ask<assistant>{{[sub {\"b\": \"x\", \"deep\": {\"c\": [1]}}]}}<assistant>{{say}}"]
        self.assertEqual(self.texts(path), want)
        self.assertEqual(self.texts(self.jsonl("a.jsonl", *records)), want)

    def test_roles_that_nobody_knows(self):
        bot = {"role": "bot", "content": "say"}
        path = self.jsonl("a.jsonl", {"messages": [ASK, SAY]}, {"messages": [ASK, bot]}, {"messages": [ASK, bot, SAY]})
        self.texts(path)
        self.assertIn(f"note: the role 'bot' of 2 messages, first in {path}:2, is not known", self.said)
        self.assertIn(f"1 document without a token whose loss counts, the first of {path}:2", self.said)
        self.assertEqual(json.loads(self.prepare("--force", "--json", "--tokenizer", self.folder_of(), path))
                         ["documents_without_targets"], 1)
        self.assertEqual(self.texts(path, "--map", "assistant=bot")[1], "<user>ask<assistant>{{say}}")
        self.assertNotIn("note:", self.said)

    def test_nothing_to_learn_is_refused(self):
        path = self.jsonl("a.jsonl", {"messages": [ASK]}, {"messages": [ASK, {"role": "bot", "content": "say"}]})
        said = self.prepare("--tokenizer", self.folder_of(), path, code=1)
        self.assertIn(f"the files: expected tokens whose loss counts, got none in 2 documents, the first of {path}:1; the "
                      "roles are 'bot' in 1 message, 'user' in 2 messages", said)
        good = self.jsonl("b.jsonl", {"messages": [ASK, SAY]})
        said = self.prepare("--tokenizer", self.folder_of(), good, "--validation", path, code=1)
        self.assertIn("--validation: expected tokens whose loss counts", said)
        # --pack cuts the completion off.
        long = self.jsonl("c.jsonl", {"prompt": "ask " * 90, "completion": "say"})
        said = self.prepare("--tokenizer", self.folder_of(), "--pack", "50", long, code=1)
        self.assertIn("c.jsonl:1", said)
        said = self.prepare("--tokenizer", self.folder_of(), "--pack", "50", long, good)
        self.assertIn(f"1 document without a token whose loss counts, the first of {long}:1", said)

    def test_a_template_that_is_missing_is_said_once(self):
        path = self.jsonl("a.jsonl", *[{"prompt": [ASK], "completion": [SAY]}] * 9)
        said = self.prepare("--tokenizer", self.tokenizer(), path, code=1)
        self.assertEqual(said, "the tokenizer has no chat template, which conversations need; name a file with "
                         "--chat-template\n")

    def test_several_formats_in_a_record(self):
        self.check("{{say it}}", {"text": "say it", "instruction": "ask", "output": "say"})
        self.assertIn("a.jsonl: text is taken, although there is instruction and output", self.said)

    def test_orders_of_roles(self):
        self.check("<assistant>{{say}}<user>ask<assistant>{{say}}", {"messages": [SAY, ASK, SAY]})
        self.check("<user>ask<user>ask<assistant>{{say}}", {"messages": [ASK, ASK, SAY]})
        self.check("<user>ask<system>brief<assistant>{{say}}",
                   {"messages": [ASK, {"role": "system", "content": "brief"}, SAY]})
        first = "{% for m in messages %}{% if m.role != 'system' or loop.first %}<{{ m.role }}>{{ m.content }}{% endif %}" \
                "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
        self.check("<user>ask<assistant>{{say}}", {"messages": [ASK, {"role": "system", "content": "brief"}, SAY]},
                   template=first)
        self.assertIn("leaves out the text or the tool calls of 1 message", self.said)

    def test_messages_that_are_none(self):
        for value, problem in (([], "expected a list of messages in 'messages', got an empty list"),
                               (None, "expected a list of messages in 'messages', got null"),
                               ("[{", "expected a list or its JSON text in 'messages'"),
                               (["ask"], "expected an object with a 'role' and a 'content' as message 1 of 'messages', got "
                                "text"),
                               ([[ASK, SAY]], "expected an object with a 'role' and a 'content' as message 1 of 'messages', "
                                "got a list"),
                               ([{"role": "", "content": "a"}], "expected an object with a 'role' and a 'content' as message "
                                "1 of 'messages', got an empty text in 'role'"),
                               ([{"role": 1, "content": "a"}], "expected an object with a 'role' and a 'content' as message 1 "
                                "of 'messages', got a number in 'role'")):
            self.refused(problem, {"messages": [ASK, SAY]}, {"messages": value})
        self.refused("expected text in 'output', got null", {"instruction": "ask", "output": None})
        self.refused("expected text in 'output', got a list", {"instruction": "ask", "output": ["say"]})
        self.refused("expected text in 'prompt', got null", {"prompt": None, "completion": "say"})

    def test_halves_of_surrogates(self):
        smile = self.write("a.jsonl", '{"messages": [{"role": "user", "content": "\\ud83d\\ude00"}, '
                           '{"role": "assistant", "content": "say"}]}\n')
        self.assertEqual(self.texts(smile), ["<user>\U0001f600<assistant>{{say}}"])
        half = self.write("a.jsonl", '{"messages": [{"role": "user", "content": "\\ud83d"}, '
                          '{"role": "assistant", "content": "say"}]}\n')
        self.assertIn("a.jsonl:1: expected text, got half of a surrogate pair, U+D83D",
                      self.prepare("--force", "--tokenizer", self.folder_of(), half, code=1))


if __name__ == "__main__":
    support.main()
