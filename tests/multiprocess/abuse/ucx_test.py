"""Strangers at the ports of UCX, which end a worker with a hundred bytes if they get through (docs/gotchas/transport.md).

usage: ucx_test.py BIN_DIR

Two workers at 127.0.0.1 train over ucx. Strangers at 127.0.0.2 dial all ports that UCX opened, before the run, while it
trains and after it. The kernel answers none of them, no worker ends, and the losses are those of an undisturbed run.
"""
import contextlib
import ctypes
import pathlib
import socket
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
# pylint: disable=wrong-import-position
from training_test import DEADLINE_S, Cluster, expect_equal, text_for_training

STRANGER = "127.0.0.2"
# What TCP_INFO calls a connection whose first packet nobody has answered.
SYN_SENT = 2
CLONE_NEWNET = 0x40000000
# A length, a word of UCX's handshake, and more bytes than the length says: UCX 1.13 aborts.
DEADLY = b"\x40\0\0\0\0\0\0\0\x01" + bytes(range(100))


def listening_ports(pid):
    """The TCP ports at which the process listens over IPv4."""
    sockets = {}
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text(encoding="utf-8").splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":  # LISTEN
            sockets[f"socket:[{fields[9]}]"] = int(fields[1].split(":")[1], 16)
    links = [str(fd.readlink()) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
    return {sockets[link] for link in links if link in sockets}


class Strangers:
    """Dial ports from another host, and send what ends a worker to whoever answers."""

    def __init__(self, targets, source="0.0.0.0", namespace=None):
        """`targets`: pairs of host and port. `namespace`: the network namespace that the strangers are in."""
        self.targets, self.source, self.namespace = targets, source, namespace
        self.dialled, self.answered = [], []
        self.begun, self.ended = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def dial(self):
        for target in self.targets:
            one = socket.socket()
            one.bind((self.source, 0))
            one.setblocking(False)
            one.connect_ex(target)
            self.dialled.append((target, one))

    def look(self):
        for target, one in self.dialled:
            if one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == SYN_SENT or target in self.answered:
                continue
            self.answered.append(target)
            with contextlib.suppress(OSError):
                one.setblocking(True)
                one.sendall(DEADLY)

    def run(self):
        if self.namespace:
            # This thread alone goes there.
            with open(f"/run/netns/{self.namespace}", encoding="utf-8") as place:
                if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter {self.namespace}")
        self.dial()
        self.begun.set()
        while not self.ended.wait(0.1):
            self.dial()
            self.look()

    def __enter__(self):
        self.thread.start()
        if not self.begun.wait(DEADLINE_S):
            raise AssertionError("the strangers did not begin")
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.look()
        for _, one in self.dialled:
            one.close()

    def expect_no_answer(self):
        if self.answered:
            raise AssertionError(f"of {self.targets}, these answered a stranger: {self.answered}")
        print(f"ok: {len(self.dialled)} connections of strangers to {len(self.targets)} ports of UCX, none answered")


def ucx_ports(workers, pids):
    """Pairs of host and port: the ports of each worker that no other transport has."""
    found = []
    for worker in workers:
        ports = listening_ports(pids[worker["name"]])
        told, host = {}, ""
        for endpoint in worker["endpoints"]:
            told[endpoint["transport"]] = {int(one.rsplit(":", 1)[1]) for one in endpoint.get("addresses", [])}
            if endpoint["transport"] == "ucx":
                host = endpoint["addresses"][0].rsplit(":", 1)[0]
        own = ports - told["tcp"] - told["grpc"]
        if not told["ucx"] <= own or len(own) < 2:
            raise AssertionError(f"{worker['name']} listens at {ports}, and says {told}")
        found += [(host, port) for port in sorted(own)]
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        text_for_training(folder)
        with Cluster(sys.argv[1], folder, workers=2) as cluster:
            options = {"steps": 30, "stages": 2, "transport": "ucx"}
            wanted = cluster.train("undisturbed", **options)
            before = {name: process.pid for name, process in cluster.processes.items()}
            with Strangers(ucx_ports(cluster.connected(), before), STRANGER) as strangers:
                expect_equal("beside strangers", cluster.train("disturbed", **options), wanted)
            strangers.expect_no_answer()
            ended = [name for name, process in cluster.processes.items()
                     if process.poll() is not None or process.pid != before[name]]
            if ended or len(cluster.connected()) != 2:
                raise AssertionError(f"ended: {ended}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
