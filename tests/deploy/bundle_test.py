"""The portable bundle of this build: the same bytes each time, nothing that it lacks, nothing newer
than it promises, sentences for what a machine lacks; and a worker of it that connects.

usage: bundle_test.py SOURCE_DIR BUILD_DIR TORCH_LIB_DIR
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE, BUILD, TORCH = (pathlib.Path(word) for word in sys.argv[1:4])
DEADLINE_S = 60
# glibc's and gcc's run time, of every system.
SYSTEM = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libanl|libstdc\+\+|"
                    r"libgcc_s)\.so\.\d+$")
OF_TORCH = re.compile(r"lib(torch_cpu|torch_cuda|c10|c10_cuda)\.so")
# Ubuntu 22.04 has these.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def run(*command, code=0, **environment):
    """In an environment of nothing but PATH and what is named."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=DEADLINE_S,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment})
    check(done.returncode == code, command, "ended with", done.returncode, done.stdout, done.stderr)
    return done


def make(out):
    done = subprocess.run([SOURCE / "deploy/bundle.sh", "--build-dir", BUILD, "--out", out],
                          capture_output=True, text=True, check=False, timeout=300)
    print(done.stdout, done.stderr, end="")
    if done.returncode == 1 and "build on an older system" in done.stderr and \
            os.confstr("CS_GNU_LIBC_VERSION") > "glibc 2.36":
        print("skipped: what is built on this system does not run on the oldest that bundles are for")
        sys.exit(77)
    check(done.returncode == 0, "bundle.sh ended with", done.returncode)
    return out.read_bytes()


