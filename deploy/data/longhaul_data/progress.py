"""How far it is: a line on a terminal, written over again. Nothing where errors do not go to a terminal."""
import sys
import time

SECONDS = 0.2


class Progress:
    """Bytes of input files, as they lie on the disk."""

    def __init__(self, total, stream=None):
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()
        self._total, self._done, self._in_file = total, 0, 0
        self._began = time.monotonic()
        self._next = self._began + SECONDS
        self._written = False

    def read(self, position):
        """So far in the file that is being read."""
        self._in_file = position
        if self._shown and time.monotonic() >= self._next:
            self._write()

    def file_done(self, size):
        self._done, self._in_file = self._done + size, 0

    @property
    def seconds(self):
        return time.monotonic() - self._began

    @property
    def bytes(self):
        return self._done + self._in_file

    def _write(self):
        seconds, done = self.seconds, min(self.bytes, self._total)
        rate = done / seconds
        left = (self._total - done) / rate if rate else 0
        text = (f"{done / 1e6:.0f} of {self._total / 1e6:.0f} MB, {rate / 1e6:.1f} MB/s, "
                f"{int(left // 60)}:{int(left % 60):02} left")
        self._stream.write(f"\r{text}\x1b[K")
        self._stream.flush()
        self._written = True
        self._next = time.monotonic() + SECONDS

    def clear(self):
        if self._written:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._written = False
