"""`longhaul sweep` on real clusters: to the end, killed with kill -9 and restarted, interrupted,
with points that cannot be.

usage: sweep_test.py BIN_DIR whole|killed|interrupted|refused|failed|replicas
"""
import csv
import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from requirements import without_root  # noqa: E402

DEADLINE_S = 200

RUN = """\
name: little
model: { family: gpt, layers: 2, hidden: 32, heads: 2, context: 32 }
data: { text: [text.txt], tokenizer: bytes }
validation: { share: 0.1, every: 2, samples: 2 }
train: { steps: 6, microbatches: 4, seed: 5 }
pipeline: { stages: 2 }
transport: grpc
checkpoint: { every: 0, keep: 1 }
"""
SWEEP = """\
title: A <little> sweep
base: run.yaml
rates: [20mbit, 5mbit]
delays: [0ms, 30ms]
links: { default: { forward: tah, backward: "fixed:bits=4,rounding=stochastic" } }
"""
POINTS = 4


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


class Folder:
    """A sweep's files, and what `longhaul sweep` does with them."""

    def __init__(self, programs, folder):
        self.folder = pathlib.Path(folder)
        self.program = pathlib.Path(programs) / "longhaul"
        self.out = self.folder / "out"
        (self.folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
        self.write(RUN, SWEEP)
        digest = hashlib.sha256(str(self.out.resolve()).encode()).hexdigest()
        self.cluster = "sweep" + digest[:7]

    def write(self, run, sweep):
        (self.folder / "run.yaml").write_text(run)
        (self.folder / "sweep.yaml").write_text(sweep)

    def command(self, *more):
        return [self.program, "sweep", self.folder / "sweep.yaml", "--out", self.out, *more]

    def start(self, *more):
        return subprocess.Popen(self.command(*more), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, code, *more):
        done = subprocess.run(self.command(*more), capture_output=True, text=True, check=False,
                              timeout=DEADLINE_S)
        check(done.returncode == code, "exit code", done.returncode, "\n", done.stderr)
        return done

    def points(self):
        """By id, of those that are done."""
        path = self.out / "results.json"
        if not path.exists():
            return {}
        results = json.loads(path.read_text())
        ids = [point["id"] for point in results["points"]]
        check(len(ids) == len(set(ids)), "a point is there twice", ids)
        return {point["id"]: point for point in results["points"] if point["state"] == "done"}

    def wait_for_points(self, count, process):
        end = time.monotonic() + DEADLINE_S
        while len(self.points()) < count:
            check(time.monotonic() < end, "waited in vain for", count, "points")
            check(process.poll() is None, "the sweep ended too early")
            signal.sigtimedwait([signal.SIGCHLD], 0.02)

    def nothing_left(self):
        networks = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True,
                                  check=True).stdout
        check(self.cluster not in networks, "a network of the sweep is left:", networks)
        marker = f"LONGHAUL_CLUSTER_DAEMON={self.cluster}".encode()
        for environment in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                marked = marker in environment.read_bytes().split(b"\0")
            except OSError:
                continue
            check(not marked, "a daemon of the sweep is left:", environment)

    def clean_up(self):
        subprocess.run([self.program, "cluster", "down", "--name", self.cluster], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check_point(point, replicas=1):
    check(point["steps"] == 6 and len(point["curve"]) == 6, "steps", point["id"])
    after = sorted(step["seconds"] for step in point["curve"][2:])
    check(abs(point["step_seconds"] - (after[1] + after[2]) / 2) < 1e-9, "median", point["id"])
    check(abs(point["tokens_per_second"] - replicas * 4 * 32 / point["step_seconds"]) < 1e-6, "tokens/s")
    check(point["simulated_seconds"] >= point["bound_seconds"] > 0, "prediction", point["id"])
    check(all(step["loss"] > 0 for step in point["curve"]), "losses", point["id"])
    check(sum(step["validation_loss"] is not None for step in point["curve"]) == 3, "validation")
    # In either order: on a busy machine one of two equal workers may be measured as the slower one.
    workers = [stage["worker"] for stage in point["stages"]]
    check(sorted(workers) == ["worker1", "worker2"], "stages", workers)
    check(point["explanation"] and point["run_id"] and not point["replayed"], "run", point["id"])
    # What worker1 sent is what worker2 received, and at least the tensors' bytes.
    first, second = point["link_bytes"]
    check(abs(first["up"] - second["down"]) < 0.02 * first["up"] + 2000, first, second)
    total = first["up"] + second["up"]
    payload = 6 * point["payload_bytes_per_step"]
    # Headers, acknowledgements and losses are little beside that, and so are heartbeats, whose number grows with the time
    # that links are open; a measurement of the links sends for half a second each way.
    check(payload < total < 2 * payload + 100_000, total, payload)


def whole(files):
    done = files.run(0)
    points = files.points()
    check(len(points) == POINTS, "points", points.keys())
    for point in points.values():
        check_point(point)
    # A delay of 30 ms one way: there and back once at least.
    for rate in ("20mbit", "5mbit"):
        near, far = (points[f"{rate}/{delay}/default/link-aware/r1"] for delay in ("0ms", "30ms"))
        check(far["bound_seconds"] > near["bound_seconds"] + 0.03, "the bound has the delay")
        check(far["step_seconds"] > near["bound_seconds"] + 0.03, "a step has the delay")
    with (files.out / "results.csv").open(newline="") as text:
        rows = list(csv.DictReader(text))
    check([row["point"] for row in rows] == list(points), "rows", rows)
    for row in rows:
        check(abs(float(row["step_seconds"]) - points[row["point"]]["step_seconds"]) < 1e-6, row)
    report = (files.out / "report.html").read_text()
    check("A &lt;little&gt; sweep" in report and "Partial" not in report, "report")
    check("point 1 of 4" in done.stderr and "4 of 4 points done" in done.stderr, done.stderr)
    check(done.stdout.count("\n") == POINTS + 1, done.stdout)
    files.nothing_left()
    # Again: nothing to do, nothing changes.
    before = (files.out / "results.json").read_bytes()
    done = files.run(0, "--json")
    check("going on: 0 of 4 points are left" in done.stderr, done.stderr)
    check(json.loads(done.stdout) == json.loads(before), "results changed")
    files.nothing_left()
    # Another sweep has no business here.
    files.write(RUN.replace("seed: 5", "seed: 6"), SWEEP.replace("5mbit", "4mbit"))
    refused = files.run(1)
    for text in ("rates: '20mbit, 5mbit' is now '20mbit, 4mbit'", "the base run: not what it was",
                 "Give another --out"):
        check(text in refused.stderr, refused.stderr)
    check((files.out / "results.json").read_bytes() == before, "results changed")


def killed(files):
    seed = int(os.environ.get("LONGHAUL_SEED", time.time_ns() % 100_000))
    print("LONGHAUL_SEED =", seed)
    chance = random.Random(seed)
    known = {}
    files.write(RUN, SWEEP + "repeats: 3\n")
    for _ in range(5):
        process = files.start()
        # At any moment of a sweep that takes some ten seconds: cluster, points, results.
        try:
            process.wait(chance.uniform(0.1, 4))
        except subprocess.TimeoutExpired:
            pass
        process.kill()
        process.communicate()
        points = files.points()
        check(len(points) >= len(known), "points were lost", known.keys(), points.keys())
        for name, point in known.items():
            check(points[name] == point, "ran again:", name)
        known = points
    print(len(known), "points were done when it was killed last")
    files.run(0)
    points = files.points()
    check(len(points) == 3 * POINTS, "points", points.keys())
    for name, point in known.items():
        check(points[name] == point, "ran again:", name)
    for point in points.values():
        check_point(point)
    files.nothing_left()


def interrupted(files):
    files.write(RUN, SWEEP.replace("[0ms, 30ms]", "[0ms]") + "repeats: 20\n")
    process = files.start()
    files.wait_for_points(1, process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=DEADLINE_S)
    check(process.returncode == 130, "exit code", process.returncode, error)
    check("the same command goes on" in error, error)
    files.nothing_left()
    points = files.points()
    report = (files.out / "report.html").read_text()
    check(f"Partial results:</strong> {40 - len(points)} of 40 points" in report, "report")
    # One at a time, and another may have it afterwards.
    process = files.start()
    files.wait_for_points(len(points) + 1, process)
    check("another `longhaul sweep` is at work" in files.run(1).stderr, "two at once")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    check(process.returncode == 130, "exit code", process.returncode)
    files.nothing_left()
    for name, point in points.items():
        check(files.points()[name] == point, "ran again:", name)


def refused(files):
    (files.folder / "short.txt").write_text("short")
    files.write(RUN, SWEEP.replace("[0ms, 30ms]", "[0ms]").replace("[20mbit, 5mbit]", "[20mbit]") +
                "variants:\n  fine: {}\n  wrong: { model.heads: 5 }\n"
                "  short: { data.text: short.txt }\n  nowhere: { data.text: nowhere.txt }\n"
                "  few: { train.steps: 2 }\n")
    done = files.run(1)
    for text in ("20mbit/0ms/default/link-aware/wrong/r1: ", "heads", "nowhere.txt", "warm-up",
                 "4 of 5 points are impossible and nothing was started"):
        check(text in done.stderr, text, "is not in", done.stderr)
    check(not files.out.exists(), "something was started")
    done = files.run(1, "--keep-going")
    check("1 of 5 points done, 0 failed, 4 impossible" in done.stderr, done.stderr)
    check(list(files.points()) == ["20mbit/0ms/default/link-aware/fine/r1"], files.points().keys())
    results = json.loads((files.out / "results.json").read_text())
    reasons = {point["variant"]: point["reason"] for point in results["points"]}
    check("heads" in reasons["wrong"] and reasons["fine"] == "", reasons)
    check("4 of 5 points have no measurement" in (files.out / "report.html").read_text(), "report")
    files.nothing_left()


def failed(files):
    """A point that fails is recorded, the others run; it runs again when that is asked for."""
    # aqsgd remembers what it sent; more than the limit is refused by the coordinator alone.
    files.write(RUN, SWEEP.replace("[0ms, 30ms]", "[0ms]").replace("[20mbit, 5mbit]", "[20mbit]")
                .replace("links: {", "links: { remembers: { forward: \"aqsgd:bits=4\", "
                         "backward: \"fixed:bits=8\" },")
                + "set: { links.cache_limit: 1KiB }\n")
    done = files.run(1)
    check("1 of 2 points done, 1 failed" in done.stderr, done.stderr)
    results = json.loads((files.out / "results.json").read_text())
    reason = results["points"][0]["reason"]
    check(results["points"][0]["state"] == "failed" and "links.cache_limit" in reason, reason)
    check("links.cache_limit" in (files.out / "report.html").read_text(), "report")
    before = files.points()
    check("going on: 0 of 2 points are left" in files.run(1).stderr, "a failed point ran again")
    check("going on: 1 of 2 points are left" in files.run(1, "--retry-failed").stderr, "retry")
    check(files.points() == before, "the other one ran again")
    files.nothing_left()


def parameters(hidden=32, layers=2, context=32, vocabulary=257):
    """Parameters of RUN's model: embedding, positions, blocks, the last norm, head."""
    block = 12 * hidden * hidden + 13 * hidden
    return (2 * vocabulary + context) * hidden + layers * block + 2 * hidden


def replicas(files):
    """What replicas exchange is predicted, and counted on the wire."""
    files.write(RUN.replace("stages: 2", "stages: 1, replicas: 2"),
                SWEEP.replace("[0ms, 30ms]", "[0ms]").replace("[20mbit, 5mbit]", "[1mbit]") +
                "variants:\n  exact: {}\n"
                "  coded: { pipeline.gradients: sdp4bit, pipeline.parameters: difference4 }\n")
    files.run(0)
    points = files.points()
    # Each replica sends gradients of the other one's half, and parameters of its own; 4.25 and
    # 4.016 bits where they are coded, in whole groups.
    for variant, bits, slack in (("exact", 64, 0.01), ("coded", 4.25 + 4.016, 0.06)):
        point = points[f"1mbit/0ms/default/link-aware/{variant}/r1"]
        check_point(point, replicas=2)
        expected = parameters() * bits / 8
        check(abs(point["payload_bytes_per_step"] / expected - 1) < slack, variant, expected, point)
        line = point["payload_bytes_per_step"] / 2 / (1e6 / 8)
        # The longest of the measured steps: a step that a busy machine held up leaves the link's bucket full for those behind it.
        for time in ("floor_seconds", "bound_seconds", "simulated_seconds", "step_seconds_high"):
            check(point[time] > 0.99 * line, variant, time, line, point)
        check(point["floor_seconds"] <= point["bound_seconds"] <= point["simulated_seconds"], point)
        check([(stage["replica"], stage["stage"]) for stage in point["stages"]] ==
              [(0, 0), (1, 0)], point["stages"])
        check("2 replicas of 1 stage " in point["explanation"], point["explanation"])
    files.nothing_left()


def main():
    programs, case = sys.argv[1:]
    # As `longhaul cluster` does.
    may = subprocess.run(["unshare", "--mount", "--net", "true"], check=False,
                         stderr=subprocess.DEVNULL).returncode == 0
    if os.geteuid() != 0 or not may:
        return without_root("this machine gives no rights for network namespaces")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    with tempfile.TemporaryDirectory(prefix="longhaul-sweep-") as folder:
        files = Folder(programs, folder)
        try:
            {"whole": whole, "killed": killed, "interrupted": interrupted, "refused": refused,
             "failed": failed, "replicas": replicas}[case](files)
        finally:
            files.clean_up()
    print(case, "is fine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
