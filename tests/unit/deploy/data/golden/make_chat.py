"""Writes chat_v1.json and tokenizer.json: conversations as transformers renders and tokenizes them.

usage: make_chat.py        with a Python that has transformers (5.23 made the files that are here) and jinja2
"""
import json
import pathlib
import re

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers, decoders

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>",
           "<|start_header_id|>", "<|end_header_id|>"]
NAMES = {"chatml": ("<|endoftext|>", "<|endoftext|>"), "chatml_generation": ("<|endoftext|>", "<|endoftext|>"),
         "llama3": ("<|begin_of_text|>", "<|eot_id|>"), "inst": ("<s>", "</s>")}
TEXT = ["You help. What is the capital of France? It is Paris. system user assistant What else? Nothing at all, "
        "thanks. Add two and three. That makes five. arguments name tools function"] * 8
ASK = {"role": "user", "content": "What is the capital of France?"}
CONVERSATIONS = {
    "one": [ASK, {"role": "assistant", "content": "It is Paris."}],
    "system": [{"role": "system", "content": "Be <b>brief</b> & \"kind\"."}, ASK,
               {"role": "assistant", "content": "Paris."}],
    "two": [ASK, {"role": "assistant", "content": "It is Paris. \U0001f1eb\U0001f1f7"},
            {"role": "user", "content": " Größe? "},
            {"role": "assistant", "content": "105 km²\n\nthat is all"}],
    "unanswered": [ASK, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "Why?"}],
}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds <two> numbers: 'a' & 'b'",
                                           "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]
WITH_TOOLS = [{"role": "user", "content": "Add two and three."},
              {"role": "assistant", "content": None,
               "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": "drei ä"}}}]},
              {"role": "tool", "content": "5"}, {"role": "assistant", "content": "That makes five."}]


def tokenizer_file():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=340, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    path = HERE / "tokenizer.json"
    tokenizer.save(str(path), pretty=False)
    return path


def case(tokenizer, template, name, messages, tools):
    text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    made = {"template": template, "conversation": name, "messages": messages, "tools": tools, "text": text}
    marked = bool(re.search(r"\{%-?\s*generation", tokenizer.chat_template))
    encoded = tokenizer.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=True,
                                            return_assistant_tokens_mask=marked)
    made["ids"] = encoded["input_ids"]
    if marked:
        made["mask"] = encoded["assistant_masks"]
    return made


def main():
    path = tokenizer_file()
    cases = []
    for template, (begin, end) in NAMES.items():
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token=begin, eos_token=end)
        tokenizer.chat_template = (HERE / f"{template}.jinja").read_text(encoding="utf-8")
        for name, messages in CONVERSATIONS.items():
            cases.append(case(tokenizer, template, name, messages, None))
        if template == "chatml":
            cases.append(case(tokenizer, template, "tools", WITH_TOOLS, TOOLS))
    made = {"transformers": transformers.__version__,
            "tokens": {name: {"bos_token": begin, "eos_token": end} for name, (begin, end) in NAMES.items()},
            "cases": cases}
    (HERE / "chat_v1.json").write_text(json.dumps(made, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
