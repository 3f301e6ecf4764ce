"""Faults on real processes, one by one: what a run does, and what `status` and `events` say.

usage: named_faults.py BIN_DIR [NAME...] [--clusters N]
"""
import argparse
import os
import statistics
import sys
import tempfile
import time

from namespace_cluster import CONTROL_NETWORK, DATA_NETWORK, ENDED, namespace_cluster, side_by_side
from training_test import expect_equal, text_for_training, wait_for
from requirements import without_root

STEPS = 60


class Case:
    """One run that meets one fault."""

    def __init__(self, cluster, name, reference, *flags, steps=STEPS, **options):
        self.cluster, self.name, self.reference = cluster, name, reference
        self.run = cluster.submit(name, *flags, steps=steps, **options)
        if not cluster.wait_for_step(self.run, 8):
            raise AssertionError(f"{name}: {cluster.status(self.run)}")

    def expect_event(self, *words):
        events = self.cluster.events(self.run)
        for word in words:
            if not any(word in event for event in events):
                raise AssertionError(f"{self.name}: expected an event with '{word}', got\n"
                                     + "\n".join(events))

    def expect_done(self):
        status = self.cluster.wait_for_end(self.run)
        if status["state"] != "done":
            raise AssertionError(f"{self.name}: {status['state']}: {status['reason']}\n"
                                 + "\n".join(self.cluster.events(self.run)))
        steps = self.cluster.steps(self.run)
        expect_equal(self.name, [s["loss"] for s in steps], self.reference)
        usual = statistics.median(s["seconds"] for s in steps)
        longest = max(s["seconds"] for s in steps)
        print(f"  a step takes {usual:.2f} s, the longest took {longest:.2f} s", flush=True)
        return steps

    def expect_failed_then_resume(self, *words):
        status = self.cluster.wait_for_end(self.run)
        if status["state"] != "failed" or not all(w in status["reason"] for w in words):
            raise AssertionError(f"{self.name}: expected a failure that names {words}, got "
                                 f"{status['state']}: {status['reason']}")
        print(f"  {status['reason']}", flush=True)
        self.cluster.wait_until_connected()
        self.cluster.resume(self.name)
        self.expect_done()


def worker_killed(cluster, reference):
    case = Case(cluster, "worker-killed", reference)
    cluster.kill("worker3")
    wait_for("the failure", lambda: cluster.status(case.run)["state"] == "failed")
    cluster.start("worker3")
    # A worker that may live is waited for; this one is given up at once, as its neighbours lost it, too.
    case.expect_failed_then_resume("worker3", "its neighbours miss it too")


def worker_killed_and_nobody_types(cluster, reference):
    """Twice, another one each time: the run goes on by itself as soon as the worker is back."""
    case = Case(cluster, "recovers", reference, "--set", "recovery.attempts=5", "--set",
                "checkpoint.every=8")
    for attempt, worker in enumerate(("worker3", "worker1")):
        cluster.kill(worker)
        killed_at = time.monotonic()
        cluster.start(worker)
        wait_for("the next epoch", lambda: (s := cluster.status(case.run))["state"] in ENDED or
                 (s["state"] == "running" and int(s["epoch"]) >= attempt + 2))
        print(f"  running again {time.monotonic() - killed_at:.1f} s after {worker} was killed",
              flush=True)
        at = int(cluster.status(case.run)["step"])
        cluster.wait_for_step(case.run, at + 12)
    case.expect_done()
    case.expect_event("recovering: worker worker3 (stage 2) was lost", "epoch 2 goes on from step",
                      "recovering: worker worker1 (stage 0) was lost", "epoch 3 goes on from step")


def control_reset(cluster, reference):
    """The TCP connection between a worker and the coordinator is reset, all links are well."""
    case = Case(cluster, "control-reset", reference)
    for worker in (2, 4):
        cluster.reset(worker, CONTROL_NETWORK)
    case.expect_done()
    case.expect_event("worker2 (stage 1) has no connection", "worker4 (stage 3) has no connection",
                      "worker2 (stage 1) is back", "worker4 (stage 3) is back")


def control_cut_for_30_s(cluster, _):
    """No packet passes between a worker and the coordinator: step times and losses stay as they are."""
    case, seconds_of = longer_case(cluster, "control-cut")
    left_at = int(cluster.status(case.run)["step"])
    cluster.cut_control(3, seconds=30)
    healed_at = time.monotonic()
    wait_for("the worker", lambda: any("worker3 (stage 2) is back" in event
                                       for event in cluster.events(case.run)))
    took = time.monotonic() - healed_at
    back_at = int(cluster.status(case.run)["step"])
    case.expect_done()
    print(f"  steps {left_at + 1} to {back_at} with the worker cut off, back {took:.1f} s after that "
          f"ended: {seconds_of(left_at, back_at):.3f} s a step, the others "
          f"{seconds_of(back_at, None):.3f} s", flush=True)


