"""Stages that are shared by a group of ranks, over real processes: 2 workers with 2 CPU ranks each.

usage: group_test.py BIN_DIR [parity|models|resume|experts|chosen|predict|refused|samples|own ...]
"""
import json
import sys

from cases import run_cases
from nearness import expect_near
from samples_test import STEPS as SAMPLED_STEPS
from samples_test import expect_same_ids, exported, rounds_of, sampled
from training_test import DEFAULT, GPT, GPUS, LLAMA, MUON, Cluster, expect_equal, expect_learnt, wait_for

GROUP = "group.tensor=2"
# A layer a stage: where lossy codecs stand does not depend on how long layers took.
SMALL = GPT.replace("layers: 4", "layers: 2")
# As small, with experts. What is biased is part of a checkpoint.
MOE = """{ family: moe, layers: 2, hidden: 64, heads: 4, kv_heads: 2, context: 64, experts: 4, experts_per_token: 2,
         expert_intermediate: 64, balance: bias }"""
STEPS = 10
MICROBATCHES = 4  # RUN's


class GroupCluster(Cluster):
    def devices(self, number):
        return "cuda:0,cuda:1" if GPUS else "cpu,cpu"


def plan_of(cluster, path, *flags):
    plan = json.loads(cluster.cli("plan", path, *flags, "--json").stdout)
    return plan.get("plan") or plan


def expect_counted_as_planned(cluster, name, kinds, *flags, **options):
    """Compares what a step sends, for each stage and kind of call, with the plan. A step's sums of norms are in no plan: they are all-reduces."""
    path = cluster.write_run(name, stages=2, steps=STEPS, **options)
    run = cluster.cli("submit", path, "--watch", *flags).stdout.split()[0]
    status = cluster.status(run)
    planned = [cell["group"]["sent"] for cell in status["plan"]["cells"]]
    counted = [stage["collectives"]["sent"] for stage in status["stages"]]
    for stage, (plan, sent) in enumerate(zip(planned, counted)):
        for kind in kinds:
            wanted, got = MICROBATCHES * int(plan[kind]), int(sent[kind])
            if wanted != got or got == 0:
                raise AssertionError(f"{name}: {kind} of stage {stage}: {wanted} bytes planned, {got} counted")
    print(f"ok: {name}: what {', '.join(kinds)} send is what was planned: {counted}", flush=True)
    return cluster.losses(run)


def expect_planned(cluster, path):
    for cell in plan_of(cluster, path, "--set", GROUP)["assignment"]["cells"]:
        if cell["tensor_ranks"] != 2 or cell["devices"] != [0, 1]:
            raise AssertionError(f"the plan has {cell}")
    text = cluster.cli("plan", path, "--set", GROUP).stdout
    if f"2 ranks on{'' if GPUS else ' cpu 0-1'}" not in text:
        raise AssertionError(text)
    print("ok: the plan shows the ranks", flush=True)


def expect_parity(cluster, name, model):
    one = cluster.train(f"{name}-one", stages=2, steps=STEPS, model=model)
    two = cluster.train(f"{name}-two", "--set", GROUP, stages=2, steps=STEPS, model=model)
    expect_near(f"{name}, 2 ranks against 1", two, one)
    return one, two


def parity(cluster):
    expect_planned(cluster, cluster.write_run("planned", stages=2))
    one, two = expect_parity(cluster, "llama", LLAMA)
    parts = expect_counted_as_planned(cluster, "parts", ["all_gather", "reduce_scatter"], "--set", GROUP, "--set",
                                      "group.sequence=true", model=LLAMA)
    expect_near("llama, ranks with their parts of the tokens", parts, one)
    # 8-bit codes: other losses, by little. Formats and blocks are in the plan, and ranks of both workers have them.
    path = cluster.write_run("coded", stages=2, steps=STEPS, model=LLAMA)
    run = cluster.cli("submit", path, "--watch", "--set", GROUP, "--set", "group.forward=taco:format=e5m2", "--set",
                      "group.backward=taco:format=int8,block=64").stdout.split()[0]
    for cell in cluster.status(run)["plan"]["cells"]:
        names = [cell["group"][f"{direction}_collective"] for direction in ("forward", "backward")]
        if not (names[0].startswith("taco:format=e5m2,block=256 over ") and
                names[1].startswith("taco:format=int8,block=64 over ")):
            raise AssertionError(f"the plan has {names}")
    coded = cluster.losses(run)
    expect_near("llama, taco in both directions", coded, two, bound=1e-2)
    if coded == two:
        raise AssertionError("taco gave the losses of none: nothing was compressed")


