"""What strangers do to any port at all: garbage, half-open connections, slow writers and slow readers.

An attack is a function of a Port. It returns a sentence, and raises AssertionError where the port did not defend itself.
"""
import random
import socket
import ssl
import struct
import time

from hpack import Encoder
from hyperframe.frame import ContinuationFrame, HeadersFrame, PingFrame, SettingsFrame, WindowUpdateFrame

from http2 import PATIENCE_S, PREFACE, call_frame, call_headers, expect_closed


def client_hello():
    """The first message of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="coordinator.longhaul").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


CLIENT_HELLO = client_hello()


class Port:
    """One port of a daemon. `greeting`: the first bytes of a proper client, after which garbage may be sent. `served`: a
    proper client's visit, which raises where it fails. `takes`: how many strangers it takes at once. `waits`: it lets a caller say its
    request as slowly as the caller likes."""

    def __init__(self, name, daemon, address, greeting, served, takes=128, tls=False, http2=False, waits=False):
        host, port = address.rsplit(":", 1)
        self.name, self.daemon, self.address = name, daemon, (host.strip("[]"), int(port))
        self.greeting, self.served, self.takes, self.tls, self.http2, self.waits = greeting, served, takes, tls, http2, waits

    def connect(self, receive_buffer=None):
        one = socket.socket(socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.settimeout(PATIENCE_S)
        one.connect(self.address)
        return one

    def secured(self, receive_buffer=None):
        """The same behind TLS, where the port has it, without a certificate. Dials again where others push it out."""
        end = time.monotonic() + PATIENCE_S
        while True:
            one = self.connect(receive_buffer)
            if not self.tls:
                return one
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.set_alpn_protocols(["h2"])
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            try:
                return context.wrap_socket(one, server_hostname="coordinator.longhaul")
            except OSError:
                one.close()
                if time.monotonic() > end:
                    raise

    def few(self, number):
        """Ports that serve their callers one after the other would take minutes to get through many silent ones."""
        return min(number, self.takes)


def pushed(one, data):
    """Whether all of it was taken."""
    try:
        one.sendall(data)
        return True
    except OSError:
        return False


def close_all(sockets):
    for one in sockets:
        one.close()


def garbage(port):
    """Random bytes; half of the connections greet properly first."""
    chance, sockets = random.Random(port.name), []
    number = 4 * port.few(40)
    for i in range(number):
        one = port.connect()
        pushed(one, (port.greeting if i % 2 else b"") + chance.randbytes(1 + chance.randrange(5000)))
        sockets.append(one)
    # One that may still mean to go on is waited for; a proper client ends what it says.
    for one in sockets:
        try:
            one.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    seconds = expect_closed(sockets, f"{port.name}: garbage")
    close_all(sockets)
    return f"{number} connections, closed within {seconds:.1f} s"


def truncated(port):
    """A proper greeting that breaks off, at every place."""
    for end in range(1, len(port.greeting) + 1):
        one = port.connect()
        pushed(one, port.greeting[:end])
        # Every other one by a reset.
        if end % 2:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    return f"{len(port.greeting)} connections, each cut one byte later"


def half_open(port):
    """Connections that say nothing, and that stop in the middle of a greeting or of a TLS handshake."""
    sockets, number = [], port.few(400)
    for i in range(number):
        one = port.connect()
        if i % 3:
            pushed(one, CLIENT_HELLO if i % 3 == 1 else port.greeting[:len(port.greeting) // 2])
        sockets.append(one)
    seconds = expect_closed(sockets, f"{port.name}: half-open connections", seconds=2 * PATIENCE_S)
    close_all(sockets)
    return f"{number} connections, closed within {seconds:.1f} s"


def slow_writers(port):
    """A proper greeting, a byte at a time, without an end."""
    number, patience_s = port.few(60), 4 if port.waits else 2 * PATIENCE_S
    sockets, at, begin = [port.connect() for _ in range(number)], 0, time.monotonic()
    data, left = port.greeting[:-2] + b"a" * 4096, list(sockets)
    while left and time.monotonic() < begin + patience_s:
        left = [one for one in left if pushed(one, data[at:at + 1])]
        at += 1
        time.sleep(0.3)
    assert port.waits or not left, f"{port.name}: {len(left)} of {number} slow writers are served after {patience_s} s"
    close_all(sockets)
    if port.waits:
        return f"{number} connections, {len(left)} of them open until they hung up"
    return f"{number} connections, closed within {time.monotonic() - begin:.1f} s"


def slow_readers(port):
    """Whole requests, as many as are taken, whose answers nobody reads."""
    number, sent = port.few(24), 0
    sockets = [port.secured(receive_buffer=4096) for _ in range(number)]
    request = port.greeting if not port.http2 else PREFACE + SettingsFrame(0).serialize()
    more = port.greeting if not port.http2 else b"".join(PingFrame(0, b"12345678").serialize() for _ in range(64))
    end = time.monotonic() + PATIENCE_S
    for one in sockets:
        one.settimeout(0.2)
        data, taken = request, 0
        # An endless appetite would show in the daemon's memory.
        while taken < 4 << 20 and time.monotonic() < end and pushed(one, data):
            taken, data = taken + len(data), more
        sent += taken
    close_all(sockets)
    return f"{sent / 1e6:.1f} MB of requests on {number} connections, no answer read"


# HTTP/2 -----------------------------------------------------------------------------------------------------------


def until_cut(port, first, again, most):
    """Says `first` once, then `again` until the port hangs up; how much it took. Fails if it takes `most` bytes."""
    one, sent = port.secured(), 0
    if pushed(one, PREFACE + SettingsFrame(0).serialize() + first):
        one.settimeout(1)
        end = time.monotonic() + PATIENCE_S
        while sent < most and time.monotonic() < end:
            try:
                one.sendall(again)
                sent += len(again)
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            raise AssertionError(f"{port.name}: a stranger could send {sent} bytes, and is still connected")
    one.close()
    return sent


MOST = 8 << 20


def settings_flood(port):
    frame = SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 1, SettingsFrame.HEADER_TABLE_SIZE: 4096})
    return f"{until_cut(port, b'', frame.serialize() * 200, MOST)} bytes of settings, then cut"


def window_flood(port):
    frames = WindowUpdateFrame(0, window_increment=1).serialize() * 300
    return f"{until_cut(port, b'', frames, MOST)} bytes of window updates, then cut"


def continuation_flood(port):
    first = HeadersFrame(1, call_headers("/longhaul.v1.ControlService/Info"), flags=()).serialize()
    sent = until_cut(port, first, ContinuationFrame(1, b"").serialize() * 300, MOST)
    return f"{sent} bytes of empty continuations, then cut"


def header_bomb(port):
    """A table entry of 4 KB that one byte names, again and again: little to send, much to unpack."""
    encoder = Encoder()
    block = encoder.encode([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "x"),
                            ("bomb", "b" * 4000)])
    one = port.secured()
    pushed(one, PREFACE + SettingsFrame(0).serialize() + HeadersFrame(1, block, flags=("END_HEADERS",)).serialize())
    # 0xbe: the first entry of the dynamic table.
    for stream in range(3, 41, 2):
        if not pushed(one, HeadersFrame(stream, b"\xbe" * 15000, flags=("END_HEADERS",)).serialize()):
            break
    seconds = expect_closed([one], f"{port.name}: a header bomb")
    one.close()
    return f"60 MB in 15 KB of headers, cut within {seconds:.1f} s"


def resets_with_data(port):
    """Calls that are begun, given a byte, and left open, more than a connection may have."""
    frames = b"".join(call_frame(stream, "/longhaul.v1.ControlService/Info").serialize() for stream in range(1, 401, 2))
    sent = until_cut(port, frames, PingFrame(0, b"12345678").serialize() * 100, MOST)
    return f"200 open calls and {sent} bytes, then cut"


# Side by side, and those whose outcome others would change, one after the other.
FLOODS = [garbage, truncated, half_open, slow_writers]
SINGLE = [slow_readers]
HTTP2 = [settings_flood, window_flood, continuation_flood, header_bomb, resets_with_data]
