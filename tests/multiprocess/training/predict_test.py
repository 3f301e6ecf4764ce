"""Runs whose links predict activations by their tokens (predict), over real processes.

usage: predict_test.py BIN_DIR [resume|validation|elsewhere|recovery|refused|carried ...]
"""
import json
import sys

from cases import run_cases
from checkpoint_test import ended, events, expect, from_copies, is_copied
from training_test import expect_equal, wait_for

CODEC = "predict:pairs=4096,rate=0.02/gauss:bits=3"
LINKS = '{ forward: "%s", backward: "fixed:bits=4,rounding=stochastic" }'
PREDICT = LINKS % CODEC
STEPS = 40
BEGIN_ANEW = "tables of tokens"


def write_run(cluster, name, steps=STEPS):
    """The file of a run of four stages."""
    return cluster.write_run(name, steps=steps, links=PREDICT)


def resume(cluster):
    """kill -9, and both sides of every boundary come back to the checkpoint."""
    unbroken = cluster.train("whole", steps=STEPS, links=PREDICT)
    none = cluster.train("none", steps=STEPS)
    alone = cluster.train("alone", steps=STEPS, links=LINKS % "gauss:bits=3")
    expect("it is nearer to no codec than its differences' codec alone",
           abs(unbroken[-1] - none[-1]) < abs(alone[-1] - none[-1]),
           (none[-1], unbroken[-1], alone[-1]))
    path = write_run(cluster, "broken")
    run = cluster.broken_after(20, path, kill=("worker2", "worker3"))
    cluster.start_worker(2)
    cluster.start_worker(3)
    wait_for("the workers again", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, "--resume", "--watch")
    expect("nothing began anew", BEGIN_ANEW not in events(cluster, run), events(cluster, run))
    expect_equal("killed and resumed, predict", cluster.losses(run), unbroken)
    tables = list(cluster.folder.glob(f"worker*/**/{run}/step-*{STEPS}/*.tables.safetensors"))
    expect("every stage but the last has written its boundary's tables", len(tables) == 3, tables)


def validation(cluster):
    """Validations predict and teach nothing, whatever codec they go through."""
    validated = cluster.train("validated", "--set", "validation.clean=always", steps=STEPS, links=PREDICT)
    alone = cluster.train("not-validated", "--set", "validation.every=0", steps=STEPS, links=PREDICT)
    expect_equal("with validations and without", validated, alone)
    rows = [json.loads(line) for line in cluster.cli("steps", "validated", "--json").stdout.splitlines()]
    both = [(row["validation_loss"], row["clean_validation_loss"]) for row in rows
            if row.get("clean_validation_loss") is not None]
    expect("both are reported, and near each other",
           len(both) == 4 and all(coded != clean and abs(coded - clean) < 0.05 * clean
                                  for coded, clean in both), both)
    # Whatever is in flight, tables learn in the order of microbatches.
    gpipe = cluster.train("gpipe", "--set", "validation.every=0", steps=STEPS, links=PREDICT, schedule="gpipe")
    expect_equal("another schedule", gpipe, alone)
    grpc = cluster.train("grpc", "--set", "validation.every=0", steps=STEPS, links=PREDICT, transport="grpc")
    expect_equal("another transport", grpc, alone)


def carried(cluster):
    """Stages that predict hear the tokens over a link whose codec knows none."""
    links = PREDICT[:-2] + ", workers: { worker1: { forward: \"fixed:bits=8\" } } }"
    unbroken = cluster.train("whole", steps=STEPS, links=links)
    path = cluster.write_run("broken", steps=STEPS, links=links)
    run = cluster.broken_after(20, path, kill=("worker2",))
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, "--resume", "--watch", "--set", "validation.clean=always")
    expect("nothing began anew", BEGIN_ANEW not in events(cluster, run), events(cluster, run))
    expect_equal("killed and resumed, tokens carried", cluster.losses(run), unbroken)
    sliced = cluster.train("sliced", "--set", "pipeline.slices=2", steps=STEPS, links=links)
    expect("slices learn as much", abs(sliced[-1] - unbroken[-1]) < 0.05 * unbroken[-1], (sliced[-1], unbroken[-1]))


