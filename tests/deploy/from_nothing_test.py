"""deploy/setup.sh and deploy/quickstart.sh on a Debian 12 that has nothing: made by debootstrap, with a copy of this
checkout's files and nothing that was built or fetched.

usage: from_nothing_test.py SOURCE_DIR BUILD_DIR setup|quickstart

setup: brings everything, and a second time finds everything, without a network. quickstart: sets up, builds the programs
and trains. Seconds are printed and added to BUILD_DIR/from_nothing.csv. Needs root, debootstrap, the distribution's archive
and PyPI; skipped where one of them is missing.
"""
import contextlib
import csv
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE, BUILD, CASE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
sys.path.insert(0, str(SOURCE / "tests/support"))
from requirements import SKIPPED, rootless  # noqa: E402

ARCHIVE = "http://deb.debian.org/debian"
HOME = "/opt/longhaul"  # of the checkout, in the system
LEFT_OUT = {".git", ".deps", ".ci", "build", "out"}
# How this machine reaches registries, and whom it trusts there.
CARRIED = re.compile(r"(http|https|no|ftp)_proxy|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|CERT|DEFAULT_TIMEOUT)", re.I)
CARRIED_FILES = ("etc/resolv.conf", "etc/pip.conf", "usr/local/share/ca-certificates", "etc/ssl/certs/ca-certificates.crt")
UNREACHED = re.compile(r"Temporary failure|Could not resolve|Failed to fetch|Connection (refused|timed out)|Network is "
                       r"unreachable|No matching distribution|Max retries", re.I)


class Skipped(Exception):
    """What this machine lacks."""


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def copy_checkout(to):
    """Files that git knows or would add; without git all but what is built and fetched."""
    listed = subprocess.run(["git", "-c", f"safe.directory={SOURCE}", "-C", SOURCE, "ls-files", "-z", "--cached", "--others",
                             "--exclude-standard"], capture_output=True, check=False)
    if listed.returncode != 0:
        shutil.copytree(SOURCE, to, symlinks=True, ignore=lambda folder, names: LEFT_OUT & set(names)
                        if pathlib.Path(folder) == SOURCE else set())
        return
    for name in listed.stdout.decode().split("\0"):
        source = SOURCE / name
        if name and source.is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to / name)


class System:
    """A Debian in a folder. Commands have mounts and processes of their own, which go with them."""

    def __init__(self, root):
        self.root = root
        made = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root, ARCHIVE], capture_output=True, text=True,
                              check=False)
        if made.returncode != 0:
            raise Skipped(f"debootstrap could not make Debian 12: {made.stdout.strip().splitlines()[-1:]}")
        for name in CARRIED_FILES:
            if pathlib.Path("/", name).is_dir():
                shutil.copytree(f"/{name}", root / name, dirs_exist_ok=True)
            elif pathlib.Path("/", name).exists():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(f"/{name}", root / name)
        copy_checkout(root / HOME.lstrip("/"))

    def run(self, command, network=True):
        """(exit code, what it printed, seconds)"""
        # The root is a mount of its own, or no mount namespace can be made inside.
        mounts = "; ".join([f"mount --bind {self.root} {self.root}", f"mount -t proc proc {self.root}/proc", f"mount --rbind /dev {self.root}/dev",
                            f"mount --rbind /sys {self.root}/sys", f"mount -t tmpfs tmpfs {self.root}/run"])
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"]), "sh", "-ec",
                 f"{mounts}; exec chroot {self.root} sh -c 'cd {HOME} && exec {command}'"]
        environment = {key: value for key, value in os.environ.items() if CARRIED.fullmatch(key)}
        began = time.monotonic()
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              env={**environment, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                   "HOME": "/root"}) as child:
            said = []
            for line in child.stdout:
                said.append(line)
                print(line, end="", flush=True)
        return child.returncode, "".join(said), time.monotonic() - began


def expect_done(what, code, said):
    if code != 0 and UNREACHED.search(said):
        raise Skipped(f"{what} did not reach the distribution's archive or PyPI")
    check(code == 0, what, "ended with", code)


def record(case, **seconds):
    path = BUILD / "from_nothing.csv"
    commit = subprocess.run(["git", "-c", f"safe.directory={SOURCE}", "-C", SOURCE, "describe", "--always", "--dirty"],
                            capture_output=True, text=True, check=False).stdout.strip()
    new = not path.exists()
    with open(path, "a", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        if new:
            rows.writerow(["date", "commit", "cores", "case", "part", "seconds"])
        for part, value in seconds.items():
            rows.writerow([datetime.date.today(), commit, os.cpu_count(), case, part, f"{value:.0f}"])
    print(f"{case}: " + ", ".join(f"{part} {value:.0f} s" for part, value in seconds.items()), flush=True)


def setup(system):
    code, said, first = system.run("deploy/setup.sh")
    expect_done("deploy/setup.sh", code, said)
    check("setup: ready to build." in said, "deploy/setup.sh did not say that all is ready")
    code, said, again = system.run("deploy/setup.sh", network=False)
    check(code == 0 and "are installed." in said and "is in .deps/." in said, "a second deploy/setup.sh ended with", code)
    check(again < first / 3, f"the second time took {again:.0f} s, the first {first:.0f} s")
    record("setup", first=first, again=again)


def quickstart(system):
    code, said, seconds = system.run("deploy/quickstart.sh")
    expect_done("deploy/quickstart.sh", code, said)
    times = re.search(r"Time: set-up (\d+) s, build (\d+) s, runs (\d+) s", said)
    check(times, "deploy/quickstart.sh did not say what it took")
    check((system.root / HOME.lstrip("/") / "out/quickstart/report.txt").exists(), "there is no report")
    record("quickstart", whole=seconds, **dict(zip(("setup", "build", "runs"), map(float, times.groups()))))


@contextlib.contextmanager
def fresh_system():
    if os.geteuid() != 0:
        raise rootless("debootstrap, chroot and network namespaces need root", Skipped)
    if shutil.which("debootstrap") is None:
        raise Skipped("debootstrap is not installed")
    # Not in /tmp, which may be memory: LibTorch and a build take gigabytes.
    with tempfile.TemporaryDirectory(prefix="longhaul-nothing-", dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        yield System(pathlib.Path(folder) / "root")


def main():
    with fresh_system() as system:
        {"setup": setup, "quickstart": quickstart}[CASE](system)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skipped as why:
        print(f"skipped: {why}")
        sys.exit(SKIPPED)
