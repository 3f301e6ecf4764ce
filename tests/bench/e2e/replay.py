"""What the daemons of a replay take of the machine, and how near its steps are to the bound."""
import statistics

import needs
from cluster import CODECS, ROOT, Cluster
from promises import Promises
from report import Table, cores, cpu_seconds, spread

FILE = ROOT / "deploy/runs/gpt2_xl_replay.yaml"
WORKERS = 8
LEAST_SHARE, MOST_SHARE = 0.85, 1.03  # of the lower bound in a step
MOST_CPU = 0.5  # of one core, at the rate that is the default


def add_arguments(parser):
    parser.add_argument("--rate", default="100mbit", help="of every link (default %(default)s)")
    parser.add_argument("--steps", type=int, default=3,
                        help="that count, of each run (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=1,
                        help="that do not count (default %(default)s)")
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=["paper", "tah4"])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="also of the run file")


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(FILE)


def table_of(arguments):
    return Table(
        f"{FILE.name} at {arguments.rate}, {WORKERS} stages: step seconds, median (middle half) of "
        f"{arguments.steps} after {arguments.warm_up}; CPU time of all daemons meanwhile",
        ["codec", "cores", "step", "bound", "bound/step", "daemons, of one core"])


def measure(arguments, table):
    promises = Promises(arguments.slack)
    with Cluster(arguments.programs, workers=WORKERS, rate=arguments.rate) as cluster:
        pids = cluster.pids()
        for codec in arguments.codecs:
            run_id = cluster.submit(FILE, {
                **CODECS[codec], "train.steps": arguments.warm_up + arguments.steps,
                **dict(word.split("=", 1) for word in arguments.set)})

            def after(step):
                cluster.wait_for(run_id, f"step {step}",
                                 lambda status: int(status.get("step", 0)) >= step)
                return sum(cpu_seconds(pid) for pid in pids)

            cpu = -after(arguments.warm_up) + after(arguments.warm_up + arguments.steps)
            cluster.wait_for(run_id, "its end", lambda status: status["state"] == "done")
            seconds = [step["seconds"] for step in cluster.lines("steps", run_id)
                       if step["step"] > arguments.warm_up]
            bound = cluster.predict(run_id, arguments.rate)["bound_seconds"]
            promises.holds(f"{codec}: {len(seconds)} steps count", len(seconds) == arguments.steps)
            promises.within(f"{codec}: bound/step", bound / statistics.median(seconds), least=LEAST_SHARE, most=MOST_SHARE)
            promises.within(f"{codec}: daemons, of one core", cpu / sum(seconds), most=MOST_CPU)
            table.add(codec, cores(), spread(seconds), f"{bound:.3f}",
                      f"{bound / statistics.median(seconds):.3f}",
                      f"{100 * cpu / sum(seconds):.0f} %")
    return promises.held
