"""A coordinator, and the runs that it has."""
from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from . import program as programs
from .errors import RunFailed
from .plot import Plot, plot
from .records import Status, Step, Worker

Settings = Mapping[str, Any]  # keys of the run file with values: {"train.steps": 20}


def _overrides(settings: Settings | None) -> list[str]:
    # JSON is YAML.
    return [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={json.dumps(value)}")]


class Client:
    """`coordinator` ("host:7070") and `token_file` as the flags of `longhaul`; without: the variables LONGHAUL_COORDINATOR and
    LONGHAUL_TOKEN_FILE, else this machine's local cluster. `program`: path of `longhaul`. Calls raise longhaul.Error."""

    def __init__(self, coordinator: str | None = None, token_file: str | os.PathLike[str] | None = None, *,
                 insecure: bool = False, program: str | os.PathLike[str] | None = None) -> None:
        flags = [*(["--coordinator", coordinator] if coordinator else []),
                 *(["--token-file", os.fspath(token_file)] if token_file else []), *(["--insecure"] if insecure else [])]
        self._program = programs.Program(os.fspath(program) if program else programs.find(), flags)

    def submit(self, run: str | os.PathLike[str] | Mapping[str, Any], *,
               set: Settings | None = None,  # noqa: A002 (as the flag --set)  # pylint: disable=redefined-builtin
               resume: bool = False) -> Run:
        """Submits a run file, or the keys of one as nested mappings, and returns at once. Paths in such mappings are relative to
        the current folder. `set` changes single keys. `resume`: go on with the newest run of that name."""
        flags = [*_overrides(set), *(["--resume"] if resume else [])]
        if not isinstance(run, Mapping):
            return self._submitted(os.fspath(run), *flags)
        with tempfile.TemporaryDirectory(prefix="longhaul-") as folder:
            file = pathlib.Path(folder) / "mapping.yaml"  # which messages name
            file.write_text(json.dumps(run), encoding="utf-8")
            return self._submitted(str(file), "--relative-to", os.getcwd(), *flags)

    def _submitted(self, *arguments: str) -> Run:
        return Run(self, self._program.json("submit", *arguments)["run_id"])

    def run(self, name: str) -> Run:
        """A run by its id, or by a name: the newest of that name."""
        return Run(self, self._program.json("status", name)["run_id"])

    def runs(self) -> list[Status]:
        """Newest first."""
        return [Status.of(record) for record in self._program.json("ps").get("runs", [])]

    def workers(self) -> list[Worker]:
        return [Worker.of(record) for record in self._program.json("workers").get("workers", [])]


class Run:
    """A run of a coordinator. Made by Client."""

    def __init__(self, client: Client, run_id: str) -> None:
        self.id = run_id
        self._program = client._program

    def __repr__(self) -> str:
        return f"longhaul.Run({self.id!r})"

    def status(self) -> Status:
        return Status.of(self._program.json("status", self.id))

    def steps(self, after: int | None = None) -> list[Step]:
        """The steps so far, or those after one."""
        return [Step.of(record) for record in self._lines("steps", after)]

    def follow(self, after: int | None = None) -> Iterator[Step]:
        """All steps, and then new ones as they come, until the run has ended. Raises RunFailed where it ended otherwise than by
        its last step. A loop may be left at any time; the run goes on."""
        yield from (Step.of(record) for record in self._lines("steps", after, "--follow"))
        self._check(self.status())

    def wait(self) -> Status:
        """Waits until the run is done. Raises RunFailed where it failed or was stopped."""
        for _ in self.follow():
            pass
        return self.status()

    def stop(self, *, now: bool = False) -> None:
        """Stops after the step under way, with a checkpoint to resume from. `now`: without one."""
        self._program.text("stop", self.id, *(["--now"] if now else []))

    def export(self, folder: str | os.PathLike[str], *, step: int | None = None, dtype: str | None = None,
               merged: bool = False) -> pathlib.Path:
        """Writes the newest checkpoint, or that of a step, as a folder that transformers loads; of a run with LoRA the adapters,
        or with `merged` the whole model. `dtype`: fp32, bf16 or fp16. Returns the folder."""
        self._program.text("export", self.id, "--out", os.fspath(folder), *(["--step", str(step)] if step is not None else []),
                           *(["--dtype", dtype] if dtype else []), *(["--merged"] if merged else []))
        return pathlib.Path(folder)

    def plot(self, y: str = "loss", x: str = "step") -> Plot:
        """As longhaul.plot, of this run alone."""
        return plot({self.id: self.steps()}, y=y, x=x)

    def _lines(self, command: str, after: int | None, *flags: str) -> Iterator[Any]:
        return self._program.lines(command, self.id, *(["--after", str(after)] if after is not None else []), *flags)

    @staticmethod
    def _check(status: Status) -> None:
        if status.state in ("failed", "stopped"):
            raise RunFailed(f"run {status.id} {status.state} at step {status.step} of {status.steps}: {status.reason}")
