"""What hostile clients say to a port that speaks HTTP/1.1: the dashboard's and that of metrics."""
import time

from floods import close_all, pushed
from http2 import PATIENCE_S, expect_closed

HEAD = b"Host: localhost\r\nConnection: close\r\n"


def answer(port, request, seconds=PATIENCE_S):
    """What comes back until the server hangs up."""
    one, got, end = port.connect(), b"", time.monotonic() + seconds
    try:
        one.sendall(request)
        while more := one.recv(1 << 16):
            got += more
            assert time.monotonic() < end, f"{port.name}: an answer without an end"
            assert len(got) < 64 << 20, f"{port.name}: an answer of more than 64 MB"
    except ConnectionError:
        pass  # cut
    finally:
        one.close()
    return got


def status(got):
    """The code of an answer; 0: hung up without one."""
    return int(got.split()[1]) if got.startswith(b"HTTP/1.") else 0


def get(path, *headers):
    return b"GET " + path + b" HTTP/1.1\r\n" + HEAD + b"".join(one + b"\r\n" for one in headers) + b"\r\n"


def page(port):
    """What a proper client asks this port for."""
    return port.greeting.split()[1]


def queries(port):
    """Numbers, names and escapes that nobody asks for."""
    paths = [b"/api/steps?run=x&points=" + value for value in
             (b"-1", b"0", b"99999999999999999999", b"1e9", b"%00", b"", b"4&points=4&points=5")]
    paths += [b"/api/events?after=18446744073709551616", b"/api/run?run=" + b"%2e%2e%2f" * 500,
              b"/api/run?" + b"&".join(b"run=%d" % i for i in range(5000))[:7000],
              b"/report?name=../../../../etc/passwd", b"/report?name=%2fetc%2fpasswd", b"/report?name=%00",
              b"/../../etc/passwd", b"//etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/api/" + b"a" * 7000]
    codes = []
    for path in paths:
        got = answer(port, get(path))
        assert b"root:" not in got, f"{port.name}: {path} gives a file of the machine"
        codes.append(status(got))
        assert codes[-1] < 500, f"{port.name}: {path[:60]} is answered with {codes[-1]}"
    return f"{len(paths)} requests: {sorted(set(codes))}"


def ranges(port):
    """Ranges of a page: thousands, overlapping ones, none that can be."""
    codes = set()
    for value in (b"bytes=0-", b"bytes=" + b",".join(b"%d-" % i for i in range(1500)), b"bytes=5-1", b"bytes=-0",
                  b"bytes=0-0,0-0,0-0", b"bytes=18446744073709551615-18446744073709551616", b"bytes=a-b",
                  b"bytes=" + b"0-99999999," * 700 + b"0-1"):
        got = answer(port, get(page(port), b"Range: " + value))
        codes.add(status(got))
        assert len(got) < 32 << 20, f"{port.name}: {len(got)} bytes for the ranges {value[:40]}"
    return f"answers {sorted(codes)}"


def huge_requests(port):
    """Lines, headers and bodies without an end; each is cut, and soon."""
    sockets = []
    for first, more in ((b"GET /" + b"a" * 100, b"a" * 1000), (b"GET / HTTP/1.1\r\n" + HEAD + b"X: ", b"x" * 1000),
                        (b"GET / HTTP/1.1\r\n" + HEAD, b"X: y\r\n" * 200),
                        (b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 99999999999\r\n\r\n", b"b" * 1000),
                        (b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
                         b"3e8\r\n" + b"c" * 1000 + b"\r\n")):
        one, sent = port.connect(), 0
        pushed(one, first)
        one.settimeout(5)
        while sent < 8 << 20 and pushed(one, more):
            sent += len(more)
        assert sent < 8 << 20, f"{port.name}: took 8 MB of {first[:40]}"
        sockets.append(one)
    seconds = expect_closed(sockets, f"{port.name}: huge requests")
    close_all(sockets)
    return f"{len(sockets)} requests without an end, all cut within {seconds:.1f} s"


def pipelined(port):
    """Hundreds of requests in one go, none of whose answers is read for a while."""
    one = port.connect(receive_buffer=4096)
    one.settimeout(1)
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sent = 0
    while sent < 2000 and pushed(one, request * 20):
        sent += 20
    seconds = expect_closed([one], f"{port.name}: pipelined requests", seconds=2 * PATIENCE_S)
    one.close()
    return f"{sent} requests, cut within {seconds:.1f} s"


def smuggled(port):
    """Requests whose length can be read in two ways, and versions that there are not."""
    codes = set()
    for request in (b"GET / HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
                    b"GET / HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET\r\n\r\n", b"\r\n\r\n",
                    b"GET / HTTP/1.1\r\nHost: localhost\0evil\r\n\r\n", b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n",
                    b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n"):
        one = port.connect()
        got = b""
        try:
            one.sendall(request)
            one.shutdown(1)
            while more := one.recv(1 << 16):
                got += more
        except ConnectionError:
            pass
        one.close()
        codes.add(status(got))
        assert b"ssh" not in got.lower()[:20], f"{port.name}: reaches other services"
    return f"answers {sorted(codes)}"


WEB = [queries, ranges, huge_requests, pipelined, smuggled]
