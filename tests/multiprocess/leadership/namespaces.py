"""Machines that are network namespaces on one bridge, whose network a test cuts. Needs root.

The bridge is in a namespace of its own, `hub`, where clients run too; nothing of the machine's own network changes.
"""
import contextlib
import os
import subprocess

NETWORK = "10.99.0"


def ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True, text=True)


class Namespaces:
    """One namespace for each of `names`, with the addresses 10.99.0.1, .2 and so on."""

    def __init__(self, names):
        self.tag = f"lht{os.getpid() % 100000}"
        self.addresses = {name: f"{NETWORK}.{i + 1}" for i, name in enumerate(names)}
        self.addresses["hub"] = f"{NETWORK}.254"
        self.cuts = set()
        try:
            ip("netns", "add", self.full("hub"))
            ip("-n", self.full("hub"), "link", "add", "bridge", "type", "bridge")
            ip("-n", self.full("hub"), "addr", "add", f"{self.addresses['hub']}/24", "dev", "bridge")
            for device in ("lo", "bridge"):
                ip("-n", self.full("hub"), "link", "set", device, "up")
            for i, name in enumerate(names):
                self._add(name, f"p{i}")
        except BaseException:
            self.close()
            raise

    def _add(self, name, port):
        space, hub = self.full(name), self.full("hub")
        ip("netns", "add", space)
        ip("link", "add", port, "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("-n", hub, "link", "set", port, "master", "bridge", "up")
        ip("-n", space, "addr", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", space, "link", "set", device, "up")

    def full(self, name):
        return f"{self.tag}{name}"

    def command(self, name):
        """What runs a program on that machine; the process's id is the program's own."""
        return ["ip", "netns", "exec", self.full(name)]

    def cut(self, source, target):
        """From now on no packet of `source` arrives at `target`; the way back is another cut."""
        self.cuts.add((source, target))
        self._write(target)

    def cut_both(self, one, other):
        self.cut(one, other)
        self.cut(other, one)

    def heal(self):
        targets = {target for _, target in self.cuts}
        self.cuts.clear()
        for target in targets:
            self._write(target)

    def _write(self, target):
        """Makes the rules of one machine what `cuts` says."""
        drops = [f"    ip saddr {self.addresses[source]} drop" for source, at in sorted(self.cuts) if at == target]
        rules = "\n".join(["table inet cut", "delete table inet cut", "table inet cut {", "  chain in {",
                           "    type filter hook input priority 0;", *drops, "  }", "}"])
        subprocess.run([*self.command(target), "nft", "-f", "-"], input=rules, check=True, text=True)

    def link(self, name, up):
        """The machine's only link; down, nobody gets an answer, not even that nobody listens."""
        ip("-n", self.full(name), "link", "set", "eth0", "up" if up else "down")

    def slow(self, name, rate):
        """What the machine sends leaves at this rate, such as 4mbit."""
        subprocess.run(["tc", "-n", self.full(name), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst",
                        "16kb", "latency", "400ms"], check=True, capture_output=True, text=True)

    def close(self):
        for name in self.addresses:
            subprocess.run(["ip", "netns", "del", self.full(name)], check=False, capture_output=True)


class OneMachine:
    """In place of namespaces where a test may make none: all daemons on this machine, whose network stays whole."""

    def command(self, _):
        return []

    def close(self):
        pass


@contextlib.contextmanager
def machines(names):
    """Namespaces where this process may make them, else this machine."""
    try:
        made = Namespaces(names) if os.geteuid() == 0 else OneMachine()
    except (OSError, subprocess.CalledProcessError):
        made = OneMachine()
    try:
        yield made
    finally:
        made.close()
