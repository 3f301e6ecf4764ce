"""Pieces of text on their way to the tokenizer, and how long documents are cut into them."""
import re

from .errors import Problem

# A document longer than this is encoded in pieces, so that it needs little memory and all cores.
PIECE_CHARACTERS = 128 << 10
# No tokenizer gets more in one call, which takes up to 150 bytes of memory a character.
MAX_PIECE_CHARACTERS = 8 << 20
# What is encoded on either side of a cut, to see whether the tokenizer cuts there too.
AROUND = 256
# Where a cut may be looked for, at the end of a piece.
SEARCHED = 4096
CANDIDATES = (re.compile(r"(?<=\w)\n(?=\S)"), re.compile(r"(?<=\n)(?=\S)"), re.compile(r"(?<=\w) (?=\w)"))
TRIES = 3


class Piece:
    """A part of one document that is encoded by itself. `where` is (file, number of line, row or None)."""

    __slots__ = ("text", "where", "first", "last", "loss", "spans", "end_counts", "rest")

    def __init__(self, text, where, first=True, last=True, loss=True, spans=None, end_counts=True, rest=True):
        self.text = text
        self.where = where
        self.first = first
        self.last = last
        self.loss = loss              # whether its tokens are targets
        self.spans = spans            # of a conversation: the characters that are targets, instead of `loss`
        self.end_counts = end_counts  # whether the end token after it is a target
        self.rest = rest              # whether what does not fit into a window goes into the next one


def place(where):
    """(file, unit, number) as a text: "a.jsonl:3", "a.parquet row 7", "a.txt"."""
    file, unit, number = where
    if number is None:
        return str(file)
    return f"{file}:{number}" if unit == "line" else f"{file} {unit} {number}"


def bounded(text, where):
    """The text of a document that is not cut; a Problem where it is too long."""
    if len(text) > MAX_PIECE_CHARACTERS:
        raise Problem(f"{place(where)}: expected a conversation or a completion of at most "
                      f"{MAX_PIECE_CHARACTERS >> 20} Mi characters, got {len(text):,}")
    return text


def in_line(where, lines):
    """The place of a whole text file with the line, before which there are `lines`."""
    file, unit, number = where
    return (file, unit, 1 + lines) if number is None else where


class Cutter:
    """Cuts long documents where the tokenizer gives the same ids as for the whole.

    A cut is taken where the text around encodes to the ids of its left part and then those of its right
    part. So pre-tokenizers, prefixes and normalizers all have their say."""

    def __init__(self, backend, size=PIECE_CHARACTERS):
        self._backend = backend
        self._size = size

    def _ids(self, text):
        return self._backend.encode(text, add_special_tokens=False).ids

    def _holds(self, text, at):
        left, right = text[max(0, at - AROUND):at], text[at:at + AROUND]
        return self._ids(left + right) == self._ids(left) + self._ids(right)

    def _find(self, text):
        """The last place for a cut, or None."""
        # What follows a cut is a part of what is compared.
        end = len(text) - AROUND
        begin = max(1, end - min(SEARCHED, self._size))
        for candidate in CANDIDATES:
            places = [match.start() for match in candidate.finditer(text, begin, end)]
            for at in reversed(places[-TRIES:]):
                if self._holds(text, at):
                    return at
        return None

    def _small(self, parts):
        """What is waiting is copied at every cut, so it stays short."""
        for part in parts:
            for begin in range(0, len(part), 4 * self._size):
                yield part[begin:begin + 4 * self._size]

    def cut(self, parts, where, rest=True):
        """Pieces of the document that `parts`, an iterable of texts, make up. None for an empty one."""
        waiting, first, grown, lines = "", True, self._size, 0
        for part in self._small(parts):
            waiting += part
            while len(waiting) > grown + grown // 2:
                at = self._find(waiting[:grown + AROUND])
                if at is None:
                    grown += self._size
                    if grown > MAX_PIECE_CHARACTERS:
                        self._refuse(waiting, where, lines)
                    continue
                yield Piece(waiting[:at], where, first=first, last=False, rest=rest)
                lines += waiting.count("\n", 0, at)
                waiting, first, grown = waiting[at:], False, self._size
        if waiting or not first:
            yield Piece(waiting, where, first=first, last=True, rest=rest)

    @staticmethod
    def _refuse(waiting, where, lines):
        """Names the longest line if that is the cause, else the tokenizer."""
        limit = f"{MAX_PIECE_CHARACTERS >> 20} Mi characters"
        begin = 0
        while begin < len(waiting):
            end = waiting.find("\n", begin)
            end = len(waiting) if end < 0 else end
            if end - begin > MAX_PIECE_CHARACTERS // 2:
                where = in_line(where, lines + waiting.count("\n", 0, begin))
                raise Problem(f"{place(where)}: a line with more than {limit} without a place where the tokenizer "
                              "encodes it in parts, which needs much memory; break the line, or leave it out")
            begin = end + 1
        raise Problem(f"{place(in_line(where, lines))}: more than {limit} without a place where this tokenizer encodes "
                      "the document in parts; make documents of its parts: --split-on")
