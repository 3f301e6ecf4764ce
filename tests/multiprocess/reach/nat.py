"""Two workers behind routers of their own, which nobody can dial, and a machine that both reach.

    homea (192.168.7.2) -- gatea (10.88.0.2) --+
                                               net -- pub (10.88.0.1): the coordinator
    homeb (192.168.8.2) -- gateb (10.88.0.3) --+

The routers translate addresses (nft masquerade). Where there is no nft they route, and pub knows the ways back; a home knows
no way to the other one in either case.
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reach_test import Processes, ip, wait_for  # noqa: E402
from training_test import DEADLINE_S  # noqa: E402

PUBLIC = "10.88.0.1"
COORDINATOR, RELAY = 7070, 7071
HOMES = {"a": ("10.88.0.2", "192.168.7"), "b": ("10.88.0.3", "192.168.8")}


MASQUERADE = """table ip nat {
  chain out {
    type nat hook postrouting priority 100
    oifname "out" masquerade
  }
}
"""


class Nat:
    """The namespaces; `shape` limits lines."""

    def __init__(self):
        self.tag = f"lhn{os.getpid() % 10000}"
        self.translates = shutil.which("nft") is not None

    def name(self, namespace):
        return f"{self.tag}{namespace}"

    def join(self, one, device, other, other_device):
        ip("link", "add", device, "netns", self.name(one), "type", "veth", "peer", "name", other_device, "netns",
           self.name(other))
        for namespace, end in ((one, device), (other, other_device)):
            ip("-n", self.name(namespace), "link", "set", end, "up")

    def address(self, namespace, device, address):
        ip("-n", self.name(namespace), "addr", "add", f"{address}/24", "dev", device)

    def run(self, namespace, *command, **options):
        subprocess.run(["ip", "netns", "exec", self.name(namespace), *command], check=True, capture_output=True,
                       text=True, **options)

    def __enter__(self):
        try:
            return self.build()
        except BaseException:
            self.__exit__()
            raise

    def build(self):
        for namespace in ("net", "pub", "gatea", "gateb", "homea", "homeb"):
            ip("netns", "add", self.name(namespace))
            ip("-n", self.name(namespace), "link", "set", "lo", "up")
        ip("-n", self.name("net"), "link", "add", "br0", "type", "bridge")
        ip("-n", self.name("net"), "link", "set", "br0", "up")
        for namespace, address in (("pub", PUBLIC), ("gatea", HOMES["a"][0]), ("gateb", HOMES["b"][0])):
            self.join(namespace, "out", "net", namespace)
            ip("-n", self.name("net"), "link", "set", namespace, "master", "br0")
            self.address(namespace, "out", address)
        for home, (outside, network) in HOMES.items():
            gate = f"gate{home}"
            self.join(gate, "in", f"home{home}", "eth0")
            self.address(gate, "in", f"{network}.1")
            self.address(f"home{home}", "eth0", f"{network}.2")
            ip("-n", self.name(f"home{home}"), "route", "add", "default", "via", f"{network}.1")
            self.run(gate, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
            if self.translates:
                self.run(gate, "nft", "-f", "-", input=MASQUERADE)
            else:
                ip("-n", self.name("pub"), "route", "add", f"{network}.0/24", "via", outside)
        return self

    def __exit__(self, *_):
        for namespace in ("net", "pub", "gatea", "gateb", "homea", "homeb"):
            subprocess.run(["ip", "netns", "del", self.name(namespace)], check=False, capture_output=True)

    def shape(self, namespace, device, rate, burst="128kb"):
        subprocess.run(["tc", "-n", self.name(namespace), "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                        rate, "burst", burst, "latency", "50ms"], check=True)

    def shape_home(self, home, rate):
        """What a home sends and gets."""
        self.shape(f"home{home}", "eth0", rate)
        self.shape(f"gate{home}", "in", rate)

    def shape_public(self, rate):
        self.shape("pub", "out", rate)
        self.shape("net", "pub", rate)


class Site:
    """A coordinator in pub, and workers where they are wanted."""

    def __init__(self, nat, programs, folder, processes):
        self.nat, self.folder, self.processes = nat, pathlib.Path(folder), processes
        self.programs = pathlib.Path(programs).resolve()
        self.token = self.folder / "token"
        os.environ["LONGHAUL_HOME"] = str(self.folder / "home")

    def start_coordinator(self, *flags):
        self.processes.start("coordinator", self.nat.name("pub"), self.programs / "longhaul-coordinator",
                             "--listen", f"0.0.0.0:{COORDINATOR}", "--state-dir", self.folder / "coordinator",
                             "--token-file", self.token, *flags)
        wait_for("the coordinator", lambda: "listening" in self.processes.said("coordinator"))

    def start_worker(self, name, namespace, *flags):
        self.processes.start(name, self.nat.name(namespace), self.programs / "longhaul-worker", "--name", name,
                             "--coordinator", f"{PUBLIC}:{COORDINATOR}", "--token-file", self.token, "--state-dir",
                             self.folder / name, *flags)

    def cli(self, *arguments, check=True, limit_s=DEADLINE_S):
        done = subprocess.run(["ip", "netns", "exec", self.nat.name("pub"), self.programs / "longhaul", *arguments,
                               "--coordinator", f"{PUBLIC}:{COORDINATOR}", "--token-file", self.token],
                              capture_output=True, text=True, timeout=limit_s, check=False, cwd=self.folder)
        if check and done.returncode != 0:
            raise AssertionError(f"longhaul {arguments}: {done.returncode}\n{done.stderr}")
        return done

    def show(self):
        """What the coordinator knows, for whoever looks why a wait was in vain."""
        try:
            runs = json.loads(self.cli("ps", "--json", limit_s=10).stdout).get("runs", [])
            for command in [("workers",), ("events",)] + [("status", run["run_id"]) for run in runs]:
                print(f"--- {' '.join(command)}\n{self.cli(*command, check=False, limit_s=10).stdout}",
                      file=sys.stderr)
        except (AssertionError, subprocess.TimeoutExpired) as problem:
            print(f"--- the coordinator does not say what is: {problem}", file=sys.stderr)

    def workers(self):
        return json.loads(self.cli("workers", "--json").stdout)

    def worker(self, name):
        return next((w for w in self.workers().get("workers", []) if w["name"] == name and w.get("connected")), None)

    def wait_until_cut_off(self):
        """a and b have tried each other, in vain."""
        wait_for("what cannot talk", lambda: sorted(
            one["transport"] for one in (self.worker("a") or {}).get("cannot_talk_to", [])
            if one["worker"] == "b") == ["grpc", "tcp", "ucx"])

    def losses(self, run):
        return [json.loads(line)["loss"] for line in self.cli("steps", run, "--json").stdout.splitlines()]


@contextlib.contextmanager
def site(programs, folder):
    with Nat() as nat, Processes(pathlib.Path(folder)) as processes:
        at = Site(nat, programs, folder, processes)
        try:
            yield at
        except (AssertionError, subprocess.TimeoutExpired):
            at.show()
            raise  # and the processes' logs are shown
