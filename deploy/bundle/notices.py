"""Names the software of others in a bundle, with versions and licences: libraries that are carried, and what the
programs were compiled with (headers and static libraries), as the build's own records name it.

Both a page for people (THIRD_PARTY_NOTICES) and an inventory for programs (sbom.cdx.json, CycloneDX 1.5).
"""
import collections
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import uuid

# What every build has of the system's compiler and C library. Their run-time libraries are not carried, and their
# licences make an exception for what is compiled with them.
OF_THE_COMPILER = re.compile(r"^(libc6-dev|libstdc\+\+-\d+-dev|libgcc-\d+-dev|linux-libc-dev|libcrypt-dev)(:|$)")
# Sources of others in this repository: name, version, where the licence is.
IN_SOURCES = [("uPlot", "base/web/uplot", "MIT")]

Owner = collections.namedtuple("Owner", "kind name version texts licence")


class Unknown(Exception):
    """A sentence for people."""


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unknown(f"`{' '.join(map(str, command[:6]))}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def headers_of(build, targets):
    """Files from elsewhere that the compiler read for these targets."""
    inputs = output_of("ninja", "-C", str(build), "-t", "inputs", *targets)
    objects = {line.strip() for line in inputs.splitlines() if re.search(r"\.(o|gch)$", line.strip())}
    source, headers, wanted = str(pathlib.Path.cwd()), set(), False
    for line in output_of("ninja", "-C", str(build), "-t", "deps").splitlines():
        if line and not line.startswith(" "):
            wanted = line.split(":")[0] in objects
        elif wanted and line.strip().startswith("/"):
            path = line.strip()
            if not path.startswith(source + "/") or "/site-packages/" in path:
                headers.add(path)
    if not headers:
        raise Unknown(f"{build} has no record of what its programs were compiled with; build it with Ninja")
    return headers


def debian_owners(paths):
    """{path: package} of those files that packages of this system have."""
    owners = {}
    paths = sorted(paths)
    for first in range(0, len(paths), 500):
        done = subprocess.run(["dpkg-query", "-S", *paths[first:first + 500]], capture_output=True, text=True,
                              check=False)
        for line in done.stdout.splitlines():
            names, _, path = line.partition(": ")
            owners[path] = names.split(",")[0].strip()
    return owners


def licences_of_debian(text):
    """The short names that a copyright file in Debian's format gives, the commonest first; none for other files."""
    if not text.startswith("Format:"):
        return ""
    found = collections.Counter(re.findall(r"^License: *(\S[^\n]*)$", text, re.MULTILINE))
    return ", ".join(name for name, _ in found.most_common(4))


def debian_owner(package):
    version = output_of("dpkg-query", "-W", "-f=${Version}", package)
    text = pathlib.Path("/usr/share/doc") / package.split(":")[0] / "copyright"
    if not text.exists():
        raise Unknown(f"package {package} has no {text}")
    return Owner("deb", package.split(":")[0], version, [text], licences_of_debian(text.read_text(errors="replace")))


def python_owners(paths):
    """{path: folder of the installed package's metadata} of files that pip has installed."""
    owners, records = {}, {}
    for path in sorted(paths):
        for root in pathlib.Path(path).parents:
            folders = root if root.name == "site-packages" else root / "dist-info"
            if root not in records:
                records[root] = [(info, {line.split(",")[0] for line in (info / "RECORD").read_text().splitlines()})
                                 for info in sorted(folders.glob("*.dist-info")) if (info / "RECORD").exists()] \
                    if folders.is_dir() else []
            below = str(pathlib.Path(path).relative_to(root))
            below = re.sub(r"^targets/[^/]*/", "", below)
            for info, files in records[root]:
                if below in files or f"nvidia/cu13/{below}" in files:
                    owners[path] = info
    return owners


def python_owner(info):
    metadata = (info / "METADATA").read_text(errors="replace").split("\n\n")[0]

    def field(name):
        found = re.search(rf"^{name}: *(.*)$", metadata, re.MULTILINE)
        return found.group(1).strip() if found else ""

    texts = sorted(path for path in (info / "licenses").rglob("*") if path.is_file())
    return Owner("pypi", field("Name"), field("Version"), texts, field("License-Expression") or field("License"))


def targets_of(build):
    """What a bundle has of this build."""
    names = ["bin/longhaul", "bin/longhaul-coordinator", "bin/longhaul-worker", "bin/longhaul-codec",
             "bin/longhaul-generate", "lib/liblonghaul_cuda.so", "lib/liblonghaul_torch_cuda.so",
             "lib/liblonghaul_torch_ops.so"]
    return [name for name in names if (build / name).exists()]


def compiled_with(build, targets):
    """[Owner] of all that is compiled into the targets."""
    headers = headers_of(build, targets)
    debian = debian_owners(headers | {re.sub("^/usr", "", path) for path in headers})
    python = python_owners(path for path in headers if path not in debian)
    unknown = sorted(headers - set(debian) - set(python) -
                     {path for path in headers if re.sub("^/usr", "", path) in debian})
    if unknown:
        raise Unknown(f"no package of this machine has {unknown[0]} ({len(unknown)} such files), so its licence is "
                      "not known")
    packages = sorted({name for name in debian.values() if not OF_THE_COMPILER.match(name)})
    owners = [debian_owner(package) for package in packages]
    owners += [python_owner(info) for info in sorted(set(python.values()))]
    for name, folder, licence in IN_SOURCES:
        version = re.search(r"(\d+\.\d+\.\d+)", pathlib.Path(folder, "README.md").read_text()).group(1)
        owners.append(Owner("generic", name, version, [pathlib.Path(folder, "LICENSE")], licence))
    return owners


def keep_texts(owner, folder):
    """Licence texts into the bundle: one file is licences/NAME, several are licences/NAME/...."""
    place = folder / owner.name
    if place.exists() or not owner.texts:
        return
    folder.mkdir(exist_ok=True)
    if len(owner.texts) == 1:
        shutil.copyfile(owner.texts[0], place)
        place.chmod(0o644)
        return
    place.mkdir()
    for number, text in enumerate(owner.texts):
        target = place / (text.name if not (place / text.name).exists() else f"{number}-{text.name}")
        shutil.copyfile(text, target)
        target.chmod(0o644)


def page(name, carried, compiled):
    def table(rows):
        return "".join(f"{owner.name} {owner.version}\n    {owner.licence or 'see its text'}: licences/{owner.name}\n"
                       for owner in sorted(rows, key=lambda owner: owner.name.lower()))

    return (f"Software of others in {name}\n\nlonghaul itself is under the Apache License 2.0 (LICENSE, NOTICE). The "
            "texts of the licences below are in the folder licences/. A list of licences is of all files of a package's "
            "sources. The sources of Debian's packages, at the versions named, are at https://snapshot.debian.org.\n\n"
            f"Carried as files of their own\n\n{table(carried)}\nCompiled into longhaul's programs\n\n{table(compiled)}")


def component(owner):
    kinds = {"deb": f"pkg:deb/debian/{owner.name}@{owner.version}", "pypi": f"pkg:pypi/{owner.name}@{owner.version}",
             "generic": f"pkg:generic/{owner.name}@{owner.version}"}
    made = {"type": "library", "bom-ref": kinds[owner.kind], "name": owner.name, "version": owner.version,
            "purl": kinds[owner.kind].replace("+", "%2B")}
    if owner.licence:
        made["licenses"] = [{"license": {"name": name.strip()}} for name in owner.licence.split(",")]
    return made


def sbom(version, carried, compiled):
    """The inventory. The same contents give the same bytes, so it has no time, and a number made from its contents."""
    components = {}
    for scope, owners in (("carried", carried), ("compiled in", compiled)):
        for owner in owners:
            made = components.setdefault((owner.kind, owner.name), component(owner))
            made.setdefault("properties", []).append({"name": "longhaul:how", "value": scope})
    rows = [components[key] for key in sorted(components)]
    digest = hashlib.sha256(json.dumps([version, rows], sort_keys=True).encode()).digest()
    return {"bomFormat": "CycloneDX", "specVersion": "1.5",
            "serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}", "version": 1,
            "metadata": {"component": {"type": "application", "bom-ref": f"longhaul@{version}", "name": "longhaul",
                                       "version": version,
                                       "licenses": [{"license": {"id": "Apache-2.0"}}]}},
            "components": rows,
            "dependencies": [{"ref": f"longhaul@{version}", "dependsOn": [row["bom-ref"] for row in rows]}]}


def write(tree, name, version, carried, compiled):
    """Puts notices, texts and inventory into the bundle `tree`. `carried`: names of Debian's packages."""
    owners = [debian_owner(package) for package in sorted(carried)]
    for owner in owners + compiled:
        keep_texts(owner, tree / "licences")
    for path in ("LICENSE", "NOTICE"):
        shutil.copyfile(path, tree / path)
    (tree / "THIRD_PARTY_NOTICES").write_text(page(name, owners, compiled))
    (tree / "sbom.cdx.json").write_text(json.dumps(sbom(version, owners, compiled), indent=1) + "\n")
    for path in ("LICENSE", "NOTICE", "THIRD_PARTY_NOTICES", "sbom.cdx.json"):
        (tree / path).chmod(0o644)
    return [owner.name for owner in compiled]
