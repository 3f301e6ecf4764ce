"""`show --text N`: the first documents as text, with the tokens whose loss counts marked."""
import os
import sys

from .errors import need, printable
from .report import counted
from .tokenizer import Tokenizer

BLOCK = 1 << 16
# More of a document is left out.
SHOWN_TOKENS = 4096
COLOUR = ("\x1b[1;32m", "\x1b[0m")
PLAIN = ("\N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}", "\N{MATHEMATICAL RIGHT WHITE SQUARE BRACKET}")
ASCII = ("[[", "]]")
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class Document:
    def __init__(self):
        self.ids, self.mask = [], []
        self.tokens = self.targets = 0

    def add(self, ids, mask):
        room = max(0, SHOWN_TOKENS - self.tokens)
        self.ids += ids[:room].tolist()
        self.mask += mask[:room].tolist()
        self.tokens += len(ids)
        self.targets += int(mask.sum())


def blocks(folder, made):
    """(ids, mask) of the training tokens, in order."""
    numpy = need("numpy", "showing data")
    width = made["bytes_per_token"]
    for entry in made["training"]:
        for at in range(0, entry["tokens"], BLOCK):
            count = min(BLOCK, entry["tokens"] - at)
            ids = numpy.fromfile(folder / entry["file"], dtype=f"<u{width}", count=count,
                                 offset=entry["offset"] + at * width)
            mask = numpy.ones(count, dtype="u1")
            if "mask" in entry:
                bits = numpy.fromfile(folder / entry["mask"]["file"], dtype="u1", count=(count + 7) // 8,
                                      offset=at // 8)
                mask = numpy.unpackbits(bits, bitorder="little")[:count]
            yield ids, mask


def documents(folder, made):
    """Documents as a reader finds them: up to an end token, and in a packed data set up to a window's border."""
    numpy = need("numpy", "showing data")
    packed, document, at = made["packed"], Document(), 0
    for ids, mask in blocks(folder, made):
        borders = set()
        if made["end_token"] is not None:
            borders |= set((numpy.flatnonzero(ids == made["end_token"]) + 1).tolist())
        if packed:
            borders |= set(range(-at % packed, len(ids), packed)) - {0}
            if at % packed == 0 and document.tokens:
                yield document
                document = Document()
        begin = 0
        for border in [*sorted(borders), len(ids)]:
            document.add(ids[begin:border], mask[begin:border])
            begin = border
            if border in borders:
                # An end token alone fills a window.
                if document.tokens > 1 or document.targets:
                    yield document
                document = Document()
        at += len(ids)
    if document.tokens > 1:
        yield document


def runs(mask):
    """(end, bit) of stretches of equal bits."""
    for at in range(1, len(mask) + 1):
        if at == len(mask) or mask[at] != mask[at - 1]:
            yield at, mask[at - 1]


def marked(document, decode, marks):
    parts, shown = [], ""
    for end, bit in runs(document.mask):
        # The text up to there, so that decoders see what stands before. An unfinished character waits.
        text = decode(document.ids[:end]).rstrip(UNFINISHED) if end < len(document.ids) else decode(document.ids)
        if not text.startswith(shown):
            shown = os.path.commonprefix([text, shown])
        new, shown = printable(text[len(shown):]), text
        parts.append(f"{marks[0]}{new}{marks[1]}" if bit and new else new)
    return "".join(parts)


def marks_of(stream):
    if stream.isatty() and not os.environ.get("NO_COLOR"):
        return COLOUR
    try:
        "".join(PLAIN).encode(stream.encoding or "utf-8")
        return PLAIN
    except (UnicodeEncodeError, LookupError):
        return ASCII


def show(folder, made, count):
    decode = lambda ids: " ".join(map(str, ids))  # noqa: E731
    if made["tokenizer"] is not None:
        backend = Tokenizer(folder / "tokenizer", what=str(folder)).backend
        decode = lambda ids: backend.decode(ids, skip_special_tokens=False)  # noqa: E731
    marks = marks_of(sys.stdout)
    for number, document in zip(range(1, count + 1), documents(folder, made)):
        print(f"--- document {number}: {counted(document.tokens, 'token')}, {counted(document.targets, 'target')}")
        print(marked(document, decode, marks))
        if document.tokens > len(document.ids):
            print(f"--- {counted(document.tokens - len(document.ids), 'more token')}")
