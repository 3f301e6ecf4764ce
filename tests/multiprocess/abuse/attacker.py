"""What hostile peers do to a port that speaks gRPC: one function per attack.

usage: attacker.py HOST:PORT [--token-file FILE] [ATTACK...]    (the coordinator's port)

Every attack returns a sentence that says what it did and what came back, and raises AssertionError
where the server did not defend itself (a connection that should have been closed is still open).
"""
import argparse
import random
import time

from hyperframe.frame import ContinuationFrame, DataFrame, PingFrame, RstStreamFrame, SettingsFrame

from http2 import (CONTROL, PATIENCE_S, PREFACE, WORKER, Connection, Target, begin_message, call_frame, expect_closed,
                   field, headers, message, pour)


def random_bytes(target):
    """Connections that begin with anything."""
    chance, sockets = random.Random(1), []
    for i in range(200):
        one = target.connect()
        try:
            one.sendall((PREFACE if i % 2 else b"") + chance.randbytes(1 + chance.randrange(4096)))
        except OSError:
            pass  # closed already
        sockets.append(one)
    seconds = expect_closed(sockets, "random bytes")
    for one in sockets:
        one.close()
    return f"200 connections, all closed by the server within {seconds:.1f} s"


def truncated_frames(target):
    """HTTP/2 that breaks off in the middle of a frame, at every place of the beginning of a call."""
    call = PREFACE + b"".join(one.serialize() for one in (
        SettingsFrame(0), call_frame(1, target.path, "x"), DataFrame(1, message(b""), flags=("END_STREAM",))))
    for end in range(1, len(call)):
        one = target.connect()
        one.sendall(call[:end])
        one.close()
    # A whole call still has an end, or is cut where it has to be: behind a port of TLS.
    connection = Connection(target)
    connection.open(1, target.path, "", message(b""))
    assert connection.wait_ended(1) == 1 or connection.closed, "a whole call is not dealt with any more"
    connection.close()
    return f"{len(call) - 1} connections cut at every byte"


def idle_connections(target):
    """A thousand connections that say nothing."""
    sockets = [target.connect() for _ in range(1000)]
    seconds = expect_closed(sockets, "idle connections")
    for one in sockets:
        one.close()
    return f"1000 connections, all closed by the server within {seconds:.1f} s"


def slow_loris(target):
    """Connections that speak HTTP/2 a byte at a time, and never get to a call."""
    sockets, begin, at = [target.connect() for _ in range(200)], time.monotonic(), 0
    hello, left = PREFACE + SettingsFrame(0).serialize() * 100, list(sockets)
    while left and time.monotonic() < begin + PATIENCE_S:
        for one in list(left):
            try:
                one.sendall(hello[at:at + 1])
            except OSError:
                left.remove(one)
        at += 1
        time.sleep(0.3)
    assert not left, f"{len(left)} of 200 slow connections are open after {PATIENCE_S} s"
    for one in sockets:
        one.close()
    return f"200 connections, all closed by the server within {time.monotonic() - begin:.1f} s"


def held_messages(target, claimed=(2 << 20) - 100):
    """As much as the server takes of messages that never end, on many calls without a token."""
    connections, rest = [Connection(target) for _ in range(32)], {}
    for connection in connections:
        connection.read(0.5)
        for stream in range(1, 61, 2):
            begin_message(connection, stream, target.path, "", claimed)
            rest[connection, stream] = claimed - 1
    sent = pour(connections, rest, PATIENCE_S)
    assert all(connection.closed for connection in connections), "a stranger may talk for ever"
    for connection in connections:
        connection.close()
    return f"{sent / 1e6:.1f} MB taken of messages of {claimed / 1e6:.0f} MB that never end, then cut"


def held_huge_messages(target):
    """The same with messages that claim to be as large as the protocol can say."""
    return held_messages(target, claimed=0xffffffff)


