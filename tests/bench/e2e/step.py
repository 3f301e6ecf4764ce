"""Step time of four stages on slow links, beside the lower bound, the simulator and compute alone."""
import statistics

import needs
from cluster import CODECS, RUN_FILE, Cluster
from promises import Promises
from report import Table, Watch, cores, spread

# Nothing is faster than the bound, but for what was measured a little too slow.
LEAST_OF_BOUND, MOST_OF_BOUND = 0.97, 1.15


def add_arguments(parser):
    parser.add_argument("--rate", default="10mbit", help="of every link (default %(default)s)")
    parser.add_argument("--steps", type=int, default=10,
                        help="that count, of each run (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=2,
                        help="that do not count (default %(default)s)")
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=list(CODECS))


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(RUN_FILE)


def table_of(arguments):
    return Table(
        f"Step seconds of {RUN_FILE.name}, 4 stages, links of {arguments.rate}, median (middle "
        f"half) of {arguments.steps} after {arguments.warm_up}; alone: the same with links that "
        "are not shaped",
        ["codec", "cores", "step", "bound", "simulated", "step/bound", "step/simulated", "alone",
         "step/alone", "others"])


def measure(arguments, table):
    promises = Promises(arguments.slack)
    with Cluster(arguments.programs, workers=4) as cluster:

        def train(codec):
            watch = Watch(cluster.pids())
            done = cluster.train(RUN_FILE, {**CODECS[codec],
                                            "train.steps": arguments.warm_up + arguments.steps})
            return done, done.step_seconds(arguments.warm_up), watch.others()

        for codec in arguments.codecs:
            cluster.set_rate("unlimited")
            free_run, alone, _ = train(codec)
            cluster.set_rate(arguments.rate)
            done, shaped, others = train(codec)
            prediction = cluster.predict(done.status["run_id"], arguments.rate)
            step, free = statistics.median(shaped), statistics.median(alone)
            bound, predicted = prediction["bound_seconds"], prediction["simulated_seconds"]
            for kind, run, seconds in (("alone", free_run, alone), ("shaped", done, shaped)):
                promises.trained(f"{codec}, {kind}", run.steps, arguments.warm_up + arguments.steps)
                promises.holds(f"{codec}, {kind}: {len(seconds)} steps count", len(seconds) == arguments.steps)
            promises.within(f"{codec}: step/bound", step / bound, least=LEAST_OF_BOUND, most=MOST_OF_BOUND)
            promises.within(f"{codec}: step/simulated", step / predicted, least=1 / MOST_OF_BOUND, most=MOST_OF_BOUND)
            table.add(codec, cores(), spread(shaped), f"{bound:.3f}", f"{predicted:.3f}",
                      f"{step / bound:.3f}", f"{step / predicted:.3f}", spread(alone),
                      f"{step / free:.2f}", f"{others:.2f}")
    return promises.held
