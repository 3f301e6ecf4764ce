"""Step time of two stages on links that cost nothing, against the plan's own prediction from the
layer times that were measured just before."""
import statistics

import needs
from cluster import CODECS, RUN_FILE, Cluster
from promises import Promises
from report import Table, Watch, cores, spread

LEAST_RATIO, MOST_RATIO = 0.9, 1.15  # of a step over the simulated one


def add_arguments(parser):
    parser.add_argument("--steps", type=int, default=10,
                        help="that count, of each run (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=3,
                        help="that do not count (default %(default)s)")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], help="per stage")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind")


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(RUN_FILE)


def table_of(arguments):
    return Table(
        f"Step seconds of {RUN_FILE.name}, 2 stages, links not shaped, against the simulator with "
        f"measured layer times; median (middle half) of {arguments.steps} after "
        f"{arguments.warm_up}",
        ["codec", "threads a stage", "cores", "layers", "step", "simulated", "ratio", "others"])


def measure(arguments, table):
    promises = Promises(arguments.slack)
    with Cluster(arguments.programs, workers=2) as cluster:
        for threads in arguments.threads:
            for codec in [codec for codec in ("none", "tah4") for _ in range(arguments.repeats)]:
                watch = Watch(cluster.pids())
                done = cluster.train(RUN_FILE, {
                    **CODECS[codec], "pipeline.stages": 2, "pipeline.threads_per_stage": threads,
                    "train.steps": arguments.warm_up + arguments.steps})
                seconds = done.step_seconds(arguments.warm_up)
                simulated = done.prediction["step_seconds"]
                promises.trained(codec, done.steps, arguments.warm_up + arguments.steps)
                promises.within(f"{codec}, {threads} threads: step/simulated", statistics.median(seconds) / simulated,
                                least=LEAST_RATIO, most=MOST_RATIO)
                layers = "+".join(str(cell["layers"]) for cell in done.plan["assignment"]["cells"])
                table.add(codec, threads, cores(), layers, spread(seconds), f"{simulated:.3f}",
                          f"{statistics.median(seconds) / simulated:.3f}",
                          f"{watch.others():.2f}")
    return promises.held
