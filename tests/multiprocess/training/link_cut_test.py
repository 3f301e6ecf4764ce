"""Data links that break in the middle of a run, through the kernel: workers in network namespaces.

usage: link_cut_test.py BIN_DIR
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


from training_test import DEADLINE_S, NONE, RUN, expect_equal, text_for_training, wait_for

SKIPPED = 77
CUT_S = 3
STEPS = 60


class NamespaceCluster:
    """`longhaul cluster`, with a name of its own."""

    def __init__(self, programs, folder):
        self.programs, self.folder = pathlib.Path(programs).resolve(), pathlib.Path(folder)
        self.name = f"cut{os.getpid() % 1000000}"
        self.cluster("up", "--workers", "3", "--rate", "10mbit")

    def run(self, *arguments):
        result = subprocess.run([self.programs / "longhaul", *arguments], capture_output=True,
                                text=True, timeout=DEADLINE_S, check=False, cwd=self.folder)
        if result.returncode != 0:
            raise AssertionError(f"longhaul {arguments}: {result.returncode}\n{result.stderr}")
        return result.stdout

    def cluster(self, verb, *arguments):
        return self.run("cluster", verb, *arguments, "--name", self.name)

    def cli(self, *arguments):
        state = json.loads(self.cluster("status", "--json"))
        return self.run(*arguments, "--coordinator", state["coordinator"]["address"], "--token-file",
                        state["token_file"])

    def submit(self, name):
        path = self.folder / f"{name}.yaml"
        path.write_text(RUN.format(name=name, steps=STEPS, stages=3, schedule="link-aware",
                                   links=NONE, transport="ucx"))
        return self.cli("submit", path).split()[0]

    def status(self, run):
        return json.loads(self.cli("status", run, "--json"))

    def finish(self, run):
        """The steps of a run that must end well."""
        status = wait_for("the end", lambda: (s := self.status(run))["state"]
                          in ("done", "failed", "stopped") and s)
        if status["state"] != "done":
            raise AssertionError(f"{run}: {status['state']}: {status.get('reason')}\n"
                                 + self.cli("events", run))
        return [json.loads(line) for line in self.cli("steps", run, "--json").splitlines()]

    def link_events(self, run):
        return [line for line in self.cli("events", run).splitlines() if "the link between" in line]


def break_one(cluster, name, how, reference, wanted):
    run = cluster.submit(name)
    wait_for("some steps", lambda: int(cluster.status(run).get("step", 0)) >= 8)
    how()
    steps = cluster.finish(run)
    expect_equal(name, [s["loss"] for s in steps], reference)
    events = cluster.link_events(run)
    for words in wanted:
        if not any(words in event for event in events):
            raise AssertionError(f"{name}: expected an event with '{words}', got\n"
                                 + "\n".join(events))
    usual = statistics.median(s["seconds"] for s in steps)
    lost = sum(max(0.0, s["seconds"] - usual) for s in steps if s["seconds"] > 2 * usual)
    print(f"{name}: step {usual:.2f} s, lost {lost:.2f} s", *events, sep="\n  ", flush=True)


def main():
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        cluster = NamespaceCluster(sys.argv[1], folder)
        try:
            reference = [s["loss"] for s in cluster.finish(cluster.submit("unbroken"))]

            def cut():
                cluster.cluster("link", "worker2", "--down")
                time.sleep(CUT_S)  # how long the cut is, not a wait for something
                cluster.cluster("link", "worker2", "--up")

            def reset():
                subprocess.run(["ip", "netns", "exec", f"lh-{cluster.name}-w2", "ss", "-K", "-t",
                                "src", "10.77.0.0/16"], check=True, capture_output=True)

            break_one(cluster, "cut", cut, reference, ["suspect"])
            break_one(cluster, "reset", reset, reference, ["is lost", "is healed"])
        finally:
            cluster.cluster("down")
    return 0


if __name__ == "__main__":
    sys.exit(main())
