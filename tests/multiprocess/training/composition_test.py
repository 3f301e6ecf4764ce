"""Replicas of stages that ranks share, over real processes: 4 workers with 2 CPU ranks each.

usage: composition_test.py BIN_DIR [parity|compressed|planned ...]
"""
import pathlib
import re
import sys

from cases import run_cases
from group_test import GROUP, GroupCluster, plan_of
from nearness import expect_near
from replicas_test import APART, HALF, LOSSY, SMALL, TWO, WORKERS, expect_goes_on, start_broken
from training_test import DEFAULT, GPT, MUON, expect_equal, expect_learnt, rounding, wait_for

RUN_FILE = pathlib.Path(__file__).resolve().parents[3] / "deploy/runs/composition.yaml"
RANKS = ("--set", GROUP)
REPLICAS = (*TWO, *HALF)
STEPS = 10
# Largest relative difference of a loss: sums over ranks and over microbatches have another order.
BOUND = rounding(1e-5)
# Its experts' gradients are summed over ranks once a step.
MOE = """{ family: moe, layers: 2, hidden: 64, heads: 4, kv_heads: 2, context: 64, experts: 4, experts_per_token: 2,
         expert_intermediate: 64 }"""
# Links; sums of ranks, of which zip codes those in bf16; gradients and parameters of replicas.
COMPRESSED = {"steps": 40, "stages": 2, "links": DEFAULT, "model": SMALL}
BF16 = ("--set", "train.dtype=bf16")
CODED_RANKS = (*RANKS, "--set", "group.forward=taco", "--set", "group.backward=zip")
# Losses are compared to the bit, and what a GPU adds up in any order differs in the last.
CODED = (*BF16, *CODED_RANKS, *REPLICAS, *LOSSY, "--set", "train.deterministic=true")


def parity(cluster):
    """With nothing rounded, replicas of shared stages learn what one pipeline does from the same tokens."""
    def train(name, *flags, **options):
        return cluster.train(name, *flags, stages=2, steps=STEPS, **options)

    shared = train("gpt-shared", *REPLICAS, *RANKS)
    expect_near("2 replicas of 2 stages, of 2 ranks against 1", shared, train("gpt-replicas", *REPLICAS), bound=BOUND)
    expect_near("2 replicas of 2 stages of 2 ranks against one pipeline", shared, train("gpt"), bound=BOUND)
    parts = train("experts-shared", *REPLICAS, *RANKS, "--set", "group.expert=2", "--set", "group.sequence=true",
                  model=MOE)
    expect_near("experts in 2 parts, ranks with their tokens, against one pipeline", parts, train("experts", model=MOE),
                bound=BOUND)
    # Replicas update whole matrices, and sum what two stages hold of one.
    muon = "{ kind: muon, lr: 3e-3 }"
    shared = train("muon-shared", *REPLICAS, *RANKS, optimizer=muon)
    expect_near("muon, 2 replicas of 2 ranks against one pipeline", shared, train("muon", optimizer=muon), bound=BOUND)
    tied = GPT.replace(" }", ", tied: true }")
    shared = train("tied-shared", *REPLICAS, *RANKS, model=tied)
    expect_near("a tied matrix, 2 replicas of 2 ranks against one pipeline", shared, train("tied", model=tied),
                bound=BOUND)
    # Differences to an anchor are rounded to 4 bits: what is near becomes another code here and there.
    apart = train("apart-shared", *REPLICAS, *RANKS, *APART)
    expect_near("replicas that train apart, of 2 ranks against 1", apart, train("apart", *REPLICAS, *APART), bound=1e-3)


def expect_all_coded(cluster, run):
    """What travels in a step of COMPRESSED, against its numbers in fp32, or bf16 where ranks sum them."""
    status = cluster.status(run)
    for cell in status["plan"]["cells"]:
        by = cell["group"]["forward_collective"], cell["group"]["backward_collective"]
        if not by[0].startswith("taco over") or not by[1].startswith("zip over"):
            raise AssertionError(f"ranks exchange by {by}")
    boundary, replicas, blocks, ways, microbatches = 2 * 64 * 64, 2, 2, 2, 2
    parameters = 256 * 64 + 64 * 64 + blocks * (12 * 64**2 + 13 * 64) + 2 * 64 + 256 * 64
    # Each rank sends half of a sum's numbers twice; a block has two sums. What else ranks send is left out.
    sums = {"ranks": 2 * replicas * microbatches * ways * 2 * blocks * 2 * boundary,
            "activations": 4 * replicas * microbatches * ways * boundary,
            "replicas": 4 * ways * parameters}
    sent = {kind: sum(int(link["payload_bytes"]) for link in status["links"] if link["kind"] == kind)
            for kind in ("activations", "replicas")}
    sent["ranks"] = sum(int(stage["collectives"]["sent"]["all_reduce"]) for stage in status["stages"])
    for kind, fewer in [("ranks", 1), ("activations", 7), ("replicas", 7)]:
        if sums[kind] / sent[kind] < fewer:
            raise AssertionError(f"{kind}: {sent[kind]} bytes a step, {sums[kind]} uncompressed")
    print(f"ok: a step sends {sent} bytes; uncompressed {sums}", flush=True)


