"""Token ids of texts, the tokens that end a text, and the bytes of all tokens: for samples of a run that trains. The
coordinator and its workers have no tokenizer; they make text of ids by a table."""
import json
import re
import sys

from .errors import Problem
from .generate import beginning, conversation, end_tokens
from .tokenizer import Tokenizer

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def tokens(options):
    """Standard input: {"texts": [...], "chat": false}. Standard output: {"ids", "stop", "pieces"}, pieces in
    hexadecimal digits."""
    asked = json.load(sys.stdin)
    tokenizer = Tokenizer(options.folder, what="the run's tokenizer")
    json.dump({"ids": [ids_of(tokenizer, text, asked["chat"]) for text in asked["texts"]],
               "stop": end_tokens(tokenizer), "pieces": [piece.hex() for piece in pieces(tokenizer)]}, sys.stdout)


def ids_of(tokenizer, text, chat):
    if not tokenizer.backend.encode(text, add_special_tokens=False).ids:
        raise Problem("expected a prompt with some text, got none")
    if chat:
        return tokenizer.backend.encode(conversation(tokenizer, text), add_special_tokens=False).ids
    return beginning(tokenizer, text)


def pieces(tokenizer):
    """The bytes of each token; none for special tokens, which are no text."""
    described = json.loads(tokenizer.backend.to_str())
    kinds = set(decoders(described.get("decoder")))
    added = {token["id"]: token for token in described.get("added_tokens") or []}
    found = [b""] * tokenizer.vocabulary
    if "ByteLevel" in kinds:
        of_token = byte_level
    elif kinds & {"ByteFallback", "Metaspace", "Replace"}:
        of_token = sentencepiece
    elif "WordPiece" in kinds:
        of_token = wordpiece
    else:
        of_token = str.encode
    for token, id_ in tokenizer.backend.get_vocab(with_added_tokens=True).items():
        if id_ not in added:
            found[id_] = of_token(token)
        elif not added[id_]["special"]:
            found[id_] = token.encode()
    return found


def decoders(decoder):
    if not decoder:
        return []
    return [decoder["type"]] + [kind for part in decoder.get("decoders", []) for kind in decoders(part)]


def byte_level(token):
    return b"".join(BYTES[char] if char in BYTES else char.encode() for char in token)


def sentencepiece(token):
    byte = BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()


def wordpiece(token):
    return token[2:].encode() if token.startswith("##") else b" " + token.encode()


def byte_characters():
    """GPT-2's characters of the 256 bytes: those that can be seen stand for themselves, others for 256 and up."""
    seen = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    characters = {chr(byte): bytes([byte]) for byte in seen}
    others = [byte for byte in range(256) if byte not in seen]
    characters.update({chr(256 + place): bytes([byte]) for place, byte in enumerate(others)})
    return characters


BYTES = byte_characters()