def models(cluster):
    expect_parity(cluster, "gpt", GPT)
    _, two = expect_parity(cluster, "llama-too", LLAMA)
    # Half of the channels are each rank's own: another model, and boundaries of 1.5 times the size.
    own = cluster.train("own", "--set", GROUP, "--set", "group.p=0.5", stages=2, model=LLAMA)
    expect_learnt("llama, half of the channels shared", own)
    export = cluster.cli("export", "own", "--out", cluster.folder / "exported", check=False)
    if export.returncode == 0 or "ranks have channels of their own" not in export.stderr:
        raise AssertionError(f"export: exit {export.returncode}, {export.stderr!r}")
    again = cluster.train("again", "--set", GROUP, stages=2, steps=STEPS, model=LLAMA)
    expect_equal("llama, 2 ranks once more", again, two)


def killed_and_resumed(cluster, what, *flags, **options):
    """The run whose worker was killed, and the losses of one that nobody disturbed."""
    unbroken = cluster.train("whole", *flags, **options)
    expect_learnt(what, unbroken)
    path = cluster.write_run("broken", **options)
    run = cluster.broken_after(10, path, *flags)
    cluster.start_worker(2)
    wait_for("worker2 again", lambda: len(cluster.connected()) == 2)
    cluster.cli("submit", path, "--resume", "--watch", *flags)
    expect_equal(f"{what}, killed and resumed", cluster.losses(run), unbroken)
    return run, unbroken


def resume(cluster):
    options = {"stages": 2, "links": DEFAULT, "model": SMALL}
    run, _ = killed_and_resumed(cluster, "2 stages of 2 ranks, default codecs", "--set", GROUP, **options)
    # Checkpoints hold whole tensors: one rank goes on from those of two.
    path = cluster.write_run("broken", steps=40, **options)
    cluster.cli("submit", path, "--resume", "--watch")
    losses = cluster.losses(run)
    if len(losses) != 40 or max(losses[30:]) > 1.05 * max(losses[20:30]):
        raise AssertionError(f"after two ranks, one: {len(losses)} losses, the last {losses[20:]}")
    print(f"ok: one rank goes on from the checkpoint of two: {losses[29]:.3f}, then {losses[-1]:.3f}", flush=True)


def experts(cluster):
    """A block's experts in 2 parts: tokens travel to them."""
    divided = ["--set", GROUP, "--set", "group.expert=2"]
    path = cluster.write_run("planned", stages=2, model=MOE)
    text = cluster.cli("plan", path, *divided).stdout
    for sentence in ["2 ranks, experts in 2 parts, on cpu 0-1", "A block's 4 experts are in 2 parts",
                     "tokens on their way to experts and back"]:
        if sentence not in text:
            raise AssertionError(f"{sentence!r} is not in\n{text}")
    plan = plan_of(cluster, path, "--set", "group.tensor=auto", "--set", "group.expert=auto")
    tried = [(row["tensor"], row["expert"]) for row in plan["prediction"]["ranks"]]
    best = min(plan["prediction"]["ranks"], key=lambda row: row["step_seconds"])
    cells = {(cell["tensor_ranks"], cell["expert_ranks"]) for cell in plan["assignment"]["cells"]}
    if tried != [(1, 1), (2, 1), (2, 2)] or cells != {(best["tensor"], best["expert"])}:
        raise AssertionError(f"tried {tried}, and the plan has {cells}")
    print(f"ok: a plan divides experts, and chooses {cells.pop()} of {tried}", flush=True)

    options = {"stages": 2, "links": DEFAULT, "model": MOE}
    run, losses = killed_and_resumed(cluster, "2 stages of 2 ranks, experts in 2 parts", *divided, **options)
    for stage in cluster.status(run)["stages"]:
        if int(stage["collectives"]["sent"]["all_to_all"]) == 0 or not 1 <= stage["expert_load"]["highest"] <= 4:
            raise AssertionError(f"{stage}")
    rows = [json.loads(line) for line in cluster.cli("steps", run, "--json").stdout.splitlines()]
    loads = [row["expert_load"] for row in rows if int(row["step"]) > 0]
    if len(loads) != len(losses) or any(not 1 <= load["mean"] <= load["highest"] <= 4 for load in loads):
        raise AssertionError(f"{loads}")
    print(f"ok: steps say how evenly experts were busy: {loads[0]}, then {loads[-1]}", flush=True)
    # Where experts are does not matter but for rounding. No codec, as those make more of that.
    whole = cluster.train("all-experts", "--set", GROUP, stages=2, steps=STEPS, model=MOE)
    parts = cluster.train("experts-in-parts", *divided, stages=2, steps=STEPS, model=MOE)
    expect_near("experts in 2 parts against all on each rank", parts, whole)


