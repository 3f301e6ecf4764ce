"""While a run of two stages trains, hostile peers do what they can to every port.

usage: abuse_test.py BIN_DIR [strangers] [slow] [links] [insiders]      (without names: all)

The coordinator's port, both workers' data ports (tcp and grpc; a ucx port cannot be protected, see
docs/gotchas/transport.md), and the bytes between the workers, which they exchange over tcp. The run goes on with the losses of an
undisturbed one, no daemon ends, none grows by 64 MB, the token is in no log and on no command
line, and no control character reaches a log.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
import training_test as training  # noqa: E402
import attacker  # noqa: E402
import links  # noqa: E402
from http2 import CONTROL, LINK, Target, tls_as  # noqa: E402

LIMIT_MB = 64
# Never reached: both runs are stopped.
STEPS = 100_000


def resident_mb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise AssertionError(f"process {pid} has no memory: it has ended")


class Memory:
    """Samples the daemons' resident memory, and keeps the highest."""

    def __init__(self, processes):
        self.processes, self.highest, self.ended = processes, {}, threading.Event()
        self.sample()
        self.begin = dict(self.highest)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def sample(self):
        for name, process in self.processes.items():
            self.highest[name] = max(self.highest.get(name, 0), resident_mb(process.pid))

    def run(self):
        while not self.ended.wait(0.05):
            self.sample()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def growth(self):
        return {name: self.highest[name] - self.begin[name] for name in self.processes}


def start_workers(cluster):
    """Two, each behind a proxy; returns their gRPC ports, their TCP ports and the proxies."""
    grpc_ports, tcp_ports, proxies = [], [], []
    for number in (1, 2):
        proxy = links.Proxy()
        cluster.start_worker(number, "--transport", "tcp,grpc", "--advertise", proxy.address)
        log = cluster.folder / f"worker{number}.log"
        found = training.wait_for("the data addresses", lambda: re.search(
            r"data address (\S+) \(tcp\)[^$]*data address (\S+) \(grpc\)", log.read_text(encoding="utf-8")))
        proxy.target = found[1]
        tcp_ports.append(links.StreamTarget(found[1]))
        grpc_ports.append(Target(found[2], LINK))
        proxies.append(proxy)
    training.wait_for("the workers", lambda: len(cluster.connected()) == 2)
    return grpc_ports, tcp_ports, proxies


def user_identity(cluster):
    """The key and certificate of the CLI, in one file."""
    return next((cluster.folder / "home").glob("*.pem"))


def worker_identity(cluster):
    """Credentials of a worker that has joined and is gone."""
    cluster.start("attacker", "longhaul-worker", "--coordinator", cluster.address, "--name", "attacker")
    training.wait_for("three workers", lambda: len(cluster.connected()) == 3)
    cluster.processes["attacker"].terminate()
    cluster.processes.pop("attacker").wait()
    training.wait_for("two workers", lambda: len(cluster.connected()) == 2)
    return cluster.folder / "attacker/identity.pem"


def another_user(cluster):
    """The key and certificate of a user who has no run, in one file."""
    token, home = cluster.folder / "user.token", cluster.folder / "eve"
    token.write_text(cluster.cli("token", "create", "--role", "user").stdout)
    token.chmod(0o600)
    subprocess.run([cluster.programs / "longhaul", "ps", "--coordinator", cluster.address, "--token-file", token],
                   env={**os.environ, "LONGHAUL_HOME": str(home)}, check=True, stdout=subprocess.DEVNULL)
    return next(home.glob("*.pem"))


def text_of(cluster):
    """The text that the runs are over: (its hash, its size)."""
    blobs = [path for path in (cluster.folder / "coordinator/blobs").iterdir() if len(path.name) == 64]
    text = next(path for path in blobs if path.read_bytes() == (cluster.folder / "text.txt").read_bytes())
    return text.name, text.stat().st_size


def start(cluster, name):
    path = cluster.write_run(name, steps=STEPS, stages=2, transport="tcp")
    run = cluster.cli("submit", path).stdout.split()[0]
    training.wait_for(f"step 3 of {run}", lambda: cluster.step(run) >= 3)
    return run


class Storm:
    """A run under attack: after each, it takes another step and the daemons' growth is printed."""

    def __init__(self, cluster, run, memory):
        self.cluster, self.run, self.memory = cluster, run, memory

    def attack(self, attack, targets, *arguments):
        before = self.cluster.step(self.run)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            outcomes = list(pool.map(lambda target: attack(target, *arguments), targets))
        self.survived(f"{attack.__name__}: {' | '.join(outcomes)}", before)

    def survived(self, what, before):
        training.wait_for("two more steps", lambda: self.cluster.step(self.run) > before + 1)
        grown = ", ".join(f"{n} {mb:+.1f} MB" for n, mb in self.memory.growth().items())
        print(f"{what}; {grown}", flush=True)


def flip_a_bit(cluster, proxies):
    """In what goes between the workers: a damaged tensor ends the run with a reason; where a header
    was hit, the link comes back and the run goes on."""
    run = start(cluster, "damaged")
    dialled, before = sum(proxy.connections for proxy in proxies), cluster.step(run)
    for proxy in proxies:
        proxy.wanted = 1

    def outcome():
        status = cluster.status(run)
        if status["state"] == "failed":
            assert "checksum" in status["reason"], status["reason"]
            return status["reason"]
        healed = sum(proxy.connections for proxy in proxies) > dialled
        return "the link came back" if healed and int(status["step"]) > before + 20 else None

    print("ok: a flipped bit:", training.wait_for("what comes of a flipped bit", outcome), flush=True)


