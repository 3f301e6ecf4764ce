"""`longhaul cluster` as tests use it: workers in network namespaces, daemons that can be harmed.

Needs root. Every cluster has a name of its own, so that tests may run beside each other.
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import DEADLINE_S, NONE, RUN, wait_for  # noqa: E402

ENDED = ("done", "failed", "stopped")
DATA_NETWORK, CONTROL_NETWORK = "10.77.0.0/16", "10.78.0.0/16"


def side_by_side(argument_lists):
    """This program once for each list, all at the same time; the worst exit code. What they print
    comes one after the other."""
    children = [subprocess.Popen([sys.executable, sys.argv[0], *arguments], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                for arguments in argument_lists]
    with concurrent.futures.ThreadPoolExecutor(len(children)) as readers:
        for said in readers.map(lambda child: child.communicate()[0], children):
            print(said, end="", flush=True)
    return max((child.returncode for child in children), key=abs)


HARMS = set()  # names of the methods of NamespaceCluster that are faults; random_faults.py must use each


def harm(method):
    HARMS.add(method.__name__)
    return method


def add_seed(parser):
    """--seed N, or LONGHAUL_TEST_SEED=N for tests that ctest starts. Without both it is a new one each time."""
    parser.add_argument("--seed", type=int, default=os.environ.get("LONGHAUL_TEST_SEED") or secrets.randbelow(1 << 31))


class NamespaceCluster:
    def __init__(self, programs, folder, workers=4, rate="10mbit", device="cpu"):
        self.programs, self.folder = pathlib.Path(programs).resolve(), pathlib.Path(folder)
        self.name = f"t{os.getpid() % 1000000}"
        self.cluster("up", "--workers", str(workers), "--rate", rate, "--device", device)
        try:
            state = self.state()
            self.address, self.token_file = state["coordinator"]["address"], state["token_file"]
        except BaseException:
            self.down()
            raise

    def longhaul(self, *arguments, check=True):
        result = subprocess.run([self.programs / "longhaul", *arguments], capture_output=True,
                                text=True, timeout=DEADLINE_S, check=False, cwd=self.folder)
        if check and result.returncode != 0:
            raise AssertionError(f"longhaul {arguments}: {result.returncode}\n{result.stderr}")
        return result

    def cluster(self, verb, *arguments):
        return self.longhaul("cluster", verb, *arguments, "--name", self.name).stdout

    def state(self):
        return json.loads(self.cluster("status", "--json"))

    def pid(self, daemon):
        state = self.state()
        if daemon == "coordinator":
            return state["coordinator"]["pid"]
        return next(w["pid"] for w in state["workers"] if w["name"] == daemon)

    def cli(self, *arguments, check=True):
        return self.longhaul(*arguments, "--coordinator", self.address, "--token-file",
                             self.token_file, check=check)

    def submit(self, name, *flags, steps=60, stages=4, links=NONE, transport="ucx",
               edit=None):
        path = self.folder / f"{name}.yaml"
        text = RUN.format(name=name, steps=steps, stages=stages, schedule="link-aware", links=links,
                          transport=transport)
        path.write_text(edit(text) if edit else text)
        return self.cli("submit", path, *flags).stdout.split()[0]

    def resume(self, name):
        return self.cli("submit", self.folder / f"{name}.yaml", "--resume").stdout.split()[0]

    def status(self, run):
        return json.loads(self.cli("status", run, "--json").stdout)

    def wait_for_step(self, run, step):
        """False if the run ended before."""
        def looked():
            status = self.status(run)
            return int(status.get("step", 0)) >= step or status["state"] in ENDED
        wait_for(f"step {step}", looked)
        return self.status(run)["state"] not in ENDED

    def wait_for_end(self, run, deadline_s=DEADLINE_S):
        return wait_for("the end", lambda: (s := self.status(run))["state"] in ENDED and s,
                        deadline_s=deadline_s)

    def wait_until_connected(self):
        wait_for("all workers", lambda: all(w["connected"] for w in self.state()["workers"]))

    def steps(self, run):
        return [json.loads(line)
                for line in self.cli("steps", run, "--json").stdout.splitlines()]

    def losses(self, run):
        return [row["loss"] for row in self.steps(run)]

    def events(self, run):
        return self.cli("events", run).stdout.splitlines()

    # What may happen. The seconds are how long a fault lasts, not a wait for something.
    @harm
    def kill(self, daemon):
        self.cluster("kill", daemon)

    def start(self, daemon):
        self.cluster("start", daemon)

    @harm
    def end(self, daemon):
        """Asks it to end, as a service manager does, and waits until it has."""
        pid = self.pid(daemon)
        os.kill(pid, signal.SIGTERM)
        wait_for(f"the end of {daemon}", lambda: not pathlib.Path(f"/proc/{pid}/exe").exists())

    @harm
    def cut(self, worker, seconds):
        self.cluster("link", worker, "--down")
        time.sleep(seconds)
        self.cluster("link", worker, "--up")

    @harm
    def change_link(self, worker, *flags):
        self.cluster("link", worker, *flags)

    @harm
    def cut_control(self, worker, seconds):
        """No packet passes between the worker with this number and the coordinator."""
        route = ["ip", "-n", f"lh-{self.name}-w{worker}", "route"]
        coordinator = self.address.split(":")[0] + "/32"
        subprocess.run([*route, "add", "blackhole", coordinator], check=True)
        time.sleep(seconds)
        subprocess.run([*route, "del", "blackhole", coordinator], check=True)

    @harm
    def reset(self, worker, network):
        """All TCP connections that the worker with this number has in `network`."""
        subprocess.run(["ip", "netns", "exec", f"lh-{self.name}-w{worker}", "ss", "-K", "-t", "src",
                        network], check=True, capture_output=True)

    @harm
    def freeze(self, daemon, seconds):
        pid = self.pid(daemon)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    def down(self):
        self.cluster("down")


@contextlib.contextmanager
def namespace_cluster(programs, folder, **options):
    cluster = NamespaceCluster(programs, folder, **options)
    try:
        yield cluster
    except BaseException:
        logs = pathlib.Path(cluster.state()["directory"])
        for log in sorted(logs.rglob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-2000:]}", file=sys.stderr)
        raise
    finally:
        cluster.down()
