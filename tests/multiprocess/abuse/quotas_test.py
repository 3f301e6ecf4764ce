"""While a run of one member trains, another user and a worker take as much of the coordinator as they can.

usage: quotas_test.py BIN_DIR

Each attack reaches a limit, and is told so with a sentence. Meanwhile the run goes on with the losses of an undisturbed
one, its owner submits, asks and stops as before, and no daemon grows by 96 MB.
"""
import hashlib
import json
import pathlib
import sys
import tempfile
import time

for folder in ("training", "members"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))
import training_test as training  # noqa: E402
from abuse_test import Memory, another_user, start_workers, worker_identity  # noqa: E402
from http2 import CONTROL, PATIENCE_S, WORKER, Connection, Target, field, message, tls_as  # noqa: E402
from members_test import User, new_token  # noqa: E402

MB = 1 << 20
USER_MB = 48
LIMIT_MB = 96
STEPS = 100_000  # never reached
BEGIN = time.monotonic()
RESOURCE_EXHAUSTED = 8


def check(condition, *what):
    assert condition, " ".join(str(one) for one in what)


def expect_calm_losses(what, cluster, user, proxies, stormy):
    """Compares losses under attack with those of the same run alone, at full speed. No daemon may have ended."""
    for proxy in proxies:
        proxy.pause_s = 0
    calm = user.cli("submit", cluster.write_run("calm", steps=STEPS, stages=2, transport="tcp")).split()[0]
    training.wait_for("as many steps", lambda: cluster.step(calm) >= len(stormy))
    training.expect_equal(what, stormy, cluster.end(calm)[:len(stormy)])
    for name, process in cluster.processes.items():
        check(process.poll() is None, name, "has ended")


class Limited(training.Cluster):
    """Its users may have little."""

    def start(self, name, program, *arguments, cwd=None):
        if name == "coordinator":
            arguments += ("--user-bytes", f"{USER_MB}MiB", "--user-runs", "20")
        super().start(name, program, *arguments, cwd=cwd)


def send(connection, stream, data, end=False):
    """Sends as the server's windows allow; False where the call has ended before."""
    at, deadline = 0, time.monotonic() + PATIENCE_S
    while at < len(data) and stream not in connection.ended and not connection.closed:
        check(time.monotonic() < deadline, "the server takes no more of stream", stream)
        room = min(connection.room(stream), len(data) - at)
        if room <= 0:
            connection.read(0.05)
            continue
        connection.socket.settimeout(PATIENCE_S)  # read() leaves a shorter one
        connection.send_data(stream, data[at:at + room], ("END_STREAM",) if end and at + room == len(data) else ())
        at += room
        connection.read(0)
    return at == len(data) and stream not in connection.ended


def chunk(sha256, size, data):
    return message(field(1, sha256) + field(2, size) + field(3, data))


class Attacker:
    """A member with a connection that has been let in, and the next stream on it."""

    def __init__(self, address, identity):
        self.address, self.identity = address, identity

    def connect(self):
        connection = Connection(Target(self.address, CONTROL + "Info", tls=tls_as(self.identity))).introduce("")
        connection.next = 3
        return connection

    def open(self, connection, path, body=b"", end=True):
        stream, connection.next = connection.next, connection.next + 2
        connection.socket.settimeout(PATIENCE_S)
        connection.open(stream, path, end=end and not body)
        if body:
            send(connection, stream, body, end)
        return stream

    def call(self, connection, path, body):
        """(status, message) of a whole call."""
        stream = self.open(connection, path, message(body))
        connection.wait_ended(stream)
        return connection.statuses.get(stream), connection.messages.get(stream, "")

    def upload(self, connection, data):
        sha256 = hashlib.sha256(data).hexdigest()
        stream = self.open(connection, CONTROL + "UploadBlob", chunk(sha256, len(data), data[:MB]), end=False)
        for at in range(MB, len(data), MB):
            if not send(connection, stream, message(field(3, data[at:at + MB]))):
                break
        if stream not in connection.ended:
            connection.socket.settimeout(PATIENCE_S)
            connection.send_data(stream, b"", ("END_STREAM",))
        connection.wait_ended(stream)
        return connection.statuses.get(stream), connection.messages.get(stream, ""), sha256


