"""Microbatches that travel in slices, over real processes.

usage: slices_test.py BIN_DIR [losses|resume|auto ...]
"""
import json
import sys

from cases import run_cases
from nearness import expect_near
from training_test import DEFAULT, GPT, LLAMA, NONE, PREDICT, expect_equal, expect_learnt, rounding, wait_for

# Largest relative difference of a loss in each of 30 steps: rounding that AdamW has amplified.
ROUNDING = rounding(2e-6)


def expect_rounded(what, got, wanted):
    if expect_near(what, got, wanted, bound=ROUNDING) == 0:
        raise AssertionError(f"{what}: to the bit, as if there were no slices")


def check_trace(cluster, run, slices):
    """Every slice of every microbatch goes forward and backward once on each stage."""
    path = cluster.folder / "trace.json"
    cluster.cli("trace", run, "-o", path, "--steps", "1")
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]
             if event["ph"] == "X" and event["pid"] == 1]
    wanted = [f"{way}{m}.{s}" for way in "FB" for m in range(4) for s in range(slices)] * 4
    got = [name for name in names if name[0] in "FB" and name[1].isdigit()]
    if sorted(got) != sorted(wanted):
        raise AssertionError(f"the trace has {sorted(got)}")
    print(f"ok: a trace has {len(got)} passes of slices", flush=True)


def losses(cluster):
    for name, model in [("gpt", GPT), ("llama", LLAMA), ("tied", GPT.replace(" }", ", tied: true }"))]:
        whole = cluster.train(f"whole-{name}", model=model)
        expect_learnt(name, whole)
        for stages, slices, schedule in [(4, 2, "link-aware"), (4, 4, "link-aware"), (2, 4, "1f1b"),
                                         (2, 2, "gpipe")]:
            if name != "gpt" and schedule != "link-aware":
                continue
            what = f"{name}-{stages}-{slices}-{schedule}"
            path = cluster.write_run(what, stages=stages, schedule=schedule, model=model)
            run = cluster.cli("submit", path, "--watch", "--set",
                              f"pipeline.slices={slices}").stdout.split()[0]
            expect_rounded(what, cluster.losses(run), whole)
    check_trace(cluster, cluster.cli("submit", cluster.write_run("traced"), "--watch", "--set",
                                     "pipeline.slices=4").stdout.split()[0], 4)
    sliced = cluster.train("gpt-default", "--set", "pipeline.slices=4", links=DEFAULT)
    expect_learnt("4 slices, default codecs", sliced)


def resume(cluster):
    flags = ["--set", "pipeline.slices=4"]
    for name, links in [("none", NONE), ("tah", DEFAULT), ("predict", PREDICT)]:
        unbroken = cluster.train(f"whole-{name}", *flags, links=links)
        path = cluster.write_run(f"broken-{name}", links=links)
        run = cluster.broken_after(10, path, *flags)
        cluster.start_worker(2)
        wait_for("worker2 again", lambda: len(cluster.connected()) == 4)
        cluster.cli("submit", path, "--resume", "--watch", *flags)
        expect_equal(f"killed and resumed with 4 slices, {name}", cluster.losses(run), unbroken)


def auto(cluster):
    """What the plan chose stays the run's."""
    path = cluster.write_run("auto", steps=20)
    path.write_text(path.read_text().replace("context: 64", "context: 256"))
    flags = ["--set", "pipeline.slices=auto"]
    plan = json.loads(cluster.cli("plan", path, *flags, "--rate", "2mbit", "--json").stdout)
    plan = plan.get("plan") or plan
    tried = [int(row["slices"]) for row in plan["prediction"]["slices"]]
    if tried != [1, 2, 4] or int(plan["assignment"]["slices"]) == 1:
        raise AssertionError(f"tried {tried}, took {plan['assignment']['slices']}")
    floor, bound = (plan["prediction"][key] for key in ("floor_seconds", "lower_bound_seconds"))
    if not 0 < floor < bound or "floor" not in cluster.cli("plan", path, *flags).stdout:
        raise AssertionError(f"a floor of {floor} s, a bound of {bound} s")
    run = cluster.cli("submit", path, "--watch", *flags).stdout.split()[0]
    events = cluster.cli("events", run).stdout
    if "pipeline.slices: the plan chose" not in events:
        raise AssertionError(events)
    print(f"ok: of {tried} slices the plan takes {plan['assignment']['slices']} at 2 Mbit/s", flush=True)
    refused = cluster.cli("submit", cluster.write_run("refused"), "--set", "pipeline.slices=3", check=False)
    sentence = "pipeline.slices: expected a number that divides model.context 64, got 3"
    if refused.returncode != 1 or sentence not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}, {refused.stderr!r}")
    print(f"ok: {refused.stderr.strip()}", flush=True)


if __name__ == "__main__":
    sys.exit(run_cases({"losses": losses, "resume": resume, "auto": auto}))
