"""What the program prints as JSON, as objects. `raw` has all fields of a record, as they were printed."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

ENDED = frozenset({"done", "stopped", "failed"})


def _number(value: Any) -> float | None:
    """None where nothing was measured."""
    return None if value is None or not math.isfinite(value) else float(value)


@dataclasses.dataclass(frozen=True)
class Step:
    """An optimizer step of a run. Losses are in nats a token; None: not measured. Step 0 is a validation before the first."""
    step: int
    loss: float | None  # of training
    validation_loss: float | None  # through the links' codecs
    clean_validation_loss: float | None  # of the model alone, as it is exported
    gradient_norm: float
    learning_rate: float
    seconds: float  # of the slowest stage
    payload_bytes: int  # all links, both directions
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Step:
        return cls(step=int(record["step"]), loss=_number(record.get("loss")),
                   validation_loss=_number(record["validation_loss"]) if record.get("has_validation") else None,
                   clean_validation_loss=_number(record.get("clean_validation_loss")), gradient_norm=float(record["gradient_norm"]),
                   learning_rate=float(record["learning_rate"]), seconds=float(record["seconds"]),
                   payload_bytes=int(record["payload_bytes"]), raw=record)


@dataclasses.dataclass(frozen=True)
class Status:
    """A run at one moment."""
    id: str
    name: str
    state: str  # queued planning preparing running finishing recovering done stopped failed
    reason: str  # why it waits, failed or stopped; "": nothing to say
    step: int  # the last that has ended
    steps: int
    tokens_per_second: float
    seconds_left: float | None  # None: not known
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Status:
        return cls(id=record["run_id"], name=record["name"], state=record["state"], reason=record["reason"],
                   step=int(record["step"]), steps=int(record["steps"]), tokens_per_second=float(record["tokens_per_second"]),
                   seconds_left=float(record["seconds_left"]) or None, raw=record)


@dataclasses.dataclass(frozen=True)
class Worker:
    name: str
    connected: bool
    run: str  # id of the run that it works for; "": it is free
    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Worker:
        return cls(name=record["name"], connected=bool(record["connected"]), run=record.get("run_id", ""), raw=record)
