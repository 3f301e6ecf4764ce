"""kill -9 of a random worker, again and again in one run, and nobody types anything.

usage: kills.py BIN_DIR [--kills 5] [--steps 200] [--every 8] [--spares 1] [--away 0] [--any-time]
                [--gone] [--coordinator] [--rate 10mbit] [--stages 4] [--device cpu] [--run FILE]
                [--set KEY=VALUE]... [--seed N]

Killed workers are started again after --away seconds; with --gone never, and their disks are wiped.
With --coordinator it is killed too, up to 3 seconds after the worker, and started again. The next
kill comes when a newer set of copies is whole than at the last one; with --any-time at any moment.
Prints for each kill how long it took to the first step of the next epoch and how many steps were
repeated. Exits with 1 where the run does not go on by itself, its losses are not those of an
unbroken run bit for bit, or it goes on from before a set that was whole at the kill. The seed is new
each time; with --seed or LONGHAUL_TEST_SEED the same workers are killed at other moments.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

from namespace_cluster import ENDED, add_seed, namespace_cluster
from training_test import expect_equal, text_for_training, wait_for
from requirements import without_root



def newest_held_twice(cluster, run):
    """The step of the newest set of which everything is held twice; 0: there is none."""
    reply = json.loads(cluster.cli("checkpoints", run, "--json").stdout)
    for one in reply.get("checkpoints", []):  # newest first
        if all(len(shard["holders"]) > 1 for shard in one["shards"]):
            return int(one["step"])
    return 0


def start_step(status):
    return int(status["plan"]["assignment"].get("start_step", 0))


class Kills:
    def __init__(self, cluster, run, options, chance):
        self.cluster, self.run, self.options, self.chance = cluster, run, options, chance
        self.safe, self.seconds, self.repeated = 0, [], []

    def wait_for_moment(self):
        """False: the run has ended."""
        def moment():
            status = self.cluster.status(self.run)
            if status["state"] in ENDED:
                return True
            if status["state"] != "running" or int(status.get("step", 0)) <= start_step(status):
                return False
            newest = newest_held_twice(self.cluster, self.run)
            if self.options.any_time:
                return True
            if newest <= self.safe:
                return False
            self.safe = newest
            return True
        wait_for("a moment to kill somebody", moment)
        if self.options.any_time:
            time.sleep(self.chance.uniform(0, 3))
        return self.cluster.status(self.run)["state"] not in ENDED

    def kill(self):
        before = self.cluster.status(self.run)
        worker = self.chance.choice([stage["worker_name"] for stage in before["stages"]])
        self.cluster.kill(worker)
        began = time.monotonic()
        if self.options.gone:
            shutil.rmtree(pathlib.Path(self.cluster.state()["directory"]) / worker)
        if self.options.coordinator:
            time.sleep(self.chance.uniform(0, 3))
            self.cluster.kill("coordinator")
            self.cluster.start("coordinator")
        if self.options.away > 0:
            time.sleep(self.options.away)
        if not self.options.gone:
            self.cluster.start(worker)

        def went_on():
            now = self.cluster.status(self.run)
            if now["state"] in ("failed", "stopped"):
                raise AssertionError(f"{now['state']}: {now.get('reason')}")
            more = int(now["epoch"]) > int(before["epoch"]) and now["state"] in (
                "running", "finishing", "done")
            return now if more and int(now["step"]) > start_step(now) else None
        after = wait_for("the first step after the kill", went_on)
        self.seconds.append(time.monotonic() - began)
        if start_step(after) < self.safe:
            raise AssertionError(f"it went on from step {start_step(after)}, though everything of "
                                 f"step {self.safe} was held twice")
        # What the coordinator did not hear of before the kill may have been finished too.
        self.repeated.append(max(0, int(before["step"]) - start_step(after)))
        print(f"  kill {len(self.seconds)}: {worker} after step {before['step']}: went on from "
              f"{start_step(after)} after {self.seconds[-1]:.1f} s, {self.repeated[-1]} steps repeated",
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--away", type=float, default=0, help="seconds until it is started again")
    parser.add_argument("--any-time", action="store_true")
    parser.add_argument("--gone", action="store_true", help="machines do not come back")
    parser.add_argument("--coordinator", action="store_true", help="it is killed during recoveries")
    parser.add_argument("--rate", default="10mbit")
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--device", default="cpu", help="of all workers, as for longhaul cluster up")
    parser.add_argument("--run", type=pathlib.Path, help="a run file")
    parser.add_argument("--set", action="append", default=[], help="of the run file")
    add_seed(parser)
    options = parser.parse_args()
    if options.gone and options.spares < options.kills:
        parser.error("--gone takes a spare for each kill")
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    chance = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    edit = (lambda _: options.run.read_text()) if options.run else None
    common = [word for one in options.set + [f"train.steps={options.steps}",
                                             f"pipeline.stages={options.stages}"]
              for word in ("--set", one)]
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with namespace_cluster(options.programs, folder, workers=options.stages + options.spares,
                               rate=options.rate, device=options.device) as cluster:
            run = cluster.submit("unbroken", *common, "--set", "name=unbroken", edit=edit)
            cluster.wait_for_end(run, deadline_s=options.steps * 10)
            reference = cluster.steps(run)
            run = cluster.submit("killed", *common, "--set", "name=killed",
                                 "--set", f"recovery.every={options.every}",
                                 "--set", f"recovery.spares={options.spares}",
                                 "--set", "recovery.attempts=5", edit=edit)
            kills = Kills(cluster, run, options, chance)
            try:
                while len(kills.seconds) < options.kills and kills.wait_for_moment():
                    kills.kill()
                status = cluster.wait_for_end(run, deadline_s=options.steps * 10)
                if status["state"] != "done":
                    raise AssertionError(f"{status['state']}: {status['reason']}")
            except BaseException:
                print("\n".join(cluster.events(run)), file=sys.stderr)
                raise
            expect_equal(f"{len(kills.seconds)} kills", cluster.losses(run),
                         [row["loss"] for row in reference])
            if len(kills.seconds) < options.kills:
                raise AssertionError(f"the run of {options.steps} steps was over after "
                                     f"{len(kills.seconds)} of {options.kills} kills; give it more")
            print(f"{len(kills.seconds)} kills: to the first step after median "
                  f"{statistics.median(kills.seconds):.1f} s, worst {max(kills.seconds):.1f} s; steps "
                  f"repeated median {statistics.median(kills.repeated):g}, worst {max(kills.repeated)}; "
                  f"losses bit-identical (seed {options.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
