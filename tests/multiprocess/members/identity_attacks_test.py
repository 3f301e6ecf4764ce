"""Members who are none any more, or not whose run it is, while a run trains: every attempt below is refused, stands in the
audit log, and the run neither changes its epoch nor its losses.

usage: identity_attacks_test.py BIN_DIR

A revoked key with a fresh token, also when its member was forgotten; expired, foreign, unlimited tokens; a revocation while calls
come in; a user's questions about a run of somebody else by its id, the beginning of it and its name; the audit log read by a
user, and forged by names; a relay ticket after its worker was revoked and after its run has ended.
"""
import hashlib
import hmac
import json
import pathlib
import re
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

import members_test as members
import abuse_test as abuse
from members_test import UNAUTHENTICATED, PERMISSION_DENIED, User, call, check, new_token, training
from http2 import CONTROL, Connection, Target, field, message, tls_as

JOIN = "/longhaul.v1.MemberService/Join"
LIST_AUDIT = "/longhaul.v1.MemberService/ListAudit"
KEY = re.compile("-----BEGIN PRIVATE KEY-----.*?-----END PRIVATE KEY-----\n", re.S)
# The fields `tenure` and `hash` of an Assignment (proto/longhaul/v1/plan.proto).
HASH = re.compile(rb"\x6a\x10.{16}\x72\x20(.{32})", re.S)
DIALLER, WAITER = 1, 2


class Cluster(training.Cluster):
    """With a relay, and members that are forgotten as soon as they have ended."""

    def start(self, name, program, *arguments, cwd=None):
        if name == "coordinator":
            arguments += ("--relay", "127.0.0.1:0", "--members-kept-days", "0")
        super().start(name, program, *arguments, cwd=cwd)

    def restart_coordinator(self):
        self.processes["coordinator"].terminate()
        self.processes["coordinator"].wait()
        self.start("coordinator", "longhaul-coordinator", "--listen", self.address, "--http", "127.0.0.1:0")
        training.wait_for("the coordinator again", lambda: self.cli("ps", check=False).returncode == 0)
        training.wait_for("the workers again", lambda: len(self.connected()) == len(self.processes) - 1)


def audit(cluster, **wanted):
    entries = [json.loads(line) for line in cluster.cli("audit", "--json").stdout.splitlines()]
    return [one for one in entries if all(value in one.get(key, "") for key, value in wanted.items())]


def recorded(cluster, attempt, **wanted):
    """Tries until the log has it: one refusal a second is recorded of an address."""
    def tried():
        attempt()
        return audit(cluster, **wanted)
    return training.wait_for(f"an entry of {wanted}", tried)


def revoked_key(cluster):
    """Whoever has the key of a revoked member, and a fresh token, is no member."""
    ann = User(cluster, "ann", new_token(cluster, "user", 1))
    ann.cli("ps")
    identity = next((cluster.folder / "ann").glob("*.pem"))
    key = KEY.search(identity.read_text())[0]
    cluster.cli("members", "revoke", "ann")
    for forgotten in (False, True):
        fresh = new_token(cluster, "user", 5)
        ann.token_file = fresh
        ann.cli("ps", code=1, says="is no member" if forgotten else "was revoked")
        # Its own program would make a new key, unless it finds one with which it was about to join.
        thief = cluster.folder / f"thief-{forgotten}"
        thief.mkdir()
        (thief / f"{identity.name}.joining").write_text(key)
        other = User(cluster, thief.name, fresh)
        other.cli("ps", code=1, says="no key becomes a member twice")
        if not forgotten:
            listed = cluster.cli("members").stdout
            check("\nann\t" in listed, "a revoked member is not listed", listed)
            cluster.restart_coordinator()  # which forgets it
    check("\nann\t" not in cluster.cli("members").stdout, "a member that has ended is listed for ever")
    # Ann joins again with a new key, so she is a new member with another name.
    identity.unlink()
    ann.cli("ps")
    check("\nann-2\t" in cluster.cli("members").stdout, "the name was given again")
    check(len(audit(cluster, action="revoke", object="ann")) == 1, audit(cluster, action="revoke"))
    recorded(cluster, lambda: other.cli("ps", code=1), action="join", outcome="no key becomes a member twice")
    print("ok: a revoked key joins with no token, also when its member was forgotten", flush=True)