def list_of(own, count, mark):
    """A list of data sets whose chunks are all one blob, which is the attacker's own."""
    return json.dumps({"format": "longhaul mixture", "version": 1, "sources": [{
        "folder": "/data", "weight": 1, "vocabulary": 256, "bytes_per_token": 2, "packed": 0, "chunk_bytes": 4096,
        "ends_inside": mark, "validation": [],
        "training": [{"file": "a", "offset": 0, "tokens": 2048 * count, "chunks": own * count}]}]}).encode()


def submit_of(run_yaml, list_sha256):
    text = run_yaml.replace("data: { text: [text.txt], tokenizer: bytes, seed: 3 }",
                            f"data: {{ sets: [/data], list: {list_sha256}, vocabulary: 256, seed: 3 }}")
    check("/data" in text, text)
    return field(1, text) + field(2, "run.yaml")


def idle_uploads(eve):
    """Three hundred uploads that say their size and a byte, on ten connections."""
    connections, refused, streams = [eve.connect() for _ in range(10)], 0, []
    for number in range(300):
        connection = connections[number % 10]
        body = chunk(hashlib.sha256(str(number).encode()).hexdigest(), MB, b"x")
        streams.append((connection, eve.open(connection, CONTROL + "UploadBlob", body, end=False)))
    for connection, stream in streams[32:]:
        connection.read(0.001)
    deadline = time.monotonic() + PATIENCE_S
    while refused < 300 - 16 and time.monotonic() < deadline:
        for connection in connections:
            connection.read(0.01)
        refused = sum(connection.statuses.get(stream) == RESOURCE_EXHAUSTED for connection, stream in streams)
    check(refused == 300 - 16, refused, "of 300 uploads were refused")
    said = next(connection.messages[stream] for connection, stream in streams if stream in connection.messages)
    check("uploads under way" in said and "may have 16" in said, said)
    return connections, f"16 of 300 uploads wait, the others heard: {said}"


def deaf_followers(eve, run):
    """Three hundred streams that follow a run, of which nobody reads."""
    connections, streams = [eve.connect() for _ in range(10)], []
    for number in range(300):
        connection = connections[number % 10]
        stream, connection.next = connection.next, connection.next + 2
        connection.open(stream, CONTROL + "WatchRun", "", message(field(1, run)))
        streams.append((connection, stream))
    time.sleep(0.5)  # they are deaf for a while; nothing waits for this
    deadline, refused = time.monotonic() + PATIENCE_S, 0
    while refused < 300 - 32 and time.monotonic() < deadline:
        for connection in connections:
            connection.read(0.01)
        refused = sum(connection.statuses.get(stream) == RESOURCE_EXHAUSTED for connection, stream in streams)
    check(refused == 300 - 32, refused, "of 300 followers were refused")
    for connection in connections:
        connection.close()
    return "32 of 300 followers were served"


def huge_lists(eve, run_yaml):
    """Nine lists of 1.5 MiB, and three submissions with each, at once."""
    connection = eve.connect()
    own = b"a chunk" * 1000
    status, said, own_sha256 = eve.upload(connection, own)
    check(status == 0, said)
    lists = []
    for number in range(9):
        status, said, sha256 = eve.upload(connection, list_of(own_sha256, 25_000, number))
        check(status == 0, said)
        lists.append(sha256)
    streams = [eve.open(connection, CONTROL + "Submit", message(submit_of(run_yaml, sha256)))
               for sha256 in (lists * 4)[:28]]
    connection.wait_ended(*streams)
    outcomes = [(connection.statuses.get(stream), connection.messages.get(stream, "")) for stream in streams]
    connection.close()
    taken = sum(status == 0 for status, _ in outcomes)
    refused = [said for status, said in outcomes if status == RESOURCE_EXHAUSTED]
    check(taken + len(refused) == len(outcomes), outcomes)
    check(0 < taken <= 19 and refused, taken, outcomes[-1])
    return f"{taken} of {len(outcomes)} submissions with nine lists were taken, the others heard: {refused[-1]}"


