"""The way between workers becomes longer while a run trains: depths and order of data follow it, all
stages take them up, and the losses are those of a run whose links stayed as they were.

usage: retuned_test.py BIN_DIR
"""
import os
import statistics
import sys
import tempfile

from namespace_cluster import namespace_cluster
from training_test import expect_equal, text_for_training, wait_for

SKIPPED = 77
STEPS = 20
DECIDED, DONE = "depths or order change after step", "all stages have the depths"


def larger(text):
    """Many microbatches, of some milliseconds each: then depths are a choice."""
    for old, new in (("microbatches: 4", "microbatches: 16"), ("size: 2", "size: 8"),
                     ("hidden: 64", "hidden: 128")):
        if old not in text:
            raise AssertionError(f"no {old} in the run file")
        text = text.replace(old, new)
    return text


def depths(cluster, run):
    return [stage["depth"] for stage in cluster.status(run)["stages"]]


def event(cluster, run, words):
    return next((line for line in cluster.events(run) if words in line), None)


def step_after(text, word):
    words = text.split()
    return int(words[words.index(word) + 1].rstrip(":"))


def main():
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        return SKIPPED
    programs = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        text_for_training(folder)
        with namespace_cluster(programs, folder, workers=3, rate="1gbit") as cluster:
            as_it_was = cluster.submit("as-it-was", steps=STEPS, stages=3, edit=larger)
            cluster.wait_for_end(as_it_was)
            run = cluster.submit("longer", steps=STEPS, stages=3, edit=larger)
            cluster.wait_for_step(run, 1)
            before = depths(cluster, run)
            cluster.cluster("link", "all", "--delay", "100ms")
            wait_for("a change of depths", lambda: event(cluster, run, DECIDED))
            wait_for("all to have it", lambda: event(cluster, run, DONE))
            after = depths(cluster, run)
            status = cluster.wait_for_end(run)
            if status["state"] != "done":
                raise AssertionError(f"{status['state']}: {status['reason']}")
            expect_equal("losses", cluster.losses(run), cluster.losses(as_it_was))
            decided, done = event(cluster, run, DECIDED), event(cluster, run, DONE)
            if "a round trip between" not in decided:
                raise AssertionError(f"not because of the longer way: {decided}")
            first, last = step_after(decided, "step"), step_after(done, "step")
            seconds = {int(row["step"]): row["seconds"] for row in cluster.steps(run)}
            slow = statistics.median(seconds[s] for s in range(first - 4, first + 1))
            quick = statistics.median(seconds[s] for s in range(last, STEPS + 1))
            print(f"  {decided}\n  depths {before} -> {after}; a step {slow:.2f} s, then {quick:.2f} s")
    print("ok: depths follow the links", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
