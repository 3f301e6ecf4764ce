"""Traffic between two namespaces, for the tests of a cluster's links. Prints one JSON object.

traffic.py duplex-listen ADDRESS SECONDS   TCP both ways at once: payload bytes received,
traffic.py duplex-dial ADDRESS SECONDS     goodput (the first second left out), and by the
                                           machine's monotonic clock when it began, before the
                                           first byte was sent, and when the last one came
traffic.py echo ADDRESS SECONDS            UDP: sends back what comes
traffic.py ping ADDRESS SECONDS            UDP: round trips of 100-byte packets, 20 a second
traffic.py datagrams ADDRESS COUNT         UDP: COUNT packets of 1000 bytes
traffic.py numbered ADDRESS COUNT          UDP: COUNT numbered packets, then says their end
traffic.py count ADDRESS SECONDS           UDP: counts these till their end
"""
import json
import socket
import statistics
import sys
import threading
import time

PORT = 5001


def send_for(connection, end):
    block = bytes(65536)
    while time.monotonic() < end:
        connection.sendall(block)
    connection.shutdown(socket.SHUT_WR)


def duplex(connection, seconds, began):
    connection.settimeout(seconds + 30)
    sender = threading.Thread(
        target=send_for, args=(connection, time.monotonic() + seconds))
    sender.start()
    total, late, first, last, counted_from = 0, 0, None, None, None
    while True:
        data = connection.recv(1 << 20)
        if not data:
            break
        last = time.monotonic()
        total += len(data)
        first = first or last
        if counted_from is not None:
            late += len(data)
        elif last - first >= 1:
            counted_from = last
    sender.join()
    print(json.dumps({"bytes": total, "goodput": late * 8 / (last - counted_from),
                      "began": began, "ended": last}))


def connect(address, deadline=10):
    end = time.monotonic() + deadline
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=2)
        except OSError:
            if time.monotonic() > end:
                raise


def echo(address, seconds):
    end = time.monotonic() + seconds
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, PORT))
    print("listening", flush=True)
    while (left := end - time.monotonic()) > 0:
        server.settimeout(left)
        try:
            server.sendto(*server.recvfrom(2000))
        except TimeoutError:
            break
    print("{}")


def ping(address, seconds):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(1)
    times = []
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        begin = time.monotonic()
        payload = number.to_bytes(8, "big") + bytes(92)
        client.sendto(payload, (address, PORT))
        try:
            while client.recv(2000) != payload:
                pass
            times.append(time.monotonic() - begin)
        except (TimeoutError, ConnectionRefusedError):
            pass
        time.sleep(max(0.0, begin + 0.05 - time.monotonic()))
    print(json.dumps({"answers": len(times), "sent": number,
                      "median": statistics.median(times) if times else None,
                      "least": min(times, default=None), "most": max(times, default=None)}))


def datagrams(address, count):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.sendto(b"x", (address, PORT))  # resolves the neighbour's address first
    time.sleep(0.2)
    for _ in range(count):
        client.sendto(bytes(1000), (address, PORT))
        time.sleep(0.002)
    print("{}")


SO_RCVBUFFORCE = 33  # of <asm-generic/socket.h>; Python has no name for it
END = (1 << 63).to_bytes(8, "big")


def numbered(address, count):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(0.2)
    for number in range(count):
        client.sendto(number.to_bytes(8, "big") + bytes(992), (address, PORT))
        time.sleep(0.001)
    # The end may get lost, or its answer.
    end = time.monotonic() + 30
    while time.monotonic() < end:
        client.sendto(END, (address, PORT))
        try:
            if client.recv(100) == END:
                break
        except (TimeoutError, ConnectionRefusedError):
            pass
    print("{}")


def count(address, seconds):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # The kernel keeps all datagrams that arrive while this process stands still.
    server.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    server.bind((address, PORT))
    server.settimeout(seconds)
    print("listening", flush=True)
    came, out_of_order, last = 0, [], -1
    while True:
        data, peer = server.recvfrom(2000)
        if data == END:
            for _ in range(10):
                server.sendto(END, peer)
            break
        number = int.from_bytes(data[:8], "big")
        came += 1
        if number < last:
            out_of_order.append([last, number])
        last = number
    print(json.dumps({"came": came, "out_of_order": out_of_order}))


def main():
    mode, address, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if mode == "duplex-listen":
        server = socket.create_server((address, PORT))
        server.settimeout(10)
        began = time.monotonic()
        duplex(server.accept()[0], number, began)
    elif mode == "duplex-dial":
        began = time.monotonic()
        duplex(connect(address), number, began)
    elif mode == "echo":
        echo(address, number)
    elif mode == "ping":
        ping(address, number)
    elif mode == "datagrams":
        datagrams(address, number)
    elif mode == "numbered":
        numbered(address, number)
    elif mode == "count":
        count(address, number)
    else:
        sys.exit(__doc__)


main()
