"""Writes tokens into shards, with the hashes of their chunks and the bits of their mask."""
import contextlib
import hashlib
import os

from .errors import Problem, need

CHUNK_BYTES = 4 << 20


class ChunkHashes:
    """SHA-256 of each piece of CHUNK_BYTES of what is added."""

    def __init__(self):
        self._done = []
        self._open, self._room = hashlib.sha256(), CHUNK_BYTES

    def add(self, data):
        data = memoryview(data).cast("B")
        while len(data) > 0:
            part, data = data[:self._room], data[self._room:]
            self._open.update(part)
            self._room -= len(part)
            if self._room == 0:
                self._done.append(self._open.hexdigest())
                self._open, self._room = hashlib.sha256(), CHUNK_BYTES

    def finish(self):
        last = [self._open.hexdigest()] if self._room != CHUNK_BYTES else []
        return "".join(self._done + last)


class HashedFile:
    def __init__(self, path):
        self._path = path
        self._file = open(path, "xb")
        self._hashes = ChunkHashes()

    def write(self, data):
        with self._sentences():
            self._file.write(data)
        self._hashes.add(data)

    def finish(self):
        with self._sentences(), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._hashes.finish()

    @contextlib.contextmanager
    def _sentences(self):
        try:
            yield
        except OSError as error:
            raise Problem(f"{self._path}: writing failed; {error.strerror}") from error


class Bits:
    """Bytes of bits, the first one the lowest, from arrays of any length."""

    def __init__(self, numpy):
        self._numpy = numpy
        self._rest = numpy.zeros(0, dtype="u1")

    def add(self, mask):
        bits = self._numpy.concatenate([self._rest, mask]) if len(self._rest) else mask
        whole = len(bits) // 8 * 8
        self._rest = bits[whole:].copy()
        return self._numpy.packbits(bits[:whole], bitorder="little").tobytes()

    def finish(self):
        return self._numpy.packbits(self._rest, bitorder="little").tobytes()


class ShardWriter:
    """The files of one list of the manifest: `folder`/`name`-00000.bin and so on. The tokens of a list are those
    of its shards in order; a document may go on in the next shard."""

    def __init__(self, folder, name, width, shard_tokens, masked):
        self._numpy = need("numpy", "preparing data")
        self._folder, self._name = folder, name
        self._type, self._limit, self._masked = f"<u{width}", shard_tokens, masked
        self._file = self._mask_file = self._bits = None
        self._in_shard = 0
        self.entries = []
        self.tokens = self.targets = 0

    def write(self, ids, mask=None):
        """`ids` and `mask` are numpy arrays of equal length; the mask has 0 and 1."""
        begin = 0
        while begin < len(ids):
            if self._file is None:
                self._open()
            count = min(len(ids) - begin, self._limit - self._in_shard)
            part = slice(begin, begin + count)
            self._file.write(self._numpy.ascontiguousarray(ids[part], dtype=self._type).data)
            if self._masked:
                self._mask_file.write(self._bits.add(mask[part]))
                self.targets += int(mask[part].sum(dtype="u8"))
            self._in_shard += count
            self.tokens += count
            begin += count
            if self._in_shard == self._limit:
                self._close()

    def _open(self):
        name = f"{self._name}-{len(self.entries):05}"
        self.entries.append({"file": f"{name}.bin", "offset": 0, "tokens": 0, "chunks": ""})
        self._file = HashedFile(self._folder / f"{name}.bin")
        if self._masked:
            self.entries[-1]["mask"] = {"file": f"{name}.mask", "chunks": ""}
            self._mask_file = HashedFile(self._folder / f"{name}.mask")
            self._bits = Bits(self._numpy)

    def _close(self):
        entry = self.entries[-1]
        entry["tokens"], entry["chunks"] = self._in_shard, self._file.finish()
        if self._masked:
            self._mask_file.write(self._bits.finish())
            entry["mask"]["chunks"] = self._mask_file.finish()
        self._file = self._mask_file = self._bits = None
        self._in_shard = 0

    def finish(self):
        """The manifest's entries."""
        if self._file is not None:
            self._close()
        return self.entries
