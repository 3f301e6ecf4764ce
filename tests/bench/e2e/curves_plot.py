"""Lines over linear axes, side by side in one SVG file that needs nothing else."""
import html
import math

PANEL, MARGIN = (520, 340), (70, 40)  # width, height; left, and above and below
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"]
DASHES = ["", "6 3", "2 3"]


def ticks(least, most, about=6):
    """Values at which to write numbers: 1, 2 or 5 times a power of ten apart."""
    wanted = (most - least) / about
    power = 10 ** math.floor(math.log10(wanted))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= wanted)
    first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def limits(values, from_zero):
    least, most = 0 if from_zero else min(values), max(values)
    room = 0 if from_zero else 0.03 * (most - least)
    return (least - room, most + room) if most > least else (least - 0.5, most + 0.5)


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def style(number):
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    return (f'fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.6"'
            + (f' stroke-dasharray="{dash}"' if dash else ""))


def panel(left, top, x_label, y_label, lines):
    """`lines`: {number that gives the colour: [(x, y)]}."""
    (width, height), points = PANEL, [point for line in lines.values() for point in line]
    (x0, x1), (y0, y1) = (limits([point[axis] for point in points], axis == 0) for axis in (0, 1))

    def place(x, y):
        return left + (x - x0) / (x1 - x0) * width, top + (y1 - y) / (y1 - y0) * height

    yield f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>'
    for value in ticks(x0, x1):
        x, _ = place(value, y0)
        yield f'<path d="M{x:.1f},{top}v{height}" stroke="#ddd"/>' + text(
            x, top + height + 16, f"{value:g}")
    for value in ticks(y0, y1):
        _, y = place(x0, value)
        yield f'<path d="M{left},{y:.1f}h{width}" stroke="#ddd"/>' + text(
            left - 6, y + 4, f"{value:g}", "end")
    yield text(left + width / 2, top + height + 34, x_label)
    yield text(0, 0, y_label, more=f' transform="translate({left - 50},{top + height / 2}) rotate(-90)"')
    for number, line in lines.items():
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        yield f'<polyline points="{path}" {style(number)}/>'


def svg(title, y_label, panels, names):
    """`panels`: [(x label, [one line for each of `names`, [(x, y)], maybe empty])]."""
    left, above = MARGIN
    total = len(panels) * (PANEL[0] + left) + 30, PANEL[1] + 2 * above + 20 + 18 * len(names)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]} {total[1]}" '
             f'width="{total[0]}" font-family="sans-serif" font-size="12">',
             f'<rect width="{total[0]}" height="{total[1]}" fill="white"/>',
             text(left, 20, title, "start")]
    for index, (x_label, lines) in enumerate(panels):
        drawn = {number: line for number, line in enumerate(lines) if line}
        if drawn:
            parts += panel(left + index * (PANEL[0] + left), above, x_label, y_label, drawn)
    for number, name in enumerate(names):
        y = above + PANEL[1] + 60 + 18 * number
        parts.append(f'<path d="M{left},{y - 4}h24" {style(number)}/>' + text(left + 30, y, name, "start"))
    return "\n".join([*parts, "</svg>", ""])
