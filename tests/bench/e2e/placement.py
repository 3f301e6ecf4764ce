"""Sixteen workers in four regions whose names say nothing of where they are: steps of the run as
placed, and in the order of names, beside what was predicted."""
import pathlib
import re
import statistics
import tempfile

import needs
from cluster import ROOT, Cluster
from report import Table, cores, spread

FILE = ROOT / "tests/fixtures/placement/four_regions.yaml"
WORKERS = 16
UNITS = {"mbit": 1e6, "gbit": 1e9}


def add_arguments(parser):
    parser.add_argument("--slower", type=float, default=10,
                        help="all rates of the file are divided by this, for machines that cannot "
                             "carry sixteen fast links (default %(default)s)")
    parser.add_argument("--steps", type=int, default=3,
                        help="that count, of each run (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=1,
                        help="that do not count (default %(default)s)")
    parser.add_argument("--microbatches", type=int, default=8, help="default %(default)s")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="also of the run file")


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(FILE)


def table_of(arguments):
    return Table(
        f"{FILE.name} {' '.join(arguments.set)}, rates divided by {arguments.slower:g}, {arguments.microbatches} "
        f"microbatches: step seconds, median (middle half) of {arguments.steps} after "
        f"{arguments.warm_up}",
        ["placement", "cores", "crossings of regions", "predicted", "step", "step/predicted"])


def slower(text, by):
    def divided(match):
        bits = float(match[1]) * UNITS[match[2]] / by
        return f"rate: {bits / 1e3:.0f}kbit"
    return re.sub(r"rate: ([\d.]+)([mg]bit)", divided, text)


def crossings(text, plan):
    region = {}
    for name, workers in re.findall(r"^    (\w+): \[(.*)\]$", text, re.MULTILINE):
        region.update({worker.strip(): name for worker in workers.split(",")})
    order = [region[cell["worker_name"]] for cell in plan["assignment"]["cells"]]
    return sum(one != other for one, other in zip(order, order[1:]))


def measure(arguments, table):
    text = FILE.read_text()
    holds = True
    with tempfile.TemporaryDirectory(prefix="longhaul-placement-") as folder:
        run_file = pathlib.Path(folder) / FILE.name
        run_file.write_text(slower(text, arguments.slower))
        with Cluster(arguments.programs, workers=WORKERS) as cluster:
            medians = {}
            for placement in ("names", "auto"):
                run = cluster.train(run_file, {
                    "pipeline.placement": placement, "train.microbatches": arguments.microbatches,
                    "train.steps": arguments.warm_up + arguments.steps,
                    **dict(word.split("=", 1) for word in arguments.set)})
                seconds = run.step_seconds(after=arguments.warm_up)
                medians[placement] = statistics.median(seconds)
                predicted = run.prediction["step_seconds"]
                table.add(placement, cores(), crossings(text, run.plan), f"{predicted:.3f}",
                          spread(seconds), f"{medians[placement] / predicted:.3f}")
                holds &= abs(medians[placement] / predicted - 1) <= 0.10
            holds &= medians["auto"] * 2 <= medians["names"]
    return holds