def tokens(cluster):
    for life in ("31d", "3650d"):
        failed = cluster.cli("token", "create", "--role", "user", "--ttl", life, check=False)
        check(failed.returncode == 1 and "for a join token" in failed.stderr, failed.stderr)
    short = cluster.folder / "short.token"
    short.write_text(cluster.cli("token", "create", "--role", "user", "--ttl", "1s", "--uses", "1000").stdout)
    short.chmod(0o600)

    def refused():
        user = User(cluster, f"late{time.monotonic_ns()}", short)
        done = subprocess.run(user.command("ps"), env=user.environment, capture_output=True, text=True,
                                      check=False, timeout=training.DEADLINE_S)
        return done.returncode == 1 and "its time or its uses are over" in done.stderr

    training.wait_for("the end of a token", refused)
    # A secret of another coordinator, with this one's fingerprint on it.
    own = cluster.token.read_text().strip().split(".")
    foreign = cluster.folder / "foreign.token"
    foreign.write_text(".".join(own[:3] + [hashlib.sha256(b"another").hexdigest()[:48]]) + "\n")
    foreign.chmod(0o600)
    User(cluster, "foreigner", foreign).cli("ps", code=1, says="knows no such join token")
    # And with the other's own: nothing is said to this coordinator at all.
    foreign.write_text(".".join(own[:2] + ["0" * 64, own[3]]) + "\n")
    User(cluster, "foreigner", foreign).cli("ps", code=1, says="has another authority")
    # The file of the coordinator itself ends, too.
    with sqlite3.connect(f"file:{cluster.folder}/coordinator/store.db?mode=ro", uri=True) as store:
        ends = [row[0] for row in store.execute("SELECT until_unix_ms FROM join_tokens")]
    latest = (time.time() + 30 * 24 * 3600) * 1000
    check(ends and all(0 < end <= latest for end in ends), "a token has no end", ends)
    print("ok: every join token ends; expired, foreign and endless ones are refused", flush=True)


def revoked_at_the_door(cluster, run):
    """While a user's calls come in, the user is revoked: no stream outlives that."""
    for number in range(5):
        user = User(cluster, f"quick{number}", new_token(cluster, "user", 1))
        user.cli("ps")
        own = user.cli("submit", cluster.write_run(f"quick{number}", steps=20, stages=3, transport="grpc")).split()[0]
        identity = next((cluster.folder / user.name).glob("*.pem"))
        connections = []
        revoking = subprocess.Popen(
            [cluster.programs / "longhaul", "members", "revoke", user.name, "--coordinator", cluster.address,
             *cluster.access()], stdout=subprocess.DEVNULL)
        while revoking.poll() is None and len(connections) < 200:
            try:
                connection = Connection(Target(cluster.address, CONTROL + "WatchRun", tls=tls_as(identity)))
                connection.open(1, CONTROL + "WatchRun", "", message(field(1, own)))
                connections.append(connection)
            except OSError:
                pass  # cut during its handshake
        check(revoking.wait(training.DEADLINE_S) == 0, "the revocation failed")
        for connection in connections:
            connection.wait_ended(1)
            check(1 in connection.ended or connection.closed, "a stream outlives its member")
            connection.close()
        cluster.cli("stop", own, "--now")
    check(cluster.seen(run)["state"] == "running", "the run has ended")
    print("ok: no stream of calls that came in during a revocation outlives it", flush=True)


