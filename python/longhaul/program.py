"""Finds and calls the program `longhaul`."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from .errors import Error


def find() -> str:
    """The program of the wheel that this package is of, or that of PATH, or the checkout's."""
    package = pathlib.Path(__file__).resolve().parent
    places = [package.parent / "longhaul_programs/bundle/bin/longhaul", package.parents[1] / "build/release/bin/longhaul"]
    installed, built = (str(place) if os.access(place, os.X_OK) else None for place in places)
    found = installed or shutil.which("longhaul") or built
    if found is None:
        raise Error(f"expected the program longhaul at {places[0]} or on PATH; install the wheel longhaul, or name the program: "
                    "Client(program=...)")
    return found


def words_of(error: str) -> str:
    """Without the program's name in front, which says nothing new here."""
    return error.strip().removeprefix("longhaul: ") or "longhaul said nothing"


class Program:
    def __init__(self, path: str, flags: Sequence[str]) -> None:
        self.path, self.flags = path, list(flags)
        self.environment = dict(os.environ)
        # As the wheel's commands: what is installed beside it is what the program's parts in Python get.
        if "longhaul_programs" in pathlib.Path(path).parts:
            self.environment.setdefault("LONGHAUL_PYTHON", sys.executable)

    def text(self, *arguments: str) -> str:
        """Standard output of a command that succeeds."""
        done = subprocess.run([self.path, *arguments, *self.flags], stdin=subprocess.DEVNULL, env=self.environment,
                              capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise Error(words_of(done.stderr), done.returncode)
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))

    def lines(self, *arguments: str) -> Iterator[Any]:
        """The objects that a command prints, one a line, as they come. The command ends with the iteration."""
        with tempfile.TemporaryFile("w+", errors="replace") as errors, \
                subprocess.Popen([self.path, *arguments, "--json", *self.flags], stdin=subprocess.DEVNULL,
                                 env=self.environment, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace") as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    yield json.loads(line)
            except BaseException:
                process.terminate()
                raise
            if process.wait() != 0:
                errors.seek(0)
                raise Error(words_of(errors.read()), process.returncode)
