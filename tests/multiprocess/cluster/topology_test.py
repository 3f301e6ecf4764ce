"""A run whose file has a topology, on a real cluster: its links become those of the regions, the
plan is made for them, and steps take what they cost.

usage: topology_test.py BIN_DIR
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from requirements import without_root  # noqa: E402

DEADLINE_S = 120
NAME = f"topo{os.getpid()}"
RUN = """\
name: regions
model: { family: gpt, layers: 3, hidden: 64, heads: 2, context: 64 }
data: { text: [text.txt], tokenizer: bytes }
train: { steps: 6, microbatches: 2 }
pipeline: { stages: 3, placement: names }
links: { forward: none, backward: none }
checkpoint: { every: 0, keep: 1 }
topology:
  regions: { eu: [worker1, worker2], us: [worker3] }
  links:
    - { between: [eu, us], rate: 5mbit, delay: 60ms }
    - { within: eu, delay: 5ms }
"""
# From eu to us and back, by the layout of three stages in the order of the workers' names.
ROUND_TRIP_S = 2 * 0.060


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


class Cluster:
    def __init__(self, programs):
        self.program = pathlib.Path(programs) / "longhaul"
        self.access = []

    def call(self, *words, code=0):
        done = subprocess.run([str(word) for word in (self.program, *words)], capture_output=True,
                              text=True, check=False, timeout=DEADLINE_S)
        check(done.returncode == code, words, "ended with", done.returncode, "\n", done.stderr)
        return done

    def __enter__(self):
        self.call("cluster", "up", "--name", NAME, "--workers", 3)
        state = self.state()
        self.access = ["--coordinator", state["coordinator"]["address"],
                       "--token-file", state["token_file"]]
        return self

    def __exit__(self, *_):
        self.call("cluster", "down", "--name", NAME)

    def state(self):
        return json.loads(self.call("cluster", "status", "--name", NAME, "--json").stdout)

    def cli(self, *words, code=0):
        return self.call(*words, *self.access, code=code)


def main():
    if os.geteuid() != 0:
        sys.exit(without_root("a cluster needs root"))
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        (pathlib.Path(folder) / "text.txt").write_text("far away and long ago. " * 400)
        run_file = pathlib.Path(folder) / "run.yaml"
        run_file.write_text(RUN)
        with Cluster(sys.argv[1]) as cluster:
            check(cluster.state()["paths"] == [], "links before", cluster.state()["paths"])
            done = cluster.cli("submit", run_file, "--watch")
            check(f"cluster '{NAME}' are now those of the run's topology" in done.stderr,
                  done.stderr)
            run = done.stdout.split()[0]

            paths = {(path["from"], path["to"]): path for path in cluster.state()["paths"]}
            check(len(paths) == 6, "paths", paths)
            for pair in (("worker1", "worker3"), ("worker3", "worker2")):
                check(paths[pair]["bits_per_second"] == 5_000_000, pair, paths[pair])
                check(abs(paths[pair]["delay_seconds"] - 0.060) < 1e-9, pair, paths[pair])
            check(abs(paths["worker1", "worker2"]["delay_seconds"] - 0.005) < 1e-9, paths)

            # As measured before the run, over these links.
            status = json.loads(cluster.cli("status", run, "--json").stdout)
            near, far = (edge["forward"] for edge in status["plan"]["assignment"]["edges"])
            check(0.005 <= near["latency_seconds"] < 0.060, "near", near)
            check(far["latency_seconds"] >= 0.060, "far", far)
            # A moment's measurement of a link of 5 Mbit/s, on a machine that may be busy.
            check(1e6 < far["bits_per_second"] < 6e6 < near["bits_per_second"], "rates", near, far)
            steps = [json.loads(line)["seconds"]
                     for line in cluster.cli("steps", run, "--json").stdout.splitlines()]
            check(len(steps) == 6 and min(steps) > ROUND_TRIP_S, "steps", steps)

            run_file.write_text(RUN.replace("us: [worker3]", "us: [worker9]"))
            refused = cluster.cli("submit", run_file, code=1)
            check("topology.regions.us" in refused.stderr, refused.stderr)
            check({(path["from"], path["to"]): path for path in cluster.state()["paths"]} == paths,
                  "a refused run changed the links")
    print("ok")


if __name__ == "__main__":
    main()
