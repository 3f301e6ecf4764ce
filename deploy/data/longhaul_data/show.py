"""`show`: what is in a data set."""
import json
import os
import pathlib

from . import excerpt, manifest
from .errors import Problems, need, printable
from .report import counted
from .shards import CHUNK_BYTES, ChunkHashes
from .tokenizer import Tokenizer


def show(options):
    folder = pathlib.Path(options.folder)
    made = manifest.read(folder)
    problems = sizes(folder, made)
    if options.check and not problems:
        problems = wrong_hashes(folder, made)
    if problems:
        raise Problems(problems)
    if options.json:
        print(json.dumps(numbers(folder, made)))
        return
    if options.text:
        excerpt.show(folder, made, options.text)
        return
    for key, value in numbers(folder, made).items():
        if value is not None:
            print(f"{key.replace('_', ' ')}\t{value}")
    for name in ("training", "validation"):
        for entry in made[name]:
            print(f"{name}\t{entry['file']}\t{counted(entry['tokens'], 'token')}")
    if options.check:
        print("all bytes are as the manifest says")
    ids = first_tokens(folder, made, options.tokens)
    if ids:
        print(f"first {counted(len(ids), 'token')}:\n{printable(text_of(folder, made, ids))}")


def numbers(folder, made):
    tokenizer = made["tokenizer"]
    tokens = manifest.tokens_of(made["training"])
    return {"tokenizer": tokenizer and tokenizer["name"], "vocabulary": made["vocabulary"],
            "end_token": made["end_token"], "bytes_per_token": made["bytes_per_token"],
            "packed": made["packed"] or None, "pairs": made.get("pairs"), "documents": made["documents"],
            "tokens": tokens, "targets": targets(folder, made["training"]),
            "validation_documents": made["validation_documents"] if made["validation"] else None,
            "validation_tokens": manifest.tokens_of(made["validation"]) if made["validation"] else None}


def streams(folder, made):
    """(file, offset, bytes, chunks) of every file."""
    for entry in made["training"] + made["validation"]:
        yield folder / entry["file"], entry["offset"], entry["tokens"] * made["bytes_per_token"], entry["chunks"]
        if "mask" in entry:
            yield folder / entry["mask"]["file"], 0, (entry["tokens"] + 7) // 8, entry["mask"]["chunks"]


def sizes(folder, made):
    problems = []
    for path, offset, size, _ in streams(folder, made):
        try:
            there = os.stat(path).st_size
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        if there < offset + size:
            problems.append(f"{path}: expected {offset + size} bytes, got {there}; prepare the data set again")
    return problems


def wrong_hashes(folder, made):
    problems = []
    for path, offset, size, chunks in streams(folder, made):
        hashes = ChunkHashes()
        with open(path, "rb") as file:
            file.seek(offset)
            while size > 0 and (data := file.read(min(size, CHUNK_BYTES))):
                hashes.add(data)
                size -= len(data)
        if hashes.finish() != chunks:
            problems.append(f"{path}: its bytes are not those that the manifest has hashes of; prepare the data set "
                            "again")
    return problems


def targets(folder, entries):
    """How many tokens' loss counts, or None without masks."""
    if not any("mask" in entry for entry in entries):
        return None
    return sum(int.from_bytes(block, "little").bit_count()
               for entry in entries for block in blocks(folder / entry["mask"]["file"]))


def blocks(path):
    with open(path, "rb") as file:
        while block := file.read(1 << 16):
            yield block


def first_tokens(folder, made, count):
    numpy = need("numpy", "showing data")
    ids = []
    for entry in made["training"]:
        left = min(count - len(ids), entry["tokens"])
        if left <= 0:
            break
        ids += numpy.fromfile(folder / entry["file"], dtype=f"<u{made['bytes_per_token']}", count=left,
                              offset=entry["offset"]).tolist()
    return ids


def text_of(folder, made, ids):
    if made["tokenizer"] is None:
        return " ".join(map(str, ids))
    backend = Tokenizer(folder / "tokenizer", what=str(folder)).backend
    return backend.decode(ids, skip_special_tokens=False)
