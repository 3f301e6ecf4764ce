"""How soon audits name a liar, over many trials on fresh clusters: a row of CSV for each.

usage: trials.py BIN_DIR [--attacks scaled,...] [--trials N] [--stages N] [--share S] [--every STEPS]

Prints attack, trial, the step of the first lie, the last step before it was named, the bound with 95 %, and who was named.
The exit code is 1 if somebody else was named in any trial, or fewer than 95 % were named within the bound.
"""
import argparse
import math
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from audits_test import events  # noqa: E402
from training_test import NONE, Cluster, text_for_training, wait_for  # noqa: E402

LIES_FROM = 3
SPARES = 2
MIDDLE = 2  # the liar's number, but for those who need the last stage
ATTACKS = {
    "scaled": "scale-sent:step={first},direction=backward,factor=1.5",
    "flipped": "flip-layer:step={first}",
    "stale": "stale-sent:step={first},direction=forward",
    "poisoned": "poison-optimizer:step={first},factor=-1",
    "loss": "lie-loss:step={first},factor=0.9",
}
MODEL = "{{ family: gpt, layers: {layers}, hidden: 64, heads: 4, context: 64 }}"


def named(cluster, run):
    """The eviction and the last step before it, or the run's end."""
    def found():
        told = [text for text in events(cluster, run) if " is evicted" in text]
        return told[0] if told else cluster.seen(run)["state"] in ("done", "failed") and "nobody"
    return wait_for("an eviction", found, deadline_s=3600)


def trial(options, attack):
    liar = options.stages if attack == "loss" else MIDDLE
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with Cluster(options.programs, folder, workers=options.stages + SPARES) as cluster:
            cluster.kill(f"worker{liar}")
            cluster.start_worker(liar, "--rehearse", ATTACKS[attack].format(first=LIES_FROM))
            wait_for("the workers", lambda: len(cluster.connected()) == options.stages + SPARES)
            path = cluster.write_run(attack, steps=100000, stages=options.stages, links=NONE,
                                     model=MODEL.format(layers=options.stages))
            run = cluster.cli("submit", path, "--set", "validation.every=0", "--set", "checkpoint.every=0",
                              "--set", f"recovery.every={options.every}", "--set", f"recovery.spares={SPARES}",
                              "--set", "recovery.attempts=5", "--set", "verify.digests=sha256",
                              "--set", f"audit.share={options.share}").stdout.split()[0]
            told = named(cluster, run)
            cluster.cli("stop", run, check=False)
            who = re.search(r"worker (\S+) is evicted", told)
            window = re.search(r"steps? (?:\d+ to )?(\d+) of worker", told)
            return (who[1] if who else "nobody"), int(window[1]) if window else 0, f"worker{liar}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--stages", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    bound = LIES_FROM - 1 + options.every * math.ceil(math.log(0.05) / math.log(1 - options.share))
    wrong, late, trials = 0, 0, 0
    print("attack,trial,first_lie,named_by_audit_of_step,bound_95,named,liar")
    for attack in options.attacks.split(","):
        for number in range(options.trials):
            who, step, liar = trial(options, attack)
            print(f"{attack},{number},{LIES_FROM},{step},{bound},{who},{liar}", flush=True)
            trials += 1
            wrong += who != liar
            late += step > bound
    print(f"# {trials} trials: {wrong} wrong, {late} after step {bound}", file=sys.stderr)
    return 1 if wrong or late > 0.05 * trials else 0


if __name__ == "__main__":
    sys.exit(main())
