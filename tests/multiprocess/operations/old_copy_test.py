"""The state directory of a lone coordinator is put back from an older copy while its workers carry out a newer attempt.

usage: old_copy_test.py BIN_DIR

The copy has the term of the process that led meanwhile, and an older attempt. The coordinator must begin a term above
what the workers obeyed and an attempt above theirs, tell what has happened, and train on. A worker that was restarted
keeps refusing older terms.
"""
import json
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "training"))
from training_test import Cluster, text_for_training, wait_for  # noqa: E402


class OldCopy(Cluster):
    def begin_again(self):
        """Starts the coordinator at its old address."""
        self.start("coordinator", "longhaul-coordinator", "--listen", self.address, "--http", "127.0.0.1:0")
        wait_for("an answer", lambda: self.cli("ps", check=False).returncode == 0)

    def now(self, run):
        """The run's status; {} while the coordinator does not answer."""
        answer = self.cli("status", run, "--json", check=False)
        return json.loads(answer.stdout) if answer.returncode == 0 else {}

    def term_of(self, worker):
        return json.loads((self.folder / worker / "term").read_text())["term"]


def main():
    programs = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="longhaul-old-copy-") as folder:
        text_for_training(folder)
        with OldCopy(programs, folder, 2) as cluster:
            path = cluster.write_run("old", steps=100000, stages=2)
            # Workers keep the checkpoints that the copy knows, however far they train meanwhile.
            path.write_text(path.read_text().replace("attempts: 0", "attempts: 100").replace("keep: 2", "keep: 1000"))
            run = cluster.cli("submit", path).stdout.split()[0]
            wait_for("a checkpoint", lambda: cluster.checkpoint_step(run) >= 10)
            state, copy = pathlib.Path(folder, "coordinator"), pathlib.Path(folder, "copy")
            cluster.kill("coordinator")
            shutil.copytree(state, copy)
            cluster.begin_again()
            first = int(cluster.now(run)["epoch"])
            cluster.kill("worker1")
            cluster.start_worker(1)

            def trains_above(epoch):
                status = cluster.now(run)
                return status.get("state") == "running" and int(status["epoch"]) > epoch and status

            newer = int(wait_for("a newer attempt", lambda: trains_above(first))["epoch"])
            obeyed = cluster.term_of("worker1")
            cluster.kill("coordinator")
            shutil.rmtree(state)
            shutil.copytree(copy, state)
            cluster.begin_again()
            status = wait_for("an attempt above the newer one", lambda: trains_above(newer))
            print(f"ok: the copy was of attempt {first}, the workers were at {newer}, and {status['epoch']} trains")
            wait_for("steps", lambda: cluster.step(run) > int(status["step"]) + 3)
            for worker in ("worker1", "worker2"):
                if not cluster.term_of(worker) > obeyed:
                    raise AssertionError(f"{worker} obeys term {cluster.term_of(worker)}, and it obeyed {obeyed}")
            events = cluster.cli("events").stdout
            if "they were put back from an older copy" not in events:
                raise AssertionError(f"no event tells that the records are from an older copy:\n{events[-3000:]}")
            print("ok: an event tells that the records are from an older copy")


if __name__ == "__main__":
    main()
