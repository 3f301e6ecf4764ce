"""Eight workers that come together and are far from each other: each tries seven others over each
transport, and its neighbours over UCX reach it, though a round trip takes 100 ms, so that a run over UCX is planned.

usage: far_test.py BIN_DIR
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from requirements import without_root  # noqa: E402

WORKERS, DELAY, RATE = 8, "50ms", "200mbit"
RUN = f"""\
name: far
model: {{ family: gpt, layers: {WORKERS}, hidden: 32, heads: 2, context: 32 }}
data: {{ text: [text.txt], tokenizer: bytes }}
train: {{ steps: 2, microbatches: 4 }}
pipeline: {{ stages: {WORKERS}, placement: names }}
transport: ucx
"""


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def main():
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    program, name = pathlib.Path(sys.argv[1]) / "longhaul", f"far{os.getpid() % 100000}"
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run.yaml"
        run.write_text(RUN)
        run.with_name("text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)
        try:
            call(program, "cluster", "up", "--name", name, "--workers", str(WORKERS), "--delay",
                 DELAY, "--rate", RATE)
            state = json.loads(call(program, "cluster", "status", "--name", name, "--json"))
            where = ["--coordinator", state["coordinator"]["address"], "--token-file",
                     state["token_file"]]
            # It waits for the tries that are under way.
            call(program, "plan", run, *where)
            for worker in json.loads(call(program, "workers", "--json", *where))["workers"]:
                if worker["cannot_talk_to"] or worker["can_talk_to"] != WORKERS - 1:
                    raise AssertionError(f"{worker['name']}: {worker['cannot_talk_to']}, talks to "
                                         f"{worker['can_talk_to']}")
        finally:
            subprocess.run([program, "cluster", "down", "--name", name], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
