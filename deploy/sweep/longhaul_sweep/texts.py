"""Numbers and foreign texts as people read them, in the forms that the program itself prints (base/units.h)."""
import math
import statistics
import unicodedata


def scaled(value, units):
    """`value` in the largest unit in which it is at least 1, with three significant digits."""
    for unit in units[:-1]:
        if value < 999.5:
            return f"{value:.0f} {unit}" if value < 1 and unit == units[0] else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} {units[-1]}" if value < 999.5 else f"{value:.0f} {units[-1]}"


def size(count):
    return scaled(count, ("B", "KB", "MB", "GB", "TB", "PB"))


def rate(bits_per_second):
    """0: the link is not shaped."""
    return scaled(bits_per_second, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")) if bits_per_second > 0 else "not shaped"


def time_span(seconds):
    """"" for 0 and for what is no time."""
    if not math.isfinite(seconds) or seconds <= 0:
        return ""
    for least, factor, unit in ((0, 1e9, "ns"), (1e-6, 1e6, "us"), (0.9995e-3, 1e3, "ms"), (0.9995, 1, "s")):
        if seconds >= least:
            text = f"{seconds * factor:.3g} {unit}"
    if seconds < 59.95:
        return text
    if seconds < 3599.5:
        return f"{round(seconds) // 60}m{round(seconds) % 60:02}s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24:02}h"


def whole(value):
    """12,345"""
    return f"{value:,.0f}" if math.isfinite(value) else ""


def percent(share):
    return f"{100 * share:.1f} %" if math.isfinite(share) else ""


def printable(text):
    """Without what moves a terminal's cursor or turns the direction of writing. Line ends stay."""
    return "".join(" " if c in "\t\r" else c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cs", "Cf", "Zl", "Zp")
                   else "?" for c in text)


def one_line(text):
    return printable(text).replace("\n", " ")


def quantile(values, share):
    """Between two values where it must be."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def spread(values):
    """'0.80 (0.78-0.83)': the median and the middle half."""
    if len(values) < 4:
        return f"{statistics.median(values):.3f}"
    low, _, high = statistics.quantiles(values, n=4)
    return f"{statistics.median(values):.3f} ({low:.3f}-{high:.3f})"