def endless_headers(target):
    """A call whose headers go on for ever."""
    sent = 0
    for _ in range(4):
        connection, taken = Connection(target), 0
        connection.send(call_frame(1, target.path, flags=()))
        block = headers(("x-" + "y" * 50, "z" * 16000))
        while taken < 1 << 20 and connection.send(ContinuationFrame(1, block)):
            taken += len(block)
            connection.read(0.0)
        assert taken < 1 << 20, "a stranger may send headers for ever"
        sent += taken
        connection.close()
    return f"{sent / 1e6:.0f} MB of headers"


def rapid_reset(target):
    """Calls that are taken back as fast as they are made."""
    connection, number = Connection(target), 0
    for number in range(10000):
        stream = 2 * number + 1
        if not connection.send(call_frame(stream, target.path), RstStreamFrame(stream, error_code=8)):
            break
    connection.close()
    assert number < 9999, "a stranger may call for ever"
    return f"{number + 1} calls, then cut"


def ping_flood(target):
    connection, number = Connection(target), 0
    for number in range(20000):
        if not connection.send(PingFrame(0, b"12345678"), SettingsFrame(0)):
            break
        if number % 100 == 0:
            connection.read(0.0)
    connection.close()
    assert number < 19999, "a stranger may ping for ever"
    return f"{number + 1} pings and settings, then cut"


def wrong_tokens(target):
    """Calls with no token, a wrong one, and one that is nearly right."""
    tokens = ["", "wrong", "x" * 3000, target.token[:-1] + "?", target.token + "?"]
    answered = sent = 0
    for _ in range(16):
        connection = Connection(target)
        for number in range(10):
            token, path = tokens[number % 5], (CONTROL + "Info", WORKER + "Session")[number % 2]
            connection.open(2 * number + 1, path, token, message(b""))
            sent += 1
        answered += connection.wait_ended(*range(1, 21, 2))
        connection.close()
    assert answered == sent, f"{answered} of {sent} calls were answered"
    return f"{sent} calls, all answered"


def oversized_messages(target):
    """Messages that are larger than any may be, from somebody with the token."""
    for size in (5 << 20, 0xffffffff):
        connection = Connection(target).introduce(target.token)
        begin_message(connection, 3, CONTROL + "Submit", target.token, size)
        pour([connection], {(connection, 3): 5 << 20}, 5)
        ended = connection.closed or (size == 5 << 20 and connection.wait_ended(3) == 1)
        assert ended or size > 5 << 20, f"a call with a message of {size} bytes goes on"
        connection.close()
    return "a call with a message of 5 MiB was ended"


def other_runs(target):
    """Calls with the right token about runs that are not there, and with nonsense in them."""
    bodies = [field(1, "no-such-run"), field(1, "\x1b[2J" * 100), field(1, "x" * 100000), b"\xff" * 50, b""]
    paths = ["GetRun", "StopRun", "WatchRun", "ListLogs", "ListSteps", "Submit", "PlanRun",
             "UploadBlob", "MissingBlobs", "ListEvents"]
    answered = sent = 0
    for body in bodies:
        connection = Connection(target).introduce(target.token)
        for number, path in enumerate(paths):
            connection.open(2 * number + 3, CONTROL + path, target.token, message(body)[:16000])
            sent += 1
        answered += connection.wait_ended(*range(3, 2 * len(paths) + 3, 2))
        # Nonsense is told what is wrong; lists of what is there are not.
        assert all(code != 2 for code in connection.statuses.values()), connection.messages
        connection.close()
    assert answered == sent, f"{answered} of {sent} calls were answered"
    return f"{sent} calls, all answered"


