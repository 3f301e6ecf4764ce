"""How soon a browser shows the dashboard of a large cluster, and how far behind the page is.

usage: bench.py BIN_DIR [--workers N] [--steps N] [--repetitions N] [--csv FILE]

Every repetition opens the dashboard anew, which has read no step of the store then, in a browser that was just started.
`drawn`: milliseconds from the navigation to the page with its curves, cells and numbers. `behind`: seconds from the
moment that the coordinator has a step to that step's number on the page. `longest_task`: how long the page's
thread was kept at a time while 20 steps a second came.
"""
import argparse
import csv
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT / "tests/support"), str(pathlib.Path(__file__).resolve().parent)]
from browser import Browser  # noqa: E402
from fleet import Fleet  # noqa: E402

UPDATES, BUSY_S, BUSY_STEPS = 5, 5, 20
WATCH = """window.tasks = []; new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: 'longtask' })"""


def machine():
    """'AMD EPYC 7B13, 2 cores'."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def repetition(fleet, number, picture=None):
    fleet.say("close")
    assert fleet.say("open") == "opened"
    load = os.getloadavg()[0]
    with Browser() as browser:
        page = browser.open(fleet.address)
        page.wait("document.documentElement.dataset.drawn", limit_s=60)
        drawn_ms = float(page.evaluate("document.documentElement.dataset.drawn"))
        paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
        behind_s = []
        for _ in range(UPDATES):
            step = fleet.say("step 1").split()[0]
            begin = time.monotonic()
            page.wait(f"document.documentElement.dataset.step === '{step}'")
            behind_s.append(time.monotonic() - begin)
            time.sleep(0.3)
        page.evaluate(WATCH)
        end = time.monotonic() + BUSY_S
        while time.monotonic() < end:
            fleet.say("step 1")
            time.sleep(1 / BUSY_STEPS)
        tasks = page.evaluate("window.tasks")
        page.evaluate("location.hash = '#workers'")
        begin = time.monotonic()
        page.wait("document.querySelectorAll('#workers tbody tr').length > 1")
        workers_s = time.monotonic() - begin
        if picture:
            page.screenshot(picture)
        assert not page.errors, page.errors
    return {"repetition": number, "drawn_ms": round(drawn_ms), "first_contentful_paint_ms": round(paint_ms),
            "behind_median_s": round(statistics.median(behind_s), 3), "behind_most_s": round(max(behind_s), 3),
            "longest_task_ms": round(max(tasks, default=0)), "workers_view_s": round(workers_s, 3), "load": round(load, 1), "nice": os.nice(0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--stages", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--csv", help="file that the rows are added to")
    parser.add_argument("--picture", help="file for a picture of the list of workers, as PNG")
    options = parser.parse_args()
    rows = []
    with Fleet(options.programs, "--workers", options.workers, "--stages", options.stages, "--steps",
               options.steps) as fleet:
        print(f"{machine()}; {options.workers} workers, {options.steps} steps in the store")
        for number in range(1, options.repetitions + 1):
            rows.append(repetition(fleet, number, options.picture))
            print(", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    for name in ("drawn_ms", "behind_median_s", "behind_most_s", "longest_task_ms"):
        print(f"median of {name}: {statistics.median(row[name] for row in rows):g}")
    if options.csv:
        with open(options.csv, "a", newline="") as out:
            writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
            if out.tell() == 0:
                writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
