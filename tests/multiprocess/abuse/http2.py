"""HTTP/2 and gRPC as far as an attacker needs them: standard library only."""
import selectors
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
# Longer than a stranger's connection lives (8 s).
PATIENCE_S = 20


class Target:
    """Where to, a call that is served there, and the right token for attacks from the inside."""

    def __init__(self, address, path, token=""):
        host, port = address.rsplit(":", 1)
        self.address, self.path, self.token = (host.strip("[]"), int(port)), path, token

    def connect(self):
        connection = socket.socket(
            socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET, socket.SOCK_STREAM)
        # What is sent is taken by the other side, but for this much.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE_S)
        connection.connect(self.address)
        return connection


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name, value):
    """HPACK: a literal without indexing, of any length."""

    def text(raw):
        raw = raw.encode("latin-1")
        size, out = len(raw), b""
        if size < 127:
            return bytes([size]) + raw
        out, size = bytes([127]), size - 127
        while size >= 128:
            out, size = out + bytes([size % 128 + 128]), size // 128
        return out + bytes([size]) + raw

    return b"\0" + text(name) + text(value)


def call_headers(path, token=""):
    block = (header(":method", "POST") + header(":scheme", "http") + header(":path", path) +
             header(":authority", "x") + header("te", "trailers") +
             header("content-type", "application/grpc"))
    return block + (header("authorization", "Bearer " + token) if token else b"")


def varint(value):
    out = b""
    while value >= 128:
        out, value = out + bytes([value % 128 + 128]), value // 128
    return out + bytes([value])


def field(number, value):
    """Protocol buffers: an integer, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


CONTROL, WORKER, LINK = "/longhaul.v1.ControlService/", "/longhaul.v1.WorkerService/", "/longhaul.v1.DataLink/Stream"


class Connection:
    """HTTP/2, as far as an attacker needs it: what may be sent is known, what comes is counted."""

    def __init__(self, target):
        self.socket, self.buffer = target.connect(), b""
        self.window, self.windows, self.initial = 65535, {}, 65535
        self.ended, self.frames, self.closed = set(), 0, False
        self.heard = {}  # stream -> what came as DATA
        self.send(PREFACE + frame(SETTINGS, 0, 0))

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True
        return not self.closed

    def open(self, stream, path, token="", body=b"", end=True):
        self.windows[stream] = self.initial
        flags = END_HEADERS | (END_STREAM if end and not body else 0)
        self.send(frame(HEADERS, flags, stream, call_headers(path, token)))
        if body:
            self.send(frame(DATA, END_STREAM if end else 0, stream, body))

    def read(self, seconds):
        """Takes what comes within that time; False when the server has closed."""
        self.socket.settimeout(max(seconds, 0.001))
        try:
            data = self.socket.recv(1 << 16)
            self.closed = self.closed or not data
            self.buffer += data
        except TimeoutError:
            return True
        except OSError:
            self.closed = True
        while len(self.buffer) >= 9:
            size = int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < 9 + size:
                break
            kind, flags = self.buffer[3], self.buffer[4]
            stream = int.from_bytes(self.buffer[5:9], "big") & 0x7fffffff
            self.take(kind, flags, stream, self.buffer[9:9 + size])
            self.buffer = self.buffer[9 + size:]
        return not self.closed

    def take(self, kind, flags, stream, payload):
        self.frames += 1
        if kind in (HEADERS, RST) and (kind == RST or flags & END_STREAM):
            self.ended.add(stream)
        if kind == DATA:
            self.heard[stream] = self.heard.get(stream, b"") + payload
            if flags & END_STREAM:
                self.ended.add(stream)
        elif kind == WINDOW:
            more = int.from_bytes(payload, "big")
            if stream == 0:
                self.window += more
            else:
                self.windows[stream] = self.windows.get(stream, 0) + more
        elif kind == SETTINGS and not flags & 1:
            for at in range(0, len(payload), 6):
                if payload[at:at + 2] == b"\0\4":
                    self.initial = int.from_bytes(payload[at + 2:at + 6], "big")
            self.send(frame(SETTINGS, 1, 0))
        elif kind == PING and not flags & 1:
            self.send(frame(PING, 1, 0, payload))

    def wait_ended(self, *streams):
        """How many of these calls have an end, after waiting for all of them."""
        end = time.monotonic() + PATIENCE_S
        while not self.ended.issuperset(streams) and time.monotonic() < end and self.read(1):
            pass
        return len(self.ended.intersection(streams))

    def introduce(self, token):
        """A call by the book: no stranger any more, so other limits count. Takes stream 1."""
        self.open(1, CONTROL + "Info", token, message(b""))
        assert self.wait_ended(1) == 1, "a call with the right token was not answered"
        return self

    def close(self):
        self.socket.close()


def expect_closed(sockets, what, seconds=PATIENCE_S):
    """Waits until the server has closed all of them."""
    selector, left, begin = selectors.DefaultSelector(), set(), time.monotonic()
    for one in sockets:
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ)
        left.add(one)
    while left and time.monotonic() < begin + seconds:
        for key, _ in selector.select(timeout=1):
            try:
                if key.fileobj.recv(1 << 16):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            selector.unregister(key.fileobj)
            left.discard(key.fileobj)
    assert not left, f"{what}: {len(left)} of {len(sockets)} are open after {seconds} s"
    return time.monotonic() - begin


def pour(connections, rest, seconds):
    """Sends `rest` (connection, stream -> bytes) as far as the server's windows allow."""
    sent, end = 0, time.monotonic() + seconds
    while time.monotonic() < end and any(rest.values()):
        for connection in connections:
            for stream in list(connection.windows):
                left = rest.get((connection, stream), 0)
                if stream in connection.ended or connection.closed:
                    rest[connection, stream] = left = 0
                more = min(connection.window, connection.windows[stream], 16384, left)
                if more <= 0:
                    continue
                connection.send(frame(DATA, 0, stream, b"x" * more))
                connection.window -= more
                connection.windows[stream] -= more
                rest[connection, stream] -= more
                sent += more
            connection.read(0.001)
    return sent


def begin_message(connection, stream, path, token, size):
    connection.open(stream, path, token, b"\0" + struct.pack(">I", size), end=False)
    connection.windows[stream] -= 5
    connection.window -= 5
