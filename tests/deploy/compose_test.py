"""The compose cluster, with Podman: a coordinator and four workers in containers, at 20 Mbit/s.

All talk by TLS, and workers have a token for workers alone. A run completes, submitted from the host and from inside; a
worker that was killed is restarted, as who it was; a worker behind a published port trains by grpc; without a rate
nothing in a container is root's; `down` leaves nothing. Prints the images' sizes. Of the file for GPUs only what compose makes of it is looked at.

usage: compose_test.py SOURCE_DIR BUILD_DIR TORCH_LIB_DIR
"""
import contextlib
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import sys
import tempfile

SOURCE, BUILD, TORCH = (pathlib.Path(word) for word in sys.argv[1:4])
sys.path.insert(0, str(SOURCE / "tests/multiprocess/training"))
from training_test import DEFAULT, RUN, text_for_training, wait_for  # noqa: E402
from requirements import without_root  # noqa: E402

SKIPPED = 77
BASE = "localhost/debian:12"
TAG = f"lht{os.getpid()}"
PREFIX = f"localhost/{TAG}-"
LARGEST_MB = {"coordinator": 150, "worker": 1200}
STEPS = 20
WORKERS = 4
USER, ANOTHER_USER = 1000, 4242  # that of the images, and one who is none of them
ADMIN_TOKEN = "/var/lib/longhaul/coordinator/token"


