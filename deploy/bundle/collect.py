"""From installed programs to a portable bundle: brings the shared libraries that they need, UCX's
modules, ip and tc, pip's wheel, licences, a manifest and checksums, and packs all that.

Not carried: the C and C++ run-time libraries (their versions are checked instead), NVIDIA's driver,
and LibTorch, which `install` finds or fetches.
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import notices

HERE = pathlib.Path(__file__).resolve().parent

# Libraries that every system has: glibc's, and libstdc++ and libgcc, which are newer there than here.
SYSTEM = re.compile(r"^(ld-linux|linux-vdso|libc\.so|libm\.so|libdl\.so|librt\.so|libpthread\.so|"
                    r"libresolv\.so|libutil\.so|libanl\.so|libstdc\+\+\.so|libgcc_s\.so)")
# LibTorch and what only it needs.
TORCH = re.compile(r"^(libtorch|libc10|libcudart|libcupti|libgomp)")
# The newest versions that may be asked for: those of Ubuntu 22.04.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}

UCX_MODULES = ["libuct_cma.so.0"]  # the others need hardware libraries
TOOLS = ["ip", "tc"]
SCRIPTS = {"with_torch": ["bin/longhaul-worker", "bin/longhaul-generate"], "install": ["install"],
           "system.sh": ["share/system.sh"], "../recipes/spot_notice.py": ["share/spot_notice.py"]}
UNITS = ["longhaul-coordinator.service", "longhaul-spot.service", "longhaul-witness.service", "longhaul-worker.service",
         "longhaul-worker@.service"]


class Failed(Exception):
    """A sentence for people."""


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def is_elf(path):
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def needed(path):
    """{name: path} of the libraries that are to be carried for the program or library `path`."""
    libraries = {}
    for line in call("ldd", str(path)).splitlines():
        words = line.split()
        if len(words) < 3 or words[1] != "=>":
            continue
        name, target = words[0], words[2]
        if SYSTEM.match(name) or TORCH.match(name):
            continue
        if target == "not":
            raise Failed(f"{path} needs {name}, which this machine does not have")
        libraries[name] = pathlib.Path(target).resolve()
    return libraries


def versions_needed(path):
    """{'GLIBC': (2, 34), ...}: the newest symbol versions that `path` asks for."""
    newest = {}
    for base, numbers in re.findall(r"Name: ([A-Z]+)_([0-9.]+) ", call("readelf", "-W", "-V", path)):
        version = tuple(int(number) for number in numbers.split("."))
        newest[base] = max(newest.get(base, (0,)), version)
    return newest


def package_of(path):
    """(name, version) of the package that `path` is from."""
    for candidate in (path, pathlib.Path("/usr") / path.relative_to("/"),
                      pathlib.Path(str(path).removeprefix("/usr"))):
        done = subprocess.run(["dpkg-query", "-S", str(candidate)], capture_output=True, text=True,
                              check=False)
        if done.returncode == 0:
            name = done.stdout.split(": ")[0].split(",")[0].strip()
            return name, call("dpkg-query", "-W", "-f=${Version}", name)
    raise Failed(f"{path} is of no package of this system, so its licence is not known")


class Bundle:
    def __init__(self, tree):
        self.tree = tree
        self.packages = {}  # name: {version, files}
        self.compiled_with = []  # names

    def carry(self, source, to, mode=0o755):
        target = self.tree / to
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(mode)
        name, version = package_of(source)
        entry = self.packages.setdefault(name, {"version": version, "files": []})
        entry["files"].append(to)

    def carry_libraries(self):
        libraries = {}
        for path in filter(is_elf, self.files()):
            libraries.update(needed(path))
        modules = pathlib.Path("/usr/lib/x86_64-linux-gnu/ucx")
        for module in UCX_MODULES:
            libraries.update(needed(modules / module))
            self.carry((modules / module).resolve(), f"lib/ucx/{module}")
        for tool in TOOLS:
            path = shutil.which(tool, path="/usr/sbin:/sbin:/usr/bin:/bin")
            if path is None:
                raise Failed(f"{tool} is not installed; `deploy/setup.sh` brings it")
            libraries.update(needed(pathlib.Path(path)))
            self.carry(pathlib.Path(path).resolve(), f"libexec/tools/{tool}.elf")
            shutil.copyfile(HERE / "tool", self.tree / "libexec/tools" / tool)
            (self.tree / "libexec/tools" / tool).chmod(0o755)
        for name, path in sorted(libraries.items()):
            self.carry(path, f"lib/{name}", mode=0o644)

    def carry_pip(self):
        wheels = sorted(pathlib.Path("/usr/share/python-wheels").glob("pip-*.whl"))
        if not wheels:
            raise Failed("there is no pip wheel in /usr/share/python-wheels; install python3-venv")
        self.carry(wheels[-1], "share/pip.whl", mode=0o644)

    def carry_licences(self, build, name, version):
        """Texts, a page that names all of them, and an inventory."""
        compiled = notices.compiled_with(build, notices.targets_of(build))
        self.compiled_with = notices.write(self.tree, name, version, self.packages, compiled)

    def check_versions(self):
        """No file asks for more than the oldest system has."""
        newest = {}
        for path in self.files():
            if not is_elf(path):
                continue
            for base, version in versions_needed(path).items():
                if base in NEWEST and version > NEWEST[base]:
                    raise Failed(f"{path.relative_to(self.tree)} needs {base}_"
                                 f"{'.'.join(map(str, version))}, and the bundle promises "
                                 f"{'.'.join(map(str, NEWEST[base]))}; build on an older system")
                if base in NEWEST:
                    newest[base] = max(newest.get(base, (0,)), version)
        return {base: ".".join(map(str, version)) for base, version in sorted(newest.items())}

    def files(self):
        return sorted(path for path in self.tree.rglob("*") if path.is_file())

    def write_manifest(self, name, version):
        manifest = {"name": name, "version": version, "needs": self.check_versions(),
                    "torch": "2.11", "packages": dict(sorted(self.packages.items())),
                    "compiled_with": sorted(self.compiled_with)}
        (self.tree / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n")
        sums = "".join(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(self.tree)}\n"
            for path in self.files())
        (self.tree / "SHA256SUMS").write_text(sums)

    def pack(self, name, epoch, out):
        def plain(info):
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = epoch
            info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            return info

        with out.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=epoch) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            archive.add(self.tree, name, recursive=False, filter=plain)
            for path in sorted(self.tree.rglob("*")):
                archive.add(path, f"{name}/{path.relative_to(self.tree)}", recursive=False,
                            filter=plain)
        digest = hashlib.sha256(out.read_bytes()).hexdigest()
        pathlib.Path(f"{out}.sha256").write_text(f"{digest}  {out.name}\n")
        return digest


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--tree", type=pathlib.Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    bundle = Bundle(arguments.tree)
    bundle.carry_libraries()
    for script, places in SCRIPTS.items():
        for to in places:
            target = arguments.tree / to
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(HERE / script, target)
            target.chmod(0o755)
    for unit in UNITS:
        target = arguments.tree / "share/systemd" / unit
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(HERE / "systemd" / unit, target)
        target.chmod(0o644)
    bundle.carry_pip()
    bundle.carry_licences(arguments.build, arguments.name, arguments.version)
    bundle.write_manifest(arguments.name, arguments.version)
    digest = bundle.pack(arguments.name, arguments.epoch, arguments.out)
    size = sum(path.stat().st_size for path in bundle.files())
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.1f} MB, {size / 1e6:.1f} MB "
          f"unpacked, {len(bundle.files())} files, SHA-256 {digest[:16]}...")


if __name__ == "__main__":
    try:
        main()
    except (Failed, notices.Unknown) as problem:
        sys.exit(f"bundle: {problem}")
