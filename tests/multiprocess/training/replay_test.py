"""A replay over real processes: compute is slept, all else is real; its steps, attribution, trace.

usage: replay_test.py BIN_DIR
"""
import json
import pathlib
import sys
import tempfile

from training_test import Cluster, text_for_training, wait_for

RUN = """\
name: {name}
model: {{ family: gpt, layers: 8, hidden: 64, heads: 4, context: 64 }}
data: {{ text: [text.txt] }}
train: {{ steps: {steps}, microbatches: 8 }}
pipeline: {{ stages: 4, placement: names }}
links: {links}
checkpoint: {{ every: {every}, keep: 2 }}
recovery: {{ attempts: 0 }}
replay:
  source: a machine that does not exist
  layers: {{ block_forward: 2ms, block_backward: 4ms, head_forward: 1ms, optimizer: 8ms }}
  codecs: {codecs}
  codec_times: {{ tah: {{ encode: 1ms, decode: 500us }}, fixed: {{ encode: 1ms, decode: 1ms }} }}
"""
# A stage: 2 of 8 layers.
STAGE_S = 8 * 2 * 0.006
MEASURED = '{ forward: tah, backward: "fixed:bits=6" }'


def write(cluster, name, steps=10, links=MEASURED, codecs="measured", every=0):
    path = cluster.folder / f"{name}.yaml"
    path.write_text(RUN.format(name=name, steps=steps, links=links, codecs=codecs, every=every))
    return path


def steps_of(cluster, run):
    return [json.loads(line) for line in cluster.cli("steps", run, "--json").stdout.splitlines()]


def check_status(cluster, run):
    status = cluster.status(run)
    if status.get("replay_source") != "a machine that does not exist":
        raise AssertionError(f"not marked as a replay: {status}")
    shares = ("compute_share", "optimizer_share", "wait_input_share", "wait_gradient_share",
              "codec_wait_share")
    for stage in status["stages"]:
        whole = sum(stage.get(share, 0) for share in shares)
        if not 0.98 <= whole <= 1.0001:
            raise AssertionError(f"the parts of a stage's step are {whole} of it: {stage}")
    if "none (replay)" not in cluster.cli("status", run).stdout:
        raise AssertionError("`status` shows a loss that a replay does not have")
    print("ok: parts of every stage add up to its step", flush=True)


def check_rows(events):
    """What is on a row lies one behind the other, or one within the other."""
    rows = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], -event["dur"], event["name"]))
    for row, spans in rows.items():
        open_ends = []
        for begin, minus_length, name in sorted(spans):
            end = begin - minus_length
            while open_ends and open_ends[-1] <= begin + 1e-6:
                open_ends.pop()
            if open_ends and end > open_ends[-1] + 1e-3:
                raise AssertionError(f"row {row}: {name} at {begin} us overlaps")
            open_ends.append(end)
    return rows


def check_trace(cluster, run, steps):
    path = cluster.folder / "trace.json"
    cluster.cli("trace", run, "-o", path, "--steps", str(steps))
    events = json.loads(path.read_text())["traceEvents"]
    rows = check_rows(events)
    # Stages, their codecs, and each direction of three links.
    if len(rows) != 4 + 4 + 6:
        raise AssertionError(f"rows: {sorted(rows)}")
    for stage in range(4):
        names = [name for _, _, name in rows[(1, stage)]]
        for kind in ("F", "B"):
            wanted = sorted(f"{kind}{m}" for m in range(8)) * steps
            if sorted(n for n in names if n[0] == kind and n[1:].isdigit()) != sorted(wanted):
                raise AssertionError(f"stage {stage}: {names}")
    for row in range(6):
        if len(rows[(3, row)]) != 8 * steps:
            raise AssertionError(f"link row {row}: {rows[(3, row)]}")
    print(f"ok: a trace of {len(events)} events in {len(rows)} rows", flush=True)


def refused(cluster, words, **options):
    result = cluster.cli("submit", write(cluster, "refused", **options), check=False)
    if result.returncode != 1 or words not in result.stderr:
        raise AssertionError(f"expected '{words}', got {result.returncode}: {result.stderr}")
    print(f"ok: {result.stderr.splitlines()[0]}", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with Cluster(sys.argv[1], folder, workers=4) as cluster:
            refused(cluster, "expected times of 'gauss'", links="{ forward: gauss, backward: tah }")
            predict = "{ forward: predict/gauss, backward: tah }"
            refused(cluster, "set replay.codecs to real", links=predict.replace("predict/gauss", "predict/tah"))
            run = cluster.cli("submit", write(cluster, "predict", links=predict, codecs="real"),
                              "--watch").stdout.split()[0]
            if len(steps_of(cluster, run)) != 10:
                raise AssertionError("a replay whose links predict lacks steps")
            print("ok: links predict by tokens in a replay", flush=True)
            for codecs in ("measured", "real"):
                run = cluster.cli("submit", write(cluster, codecs, codecs=codecs),
                                  "--watch").stdout.split()[0]
                seconds = sorted(step["seconds"] for step in steps_of(cluster, run))
                if len(seconds) != 10 or seconds[0] < STAGE_S:
                    raise AssertionError(f"steps below the time that is slept: {seconds}")
                bound = cluster.status(run)["plan"]["prediction"]["lower_bound_seconds"]
                if seconds[0] < bound:
                    raise AssertionError(f"a step of {seconds[0]} s is below the bound {bound} s")
                check_status(cluster, run)
                check_trace(cluster, run, steps=3)
            run = cluster.cli("submit", write(cluster, "broken", steps=60, every=5)).stdout.split()[0]
            wait_for("a checkpoint", lambda: cluster.checkpoint_step(run) >= 5)
            cluster.kill("worker3")
            wait_for("the failure", lambda: cluster.seen(run)["state"] == "failed")
            result = cluster.cli("trace", run, "-o", "-", check=False)
            if result.returncode != 1 or "worker3" not in result.stderr:
                raise AssertionError(f"a trace without worker3: {result}")
            cluster.start_worker(3)
            wait_for("worker3", lambda: len(cluster.connected()) == 4)
            cluster.cli("submit", cluster.folder / "broken.yaml", "--resume", "--watch")
            if len(steps_of(cluster, run)) != 60:
                raise AssertionError("a resumed replay lacks steps")
            print("ok: killed and resumed", flush=True)


if __name__ == "__main__":
    main()
