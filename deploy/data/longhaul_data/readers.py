"""Reads records out of files: JSON lines, JSON arrays, tables of text, parquet. Every reader is a stream.

A reader yields (where, record). A record that cannot be read, but does not keep the reader from the next one, comes
as a Problem in the place of the record."""
import csv
import json
import os

from .errors import Problem, need
from .files import CSV, JSON, LINES, MAX_LINE_BYTES, PARQUET, TSV, Input
from .texts import decoded

ROWS = 256
# A number or a word of JSON that a block's end cuts is no longer than this.
CUT_WORD = 12
SPACE = " \t\r\n\ufeff"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class DuplicateKey(ValueError):
    pass


def unique(pairs):
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise DuplicateKey(f"the key '{next(name for name in names if names.count(name) > 1)}' stands twice in an "
                           "object; one of its values would be lost")
    return made


DECODER = json.JSONDecoder(object_pairs_hook=unique)


def type_name(value):
    """A type as JSON names it."""
    if value is None:
        return "null"
    for kind, name in ((bool, "a boolean"), ((int, float), "a number"), (str, "text"), (list, "a list"),
                       (dict, "an object")):
        if isinstance(value, kind):
            return name
    return type(value).__name__


def parsed(path, number, line):
    """The object of one line."""
    try:
        value = DECODER.decode(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        if number == 1 and line[:2] in UTF_16:
            raise Problem(f"{path}:1: expected UTF-8, got UTF-16; convert the file: iconv -f UTF-16 -t "
                          "UTF-8") from error
        raise Problem(f"{path}:{number}: expected UTF-8, got the byte 0x{line[error.start]:02x} at column "
                      f"{error.start + 1}") from error
    except DuplicateKey as error:
        raise Problem(f"{path}:{number}: {error}") from error
    except (ValueError, RecursionError) as error:
        hint = "; records of several lines need --as json" if line.strip() in (b"{", b"[") else ""
        raise Problem(f"{path}:{number}: expected a JSON object in one line; {error}{hint}") from error
    if not isinstance(value, dict):
        hint = "; an array of records needs --as json" if isinstance(value, list) else ""
        raise Problem(f"{path}:{number}: expected a JSON object, got {type_name(value)}{hint}")
    return value


def json_lines(path, progress=None):
    with Input(path) as source:
        for number, line in source.lines():
            if progress is not None:
                progress.read(source.position)
            if line.strip():
                try:
                    record = parsed(path, number, line)
                except Problem as error:
                    record = error
                yield (path, "line", number), record


class JsonStream:
    """The text of a file, of which one JSON value after the other is taken. Keeps one value and a block."""

    def __init__(self, path, parts):
        self._path, self._parts = path, parts
        self._text, self._at, self.line = "", 0, 1

    def _more(self):
        """False at the file's end."""
        self._text, self._at = self._text[self._at:], 0
        # As much again as there is, so that a long value is not tried once a block.
        added, wanted = [], max(1, len(self._text))
        for part in self._parts:
            added.append(part)
            wanted -= len(part)
            if wanted <= 0:
                break
        self._text += "".join(added)
        if len(self._text) > MAX_LINE_BYTES:
            raise Problem(f"{self._path}:{self.line}: a record of more than {MAX_LINE_BYTES >> 20} Mi characters")
        return bool(added)

    def _take(self, count):
        self.line += self._text.count("\n", self._at, self._at + count)
        self._at += count

    def peek(self):
        """The next character that is no space, which is not taken; empty at the end."""
        while True:
            rest = len(self._text) - self._at
            while self._at < len(self._text) and self._text[self._at] in SPACE:
                self._take(1)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more() and rest == 0:
                return ""

    def skip(self):
        self._take(1)

    def value(self):
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except DuplicateKey as error:
                raise Problem(f"{self._path}:{self.line}: {error}") from error
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self._text) - CUT_WORD or error.msg.startswith("Unterminated string")
                if cut and self._more():
                    continue
                line = self.line + self._text.count("\n", self._at, error.pos)
                raise Problem(f"{self._path}:{line}: expected JSON; {error.msg}") from error
            except RecursionError as error:
                raise Problem(f"{self._path}:{self.line}: expected JSON; {error}") from error
            self._take(end - self._at)
            return value


