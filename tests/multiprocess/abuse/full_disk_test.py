"""The coordinator's disk fills up while a run trains.

usage: full_disk_test.py BIN_DIR

Its state directory is a file system of 64 MB of its own, which a file of another program fills. The run goes on with the
losses of an undisturbed one, what is refused is refused with a sentence, `longhaul gc` makes room, and the coordinator
starts on a full disk.
"""
import os
import pathlib
import sys
import tempfile

for folder in ("training", "members"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))
import training_test as training  # noqa: E402
from abuse_test import another_user, start_workers  # noqa: E402
from members_test import User, new_token  # noqa: E402
from quotas_test import STEPS, Attacker, check, expect_calm_losses  # noqa: E402

MB = 1 << 20
SKIPPED = 77  # as CTest's SKIP_RETURN_CODE


class Filler:
    """A file of somebody else, which takes all that is left."""

    def __init__(self, folder):
        self.path = folder / "of-another-program"

    def fill(self):
        with open(self.path, "ab", buffering=0) as file:
            for piece in (MB, 4096):
                try:
                    while True:
                        file.write(b"x" * piece)
                except OSError:
                    pass

    def remove(self):
        self.path.unlink()


def log_of(cluster):
    return (cluster.folder / "coordinator.log").read_text(encoding="utf-8")


def left(folder):
    usage = os.statvfs(folder)
    return usage.f_bavail * usage.f_frsize


def goes_on(cluster, run, what):
    before = cluster.step(run)
    training.wait_for(f"two more steps while {what}", lambda: cluster.step(run) > before + 1)


def refused_and_collected(cluster, disk, filler, run, eve, bob):
    """The disk fills; what takes room is refused, and garbage collection makes some."""
    connection = eve.connect()
    status, said, _ = eve.upload(connection, b"an upload that no run names" * (12 * MB // 27))
    check(status == 0, said)
    filler.fill()
    training.wait_for("the coordinator to see it", lambda: "DISK FULL" in log_of(cluster))
    check(not (disk / "reserve").exists(), "the reserve is there")
    goes_on(cluster, run, "the disk is full")
    status, said, _ = eve.upload(connection, b"one more" * 1000)
    check(status == 8 and "has no room" in said and "longhaul gc" in said, status, said)
    said = bob.cli("submit", cluster.write_run("other", stages=2, transport="tcp"), code=1, says="has no room")
    check(run in bob.cli("ps"), "the run is not listed")
    collected = cluster.cli("gc", "--unnamed", "0s").stdout
    check("1 blobs" in collected, collected)
    goes_on(cluster, run, "there is little room")
    filler.remove()
    training.wait_for("room again", lambda: "has room again" in log_of(cluster))
    check((disk / "reserve").stat().st_size == 16 * MB, "the reserve was not made again")
    status, said, _ = eve.upload(connection, b"one more" * 1000)
    check(status == 0, said)
    connection.close()
    print("ok: a full disk: uploads and submissions were refused, gc made room, the run went on", flush=True)


def nothing_left(cluster, disk, filler, run):
    """Whoever fills it takes what the coordinator has given up, too: nothing is stored until there is room."""
    filler.fill()
    training.wait_for("the reserve to go", lambda: not (disk / "reserve").exists())

    def stands_still():
        if left(disk) > 0:
            filler.fill()
        return "nothing can be stored" in log_of(cluster)

    training.wait_for("a write that cannot be", stands_still)
    check(cluster.status(run)["state"] == "running", "the question was not answered")
    check(cluster.processes["coordinator"].poll() is None, "the coordinator has ended")
    filler.remove()
    training.wait_for("writes again", lambda: "takes writes again" in log_of(cluster))
    goes_on(cluster, run, "there is room")
    print("ok: nothing left at all: the coordinator waited for room, and the run went on", flush=True)


def start_on_full_disk(cluster, disk, filler, run):
    cluster.kill("coordinator")
    check((disk / "reserve").exists(), "there is no reserve")
    before = log_of(cluster).count("DISK FULL")
    filler.fill()
    port = cluster.address
    cluster.start("coordinator", "longhaul-coordinator", "--listen", port)
    training.wait_for("the coordinator on a full disk", lambda: log_of(cluster).count("DISK FULL") > before)
    training.wait_for("the workers", lambda: len(cluster.connected()) == 2)
    cluster.cli("gc", "--unnamed", "0s")
    goes_on(cluster, run, "the coordinator was started on a full disk")
    filler.remove()
    print("ok: it starts on a full disk", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-full-disk-") as folder:
        training.text_for_training(folder)
        disk = pathlib.Path(folder) / "coordinator"
        with training.small_disk(disk), training.Cluster(sys.argv[1], folder, workers=0) as cluster:
            filler = Filler(disk)
            _, _, proxies = start_workers(cluster)
            for proxy in proxies:
                proxy.pause_s = 0.05
            eve = Attacker(cluster.address, another_user(cluster))
            bob = User(cluster, "bob", new_token(cluster, "user", 1))
            run = bob.cli("submit", cluster.write_run("stormy", steps=STEPS, stages=2, transport="tcp")).split()[0]
            training.wait_for(f"step 3 of {run}", lambda: cluster.step(run) >= 3)
            refused_and_collected(cluster, disk, filler, run, eve, bob)
            nothing_left(cluster, disk, filler, run)
            start_on_full_disk(cluster, disk, filler, run)
            status = cluster.status(run)
            check(status["state"] == "running" and int(status["epoch"]) == 1, status["state"], status["epoch"])
            stormy = cluster.end(run)
            expect_calm_losses("on a full disk and undisturbed", cluster, bob, proxies, stormy)


if __name__ == "__main__":
    try:
        main()
    except training.Skipped as skipped:
        print(f"skipped: {skipped}")
        sys.exit(SKIPPED)