def elf_files(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            yield path


def check_symbols(bundle):
    """What the carried files ask for, of symbols and of libraries."""
    carried = {path.name for path in (bundle / "lib").rglob("*.so*")}
    count = 0
    for path in elf_files(bundle):
        count += 1
        for base, numbers in re.findall(r"\b([A-Z]+)_([0-9.]+)\b",
                                        run("readelf", "-W", "-V", path).stdout):
            version = tuple(int(number) for number in numbers.split("."))
            check(version <= NEWEST.get(base, version), path, "needs", base, numbers)
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-W", "-d", path).stdout):
            check(name in carried or SYSTEM.match(name) or OF_TORCH.match(name), path, "needs",
                  name)
    check(count > 40, "only", count, "programs and libraries")
    for name in carried:
        check(not SYSTEM.match(name), "carries the system's", name)


def check_libraries_are_its_own(bundle, program, torch=None):
    environment = {"LD_LIBRARY_PATH": f"{torch}/lib"} if torch else {}
    said = run(bundle / program, "--version", LD_DEBUG="libs", **environment).stderr
    opened = re.findall(r"calling init: (\S+)", said)
    check(len(opened) > 20, program, "opened", opened)
    for path in opened:
        of_torch = torch and path.startswith(str(pathlib.Path(torch).parent))
        check(path.startswith(str(bundle)) or SYSTEM.search(path) or of_torch, program, "opened", path)


def system_python_has_torch():
    question = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    python = pathlib.Path("/usr/bin/python3")
    return python.exists() and subprocess.run([python, "-c", question], check=False).returncode == 0


def check_sentences(bundle, folder):
    """What a machine lacks is said."""
    worker = bundle / "bin/longhaul-worker"
    # A machine without Python: the tools that the scripts use, and no more.
    tools = folder / "tools"
    tools.mkdir()
    for tool in ("sh", "uname", "getconf", "sed", "dirname", "readlink", "basename", "sha256sum",
                 "df", "awk", "rm", "mv", "mkdir", "mktemp"):
        (tools / tool).symlink_to(shutil.which(tool))
    hidden = {"PATH": str(tools), "LONGHAUL_PYTHON": "false"}
    if system_python_has_torch():
        print("not tried: a machine without torch, because /usr/bin/python3 has one")
    else:
        said = run(worker, "--version", code=1, **hidden).stderr
        check("expected torch 2.11" in said, said)
    fetch = bundle / "install", "--fetch-torch"
    said = run(*fetch, code=1, PATH=str(tools)).stderr
    check("expected python3, with which torch is fetched" in said, said)
    (tools / "python3").symlink_to(sys.executable)
    df = (tools / "df").readlink()
    (tools / "df").unlink()
    (tools / "df").write_text("#!/bin/sh\nprintf 'Filesystem\\nrootfs 1000 900 100 90%% /\\n'\n")
    (tools / "df").chmod(0o755)
    said = run(*fetch, code=1, PATH=str(tools)).stderr
    check("MB free at" in said and "got 100 MB" in said, said)
    for name in ("df", "python3"):
        (tools / name).unlink()
    (tools / "df").symlink_to(df)
    said = run(worker, "--version", code=1, LONGHAUL_TORCH=str(folder)).stderr
    check("expected the folder of torch 2.11" in said, said)
    # Answers of another machine.
    for name, answer, expected in (("uname", "aarch64", "expected an x86-64 machine, got aarch64"),
                                   ("getconf", "glibc 2.31", "glibc 2.34 or newer")):
        (tools / name).unlink()
        (tools / name).write_text(f"#!/bin/sh\necho {answer}\n")
        (tools / name).chmod(0o755)
        said = run(worker, "--version", code=1, **hidden).stderr
        check(expected in said, said)
        (tools / name).unlink()
        (tools / name).symlink_to(shutil.which(name))
    with (bundle / "MANIFEST.json").open("a") as manifest:
        manifest.write("damaged")
    said = run(bundle / "install", "--coordinator-only", code=1).stderr
    check("unpack it again" in said, said)


# Fetches nothing: FIRST begins to unpack, waits until another one does, and goes on then; the other one waits for that.
PIP = """#!/bin/sh
case "$*" in *" install "*) ;; *) exec {python} "$@" ;; esac
while [ "$1" != --target ]; do shift; done
if [ ! -e {folder}/first ]; then
  mkdir -p "$2/torch/lib"
  echo half >"$2/torch/lib/libtorch_cpu.so"
  mkfifo {folder}/second {folder}/over
  : >{folder}/first
  read -r _ <{folder}/second
  mkdir -p "$2/orphan"
  echo over >{folder}/over
  exit 0
fi
echo begins >{folder}/second
read -r _ <{folder}/over
ln -s {torch} "$2/torch"
"""


def check_interrupted_install(bundle, folder, torch):
    """kill -9 while pip is at it, which goes on; the next one begins cleanly."""
    stubs = folder / "interrupted"
    stubs.mkdir()
    python, df = stubs / "python3", stubs / "df"
    python.write_text(PIP.format(folder=stubs, python=sys.executable, torch=torch))
    # The disk has room, but not beside half a torch.
    df.write_text(f"#!/bin/sh\nfree=2600\nfor part in {bundle}/python.part*; do [ ! -e $part ] || free=90; done\n"
                  "printf 'Filesystem\\nrootfs 9999 0 %s 0%% /\\n' $free\n")
    for stub in (python, df):
        stub.chmod(0o755)
    command = [str(bundle / "install"), "--fetch-torch"]
    environment = {"PATH": f"{stubs}:/usr/sbin:/usr/bin:/sbin:/bin", "LONGHAUL_PYTHON": str(python)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as first:
        try:
            wait_for("half a torch", (stubs / "first").exists)
            first.kill()  # not its pip
            first.wait(DEADLINE_S)
            check(not (bundle / "python").exists(), "half a torch is in its place")
            run(*command, **environment)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(first.pid, signal.SIGKILL)
    check(os.readlink(bundle / "python/torch") == torch, "the torch that was fetched")
    check(not (bundle / "python/orphan").exists(), "the interrupted one has written into it")
    shutil.rmtree(bundle / "python")


def check_units(bundle, folder, torch):
    """Units for another system, in which the bundle is in /opt."""
    said = run(bundle / "install", "--systemd", "--coordinator-only", code=1).stderr
    check("services may read it" in said and "move" in said, said)
    root = folder / "root"
    place = root / "opt" / bundle.name
    shutil.copytree(bundle, place, symlinks=True)
    (root / "opt/torch").symlink_to(torch)
    install = place / "install", "--systemd", "--root", root
    for _ in range(2):  # as often as one likes
        run(*install, LONGHAUL_TORCH=str(root / "opt/torch"))
    token = root / "etc/longhaul/token"
    check(token.stat().st_mode & 0o777 == 0o600 and token.read_text().startswith("longhaul1.admin."), "the token")
    kept = token.read_text()
    (root / "etc/longhaul/worker.yaml").write_text("coordinator: there:7070\n")
    run(*install, LONGHAUL_TORCH=str(root / "opt/torch"))
    check(token.read_text() == kept, "the token is another one")
    check("there:7070" in (root / "etc/longhaul/worker.yaml").read_text(), "flags were lost")
    units = root / "etc/systemd/system"
    worker = (units / "longhaul-worker.service").read_text()
    check(f"ExecStart=/opt/{bundle.name}/bin/longhaul-worker " in worker, worker)
    check("LONGHAUL_TORCH=/opt/torch\n" in worker, worker)
    # The flags that a unit and its file give are flags that its daemon has.
    for daemon in ("coordinator", "worker"):
        text = (units / f"longhaul-{daemon}.service").read_text()
        for line in ("NoNewPrivileges=yes", "PrivateTmp=yes", "Restart=on-failure", "DynamicUser=yes",
                     f"StateDirectory=longhaul-{daemon}"):
            check(line in text.splitlines(), daemon, "lacks", line)
        flags = re.search(r"ExecStart=\S+ (.*)", text).group(1)
        known = run(bundle / "bin" / f"longhaul-{daemon}", "--help", LONGHAUL_TORCH=torch).stdout
        for flag in re.findall(r"--[a-z-]+", flags):
            check(flag in known, daemon, "has no", flag)
    of_gpu = (units / "longhaul-worker@.service").read_text()
    for line in ("StateDirectory=longhaul-worker-%i", "Environment=DEVICE=cuda:%i FLAGS=", "KillMode=mixed"):
        check(line in of_gpu.splitlines(), "a worker of one GPU lacks", line)
    known = run(bundle / "bin/longhaul-worker", "--help", LONGHAUL_TORCH=torch).stdout
    for flag in re.findall(r"--[a-z-]+", re.search(r"ExecStart=\S+ (.*)", of_gpu).group(1)):
        check(flag in known, "the worker has no", flag)
    spot = re.search(r"ExecStart=/usr/bin/env python3 (\S+) (.*)", (units / "longhaul-spot.service").read_text())
    check(spot.group(1) == f"/opt/{bundle.name}/share/spot_notice.py" and (bundle / "share/spot_notice.py").exists(),
          spot.group(0))
    witness = (units / "longhaul-witness.service").read_text()
    known = "".join(run(bundle / "bin" / "longhaul-coordinator", *words, "--help").stdout for words in ([], ["witness"]))
    flags = re.search(r"ExecStart=\S+ (witness .*)", witness).group(1)
    for flag in ("witness", *re.findall(r"--[a-z-]+", flags)):
        check(flag in known, "the witness has no", flag)
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        print("not tried: what systemd says of the units, because there is no systemd-analyze")
        return
    for daemon, unit in (("coordinator", units / "longhaul-coordinator.service"),
                         ("worker", units / "longhaul-worker.service"), ("worker", units / "longhaul-worker@.service")):
        program = root / "opt" / bundle.name / "bin" / f"longhaul-{daemon}"
        # As if it were installed here.
        tried = folder / unit.name
        tried.write_text(unit.read_text().replace(f"/opt/{bundle.name}", str(place)))
        check(program.exists(), program)
        said = run(analyze, "verify", "--man=no", tried)
        check("longhaul" not in said.stderr, said.stderr)
        said = run(analyze, "security", "--offline=true", "--threshold=25", "--no-pager", tried)
        print(said.stdout.strip().splitlines()[-1])


def check_notices(bundle, manifest):
    """Software of others is named, and its licence is there, also where it is compiled into the programs."""
    page = (bundle / "THIRD_PARTY_NOTICES").read_text()
    inventory = json.loads((bundle / "sbom.cdx.json").read_text())
    listed = {part["name"] for part in inventory["components"]}
    carried = {package.split(":")[0] for package in manifest["packages"]}
    compiled = set(manifest["compiled_with"])
    check(listed == carried | compiled, "the inventory and the manifest differ in", listed ^ (carried | compiled))
    # Known ones: a library, two that are headers alone, and a file of this repository.
    check({"libgrpc++1.51", "iproute2"} <= carried and {"libcli11-dev", "nlohmann-json3-dev", "torch", "uPlot"} <= compiled,
          "expected well-known packages, got", listed)
    for name in sorted(listed):
        check(f"\n{name} " in page, "THIRD_PARTY_NOTICES does not name", name)
        check((bundle / "licences" / name).exists(), "there is no licence of", name)
    check("Apache License" in (bundle / "LICENSE").read_text() and (bundle / "NOTICE").exists(), "LICENSE and NOTICE")


def wait_for(what, condition):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        signal.sigtimedwait([signal.SIGCHLD], 0.02)
    raise AssertionError(f"waited in vain for {what}")


def check_connects(archive, folder, torch):
    """From the archive to a connected worker."""
    begin = time.monotonic()
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    bundle = next(folder.glob("longhaul-*-x86_64"))
    run(bundle / "install", LONGHAUL_TORCH=torch)
    token = folder / "token"
    environment = {"PATH": "/usr/bin:/bin", "LONGHAUL_TORCH": torch}
    processes = []
    try:
        processes.append(subprocess.Popen(
            [bundle / "bin/longhaul-coordinator", "--listen", "127.0.0.1:0", "--token-file", token,
             "--state-dir", folder / "coordinator"], env=environment, stderr=subprocess.DEVNULL))
        address_file = folder / "coordinator" / "address"
        address = wait_for("the coordinator", lambda: address_file.exists() and
                           address_file.read_text().strip())
        processes.append(subprocess.Popen(
            [bundle / "bin/longhaul-worker", "--coordinator", address, "--token-file", token,
             "--state-dir", folder / "worker", "--data-address", "127.0.0.1:0"], env=environment,
            stderr=subprocess.DEVNULL))
        access = ["--coordinator", address, "--token-file", token, "--json"]

        def connected():
            reply = json.loads(run(bundle / "bin/longhaul", "workers", *access,
                                   LONGHAUL_HOME=str(folder / "home")).stdout)
            return len(reply.get("workers", [])) == 1

        wait_for("the worker", connected)
        print(f"from unpacking to connected: {time.monotonic() - begin:.1f} s")
    finally:
        for process in processes:
            process.terminate()
            process.wait(DEADLINE_S)
    return bundle


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as name:
        folder = pathlib.Path(name).resolve()
        archive = folder / "bundle.tar.gz"
        check(make(archive) == make(folder / "again.tar.gz"), "two bundles of one build differ")
        torch = str(TORCH.parent)
        bundle = check_connects(archive, folder, torch)
        check_symbols(bundle)
        check_libraries_are_its_own(bundle, "bin/longhaul")
        for program in ("longhaul-worker", "longhaul-generate"):
            check_libraries_are_its_own(bundle, f"libexec/{program}", torch)
            check("longhaul" in run(bundle / "bin" / program, "--version", LONGHAUL_TORCH=torch).stdout, program)
        for tool in ("ip", "tc"):
            check("iproute2" in run(bundle / "libexec/tools" / tool, "-V").stdout, tool)
        manifest = json.loads((bundle / "MANIFEST.json").read_text())
        for package in manifest["packages"]:
            check((bundle / "licences" / package.split(":")[0]).stat().st_size > 0, package)
        check_notices(bundle, manifest)
        check_interrupted_install(bundle, folder, torch)
        check_units(bundle, folder, torch)
        check_sentences(bundle, folder)
    print("ok")


if __name__ == "__main__":
    os.umask(0o022)
    main()
