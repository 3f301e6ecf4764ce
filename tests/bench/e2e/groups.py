"""What a slow link takes longer where ranks share the stages at its ends: two stages, each with one device, then with
several, whose boundary is one message as before."""
import statistics

import needs
from cluster import CODECS, RUN_FILE, Cluster, Failed
from report import Table, Watch, spread

LIMIT = 1.03  # of the step of one rank, on GPUs
STAGES = 2


def add_arguments(parser):
    parser.add_argument("--device", default="cpu", help="of the workers, cpu or cuda:A-B (default %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="of each stage (default %(default)s)")
    parser.add_argument("--rate", default="1gbit", help="of every link (default %(default)s)")
    parser.add_argument("--codecs", choices=CODECS, default="default")
    parser.add_argument("--steps", type=int, default=10, help="that count, of each run (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=2, help="that do not count (default %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help=f"of {RUN_FILE.name}, such as model.hidden=1280")


def check_needs(arguments):
    if arguments.ranks < 2:
        raise Failed(f"--ranks: expected at least 2, got {arguments.ranks}")
    if any("=" not in setting for setting in arguments.set):
        raise Failed(f"--set: expected KEY=VALUE, got {', '.join(arguments.set)}")
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(RUN_FILE)


def table_of(arguments):
    return Table(
        f"Step seconds of {RUN_FILE.name} {' '.join(arguments.set)} on {arguments.device}, {STAGES} stages, links of "
        f"{arguments.rate}, codecs {arguments.codecs}, median (middle half) of {arguments.steps} after "
        f"{arguments.warm_up}; compute: forward and backward of a microbatch by the slower stage, as planned",
        ["ranks", "each has", "compute, ms", "bound", "step", "over one rank's", "others"])


def measure(arguments, table):
    changes = {**CODECS[arguments.codecs], "pipeline.stages": STAGES,
               "train.steps": arguments.warm_up + arguments.steps,
               **dict(setting.split("=", 1) for setting in arguments.set)}
    whole, parts = {"group.tensor": arguments.ranks}, {"group.tensor": arguments.ranks, "group.sequence": "true"}
    alone, worst = None, 0
    for ranks, variants in [(1, [("all tokens", {})]),
                            (arguments.ranks, [("all tokens", whole), ("a part of them", parts)])]:
        with Cluster(arguments.programs, workers=STAGES, rate=arguments.rate, device=arguments.device,
                     devices_per_worker=ranks) as cluster:
            for tokens, group in variants:
                watch = Watch(cluster.pids())
                done = cluster.train(RUN_FILE, {**changes, **group})
                seconds = done.step_seconds(arguments.warm_up)
                step = statistics.median(seconds)
                alone = alone or step
                worst = max(worst, step / alone)
                compute = max(times["forward_seconds"] + times["backward_seconds"] for times in done.plan["cells"])
                table.add(ranks, tokens, f"{1e3 * compute:.3f}", f"{done.prediction['lower_bound_seconds']:.4f}",
                          spread(seconds), f"{step / alone:.4f}", f"{watch.others():.2f}")
    return worst <= LIMIT or arguments.device == "cpu"
