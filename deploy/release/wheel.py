"""Makes a Python wheel of an unpacked bundle: its programs as commands, and the packages of python/.

usage: wheel.py --bundle DIR --out DIR

The same bundle gives the same bytes. Nothing is fetched and nothing is built.
"""
import argparse
import base64
import hashlib
import json
import pathlib
import re
import sys
import time
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# glibc of Ubuntu 22.04, whose libstdc++ is the oldest with what bundles ask for.
TAG = "py3-none-manylinux_2_35_x86_64"
COMMANDS = ["longhaul", "longhaul-coordinator", "longhaul-worker", "longhaul-codec", "longhaul-generate", "longhaul-install"]
OPERATORS = "lib/liblonghaul_torch_ops.so"
ABOUT = """Train and fine-tune language models on GPUs joined by ordinary internet.

`longhaul --help` has the commands. Workers need torch: `pip install 'longhaul[worker]'`, or `longhaul-install`, which
fetches its CPU part alone where there is no GPU. `longhaul data` needs `longhaul[data]`.
"""


class Failed(Exception):
    """A sentence for people."""


def metadata(version, torch):
    requirements = [line.split("#")[0].strip() for line in (SOURCE / "deploy/data/requirements.txt").read_text().splitlines()]
    lines = ["Metadata-Version: 2.4", "Name: longhaul", f"Version: {version}",
             "Summary: Train and fine-tune language models on GPUs joined by ordinary internet",
             "License-Expression: Apache-2.0", "License-File: LICENSE", "License-File: NOTICE",
             "License-File: THIRD_PARTY_NOTICES", "Requires-Python: >=3.10", "Description-Content-Type: text/markdown",
             "Classifier: Operating System :: POSIX :: Linux", "Provides-Extra: worker",
             f"Requires-Dist: torch=={torch}.*; extra == 'worker'", "Provides-Extra: data",
             *(f"Requires-Dist: {name}; extra == 'data'" for name in requirements if name)]
    return "\n".join(lines) + "\n\n" + ABOUT


def packages():
    """[(path in the wheel, file)] of the Python packages of this repository."""
    folders = [path for path in sorted((SOURCE / "python").glob("longhaul*")) if (path / "__init__.py").exists()]
    folders.append(SOURCE / "deploy/release/longhaul_programs")
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix in (".py", ".pyi", ".typed"):
                yield f"{folder.name}/{path.relative_to(folder)}", path


class Wheel:
    def __init__(self, path, epoch):
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.time = time.gmtime(max(epoch, 315532800))[:6]  # zip begins in 1980
        self.records = []

    def add(self, name, data, executable=False):
        info = zipfile.ZipInfo(name, self.time)
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}\n")

    def close(self, record):
        self.archive.writestr(zipfile.ZipInfo(record, self.time), "".join(self.records) + f"{record},,\n")
        self.archive.close()


def make(bundle, out, epoch):
    manifest = json.loads((bundle / "MANIFEST.json").read_text())
    version = manifest["version"]
    if not re.fullmatch(r"\d+(\.\d+)*([ab]|rc)?\d*", version):
        raise Failed(f"expected a version as Python's packages have it, got {version}")
    if not (bundle / OPERATORS).exists():
        raise Failed(f"the bundle has no {OPERATORS}, which longhaul_codecs loads; build it first: cmake --build --preset "
                     "release --target torch_ops")
    path = out / f"longhaul-{version}-{TAG}.whl"
    wheel, info = Wheel(path, epoch), f"longhaul-{version}.dist-info"
    for name, file in packages():
        wheel.add(name, file.read_bytes())
    for file in sorted(bundle.rglob("*")):
        if file.is_file():
            wheel.add(f"longhaul_programs/bundle/{file.relative_to(bundle)}", file.read_bytes(),
                      bool(file.stat().st_mode & 0o100))
    wheel.add(f"{info}/METADATA", metadata(version, manifest["torch"]).encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: longhaul\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode())
    entries = "".join(f"{command} = longhaul_programs:main\n" for command in COMMANDS)
    wheel.add(f"{info}/entry_points.txt", f"[console_scripts]\n{entries}".encode())
    for name in ("LICENSE", "NOTICE", "THIRD_PARTY_NOTICES"):
        wheel.add(f"{info}/licenses/{name}", (bundle / name).read_bytes())
    wheel.add(f"{info}/sboms/longhaul.cdx.json", (bundle / "sbom.cdx.json").read_bytes())
    wheel.close(f"{info}/RECORD")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    arguments = parser.parse_args()
    print(make(arguments.bundle, arguments.out, arguments.epoch))


if __name__ == "__main__":
    try:
        main()
    except Failed as problem:
        sys.exit(f"wheel: {problem}")