def chosen(cluster):
    """The plan chooses the number of ranks, the workers what compresses."""
    open_ = ["--set", "group.tensor=auto", "--set", "group.collective=auto"]
    path = cluster.write_run("open", stages=2, model=LLAMA, steps=STEPS)
    plan = plan_of(cluster, path, *open_)
    tried = plan["prediction"]["ranks"]
    if [row["tensor"] for row in tried] != [1, 2] or any(row["refused"] for row in tried):
        raise AssertionError(f"tried {tried}")
    best = min(tried, key=lambda row: row["step_seconds"])["tensor"]
    ranks = {cell["tensor_ranks"] for cell in plan["assignment"]["cells"]}
    if ranks != {best}:
        raise AssertionError(f"{best} ranks are the fastest, and the plan has {ranks}")
    text = cluster.cli("plan", path, *open_).stdout
    if "group.tensor is auto: " not in text or "predicted with each number of ranks" not in text:
        raise AssertionError(text)
    print(f"ok: a plan chooses {best} of {[row['step_seconds'] for row in tried]}", flush=True)

    run = cluster.cli("submit", path, *open_, "--watch").stdout.split()[0]
    status = cluster.status(run)
    first = {stage["tensor_ranks"] for stage in status["stages"]}
    if status["state"] != "done" or not first <= {1, 2} or len(first) != 1:
        raise AssertionError(f"{status}")
    # What was settled stays, although the file still leaves it open.
    longer = cluster.write_run("open", stages=2, model=LLAMA, steps=2 * STEPS)
    cluster.cli("submit", longer, "--resume", "--watch", *open_)
    again = {stage["tensor_ranks"] for stage in cluster.status(run)["stages"]}
    if again != first:
        raise AssertionError(f"{first} ranks, and {again} after a resume")
    print(f"ok: a run keeps the {first.pop()} ranks that its first plan chose", flush=True)

    run = cluster.cli("submit", cluster.write_run("counted", stages=2, model=LLAMA, steps=STEPS), "--set", GROUP,
                      "--watch").stdout.split()[0]
    for stage in cluster.status(run)["stages"]:
        use = stage["collectives"]
        if use["sent"]["all_reduce"] == 0 or use["sent"]["all_gather"] != 0 or not 0 < stage["collective_share"] < 1:
            raise AssertionError(f"{stage}")
    print("ok: steps say what their collectives sent and took", flush=True)


def predict(cluster):
    """A boundary is one tensor in the order of tokens, whatever the ranks have of it."""
    options = {"stages": 2, "model": LLAMA.replace("layers: 4", "layers: 2"),
               "links": '{ forward: "predict:pairs=1024/gauss:bits=4", backward: none }'}
    sequence = ("--set", GROUP, "--set", "group.sequence=true")
    one = cluster.train("one", **options)
    _, whole = killed_and_resumed(cluster, "tokens predict, ranks with their parts of them", *sequence, **options)
    expect_near("tokens predict, 2 ranks against 1", whole, one, bound=1e-2)
    own = cluster.train("own", "--set", GROUP, "--set", "group.p=0.5", **options)
    expect_learnt("tokens predict, half of the channels shared", own)


def refused(cluster):
    def expect(name, sentence, *flags, **options):
        path = cluster.write_run(name, stages=2, **options)
        result = cluster.cli("submit", path, *flags, check=False)
        if result.returncode != 1 or sentence not in result.stderr:
            raise AssertionError(f"{name}: exit {result.returncode}, {result.stderr!r}")
        print(f"ok: {name}: {result.stderr.strip()}", flush=True)

    expect("heads", "divides its 4 heads, got 3", "--set", "group.tensor=3")
    expect("experts", "divides the 2 ranks of group.tensor, got 3", "--set", GROUP, "--set", "group.expert=3",
           model=MOE)
    expect("no-experts", "no block of family gpt has experts", "--set", GROUP, "--set", "group.expert=auto")
    expect("muon", "updates whole matrices", "--set", GROUP, "--set", "group.p=0.5", optimizer=MUON)
    expect("devices", "worker1 offers 2 on its CPU; start it with --device cpu,cpu,cpu,cpu", "--set",
           "group.tensor=4")


