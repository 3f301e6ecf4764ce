"""Programs of this version and of an older one train together, and the older coordinator's state directory opens.

usage: upgrade_test.py BIN_DIR [OLDER_BIN_DIR]    (else LONGHAUL_OLDER_BIN; without either it is skipped)
"""
import os
import pathlib
import sys
import tempfile

from training_test import Cluster, expect_equal, text_for_training, wait_for

SKIPPED = 77
STEPS = 20


class MixedCluster(Cluster):
    """The daemons that `older` names are the older version's."""

    def __init__(self, folder, new, old, older):
        self.new, self.old, self.older = new, old, older
        super().__init__(new, folder, workers=2)

    def start(self, name, program, *arguments):
        self.programs = self.old if name in self.older else self.new
        try:
            super().start(name, program, *arguments)
        finally:
            self.programs = self.new


def train(new, old, older):
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with MixedCluster(folder, new, old, older) as cluster:
            losses = cluster.train("mixed", stages=2, steps=STEPS)
            if "coordinator" in older:
                cluster.kill("coordinator")
                cluster.older = []
                cluster.start("coordinator", "longhaul-coordinator", "--listen", cluster.address)
                wait_for("the run in the older store",
                         lambda: "done" in cluster.cli("ps", check=False).stdout)
                print("ok: an older coordinator's state directory opens", flush=True)
            return losses


def main():
    older = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("LONGHAUL_OLDER_BIN")
    if not older:
        print("skipped: LONGHAUL_OLDER_BIN names no folder of an older version's programs")
        return SKIPPED
    new, old = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(older).resolve()
    wanted = train(new, old, [])
    if len(wanted) != STEPS:
        raise AssertionError(f"expected {STEPS} losses, got {len(wanted)}")
    for names in (["worker1"], ["worker2"], ["coordinator"], ["worker1", "worker2"]):
        expect_equal(f"older: {', '.join(names)}", train(new, old, names), wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
