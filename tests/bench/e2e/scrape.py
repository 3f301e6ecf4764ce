"""What metrics cost: a scrape of each daemon while many workers train, and the threads that serve it while nobody asks.

One replay over --workers stages on the loopback interface. Rows go to --csv.
"""
import pathlib
import re
import statistics
import tempfile
import time
import urllib.request

import needs
from cluster import Failed
from loopback import Daemons
from report import Table, append_rows

NEEDS_ROOT = False

RUN = """\
name: scrape
model: {{ family: gpt, layers: {stages}, hidden: 64, heads: 4, context: 64 }}
data: {{ text: [{text}], tokenizer: bytes }}
train: {{ steps: 1000000, microbatches: 8 }}
pipeline: {{ stages: {stages}, placement: names }}
transport: grpc
links: {{ forward: tah, backward: "fixed:bits=4", measure: false }}
checkpoint: {{ every: 0 }}
replay:
  source: a machine that does not exist
  layers: {{ block_forward: 20ms, block_backward: 40ms, head_forward: 5ms, optimizer: 5ms }}
  codecs: measured
  codec_times: {{ tah: {{ encode: 1ms, decode: 1ms }}, fixed: {{ encode: 1ms, decode: 1ms }} }}
"""
START_S = 300
# What a scrape may take, and the threads that serve metrics of a core.
SCRAPE_LIMIT_MS, IDLE_LIMIT_PERCENT = 20, 0.1


def add_arguments(parser):
    parser.add_argument("--workers", type=int, default=64, help="default %(default)s")
    parser.add_argument("--scrapes", type=int, default=20, help="of each daemon (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="of idleness (default %(default)s)")
    parser.add_argument("--csv", type=pathlib.Path, help="file to add the rows to")


def metrics_address(log):
    found = re.search(r"metrics at (http://\S+)", log.read_text())
    if found is None:
        raise Failed(f"{log} does not say where metrics are")
    return found.group(1)


def scrape(address):
    """(ms, bytes): from dialling to the last byte."""
    begin = time.perf_counter()
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read()
    return (time.perf_counter() - begin) * 1e3, len(text)


def served_ns(pid):
    """CPU time of the threads that serve metrics."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("web"):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def percent_of_core(pids, seconds, addresses=(), every=None):
    """The largest share among `pids`; all `addresses` are scraped each `every` seconds meanwhile."""
    before, begin = [served_ns(pid) for pid in pids], time.monotonic()
    while (left := begin + seconds - time.monotonic()) > 0:
        for address in addresses:
            scrape(address)
        time.sleep(max(0, min(left, every or left)))
    wall = time.monotonic() - begin
    return max(100 * (served_ns(pid) - then) / 1e9 / wall for pid, then in zip(pids, before))


def rows(options, daemons):
    """(what, value, unit, limit) of all that is measured."""
    names = ["coordinator", *(f"worker{number}" for number in range(1, options.workers + 1))]
    addresses = [metrics_address(daemons.folder / f"{name}.log") for name in names]
    pids = [process.pid for process in daemons.processes]
    for what, some in (("coordinator", addresses[:1]), ("worker", addresses[1:])):
        taken = [scrape(address) for _ in range(options.scrapes) for address in some]
        times = sorted(ms for ms, _ in taken)
        yield f"scrape of the {what}, median", statistics.median(times), "ms", SCRAPE_LIMIT_MS
        yield f"scrape of the {what}, 99 % of {len(times)}", times[int(len(times) * 0.99)], "ms", SCRAPE_LIMIT_MS
        yield f"page of the {what}, largest", max(size for _, size in taken) / 1e3, "kB", None
    daemons.cli("stop", "scrape", "--now")
    time.sleep(2)
    yield ("threads that serve metrics, nobody scrapes, busiest daemon",
           percent_of_core(pids, options.seconds), "% of a core", IDLE_LIMIT_PERCENT)
    yield ("the same, all are scraped each 15 s",
           percent_of_core(pids, options.seconds, addresses, 15), "% of a core", IDLE_LIMIT_PERCENT)


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)


def table_of(arguments):
    return Table(f"Metrics of a coordinator and {arguments.workers} workers on one machine",
                 ["what", "figure", "expected"])


def submit(daemons, workers):
    text, run_file = daemons.folder / "text.txt", daemons.folder / "run.yaml"
    text.write_text("It was a dark and stormy night. " * 4000)
    run_file.write_text(RUN.format(stages=workers, text=text))
    daemons.cli("submit", run_file)
    address, end = metrics_address(daemons.folder / "coordinator.log"), time.monotonic() + START_S
    while True:
        with urllib.request.urlopen(address, timeout=10) as answer:
            if re.search(r"^longhaul_run_step{.*} [1-9]", answer.read().decode(), re.MULTILINE):
                return
        if time.monotonic() > end:
            raise Failed(f"no step after {START_S} s")
        time.sleep(1)


def measure(arguments, table):
    good, out = True, []
    with tempfile.TemporaryDirectory(prefix="longhaul-scrape-") as folder, \
            Daemons(arguments.programs.resolve(), pathlib.Path(folder), arguments.workers,
                    ["--metrics", "127.0.0.1:0", "--data-address", "127.0.0.1:0", "--transport", "grpc"],
                    coordinator_flags=["--metrics", "127.0.0.1:0"]) as daemons:
        submit(daemons, arguments.workers)
        for what, value, unit, limit in rows(arguments, daemons):
            good = good and (limit is None or value <= limit)
            out.append({"workers": arguments.workers, "what": what, "value": f"{value:.4g}", "unit": unit,
                        "limit": limit or ""})
            table.add(what, f"{value:.4g} {unit}", f"at most {limit:g}" if limit else "")
    if arguments.csv:
        append_rows(arguments.csv, list(out[0]), out)
    return good
