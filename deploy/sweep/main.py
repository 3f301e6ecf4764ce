"""What `longhaul sweep` and `longhaul curves` become (sweep_command.cc): runs the sweep that stands in standard input, prepared."""
import argparse
import contextlib
import hashlib
import json
import pathlib
import signal
import sys

from longhaul_sweep import report
from longhaul_sweep.cluster import Failed
from longhaul_sweep.machine import this_machine
from longhaul_sweep.measure import unmeasured
from longhaul_sweep.results import Store, count, last_of, to_json
from longhaul_sweep.runner import Interrupted, Runner
from longhaul_sweep.texts import one_line, size, time_span, whole

DONE, FAILED, INTERRUPTED = 0, 1, 130
GREEN, YELLOW, PLAIN = "\033[32m", "\033[33m", "\033[0m"
COLUMNS = ("point", "state", "tokens/s", "step", "simulated", "bound", "of bound")
OF_CURVES = ("codecs", "state", "steps", "loss", "validation loss", "without codecs", "bytes a step", "of the first", "step")


def interrupt(*_):
    # Once: the cluster is being taken down.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise Interrupted("interrupted; the same command goes on with the points that are left")


def modules(names):
    """What the modules of codecs in the current folder are: changed ones make another sweep."""
    for name in names:
        file = pathlib.Path(name.replace(".", "/") + ".py")
        if file.is_file():
            yield {"what": f"the module {name}", "text": hashlib.sha256(file.read_bytes()).hexdigest()}


def fresh_results(sweep):
    machine = this_machine()
    gpus = f", {machine['gpus']}" if sweep["device"] != "cpu" else ""
    identity = [*sweep["identity"], {"what": "the machine", "text": f"{machine['cpu']}, {machine['cores']} cores{gpus}"},
                *modules(sweep["python_codec"])]
    return {"title": sweep["title"], "version": sweep["version"], "machine": machine, "identity": identity,
            "points": [unmeasured(point, "impossible" if point["impossible"] else "waiting", point["impossible"])
                       for point in sweep["points"]]}


def row(point):
    state = point["state"]
    if state != "done":
        return [point["id"], state, *"-----"]
    bound, step = point["bound_seconds"], point["step_seconds"]
    return [point["id"], "done, replayed" if point["replayed"] else "done", whole(point["tokens_per_second"]), time_span(step),
            time_span(point["simulated_seconds"]) or "-", time_span(bound) or "-", f"{100 * bound / step:.0f}%"]


def row_of_curves(point, name, first):
    """`first`: the first point that is done, against whose bytes those of the others are shown."""
    if point["state"] != "done":
        return [name, point["state"], *"-------"]
    losses = [last_of(point, loss) for loss in ("loss", "validation_loss", "clean_validation_loss")]
    return [name, "done", str(point["steps"]), *("-" if loss is None else f"{loss:.4f}" for loss in losses),
            size(point["payload_bytes_per_step"]),
            f"{100 * point['payload_bytes_per_step'] / (first['payload_bytes_per_step'] or 1):.0f}%", time_span(point["step_seconds"])]


def table_of(sweep, results):
    points = results["points"]
    if not sweep["curves"]:
        return [COLUMNS, *map(row, points)]
    model = report.Model(results)
    first = next(iter(model.done), None)
    return [OF_CURVES, *(row_of_curves(point, model.long_name(point), first) for point in points)]


def print_table(table):
    """Tab-separated lines to a pipe."""
    rows = [[one_line(cell) for cell in cells] for cells in table]
    if not sys.stdout.isatty():
        print("\n".join("\t".join(cells) for cells in rows))
        return
    widths = [max(map(len, column)) for column in zip(*rows)]
    for number, cells in enumerate(rows):
        padded = [cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(cells, widths))]
        if number:
            padded[1] = (GREEN if cells[1].startswith("done") else YELLOW) + padded[1] + PLAIN
        print("  ".join(padded).rstrip())


def conclude(sweep, store):
    """What there is to say when the sweep has ended, well or not."""
    points = store.results["points"]
    if sweep["json"]:
        print(to_json(store.results), end="")
    else:
        print_table(table_of(sweep, store.results))
    sys.stdout.flush()
    done, failed, impossible, waiting = (count(store.results, state) for state in ("done", "failed", "impossible", "waiting"))
    print(f"{done} of {len(points)} points done, {failed} failed, {impossible} impossible, {waiting} waiting; "
          f"{store.report_path()}", file=sys.stderr)
    return DONE if done == len(points) else FAILED


def run(sweep):
    page = report.curves_page if sweep["curves"] else report.page
    with contextlib.closing(Store(sweep["out"], fresh_results(sweep), sweep["retry_failed"], page)) as store:
        store.write()
        if store.goes_on:
            print(f"going on: {count(store.results, 'waiting')} of {len(sweep['points'])} points are left", file=sys.stderr)
        code = None
        try:
            Runner(sweep, store).run()
        finally:
            code = conclude(sweep, store)
        return code


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("program", "out", "device"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("retry-failed", "json", "curves"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--python-codec", action="append", default=[])
    return vars(parser.parse_args())


def main():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        # The program blocks them until it has become this one.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        return run({**json.load(sys.stdin.buffer), **parse()})
    except Interrupted as problem:
        print(problem, file=sys.stderr)
        return INTERRUPTED
    except (Failed, OSError) as problem:
        print(one_line(str(problem)), file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