def elsewhere(cluster):
    """Another worker gets the tables of both its boundaries; another split begins anew, and says so."""
    # Long enough that copies are made before it ends.
    unbroken = cluster.train("whole", steps=3 * STEPS, links=PREDICT)
    copied = ("--set", "checkpoint.keep_copy=true")
    path = write_run(cluster, "moved", steps=3 * STEPS)
    run = cluster.broken(path, *copied, middle=lambda status: is_copied(cluster, status["run_id"], 19))
    cluster.start_worker(5)
    wait_for("worker5", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, *from_copies(cluster, run), "--watch", *copied)
    names = [stage["worker_name"] for stage in cluster.status(run)["stages"]]
    expect("worker5 took the place", "worker5" in names and "worker2" not in names, names)
    expect("nothing began anew", BEGIN_ANEW not in events(cluster, run), events(cluster, run))
    expect_equal("resumed on another worker", cluster.losses(run), unbroken)

    # Four layers: two of three boundaries go, one stays.
    path = write_run(cluster, "split")
    run = cluster.broken_after(20, path, kill=("worker3",))
    cluster.start_worker(3)
    wait_for("worker3 again", lambda: len(cluster.connected()) == 4)
    cluster.cli("submit", path, "--resume", "--watch", "--set", "pipeline.stages=2")
    status = cluster.status(run)
    cut = int(status["stages"][1]["first_layer"])
    told = [line for line in events(cluster, run).splitlines() if BEGIN_ANEW in line]
    expect("a boundary that stayed goes on", cut in (1, 2, 3) and not told, (cut, told))
    # Three stages of four layers cut at other places than two stages do.
    cluster.cli("submit", path, "--resume", "--watch", "--set", "pipeline.stages=3", "--set",
                f"train.steps={STEPS + 10}")
    cuts = [int(stage["first_layer"]) for stage in cluster.status(run)["stages"][1:]]
    told = [line for line in events(cluster, run).splitlines() if BEGIN_ANEW in line]
    expect("new boundaries begin anew, and that is said", len(told) == len(set(cuts) - {cut}),
           (cut, cuts, told))
    expect("it learnt", cluster.losses(run)[-1] < 0.8 * cluster.losses(run)[0],
           cluster.losses(run))


def recovery(cluster):
    """A worker is lost while it trains: survivors go back to the checkpoint with their tables."""
    unbroken = cluster.train("whole", steps=STEPS, links=PREDICT)
    path = write_run(cluster, "lost")
    for _ in range(5):  # a run may be done before the worker is killed
        run = cluster.cli("submit", path, "--set", "recovery.attempts=3").stdout.split()[0]
        wait_for("a checkpoint of step 20", lambda: cluster.checkpoint_step(run) >= 20)
        cluster.kill("worker2")
        cluster.start_worker(2)
        recovered = int(ended(cluster, run, "done")["epoch"]) > 1
        wait_for("worker2 again", lambda: len(cluster.connected()) == 4)
        if recovered:
            break
    expect("it was recovered", recovered, cluster.status(run))
    expect("nothing began anew", BEGIN_ANEW not in events(cluster, run), events(cluster, run))
    expect_equal("recovered, predict", cluster.losses(run), unbroken)


def refused(cluster):
    """What cannot be had is refused with a sentence."""
    def refusal(name, links, sentence):
        path = cluster.write_run(name, steps=STEPS, links=links)
        result = cluster.cli("submit", path, check=False)
        if result.returncode == 0:
            run = result.stdout.split()[0]
            reason = ended(cluster, run, "failed")["reason"]
        else:
            reason = result.stderr
        expect(f"{name}: {sentence}", sentence in reason, reason)

    refusal("backward", '{ forward: none, backward: "predict/gauss" }', "cannot send gradients")
    refusal("state", '{ forward: "predict/aqsgd", backward: none }', "a codec without state")
    # Tables are part of what the plan says of memory.
    plans = {}
    for pairs in (0, 65536):
        path = cluster.write_run(f"pairs{pairs}", links=LINKS % f"predict:pairs={pairs}/gauss")
        plan = json.loads(cluster.cli("plan", path, "--json").stdout)
        cells = (plan.get("plan") or plan)["assignment"]["cells"]
        plans[pairs] = [int(cell["memory_bytes"]) for cell in cells]
    # Layers are timed for each plan anew, which may give it other depths: some messages more or less, each far smaller
    # than tables.
    memory = 65536 * (64 * 2 + 4)
    more = [b - a for a, b in zip(plans[0], plans[65536])]
    wanted = [(boundaries + kept) * memory for boundaries, kept in ((1, 4), (2, 4), (2, 4), (1, 2))]
    expect("tables of each boundary, arrays in two snapshots, and two on their way",
           all(abs(got - want) < 0.1 * memory for got, want in zip(more, wanted)), (more, wanted))


if __name__ == "__main__":
    sys.exit(run_cases({"resume": resume, "validation": validation, "elsewhere": elsewhere, "recovery": recovery,
                        "refused": refused, "carried": carried}))