def coordinator_away(cluster, reference):
    """Killed and back after 5 s: training has not stopped, and nothing is missing after."""
    case = Case(cluster, "coordinator-away", reference)
    before = int(cluster.status(case.run)["step"])
    cluster.kill("coordinator")
    time.sleep(5)
    cluster.start("coordinator")
    cluster.wait_until_connected()
    wait_for("later steps", lambda: int(cluster.status(case.run)["step"]) > before + 5)
    case.expect_done()


def longer_case(cluster, name):
    """A run of 100 steps of about a second, and a function: its seconds a step, from one step to another."""
    def longer(text):
        return text.replace("microbatches: 4", "microbatches: 32")
    unbroken = cluster.submit(f"{name}-reference", steps=100, edit=longer)
    cluster.wait_for_end(unbroken)
    case = Case(cluster, name, cluster.losses(unbroken), steps=100, edit=longer)
    return case, lambda first, last: statistics.median(
        s["seconds"] for s in cluster.steps(case.run)[first:last])


def coordinator_away_for_a_minute(cluster, _):
    """Long enough that everybody has tried to come back many times: step times stay as they are."""
    case, seconds_of = longer_case(cluster, "away-60s")
    left_at = int(cluster.status(case.run)["step"])
    cluster.kill("coordinator")
    time.sleep(60)
    cluster.start("coordinator")
    cluster.wait_until_connected()
    back_at = wait_for("later steps", lambda: int(cluster.status(case.run)["step"]) > left_at and
                       int(cluster.status(case.run)["step"]))
    case.expect_done()
    print(f"  steps {left_at + 1} to {back_at} without a coordinator: "
          f"{seconds_of(left_at, back_at):.3f} s a step, the others "
          f"{seconds_of(back_at, None):.3f} s", flush=True)


def frozen_shortly(cluster, reference):
    case = Case(cluster, "frozen-3s", reference)
    cluster.freeze("worker2", 3)
    case.expect_done()
    case.expect_event("suspect")


def frozen_long(cluster, reference):
    """Longer than peer_timeout: the run fails with the reason, and resumes."""
    case = Case(cluster, "frozen-30s", reference)
    cluster.freeze("worker2", 30)
    case.expect_failed_then_resume("worker2")


def link_cut(cluster, reference):
    case = Case(cluster, "link-cut", reference)
    cluster.cut("worker3", 3)
    case.expect_done()
    case.expect_event("suspect")


def link_reset(cluster, reference):
    """All TCP connections of a worker's data interface are reset."""
    case = Case(cluster, "link-reset", reference)
    cluster.reset(2, DATA_NETWORK)
    case.expect_done()
    case.expect_event("is lost", "is healed")


def link_gone(cluster, reference):
    """Longer than peer_timeout: the stages beside the cut say whom they lost."""
    case = Case(cluster, "link-gone", reference)
    cluster.cluster("link", "worker2", "--down")
    wait_for("the failure", lambda: cluster.status(case.run)["state"] in ENDED)
    cluster.cluster("link", "worker2", "--up")
    case.expect_failed_then_resume("link")


def slower(cluster, reference):
    """A tenth of the rate for a while: slower, the same losses, no false alarm ends it."""
    case = Case(cluster, "slower", reference)
    cluster.cluster("link", "worker2", "--rate", "2mbit")
    at = int(cluster.status(case.run)["step"])
    cluster.wait_for_step(case.run, at + 3)
    cluster.cluster("link", "worker2", "--rate", "20mbit")
    case.expect_done()


CASES = {case.__name__: case for case in (worker_killed, worker_killed_and_nobody_types,
                                          control_reset, coordinator_away, frozen_shortly,
                                          frozen_long, link_cut, link_reset, link_gone, slower)}
# Some minutes each.
BY_NAME_ONLY = {case.__name__: case for case in (control_cut_for_30_s, coordinator_away_for_a_minute)}


def main():
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("names", nargs="*", default=list(CASES), metavar="NAME")
    parser.add_argument("--clusters", type=int, default=1, help="that share the cases")
    options = parser.parse_args()
    names = options.names
    if options.clusters > 1:
        return side_by_side([options.programs, *names[i::options.clusters]]
                            for i in range(options.clusters))
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with namespace_cluster(options.programs, folder, rate="20mbit") as cluster:
            run = cluster.submit("unbroken", steps=STEPS)
            cluster.wait_for_end(run)
            reference = cluster.losses(run)
            for name in names:
                print(f"{name}:", flush=True)
                (CASES | BY_NAME_ONLY)[name](cluster, reference)
    return 0


if __name__ == "__main__":
    sys.exit(main())
