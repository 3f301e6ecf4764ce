"""The files of a release: checksums, an inventory, a Debian package with units that fit it, and a wheel that an empty virtual
environment takes: its programs train without root. Where root and debootstrap are, also in fresh systems with nothing but
Python: Debian 12 and 13. Ubuntu's archive is not asked.

usage: release_test.py SOURCE_DIR BUILD_DIR TORCH_LIB_DIR [SYSTEMS_DIR]

SYSTEMS_DIR keeps the systems (bookworm, trixie); otherwise they are made anew.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE, BUILD, TORCH = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
SKIPPED = 77
DEADLINE_S = 120
RUN = """
name: released
model: { family: gpt, layers: 2, hidden: 32, heads: 2, context: 32 }
data: { text: ["TEXT"] }
train: { steps: 6, microbatches: 2, microbatch_size: 1 }
pipeline: { stages: 2 }
"""


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def call(*command, check_code=True, timeout=DEADLINE_S, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=timeout,
                          **options)
    if check_code and done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done


def make(out):
    done = call(SOURCE / "deploy/release.sh", "--build-dir", BUILD, "--out", out, check_code=False, timeout=900)
    if "build the target torch_ops" in done.stderr or "build on an older system" in done.stderr:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(SKIPPED)
    check(done.returncode == 0, "release.sh ended with", done.returncode, done.stdout, done.stderr)
    print(done.stdout, end="", flush=True)
    return re.match(r"longhaul (\S+),", done.stdout).group(1)


def check_sums(out):
    listed = dict(reversed(line.split("  ")) for line in (out / "SHA256SUMS").read_text().splitlines())
    files = {path.name for path in out.iterdir()} - {"SHA256SUMS"}
    check(set(listed) == files and len(files) == 5, "SHA256SUMS has", sorted(listed), "of", sorted(files))
    for name, digest in listed.items():
        check(hashlib.sha256((out / name).read_bytes()).hexdigest() == digest, "the checksum of", name)


def check_inventory(out, version):
    inventory = json.loads((out / f"longhaul-{version}.cdx.json").read_text())
    check(inventory["bomFormat"] == "CycloneDX" and inventory["specVersion"] == "1.5", "the inventory's format")
    check(inventory["metadata"]["component"]["version"] == version, "the inventory's version")
    names = [part["bom-ref"] for part in inventory["components"]]
    check(len(names) == len(set(names)) > 50, "components", len(names))
    check(all(re.match(r"pkg:(deb/debian|pypi|generic)/[^@]+@[^@ ]+$", part["purl"]) for part in inventory["components"]),
          "addresses of packages")


def check_package(out, folder, version):
    package = out / f"longhaul_{version}_amd64.deb"
    fields = call("dpkg-deb", "--field", package).stdout
    check(f"Version: {version}\n" in fields and "Depends: libc6 (>= 2.34)" in fields, fields)
    root = folder / "deb"
    call("dpkg-deb", "--extract", package, root)
    listing = call("dpkg-deb", "--contents", package).stdout
    check(all(line.split()[1] == "root/root" for line in listing.splitlines()), "not all files are root's")
    said = call(root / "usr/bin/longhaul", "--version").stdout
    check(said == f"longhaul {version}\n", said)
    units = sorted((root / "usr/lib/systemd/system").iterdir())
    check(len(units) >= 3, units)
    for unit in units:
        text = unit.read_text()
        check(not re.search("@[A-Z]+@", text), unit.name, "has places that nobody filled in")
        program = re.search(r"^ExecStart=(?:/usr/bin/env python3 )?(\S+)", text, re.MULTILINE).group(1)
        check(os.access(root / program[1:], os.X_OK), unit.name, "starts", program, "which the package lacks")
    for line in call("dpkg-deb", "--info", package, "conffiles").stdout.splitlines():
        check((root / line[1:]).exists(), line)
    print("ok: the Debian package", flush=True)


def wait_for(what, condition):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


def trains(programs, folder):
    """A coordinator and two workers of the wheel; an ordinary user where this one is root."""
    as_user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []
    state = folder / "state"
    state.mkdir()
    state.chmod(0o777)
    (state / "text").write_text((SOURCE / "LICENSE").read_text())
    (state / "run.yaml").write_text(RUN.replace("TEXT", str(state / "text")))
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(state), "LONGHAUL_TORCH": str(TORCH.parent)}
    logs, processes = [], []

    def start(*command):
        logs.append(folder / f"{len(logs)}.log")
        with logs[-1].open("w") as out:
            processes.append(subprocess.Popen([*as_user, *command], env=environment, cwd=state, stdout=out,
                                              stderr=subprocess.STDOUT))

    try:
        start("longhaul-coordinator", "--listen", "127.0.0.1:0", "--state-dir", "coordinator")
        address = wait_for("the coordinator", lambda: (state / "coordinator/address").exists() and
                           (state / "coordinator/address").read_text().strip())
        environment |= {"LONGHAUL_COORDINATOR": address, "LONGHAUL_TOKEN_FILE": str(state / "coordinator/token")}
        for name in ("a", "b"):
            start("longhaul-worker", "--coordinator", address, "--token-file", "coordinator/token", "--state-dir", name,
                  "--name", name)

        def cli(*words):
            return call(*as_user, "longhaul", *words, env=environment, cwd=state, check_code=False)

        wait_for("two workers", lambda: cli("workers").stdout.count("free") == 2)
        done = cli("submit", "run.yaml", "--watch")
        check(done.returncode == 0 and "done step 6/6" in done.stdout, done.stdout, done.stderr)
    except BaseException:
        print("\n".join(f"--- {path}\n{path.read_text()[-2000:]}" for path in logs))
        raise
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(DEADLINE_S)


def check_wheel(out, folder, version):
    wheel = next(out.glob("*.whl"))
    folder = folder / "wheel"
    folder.mkdir()
    for path in (folder, *folder.parents[:2]):
        path.chmod(path.stat().st_mode | 0o055)  # an ordinary user goes through it
    begin = time.monotonic()
    call(sys.executable, "-m", "venv", folder / "venv", timeout=300)
    programs = folder / "venv/bin"
    call(programs / "pip", "install", "--no-index", "--disable-pip-version-check", wheel, timeout=600)
    said = call(programs / "longhaul", "--version").stdout
    check(said == f"longhaul {version}\n", said)
    for name in ("longhaul-coordinator", "longhaul-codec"):
        check(version in call(programs / name, "--version").stdout, name)
    found = call(programs / "python", "-c", "import longhaul, longhaul.program; print(longhaul.program.find())").stdout
    check(found.endswith("/longhaul_programs/bundle/bin/longhaul\n"), found)
    done = call(programs / "longhaul-worker", "--version", check_code=False, env={"PATH": "/usr/bin:/bin"})
    check(done.returncode == 0 or "expected torch 2.11" in done.stderr, done.stdout, done.stderr)
    said = call(programs / "longhaul-install", env={"PATH": "/usr/bin:/bin", "LONGHAUL_TORCH": str(TORCH.parent)}).stdout
    check("ready" in said, said)
    trains(programs, folder)
    print(f"ok: the wheel in an empty environment, to the end of a run: {time.monotonic() - begin:.0f} s", flush=True)
    operators(programs)
    call(programs / "pip", "uninstall", "--yes", "--disable-pip-version-check", "longhaul")
    left = [path for path in folder.glob("venv/lib/*/site-packages/longhaul*")]
    check(not left, "uninstalling left", left)


def operators(programs):
    """longhaul_codecs of the wheel, in a Python that has torch."""
    site = next(programs.parent.glob("lib/python*/site-packages"))
    code = ("import sys; sys.path.append(sys.argv[1]); import torch, longhaul_codecs\n"
            "x = torch.randn(1, 64, 128); b = torch.ops.longhaul.encode(x, 'tah'); print(b.numel() < x.numel())")
    for python in filter(None, (os.environ.get("LONGHAUL_TORCH_PYTHON"), str(SOURCE / ".deps/venv/bin/python"))):
        if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            check(call(python, "-c", code, site).stdout == "True\n", "longhaul_codecs of the wheel")
            print("ok: the wheel's operators of PyTorch", flush=True)
            return
    print("not tried: the wheel's operators, because no Python here imports torch", flush=True)


def check_systems(out, folder, version, kept):
    """The package and the wheel in fresh systems."""
    check(os.geteuid() == 0 or not os.environ.get("LONGHAUL_REQUIRE_ROOT"), "LONGHAUL_REQUIRE_ROOT is set, but fresh systems need root")
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("not tried: fresh systems, which need root and debootstrap")
        return
    for suite in ("bookworm", "trixie"):
        root = (kept or folder) / suite
        if not (root / "usr/bin/python3").exists():
            made = call("debootstrap", "--variant=minbase", "--include=python3,python3-venv", suite, root,
                        "http://deb.debian.org/debian", check_code=False, timeout=1500)
            if made.returncode != 0:
                print(f"not tried: Debian {suite}, which debootstrap could not make: {made.stdout.strip()[-200:]}")
                continue
        for path in out.iterdir():
            shutil.copy(path, root / "root")

        call("mount", "--bind", "/proc", root / "proc")  # programs find their libraries by /proc/self/exe
        try:
            in_system(root, suite, out, version)
        finally:
            call("umount", root / "proc")


def in_system(root, suite, out, version):
    def inside(*command):
        return call("chroot", root, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", *command, timeout=600)

    begin = time.monotonic()
    inside("dpkg", "-i", f"/root/longhaul_{version}_amd64.deb")
    check(inside("longhaul", "--version").stdout == f"longhaul {version}\n", suite, "the package")
    inside("dpkg", "--purge", "longhaul")
    check(not (root / "usr/lib/longhaul").exists(), suite, "purging left /usr/lib/longhaul")
    inside("rm", "-rf", "/root/venv")
    inside("python3", "-m", "venv", "/root/venv")
    inside("/root/venv/bin/pip", "install", "--no-index", f"/root/{next(out.glob('*.whl')).name}")
    check(inside("/root/venv/bin/longhaul", "--version").stdout == f"longhaul {version}\n", suite, "the wheel")
    inside("/root/venv/bin/longhaul-codec", "errors", "--summary", "--codec", "gauss")
    print(f"ok: the package and the wheel in a fresh Debian {suite}, {time.monotonic() - begin:.0f} s", flush=True)


def main():
    kept = pathlib.Path(sys.argv[4]).resolve() if len(sys.argv) > 4 else None
    if shutil.which("dpkg-deb") is None:
        print("skipped: dpkg-deb is not here")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as name:
        folder = pathlib.Path(name).resolve()
        out = folder / "release"
        version = make(out)
        check_sums(out)
        check_inventory(out, version)
        check_package(out, folder, version)
        check_wheel(out, folder, version)
        check_systems(out, folder, version, kept)
    print("ok")
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
