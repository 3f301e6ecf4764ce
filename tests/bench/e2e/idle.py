"""What daemons cost that have nothing to do, and how long starting takes."""
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

import needs
from cluster import CODECS, ROOT, RUN_FILE, Cluster, Failed, call
from promises import Promises
from report import Table, cores, cpu_seconds

START_LIMIT_S = 30
WORKERS = 4
MOST_START_S = 5
MOST_IDLE, MOST_WAITING = 1, 3  # percent of a core
QUICKSTART = ROOT / "deploy/runs/quickstart.yaml"
# The run that is stopped and resumed measures no links, so it has no traffic but its own.
RESUMED = {**CODECS["none"], "links.measure": "false"}


def add_arguments(parser):
    parser.add_argument("--seconds", type=float, default=20,
                        help="of idleness (default %(default)s)")
    parser.add_argument("--starts", type=int, default=3,
                        help="of the daemons (default %(default)s)")


@contextlib.contextmanager
def daemons(programs, folder):
    """A coordinator and workers on the loopback interface: yields (access flags, start time)."""
    token = folder / "token"
    os.environ["LONGHAUL_HOME"] = str(folder / "home")
    processes = []

    def start(program, name, *arguments):
        with open(folder / f"{name}.log", "wb") as log:
            processes.append(subprocess.Popen(
                [programs / program, "--state-dir", folder / name, "--token-file", token,
                 *arguments], stdout=log, stderr=log))

    try:
        begin = time.monotonic()
        start("longhaul-coordinator", "coordinator", "--listen", "127.0.0.1:0")
        address = folder / "coordinator/address"
        while not (address.exists() and address.read_text().strip()):
            if time.monotonic() > begin + START_LIMIT_S or processes[0].poll() is not None:
                raise Failed((folder / "coordinator.log").read_text())
            time.sleep(0.005)
        access = ["--coordinator", address.read_text().strip(), "--token-file", token]
        for number in range(1, WORKERS + 1):
            start("longhaul-worker", f"worker{number}", *access[:2], "--name", f"worker{number}")
        yield access, begin
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def start_seconds(programs):
    """From the coordinator's start to `workers` showing all of them."""
    with tempfile.TemporaryDirectory(prefix="longhaul-bench-") as folder:
        with daemons(programs, pathlib.Path(folder)) as (access, begin):
            while time.monotonic() < begin + START_LIMIT_S:
                workers = json.loads(call([programs / "longhaul", "workers", "--json", *access]))
                if sum(worker["connected"] for worker in workers["workers"]) == WORKERS:
                    return time.monotonic() - begin
            raise Failed(f"after {START_LIMIT_S} s not all workers were there")


def shares(pids, seconds):
    """CPU share of each, in percent of a core."""
    before = [cpu_seconds(pid) for pid in pids]
    begin = time.monotonic()
    time.sleep(seconds)
    wall = time.monotonic() - begin
    return [100 * (cpu_seconds(pid) - then) / wall for pid, then in zip(pids, before)]


def begins(cluster, run):
    """When stage 0 said that it begins, of every epoch; in seconds since 1970."""
    return sorted(entry["line"]["unix_ms"] / 1000 for entry in cluster.lines("logs", run)
                  if "stage 0 begins" in entry["line"]["text"])


def first_forward_seconds(cluster):
    """From calling `submit` to the moment at which a stage says that it begins."""
    begin = time.time()
    run = cluster.submit(RUN_FILE, {**CODECS["none"], "train.steps": 1})
    cluster.wait_for(run, "its end", lambda status: status["state"] == "done")
    return begins(cluster, run)[0] - begin


def stop(cluster, run, after_step):
    cluster.wait_for(run, "some steps", lambda status: int(status.get("step", 0)) >= after_step)
    cluster.cli("stop", run)
    cluster.wait_for(run, "its stop", lambda status: status["state"] == "stopped")


def resume_seconds(cluster, run):
    """From calling `submit --resume` to the first forward; the run is stopped again after it."""
    epochs, step = len(begins(cluster, run)), int(cluster.status(run)["step"])
    begin = time.time()
    cluster.submit(QUICKSTART, RESUMED, resume=True)
    stop(cluster, run, step + 1)
    begun = begins(cluster, run)
    if len(begun) != epochs + 1:
        raise Failed(f"expected {epochs + 1} beginnings in the log of run {run}, got {len(begun)}")
    return begun[-1] - begin


def resume_rows(cluster, repeats):
    """(what, seconds) of resumes of the quickstart's run."""
    run = cluster.submit(QUICKSTART, RESUMED)
    stop(cluster, run, 1)
    for _ in range(repeats):
        yield "resume, its stages in memory: submit to first forward", resume_seconds(cluster, run)
    for _ in range(repeats):
        # Another run takes the workers' memory.
        other = cluster.submit(RUN_FILE, {**CODECS["none"], "train.steps": 1})
        cluster.wait_for(other, "its end", lambda status: status["state"] == "done")
        yield "resume, behind another run: submit to first forward", resume_seconds(cluster, run)


def starved_shares(cluster, seconds):
    """CPU shares of workers with two open links and with one, which wait for data that do not come."""
    # At this rate one activation takes half a minute, so stages 2 and 3 get nothing; what links that are
    # measured leave in the queues would take as long, and the handshakes wait behind it.
    cluster.set_rate("64kbit")
    run = cluster.submit(RUN_FILE, {**CODECS["none"], "train.steps": 1, "links.measure": "false"})
    status = cluster.wait_for(run, "its start", lambda status: status["state"] == "running")
    stages = [cell["worker_name"] for cell in status["plan"]["assignment"]["cells"]]
    pids = {worker["name"]: worker["pid"] for worker in cluster.state()["workers"]}
    result = shares([pids[stages[2]], pids[stages[3]]], seconds)
    cluster.cli("stop", run, "--now")
    return result


def check_needs(arguments):
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(RUN_FILE, QUICKSTART)


def table_of(arguments):
    return Table(
        f"Daemons, {WORKERS} workers; shares of a core over {arguments.seconds:g} s",
        ["what", "cores", "figure"])


def measure(arguments, table):
    promises = Promises(arguments.slack)

    def seconds(what, figure, most):
        table.add(what, cores(), f"{figure:.2f} s")
        promises.within(what, figure, least=0, most=most)

    def share(what, percent, most):
        table.add(what, cores(), f"{percent:.2f} %")
        promises.within(what, percent, least=0, most=most)

    for _ in range(arguments.starts):
        seconds("daemons' start to `workers` showing all", start_seconds(pathlib.Path(arguments.programs)), MOST_START_S)
    with Cluster(arguments.programs, workers=WORKERS) as cluster:
        seconds("submit to first forward", first_forward_seconds(cluster), MOST_START_S)
        idle = shares(cluster.pids(), arguments.seconds)
        share("coordinator, nothing to do", idle[0], MOST_IDLE)
        share("worker, nothing to do, the busiest", max(idle[1:]), MOST_IDLE)
        seconds("submit to first forward, the second time", first_forward_seconds(cluster), MOST_START_S)
        for what, took in resume_rows(cluster, arguments.starts):
            seconds(what, took, MOST_START_S)
        starved = starved_shares(cluster, arguments.seconds)
        share("worker waiting at two open links", starved[0], MOST_WAITING)
        share("worker waiting at one open link", starved[1], MOST_WAITING)
    return promises.held
