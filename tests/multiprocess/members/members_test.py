"""Whom a coordinator lets in, and to what, while a run trains: every attempt below is refused with its reason, and
the run neither changes its epoch nor its losses.

usage: members_test.py BIN_DIR

Stolen worker's id, foreign blob, foreign run, downgrades to plain TCP and to TLS 1.2, wrong authority on either side,
spent join token, revoked and expired certificates. Also: a member renews its certificate by itself, and a revoked
worker's and user's open streams end.
"""
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time

for folder in ("training", "abuse"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))
import training_test as training  # noqa: E402
from abuse_test import start_workers  # noqa: E402
from http2 import CONTROL, WORKER, Connection, Target, field, message, tls_as  # noqa: E402

PERMISSION_DENIED, UNAUTHENTICATED = 7, 16
STEPS = 100_000  # never reached
SHORT_LIFE_S = 9


def check(condition, *what):
    assert condition, " ".join(str(one) for one in what)


def hello(worker_id):
    return message(field(10, b"".join([field(1, 7), field(2, 7), field(3, worker_id), field(4, "stolen"),
                                       field(5, "worker1")])))


def call(address, identity, path, body, end=True):
    """(status, message) of one call over TLS."""
    connection = Connection(Target(address, path, tls=tls_as(identity)))
    connection.open(1, path, "", body, end)
    check(connection.wait_ended(1) == 1, path, "has no end")
    connection.close()
    return connection.statuses[1], connection.messages[1]


def handshake_fails(address, context):
    """Whether the server, or this side, gives up before a byte is said. TLS 1.3 tells at the first read."""
    try:
        connection = Connection(Target(address, CONTROL + "Info", tls=context))
        connection.open(1, CONTROL + "Info", "", message(b""))
        return connection.wait_ended(1) == 0 and connection.closed
    except (ssl.SSLError, ConnectionError):
        return True


