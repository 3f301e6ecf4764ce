"""The way between workers becomes longer while a run trains: depths and order of data follow it, and
all stages take them up. A replay, so that what is planned does not depend on this machine's cores.

usage: retuned_test.py BIN_DIR [replicas]
"""
import os
import sys
import tempfile

from namespace_cluster import namespace_cluster
from training_test import text_for_training, wait_for
from requirements import without_root

STEPS = 1000  # it is stopped
DECIDED, DONE = "depths or order change after step", "all stages have the depths"
# A stage needs 60 ms for a microbatch, so a few in flight do where the way is short.
REPLAY = """\
replay:
  source: a machine that does not exist
  layers: { block_forward: 10ms, block_backward: 20ms, optimizer: 1ms }
  codecs: real
"""


def replayed(text):
    for old, new in (("microbatches: 4", "microbatches: 16"), ("layers: 4", "layers: 6"),
                     ("every: 10, samples", "every: 0, samples"), ("every: 10, keep", "every: 0, keep")):
        if old not in text:
            raise AssertionError(f"no {old} in the run file")
        text = text.replace(old, new)
    return text + REPLAY


def of_two_replicas(text):
    return replayed(text).replace("pipeline: {", "pipeline: { replicas: 2,")


def depths(cluster, run):
    return [stage["depth"] for stage in cluster.status(run)["stages"]]


def event(cluster, run, words):
    return next((line for line in cluster.events(run) if words in line), None)


def step_after(text, word):
    words = text.split()
    return int(words[words.index(word) + 1].rstrip(":"))


def main():
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    replicas = sys.argv[2:] == ["replicas"]
    workers, stages, edit = (4, 2, of_two_replicas) if replicas else (3, 3, replayed)
    with tempfile.TemporaryDirectory() as folder:
        text_for_training(folder)
        with namespace_cluster(sys.argv[1], folder, workers=workers, rate="1gbit") as cluster:
            run = cluster.submit("longer", steps=STEPS, stages=stages, edit=edit)
            cluster.wait_for_step(run, 1)
            before = depths(cluster, run)
            cluster.cluster("link", "all", "--delay", "100ms")
            wait_for("a change of depths", lambda: event(cluster, run, DECIDED))
            wait_for("all to have it", lambda: event(cluster, run, DONE))
            decided, done = event(cluster, run, DECIDED), event(cluster, run, DONE)
            if "a round trip between" not in decided:
                raise AssertionError(f"not because of the longer way: {decided}")
            after = depths(cluster, run)
            if not sum(after) > sum(before):
                raise AssertionError(f"depths went from {before} to {after}: {decided}")
            first, last = step_after(decided, "step"), step_after(done, "step")
            if not cluster.wait_for_step(run, last + 2):
                raise AssertionError(cluster.status(run))
            cluster.cli("stop", run)
            status = cluster.wait_for_end(run)
            if status["state"] != "stopped":
                raise AssertionError(f"{status['state']}: {status['reason']}")
            seconds = {int(row["step"]): row["seconds"] for row in cluster.steps(run)}
            print(f"  {decided}\n  depths {before} -> {after}; step {first} took "
                  f"{seconds[first]:.2f} s, step {last + 1} {seconds[last + 1]:.2f} s")
    print("ok: depths follow the links", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