def compressed(cluster):
    """Everything is compressed: it learns, heals, stops and goes on, with the same losses."""
    path = cluster.write_run("whole", **COMPRESSED)
    run = cluster.cli("submit", path, "--watch", *CODED).stdout.split()[0]
    unbroken = cluster.losses(run)
    expect_learnt("all compressed", unbroken)
    print(f"ok: all compressed: {unbroken[0]:.3f} to {unbroken[-1]:.3f} in {len(unbroken)} steps", flush=True)
    expect_all_coded(cluster, run)

    path, run = start_broken(cluster, "broken", *CODED, "--set", "recovery.attempts=5", step=10, **COMPRESSED)
    cluster.kill("worker2")
    cluster.start_worker(2)
    wait_for("the recovery", lambda: (s := cluster.seen(run))["state"] == "running" and int(s["epoch"]) > 1
             and int(s["step"]) > 10)
    cluster.cli("stop", run)
    status = wait_for("the stop", lambda: (s := cluster.seen(run))["state"] in ("stopped", "done", "failed") and s)
    if status["state"] != "stopped":
        raise AssertionError(f"{status['state']}, {status['reason']}, instead of stopped after a recovery")
    cluster.cli("submit", path, "--resume", "--watch", *CODED)
    expect_equal(f"a worker lost, recovered in epoch {status['epoch']}, stopped after {status['step']} steps, resumed",
                 cluster.losses(run), unbroken)
    # Checkpoints have whole tensors: others take them.
    for what, steps, flags in [("2 replicas of 2 stages of 1 rank", 50, (*REPLICAS, *LOSSY)),
                               ("2 stages of 2 ranks", 60, CODED_RANKS)]:
        path = cluster.write_run("broken", **{**COMPRESSED, "steps": steps})
        cluster.cli("submit", path, "--resume", "--watch", *BF16, *flags)
        expect_goes_on(f"{what} go on", cluster.losses(run), steps - 10)


def planned(cluster):
    """A plan has the ranks of all replicas, and says in words what exchanges what; what cannot be is refused."""
    text = cluster.cli("plan", RUN_FILE, "--set", f'data.text=["{cluster.folder / "text.txt"}"]').stdout
    for part in ["2 replicas of 2 stages of 2 ranks train together",
                 "hidden states by taco over host, their gradients by zip",
                 "replicas exchange gradients (sdp4bit", "and parameters (difference4)",
                 "No schedule could be below", "what sets that bound is the"]:
        if part not in text.splitlines()[-1]:
            raise AssertionError(f"no {part!r} in\n{text}")
    for cell in range(4):
        # Whichever worker it is: of four that are alike a busy machine makes some slower.
        if not re.search(rf"^{cell // 2}:{cell % 2}\tworker\d\t2 ranks on cpu 0-1", text, re.MULTILINE):
            raise AssertionError(text)
    print(f"ok: {text.splitlines()[-1]}", flush=True)

    plan = plan_of(cluster, cluster.write_run("open", **COMPRESSED), *REPLICAS, "--set", "group.tensor=auto")
    tried = {row["tensor"]: row["step_seconds"] for row in plan["prediction"]["ranks"]}
    ranks = {cell["tensor_ranks"] for cell in plan["assignment"]["cells"]}
    if set(tried) != {1, 2} or ranks != {min(tried, key=tried.get)}:
        raise AssertionError(f"tried {tried}, and the plan has {ranks}")
    print(f"ok: a plan of replicas chooses {ranks.pop()} of {tried}", flush=True)

    def refused(name, sentence, *flags, **options):
        path = cluster.write_run(name, **{"stages": 2, **options})
        result = cluster.cli("submit", path, *REPLICAS, *RANKS, *flags, check=False)
        if result.returncode != 1 or sentence not in result.stderr:
            raise AssertionError(f"{name}: exit {result.returncode}, {result.stderr!r}")
        print(f"ok: {name}: {result.stderr.strip()}", flush=True)

    refused("muon", "updates whole matrices", "--set", "group.p=0.5", optimizer=MUON)
    refused("bias", "does not train experts that are balanced by a bias with several replicas",
            model=MOE.replace(" }", ", balance: bias }"))
    refused("devices", "worker1 offers 2 on its CPU; start it with --device cpu,cpu,cpu,cpu", "--set", "group.tensor=4")


if __name__ == "__main__":
    sys.exit(run_cases({"parity": parity, "compressed": compressed, "planned": planned}, kind=GroupCluster, workers=WORKERS))