def others_runs(cluster, run):
    """The answer about somebody else's run is that about none."""
    bob = User(cluster, "bob", new_token(cluster, "user", 1))
    bob.cli("ps")
    identity = next((cluster.folder / "bob").glob("*.pem"))
    nothing = "no-such-run"
    trace = cluster.folder / "trace.json"
    commands = [["status"], ["stop", "--now"], ["logs", "--follow"], ["steps"], ["events", "--follow"], ["watch"],
                ["checkpoints", "--verify"], ["export", "--out", cluster.folder / "stolen"], ["rm"],
                ["trace", "--out", trace], ["replicas", "2"]]
    for command in commands:
        for name in (run, run[:-3], "guarded", ""):
            if not name:
                continue
            said = []
            for asked in (name, nothing):
                words = [command[0], asked, *command[1:]]
                done = subprocess.run(bob.command(*words), env=bob.environment, capture_output=True, text=True,
                                              check=False, timeout=training.DEADLINE_S, cwd=cluster.folder)
                check(done.returncode == 1 or done.returncode == 2, words, done.returncode, done.stdout, done.stderr)
                said.append((done.returncode, (done.stdout + done.stderr).replace(asked, "RUN")))
            check(said[0] == said[1], command, said)
    for method in ("GetRun", "WatchRun", "StopRun", "SetReplicas", "ListLogs", "ListSteps", "ListEvents",
                   "ListCheckpoints", "TraceRun", "SampleRun", "RemoveRun"):
        answers = [call(cluster.address, identity, CONTROL + method, message(field(1, asked))) for asked in (run, nothing)]
        answers[0] = (answers[0][0], answers[0][1].replace(run, nothing))
        check(answers[0] == answers[1] and answers[0][0] != 0, method, answers)
    # His own run has the name of hers, and her own stays hers: the newest of a name is everybody's own newest.
    his = bob.cli("submit", cluster.write_run("guarded", steps=50_000, stages=3, transport="grpc")).split()[0]
    check(json.loads(bob.cli("status", "guarded", "--json"))["run_id"] == his, "his run is not his own")
    check(json.loads(cluster.cli("status", "guarded", "--json").stdout)["run_id"] == run, "a name was taken from her")
    bob.cli("stop", "guarded", "--now")
    check(cluster.seen(run)["state"] == "running", "the run has ended")
    check(not (cluster.folder / "stolen").exists() and not trace.exists(), "something was written")
    recorded(cluster, lambda: bob.cli("status", run, code=1), member="bob", outcome="there is no run", object=run)
    print(f"ok: {len(commands)} commands and 11 calls say of a foreign run what they say of none", flush=True)
    return bob, identity


def audit_log(cluster, bob, identity):
    bob.cli("audit", code=1, says="role user")
    status, said = call(cluster.address, identity, LIST_AUDIT, message(b""))
    check(status == PERMISSION_DENIED, status, said)
    worker = cluster.folder / "worker1/identity.pem"
    status, said = call(cluster.address, worker, LIST_AUDIT, message(b""))
    check(status == PERMISSION_DENIED and "role worker" in said, status, said)
    status, said = call(cluster.address, None, LIST_AUDIT, message(b""))
    check(status == UNAUTHENTICATED, status, said)
    # Names and ids of whoever joins, and of runs that are asked for, are the callers' own words.
    forged = "x\n2026-01-01T00:00:00Z\tadmin\tadmin\t-\trevoke\tworker1\tok\x1b[2J\r\u202e"
    secret = new_token(cluster, "user", 1).read_text().strip().split(".")[3]
    body = b"".join([field(1, secret), field(2, "no request"), field(3, "user"), field(4, forged), field(5, forged)])
    recorded(cluster, lambda: call(cluster.address, None, JOIN, message(body)), action="join", object="2026")
    recorded(cluster, lambda: call(cluster.address, identity, CONTROL + "StopRun", message(field(1, forged))),
             action="StopRun", object="2026")
    raw = cluster.cli("audit").stdout
    check(not any(ord(c) < 32 and c not in "\t\n" for c in raw) and "\u202e" not in raw, "control characters in the audit log")
    lines = raw.splitlines()
    check(all(line.count("\t") == 6 for line in lines), [line for line in lines if line.count("\t") != 6])
    check(not audit(cluster, action="revoke", object="worker1"), "a forged entry")
    recorded(cluster, lambda: bob.cli("audit", code=1), member="bob", action="ListAudit", outcome="role user")
    for action in ("join", "token create", "submit", "stop", "revoke"):
        check(audit(cluster, action=action), "the audit log lacks", action)
    some = cluster.cli("audit", "--member", "bob", "--since", "1h", "--json").stdout.splitlines()
    check(some and all("bob" in (json.loads(one)["member"], json.loads(one).get("object")) for one in some), some)
    check(cluster.cli("audit", "--since", "0s", "--json").stdout == "", "entries of the future")
    print(f"ok: {len(lines) - 1} entries of the audit log, for admins alone, none of them forged", flush=True)


class RelayEnd:
    """One end of a link at a relay, with a ticket."""

    def __init__(self, address, ticket, side):
        name, until, key = ticket
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=training.DEADLINE_S)
        greeting = self.read(40)
        claim = bytes([side]) + until + name
        self.socket.sendall(claim + hmac.digest(key, b"longhaul relay answer " + claim + greeting[8:], "sha256"))

    def read(self, count):
        got = b""
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            if not more:
                break
            got += more
        return got


