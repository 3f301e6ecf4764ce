"""Who reaches whom: a worker behind published ports only, beside one with an address of its own.

    public                gateway                     private
    coordinator, a  ---  10.88.1.2 | 10.88.2.1  ---  b (10.88.2.2)
    10.88.1.1            passes on two ports, routes nothing

usage: reach_test.py BIN_DIR
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import DEADLINE_S, RUN, NONE, text_for_training, wait_for  # noqa: E402
from requirements import without_root

FORWARD = pathlib.Path(__file__).resolve().parent / "forward.py"
PUBLIC, GATEWAY, INSIDE, PRIVATE = "10.88.1.1", "10.88.1.2", "10.88.2.1", "10.88.2.2"
COORDINATOR, PUBLISHED, UNPUBLISHED = 7070, 7100, 7999
STEPS = 20


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def chain_of_namespaces(*names):
    tag = f"lhr{os.getpid() % 100000}"
    full = [f"{tag}{name}" for name in names]
    try:
        for name in full:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for i, addresses in enumerate([(PUBLIC, GATEWAY), (INSIDE, PRIVATE)]):
            devices = f"{tag}a{i}", f"{tag}b{i}"
            ip("link", "add", devices[0], "type", "veth", "peer", "name", devices[1])
            for name, device, address in zip(full[i:], devices, addresses):
                ip("link", "set", device, "netns", name)
                ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
        yield full
    finally:
        for name in full:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Processes:
    """In namespaces; ended, and their output shown where the `with` ends badly."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for name in list(self.running):
            self.end(name)
        if kind is not None:
            for log in sorted(self.folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)

    def start(self, name, namespace, *command):
        with open(self.folder / f"{name}.log", "a", encoding="utf-8") as log:
            self.running[name] = subprocess.Popen(["ip", "netns", "exec", namespace, *command],
                                                  stdout=log, stderr=log)

    def end(self, name):
        process = self.running.pop(name)
        process.terminate()
        process.wait(timeout=DEADLINE_S)

    def said(self, name):
        return (self.folder / f"{name}.log").read_text()


class TwoSides:
    def __init__(self, programs, folder, processes, namespaces):
        self.programs, self.folder, self.processes = programs, folder, processes
        self.public, gateway, self.private = namespaces
        self.token = folder / "token"
        os.environ["LONGHAUL_HOME"] = str(folder / "home")
        processes.start("gateway", gateway, sys.executable, FORWARD,
                        f"{INSIDE}:{COORDINATOR}={PUBLIC}:{COORDINATOR}",
                        f"{GATEWAY}:{PUBLISHED}={PRIVATE}:{PUBLISHED}")
        wait_for("the gateway", lambda: "ready" in processes.said("gateway"))
        processes.start("coordinator", self.public, programs / "longhaul-coordinator", "--listen",
                        f"{PUBLIC}:{COORDINATOR}", "--state-dir", folder / "coordinator",
                        "--token-file", self.token)
        wait_for("the coordinator", lambda: "listening" in processes.said("coordinator"))

    def start_worker(self, name, namespace, coordinator, *flags):
        self.processes.start(name, namespace, self.programs / "longhaul-worker", "--name", name,
                             "--coordinator", f"{coordinator}:{COORDINATOR}", "--token-file",
                             self.token, "--state-dir", self.folder / name, *flags)

    def start_b(self, port):
        self.start_worker("b", self.private, INSIDE, "--tcp-address", f"0.0.0.0:{PUBLISHED}",
                          "--advertise", f"{GATEWAY}:{port}")

    def cli(self, *arguments, check=True):
        done = subprocess.run(["ip", "netns", "exec", self.public, self.programs / "longhaul",
                               *arguments, "--coordinator", f"{PUBLIC}:{COORDINATOR}",
                               "--token-file", self.token], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False, cwd=self.folder)
        if check and done.returncode != 0:
            raise AssertionError(f"longhaul {arguments}: {done.returncode}\n{done.stderr}")
        return done

    def worker(self, name):
        workers = json.loads(self.cli("workers", "--json").stdout).get("workers", [])
        return next((w for w in workers if w["name"] == name and w.get("connected")), None)

    def cannot_talk(self):
        """The transports over which a cannot talk to b."""
        worker = self.worker("a")
        return sorted(one["transport"] for one in (worker or {}).get("cannot_talk_to", []))

    def run_file(self, name, transport):
        path = self.folder / f"{name}.yaml"
        path.write_text(RUN.format(name=name, steps=STEPS, stages=2, schedule="link-aware",
                                   links=NONE, transport=transport))
        return path

    def expect_refused(self, name, transport, *sentences):
        for command in ("submit", "plan"):
            done = self.cli(command, self.run_file(name, transport), check=False)
            for sentence in sentences:
                if done.returncode != 1 or sentence not in done.stderr:
                    raise AssertionError(f"{command}: exit {done.returncode}, {done.stderr!r}")
            print(f"ok: {command}: {done.stderr.strip()}", flush=True)

    def expect_event(self, sentence):
        said = wait_for(f"event '{sentence}'", lambda: next(
            (line for line in self.cli("events").stdout.splitlines() if sentence in line), None))
        print(f"ok: {said}", flush=True)


def behind_a_published_port(sides):
    sides.start_worker("a", sides.public, PUBLIC)  # which needs nothing else
    sides.start_b(PUBLISHED)
    wait_for("what cannot talk", lambda: sides.cannot_talk() == ["grpc", "ucx"])
    addresses = [one["addresses"][0].rsplit(":", 1)[0] for one in sides.worker("a")["endpoints"]
                 if one.get("addresses")]
    if addresses != [PUBLIC, PUBLIC, PUBLIC]:
        raise AssertionError(f"worker a says that it is reached at {addresses}")
    sides.expect_event("workers a and b cannot talk over ucx: ")
    if "not b (grpc), b (ucx)" not in sides.cli("workers").stdout:
        raise AssertionError(sides.cli("workers").stdout)
    sides.expect_refused("refused", "ucx", "workers a and b are neighbours, and cannot talk over ucx",
                         "Nothing is known against tcp between them: set `transport: tcp` in the run file")
    run = sides.cli("submit", sides.run_file("trained", "auto"), "--watch").stdout.split()[0]
    status = json.loads(sides.cli("status", run, "--json").stdout)
    if status["state"] != "done" or int(status["step"]) != STEPS:
        raise AssertionError(f"{status['state']}: {status.get('reason')}")
    print(f"ok: {STEPS} steps over tcp, through a published port", flush=True)


def at_an_address_that_nobody_reaches(sides):
    sides.processes.end("b")
    sides.start_b(UNPUBLISHED)
    wait_for("what cannot talk", lambda: sides.cannot_talk() == ["grpc", "tcp", "ucx"])
    sides.expect_event(f"nobody reaches worker b at {GATEWAY}:{UNPUBLISHED} (tcp), tried from a: ")
    sides.expect_refused("lost", "tcp", "workers a and b are neighbours, and cannot talk over tcp",
                         f"a does not reach b at {GATEWAY}:{UNPUBLISHED}", "--advertise host:port")


def main():
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as name, \
            chain_of_namespaces("pub", "gate", "priv") as namespaces:
        folder = pathlib.Path(name)
        text_for_training(folder)
        with Processes(folder) as processes:
            sides = TwoSides(pathlib.Path(sys.argv[1]).resolve(), folder, processes, namespaces)
            behind_a_published_port(sides)
            at_an_address_that_nobody_reaches(sides)
    return 0


if __name__ == "__main__":
    sys.exit(main())