def false_worker(target, run):
    """A worker with the right token that reports, as fast as it can, about a run it has no part in."""
    hello = b"".join([field(1, 7), field(2, 7), field(3, target.worker_id), field(4, "1"),
                      field(5, "attacker")])
    connection = Connection(target).introduce(target.token)
    connection.open(3, WORKER + "Session", target.token, message(field(10, hello)), end=False)
    connection.read(1)
    line = field(20, field(2, "info") + field(3, "\x1b[31mforged\n2026-01-01 error: " + "y" * 6000))
    step = field(14, field(1, 10**6) + field(2, 0))
    sent, begin = 0, time.monotonic()
    end = begin + 5
    while time.monotonic() < end and not connection.closed:
        body = field(1, run) + field(2, 1) + (line if sent % 2 else step)
        data = message(body)
        if connection.room(3) < len(data):
            connection.read(0.05)
            continue
        connection.send_data(3, data)
        sent += 1
        connection.read(0.0)
    # A burst of 2,000, then 1,000 a second, and what the session's window holds.
    most = 2000 + 1000 * (time.monotonic() - begin) + 1000
    assert sent < most, f"{sent} reports were taken in 5 s, expected at most {most:.0f}"
    assert sent > 100, f"{sent} reports were taken in 5 s: the session is not one of a worker"
    connection.close()
    return f"{sent} reports in 5 s"


def huge_report(target):
    """A worker's message that is larger than any of ours."""
    hello = b"".join([field(1, 7), field(2, 7), field(3, target.worker_id), field(4, "2"),
                      field(5, "attacker")])
    connection = Connection(target).introduce(target.token)
    connection.open(3, WORKER + "Session", target.token, message(field(10, hello)), end=False)
    body, at = message(field(1, "x" * 200000)), 0
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and 3 not in connection.ended and connection.read(0.05):
        more = min(connection.room(3), len(body) - at)
        if more > 0:
            connection.send_data(3, body[at:at + more])
            at += more
    assert 3 in connection.ended, "a report of 200 kB did not end its session"
    connection.close()
    return "the session was ended"


def foreign_hash(target, sha256, size, run_yaml):
    """A run over data of which this user knows the hash and has not sent the bytes, whole or in part."""
    file = field(1, "corpus.txt") + field(2, sha256) + field(3, size)
    submit = message(field(1, run_yaml) + field(2, "run.yaml") + field(4, file))
    connection = Connection(target).introduce(target.token)
    upload = message(field(1, sha256) + field(2, size) + field(3, "x"))
    connection.open(3, CONTROL + "UploadBlob", target.token, upload)
    connection.wait_ended(3)
    for stream, path, body in ((5, "Submit", submit), (7, "PlanRun", submit),
                               (9, "FetchBlob", message(field(1, sha256)))):
        connection.open(stream, CONTROL + path, target.token, body)
        connection.wait_ended(stream)
    said = [connection.messages[stream] for stream in (3, 5, 7, 9)]
    connection.close()
    assert "1 came" in said[0], said
    assert f"has no blob {sha256}" in said[1] and said[1] == said[2], said
    assert "names this blob" in said[3], said
    return "neither submitted nor planned nor fetched"


# On any port of ours that speaks gRPC, by somebody without a token.
QUICK_ATTACKS = [random_bytes, truncated_frames, endless_headers, rapid_reset, ping_flood]
SLOW_ATTACKS = [slow_loris, held_messages, held_huge_messages]
PORT_ATTACKS = QUICK_ATTACKS + [idle_connections] + SLOW_ATTACKS
# On the coordinator's; all but the first by somebody with the token.
CONTROL_ATTACKS = [wrong_tokens, oversized_messages, other_runs]
# By a member that is a worker.
WORKER_ATTACKS = [huge_report]
# The same, and they name a run.
RUN_ATTACKS = [false_worker]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    attacks = {attack.__name__: attack for attack in PORT_ATTACKS + CONTROL_ATTACKS + WORKER_ATTACKS}
    parser.add_argument("address")
    parser.add_argument("attacks", nargs="*", help=", ".join(attacks))
    parser.add_argument("--token-file")
    arguments = parser.parse_args()
    token = ""
    if arguments.token_file:
        with open(arguments.token_file, encoding="utf-8") as file:
            token = file.readline().strip()
    target = Target(arguments.address, CONTROL + "Info", token)
    target.worker_id = "an-attacker"
    for name in arguments.attacks or attacks:
        print(f"{name}: {attacks[name](target)}", flush=True)


if __name__ == "__main__":
    main()
