"""Trains six small runs on daemons of this machine and prints a digest of each one's losses, so that two
builds can be held against each other: what does not mean to change training must print the same.

usage: losses.py BIN_DIR

No root. A minute or two on two cores. Each digest is printed with the first layer of each stage: digests differ on
another kind of CPU, and where measured layer times made the plan cut a run elsewhere. Compare those of equal cuts.
"""
import hashlib
import pathlib
import sys
import tempfile

from training_test import DEFAULT, GPT, LLAMA, NONE, Cluster, text_for_training, wait_for

STEPS = 24
# name -> stages, codecs, transport, model, stopped and resumed in the middle
RUNS = {
    "gpt-1-none": (1, NONE, "ucx", GPT, False),
    "gpt-2-default": (2, DEFAULT, "ucx", GPT, False),
    "gpt-4-default-grpc-resumed": (4, DEFAULT, "grpc", GPT, True),
    "llama-2-none-grpc-resumed": (2, NONE, "grpc", LLAMA, True),
    "llama-4-default": (4, DEFAULT, "ucx", LLAMA, False),
    "gpt-4-none-resumed": (4, NONE, "ucx", GPT, True),
}


def losses_of(cluster, name, stages, links, transport, model, resumed):
    options = {"steps": STEPS, "stages": stages, "links": links, "transport": transport, "model": model}
    if not resumed:
        return cluster.train(name, **options)
    path = cluster.write_run(name, **options)
    run = cluster.cli("submit", path).stdout.split()[0]
    wait_for("some steps", lambda: cluster.step(run) >= 3)
    cluster.cli("stop", run)
    stopped = wait_for("the stop", lambda: (s := cluster.seen(run))["state"] in ("stopped", "done") and s)
    if stopped["state"] != "stopped":
        raise AssertionError(f"{name} had ended before it could be stopped; take more steps")
    cluster.cli("submit", path, "--resume", "--watch")
    return cluster.losses(run)


def main():
    with tempfile.TemporaryDirectory() as folder:
        text_for_training(folder)
        with Cluster(sys.argv[1], folder, workers=4) as cluster:
            for name, options in RUNS.items():
                losses = losses_of(cluster, name, *options)
                if len(losses) != STEPS:
                    raise AssertionError(f"{name}: expected {STEPS} losses, got {len(losses)}")
                digest = hashlib.sha256(" ".join(map(repr, losses)).encode()).hexdigest()[:16]
                cuts = ",".join(str(stage.get("first_layer", 0)) for stage in cluster.status(name)["stages"])
                print(f"{name:28} cut at {cuts:8} {digest}  {losses[0]:.6f} to {losses[-1]:.6f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    main()
