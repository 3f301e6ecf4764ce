"""Workers that have IPv6 addresses alone: with default flags they train, and UCX is refused with a sentence.

usage: ipv6_test.py BIN_DIR [ADDRESS]

The coordinator listens at [::1], so `--data-address auto` of each worker is [::1], too. The same with the address of a
private network (fd00::/8) in a network namespace of its own, where the test is root. Skipped where the machine has no
IPv6.
"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
# pylint: disable=wrong-import-position
from training_test import Cluster, expect_equal, text_for_training


PRIVATE = "fd00:88::1"


class Ipv6Cluster(Cluster):
    LISTEN = f"[{sys.argv[2] if len(sys.argv) > 2 else '::1'}]:0"


def expect_refused(cluster, sentence, *flags):
    result = subprocess.run(
        [cluster.programs / "longhaul-worker", "--coordinator", cluster.address, "--state-dir", cluster.folder / "refused",
         *flags, *cluster.access()], capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 2 or sentence not in result.stderr:
        raise AssertionError(f"{flags}: exit {result.returncode}, {result.stderr!r}")
    print(f"ok: {result.stderr.strip()}", flush=True)


def in_a_private_network():
    """This test with the other address, in a namespace that has it."""
    name = f"lhv6{os.getpid() % 100000}"
    try:
        for command in (["netns", "add", name], ["-n", name, "link", "set", "lo", "up"],
                        ["-n", name, "addr", "add", f"{PRIVATE}/64", "dev", "lo", "nodad"]):
            subprocess.run(["ip", *command], check=True)
        subprocess.run(["ip", "netns", "exec", name, sys.executable, __file__, sys.argv[1], PRIVATE], check=True)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def main():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as problem:
        print(f"skipped: this machine has no IPv6: {problem}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        text_for_training(folder)
        with Ipv6Cluster(sys.argv[1], folder, workers=2) as cluster:
            offered = {worker["name"]: [one["transport"] for one in worker["endpoints"] if one.get("addresses")]
                       for worker in cluster.connected()}
            if offered != {"worker1": ["grpc", "tcp"], "worker2": ["grpc", "tcp"]}:
                raise AssertionError(offered)
            log = (pathlib.Path(folder) / "worker1.log").read_text(encoding="utf-8")
            if "no ucx: it does not work over IPv6" not in log:
                raise AssertionError(log)
            options = {"steps": 6, "stages": 2}
            chosen = cluster.train("auto", transport="auto", **options)
            for transport in ("tcp", "grpc"):
                expect_equal(transport, cluster.train(transport, transport=transport, **options), chosen)
            result = cluster.cli("submit", cluster.write_run("ucx", transport="ucx", **options), check=False)
            if result.returncode != 1 or "has grpc and tcp only" not in result.stderr:
                raise AssertionError(f"exit {result.returncode}, {result.stderr!r}")
            print(f"ok: {result.stderr.strip()}", flush=True)
            expect_refused(cluster, "--transport ucx cannot be used: it does not work over IPv6", "--transport", "ucx")
            if len(cluster.connected()) != 2:
                raise AssertionError("a worker has ended")
    if len(sys.argv) == 2 and os.geteuid() == 0:
        in_a_private_network()
    return 0


if __name__ == "__main__":
    sys.exit(main())