def ticket_of(cluster, run):
    """As the ends of an edge of the run's epoch have one: from secrets that they do not have."""
    with sqlite3.connect(f"file:{cluster.folder}/coordinator/store.db?mode=ro", uri=True) as store:
        link_secret, plan = store.execute("SELECT link_secret, plan FROM runs WHERE id = ?", (run,)).fetchone()
    assignment = HASH.search(plan)[1]
    relay_secret = bytes.fromhex((cluster.folder / "coordinator/relay-secret").read_text().strip())
    digest = lambda text: hmac.digest(link_secret, text + assignment, "sha256")  # noqa: E731
    name = digest(b"relays of ")[:16] + digest(b"meeting of edge 0 in ")[:16]
    until = struct.pack("<Q", int(time.time()) + 3600)
    return name, until, hmac.digest(relay_secret, b"longhaul relay ticket " + until + name, "sha256")


def relay_tickets(cluster):
    """A ticket ends with its epoch: when a worker is revoked, and when the run ends."""
    address = re.findall(r"relay at (\S+),", (cluster.folder / "coordinator.log").read_text())[-1]
    path = cluster.write_run("relayed", steps=members.STEPS, stages=2, transport="grpc")
    path.write_text(path.read_text().replace("recovery: { attempts: 0 }", "recovery: { attempts: 5, every: 10 }"))
    run = cluster.cli("submit", path).stdout.split()[0]
    # So the run can go on without the worker that is to be revoked.
    training.wait_for("a checkpoint that is held twice", lambda: int(cluster.seen(run).get("copied_step", 0)) >= 10)

    def pair(ticket):
        waiter = RelayEnd(address, ticket, WAITER)
        dialler = RelayEnd(address, ticket, DIALLER)
        return waiter, dialler, waiter.read(1) + dialler.read(1)

    def is_dead(ticket, joined):
        for end in joined[:2]:
            check(end.read(1) == b"", "a joined pair outlives its ticket")
        check(pair(ticket)[2] == b"NN", "a dead ticket was taken")

    before = ticket_of(cluster, run)
    joined = pair(before)
    check(joined[2] == b"JJ", joined[2])
    joined[0].socket.sendall(b"hello")
    check(joined[1].read(5) == b"hello", "nothing is passed on")
    cluster.cli("members", "revoke", "worker2")
    check(cluster.processes.pop("worker2").wait(training.DEADLINE_S) == 1, "a revoked worker goes on")
    training.wait_for("the next epoch", lambda: int(cluster.seen(run).get("epoch", 0)) == 2)
    is_dead(before, joined)
    # The run goes on with another worker, and tickets of its present epoch count.
    training.wait_for("its training", lambda: cluster.seen(run)["state"] == "running")
    after = ticket_of(cluster, run)
    joined = pair(after)
    check(joined[2] == b"JJ", joined[2])
    # A coordinator that starts again is told of nothing and knows which ones count.
    cluster.cli("stop", run)
    training.wait_for("its end", lambda: cluster.seen(run)["state"] == "stopped")
    is_dead(after, joined)
    print("ok: a relay ticket ends with its epoch, and so do the links that it has joined", flush=True)


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="longhaul-identity-") as folder:
        training.text_for_training(folder)
        with Cluster(programs, folder, workers=0) as cluster:
            _, _, proxies = members.start_workers(cluster)
            for proxy in proxies:
                proxy.pause_s = 0.1  # all its steps are repeated below
            run = abuse.start(cluster, "guarded")
            tokens(cluster)
            revoked_key(cluster)
            bob, identity = others_runs(cluster, run)
            audit_log(cluster, bob, identity)
            revoked_at_the_door(cluster, run)
            status = cluster.status(run)
            check(status["state"] == "running" and int(status["epoch"]) == 1, status["state"], status["epoch"])
            guarded = cluster.end(run)
            for proxy in proxies:
                proxy.pause_s = 0
            calm = abuse.start(cluster, "calm")
            training.wait_for("as many steps", lambda: cluster.step(calm) >= len(guarded))
            training.expect_equal("while others tried and undisturbed", guarded, cluster.end(calm)[:len(guarded)])
            cluster.start_worker(3)
            training.wait_for("three workers", lambda: len(cluster.connected()) == 3)
            relay_tickets(cluster)
            for name, process in cluster.processes.items():
                check(process.poll() is None, name, "has ended")


if __name__ == "__main__":
    main()
