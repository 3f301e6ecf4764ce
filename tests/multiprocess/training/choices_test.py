"""What a run file leaves to the plan, over real processes: the number of replicas, the codec of each link.

usage: choices_test.py BIN_DIR
"""
import json
import sys
import tempfile

from training_test import GPT, Cluster, expect_equal, expect_learnt, text_for_training

# A layer a stage: where lossy codecs stand does not depend on how long layers took.
SMALL = GPT.replace("layers: 4", "layers: 2")
STEPS = 20


def submit(cluster, name, *flags, **options):
    path = cluster.write_run(name, steps=STEPS, model=SMALL, stages=2, **options)
    return path, cluster.cli("submit", path, "--watch", *flags).stdout.split()[0]


def expect_in(sentence, text):
    if sentence not in text:
        raise AssertionError(f"expected {sentence!r} in {text!r}")


def codecs(cluster):
    """Losses are those of a run file that names what the plan chose."""
    links = "{ forward: auto, backward: auto, measure: false }"
    _, run = submit(cluster, "open", links=links)
    chosen = [link for link in cluster.status(run)["links"] if link["kind"] == "activations"]
    down, up = ([link["codec"] for link in chosen if link["direction"] == way] for way in ("forward", "backward"))
    if down != ["predict:pairs=0,rate=0.05,prior=4/gauss:bits=5,block=128"] or up != ["dither:bits=2,block=128"]:
        raise AssertionError(f"without a rate the coarsest are chosen, got {chosen}")
    expect_in("links: the plan chose codecs", cluster.cli("events", run).stdout)
    named = f'{{ forward: "{down[0]}", backward: "{up[0]}", measure: false }}'
    losses = cluster.losses(run)
    expect_learnt("codecs that the plan chose", losses)
    expect_equal("codecs that the plan chose", losses,
                 cluster.train("named", steps=STEPS, model=SMALL, stages=2, links=named))


def fewest(tried):
    """The fewest replicas tried that come within 1 % of the fastest step."""
    shortest = min(row["step_seconds"] for row in tried)
    return min(int(row["replicas"]) for row in tried if row["step_seconds"] <= 1.01 * shortest)


def replicas(cluster):
    """A step reads the same tokens, and the run is that of a file that names the number."""
    # Which number wins depends on how busy the machine was while each worker timed its layers.
    flags = ("--set", "pipeline.replicas=auto", "--set", "links.measure=false")
    path, run = submit(cluster, "replicas", *flags)
    tried = cluster.status(run)["plan"]["prediction"]["replicas"]
    if [(int(row["replicas"]), int(row["stages"])) for row in tried] != [(1, 2), (2, 2)]:
        raise AssertionError(f"tried {tried}")
    count = fewest(tried)
    expect_in(f"pipeline.replicas: the plan chose {count}, so train.microbatches are {4 // count} of each",
              cluster.cli("events", run).stdout)
    named = ("--set", f"pipeline.replicas={count}", "--set", f"train.microbatches={4 // count}")
    expect_equal(f"{count} replicas that the plan chose", cluster.losses(run),
                 cluster.train("replicas-named", *named, steps=STEPS, model=SMALL, stages=2))
    plan = json.loads(cluster.cli("plan", path, "--set", "pipeline.replicas=auto", "--set", "pipeline.stages=auto",
                                  "--json").stdout)
    plan = plan.get("plan") or plan
    tried = [(int(row["replicas"]), int(row["stages"])) for row in plan["prediction"]["replicas"]]
    if tried != [(1, 2), (2, 2), (4, 1)]:
        raise AssertionError(f"tried {tried}")
    expect_in("pipeline.replicas is auto", plan["explanation"])
    print(f"ok: {plan['explanation'].split('pipeline.replicas is auto')[1]}", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with Cluster(sys.argv[1], folder, workers=4) as cluster:
            codecs(cluster)
            replicas(cluster)


if __name__ == "__main__":
    main()