def gigabyte_list(eve, run_yaml):
    """A list of 1 GiB, and one of a little more than a list may have."""
    connection = eve.connect()
    stream = eve.open(connection, CONTROL + "UploadBlob", chunk("ab" * 32, 1 << 30, b"{"), end=False)
    connection.wait_ended(stream)
    check(connection.statuses.get(stream) == RESOURCE_EXHAUSTED, connection.messages.get(stream))
    large = list_of("ab" * 32, 17 * MB // 64, 0)
    status, said, sha256 = eve.upload(connection, large)
    check(status == 0, said)
    status, said = eve.call(connection, CONTROL + "Submit", submit_of(run_yaml, sha256))
    connection.close()
    check(status not in (0, None) and "its names have more than" in said, status, said)
    return "neither is read"


def blob_flood(eve):
    """Blobs of 4 MiB for as long as they are taken."""
    connection, sent = eve.connect(), 0
    for number in range(100):
        status, said, _ = eve.upload(connection, bytes([number]) * (4 * MB))
        if status != 0:
            break
        sent += 4
    check(status == RESOURCE_EXHAUSTED, status, said)
    check("has sent" in said and "longhaul rm RUN" in said and "longhaul gc" in said, said)
    check(0 < sent < USER_MB, sent)
    status, again, _ = eve.upload(connection, b"z" * (4 * MB))
    check(status == RESOURCE_EXHAUSTED, status, again)
    connection.close()
    return f"{sent} MiB more were taken, then: {said}"


def open_calls(eve):
    """Sixty connections, with thirty questions on each."""
    dialled, connections, refused, answered = [], [], "", 0
    for _ in range(60):
        connection = Connection(Target(eve.address, CONTROL + "Info", tls=tls_as(eve.identity)))
        connection.open(1, CONTROL + "Info", "", message(b""))
        dialled.append(connection)
    for connection in dialled:
        connection.wait_ended(1)
        if connection.statuses.get(1) == RESOURCE_EXHAUSTED:
            refused = connection.messages[1]
            connection.close()
            continue
        check(connection.statuses.get(1) == 0, connection.statuses, connection.messages)
        connections.append(connection)
    check(len(connections) <= 32 and "connections" in refused, len(connections), refused)
    for connection in connections:
        for stream in range(3, 63, 2):
            connection.open(stream, CONTROL + "ListRuns", "", message(b""))
    for connection in connections:
        answered += connection.wait_ended(*range(3, 63, 2))
        connection.close()
    check(answered == 30 * len(connections), answered, "of", 30 * len(connections))
    return f"{len(connections)} of 60 connections, {answered} questions answered; then: {refused}"


def flood(worker, worker_id, body_of, seconds=3):
    """A worker that reports as fast as it may; returns how many reports and bytes were taken."""
    connection = worker.connect()
    # Whatever protocol the coordinator speaks.
    hello = b"".join([field(1, 1), field(2, 1000), field(3, worker_id), field(4, str(time.monotonic_ns())),
                      field(5, "attacker")])
    stream, connection.next = connection.next, connection.next + 2
    connection.open(stream, WORKER + "Session", "", message(field(10, hello)), end=False)
    connection.read(1)
    check(stream not in connection.ended, "the attacker's session was refused", connection.messages)
    reports, sent, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end and not connection.closed and stream not in connection.ended:
        data, at = message(body_of(reports)), 0
        while at < len(data) and time.monotonic() < end and not connection.closed:
            room = min(connection.room(stream), len(data) - at)
            if room <= 0:
                connection.read(0.05)
                continue
            connection.socket.settimeout(PATIENCE_S)
            connection.send_data(stream, data[at:at + room])
            at += room
        connection.read(0)
        reports, sent = reports + 1, sent + at
    check(not connection.closed and stream not in connection.ended, "the session ended", connection.messages)
    connection.close()
    return reports, sent


def report_flood(worker, worker_id, run):
    """Reports of steps far ahead, of 60 KB each: fields that nobody knows."""
    padding = field(900, "x" * 60_000)
    reports, sent = flood(worker, worker_id, lambda number: field(1, run) + field(2, 1) +
                          field(15, field(1, 10**6 + number) + padding))
    check(sent < 24 * MB, sent)  # a burst of 8 MiB, 1 MiB a second, and what is under way
    return f"{reports} reports, {sent / MB:.1f} MiB in 3 s"


def log_flood(worker, worker_id, run):
    """Log lines, errors, samples and link events in turn."""
    bodies = [field(20, field(2, "info") + field(3, "y" * 4000)), field(19, field(1, "z" * 4000)),
              field(70, field(1, 1)), field(21, field(1, 1) + field(2, "lost"))]
    reports, sent = flood(worker, worker_id,
                          lambda number: field(1, run) + field(2, 1) + bodies[number % len(bodies)])
    check(sent < 24 * MB, sent)
    return f"{reports} messages, {sent / MB:.1f} MiB in 3 s"


def others_go_on(cluster, bob, run, what, memory):
    """The victim's run takes steps, and bob submits, asks and stops."""
    before = cluster.step(run)
    begin = time.monotonic()
    own = bob.cli("submit", cluster.write_run("small", steps=5, stages=2, transport="tcp")).split()[0]
    check(run in bob.cli("ps") and own in bob.cli("ps"), "bob's runs are missing")
    bob.cli("stop", own, "--now")
    training.wait_for(f"{own} to end", lambda: bob.cli("status", own) and cluster.seen(own)["state"] in
                      ("stopped", "failed", "done"))
    bob.cli("rm", own)
    seconds = time.monotonic() - begin
    training.wait_for("two more steps", lambda: cluster.step(run) > before + 1)
    grown = ", ".join(f"{n} {mb:+.1f} MB" for n, mb in memory.growth().items())
    print(f"ok: {what}; bob was served in {seconds:.1f} s; {grown}; at {time.monotonic() - BEGIN:.0f} s", flush=True)


def temporary_files(cluster):
    return list((cluster.folder / "coordinator/blobs").glob("tmp-*"))


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-quotas-") as folder:
        training.text_for_training(folder)
        with Limited(sys.argv[1], folder, workers=0) as cluster:
            _, _, proxies = start_workers(cluster)
            for proxy in proxies:
                proxy.pause_s = 0.1  # all its steps are repeated below
            worker = Attacker(cluster.address, worker_identity(cluster))
            worker_id = (cluster.folder / "attacker/worker-id").read_text().strip()
            eve = Attacker(cluster.address, another_user(cluster))
            eve_cli = User(cluster, "eve", cluster.folder / "user.token")
            bob = User(cluster, "bob", new_token(cluster, "user", 1))
            path = cluster.write_run("stormy", steps=STEPS, stages=2, transport="tcp")
            run = bob.cli("submit", path).split()[0]
            training.wait_for(f"step 3 of {run}", lambda: cluster.step(run) >= 3)
            eves = eve_cli.cli("submit", cluster.write_run("eves", stages=2, transport="tcp")).split()[0]
            run_yaml = cluster.write_run("sets", stages=2, transport="tcp").read_text(encoding="utf-8")
            with Memory(cluster.processes) as memory:
                def after(what):
                    others_go_on(cluster, bob, run, what, memory)

                held, said = idle_uploads(eve)
                after(f"idle_uploads: {said}")
                for connection in held:
                    connection.close()
                training.wait_for("what they held to go", lambda: not temporary_files(cluster))
                after(f"deaf_followers: {deaf_followers(eve, eves)}")
                after(f"open_calls: {open_calls(eve)}")
                after(f"gigabyte_list: {gigabyte_list(eve, run_yaml)}")
                after(f"huge_lists: {huge_lists(eve, run_yaml)}")
                after(f"blob_flood: {blob_flood(eve)}")
                after(f"report_flood: {report_flood(worker, worker_id, run)}")
                after(f"log_flood: {log_flood(worker, worker_id, run)}")
            for name, mb in memory.growth().items():
                check(mb < LIMIT_MB, name, f"grew by {mb:.1f} MB")
            # They would have the workers first.
            for line in eve_cli.cli("ps").splitlines()[1:]:
                cluster.cli("stop", line.split()[0], "--now", check=False)
            stormy = cluster.end(run)
            expect_calm_losses("under attack and undisturbed", cluster, bob, proxies, stormy)


if __name__ == "__main__":
    main()
