"""A tokenizer's folder: the file that the package `tokenizers` reads, and what others say of its tokens."""
import hashlib
import json
import os
import pathlib

from . import added_tokens
from .errors import Problem, need
from .lfs import refuse_pointer

# Copied into the data set, where they exist.
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
         "chat_template.jinja", "chat_template.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model")
# Tried in this order where no file of the tokenizer names one.
KNOWN_END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "<|eot_id|>")


def read_json(path):
    """An empty dictionary where there is no such file."""
    if not path.exists():
        return {}
    try:
        refuse_pointer(path)
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise Problem(f"{path}: expected JSON; {error}") from error
    if not isinstance(value, dict):
        raise Problem(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def read_template(path):
    try:
        refuse_pointer(path)
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Problem(f"{path}: expected a chat template; {error}") from error


def text_of(token):
    """Files name a token by its text, or by an object that holds its text."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def name_of(folder):
    """The folder's; of a download in models--OWNER--NAME/snapshots/REVISION the model's."""
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
    return folder.name


class Tokenizer:
    """`backend` is tokenizers.Tokenizer, without truncation and padding. `what`: who named the path."""

    def __init__(self, path, what="--tokenizer"):
        path = pathlib.Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise Problem(f"{what}: expected tokenizer.json or a folder that has it; there is no {file}")
        # Links are not followed: a downloaded tokenizer's files are links to blobs elsewhere.
        file = pathlib.Path(os.path.abspath(file))
        self.folder = file.parent
        if file.name == "tokenizer.json":
            self.name = name_of(self.folder)
            self.files = {name: self.folder / name for name in FILES if (self.folder / name).is_file()}
            self.siblings = True
        else:
            self.name = file.stem
            self.files = {"tokenizer.json": file}
            self.siblings = False
        refuse_pointer(file)
        content = file.read_bytes()
        self.sha256 = hashlib.sha256(content).hexdigest()
        package = need("tokenizers", "tokenizing")
        try:
            self.backend = package.Tokenizer.from_str(content.decode("utf-8"))
        except Exception as error:  # the package raises Exception itself
            raise Problem(f"{file}: expected a tokenizer of the package tokenizers {package.__version__}; "
                          f"{error}") from error
        self.backend.no_truncation()
        self.backend.no_padding()
        added_tokens.add(self.backend, self.beside("tokenizer_config.json"), self.beside("added_tokens.json"),
                         self.special_tokens(), self.folder)
        ids = self.backend.get_vocab(with_added_tokens=True).values()
        if not ids:
            raise Problem(f"{file}: expected a tokenizer with tokens, this one has none")
        self.vocabulary = max(ids) + 1

    def beside(self, name):
        """The JSON object of another file of this tokenizer."""
        return read_json(self.folder / name) if self.siblings else {}

    def special_tokens(self):
        """{"eos_token": "</s>", ...}: names that chat templates use."""
        found = {}
        for file in ("special_tokens_map.json", "tokenizer_config.json"):
            for key, value in self.beside(file).items():
                if key.endswith("_token") and text_of(value) is not None:
                    found[key] = text_of(value)
        return found

    def id_of(self, token, option):
        """The id of a token that an option names by its text or by its id."""
        if token.isdecimal():
            if int(token) < self.vocabulary:
                return int(token)
            raise Problem(f"{option}: expected an id below {self.vocabulary}, the tokenizer's vocabulary, got {token}")
        found = self.backend.token_to_id(token)
        if found is None:
            raise Problem(f"{option}: the tokenizer {self.name} has no token '{token}'")
        return found

    def end_token(self):
        """The id of the token that ends a document, by the tokenizer's own files."""
        named = self.special_tokens().get("eos_token")
        if named is not None:
            if self.backend.token_to_id(named) is None:
                raise Problem(f"the tokenizer {self.name} names '{named}' as its eos_token, which its vocabulary "
                              "lacks; name the token that ends a document with --end-token")
            return self.backend.token_to_id(named)
        by_model = self.beside("config.json").get("eos_token_id")
        if isinstance(by_model, list) and by_model:
            by_model = by_model[0]
        if isinstance(by_model, int) and 0 <= by_model < self.vocabulary:
            return by_model
        for text in KNOWN_END_TOKENS:
            if self.backend.token_to_id(text) is not None:
                return self.backend.token_to_id(text)
        raise Problem(f"the tokenizer {self.name} names no end token (eos_token) and has none of "
                      f"{', '.join(KNOWN_END_TOKENS)}; name the token that ends a document with --end-token")

    def ends(self):
        """Texts of special tokens, which end what somebody says."""
        return [token.content for token in self.backend.get_added_tokens_decoder().values() if token.special]

    def missing(self, template):
        """Special tokens that a template's text names and the vocabulary lacks, {"bos_token": "<s>", ...}."""
        return {name: text for name, text in self.special_tokens().items()
                if name in template and text and self.backend.token_to_id(text) is None}

    def chat_template(self, with_tools):
        """The template's text, or None."""
        if "chat_template.jinja" in self.files:
            return read_template(self.files["chat_template.jinja"])
        for file in ("tokenizer_config.json", "chat_template.json"):
            template = self.beside(file).get("chat_template")
            if isinstance(template, str):
                return template
            if isinstance(template, list):  # [{"name": "default", "template": "..."}]
                named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
                if with_tools and "tool_use" in named:
                    return named["tool_use"]
                if "default" in named:
                    return named["default"]
                raise Problem(f"{self.folder / file}: expected a chat template named 'default', got "
                              f"{', '.join(map(str, named))}; name a file with --chat-template")
        return None
