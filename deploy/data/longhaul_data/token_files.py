"""Token files of others: what is in them, by their headers. Nothing is copied here."""
import dataclasses
import os
import pathlib
import struct

from .errors import Problem, need
from .lfs import refuse_pointer

# llm.c: 256 numbers of 32 bits; {(magic, version): bytes per token}.
LLM_C_HEADER_BYTES = 1024
LLM_C = {(20240520, 1): 2, (20240801, 7): 4}
MEGATRON_MAGIC = b"MMIDIDX\0\0"
MEGATRON_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
NPY_TYPES = ("<u2", "<u4", "<i4", "<i8", "|u1")
# Read as they lie on the disk. A negative number of 32 bits is beyond every vocabulary.
AS_THEY_ARE = {"<u2": 2, "<u4": 4, "<i4": 4}


@dataclasses.dataclass
class TokenFile:
    path: pathlib.Path
    kind: str      # for messages
    type: str      # NumPy's name of a token's type
    offset: int    # bytes before the first token
    tokens: int
    # Where each of Megatron's documents begins and ends, in tokens. None: only end tokens mark them.
    starts: object = None
    ends: object = None
    why_rewrite: str = None  # why it cannot be taken as it is

    @property
    def width(self):
        """Bytes per token as they lie; None where only --rewrite takes it."""
        return AS_THEY_ARE.get(self.type)

    def mapped(self):
        numpy = need("numpy", "reading token files")
        if self.tokens == 0:
            return numpy.zeros(0, dtype=self.type)
        return numpy.memmap(self.path, dtype=self.type, mode="r", offset=self.offset, shape=(self.tokens,))


def open_token_file(path, dtype):
    """`dtype` is that of --dtype, or None."""
    path = pathlib.Path(path).resolve()
    try:
        size = os.stat(path).st_size
        refuse_pointer(path)
        with open(path, "rb") as file:
            head = file.read(LLM_C_HEADER_BYTES)
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}") from error
    if path.suffix == ".npy":
        found = npy(path, size)
    elif path.with_suffix(".idx").exists():
        found = megatron(path, size)
    elif len(head) == LLM_C_HEADER_BYTES and struct.unpack_from("<2i", head) in LLM_C:
        found = llm_c(path, size, head)
    else:
        return without_header(path, size, head, dtype)
    if dtype is not None:
        raise Problem(f"{path}: --dtype is for files without a header; {found.kind} says its type itself")
    return found


def without_header(path, size, head, dtype):
    """nanoGPT's."""
    if len(head) >= 8 and struct.unpack_from("<i", head)[0] in {magic for magic, _ in LLM_C}:
        raise Problem(f"{path}: expected version {dict(LLM_C)} of llm.c's format, got "
                      f"{struct.unpack_from('<2i', head)[1]}")
    width = 4 if dtype == "uint32" else 2
    if size % width:
        raise Problem(f"{path}: expected tokens of {width} bytes, got {size} bytes, which is no multiple; --dtype "
                      "says how wide they are")
    if size == 0:
        raise Problem(f"{path}: expected tokens, the file is empty")
    return TokenFile(path, "nanoGPT's .bin", f"<u{width}", 0, size // width)


def llm_c(path, size, head):
    magic, version, tokens = struct.unpack_from("<3i", head)
    width = LLM_C[magic, version]
    if size != LLM_C_HEADER_BYTES + tokens * width:
        raise Problem(f"{path}: its header says {tokens} tokens, which makes {LLM_C_HEADER_BYTES + tokens * width} "
                      f"bytes; the file has {size}")
    return TokenFile(path, "llm.c's .bin", f"<u{width}", LLM_C_HEADER_BYTES, tokens)


def npy(path, size):
    numpy = need("numpy", "reading token files")
    try:
        with open(path, "rb") as file:
            version = numpy.lib.format.read_magic(file)
            read = numpy.lib.format.read_array_header_1_0 if version == (1, 0) else \
                numpy.lib.format.read_array_header_2_0
            shape, _, kind = read(file)
            offset = file.tell()
    except (ValueError, OSError) as error:
        raise Problem(f"{path}: expected a .npy file; {error}") from error
    if len(shape) != 1:
        raise Problem(f"{path}: expected an array of one dimension, got the shape {shape}")
    little = kind.newbyteorder("<").str
    if little not in NPY_TYPES:
        raise Problem(f"{path}: expected uint16, uint32, int32 or int64, got {kind}")
    if size < offset + shape[0] * kind.itemsize:
        raise Problem(f"{path}: expected {offset + shape[0] * kind.itemsize} bytes, got {size}")
    found = TokenFile(path, ".npy", kind.str, offset, shape[0])
    if found.width is None:
        found.why_rewrite = f"its tokens are {kind}"
    return found


def megatron(path, size):
    """The .idx: magic, version, type, sequences, documents; then lengths, places and document borders."""
    numpy = need("numpy", "reading token files")
    index = path.with_suffix(".idx")
    content = index.read_bytes()
    if content[:9] != MEGATRON_MAGIC or len(content) < 34:
        raise Problem(f"{index}: expected Megatron's index (MMIDIDX), which belongs to {path.name}")
    version, code, sequences, borders = struct.unpack_from("<QBQQ", content, 9)
    if version != 1 or MEGATRON_TYPES.get(code) is None:
        raise Problem(f"{index}: expected version 1 and a type of 1 to 8, got version {version} and type {code}")
    kind = numpy.dtype(MEGATRON_TYPES[code])
    if kind.kind == "f":
        raise Problem(f"{index}: expected tokens, got {kind}")
    if len(content) != 34 + 12 * sequences + 8 * borders:
        raise Problem(f"{index}: expected {34 + 12 * sequences + 8 * borders} bytes for {sequences} sequences and "
                      f"{borders} document borders, got {len(content)}")
    lengths = numpy.frombuffer(content, "<i4", sequences, 34).astype("i8")
    places = numpy.frombuffer(content, "<i8", sequences, 34 + 4 * sequences)
    documents = numpy.frombuffer(content, "<i8", borders, 34 + 12 * sequences)
    after_each = numpy.concatenate([[0], numpy.cumsum(lengths)])
    tokens = int(after_each[-1])
    if (lengths < 0).any() or not (places == after_each[:-1] * kind.itemsize).all():
        raise Problem(f"{index}: expected sequences one after the other, from the file's beginning")
    if borders == 0 or documents[0] != 0 or documents[-1] != sequences or (numpy.diff(documents) < 0).any():
        raise Problem(f"{index}: expected borders of documents from 0 to {sequences}, in order")
    if size < tokens * kind.itemsize:
        raise Problem(f"{path}: its index says {tokens} tokens of {kind.itemsize} bytes; the file has {size} bytes")
    marks = after_each[documents]
    starts, ends = marks[:-1], marks[1:]
    some = ends > starts
    found = TokenFile(path, "Megatron's .bin", kind.str, 0, tokens, starts[some], ends[some])
    if found.width is None:
        found.why_rewrite = f"its tokens are {kind}"
    return found


def open_documents(file, end_token):
    """A sentence on the first document that does not end with the end token, or None."""
    numpy = need("numpy", "reading token files")
    if file.ends is None or len(file.ends) == 0:
        return None
    tokens = file.mapped()
    open_ones = numpy.flatnonzero(tokens[file.ends - 1] != end_token)
    if len(open_ones) == 0:
        return None
    first = int(open_ones[0])
    return (f"{len(open_ones)} of its {len(file.ends)} documents do not end with the end token {end_token}; document "
            f"{first + 1} ends with {int(tokens[file.ends[first] - 1])}")