class User:
    """A user with certificates of his own."""

    def __init__(self, cluster, name, token_file):
        self.cluster, self.name, self.token_file = cluster, name, token_file
        self.environment = {**os.environ, "LONGHAUL_HOME": str(cluster.folder / name), "USER": name}

    def start(self, *arguments):
        return subprocess.Popen(self.command(*arguments), env=self.environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def command(self, *arguments):
        return [self.cluster.programs / "longhaul", *arguments, "--coordinator", self.cluster.address,
                "--token-file", self.token_file]

    def cli(self, *arguments, code=0, says=""):
        done = subprocess.run(self.command(*arguments), env=self.environment, capture_output=True, text=True,
                              check=False, timeout=training.DEADLINE_S, cwd=self.cluster.folder)
        check(done.returncode == code, self.name, arguments, done.returncode, done.stdout, done.stderr)
        check(says in done.stdout + done.stderr, arguments, "did not say", says, "but", done.stdout, done.stderr)
        return done.stdout


def new_token(cluster, role, uses):
    """A file with a join token of its own."""
    file = cluster.folder / f"{role}{time.monotonic_ns()}.token"
    file.write_text(cluster.cli("token", "create", "--role", role, "--ttl", "10m", "--uses", str(uses)).stdout)
    file.chmod(0o600)
    return file


def a_blob(cluster):
    """Hash and size of a blob of the run."""
    path = next(path for path in (cluster.folder / "coordinator/blobs").iterdir() if len(path.name) == 64)
    return path.name, path.stat().st_size


def stolen_worker(cluster, run):
    """worker3 is a member without a cell: it can be neither another worker nor see what others' cells need."""
    identity = cluster.folder / "worker3/identity.pem"
    victim = (cluster.folder / "worker1/worker-id").read_text().strip()
    status, said = call(cluster.address, identity, WORKER + "Session", hello(victim), end=False)
    check(status == PERMISSION_DENIED and "another worker's id" in said, status, said)
    blob, end = a_blob(cluster)
    status, said = call(cluster.address, identity, WORKER + "FetchBlob", message(field(1, blob)))
    check(status == PERMISSION_DENIED and "names this blob" in said, status, said)
    own = cluster.folder / "worker1/identity.pem"
    status, said = call(cluster.address, own, WORKER + "FetchBlob", message(field(1, blob) + field(2, end)))
    check(status == 0, "a blob of its cell was refused", said)
    status, said = call(cluster.address, identity, CONTROL + "StopRun", message(field(1, run)))
    check(status == PERMISSION_DENIED and "role worker" in said, status, said)
    # With another key, and the right to join.
    thief = cluster.folder / "thief"
    thief.mkdir()
    shutil.copy(cluster.folder / "worker1/worker-id", thief)
    done = subprocess.run([cluster.programs / "longhaul-worker", "--coordinator", cluster.address, "--state-dir", thief,
                           "--token-file", new_token(cluster, "worker", 1), "--data-address", "127.0.0.1:0"],
                          capture_output=True, text=True, check=False, timeout=training.DEADLINE_S)
    check(done.returncode == 1 and "with another key" in done.stderr, done.returncode, done.stderr)
    # It calls itself worker1, and is listed as who it is.
    cluster.kill("worker3")
    cluster.start("worker3", "longhaul-worker", "--coordinator", cluster.address, "--name", "worker1")
    names = training.wait_for("worker3 again", lambda: len(found := cluster.connected()) == 3 and
                              sorted(worker["name"] for worker in found))
    check(names == ["worker1", "worker2", "worker3"], names)
    print("ok: a stolen worker's id and name, a foreign blob and a worker that commands are refused", flush=True)


def foreign_run(cluster, run):
    token = new_token(cluster, "user", 1)
    bob = User(cluster, "bob", token)
    check(run not in bob.cli("ps"), "a foreign run is listed")
    for command in (["status", run], ["stop", run, "--now"], ["logs", run], ["steps", run], ["checkpoints", run],
                    ["events", run], ["rm", run], ["trace", run, "--out", cluster.folder / "trace.json"], ["watch", run]):
        bob.cli(*command, code=1, says=f"there is no run '{run}'")
    blob, _ = a_blob(cluster)
    identity = next((cluster.folder / "bob").glob("*.pem"))
    status, said = call(cluster.address, identity, CONTROL + "FetchBlob", message(field(1, blob)))
    check(status == PERMISSION_DENIED and "names this blob" in said, status, said)
    bob.cli("members", code=1, says="role user")
    bob.cli("gc", code=1, says="role user")
    bob.cli("token", "create", "--role", "admin", code=1, says="role user")
    User(cluster, "eve", token).cli("ps", code=1, says="its uses are over")
    guarded = cluster.write_run("guarded", steps=STEPS, stages=2, transport="grpc")
    bob.cli("submit", guarded, "--resume", code=1, says="no run called 'guarded'")
    # A user may see and stop all of his own runs.
    own = bob.cli("submit", cluster.write_run("bobs", steps=20, stages=3, transport="grpc")).split()[0]
    check(own in bob.cli("ps"), "his own run is missing")
    bob.cli("stop", own, "--now")
    print("ok: foreign runs are neither seen nor stopped, and a spent join token makes nobody a member", flush=True)
    return bob


def downgrades(cluster, programs):
    done = subprocess.run([programs / "longhaul", "ps", "--coordinator", cluster.address, "--insecure"],
                          capture_output=True, text=True, check=False, timeout=training.DEADLINE_S)
    check(done.returncode == 1 and "started with --insecure, too" in done.stderr, done.stderr)
    old = tls_as()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    check(handshake_fails(cluster.address, old), "TLS 1.2 was taken")
    check(not handshake_fails(cluster.address, tls_as()), "TLS 1.3 was not taken")
    status, said = call(cluster.address, None, CONTROL + "Info", message(b""))
    check(status == UNAUTHENTICATED, status, said)
    # Whoever has a join token says nothing to somebody who answers in plain TCP.
    folder = cluster.folder / "plain"
    plain = subprocess.Popen([programs / "longhaul-coordinator", "--listen", "127.0.0.1:0", "--insecure", "--state-dir",
                              folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        training.wait_for("the plain coordinator", (folder / "address").exists)
        address = (folder / "address").read_text().strip()
        command = [programs / "longhaul", "ps", "--coordinator", address]
        done = subprocess.run([*command, "--token-file", cluster.token], capture_output=True, text=True, check=False,
                              timeout=training.DEADLINE_S)
        check(done.returncode == 1 and "TLS" in done.stderr, done.stderr)
        done = subprocess.run([*command, "--insecure", "--token-file", cluster.token], capture_output=True, text=True,
                              check=False, timeout=training.DEADLINE_S)
        check(done.returncode == 1 and "join token" in done.stderr, done.stderr)
    finally:
        plain.terminate()
        plain.wait()
    print("ok: plain TCP and TLS 1.2 are refused by either side", flush=True)


def other_authority(cluster, programs):
    """And, of the other one, that a certificate ends and is renewed in time."""
    folder = cluster.folder / "other"
    processes = [subprocess.Popen([programs / "longhaul-coordinator", "--listen", "127.0.0.1:0", "--state-dir", folder,
                                   "--certificate-hours", str(SHORT_LIFE_S / 3600)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
    try:
        training.wait_for("the other coordinator", (folder / "address").exists)
        address, token = (folder / "address").read_text().strip(), folder / "token"
        foreign = subprocess.run([programs / "longhaul", "ps", "--coordinator", cluster.address, "--token-file", token],
                                 env={**os.environ, "LONGHAUL_HOME": str(cluster.folder / "nobody")},
                                 capture_output=True, text=True, check=False, timeout=training.DEADLINE_S)
        check(foreign.returncode == 1 and "has another authority" in foreign.stderr, foreign.stderr)
        state = cluster.folder / "brief"
        log = open(cluster.folder / "brief.log", "w", encoding="utf-8")
        processes.append(subprocess.Popen(
            [programs / "longhaul-worker", "--coordinator", address, "--token-file", token, "--state-dir", state,
             "--name", "brief", "--data-address", "127.0.0.1:0"], stdout=log, stderr=log))
        identity, kept = state / "identity.pem", cluster.folder / "kept.pem"
        training.wait_for("the worker", lambda: "connected" in (cluster.folder / "brief.log").read_text())
        kept.write_text(identity.read_text())
        # Another authority's member is nobody here: the handshake ends.
        check(handshake_fails(cluster.address, tls_as(kept)), "a foreign member was taken")
        authority = re.findall(r"-----BEGIN CERT.*?-----END CERTIFICATE-----\n", kept.read_text(), re.S)[1]
        check(handshake_fails(cluster.address, tls_as(authority=authority)), "a foreign coordinator was taken")
        check(call(address, kept, CONTROL + "ListWorkers", message(b""))[0] == 0, "a member was refused")
        training.wait_for("a new certificate", lambda: identity.read_text() != kept.read_text())
        training.wait_for("the end of the old one", lambda: handshake_fails(address, tls_as(kept)))
        # By then its connection was cut with its certificate, and it has come back with the new one.
        training.wait_for("the worker again", lambda: (cluster.folder / "brief.log").read_text().count("connected to") > 1)
        check(processes[1].poll() is None, "the worker has ended")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    print("ok: a foreign authority is refused by either side; certificates end, and are renewed before", flush=True)


def revoked(cluster, bob):
    """At once, on open streams, too."""
    run = bob.cli("submit", cluster.write_run("bobs2", steps=20, stages=3, transport="grpc")).split()[0]
    follower = bob.start("events", run, "--follow")
    training.wait_for("the stream", lambda: follower.stdout.readline())
    cluster.cli("members", "revoke", "bob")
    check(follower.wait(training.DEADLINE_S) == 1, "an open stream of a revoked user ended well")
    bob.cli("ps", code=1, says="was revoked")
    cluster.cli("members", "revoke", "worker3")
    worker = cluster.processes.pop("worker3")
    check(worker.wait(training.DEADLINE_S) == 1, "a revoked worker goes on")
    log = (cluster.folder / "worker3.log").read_text()
    check("the certificate of worker3 was revoked" in log, log[-500:])
    states = {row.split("\t")[0]: row.split("\t")[2] for row in cluster.cli("members").stdout.splitlines()[1:]}
    check(states["bob"] == states["worker3"] == "revoked" and states["worker1"] == "member", states)
    print("ok: revoked members' streams end, and they do not come back", flush=True)


def revoked_at_work(cluster):
    """Nobody waits for a worker that may not come back: its run ends, or takes another, at once."""
    run = begin(cluster, "at-work")
    cluster.cli("members", "revoke", "worker2")
    status = training.wait_for("the end of its run", lambda: (s := cluster.seen(run))["state"] == "failed" and s)
    check("worker2" in status["reason"] and "was revoked" in status["reason"], status["reason"])
    worker = cluster.processes.pop("worker2")
    check(worker.wait(training.DEADLINE_S) == 1, "a revoked worker goes on")
    print(f"ok: {status['reason']}", flush=True)


def begin(cluster, name):
    # Over tcp, which goes through the proxies.
    run = cluster.cli("submit", cluster.write_run(name, steps=STEPS, stages=2, transport="tcp")).stdout.split()[0]
    training.wait_for(f"step 3 of {run}", lambda: cluster.step(run) >= 3)
    return run


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="longhaul-members-") as folder:
        training.text_for_training(folder)
        with training.Cluster(programs, folder, workers=0) as cluster:
            _, _, proxies = start_workers(cluster)
            for proxy in proxies:
                proxy.pause_s = 0.1  # all its steps are repeated below
            for name in ("authority.pem", "token", "store.db"):
                mode = (cluster.folder / ("" if name == "token" else "coordinator") / name).stat().st_mode & 0o777
                check(mode == 0o600, name, oct(mode))
            run = begin(cluster, "guarded")
            cluster.start_worker(3)
            training.wait_for("three workers", lambda: len(cluster.connected()) == 3)
            stolen_worker(cluster, run)
            bob = foreign_run(cluster, run)
            downgrades(cluster, programs)
            other_authority(cluster, programs)
            revoked(cluster, bob)
            before = cluster.step(run)
            training.wait_for("two more steps", lambda: cluster.step(run) > before + 1)
            status = cluster.status(run)
            check(status["state"] == "running" and int(status["epoch"]) == 1, status["state"], status["epoch"])
            check(status["owner"], "the run has no owner")
            guarded = cluster.end(run)
            for proxy in proxies:
                proxy.pause_s = 0
            calm = begin(cluster, "calm")
            training.wait_for("as many steps", lambda: cluster.step(calm) >= len(guarded), deadline_s=420)
            training.expect_equal("while others tried and undisturbed", guarded, cluster.end(calm)[:len(guarded)])
            revoked_at_work(cluster)
            for name, process in cluster.processes.items():
                check(process.poll() is None, name, "has ended")


if __name__ == "__main__":
    main()
