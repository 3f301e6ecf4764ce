"""Errors that people read, and packages that may be missing."""
import importlib
import pathlib


class Problem(Exception):
    """A sentence for people: what was expected, what came, what to do."""


class Problems(Exception):
    """Several of them, found together."""

    def __init__(self, sentences):
        super().__init__("\n".join(sentences))
        self.sentences = list(sentences)


class Findings:
    """What is wrong in a file: the first few sentences, and how many there are."""

    SHOWN, MOST = 5, 1000

    def __init__(self, path):
        self._path = path
        self._sentences, self._count = [], 0

    def __bool__(self):
        return self._count > 0

    def add(self, problem):
        self._count += 1
        if len(self._sentences) < self.SHOWN:
            self._sentences.append(str(problem))

    def full(self):
        return self._count >= self.MOST

    def raise_any(self):
        more = self._count - len(self._sentences)
        if more:
            self._sentences.append(f"{self._path}: {'at least ' if self.full() else ''}{more} more records are refused")
        if self._sentences:
            raise Problems(self._sentences)


def printable(text):
    """Without what a terminal would obey; lines and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def how_to_install():
    folder = pathlib.Path(__file__).resolve().parent.parent
    setup = folder.parent / "setup.sh"
    if setup.exists():
        return f"{setup} --data"
    return f"python3 -m pip install --no-deps -r {folder / 'requirements.txt'}"


def need(package, purpose):
    """The module `package`, or a Problem with the command that brings it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise Problem(f"{purpose} needs the Python package {package.split('.', maxsplit=1)[0]} ({error}); "
                      f"install it: {how_to_install()}") from error
