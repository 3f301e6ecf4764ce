"""What a worker adds to its compute where links are fast: two stages on links that are not shaped,
step by step from the run's trace."""
import json
import pathlib
import statistics

import needs
from cluster import CODECS, RUN_FILE, Cluster, Failed
from promises import Promises
from report import Table, spread

EXTRA_LIMIT_MS, IDLE_LIMIT = 0.2, 0.01  # on a GPU
MOST_OF_PLANNED = 1.5  # what calls take in training
TRACED = 8  # steps that workers keep


def add_arguments(parser):
    parser.add_argument("--run-file", type=pathlib.Path, default=RUN_FILE,
                        help="(default %(default)s)")
    parser.add_argument("--device", default="cpu",
                        help="of the workers, cpu or cuda:A-B (default %(default)s)")
    parser.add_argument("--layers", type=int, help="instead of the run file's")
    parser.add_argument("--microbatches", type=int, default=64, help="a step (default %(default)s)")
    parser.add_argument("--steps", type=int, default=10,
                        help=f"of each run, of which the last {TRACED} at most count; the first does "
                        "not (default %(default)s)")
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=["none", "tah4"])


def spans_of(events, stage):
    """{step: the stage's spans, [(category, begin, length)] in ms}, the step itself among them."""
    stages = next(event["pid"] for event in events
                  if event["name"] == "process_name" and event["args"]["name"] == "stages")
    steps = {}
    for event in events:
        if event["ph"] == "X" and event["pid"] == stages and event["tid"] == stage:
            steps.setdefault(event["args"]["step"], []).append(
                (event["cat"], event["ts"] / 1e3, event["dur"] / 1e3))
    return steps


def of_step(spans, compute_ms, microbatches):
    """Milliseconds a microbatch: in the stage's calls; what its whole work on microbatches, from the
    first forward's begin to the last backward's end, takes beyond `compute_ms`."""
    passes = [span for span in spans if span[0] in ("forward", "backward")]
    begin = min(at for _, at, _ in passes)
    end = max(at + length for _, at, length in passes)
    return (sum(length for _, _, length in passes) / microbatches,
            (end - begin) / microbatches - compute_ms)


def check_needs(arguments):
    if arguments.steps < 2:
        raise Failed("--steps: expected at least 2, of which the first does not count")
    needs.check_programs(arguments.programs, needs.CLUSTER)
    needs.check_files(arguments.run_file)


def table_of(arguments):
    return Table(
        f"{arguments.run_file.name} on {arguments.device}, 2 stages, {arguments.microbatches} "
        "microbatches a step, links not shaped. Milliseconds a microbatch, median (middle half) of the "
        "traced steps: planned: as measured when the run was planned; calls: of forward and backward in "
        "training; extra: what a stage's work on a step's microbatches, from its first forward to its "
        "last backward, takes beyond the planned, waits for the other stage among it. Idle: waiting "
        "while its own codec is at work, of the last step",
        ["codecs", "stage", "layers", "planned", "calls", "extra", "idle"])


def measure(arguments, table):
    promises = Promises(arguments.slack)
    with Cluster(arguments.programs, workers=2, device=arguments.device) as cluster:
        for codec in arguments.codecs:
            changes = {**CODECS[codec], "pipeline.stages": 2, "train.steps": arguments.steps,
                       "train.microbatches": arguments.microbatches}
            if arguments.layers:
                changes["model.layers"] = arguments.layers
            done = cluster.train(arguments.run_file, changes)
            trace = json.loads(cluster.cli("trace", done.status["run_id"], "-o", "-"))
            planned = [1e3 * (times["forward_seconds"] + times["backward_seconds"])
                       for times in done.plan["cells"]]
            for index, cell in enumerate(done.plan["assignment"]["cells"]):
                steps = spans_of(trace["traceEvents"], index)
                samples = [of_step(steps[step], planned[index], arguments.microbatches)
                           for step in sorted(steps) if step > 1]
                calls, extra = zip(*samples)
                idle = done.status["stages"][index].get("codec_wait_share", 0)
                table.add(codec, index, cell["layers"], f"{planned[index]:.3f}",
                          spread(calls), spread(extra), f"{idle:.2%}")
                # Each pass of each microbatch, once; a stage has the time of its passes at least.
                for step in sorted(steps):
                    for way in ("forward", "backward"):
                        passes = sum(category == way for category, _, _ in steps[step])
                        promises.holds(f"{codec}, stage {index}, step {step}: {passes} times {way}",
                                       passes == arguments.microbatches)
                promises.within(f"{codec}, stage {index}: ms of calls", statistics.median(calls), least=0,
                                most=MOST_OF_PLANNED * planned[index])
                # The one with less to do waits for the other, whatever its codec does meanwhile.
                if planned[index] == max(planned) and arguments.device != "cpu":
                    promises.within(f"{codec}, stage {index}: extra", statistics.median(extra), most=EXTRA_LIMIT_MS)
                    promises.within(f"{codec}, stage {index}: idle", idle, most=IDLE_LIMIT)
    return promises.held
