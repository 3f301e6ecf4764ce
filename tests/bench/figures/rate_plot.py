#!/usr/bin/env python3
"""Draws the seconds of a step against the rate of the links, out of the rows of registered results.

usage: tests/bench/figures/rate_plot.py > docs/results/step_against_rate.svg

Where the comparison with torch.distributed.pipelining on GPUs has rows (peers_8_gpus, else peers_4_gpus), the picture is of
these, and PyTorch's best schedule stands beside each pair of codecs. Until then it is of longhaul alone (gpt2_xl_4xh200), and
says so. `results.py check` compares the picture with the rows.
"""
import collections
import csv
import math
import pathlib
import statistics
import sys
from xml.sax.saxutils import escape

NAME = "step_against_rate.svg"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 74, 190, 58, 52
COLOURS = ("#0b5cad", "#c05a12", "#12724a", "#7d56b8", "#b0487f", "#566273")
NAMES = {"fp32": "fp32", "paper": "tah + fixed:bits=6", "default": "tah + fixed:bits=4"}  # pairs, as those rows call them
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def bits(rate):
    unit = next((one for one in UNITS if rate.endswith(one)), None)
    return float(rate.removesuffix(unit)) * UNITS[unit] if unit else float(rate)


def medians(rows):
    """{line: {bits a second: median seconds}} of (line, bits, seconds)."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for line, rate, seconds in rows:
        found[line][rate].append(seconds)
    return {line: {rate: statistics.median(all_) for rate, all_ in sorted(by_rate.items())} for line, by_rate in found.items()}


def of_peers(rows):
    """longhaul's pairs, and for each rate the best of PyTorch's schedules that send bf16."""
    lines = medians((("torch " if row["who"] == "torch" else "longhaul, ") + row["setting"], bits(row["rate"]), float(row["seconds"]))
                    for row in rows)
    torch = {name: line for name, line in lines.items() if name.startswith("torch ")}
    shown = {name: line for name, line in lines.items() if name not in torch}
    best = collections.defaultdict(lambda: math.inf)
    for line in torch.values():
        for rate, seconds in line.items():
            best[rate] = min(best[rate], seconds)
    return {"PyTorch, its best": dict(sorted(best.items())), **shown}


def of_sweep(rows):
    return medians((NAMES[row["links"]], float(row["rate_bits_per_second"]), float(row["step_seconds"])) for row in rows
                   if row["run_id"].startswith("gpt2-xl") and row["state"] == "done" and row["replayed"] == "no" and row["schedule"] == "link-aware"
                   and float(row["delay_seconds"]) == 0 and row["links"] in NAMES)


def choose(results):
    """(title, note, lines)"""
    for count in (8, 4):
        path = results / f"peers_{count}_gpus.csv"
        if path.exists():
            rows = read(path)
            stages, gpus = rows[0]["stages"], rows[0]["gpus"]
            return (f"GPT2-XL's size in {stages} stages on {gpus} GPUs, the same links for both", f"rows: {path.name}", of_peers(rows))
    return ("GPT2-XL in eight stages on four H200s, links shaped in both directions",
            "rows: gpt2_xl_4xh200.csv; torch.distributed.pipelining beside it is not measured with rows yet",
            of_sweep(read(results / "gpt2_xl_4xh200.csv")))


def ticks(low, high):
    """1, 2, 5 times powers of ten."""
    return [step * 10.0**power for power in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1) for step in (1, 2, 5)
            if 0.999 * low <= step * 10.0**power <= 1.001 * high]


def drawn(results):
    title, note, lines = choose(results)
    points = [point for line in lines.values() for point in line.items()]
    xs, ys = ([value[axis] for value in points] for axis in (0, 1))
    low, high = 0.85 * min(ys), 1.2 * max(ys)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(rate):
        return LEFT + inner_width * math.log(rate / min(xs)) / max(1e-9, math.log(max(xs) / min(xs)))

    def y(seconds):
        return TOP + inner_height * (1 - math.log(seconds / low) / math.log(high / low))

    def text(at_x, at_y, words, **more):
        return (f'<text x="{at_x:.1f}" y="{at_y:.1f}"' + "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
                + f'>{escape(words)}</text>')

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" role="img">',
             f"<title>{escape(title)}</title>", f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
             text(LEFT, 24, "Seconds a step against the rate of the links", font_size=16, font_weight="bold", fill="#16202c"),
             text(LEFT, 43, title, fill="#566273")]
    for tick in ticks(low, high):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="#e6e9ee"/>' + text(LEFT - 8, y(tick) + 4, f"{tick:g} s", text_anchor="end", fill="#566273"))
    for rate in sorted(set(xs)):
        parts.append(f'<path d="M{x(rate):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#e6e9ee"/>'
                     + text(x(rate), HEIGHT - BOTTOM + 18, f"{rate / 1e6:g}", text_anchor="middle", fill="#566273"))
    parts.append(text(LEFT + inner_width / 2, HEIGHT - BOTTOM + 36, "Mbit/s of each line, each way", text_anchor="middle", fill="#566273"))
    parts.append(text(WIDTH - 8, HEIGHT - 6, note, text_anchor="end", font_size=10, fill="#566273"))
    order = sorted(lines, key=lambda name: -max(lines[name].values()))
    ends, taken = {}, []
    for name in sorted(order, key=lambda one: y(lines[one][max(lines[one])])):
        place = max([y(lines[name][max(lines[name])]), *(one + 17 for one in taken[-1:])])
        taken.append(place)
        ends[name] = place
    for colour, name in zip(COLOURS, order):
        line = lines[name]
        dots = [(x(rate), y(seconds), rate, seconds) for rate, seconds in line.items()]
        parts.append(f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b, *_ in dots)}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.6" fill="{colour}"><title>{escape(name)}: {rate / 1e6:g} Mbit/s, {seconds:.3g} s</title></circle>'
                  for a, b, rate, seconds in dots]
        parts.append(text(WIDTH - RIGHT + 10, ends[name] + 4, name, fill=colour, font_weight="bold"))
    return "\n".join([*parts, "</svg>", ""])


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__.strip())
    print(drawn(pathlib.Path(__file__).resolve().parents[3] / "docs/results"), end="")


if __name__ == "__main__":
    main()
