"""Records of jsonl and parquet files: texts, prompts with completions, conversations."""
import json
import os

from .errors import Problem, need
from .files import LINES, PARQUET, Input
from .pieces import Piece, place

TEXT, PROMPTS, MESSAGES = "text", "prompt and completion", "messages"
FIELDS = {PROMPTS: ("prompt", "completion"), MESSAGES: ("messages",)}
ROWS = 256


def style_of(path, names, field):
    """What a file's records are, by their fields."""
    if field is not None:
        if field not in names:
            raise Problem(f"{path}: expected the field '{field}' (--field), got {quoted(names)}")
        return TEXT
    if "messages" in names:
        return MESSAGES
    if "prompt" in names and "completion" in names:
        return PROMPTS
    if "text" in names:
        return TEXT
    raise Problem(f"{path}: expected the fields 'text', 'prompt' and 'completion', or 'messages', got "
                  f"{quoted(names)}; name the field that has the text with --field")


def quoted(names):
    return ", ".join(f"'{name}'" for name in names) or "none"


def parsed(path, number, line):
    """The object of one line."""
    try:
        value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise Problem(f"{path}:{number}: expected UTF-8, got the byte 0x{line[error.start]:02x} at column "
                      f"{error.start + 1}") from error
    except (ValueError, RecursionError) as error:
        raise Problem(f"{path}:{number}: expected a JSON object; {error}") from error
    if not isinstance(value, dict):
        raise Problem(f"{path}:{number}: expected a JSON object, got {type(value).__name__}")
    return value


def json_records(path, progress=None):
    """(where, object)."""
    with Input(path) as source:
        for number, line in source.lines():
            if progress is not None:
                progress.read(source.position)
            if line.strip():
                yield (path, "line", number), parsed(path, number, line)


def open_parquet(path):
    need("pyarrow", f"reading {path}")
    parquet = need("pyarrow.parquet", f"reading {path}")
    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # OSError, ArrowInvalid, ...
        raise Problem(f"{path}: expected a parquet file; {error}") from error


def parquet_records(path, columns, progress):
    file = open_parquet(path)
    row, size, rows = 0, os.path.getsize(path), max(1, file.metadata.num_rows)
    batches = file.iter_batches(batch_size=ROWS, columns=list(columns))
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
            yield (path, "row", row), record
        progress.read(size * row // rows)


def first_fields(path, kind):
    """Names of the fields of a file's first record; None for a file without records."""
    if kind == PARQUET:
        return list(open_parquet(path).schema_arrow.names)
    for _, record in json_records(path):
        return list(record)
    return None


def text_in(where, record, field):
    if field not in record:
        raise Problem(f"{place(where)}: expected the field '{field}', got {quoted(record)}")
    text = record[field]
    if not isinstance(text, str):
        kind = "null" if text is None else type(text).__name__
        raise Problem(f"{place(where)}: expected text in '{field}', got {kind}")
    return text


class Style:
    """How records of one file become pieces."""

    def __init__(self, style, field, cutter, chat):
        self.style = style
        self._field = field or "text"
        self._cutter = cutter
        self._chat = chat

    def columns(self, names):
        if self.style == TEXT:
            return (self._field,)
        if self.style == MESSAGES and "tools" in names:
            return ("messages", "tools")
        return FIELDS[self.style]

    def pieces(self, where, record):
        """Lists of pieces: one list a document, but of long texts one a piece. Empty: an empty document."""
        if self.style == TEXT:
            text = text_in(where, record, self._field)
            if not text:
                yield []
                return
            yield from ([piece] for piece in self._cutter.cut([text], where))
        elif self.style == PROMPTS:
            prompt, completion = (text_in(where, record, field) for field in FIELDS[PROMPTS])
            yield [Piece(prompt, where, last=False, loss=False, rest=False),
                   Piece(completion, where, first=False, loss=True, rest=False)]
        else:
            yield [self._chat.piece(where, record)]


def open_records(path, kind, style, names, progress):
    if kind == LINES:
        records = json_records(path, progress)
    else:
        records = parquet_records(path, style.columns(names), progress)
    for where, record in records:
        yield from style.pieces(where, record)
