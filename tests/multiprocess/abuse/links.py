"""What hostile peers do to a worker's data port (docs/design/formats.md), and between two workers."""
import ctypes
import random
import socket
import struct
import threading
import time

from attacker import idle_connections, random_bytes, slow_loris
from http2 import LINK, PATIENCE_S, Connection, Target, expect_closed, message

HELLO, REFUSE, SENT = 1, 3, 4
xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
xxh3.restype, xxh3.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]


def link_frame(kind, payload, version=2, lane=0, sequence=0, link_id=7, claimed=None):
    def head(checksum):
        return struct.pack("<4sHBBQQIIQQ16s", b"LHLK", version, kind, lane, sequence, 0, 1,
                           len(payload) if claimed is None else claimed, checksum, link_id, b"")

    whole = head(0) + payload
    return head(xxh3(whole, len(whole))) + payload


def hello(run, epoch, versions=(2, 2), stage=1, attempt=0, proof=b""):
    run = run.encode()
    return struct.pack("<BxHHHQIIQ32s32s", stage, *versions, len(run), epoch, 0, attempt, 0, b"n" * 32, proof) + run


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


class Proxy:
    """Passes bytes both ways between whoever dials `address` and `target`, at leisure where `pause_s` says so, and
    flips bits."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.target = None  # who dials before it is known waits
        self.pause_s = 0
        self.wanted, self.flips, self.connections = 0, 0, 0
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            one, _ = self.listener.accept()
            self.connections += 1
            while self.target is None:  # another worker tries this one before the test has read its log
                time.sleep(0.05)
            host, port = self.target.rsplit(":", 1)
            other = socket.create_connection((host, int(port)))
            for ends in ((one, other), (other, one)):
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    def copy(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                time.sleep(self.pause_s)
                # In the middle of something long: a tensor, not the few bytes around it.
                with self.lock:
                    if self.flips < self.wanted and len(data) > 1000:
                        data, self.flips = flipped(data, len(data) // 2), self.flips + 1
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class StreamTarget(Target):
    """A port of plain TCP, where frames follow one another."""

    def __init__(self, address):
        super().__init__(address, path=None)


def say_plainly(target, data):
    connection, answer = target.connect(), b""
    try:
        connection.sendall(data)
        while len(answer) < 7 and (more := connection.recv(1 << 12)):
            answer += more
    except ConnectionError:
        pass  # cut; where nothing comes at all for long, TimeoutError says so
    connection.close()
    return answer[6:7]


def say(target, data):
    """Opens a stream with one message; True if it was told why not, False if it was cut."""
    answer = say_plainly(target, data) if isinstance(target, StreamTarget) else say_in_a_call(target, data)
    assert answer in (b"", bytes([REFUSE])), f"a stranger got a frame of kind {answer[0]}"
    return bool(answer)


def say_in_a_call(target, data):
    connection, answer, end = Connection(target), b"", time.monotonic() + PATIENCE_S
    connection.open(1, LINK, body=message(data), end=False)
    while not (connection.closed or 1 in connection.ended or answer):
        assert time.monotonic() < end, "a stranger's stream goes on"
        connection.read(1)
        answer = connection.heard.get(1, b"")[5 + 6:5 + 7]  # the kind, behind gRPC's own header
    connection.close()
    return answer


def held_frames(target):
    """Hellos that claim to be as long as a frame may be, and never end."""
    sockets, sent = [target.connect() for _ in range(100)], 0
    begin = link_frame(HELLO, b"", claimed=65536)
    for one in sockets:
        try:
            one.sendall(begin)
            for _ in range(60):
                one.sendall(b"x" * 1000)
                sent += 1000
        except OSError:
            pass  # cut
    seconds = expect_closed(sockets, "frames that never end")
    for one in sockets:
        one.close()
    return f"{sent / 1e6:.1f} MB of 100 frames that never end, all cut within {seconds:.1f} s"


def strange_hellos(target, run):
    """Versions, runs and epochs of others, damaged hellos and lies about lengths."""
    right, chance, refused = hello(run, 1), random.Random(2), 0
    tries = {
        "frame of another version": link_frame(HELLO, right, version=9),
        "versions of another release": link_frame(HELLO, hello(run, 1, versions=(7, 9))),
        "another run": link_frame(HELLO, hello("no-such-run", 1)),
        "another epoch": link_frame(HELLO, hello(run, 99)),
        "this run, which has its link": link_frame(HELLO, right),
        "taking over the link": link_frame(HELLO, hello(run, 1, attempt=1)),
        "a proof out of turn": link_frame(HELLO, hello(run, 1, stage=2, proof=chance.randbytes(32))),
        "data without a hello": link_frame(SENT, b"x" * 5000, sequence=1),
        "a length that is not there": link_frame(HELLO, right, claimed=0xffffffff),
        "nothing": b"",
    }
    for at in range(8 * 64, 8 * (64 + len(right)), 37):
        tries[f"bit {at} flipped"] = flipped(link_frame(HELLO, right), at // 8)
    for data in tries.values():
        refused += say(target, data)
    return f"{refused} of {len(tries)} were told why, the others cut"


def many_hellos(target, run):
    """The same refused hello again and again, for the log."""
    for number in range(200):
        say(target, link_frame(HELLO, hello(run, 1000 + number)))
    return "200 refused"


LINK_ATTACKS = [strange_hellos, many_hellos]
STREAM_ATTACKS = [random_bytes, idle_connections, slow_loris, held_frames]
