"""A text that a machine has in plenty (headers, documentation, sources), as ids of a BPE that is trained on it.

build(folder, paths, vocabulary, tokens, valid_tokens) writes what load(folder) reads:
  ids.npz          uint16: `train` and `valid`, whole documents one after the other, each ended by id 0
  tokenizer.json   of the PyPI package `tokenizers`
  text.json        what it was made from
"""
import hashlib
import json
import os
import pathlib

import numpy

ENDINGS = (".h", ".hpp", ".hh", ".c", ".cc", ".cpp", ".cuh", ".py", ".pm", ".pl", ".js", ".rs", ".go", ".el", ".md",
           ".txt", ".rst", ".html", ".tex", ".xml", ".sh", ".pyi", ".cmake")
LEAST_BYTES, MOST_BYTES = 500, 400_000
END = "<|end|>"
BYTES_OF_A_TOKEN = 5  # more than any text has
VALID_OF = 16  # one document of so many, until there are enough


def documents(paths):
    """Different texts in UTF-8, in an order that depends on their contents alone."""
    found = {}
    for path in paths:
        for folder, folders, names in os.walk(path):
            folders.sort()
            for name in names:
                file = pathlib.Path(folder, name)
                if not name.endswith(ENDINGS) or file.is_symlink():
                    continue
                if not LEAST_BYTES <= file.stat().st_size <= MOST_BYTES:
                    continue
                contents = file.read_bytes()
                try:
                    contents.decode("utf-8")
                except UnicodeDecodeError:
                    continue
                found[hashlib.sha256(contents).hexdigest()] = file
    return [found[key] for key in sorted(found)]


def train_tokenizer(files, vocabulary):
    from tokenizers import ByteLevelBPETokenizer  # pylint: disable=import-outside-toplevel
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator((file.read_text("utf-8") for file in files), vocab_size=vocabulary,
                                  special_tokens=[END], show_progress=False)
    return tokenizer


def encode(tokenizer, files, tokens):
    """Ids of the first files, until there are enough; and how many files that took."""
    parts, count, used = [], 0, 0
    while used < len(files) and count < tokens:
        batch = [file.read_text("utf-8") for file in files[used:used + 64]]
        used += len(batch)
        for encoding in tokenizer.encode_batch(batch):
            parts.append(numpy.array(encoding.ids + [0], dtype=numpy.uint16))
            count += len(parts[-1])
    return numpy.concatenate(parts)[:tokens], used


def build(folder, paths, vocabulary, tokens, valid_tokens):
    files = documents(paths)
    valid, train = files[::VALID_OF], [file for place, file in enumerate(files) if place % VALID_OF]
    size, chosen = 0, []
    for file in train:  # the tokenizer is trained on the run's own text, or a little more
        if size >= tokens * BYTES_OF_A_TOKEN:
            break
        size += file.stat().st_size
        chosen.append(file)
    tokenizer = train_tokenizer(chosen, vocabulary)
    if tokenizer.get_vocab_size() != vocabulary:
        raise ValueError(f"the text has no more than {tokenizer.get_vocab_size()} tokens; expected {vocabulary}")
    ids, used = encode(tokenizer, train, tokens)
    valid_ids, valid_used = encode(tokenizer, valid, valid_tokens)
    if len(ids) < tokens or len(valid_ids) < valid_tokens:
        raise ValueError(f"the text has {len(ids)} tokens, and {len(valid_ids)} of other documents for validation; "
                         f"expected {tokens} and {valid_tokens}")
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    numpy.savez_compressed(folder / "ids.npz", train=ids, valid=valid_ids)
    about = {"paths": [str(path) for path in paths], "vocabulary": vocabulary,
             "train": {"tokens": len(ids), "documents": used, "sha256": hashlib.sha256(ids.tobytes()).hexdigest()},
             "valid": {"tokens": len(valid_ids), "documents": valid_used,
                       "sha256": hashlib.sha256(valid_ids.tobytes()).hexdigest()}}
    (folder / "text.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def load(folder):
    """About it, and ids for training and validation."""
    arrays = numpy.load(folder / "ids.npz")
    return json.loads((folder / "text.json").read_text()), arrays["train"], arrays["valid"]