def json_records(path, progress=None):
    """An array of objects, or objects one after the other."""
    with Input(path) as source:
        stream = JsonStream(path, decoded(source))
        array = stream.peek() == "["
        if array:
            stream.skip()
        number, separator = 0, ""
        while (char := stream.peek()) and not (array and char == "]" and not separator):
            number, line = number + 1, stream.line
            value = stream.value()
            if progress is not None:
                progress.read(source.position)
            where = (path, f"line {line}, record", number)
            yield where, value if isinstance(value, dict) else Problem(
                f"{path} line {line}, record {number}: expected an object, got {type_name(value)}")
            separator = ""
            if array and (separator := stream.peek()) == ",":
                stream.skip()
            elif array and separator == "]":
                separator = ""
            elif array:
                raise Problem(f"{path}:{stream.line}: expected ',' or ']' after record {number} of the array, got "
                              f"{repr(separator) if separator else 'the end of the file'}")
        if array and not char:
            raise Problem(f"{path}:{stream.line}: expected ']' at the end of the array, got the end of the file")
        if array:
            stream.skip()
            if stream.peek():
                raise Problem(f"{path}:{stream.line}: expected the end of the file after the array, got more")


def text_lines(parts):
    """Lines with their ends, as csv wants them."""
    waiting = ""
    for part in parts:
        *whole, waiting = (waiting + part).split("\n")
        for line in whole:
            yield line + "\n"
        if len(waiting) > MAX_LINE_BYTES:
            raise csv.Error(f"a line of more than {MAX_LINE_BYTES >> 20} Mi characters")
    if waiting:
        yield waiting


def csv_records(path, delimiter, progress=None):
    """The first line names the fields. Every value is text."""
    csv.field_size_limit(MAX_LINE_BYTES)
    with Input(path) as source:
        reader = csv.reader(text_lines(decoded(source)), delimiter=delimiter, strict=True)
        names, line = None, 1
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise Problem(f"{path}:{line}: expected fields between '{delimiter}', quoted by \"; {error}") from error
            if row is None:
                return
            where, line = (path, "line", line), reader.line_num + 1
            if progress is not None:
                progress.read(source.position)
            if not row:
                continue
            if names is None:
                names = row
                if len(set(names)) != len(names):
                    raise Problem(f"{path}:1: expected names of fields, each once, got {', '.join(names)}")
            elif len(row) != len(names):
                yield where, Problem(f"{path}:{where[2]}: expected {len(names)} fields as in the first line, got "
                                     f"{len(row)}")
            else:
                yield where, dict(zip(names, row))


def open_parquet(path):
    need("pyarrow", f"reading {path}")
    parquet = need("pyarrow.parquet", f"reading {path}")
    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # OSError, ArrowInvalid, ...
        raise Problem(f"{path}: expected a parquet file; {error}") from error


def without_padding(value):
    """A column's structs have every field that any row has, null where the row has none."""
    if isinstance(value, dict):
        return {key: without_padding(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):  # a map
            return {key: without_padding(each) for key, each in value}
        return [without_padding(each) for each in value]
    return value


def parquet_records(path, columns, progress):
    file = open_parquet(path)
    row, size, rows = 0, os.path.getsize(path), max(1, file.metadata.num_rows)
    batches = file.iter_batches(batch_size=ROWS, columns=columns)
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                return
            records = batch.to_pylist()
        except UnicodeDecodeError as error:
            raise Problem(f"{path}: rows {row + 1} to {row + ROWS}: expected UTF-8; {error}") from error
        except Exception as error:
            raise Problem(f"{path}: reading failed after row {row}; {error}") from error
        for record in records:
            row += 1
            # A null column stays, so that its error can name it.
            yield (path, "row", row), {key: without_padding(value) for key, value in record.items()}
        if progress is not None:
            progress.read(size * row // rows)


def read(path, kind, columns=None, progress=None):
    """`columns`: names of parquet's columns that are needed; None: all."""
    if kind == LINES:
        return json_lines(path, progress)
    if kind == JSON:
        return json_records(path, progress)
    if kind in (CSV, TSV):
        return csv_records(path, "," if kind == CSV else "\t", progress)
    assert kind == PARQUET
    return parquet_records(path, columns, progress)


def first_fields(path, kind):
    """Names of the fields of a file's first record; None for a file without records."""
    if kind == PARQUET:
        return list(open_parquet(path).schema_arrow.names)
    for _, record in read(path, kind):
        if isinstance(record, Problem):
            raise record
        return list(record)
    return None