def samples(cluster):
    """Ranks have shares of the vocabulary, and parts of the tokens, channels or experts: all of them sample."""
    for name, model, flags in (("parts", LLAMA, ["group.sequence=true"]), ("own", LLAMA, ["group.p=0.5"]),
                               ("experts", MOE.replace(", balance: bias", ""), ["group.expert=2"])):
        flags = ["--set", GROUP] + [word for flag in flags for word in ("--set", flag)]
        losses = cluster.train(name, *flags, stages=2, steps=SAMPLED_STEPS, model=model)
        run = sampled(cluster, f"{name}-samples", *flags, stages=2, model=model)
        expect_equal(f"{name}, with samples and without", cluster.losses(run), losses)
        ids = [one["ids"] for one in rounds_of(cluster, run)[-1]["samples"]]
        expect_same_ids(ids, exported(cluster, run, *(["--format", "longhaul"] if name == "own" else [])))


def own(cluster):
    """Channels of ranks' own: the export has the losses of the run, and other runs begin with it."""
    ranks = ["--set", GROUP, "--set", "group.p=0.5"]
    trained = cluster.cli("submit", cluster.write_run("trained", stages=2, steps=STEPS, model=LLAMA), "--watch",
                          *ranks).stdout.split()[0]
    wanted = cluster.status(trained)["validation_loss"]
    refused = cluster.cli("export", trained, "--out", cluster.folder / "published", check=False)
    if refused.returncode == 0 or "--format longhaul writes a folder" not in refused.stderr:
        raise AssertionError(f"export: exit {refused.returncode}, {refused.stderr!r}")
    folder = cluster.folder / "exported"
    cluster.cli("export", trained, "--out", folder, "--format", "longhaul")
    files = sorted(file.name for file in folder.iterdir())
    group = json.loads((folder / "longhaul.json").read_text())["group"]
    if files != ["longhaul.json", "model.safetensors"] or group != {"tensor": 2, "p": 0.5}:
        raise AssertionError(f"{files}: {group}")
    model = f'{{ from: "{folder}", context: 64 }}'
    for stages in (1, 2):
        path = cluster.write_run(f"again-{stages}", stages=stages, steps=6, model=model)
        run = cluster.cli("submit", path, "--watch", *ranks).stdout.split()[0]
        rows = [json.loads(line) for line in cluster.cli("steps", run, "--json").stdout.splitlines()]
        if int(rows[0]["step"]) != 0 or rows[0]["validation_loss"] != wanted:
            raise AssertionError(f"{stages} stages begin with {rows[0]}, the run ended with {wanted}")
    print(f"ok: the export has the validation loss of the run, {wanted}, with 1 and 2 stages", flush=True)
    only = cluster.cli("submit", path, "--watch", *ranks, "--set", "train.steps=0", "--set",
                       "train.schedule.warmup=0").stdout.split()[0]
    if cluster.status(only)["validation_loss"] != wanted:
        raise AssertionError(f"a run of no steps: {cluster.status(only)}")
    once_more = cluster.folder / "exported-again"
    cluster.cli("export", run, "--out", once_more, "--format", "longhaul")
    if (once_more / "longhaul.json").read_text() != (folder / "longhaul.json").read_text():
        raise AssertionError(f"another longhaul.json: {(once_more / 'longhaul.json').read_text()}")
    for flags in (["--set", GROUP], ["--set", GROUP, "--set", "group.p=0.25"], []):
        result = cluster.cli("submit", path, *flags, check=False)
        if result.returncode == 0 or "expected group: { tensor: 2, p: 0.5 }" not in result.stderr:
            raise AssertionError(f"{flags}: exit {result.returncode}, {result.stderr!r}")
    print(f"ok: {result.stderr.strip()}", flush=True)


if __name__ == "__main__":
    sys.exit(run_cases({"parity": parity, "models": models, "resume": resume, "experts": experts, "chosen": chosen,
                        "predict": predict, "refused": refused, "samples": samples, "own": own}, kind=GroupCluster,
                       workers=2))
