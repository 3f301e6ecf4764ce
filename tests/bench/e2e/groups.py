"""What a slow link takes longer where ranks share the stages at its ends: two stages, each with one device, then with
several, whose boundary is one message as before."""
import pathlib
import re
import statistics
import sys
import tempfile

import needs
from cluster import CODECS, RUN_FILE, Cluster, Failed
from promises import Promises
from report import Table, Watch, spread

LIMIT = 1.03  # of the step of one rank, on GPUs
STAGES = 2
MOST_GAIN = 4  # by the ranks' share of the work


def add_arguments(parser):
    parser.add_argument("--device", default="cpu", help="of the workers, cpu or cuda:A-B (default %(default)s)")
    parser.add_argument("--first-on-cpu", action="store_true",
                        help="the first stage, so that the last one has the GPUs of --device cuda:A-B for itself. "
                             "Wants layers that a CPU computes sooner than the link carries their tensors")
    parser.add_argument("--ranks", type=int, default=2, help="of each stage (default %(default)s)")
    parser.add_argument("--rate", default="1gbit", help="of every link (default %(default)s)")
    parser.add_argument("--codecs", choices=CODECS, default="tah4")
    parser.add_argument("--steps", type=int, default=10, help="that count, of each run (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=2, help="that do not count (default %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help=f"of {RUN_FILE.name}, such as model.hidden=1280")


def check_needs(arguments):
    if arguments.ranks < 2:
        raise Failed(f"--ranks: expected at least 2, got {arguments.ranks}")
    if arguments.first_on_cpu and len(gpus_of(arguments.device)) < arguments.ranks:
        raise Failed(f"--first-on-cpu: expected --device cuda:A-B with {arguments.ranks} GPUs, got {arguments.device}")
    if any("=" not in setting for setting in arguments.set):
        raise Failed(f"--set: expected KEY=VALUE, got {', '.join(arguments.set)}")
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(RUN_FILE)


def gpus_of(device):
    """Numbers of cuda:A-B; nothing else names several."""
    match = re.fullmatch(r"cuda:(\d+)-(\d+)", device)
    return range(int(match[1]), int(match[2]) + 1) if match else []


def worker_on_gpus(program, gpus, folder):
    """A program that starts workers as it is told, but the last one on the GPUs."""
    devices = ",".join(f"cuda:{gpu}" for gpu in gpus)
    path = pathlib.Path(folder) / "worker"
    path.write_text(f"""#!{sys.executable}
import os, sys
words = [{str(program.resolve())!r}, *sys.argv[1:]]
if words[words.index("--name") + 1] == "worker{STAGES}":
    words[words.index("--device") + 1] = {devices!r}
os.execv(words[0], words)
""")
    path.chmod(0o755)
    return path


def clusters(arguments, ranks, folder):
    """One with a worker for each stage, who has that many devices."""
    if not arguments.first_on_cpu:
        return Cluster(arguments.programs, workers=STAGES, rate=arguments.rate, device=arguments.device,
                       devices_per_worker=ranks)
    worker = worker_on_gpus(arguments.programs / "longhaul-worker", gpus_of(arguments.device)[:ranks], folder)
    return Cluster(arguments.programs, workers=STAGES, rate=arguments.rate, devices_per_worker=ranks,
                   worker_program=worker)


def milliseconds(times):
    return f"{1e3 * (times['forward_seconds'] + times['backward_seconds']):.3f}"


def table_of(arguments):
    return Table(
        f"Step seconds of {RUN_FILE.name} {' '.join(arguments.set)} on {arguments.device}, {STAGES} stages"
        f"{', the first on the CPU' if arguments.first_on_cpu else ''}, links of {arguments.rate}, codecs "
        f"{arguments.codecs}, median (middle half) of {arguments.steps} after {arguments.warm_up}; first, "
        "last: forward and backward of a microbatch by each stage, as planned",
        ["ranks", "each has", "layers", "first, ms", "last, ms", "bound", "step", "over one rank's", "others"])


def measure(arguments, table):
    changes = {**CODECS[arguments.codecs], "pipeline.stages": STAGES,
               "train.steps": arguments.warm_up + arguments.steps,
               **({"pipeline.placement": "names"} if arguments.first_on_cpu else {}),
               **dict(setting.split("=", 1) for setting in arguments.set)}
    whole, parts = {"group.tensor": arguments.ranks}, {"group.tensor": arguments.ranks, "group.sequence": "true"}
    promises, alone, boundary = Promises(arguments.slack), None, None
    for ranks, variants in [(1, [("all tokens", {})]),
                            (arguments.ranks, [("all tokens", whole), ("a part of them", parts)])]:
        with tempfile.TemporaryDirectory(prefix="longhaul-groups-") as folder, \
                clusters(arguments, ranks, folder) as cluster:
            for tokens, group in variants:
                watch = Watch(cluster.pids())
                done = cluster.train(RUN_FILE, {**changes, **group})
                seconds = done.step_seconds(arguments.warm_up)
                step = statistics.median(seconds)
                sent = [int(done.plan["assignment"]["edges"][0][way]["bytes"]) for way in ("forward", "backward")]
                alone, boundary = alone or step, boundary or sent
                what = f"{ranks} ranks, {tokens}"
                promises.trained(what, done.steps, arguments.warm_up + arguments.steps)
                promises.holds(f"{what}: {sent} bytes over the boundary, {boundary} of one rank", sent == boundary)
                # Ranks on a CPU share its cores, so that a stage of several may take longer.
                most = LIMIT if arguments.device != "cpu" else ranks * LIMIT
                promises.within(f"{what}: step over one rank's", step / alone, least=1 / MOST_GAIN, most=most)
                layers = "+".join(str(cell["layers"]) for cell in done.plan["assignment"]["cells"])
                table.add(ranks, tokens, layers, *map(milliseconds, done.plan["cells"]),
                          f"{done.prediction['lower_bound_seconds']:.4f}", spread(seconds), f"{step / alone:.4f}",
                          f"{watch.others():.2f}")
    return promises.held
