"""State diagrams of pages (```mermaid, stateDiagram-v2) as a picture and a table, so that the site needs no script from
elsewhere. The picture has states and arrows; the table has what a line says: trigger, [condition], / actions, and why.
"""
import html
import math
import re

LINE = re.compile(r"^\s*(\S+) --> (\S+)(?: : (.*))?$")
PARTS = re.compile(r"^(?P<when>[^\[/]*)(?:\[(?P<only>.*)\])?\s*(?:/ (?P<does>.*))?$")
WIDE, HIGH, ACROSS, DOWN = 104, 32, 168, 84


def parse(text):
    """[(from, to, label, why)], in order."""
    lines = []
    for line in text.splitlines():
        if found := LINE.match(line):
            lines.append([found[1], found[2], found[3] or "", ""])
        elif line.strip().startswith("%%") and lines:
            lines[-1][3] = line.strip()[2:].strip()
        elif line.strip() not in ("", "stateDiagram-v2"):
            raise ValueError(f"a line of a diagram that is not understood: {line!r}")
    return lines


def places(lines):
    """Where each state stands: by how few steps lead to it."""
    depth = {to: 0 for source, to, *_ in lines if source == "[*]"}
    waiting = list(depth)
    for state in waiting:
        for source, to, *_ in lines:
            if source == state and to != "[*]" and to not in depth:
                depth[to] = depth[state] + 1
                waiting.append(to)
    for source, to, *_ in lines:
        for state in (source, to):
            if state != "[*]":
                depth.setdefault(state, 0)
    columns = {}
    for state in depth:
        columns.setdefault(depth[state], []).append(state)
    tallest = max(map(len, columns.values()))
    return {state: (WIDE / 2 + 20 + ACROSS * column, 40 + DOWN * (row + (tallest - len(states)) / 2))
            for column, states in columns.items() for row, state in enumerate(states)}


def arrow(start, end):
    (x1, y1), (x2, y2) = start, end
    if start == end:
        return f"M{x1 - 14} {y1 - HIGH / 2}C{x1 - 30} {y1 - 52} {x1 + 30} {y1 - 52} {x1 + 14} {y1 - HIGH / 2}"
    length = math.hypot(x2 - x1, y2 - y1)
    bend = 0.13 * length
    mid = ((x1 + x2) / 2 - bend * (y2 - y1) / length, (y1 + y2) / 2 + bend * (x2 - x1) / length)

    def border(x, y):
        """Where the line from the middle of a box to `mid` leaves the box."""
        dx, dy = mid[0] - x, mid[1] - y
        share = min((WIDE / 2 + 2) / abs(dx) if dx else 9e9, (HIGH / 2 + 2) / abs(dy) if dy else 9e9)
        return x + dx * share, y + dy * share
    (x1, y1), (x2, y2) = border(x1, y1), border(x2, y2)
    return f"M{x1:.0f} {y1:.0f}Q{mid[0]:.0f} {mid[1]:.0f} {x2:.0f} {y2:.0f}"


def picture(lines):
    at = places(lines)
    width = max(x for x, _ in at.values()) + WIDE / 2 + 20
    height = max(y for _, y in at.values()) + 50
    ways = {}
    for source, to, label, _ in lines:
        if "[*]" not in (source, to):
            ways.setdefault((source, to), []).append(label.split("[")[0].split("/")[0].strip())
    parts = [f'<path d="{arrow(at[source], at[to])}" fill="none" stroke="currentColor" stroke-opacity="0.55" marker-end="url(#tip)">'
             f"<title>{html.escape(f'{source} to {to}: ' + '; '.join(labels))}</title></path>" for (source, to), labels in ways.items()]
    first, last = {to for source, to, *_ in lines if source == "[*]"}, {source for source, to, *_ in lines if to == "[*]"}
    for state, (x, y) in at.items():
        dash = ' stroke-dasharray="5 3"' if state in last else ""
        parts.append(f'<rect x="{x - WIDE / 2}" y="{y - HIGH / 2}" width="{WIDE}" height="{HIGH}" rx="8" fill="none" stroke="currentColor"'
                     f' stroke-width="{2.5 if state in first else 1.2}"{dash}/>'
                     f'<text x="{x}" y="{y + 5}" text-anchor="middle" fill="currentColor" font-size="14">{html.escape(state)}</text>')
    return (f'<div><svg viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" role="img" aria-label="States: {html.escape(", ".join(at))}">'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8Z" fill="currentColor"/></marker></defs>'
            + "".join(parts) + "</svg></div>")


def table(lines):
    def cell(text):
        return (text or "").strip().replace("|", "\\|")
    rows = ["| from | when | to | what is done | why |", "| --- | --- | --- | --- | --- |"]
    for source, to, label, why in lines:
        if to == "[*]":
            continue
        found = PARTS.match(label)
        when, only, does = (found["when"], found["only"], found["does"]) if found else (label, "", "")
        rows.append(f"| {'' if source == '[*]' else cell(source)} | {cell(when)}{f' ({cell(only)})' if only else ''} | {cell(to)} | {cell(does)} | {cell(why)} |")
    return "\n".join(rows)


def replace(block):
    """What stands in the site for a block ```mermaid, with its fences."""
    lines = parse(re.sub(r"^```.*$", "", block, flags=re.MULTILINE))
    return f"{picture(lines)}\n\nThick: where it begins. Dashed: an end.\n\n{table(lines)}\n"
