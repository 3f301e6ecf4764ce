"""A worker's machine gets another address while a run trains: the run goes on, over its links and
its session with the coordinator.

usage: moved_test.py BIN_DIR
"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile

from namespace_cluster import namespace_cluster
from training_test import expect_equal, text_for_training, wait_for
from requirements import without_root

STEPS = 140


class Namespace:
    """A worker's, of which the test starts the worker itself and moves it."""

    def __init__(self, cluster, worker):
        self.cluster, self.worker = cluster, worker
        state = next(w for w in cluster.state()["workers"] if w["name"] == worker)
        self.name = state["network"]
        rows = json.loads(self.ip("-j", "-4", "addr").stdout)
        prefix = cluster.address.rsplit(".", 1)[0] + "."
        self.device, self.address = next(
            (row["ifname"], one["local"]) for row in rows for one in row["addr_info"]
            if one["local"].startswith(prefix))

    def ip(self, *arguments):
        return subprocess.run(["ip", "-n", self.name, *arguments], check=True, capture_output=True,
                              text=True)

    @contextlib.contextmanager
    def started_worker(self):
        log_path = self.cluster.folder / f"{self.worker}.log"
        with open(log_path, "w") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, self.cluster.programs / "longhaul-worker",
                 "--coordinator", self.cluster.address, "--token-file", self.cluster.token_file,
                 "--state-dir", self.cluster.folder / self.worker, "--name", self.worker,
                 "--transport", "tcp", "--tcp-address", "0.0.0.0:0", "--advertise", "auto"],
                stdout=log, stderr=subprocess.STDOUT)
            try:
                yield process
            except BaseException:
                print(f"--- {self.worker}\n{log_path.read_text()[-3000:]}", file=sys.stderr)
                raise
            finally:
                process.kill()
                process.wait()

    def move(self):
        old = self.address
        self.address = old.rsplit(".", 1)[0] + "." + str(int(old.rsplit(".", 1)[1]) + 100)
        self.ip("addr", "del", f"{old}/24", "dev", self.device)
        self.ip("addr", "add", f"{self.address}/24", "dev", self.device)


def expect_events(cluster, run, *words):
    def said():
        return all(any(word in event for event in cluster.events(run)) for word in words)
    wait_for(f"events with {words}", said)


def expect_done(cluster, run, what, unbroken):
    status = cluster.wait_for_end(run)
    if status["state"] != "done":
        raise AssertionError(f"{what}: {status['state']}: {status['reason']}\n"
                             + "\n".join(cluster.events(run)))
    expect_equal(what, cluster.losses(run), unbroken)
    seconds = [s["seconds"] for s in cluster.steps(run)]
    print(f"  a step takes {sorted(seconds)[len(seconds) // 2]:.2f} s, the longest took "
          f"{max(seconds):.2f} s", flush=True)


def move_at(cluster, run, step, namespace):
    if not cluster.wait_for_step(run, step):
        raise AssertionError(cluster.status(run))
    namespace.move()


def main():
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    names = ["worker1", "worker2"]
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder, \
            contextlib.ExitStack() as stack:
        text_for_training(folder)
        cluster = stack.enter_context(namespace_cluster(sys.argv[1], folder, workers=2,
                                                        rate="unlimited"))
        run = cluster.submit("unbroken", steps=STEPS, stages=2)
        cluster.wait_for_end(run)
        unbroken = cluster.losses(run)
        namespaces = [Namespace(cluster, name) for name in names]
        # The data addresses stay: only the session has to come back.
        run = cluster.submit("session", steps=STEPS, stages=2)
        move_at(cluster, run, 5, namespaces[0])
        wait_for("a new session", lambda: "worker1 opened a new session" in
                 cluster.cli("events").stdout)
        expect_done(cluster, run, "a session that moved", unbroken)
        for name in names:
            cluster.kill(name)
        for namespace in namespaces:
            stack.enter_context(namespace.started_worker())
        run = cluster.submit("moved", steps=STEPS, stages=2, transport="tcp")
        for namespace, step in zip(namespaces, (5, 60)):
            move_at(cluster, run, step, namespace)
            expect_events(cluster, run, f"has moved: tcp {namespace.address}:")
        expect_done(cluster, run, "workers that moved", unbroken)
        expect_events(cluster, run, "is healed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