def call(*command, check=True, timeout=300, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=timeout, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done


def missing():
    """Why this cannot be tried here."""
    for program in ("podman", "podman-compose", "runc", "debootstrap", "iptables"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if call("podman", "image", "exists", BASE, check=False).returncode == 0:
        return None
    made = call(SOURCE / "deploy/images/base.sh", BASE, check=False, timeout=900)
    return None if made.returncode == 0 else made.stderr.strip()


def configure_podman(folder):
    """crun refuses mixed versions of cgroups, and limits cannot be raised in a container."""
    files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096)
    path = folder / "containers.conf"
    path.write_text(f"""[containers]
default_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
""")
    os.environ["CONTAINERS_CONF"] = str(path)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def build_images():
    said = call(SOURCE / "deploy/images/build.sh", "--base", BASE, "--build-dir", BUILD, "--torch",
                TORCH.parent, "--prefix", PREFIX, timeout=900).stdout
    print(said, end="", flush=True)
    for name, most in LARGEST_MB.items():
        size = int(call("podman", "image", "inspect", "--format", "{{.Size}}",
                        PREFIX + name).stdout) / 1e6
        if size > most:
            raise AssertionError(f"the image of the {name} has {size:.0f} MB, more than {most}")


def write_tokens(folder):
    """For workers: one that the user of the images may read, and one of somebody else."""
    token = folder / "token"
    call(BUILD / "bin/longhaul-coordinator", "init", "--state-dir", folder / "longhaul-coordinator",
         "--worker-token-file", token)
    shutil.copy(token, folder / "token-of-another")
    for name, user in (("token", USER), ("token-of-another", ANOTHER_USER)):
        (folder / name).chmod(0o600)
        os.chown(folder / name, user, user)


class Compose:
    def __init__(self, folder, workers, shaped):
        self.workers = workers
        self.files = ["compose.yaml", *(["compose.shaped.yaml"] if shaped else [])]
        self.folder, self.port, self.token = folder, free_port(), folder / f"admin-of-{workers}"
        self.environment = {
            **os.environ, "LONGHAUL_WORKERS": str(workers), "LONGHAUL_RATE": "20mbit",
            "LONGHAUL_PORT": str(self.port), "LONGHAUL_HOME": str(folder / f"home-of-{workers}"),
            "LONGHAUL_RUNS": str(folder / "runs"), "LONGHAUL_COORDINATOR_IMAGE": PREFIX + "coordinator",
            "LONGHAUL_WORKER_IMAGE": PREFIX + "worker"}

    def compose(self, *arguments, check=True):
        files = [word for name in self.files for word in ("-f", SOURCE / "deploy/compose" / name)]
        return call("podman-compose", "-p", TAG, *files, *arguments, check=check, env=self.environment)

    def fetch_token(self):
        """What `docker compose cp` does; podman-compose has no such command."""
        return call("podman", "cp", f"{TAG}_coordinator_1:{ADMIN_TOKEN}", self.token, check=False).returncode == 0

    def cli(self, *arguments, check=True):
        return call(BUILD / "bin/longhaul", *arguments, "--coordinator", f"127.0.0.1:{self.port}",
                    "--token-file", self.token, check=check, cwd=self.folder / "runs", env=self.environment)

    def inside(self, *arguments):
        return call("podman", "exec", f"{TAG}_coordinator_1", "/opt/longhaul/bin/longhaul", *arguments)

    def connected(self):
        said = self.cli("workers", "--json", check=False)
        workers = json.loads(said.stdout)["workers"] if said.returncode == 0 else []
        return {worker["name"]: worker for worker in workers if worker.get("connected")}

    @staticmethod
    def left():
        """What there is of this project, by kind; containers first."""
        found = {}
        for kind, column, every in (("container", "{{.Names}}", ["--all"]), ("volume", "{{.Name}}", []),
                                    ("network", "{{.Name}}", [])):
            listed = call("podman", kind, "ls", *every, "--format", column).stdout.split()
            names = [name for name in listed if name.startswith(TAG)]
            if names:
                found[kind] = names
        return found


@contextlib.contextmanager
def compose_cluster(folder, workers=WORKERS, shaped=True):
    cluster = Compose(folder, workers, shaped)
    cluster.compose("up", "-d")
    try:
        wait_for("the token", cluster.fetch_token)
        wait_for(f"{workers} workers", lambda: len(cluster.connected()) == workers)
        yield cluster
    except BaseException:
        for name in cluster.left().get("container", []):
            logs = call("podman", "logs", "--tail", "20", name, check=False)
            print(f"--- {name}\n{logs.stdout}{logs.stderr[-2000:]}", file=sys.stderr)
        raise
    finally:
        for kind, names in cluster.left().items():
            call("podman", kind, "rm", "-f", *names, check=False)


def write_run(folder, name, stages, transport="ucx"):
    path = folder / "runs" / f"{name}.yaml"
    path.write_text(RUN.format(name=name, steps=STEPS, stages=stages, schedule="link-aware",
                               links=DEFAULT, transport=transport))
    path.chmod(0o644)
    return path.name


def expect_done(cluster, run):
    status = wait_for(f"the end of {run}", lambda: (
        s := json.loads(cluster.cli("status", run, "--json").stdout))["state"] in
        ("done", "failed", "stopped") and s)
    if status["state"] != "done" or int(status["step"]) != STEPS:
        raise AssertionError(f"{run}: {status['state']}: {status.get('reason')}")


def has_no_rights(name, user):
    """The daemon is an ordinary user's, has none of root's rights, and gets none by what it starts."""
    pid = call("podman", "inspect", "--format", "{{.State.Pid}}", f"{TAG}_{name}_1").stdout.strip()
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    words = {line.split(":")[0]: line.split()[1:] for line in status.splitlines() if ":" in line}
    found = {key: words[key] for key in ("Uid", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")}
    expected = {"Uid": [str(user)] * 4, "NoNewPrivs": ["1"],
                **{key: ["0000000000000000"] for key in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}}
    if found != expected:
        raise AssertionError(f"the {name} has {found}; expected {expected}")


def nothing_is_roots_without_a_rate(folder):
    with compose_cluster(folder, workers=1, shaped=False) as cluster:
        for name in ("coordinator", "worker"):
            has_no_rights(name, USER)
            began_as = call("podman", "inspect", "--format", "{{.Config.User}}", f"{TAG}_{name}_1").stdout
            if not began_as.startswith(str(USER)):
                raise AssertionError(f"the {name} began as {began_as}")
        cluster.compose("down", "-v")
    print("ok: without a rate nothing begins as root, and nothing has rights", flush=True)


def the_file_for_gpus_is_read(folder):
    """No GPU here: what compose would start."""
    cluster = Compose(folder, 2, shaped=False)
    cluster.files.append("compose.gpu.yaml")
    done = call("podman-compose", "--dry-run", "-p", TAG, "-f", SOURCE / "deploy/compose/compose.yaml", "-f",
                SOURCE / "deploy/compose/compose.gpu.yaml", "up", "-d", env=cluster.environment)
    workers = [line for line in (done.stdout + done.stderr).splitlines()
               if line.startswith("podman run") and f"{TAG}_worker_" in line]
    if len(workers) != 2 or not all(word in line for line in workers for word in (
            "LONGHAUL_GPU_BY_SLOT=1", "NVIDIA_VISIBLE_DEVICES=all", "LONGHAUL_SLOTS=1", "--cap-drop ALL")):
        raise AssertionError(f"expected two workers with GPUs: {workers}")
    print("ok: compose reads the file for GPUs (which was not tried with one)", flush=True)


def a_bundle_in_out_is_in_the_context(folder):
    """deploy/bundle.sh writes there, and nothing else of that folder goes into an image."""
    context = folder / "context"
    (context / "out/quickstart").mkdir(parents=True)
    (context / "deploy/compose").mkdir(parents=True)
    shutil.copy(SOURCE / ".dockerignore", context)
    for name in ("out/longhaul-1-x86_64.tar.gz", "out/quickstart/report.txt", "deploy/compose/token"):
        (context / name).write_text("x")
    (context / "Containerfile").write_text(f"FROM {BASE}\nCOPY . /context\nRUN find /context -type f\n")
    said = call("podman", "build", "--isolation", "chroot", "--network", "host", "--layers=false", "--file",
                context / "Containerfile", "--tag", f"{PREFIX}context", context)
    call("podman", "rmi", "-f", f"{PREFIX}context")
    files = {line for line in said.stdout.splitlines() if line.startswith("/context/")}
    if "/context/out/longhaul-1-x86_64.tar.gz" not in files or any(
            word in file for file in files for word in ("quickstart", "token")):
        raise AssertionError(f"the context has {files}")
    print("ok: the build context has a bundle of out/, and neither results nor tokens", flush=True)


def workers_are_as_they_should(cluster):
    names = sorted(cluster.connected())
    if names != [f"worker{number + 1}" for number in range(WORKERS)]:
        raise AssertionError(f"expected workers by their slots, got {names}")
    container = f"{TAG}_worker_1"
    shaped = call("podman", "exec", container, "/opt/longhaul/libexec/tools/tc", "qdisc").stdout
    if "tbf" not in shaped or "rate 20Mbit" not in shaped:
        raise AssertionError(f"not shaped: {shaped}")
    has_no_rights("worker", USER)
    has_no_rights("coordinator", USER)
    for name in ("coordinator", "worker"):
        call("podman", "healthcheck", "run", f"{TAG}_{name}_1")
    print("ok: shaped to 20 Mbit/s, an ordinary user, healthy", flush=True)


def a_worker_is_no_admin(cluster):
    """It finds a token for workers, and nothing of the coordinator's."""
    container = f"{TAG}_worker_1"
    found = call("podman", "exec", "--user", "root", container, "find", "/var/lib/longhaul", "/var/lib/longhaul-join",
                 "-type", "f").stdout.split()
    if any("authority" in path or "coordinator" in path for path in found):
        raise AssertionError(f"a worker sees {found}")
    said = call("podman", "exec", "--user", str(USER), "-e", "LONGHAUL_HOME=/tmp/thief", "-e",
                "LONGHAUL_TOKEN_FILE=/var/lib/longhaul-join/token", container, "/opt/longhaul/bin/longhaul", "token",
                "create", "--role", "admin", check=False)
    if said.returncode == 0 or "worker" not in said.stderr:
        raise AssertionError(f"a worker made a token: {said.returncode}: {said.stdout}{said.stderr}")
    members = cluster.cli("members").stdout
    if sum(line.split("\t")[1] == "worker" for line in members.splitlines()[1:]) != WORKERS:
        raise AssertionError(members)
    print(f"ok: workers are members of that role alone: {said.stderr.strip()}", flush=True)


def a_killed_worker_comes_back(cluster):
    container = f"{TAG}_worker_2"
    before = cluster.connected()
    pid = int(call("podman", "inspect", "--format", "{{.State.Pid}}", container).stdout)
    os.kill(pid, 9)

    def is_back():
        now = cluster.connected()
        return len(now) == WORKERS and now if any(
            now.get(name, worker)["incarnation"] != worker["incarnation"]
            for name, worker in before.items()) else None

    now = wait_for("the killed worker", is_back)
    if {w["worker_id"] for w in now.values()} != {w["worker_id"] for w in before.values()}:
        raise AssertionError("the worker that came back is not who it was")
    print("ok: a killed worker was restarted and is connected again, as who it was", flush=True)


def what_a_container_lacks(folder):
    """Is said: rights for tc, a token."""
    token = ["-v", f"{folder / 'token'}:/run/secrets/longhaul-token:ro"]
    for flags, sentence in (
            ([*token, "-e", "LONGHAUL_RATE=20mbit"], "need root in the container"),
            ([*token, "-e", "LONGHAUL_RATE=20mbit", "--user", "root"], "give the container NET_ADMIN"),
            ([*token, "-e", "LONGHAUL_DELAY=bogus", "--user", "root", "--cap-add", "NET_ADMIN"],
             "tc cannot delay"),
            (["--user", "root"], "mount one as the secret longhaul-token"),
            (["-e", "LONGHAUL_COORDINATOR=127.0.0.1:1"], "token file")):
        said = call("podman", "run", "--rm", *flags, PREFIX + "worker", check=False)
        if said.returncode == 0 or sentence not in said.stderr:
            raise AssertionError(f"{flags}: exit {said.returncode}: {said.stderr[-1000:]}")
    said = call("podman", "run", "--rm", "-e", "LONGHAUL_COORDINATOR=127.0.0.1:1",
                "-v", f"{folder / 'token-of-another'}:/run/secrets/longhaul-token:ro", PREFIX + "worker", check=False)
    if said.returncode == 0 or f"run it as user {ANOTHER_USER}" not in said.stderr:
        raise AssertionError(f"exit {said.returncode}: {said.stderr[-1000:]}")
    print("ok: what a container lacks is said", flush=True)


def a_worker_behind_a_published_port(folder):
    """In a network of its own, beside one on this machine: they train by grpc. (That ucx is refused where only the
    published port can be reached is tests/multiprocess/reach's; this machine reaches its containers.)"""
    name, token, port, published = f"{TAG}-apart", folder / "token", free_port(), free_port()
    processes = {}

    def start(program, *arguments):
        log = open(folder / f"{program}.log", "w", encoding="utf-8")
        processes[program] = subprocess.Popen(
            [BUILD / "bin" / program, *arguments, "--state-dir", folder / program], stdout=log, stderr=log)

    def cli(*arguments, check=True):
        return call(BUILD / "bin/longhaul", *arguments, "--coordinator", f"127.0.0.1:{port}",
                    "--token-file", folder / "longhaul-coordinator/token", check=check, cwd=folder / "runs",
                    env={**os.environ, "LONGHAUL_HOME": str(folder / "home-apart")})

    def both_talk():
        said = cli("workers", "--json", check=False)
        workers = json.loads(said.stdout)["workers"] if said.returncode == 0 else []
        return [worker.get("can_talk_to") for worker in workers] == [1, 1]

    try:
        call("podman", "network", "create", name)
        host = call("podman", "network", "inspect", name, "--format",
                    "{{range .Subnets}}{{.Gateway}}{{end}}").stdout.strip()
        call("podman", "run", "-d", "--name", name, "--network", name, "-p", f"{published}:7100",
             "-v", f"{token}:/run/secrets/longhaul-token:ro", "-e",
             f"LONGHAUL_COORDINATOR={host}:{port}", PREFIX + "worker", "--transport", "grpc",
             "--grpc-address", "0.0.0.0:7100", "--advertise", f"{host}:{published}")
        start("longhaul-coordinator", "--listen", f"0.0.0.0:{port}")
        start("longhaul-worker", "--coordinator", f"{host}:{port}", "--name", "host", "--token-file", token)
        wait_for("both workers", both_talk)
        run = cli("submit", write_run(folder, "published", 2, "grpc"), "--watch").stdout.split()[0]
        status = json.loads(cli("status", run, "--json").stdout)
        if status["state"] != "done":
            raise AssertionError(f"{status['state']}: {status.get('reason')}")
        print("ok: a worker behind a published port trains by grpc", flush=True)
    except BaseException:
        print(call("podman", "logs", name, check=False).stderr[-3000:], file=sys.stderr)
        raise
    finally:
        call("podman", "rm", "-f", "-v", "-t", "0", name, check=False)
        call("podman", "network", "rm", "-f", name, check=False)
        for process in processes.values():
            process.terminate()
            process.wait(60)


def main():
    if os.geteuid() != 0:
        return without_root("containers with a network of their own need root")
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "runs").mkdir()
        text_for_training(folder / "runs")
        write_tokens(folder)
        configure_podman(folder)
        try:
            the_file_for_gpus_is_read(folder)
            a_bundle_in_out_is_in_the_context(folder)
            build_images()
            what_a_container_lacks(folder)
            a_worker_behind_a_published_port(folder)
            nothing_is_roots_without_a_rate(folder)
            with compose_cluster(folder) as cluster:
                workers_are_as_they_should(cluster)
                a_worker_is_no_admin(cluster)
                run = cluster.cli("submit", write_run(folder, "outside", WORKERS)).stdout.split()[0]
                expect_done(cluster, run)
                print("ok: a run from the host, over four workers at 20 Mbit/s", flush=True)
                a_killed_worker_comes_back(cluster)
                run = cluster.inside("submit", f"/runs/{write_run(folder, 'inside', WORKERS)}").stdout
                expect_done(cluster, run.split()[0])
                print("ok: a run from inside", flush=True)
                cluster.compose("down", "-v")
                # podman-compose 1.0 keeps a project's network; Docker's removes it.
                left = {kind: names for kind, names in cluster.left().items() if kind != "network"}
                if left:
                    raise AssertionError(f"down left {left}")
                print("ok: down leaves nothing", flush=True)
        finally:
            call("podman", "rmi", "-f", PREFIX + "coordinator", PREFIX + "worker", check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
