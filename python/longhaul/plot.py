"""Curves of runs as a picture that a notebook shows, without any library."""
from __future__ import annotations

import html
import math
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Union

from .records import Step

if TYPE_CHECKING:
    from .client import Run

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 60, 16, 16, 44
# Told apart by people who see few colours, too (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
TICKS = 5
AXES = ("step", "seconds")
VALUES = ("loss", "validation_loss", "clean_validation_loss", "gradient_norm", "learning_rate", "seconds", "payload_bytes")
Points = list[tuple[float, float]]
Curves = Union[Mapping[str, Sequence[Step]], "Iterable[Run]"]


class Plot:
    """A picture in SVG. A notebook shows it."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        pathlib.Path(path).write_text(self.svg, encoding="utf-8")
        return pathlib.Path(path)


def points_of(steps: Sequence[Step], y: str, x: str) -> Points:
    """Without the steps that have no such value. On the axis `seconds`: the time that all steps so far took."""
    points, seconds = [], 0.0
    for step in steps:
        seconds += step.seconds
        value = getattr(step, y)
        if value is not None:
            points.append((float(step.step) if x == "step" else seconds, float(value)))
    return points


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`."""
    step = 10.0 ** math.floor(math.log10((high - low) / TICKS))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= TICKS)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The least and the largest; around a single value, some room."""
    low, high = min(values), max(values)
    room = 0.0 if high > low else abs(low) * 0.05 or 1.0
    return low - room, high + room


def draw(curves: Mapping[str, Points], y: str, x: str) -> str:
    xs, ys = ([point[i] for points in curves.values() for point in points] for i in (0, 1))
    (left, right), (low, high) = spread(xs), spread(ys)

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return (LEFT + (point[0] - left) / (right - left) * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - (point[1] - low) / (high - low) * (HEIGHT - TOP - BOTTOM))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" font-family="sans-serif" '
             f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for value in ticks(low, high):
        place = at((left, value))[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(left, right):
        place = at((value, low))[0]
        parts.append(f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{x}</text>'
                 f'<text transform="translate(14,{(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
                 f'{y.replace("_", " ")}</text>')
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{across:.1f},{down:.1f}" for across, down in map(at, points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
                     f'<text x="{WIDTH - RIGHT - 4}" y="{TOP + 14 + 16 * number}" text-anchor="end" fill="{colour}">'
                     f'{html.escape(name)}</text>')
    return "".join(parts) + "</svg>"


def plot(runs: Curves, *, y: str = "loss", x: str = "step") -> Plot:
    """Curves of runs, or of named lists of steps, in one picture. `y`: a field of Step; `x`: "step" or "seconds"."""
    if x not in AXES or y not in VALUES:
        raise ValueError(f"expected x of {', '.join(AXES)} and y of {', '.join(VALUES)}; got x={x!r}, y={y!r}")
    named = runs if isinstance(runs, Mapping) else {run.id: run.steps() for run in runs}
    curves = {name: points for name, steps in named.items() if (points := points_of(steps, y, x))}
    if not curves:
        raise ValueError(f"no step has a {y.replace('_', ' ')} yet")
    return Plot(draw(curves, y, x))
