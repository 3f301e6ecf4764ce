"""A member whose worker is free dials the ports of UCX of two workers that train without it.

usage: ucx_member_test.py BIN_DIR

Three workers in network namespaces. The third one's machine is a peer of the others while the run is planned, when the
three measure their links, and none while the run trains. From then on the kernel answers nobody there, and the losses are
those of an undisturbed run. Needs root.
"""
import os
import pathlib
import sys
import tempfile

for folder in ("training", "faults"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))
# pylint: disable=wrong-import-position
import json

from namespace_cluster import namespace_cluster
from training_test import expect_equal, text_for_training
from requirements import without_root
from ucx_test import Strangers, ucx_ports

# So many that no run ends before it is stopped.
STEPS = 100_000
COMPARED = 60


def stop(cluster, run):
    """Returns the losses of its first steps."""
    cluster.cli("stop", run)
    cluster.wait_for_end(run)
    return cluster.losses(run)[:COMPARED]


def main():
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with namespace_cluster(sys.argv[1], folder, workers=3, rate="100mbit") as cluster:
            run = cluster.submit("undisturbed", steps=STEPS, stages=2)
            cluster.wait_for_step(run, COMPARED)
            wanted = stop(cluster, run)
            run = cluster.submit("disturbed", steps=STEPS, stages=2)
            if not cluster.wait_for_step(run, 1):
                raise AssertionError(f"it ended early: {cluster.status(run)}")
            training = {stage["worker_name"] for stage in cluster.status(run)["stages"]}
            pids = {worker["name"]: worker["pid"] for worker in cluster.state()["workers"]}
            workers = json.loads(cluster.cli("workers", "--json").stdout)["workers"]
            targets = ucx_ports([one for one in workers if one["name"] in training], pids)
            idle, = set(pids) - training
            with Strangers(targets, namespace=f"lh-{cluster.name}-w{idle.removeprefix('worker')}") as strangers:
                now = int(cluster.status(run)["step"])
                if not cluster.wait_for_step(run, max(now + COMPARED, COMPARED)):
                    raise AssertionError(f"it ended: {cluster.status(run)}")
            strangers.expect_no_answer()
            expect_equal("beside a member that dials", stop(cluster, run), wanted)
            if pids != {worker["name"]: worker["pid"] for worker in cluster.state()["workers"]}:
                raise AssertionError("a worker has ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
