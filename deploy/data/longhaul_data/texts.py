"""Text files: a file is a document, or is split into documents."""
import codecs

from .errors import Problem
from .files import MAX_CHARACTERS, Input

LINE, BLANK = "LINE", "BLANK"
BYTE_ORDER_MARK = "\ufeff"


def decoded(source):
    """The file's text in parts. An invalid byte is a Problem with its line."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines, begin = 1, True
    for block in source.blocks():
        try:
            text = decoder.decode(block)
        except UnicodeDecodeError as error:
            line = lines + error.object.count(b"\n", 0, error.start)
            raise Problem(f"{source.path}:{line}: expected UTF-8, got the byte "
                          f"0x{error.object[error.start]:02x}; convert the file, for example with iconv") from error
        lines += block.count(b"\n")
        if begin and text:
            text, begin = text.removeprefix(BYTE_ORDER_MARK), False
        if text:
            yield text
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Problem(f"{source.path}:{lines}: expected UTF-8, but the file ends inside a character") from error


def split_at(path, parts, separator):
    """(number of its first line, document), as for the splitters below."""
    waiting, number = "", 1
    for part in parts:
        *whole, waiting = (waiting + part).split(separator)
        for document in whole:
            yield number, document
            number += document.count("\n") + separator.count("\n")
        if len(waiting) > MAX_CHARACTERS:
            raise Problem(f"{path}: no place to split in {MAX_CHARACTERS >> 20} Mi characters from line {number}; "
                          f"expected {separator!r} (--split-on)")
    yield number, waiting


def split_lines(path, parts):
    for number, line in split_at(path, parts, "\n"):
        yield number, line.removesuffix("\r")


def split_blank(path, parts):
    begin, lines = 1, []
    for number, line in split_lines(path, parts):
        if line.strip():
            if not lines:
                begin = number
            lines.append(line)
        elif lines:
            yield begin, "\n".join(lines)
            lines = []
    yield begin, "\n".join(lines)


def documents(source, cutter, split_on):
    """Yields lists of pieces, one a document or a part of one; an empty list is an empty document."""
    parts = decoded(source)
    if split_on is None:
        some = False
        for piece in cutter.cut(parts, (source.path, "line", None)):
            some = True
            yield [piece]
        if not some:
            yield []
        return
    if split_on == LINE:
        split = split_lines(source.path, parts)
    elif split_on == BLANK:
        split = split_blank(source.path, parts)
    else:
        split = split_at(source.path, parts, split_on)
    for number, text in split:
        if text.strip():
            yield from ([piece] for piece in cutter.cut([text], (source.path, "line", number)))
        elif text:
            yield []


def open_documents(path, cutter, split_on, progress):
    with Input(path) as source:
        for pieces in documents(source, cutter, split_on):
            progress.read(source.position)
            yield pieces
