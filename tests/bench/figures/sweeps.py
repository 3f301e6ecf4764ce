"""Figures of the rows that `longhaul sweep` writes."""
from figures.page import table_lines

UNITS = {"Mbit/s": 1e6, "Gbit/s": 1e9}


def bits_per_second(text):
    """The rate that a text such as "500 Mbit/s" names."""
    number, unit = text.split()[:2]
    return float(number) * UNITS[unit]


def middle(rows):
    """The row whose step is the median of the repeats; of two, the faster one."""
    return sorted(rows, key=lambda row: float(row["step_seconds"]))[(len(rows) - 1) // 2]


def of_bound(row):
    return 100 * float(row["bound_seconds"]) / float(row["step_seconds"])


def of_floor(row):
    return 100 * float(row["floor_seconds"]) / float(row["step_seconds"])


def of_run(rows, prefix):
    """Rows of one model: the runs' names begin with that of their file."""
    return rows.where(run_id=lambda run: run.startswith(prefix))


def speed_table(title, rows):
    """Lines of a table: a row for each pair of codecs, a column for each rate, fastest first. A cell has tokens/s
    and, in parentheses, percent of the lower bound of a step by itself, and of the steady-state floor where the
    rows have it."""
    rates = sorted({float(row["rate_bits_per_second"]) for row in rows}, reverse=True)
    pairs = list(dict.fromkeys((row["forward"], row["backward"], row["schedule"]) for row in rows))
    table = []
    for forward, backward, schedule in pairs:
        cells = []
        for rate in rates:
            found = [row for row in rows if (row["forward"], row["backward"], row["schedule"]) == (
                forward, backward, schedule) and float(row["rate_bits_per_second"]) == rate]
            cells.append(speed_cell(middle(found)) if found else "")
        more = "" if schedule == "link-aware" else f", `{schedule}`"
        table.append([f"`{forward}` / `{backward}`{more}", *cells])
    return table_lines([title, *map(rate_text, rates)], table)


def speed_cell(row):
    floor = f"; {of_floor(row):.0f} % of the floor" if row.get("floor_seconds") else ""
    return f"{float(row['tokens_per_second']):,.0f} ({of_bound(row):.0f} %{floor})"


def rate_text(bits):
    return f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"
