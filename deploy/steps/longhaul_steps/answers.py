"""What this program answers `longhaul`, one line each: at, ready, logged or error, and a text (step_log.cc)."""
import os
import sys

from .errors import one_line


class Answers:
    def __init__(self):
        """Standard output is for answers alone: what packages print goes to standard error."""
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        os.dup2(2, 1)

    def say(self, word, text=""):
        try:
            self._file.write(f"{word} {text and one_line(text)}\n")
            self._file.flush()
        except BrokenPipeError:  # `longhaul` has ended; the trackers still get what has come
            pass


def note(text):
    """A line for people while the log goes on."""
    print(one_line(text), file=sys.stderr, flush=True)
