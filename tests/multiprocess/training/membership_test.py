"""Replicas come and go while a run trains, over real processes.

usage: membership_test.py BIN_DIR CASE...: continues|exact|asked|coordinator, or two-of-three alone
"""
import json
import subprocess
import sys

from cases import run_cases
from nearness import expect_near
from training_test import DEADLINE_S, GPT, expect_learnt, wait_for

STEPS = 100000  # it is stopped when all has happened, however fast the machine is
OF_REPLICA = 2  # microbatches of a step
# A layer a stage: where the run is planned again, its stages are the same.
SMALL = GPT.replace("layers: 4", "layers: 2")
# Copies are made behind every step or two, so that there is a set to go on from.
SETTINGS = ("--set", f"train.microbatches={OF_REPLICA}", "--set", "recovery.attempts=5", "--set", "recovery.every=4",
            "--set", "checkpoint.every=1000", "--set", "train.schedule.kind=constant")
CONTINUE = ("--set", "recovery.replicas=continue")
# Sums have another order, in every step anew.
BOUND = 1e-5


class Run:
    def __init__(self, cluster, name, replicas, *flags, steps=STEPS):
        self.cluster = cluster
        self.path = cluster.write_run(name, stages=2, steps=steps, model=SMALL)
        self.flags = (*SETTINGS, "--set", f"pipeline.replicas={replicas}", *flags)
        self.run = cluster.cli("submit", self.path, *self.flags).stdout.split()[0]

    def status(self):
        return self.cluster.status(self.run)

    def seen(self):
        return self.cluster.seen(self.run)

    def step(self):
        return self.cluster.step(self.run)

    def steps(self):
        rows = [json.loads(line) for line in self.cluster.cli("steps", self.run, "--json").stdout.splitlines()]
        return [row for row in rows if int(row["step"]) > 0]

    def events(self):
        return self.cluster.cli("events", self.run).stdout

    def wait_for_copies(self, after=0):
        return wait_for("a set that is held twice", lambda: self.step() > after and
                        (step := int(self.seen().get("copied_step", 0))) > after and step)

    def wait_until_it_trains_with(self, replicas):
        """Until it has finished a step with so many."""
        def trains():
            status = self.status()
            if status["state"] in ("failed", "stopped", "done"):
                raise AssertionError(f"{status['state']}: {status.get('reason')}\n{self.events()}")
            return status["state"] == "running" and self.steps()[-1].get("replicas") == replicas
        wait_for(f"a step with {replicas} replicas", trains)
        return int(self.steps()[-1]["step"])

    def end(self):
        """Stopped, and resumed for some more steps: what was read is on record."""
        self.cluster.cli("stop", self.run)
        wait_for("the stop", lambda: self.seen()["state"] == "stopped")
        steps = self.step() + 5
        self.cluster.cli("submit", self.path, "--resume", "--watch", *self.flags, "--set", f"train.steps={steps}")

    def expect_done(self, what, kinds):
        """It has trained all steps, with these numbers of replicas one after the other, and each step has read on from
        where the one before ended; so a plain loop that reads the same learns the same."""
        status = self.status()
        rows = self.steps()
        numbers = [row["replicas"] for row in rows]
        changes = [n for i, n in enumerate(numbers) if i == 0 or n != numbers[i - 1]]
        if status["state"] != "done" or [int(row["step"]) for row in rows] != list(range(1, len(rows) + 1)):
            raise AssertionError(f"{what}: {status['state']}: {status.get('reason')}\n{self.events()}")
        if changes != kinds:
            raise AssertionError(f"{what}: replicas {changes}, expected {kinds}\n{self.events()}")
        read = 0
        for row in rows:
            if int(row.get("first_microbatch", 0)) != read:
                raise AssertionError(f"{what}: {row}, and {read} microbatches were read before")
            read += OF_REPLICA * row["replicas"]
        microbatches = [str(OF_REPLICA * n) for n in numbers]
        self.path.write_text(self.path.read_text().replace("kind: cosine", "kind: constant"))
        plain = [float(line) for line in subprocess.run(
            [self.cluster.programs / "reference_losses", self.path, self.cluster.folder / "text.txt", str(len(rows)),
             *microbatches], capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout.split()]
        losses = [row["loss"] for row in rows]
        expect_learnt(what, losses)
        expect_near(f"{what}, {' then '.join(map(str, changes))} replicas, against a plain loop", losses, plain,
                    bound=BOUND)


def continues(cluster):
    """A worker dies, and the run goes on with one replica; the worker is back, and so is the second replica."""
    run = Run(cluster, "continues", 2, *CONTINUE)
    run.wait_for_copies()
    cluster.kill("worker4")
    alone = run.wait_until_it_trains_with(1)
    status = run.status()
    if "worker3" not in status.get("spares", []) or "1 of 2 replicas train" not in status["replicas_reason"]:
        raise AssertionError(f"{status}")
    if "\t1/2\t" not in cluster.cli("ps").stdout:
        raise AssertionError(cluster.cli("ps").stdout)
    if "1 of 2 replicas from step" not in run.events():
        raise AssertionError(run.events())
    wait_for("ten steps", lambda: run.step() > alone + 10)
    cluster.start_worker(4)
    both = run.wait_until_it_trains_with(2)
    print(f"ok: alone from step {alone}, together again in step {both}", flush=True)
    run.end()
    run.expect_done("continue", [2, 1, 2])


def exact(cluster):
    """It waits, says for whom, and trains the same bits that it would have trained."""
    run = Run(cluster, "exact", 2, steps=200)
    run.wait_for_copies()
    cluster.kill("worker4")
    wait_for("the wait", lambda: "waits for worker worker4" in run.events())
    if run.status()["state"] != "recovering" or "replicas from step" in run.events():
        raise AssertionError(run.events())
    cluster.start_worker(4)
    wait_for("the end", lambda: run.seen()["state"] in ("done", "failed"))
    run.expect_done("exact", [2])
    other = Run(cluster, "unbroken", 2, steps=200)
    wait_for("the end", lambda: other.seen()["state"] == "done")
    if [row["loss"] for row in run.steps()] != [row["loss"] for row in other.steps()]:
        raise AssertionError("other losses than an unbroken run's")
    print("ok: exact waits, and its losses are an unbroken run's, bit for bit", flush=True)


def two_of_three(cluster):
    """Two of three replicas lose a worker each, of different stages: their rest makes one replica."""
    run = Run(cluster, "two-of-three", 3, *CONTINUE)
    run.wait_for_copies()
    cluster.kill("worker3")  # stage 0 of replica 1
    cluster.kill("worker6")  # stage 1 of replica 2
    run.wait_for_copies(run.wait_until_it_trains_with(2))
    cluster.kill("worker1")  # stage 0 of replica 0, and nobody is left for its place
    run.wait_until_it_trains_with(1)
    for worker in (1, 3, 6):
        cluster.start_worker(worker)
    run.wait_until_it_trains_with(3)
    run.end()
    numbers = [row["replicas"] for row in run.steps()]
    # Whoever is back first may make two replicas.
    run.expect_done("three, then one", [n for i, n in enumerate(numbers) if i == 0 or n != numbers[i - 1]])


def asked(cluster):
    """`longhaul replicas` shrinks a run and lets it grow, and no step is trained twice."""
    run = Run(cluster, "asked", 2)
    wait_for("some steps", lambda: run.step() > 5)
    result = cluster.cli("replicas", run.run, "0", check=False)
    if result.returncode != 1 or "pipeline.replicas: expected" not in result.stderr:
        raise AssertionError(f"exit {result.returncode}: {result.stderr}")
    print(cluster.cli("replicas", run.run, "1").stdout.strip(), flush=True)
    run.wait_until_it_trains_with(1)
    wait_for("free workers", lambda: sum(not w.get("run_id") for w in json.loads(
        cluster.cli("workers", "--json").stdout)["workers"]) == 2)
    print(cluster.cli("replicas", run.run, "2").stdout.strip(), flush=True)
    run.wait_until_it_trains_with(2)
    if "repeated" in run.events():
        raise AssertionError(run.events())
    run.end()
    run.expect_done("asked", [2, 1, 2])
    result = cluster.cli("replicas", run.run, "2", check=False)
    if result.returncode != 1 or "has ended (done)" not in result.stderr:
        raise AssertionError(f"exit {result.returncode}: {result.stderr}")


def coordinator(cluster):
    """Killed in the middle of each change: it goes on where it was."""
    port = cluster.address.rsplit(":", 1)[1]

    def restart():
        cluster.kill("coordinator")
        cluster.start("coordinator", "longhaul-coordinator", "--listen", f"127.0.0.1:{port}")
        wait_for("the workers", lambda: cluster.cli("workers", check=False).returncode == 0)

    run = Run(cluster, "restarted", 2, *CONTINUE)
    run.wait_for_copies()
    cluster.cli("replicas", run.run, "1")
    restart()  # which may have been asked to stop, or have stopped, or begun anew
    run.wait_until_it_trains_with(1)
    cluster.cli("replicas", run.run, "2")
    wait_for("the change", lambda: "goes on from there with 2 replicas" in run.events())
    restart()
    run.wait_for_copies(run.wait_until_it_trains_with(2))
    epoch = int(run.status()["epoch"])
    cluster.kill("worker2")
    wait_for("the loss", lambda: (s := run.seen())["state"] != "running" or int(s["epoch"]) > epoch)
    restart()
    run.wait_until_it_trains_with(1)
    cluster.start_worker(2)
    run.wait_until_it_trains_with(2)
    run.end()
    run.expect_done("with a coordinator that dies", [2, 1, 2, 1, 2])


if __name__ == "__main__":
    sys.exit(run_cases({"continues": continues, "exact": exact, "asked": asked, "coordinator": coordinator,
                        "two-of-three": two_of_three}, workers=6 if "two-of-three" in sys.argv else 4))
