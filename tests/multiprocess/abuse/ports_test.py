"""Every port that a daemon opens, under attack while a run trains.

usage: ports_test.py BIN_DIR [worker|coordinator|dashboard|relay|standby|metrics|all] [--seconds N]

Ports: a worker's links over tcp and grpc, and its metrics; a coordinator's own port, its dashboard, its relay and its
metrics; a standby's port. After each attack the daemon is the same process, its memory has grown by less than 192 MB, its
descriptors are back, and a proper client is served. At the end the run's losses are those of an undisturbed one. With
--seconds the attacks of the case are repeated for so long, in a random order.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import socket
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
import training_test as training  # noqa: E402
import abuse_test  # noqa: E402
import floods  # noqa: E402
import links  # noqa: E402
import web  # noqa: E402
from floods import Port  # noqa: E402
from http2 import CONTROL, LINK, PREFACE, Connection, Target, call_frame, message, tls_as  # noqa: E402
from hyperframe.frame import SettingsFrame  # noqa: E402

# gRPC and OpenSSL keep the memory of the moment when most connections were open. Of a ping of 17 bytes gRPC makes 1.2 KB, and
# where the machine is busy a stranger gets 64 KiB of them through before it is cut: 110 MB for 24 of them.
LIMIT_MB, LONG_LIMIT_MB = 192, 320
SPARE_DESCRIPTORS = 4  # files that a daemon has open for a moment while a run trains
FAILED_PRECONDITION = 9
GET_TERM = "/longhaul.v1.StandbyService/GetTerm"
METRICS = ["--metrics", "127.0.0.1:0"]


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Daemons(training.Cluster):
    """A coordinator with every port that it can have, its standby, and two workers."""

    def __init__(self, programs, folder):
        self.relay, self.standby = free_address(), free_address()
        super().__init__(programs, folder, workers=0)

    def start(self, name, program, *arguments, cwd=None):
        if name == "coordinator":
            arguments = (*arguments, "--relay", self.relay, *METRICS)
        super().start(name, program, *arguments, cwd=cwd)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    def said(self, name, pattern):
        return training.wait_for(f"'{pattern}' of {name}", lambda: re.search(pattern, self.log(name)))

    def start_standby(self):
        self.start("standby", "longhaul-coordinator", "--listen", self.standby, "--standby", self.address)
        log = self.folder / "standby.log"
        training.wait_for("the standby's copy", lambda: "this standby has all" in log.read_text())

    def start_workers(self):
        """Behind proxies that slow the run down, because all its steps are repeated."""
        self.proxies, self.tcp, self.grpc = [], [], []
        for number in (1, 2):
            proxy = links.Proxy()
            self.start_worker(number, "--transport", "tcp,grpc", "--advertise", proxy.address, *METRICS)
            found = self.said(f"worker{number}", r"data address (\S+) \(tcp\)[^$]*data address (\S+) \(grpc\)")
            proxy.target = found[1]
            self.proxies.append(proxy)
            self.tcp.append(found[1])
            self.grpc.append(found[2])
        training.wait_for("the workers", lambda: len(self.connected()) == 2)


def serves_http(address, path, wanted=b"HTTP/1.1 200"):
    def served(_):
        with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
            assert answer.status == 200 and answer.read(), f"{address}{path}: {answer.status}"
    return served


def serves_call(target, path, wanted):
    """A call by the book gets this status."""
    def served(_):
        connection = Connection(Target(target.rsplit("/", 1)[-1], path, tls=tls_as(), patient=True))
        connection.open(1, path, "", message(b""))
        assert connection.wait_ended(1) == 1, f"{target}: a call has no end"
        assert connection.statuses[1] == wanted, f"{target}: {connection.statuses} {connection.messages}"
        connection.close()
    return served


def serves_links(target):
    """A hello of a run that is not there is refused with a sentence."""
    def served(port):
        answer = links.say(target, links.link_frame(links.HELLO, links.hello("no-such-run", 1)))
        assert answer, f"{port.name}: a hello gets no answer"
    return served


def greets(port):
    """A relay speaks first: its name and a nonce."""
    one, got = port.connect(), b""
    while len(got) < 40 and (more := one.recv(64)):
        got += more
    one.close()
    assert len(got) >= 40 and got.startswith(b"LHRELAY"), f"{port.name}: {got[:20]} is no greeting"


HTTP_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def ports_of(cluster, case):
    """The ports of a case, each with the attacks that fit it beside floods.FLOODS."""
    h2_greeting = PREFACE + SettingsFrame(0).serialize() + call_frame(1, CONTROL + "Info").serialize()
    one_hello = links.link_frame(links.HELLO, links.hello("no-such-run", 1))
    found = []

    def add(wanted, attacks, *arguments, **options):
        if case in (wanted, "all"):
            found.append((Port(*arguments, **options), attacks))

    def metrics(name):
        address = cluster.said(name, r"metrics at http://(\S+)/metrics")[1]
        # Serves its callers one after the other, each for 3 s at most.
        add("metrics", floods.SINGLE + web.WEB[:2] + web.WEB[4:], f"metrics of {name}", name, address, HTTP_REQUEST,
            serves_http(address, "/metrics"), takes=3, waits=True)

    for number in (1, 2):
        name = f"worker{number}"
        tcp, grpc = cluster.tcp[number - 1], cluster.grpc[number - 1]
        add("worker", floods.SINGLE + [links.held_frames], f"tcp of {name}", name, tcp, one_hello,
            serves_links(links.StreamTarget(tcp)))
        add("worker", floods.SINGLE + floods.HTTP2, f"grpc of {name}", name, grpc, h2_greeting,
            serves_links(Target(grpc, LINK)), http2=True)
    metrics("worker1")
    metrics("coordinator")
    dashboard = cluster.said("coordinator", r"dashboard at http://([^/\s]+)")[1]
    add("dashboard", floods.SINGLE + web.WEB, "dashboard", "coordinator", dashboard,
        b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\n\r\n", serves_http(dashboard, "/api/overview"), takes=24)
    add("coordinator", floods.SINGLE + floods.HTTP2, "coordinator", "coordinator", cluster.address, floods.CLIENT_HELLO,
        serves_call(cluster.address, GET_TERM, 0), tls=True, http2=True)
    add("relay", floods.SINGLE, "relay", "coordinator", cluster.relay, b"\1" + b"\0" * 72, greets)
    if case in ("standby", "all"):
        add("standby", floods.SINGLE + floods.HTTP2, "standby", "standby", cluster.standby, floods.CLIENT_HELLO,
            serves_call(cluster.standby, GET_TERM, FAILED_PRECONDITION), tls=True, http2=True)
    return found


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


class Siege:
    """Attacks on ports, and what has to hold behind each."""

    def __init__(self, cluster, run, memory, limit_mb):
        self.cluster, self.run, self.memory, self.limit_mb = cluster, run, memory, limit_mb
        self.open = {name: descriptors(process) for name, process in cluster.processes.items()}

    def wave(self, attacks):
        """(port, attack) side by side. What came of each, as a list."""
        with concurrent.futures.ThreadPoolExecutor(len(attacks)) as pool:
            outcomes = [pool.submit(attack, port) for port, attack in attacks]
        for (port, attack), outcome in zip(attacks, outcomes):
            print(f"{port.name}: {attack.__name__}: {outcome.result()}", flush=True)
        for port in {port for port, _ in attacks}:
            port.served(port)
        self.survived({port.daemon for port, _ in attacks})

    def rows(self, ports):
        """The attacks of each port one after the other, those of different ports side by side."""
        def all_of(port, attacks):
            return [f"{port.name}: {attack.__name__}: {attack(port)}" for attack in attacks]

        with concurrent.futures.ThreadPoolExecutor(len(ports)) as pool:
            for outcome in [pool.submit(all_of, *one) for one in ports]:
                print("\n".join(outcome.result()), flush=True)
        for port, _ in ports:
            port.served(port)
        self.survived({port.daemon for port, _ in ports})

    def survived(self, daemons):
        before = self.cluster.step(self.run)
        for name, process in self.cluster.processes.items():
            assert process.poll() is None, f"{name} ended with {process.returncode}"
        for name in daemons:
            process, limit = self.cluster.processes[name], self.open[name] + SPARE_DESCRIPTORS
            training.wait_for(f"{name} to have at most {limit} descriptors again", lambda: descriptors(process) <= limit,
                              deadline_s=60)
        print(", ".join(f"{name} {mb:+.1f} MB" for name, mb in self.memory.growth().items()), flush=True)
        for name, mb in self.memory.growth().items():
            assert mb < self.limit_mb, f"{name} grew by {mb:.1f} MB"
        training.wait_for("two more steps", lambda: self.cluster.step(self.run) > before + 1)


def besiege(siege, ports, seconds, seed):
    if not seconds:
        siege.wave([(port, attack) for port, _ in ports for attack in floods.FLOODS])
        siege.rows(ports)
        return
    chance, end, waves = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        siege.wave([(port, chance.choice(floods.FLOODS + attacks)) for port, attacks in ports])
        waves += 1
    print(f"ok: {waves} waves on {len(ports)} ports", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs")
    parser.add_argument("case", nargs="?", default="all")
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="longhaul-ports-") as folder:
        training.text_for_training(folder)
        with Daemons(arguments.programs, folder) as cluster:
            if arguments.case in ("standby", "all"):
                cluster.start_standby()
            cluster.start_workers()
            ports = ports_of(cluster, arguments.case)
            assert ports, f"there is no case {arguments.case}"
            run = abuse_test.start(cluster, "besieged")
            for proxy in cluster.proxies:
                proxy.pause_s = 0.1
            with abuse_test.Memory(cluster.processes) as memory:
                limit_mb = LONG_LIMIT_MB if arguments.seconds else LIMIT_MB
                besiege(Siege(cluster, run, memory, limit_mb), ports, arguments.seconds, arguments.seed)
            for name, mb in memory.growth().items():
                print(f"{name}: {memory.begin[name]:.1f} MB, grew by {mb:.1f} MB", flush=True)
            besieged = cluster.end(run)
            for proxy in cluster.proxies:
                proxy.pause_s = 0
            calm = abuse_test.start(cluster, "calm")
            training.wait_for("as many steps", lambda: cluster.step(calm) >= len(besieged))
            training.expect_equal(f"{arguments.case} under attack and undisturbed", besieged,
                                  cluster.end(calm)[:len(besieged)])
            for name, process in cluster.processes.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}"


if __name__ == "__main__":
    main()
