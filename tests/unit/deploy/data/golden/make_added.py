"""Writes added_v1.json: ids that transformers gives where tokenizer_config.json or added_tokens.json has tokens of
its own.

usage: make_added.py        with a Python that has transformers (5.23 made the file that is here)
"""
import json
import pathlib
import shutil
import tempfile

import transformers

HERE = pathlib.Path(__file__).resolve().parent
FIRST_FREE = 340
TEXT = "What is<|tool|> it? <|im_end|> [END]   else <extra> add</s> Nothing that think<|im_start|>"


def token(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": True, **flags}


# {name: {file: its object}}
CASES = {
    "none": {"tokenizer_config": {"eos_token": "</s>"}},
    "new tokens": {"tokenizer_config": {"eos_token": "[END]", "added_tokens_decoder": {
        str(FIRST_FREE + 1): token("[END]"), str(FIRST_FREE): token("<|tool|>", special=False)}}},
    "spaces": {"tokenizer_config": {"eos_token": "</s>", "added_tokens_decoder": {
        "2": token("</s>"), str(FIRST_FREE): token("<extra>", lstrip=True, rstrip=True)}}},
    "words of the vocabulary": {"tokenizer_config": {"eos_token": "</s>", "pad_token": "What", "unk_token": "hi"}},
    "as tokens of tokenizer.json": {"tokenizer_config": {"eos_token": "</s>", "added_tokens_decoder": {
        "2": token("</s>"), "3": token("<|im_start|>"), "4": token("<|im_end|>")}}},
    "other flags": {"tokenizer_config": {"eos_token": "</s>", "added_tokens_decoder": {
        "2": token("</s>", lstrip=True), "4": token("<|im_end|>", rstrip=True, special=False)}}},
    "added_tokens.json": {"tokenizer_config": {"eos_token": "[END]"},
                          "added_tokens": {"<|tool|>": FIRST_FREE, "[END]": FIRST_FREE + 1}},
    "objects": {"tokenizer_config": {"eos_token": {"__type": "AddedToken", **token("</s>")}, "added_tokens_decoder": {
        "2": token("</s>"), str(FIRST_FREE): token("[END]", single_word=True)}}},
}


def main():
    made = []
    for name, files in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(HERE / "tokenizer.json", folder)
            for file, value in files.items():
                if file == "tokenizer_config":
                    value = {"tokenizer_class": "PreTrainedTokenizerFast", **value}
                (pathlib.Path(folder) / f"{file}.json").write_text(json.dumps(value), encoding="utf-8")
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            made.append({"case": name, "files": files, "text": TEXT,
                         "ids": tokenizer.encode(TEXT, add_special_tokens=False), "end_token": tokenizer.eos_token_id})
    (HERE / "added_v1.json").write_text(json.dumps(
        {"transformers": transformers.__version__, "cases": made}, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
