"""What an older version left is gone on with: a run that it began, stopped and stored is resumed by this
version's coordinator and workers, in the same state directories, with the losses of an unbroken run. An
older worker is refused with a sentence.

usage: upgrade_test.py BIN_DIR [OLDER_BIN_DIR]    (else LONGHAUL_OLDER_BIN; without either it is skipped)
"""
import os
import pathlib
import sys
import tempfile

from training_test import Cluster, expect_equal, text_for_training, wait_for

SKIPPED = 77
STEPS = 60
WORKERS = 2
REFUSAL = "speaks protocol"


class TwoVersions(Cluster):
    """Daemons of `programs`, which may be changed between two starts."""

    def __init__(self, folder, programs):
        # Older versions have no TLS, and none to leave out.
        self.tls_left_out = []
        (folder / "token").write_text("a-token-for-this-test-alone\n")
        super().__init__(programs, folder, workers=WORKERS)

    def access(self):
        return super().access() + self.tls_left_out

    def write_run(self, *arguments, **options):
        """Without keys that the older version does not know."""
        path = super().write_run(*arguments, **options)
        path.write_text(path.read_text().replace(", placement: names", ""))
        return path

    def upgrade(self, programs):
        self.stop()
        self.processes = {}
        self.programs, self.tls_left_out = programs, ["--insecure"]
        address = self.folder / "coordinator" / "address"
        address.unlink()
        self.start("coordinator", "longhaul-coordinator", "--listen", self.address)
        wait_for("the coordinator", address.exists)
        for number in range(1, WORKERS + 1):
            self.start_worker(number)
        wait_for("the workers", lambda: len(self.connected()) == WORKERS)


def train(folder, programs, upgraded):
    """The losses of a run; `upgraded`: it is stopped in the middle, and these programs go on with it."""
    text_for_training(folder)
    with TwoVersions(folder, programs) as cluster:
        if not upgraded:
            return cluster.train("run", stages=WORKERS, steps=STEPS)
        path = cluster.write_run("run", stages=WORKERS, steps=STEPS)
        run = cluster.cli("submit", path).stdout.split()[0]
        wait_for("some steps", lambda: int(cluster.status(run).get("step", 0)) >= 5)
        cluster.cli("stop", run)
        wait_for("the stop", lambda: cluster.status(run)["state"] == "stopped")
        cluster.upgrade(upgraded)
        cluster.cli("submit", path, "--resume", "--watch")
        return cluster.losses(run)


def refuses_an_older_worker(folder, new, old):
    with TwoVersions(folder, new) as cluster:
        cluster.programs = old
        cluster.start_worker(WORKERS + 1)
        cluster.programs = new
        log = cluster.folder / f"worker{WORKERS + 1}.log"
        wait_for("the refusal", lambda: REFUSAL in log.read_text(encoding="utf-8"))
        line = next(one for one in log.read_text(encoding="utf-8").splitlines() if REFUSAL in one)
        print(f"ok: an older worker says: {line}", flush=True)


def main():
    older = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("LONGHAUL_OLDER_BIN")
    if not older:
        print("skipped: LONGHAUL_OLDER_BIN names no folder of an older version's programs")
        return SKIPPED
    new, old = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(older).resolve()
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        wanted = train(folder, new, None)
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        expect_equal("begun by the older version", train(folder, old, new), wanted)
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        refuses_an_older_worker(folder, new, old)
    return 0


if __name__ == "__main__":
    sys.exit(main())
