"""Writes turns_v1.json: what an assistant reads and says at every turn of conversations, as transformers renders it.

usage: make_turns.py        with a Python that has transformers (5.23 made the file that is here) and jinja2
"""
import json
import os
import pathlib

import transformers

HERE = pathlib.Path(__file__).resolve().parent
DATE = "86400"
NAMES = {"chatml": ("<|endoftext|>", "<|im_end|>"), "thinking": ("<|endoftext|>", "<|im_end|>"),
         "llama3": ("<|begin_of_text|>", "<|eot_id|>"), "dated": ("<|begin_of_text|>", "<|eot_id|>"),
         "last_user": ("<s>", "</s>"), "inst": ("<s>", "</s>")}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds two numbers",
                                           "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]


def asked(text):
    return {"role": "user", "content": text}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(number):
    return said("", tool_calls=[{"type": "function", "function": {"name": "add", "arguments": {"a": number}}}])


THREE = [asked("What is it?"), said("A town."), asked("How large?"), said("105 km², naïvely."), asked("A town?"),
         said("A town.")]
SYSTEM = {"role": "system", "content": "Be brief."}
WITH_TOOLS = [asked("Add two."), call(2), {"role": "tool", "content": "5"}, said("That makes five."), asked("And three?"),
              call(3), {"role": "tool", "content": "8"}, said("Eight.")]
CONVERSATIONS = {
    "three": (THREE, None), "system": ([SYSTEM, *THREE], None),
    "unanswered": ([*THREE, asked("Why?")], None),
    "thoughts": ([asked("Why?"), said("<think>\nLong ago.\n</think>\n\nBecause."), asked("So?"),
                  said("Thus.", reasoning_content="It follows.")], None),
    "tools": (WITH_TOOLS, TOOLS), "system and tools": ([SYSTEM, *WITH_TOOLS], TOOLS),
}
SKIPPED = {("llama3", "tools"), ("llama3", "system and tools"), ("inst", "tools"), ("inst", "system and tools")}


def turns(render, messages):
    """[what it reads, what it says]: the rendering up to there, and what a message adds to it."""
    found = []
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = render(messages[:number], True)
        after = render(messages[:number + 1], False)
        # Where the template rewrites what stands before, the message is what follows the last [/INST] or result.
        answer = after[len(before):] if after.startswith(before) else after[max(
            after.rindex(mark) + len(mark) for mark in ("[/INST]", "[/TOOL_RESULTS]") if mark in after):]
        found.append([before, answer])
    return found


def main():
    os.environ["TZ"] = "UTC"
    cases = []
    for template, (begin, end) in NAMES.items():
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(HERE / "tokenizer.json"), bos_token=begin, eos_token=end)
        # transformers has no fixed date.
        text = (HERE / f"{template}.jinja").read_text(encoding="utf-8")
        tokenizer.chat_template = text.replace("strftime_now('%d %b %Y')", "'02 Jan 1970'")
        for name, (messages, tools) in CONVERSATIONS.items():
            if (template, name) in SKIPPED:
                continue

            def render(some, prompt):
                return tokenizer.apply_chat_template(some, tools=tools, tokenize=False, add_generation_prompt=prompt)

            cases.append({"template": template, "conversation": name, "messages": messages, "tools": tools,
                          "turns": turns(render, messages)})
    made = {"transformers": transformers.__version__, "date": DATE,
            "tokens": {name: {"bos_token": begin, "eos_token": end} for name, (begin, end) in NAMES.items()},
            "cases": cases}
    (HERE / "turns_v1.json").write_text(json.dumps(made, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
