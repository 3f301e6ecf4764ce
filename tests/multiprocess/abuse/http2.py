"""HTTP/2 and gRPC as far as an attacker needs them.

Frames are hyperframe's and header blocks hpack's, the two libraries that h2 is made of. h2's own
connection is no use here: it refuses to say what an attacker says (more streams than allowed,
endless headers, a reset behind every call).
"""
import selectors
import socket
import ssl
import struct
import time

from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hyperframe.frame import (DataFrame, Frame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame,
                              WindowUpdateFrame)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Longer than a stranger's connection lives (8 s).
PATIENCE_S = 20


class Target:
    """Where to, a call that is served there, and the right token for attacks from the inside. `tls`: a context;
    `patient`: dials again where a handshake comes to nothing."""

    def __init__(self, address, path, token="", tls=None, patient=False):
        host, port = address.rsplit(":", 1)
        self.address, self.path, self.token = (host.strip("[]"), int(port)), path, token
        self.tls, self.patient = tls, patient

    def connect(self):
        """Another attack on the port may push a connection out before its handshake's end."""
        end = time.monotonic() + PATIENCE_S
        while True:
            connection = self.dial()
            if self.tls is None:
                return connection
            try:
                return self.tls.wrap_socket(connection, server_hostname="coordinator.longhaul")
            except OSError:
                connection.close()
                if not self.patient or time.monotonic() > end:
                    raise

    def dial(self):
        connection = socket.socket(
            socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET, socket.SOCK_STREAM)
        # What is sent is taken by the other side, but for this much.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(PATIENCE_S)
        connection.connect(self.address)
        return connection


def tls_as(identity=None, authority=None):
    """A context that takes any coordinator, or that of an authority (PEM), and shows the key and certificate of a file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname = authority is not None
    context.verify_mode = ssl.CERT_REQUIRED if authority else ssl.CERT_NONE
    if authority:
        context.load_verify_locations(cadata=authority)
    if identity:
        context.load_cert_chain(identity)
    return context


def headers(*fields):
    """A block that stands for itself: no table of either side changes."""
    return Encoder().encode([NeverIndexedHeaderTuple(name, value) for name, value in fields], huffman=False)


def call_headers(path, token=""):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"),
              ("content-type", "application/grpc")]
    return headers(*fields, *([("authorization", "Bearer " + token)] if token else []))


def call_frame(stream, path, token="", flags=("END_HEADERS",)):
    return HeadersFrame(stream, call_headers(path, token), flags=flags)


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
        self.statuses, self.messages, self.decoder = {}, {}, Decoder()  # stream -> of gRPC
        self.send_bytes(PREFACE + SettingsFrame(0).serialize())

    def send_bytes(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True
        return not self.closed

    def send(self, *frames):
        return self.send_bytes(b"".join(one.serialize() for one in frames))

    def send_data(self, stream, data, flags=()):
        self.window -= len(data)
        self.windows[stream] -= len(data)
        self.send(DataFrame(stream, data, flags=flags))

    def room(self, stream):
        """What the server's windows allow in one frame of this stream."""
        return min(self.window, self.windows[stream], 16384)

    def open(self, stream, path, token="", body=b"", end=True):
        self.windows[stream] = self.initial
        last = ("END_STREAM",) if end else ()
        self.send(call_frame(stream, path, token, ("END_HEADERS",) + (() if body else last)))
        if body:
            self.send_data(stream, body, last)

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
            one, size = Frame.parse_frame_header(memoryview(self.buffer[:9]))
            if len(self.buffer) < 9 + size:
                break
            one.parse_body(memoryview(self.buffer[9:9 + size]))
            self.take(one)
            self.buffer = self.buffer[9 + size:]
        return not self.closed

    def take(self, one):
        self.frames += 1
        stream = one.stream_id
        if isinstance(one, RstStreamFrame) or "END_STREAM" in one.flags:
            self.ended.add(stream)
        if isinstance(one, HeadersFrame):
            fields = dict(self.decoder.decode(one.data))
            if "grpc-status" in fields:
                self.statuses[stream] = int(fields["grpc-status"])
                self.messages[stream] = fields.get("grpc-message", "")
        if isinstance(one, DataFrame):
            self.heard[stream] = self.heard.get(stream, b"") + one.data
        elif isinstance(one, WindowUpdateFrame) and stream == 0:
            self.window += one.window_increment
        elif isinstance(one, WindowUpdateFrame):
            self.windows[stream] = self.windows.get(stream, 0) + one.window_increment
        elif isinstance(one, SettingsFrame) and "ACK" not in one.flags:
            self.initial = one.settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, self.initial)
            self.acknowledge(SettingsFrame(0, flags=("ACK",)))
        elif isinstance(one, PingFrame) and "ACK" not in one.flags:
            self.acknowledge(PingFrame(0, one.opaque_data, flags=("ACK",)))

    def acknowledge(self, frame):
        """A busy server may read late, and read() has left a timeout of a moment: a send that fails counts as a cut."""
        self.socket.settimeout(PATIENCE_S)
        self.send(frame)

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
            except (BlockingIOError, ssl.SSLWantReadError):
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
                more = min(connection.room(stream), left)
                if more <= 0:
                    continue
                connection.send_data(stream, b"x" * more)
                rest[connection, stream] -= more
                sent += more
            connection.read(0.001)
    return sent


def begin_message(connection, stream, path, token, size):
    connection.open(stream, path, token, b"\0" + struct.pack(">I", size), end=False)
