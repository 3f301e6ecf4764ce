"""The portable bundle on two systems that have nothing installed but Python, Debian 12 and 13, each in a network
namespace of its own: unpacked, connected, and the quickstart's training between them.

usage: two_systems_test.py SOURCE_DIR BUILD_DIR TORCH_LIB_DIR [SYSTEMS_DIR]

SYSTEMS_DIR keeps the systems (bookworm, trixie), which debootstrap makes in minutes; otherwise they are made anew.
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE, BUILD, TORCH = (pathlib.Path(word) for word in sys.argv[1:4])
sys.path.insert(0, str(SOURCE / "tests/multiprocess/training"))
from training_test import DEADLINE_S, wait_for  # noqa: E402
from requirements import rootless  # noqa: E402

SKIPPED = 77
SYSTEMS = ("bookworm", "trixie")  # Debian 12 and 13
ADDRESSES = ("10.89.9.1", "10.89.9.2")
PORT = 7070
STEPS = 60
LONGEST_CONNECT_S = 10


class Skipped(Exception):
    """What this machine lacks."""


def call(*command, check=True, timeout=DEADLINE_S, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout,
                          check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done


def make_system(suite, folder):
    if (folder / "usr/bin/python3").exists():
        return
    made = call("debootstrap", "--variant=minbase", "--include=python3", suite, folder,
                "http://deb.debian.org/debian", check=False, timeout=900)
    if made.returncode != 0:
        raise Skipped(f"debootstrap could not make Debian {suite}: {made.stdout.strip().splitlines()[-1:]}")


@contextlib.contextmanager
def joined_namespaces():
    tag = f"lhs{os.getpid() % 100000}"
    names = [f"{tag}{end}" for end in "ab"]
    try:
        for name in names:
            call("ip", "netns", "add", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
        call("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for name, address in zip(names, ADDRESSES):
            call("ip", "link", "set", name, "netns", name)
            call("ip", "-n", name, "addr", "add", f"{address}/24", "dev", name)
            call("ip", "-n", name, "link", "set", name, "up")
        yield names
    finally:
        for name in names:
            call("ip", "netns", "del", name, check=False)


class System:
    """One of them, in its namespace. What it runs sees its files and the torch of this machine, mounted."""

    def __init__(self, root, namespace, log):
        self.root, self.namespace, self.log = root, namespace, log
        self.processes = []
        shutil.rmtree(root / "opt", ignore_errors=True)
        (root / "opt/site").mkdir(parents=True)

    def command(self, *words):
        # UCX finds interfaces in /sys.
        mounts = (f"mount -t proc proc {self.root}/proc && mount -t sysfs sysfs {self.root}/sys && mount --rbind /dev {self.root}/dev && "
                  f"mount --bind -o ro {TORCH.parent.parent} {self.root}/opt/site && "
                  f'exec chroot {self.root} "$@"')
        return ["ip", "netns", "exec", self.namespace, "unshare", "--mount", "--propagation", "private",
                "sh", "-c", mounts, "sh", "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "LONGHAUL_TORCH=/opt/site/torch", *(str(word) for word in words)]

    def run(self, *words, check=True):
        return call(*self.command(*words), check=check).stdout

    def start(self, *words):
        with open(self.log, "a", encoding="utf-8") as log:
            self.processes.append(subprocess.Popen(self.command(*words), stdout=log, stderr=log))

    def put(self, source, name):
        shutil.copyfile(source, self.root / "opt" / name)

    def unpack(self):
        """The bundle's folder, in the system."""
        self.run("tar", "-xf", "/opt/bundle.tar.gz", "-C", "/opt")
        return "/" + str(next((self.root / "opt").glob("longhaul-*-x86_64")).relative_to(self.root))

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(DEADLINE_S)


def train(first, second):
    flags = "--token-file", "/opt/token", "--insecure"
    bundle = first.unpack()
    first.start(f"{bundle}/bin/longhaul-coordinator", "--listen", f"{ADDRESSES[0]}:{PORT}", "--state-dir",
                "/opt/coordinator", *flags)
    worker = "--coordinator", f"{ADDRESSES[0]}:{PORT}", *flags, "--state-dir", "/opt/worker"

    def cli(*words, check=True):
        return first.run(f"{bundle}/bin/longhaul", *words, "--coordinator", f"{ADDRESSES[0]}:{PORT}", *flags,
                         check=check)

    wait_for("the coordinator", lambda: (first.root / "opt/coordinator/address").exists())
    first.start(f"{bundle}/bin/longhaul-worker", *worker, "--name", "debian12")

    def names():
        said = cli("workers", "--json", check=False)  # nothing, where a daemon has ended
        return sorted(w["name"] for w in (json.loads(said) if said else {}).get("workers", []))

    wait_for("Debian 12's worker", lambda: names() == ["debian12"])
    begin = time.monotonic()
    there = second.unpack()
    second.run(f"{there}/install")
    second.start(f"{there}/bin/longhaul-worker", *worker, "--name", "debian13")
    wait_for("Debian 13's worker", lambda: names() == ["debian12", "debian13"])
    seconds = time.monotonic() - begin
    print(f"from unpacking to connected: {seconds:.1f} s", flush=True)
    if seconds > LONGEST_CONNECT_S:
        raise AssertionError(f"that is more than {LONGEST_CONNECT_S} s")
    run = cli("submit", "/opt/quickstart.yaml", "--set", "pipeline.stages=2", "--set",
              f"train.steps={STEPS}", "--watch").split()[0]
    status = json.loads(cli("status", run, "--json"))
    rows = [json.loads(line) for line in cli("steps", run, "--json").splitlines()]
    losses = [row["loss"] for row in rows]
    if status["state"] != "done" or len(losses) != STEPS or losses[-1] > 0.9 * losses[0]:
        raise AssertionError(f"{status['state']}: {status.get('reason')}, losses {losses[:1]} to {losses[-1:]}")
    print(f"ok: {STEPS} steps between Debian 12 and 13, loss {losses[0]:.2f} to {losses[-1]:.2f}", flush=True)


def main():
    if os.geteuid() != 0:
        raise rootless("chroots and network namespaces need root", Skipped)
    if shutil.which("debootstrap") is None:
        raise Skipped("debootstrap is not installed")
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as name, joined_namespaces() as namespaces:
        folder = pathlib.Path(name)
        archive = folder / "bundle.tar.gz"
        print(call(SOURCE / "deploy/bundle.sh", "--build-dir", BUILD, "--out", archive).stdout, end="")
        token = folder / "token"
        token.write_text("a-token-for-this-test-alone\n")
        systems = []
        try:
            for suite, namespace in zip(SYSTEMS, namespaces):
                root = (pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else folder) / suite
                make_system(suite, root)
                system = System(root, namespace, folder / f"{suite}.log")
                systems.append(system)
                system.put(archive, "bundle.tar.gz")
                system.put(token, "token")
                (root / "opt/token").chmod(0o600)
                system.put(SOURCE / "deploy/runs/quickstart.yaml", "quickstart.yaml")
            train(*systems)
        except BaseException:
            for system in systems:
                if system.log.exists():
                    print(f"--- {system.log.name}\n{system.log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            for system in systems:
                system.stop()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skipped as why:
        print(f"skipped: {why}")
        sys.exit(SKIPPED)
