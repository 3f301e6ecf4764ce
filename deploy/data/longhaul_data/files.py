"""Opens input files, compressed ones too, and tells how far they were read."""
import gzip
import io
import pathlib

from .errors import Problem, need

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 256 << 20
MAX_CHARACTERS = 256 << 20  # between two splits
TEXTS, LINES, JSON, CSV, TSV, PARQUET, TOKENS = "text", "jsonl", "json", "csv", "tsv", "parquet", "tokens"
RECORDS = (LINES, JSON, CSV, TSV, PARQUET)
KINDS = (TEXTS, *RECORDS, TOKENS)
# Suffixes of files that are no text, and what to do.
NOT_TAKEN = {
    ".arrow": "write it as .parquet", ".zip": "unpack it first",
    ".tar": "unpack it first", ".tgz": "unpack it first", ".xz": "unpack it first", ".bz2": "unpack it first",
    ".7z": "unpack it first", ".pdf": "extract its text first", ".idx": "name the .bin file beside it",
    ".safetensors": "name files of text or tokens", ".pt": "name files of text or tokens"}
COMPRESSED = (".gz", ".zst")


def kind_of(path):
    """By the file's name. Problem for what is certainly something else."""
    name = pathlib.Path(path)
    suffix = name.suffix.lower()
    if suffix in COMPRESSED:
        suffix = pathlib.Path(name.stem).suffix.lower()
        if suffix in (".parquet", ".bin", ".npy"):
            raise Problem(f"{path}: expected {suffix} as it is, not compressed; unpack it first")
    if suffix in NOT_TAKEN:
        raise Problem(f"{path}: {suffix} is not taken; {NOT_TAKEN[suffix]}")
    if suffix in (".jsonl", ".ndjson"):
        return LINES
    if suffix in (".json", ".csv", ".tsv", ".parquet"):
        return suffix[1:]
    if suffix in (".bin", ".npy"):
        return TOKENS
    return TEXTS


class Input:
    """One file, opened for reading bytes. `position` counts bytes of the file as it lies on the disk."""

    def __init__(self, path):
        self.path = path
        suffix = pathlib.Path(path).suffix.lower()
        try:
            self._raw = open(path, "rb")
        except OSError as error:
            raise Problem(f"{path}: {error.strerror}") from error
        self._stream = self._raw
        if suffix == ".gz":
            self._stream = io.BufferedReader(gzip.GzipFile(fileobj=self._raw), BLOCK_BYTES)
        elif suffix == ".zst":
            arrow = need("pyarrow", f"reading {path}")
            self._stream = io.BufferedReader(arrow.CompressedInputStream(arrow.PythonFile(self._raw), "zstd"),
                                             BLOCK_BYTES)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._raw.close()

    @property
    def position(self):
        return self._raw.tell()

    def _checked(self, read, size):
        try:
            return read(size)
        except (OSError, EOFError, gzip.zlib.error) as error:
            raise Problem(f"{self.path}: reading failed after {self.position} bytes; {error}") from error

    def blocks(self):
        while block := self._checked(self._stream.read, BLOCK_BYTES):
            yield block

    def lines(self):
        """(number from 1, line without its end)."""
        number = 0
        while line := self._checked(self._stream.readline, MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise Problem(f"{self.path}:{number}: a line of more than {MAX_LINE_BYTES >> 20} MiB")
            yield number, line.rstrip(b"\r\n")