def check_logs(cluster, token, calls_were_refused):
    for path in cluster.folder.glob("*.log"):
        text = path.read_bytes()
        assert token.encode() not in text, f"the token is in {path.name}"
        assert not any(byte < 32 and byte != 10 for byte in text), f"control characters in {path.name}"
    for name, process in cluster.processes.items():
        for part in ("cmdline", "environ"):
            text = pathlib.Path(f"/proc/{process.pid}/{part}").read_bytes()
            assert token.encode() not in text, f"the token is in the {part} of {name}"
    lines = (cluster.folder / "coordinator.log").read_text(encoding="utf-8").splitlines()
    refused = [line for line in lines if "was refused" in line]
    if not calls_were_refused:
        return
    assert refused, "refused calls were not logged"
    assert any("more in the last" in line for line in lines), "what was left out is not counted"
    print(f"ok: {len(lines)} lines in the coordinator's log, {len(refused)} about refused calls", flush=True)


def strangers(storm, at, _):
    for attack in attacker.QUICK_ATTACKS + [attacker.idle_connections]:
        storm.attack(attack, [at.control, at.stranger] + at.grpc)


def slow(storm, at, _):
    for attack in attacker.SLOW_ATTACKS:
        storm.attack(attack, [at.control, at.stranger] + at.grpc)


def links_of_workers(storm, at, run):
    for attack in links.STREAM_ATTACKS:
        storm.attack(attack, at.tcp)
    for attack in links.LINK_ATTACKS:
        storm.attack(attack, at.tcp + at.grpc, run)


def insiders(storm, at, run):
    storm.attack(attacker.wrong_tokens, [at.stranger])
    for attack in attacker.CONTROL_ATTACKS[1:]:
        storm.attack(attack, [at.insider])
    run_yaml = storm.cluster.write_run("stolen", stages=2).read_text(encoding="utf-8")
    storm.attack(attacker.foreign_hash, [at.user], *text_of(storm.cluster), run_yaml)
    for attack in attacker.WORKER_ATTACKS:
        storm.attack(attack, [at.false])
    for attack in attacker.RUN_ATTACKS:
        storm.attack(attack, [at.false], run)


PARTS = {"strangers": strangers, "slow": slow, "links": links_of_workers, "insiders": insiders}


class Targets:
    """Ways to the ports: with TLS and a certificate, with TLS alone, and without either."""

    def __init__(self, cluster, token):
        self.grpc, self.tcp, self.proxies = start_workers(cluster)
        info = CONTROL + "Info"
        self.insider = Target(cluster.address, info, token, tls_as(user_identity(cluster)))
        self.stranger = Target(cluster.address, info, token, tls_as(), patient=True)
        self.control = Target(cluster.address, info, token)

    def add_members(self, cluster, token):
        """A worker that has joined and is gone, and a user who has no run."""
        self.false = Target(cluster.address, CONTROL + "Info", token, tls_as(worker_identity(cluster)))
        self.false.worker_id = (cluster.folder / "attacker/worker-id").read_text().strip()
        self.user = Target(cluster.address, CONTROL + "Info", token, tls_as(another_user(cluster)))


def compare(cluster, at, stormy):
    """The same steps again, undisturbed."""
    for proxy in at.proxies:
        proxy.pause_s = 0
    calm = start(cluster, "calm")
    training.wait_for("as many steps", lambda: cluster.step(calm) >= len(stormy))
    training.expect_equal("under attack and undisturbed", stormy, cluster.end(calm)[:len(stormy)])


def main():
    parts = sys.argv[2:] or list(PARTS)
    with tempfile.TemporaryDirectory(prefix="longhaul-abuse-") as folder:
        training.text_for_training(folder)
        cluster = training.Cluster(sys.argv[1], folder, workers=0)
        try:
            token = cluster.token.read_text(encoding="utf-8").strip()
            at = Targets(cluster, token)
            if "insiders" in parts:
                at.add_members(cluster, token)
            run = start(cluster, "stormy")
            # All its steps are repeated below: not more than it takes.
            for proxy in at.proxies:
                proxy.pause_s = 0.1
            with Memory(cluster.processes) as memory:
                for part in parts:
                    PARTS[part](Storm(cluster, run, memory), at, run)
            logs = cluster.cli("logs", run).stdout
            assert "\x1b" not in logs, "a forged line steers the terminal"
            assert "forged" not in logs, "a worker logs into a run that it has no part in"
            check_logs(cluster, token, calls_were_refused="insiders" in parts)
            stormy = cluster.end(run)
            for name, mb in memory.growth().items():
                print(f"{name}: {memory.begin[name]:.1f} MB, grew by {mb:.1f} MB", flush=True)
                assert mb < LIMIT_MB, f"{name} grew by {mb:.1f} MB"
            compare(cluster, at, stormy)
            if "links" in parts:
                flip_a_bit(cluster, at.proxies)
            for name, process in cluster.processes.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}"
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
