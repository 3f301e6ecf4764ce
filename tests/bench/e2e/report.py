"""Tables, and on which machine and beside what they were measured."""
import json
import math
import os
import pathlib
import platform
import sys
import time

import cluster  # noqa: F401 (finds longhaul_sweep)
from longhaul_sweep.files import append_rows, read_rows, write  # noqa: F401 (for benchmarks)
from longhaul_sweep.machine import cores, cpu
from longhaul_sweep.texts import spread  # noqa: F401 (for benchmarks)


def machine():
    return (f"{cpu()}, {cores()} of {os.cpu_count()} cores, Linux {platform.release()}, load "
            f"{os.getloadavg()[0]:.1f} at the start")


def busy_seconds():
    """CPU seconds that all processes have had, on all cores of the machine."""
    line = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, line)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """CPU seconds that a process has had, all of its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def largest(numbers):
    """As max(), but NaN where one of them is: max() drops NaN, unless it comes first."""
    numbers = list(numbers)
    return next((number for number in numbers if math.isnan(number)), max(numbers))


class Watch:
    """Cores that something else kept busy: a measurement beside it is worth less.

    `pids`: the measured processes. Ask while they are alive.
    """

    def __init__(self, pids):
        self.pids = pids
        self.begin = self._now()

    def _now(self):
        own = sum(cpu_seconds(pid) for pid in self.pids)
        return time.monotonic(), busy_seconds(), own

    def seconds(self):
        return self._now()[0] - self.begin[0]

    def others(self):
        wall, busy, own = (now - then for now, then in zip(self._now(), self.begin))
        return max(0.0, busy - own) / wall


class Table:
    def __init__(self, title, columns):
        self.title, self.columns, self.rows = title, columns, []
        self.machine = machine()

    def add(self, *cells):
        """Numbers as they shall be read; None is empty."""
        assert len(cells) == len(self.columns), cells
        self.rows.append(["" if cell is None else str(cell) for cell in cells])
        # So that one sees it move, and has something where it is cut off.
        print("  " + "  ".join(self.rows[-1]), file=sys.stderr, flush=True)

    def finish(self, path=None, complete=True):
        """Prints it and writes it to `path` as JSON. What is not complete and has no row is nothing."""
        if not complete and not self.rows:
            return
        if not complete:
            self.title += "\nINCOMPLETE: what follows was measured before a later part failed"
        self.print()
        if path:
            write(path, self.to_json(complete) + "\n")

    def print(self):
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows)]
        print(f"\n{self.title}\n{self.machine}\n", flush=True)
        for row in [self.columns, ["-" * width for width in widths], *self.rows]:
            # Words to the left, numbers to the right.
            cells = (cell.ljust(width) if index == 0 else cell.rjust(width)
                     for index, (cell, width) in enumerate(zip(row, widths)))
            print("  " + "  ".join(cells).rstrip())
        print(flush=True)

    def to_json(self, complete=True):
        return json.dumps({"title": self.title, "machine": self.machine, "complete": complete,
                           "rows": [dict(zip(self.columns, row)) for row in self.rows]})
