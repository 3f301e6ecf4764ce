"""A tied model over several stages, over real processes: the two that hold the matrix sum its gradient.

usage: tied_test.py BIN_DIR
"""
import json
import pathlib
import sys
import tempfile

from nearness import expect_near
from published_test import make_model, read_safetensors
from training_test import MUON, NONE, RUN, Cluster, GPT, expect_equal, expect_learnt, text_for_training, wait_for

EMBEDDING = "model.embed_tokens.weight"
STEPS = 150
# Only the first losses are compared, as later ones drift apart: the gradients of the matrix's two uses are summed in
# another order than in one stage.
COMPARED, TOLERANCE = 40, 2e-4


def write_run(cluster, name, stages, steps=STEPS, model="{ from: base, context: 64, tied: true }"):
    text = RUN.format(name=name, steps=steps, stages=stages, schedule="link-aware", links=NONE, transport="ucx")
    path = cluster.folder / f"{name}.yaml"
    path.write_text(text.replace(GPT, model).replace("lr: 1e-3", "lr: 1e-2"))
    return path


def submit(cluster, path, *flags):
    return cluster.cli("submit", path, *flags).stdout.split()[0]


def expect_close(what, losses, wanted, tolerance=TOLERANCE, compared=COMPARED):
    if len(losses) != len(wanted):
        raise AssertionError(f"{what}: {len(losses)} losses instead of {len(wanted)}")
    expect_near(f"{what}, the first {compared}", losses[:compared], wanted[:compared], bound=tolerance, relative=False)


def export(cluster, run, base):
    """The matrix is there once, as it was, and has changed."""
    out = cluster.folder / "out"
    cluster.cli("export", run, "--out", out)
    tensors = read_safetensors(out / "model.safetensors")
    if sorted(tensors) != sorted(base) or "lm_head.weight" in tensors:
        raise AssertionError(f"{sorted(tensors)} instead of {sorted(base)}")
    if not json.loads((out / "config.json").read_text())["tie_word_embeddings"]:
        raise AssertionError("the export does not say that it is tied")
    if tensors[EMBEDDING] == base[EMBEDDING]:
        raise AssertionError("the matrix is as it was")
    print("ok: exported with one matrix", flush=True)


def killed(cluster, name, stages, losses, worker):
    """The worker goes; the run fails, as recovery is off, and goes on as if nothing had been."""
    path = write_run(cluster, name, stages)
    run = submit(cluster, path)
    wait_for("a checkpoint", lambda: cluster.checkpoint_step(run) >= 10)
    holder = cluster.status(run)["stages"][worker]["worker_name"]
    cluster.kill(holder)
    wait_for("the failure", lambda: cluster.seen(run)["state"] == "failed")
    cluster.start_worker(int(holder.removeprefix("worker")))
    wait_for("all workers", lambda: len(cluster.connected()) == 3)
    submit(cluster, path, "--resume")
    wait_for("the end", lambda: cluster.seen(run)["state"] == "done")
    expect_equal(f"stage {worker} of {stages} killed, and resumed", cluster.losses(run), losses)


def resplit(cluster, losses):
    """From three stages to two, and to one: the matrix is in two shards of the checkpoint, or in one."""
    path = write_run(cluster, "resplit", 3)
    run = submit(cluster, path)
    wait_for("a checkpoint", lambda: cluster.checkpoint_step(run) >= 10)
    for stages in (2, 1, 3):
        cluster.cli("stop", run)
        state = wait_for("the stop", lambda: (s := cluster.seen(run))["state"] in ("stopped", "done") and s)["state"]
        if state == "done":
            raise AssertionError(f"done before it went over to {stages} stages; take more steps")
        cluster.cli("submit", path, "--resume", "--set", f"pipeline.stages={stages}")
        wait_for("some steps", lambda: cluster.seen(run)["state"] in ("running", "done"))
    wait_for("the end", lambda: cluster.seen(run)["state"] == "done")
    # All of them, as the first change may come late: a matrix that is lost or another one shows.
    expect_close("over three stages, then other numbers of them", cluster.losses(run), losses, 0.03, STEPS)


def recovers(cluster):
    """Workers die and come back while nobody looks after the run: Muon, and moments in bf16."""
    def path(name, stages):
        text = write_run(cluster, name, stages).read_text()
        text = text.replace("{ kind: adamw, lr: 1e-2 }", MUON).replace("attempts: 0", "attempts: 5")
        (cluster.folder / f"{name}.yaml").write_text(text)
        return cluster.folder / f"{name}.yaml"

    whole = cluster.losses(submit(cluster, path("muon", 3), "--watch"))
    expect_learnt("with Muon", whole)
    run = submit(cluster, path("recovers", 3))
    for stage, step in ((2, 20), (0, 70)):
        wait_for(f"step {step}", lambda: cluster.step(run) >= step)
        holder = cluster.status(run)["stages"][stage]["worker_name"]
        cluster.kill(holder)
        cluster.start_worker(int(holder.removeprefix("worker")))
    wait_for("the end", lambda: cluster.seen(run)["state"] in ("done", "failed"))
    expect_equal("with Muon, both ends killed in turn, recovered", cluster.losses(run), whole)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with Cluster(sys.argv[1], folder, workers=3) as cluster:
            base = make_model(cluster.folder / "base", "F32", tied=True)
            plan = cluster.cli("plan", write_run(cluster, "plan", 3)).stdout
            if "0 - 2, tied" not in plan or "hold the one matrix of embedding and head" not in plan:
                raise AssertionError(plan)
            one = cluster.losses(submit(cluster, write_run(cluster, "one", 1), "--watch"))
            expect_learnt("one stage", one)
            three_run = submit(cluster, write_run(cluster, "three", 3), "--watch")
            three = cluster.losses(three_run)
            expect_close("three stages against one", three, one)
            two = cluster.losses(submit(cluster, write_run(cluster, "two", 2), "--watch"))
            expect_equal("two stages against three", two, three)
            export(cluster, three_run, base)
            for stage in (0, 2):
                killed(cluster, f"killed{stage}", 3, three, stage)
            resplit(cluster, one)
            recovers(cluster)
            # One of its own, from random weights.
            own = write_run(cluster, "own", 2, model=GPT.replace("context", "tied: true, context"))
            expect_learnt("from random weights", cluster.losses(submit(cluster, own, "--watch")))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    main()
