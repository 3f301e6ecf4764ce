"""Largest gradient norm, before clipping, of the quickstart's run with each pair of codecs: a spike is a
learning rate on the edge. Needs no root, for nothing depends on links."""
import pathlib
import tempfile

import needs
from cluster import CODEC_PAIRS, ROOT
from loopback import Daemons
from report import Table

NEEDS_ROOT = False
WORKERS = 4


def add_arguments(parser):
    parser.add_argument("--run-file", type=pathlib.Path, default=ROOT / "deploy/runs/quickstart.yaml",
                        help="(default %(default)s)")
    parser.add_argument("--steps", type=int, default=64, help="(default %(default)s)")
    parser.add_argument("--codecs", nargs="+", choices=CODEC_PAIRS, default=list(CODEC_PAIRS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="changes another key of the run file; repeatable")
    parser.add_argument("--limit", type=float, default=20,
                        help="what no norm should exceed (default %(default)s)")


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(arguments.run_file)


def table_of(arguments):
    return Table(
        f"{arguments.run_file.name}, {arguments.steps} steps{''.join(f', {one}' for one in arguments.set)}: "
        f"the largest gradient norm of each pair of codecs; expected at most {arguments.limit:g}",
        ["codecs", "largest norm", "at step", "first loss", "last loss"])


def measure(arguments, table):
    good = True
    with tempfile.TemporaryDirectory(prefix="longhaul-norms-") as folder, \
            Daemons(arguments.programs.resolve(), pathlib.Path(folder), WORKERS) as daemons:
        for name in arguments.codecs:
            settings = {"train.steps": arguments.steps, "pipeline.stages": WORKERS,
                        "validation.every": 0, "checkpoint.at_end": "false", "links.measure": "false",
                        **CODEC_PAIRS[name]}
            steps = daemons.train(arguments.run_file, [
                *(f"{key}={value}" for key, value in settings.items()), *arguments.set])
            largest = max(steps, key=lambda step: step["gradient_norm"])
            good = good and largest["gradient_norm"] <= arguments.limit
            table.add(name, f"{largest['gradient_norm']:.2f}", largest["step"],
                      f"{steps[0]['loss']:.3f}", f"{steps[-1]['loss']:.3f}")
    return good
