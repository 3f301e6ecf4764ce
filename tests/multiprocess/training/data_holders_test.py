"""Workers that read the same data set give each other its chunks, over real processes on the loopback interface.

usage: data_holders_test.py BIN_DIR
"""
import os
import pathlib
import re
import shutil
import sys
import tempfile

from data_sets_test import CHUNK, TEXT, write_set
from training_test import Cluster, expect_equal, text_for_training, wait_for

# What is in a process's own folder differs from process to process.
SETS = "data: {{ sets: [/proc/self/cwd/words], seed: 3, memory: 1MiB, upload: {upload} }}"
WORKERS = 3


class HolderCluster(Cluster):
    def roots(self):
        return ["--data-root", "/proc/self/cwd"]


def write_run(cluster, name, stages, upload):
    path = cluster.write_run(name, steps=30, stages=stages)
    text = path.read_text().replace(TEXT, SETS.format(upload=str(upload).lower()))
    path.write_text(text.replace("recovery: { attempts: 0 }", "recovery: { attempts: 3 }"))
    return path


def home(cluster, number):
    return cluster.folder / f"home{number}"


def show_set_to(cluster, numbers):
    """These workers have the data set, and no other has it."""
    for number in range(1, WORKERS + 1):
        words = home(cluster, number) / "words"
        shutil.rmtree(words, ignore_errors=True)
        if number in numbers:
            shutil.copytree(cluster.folder / "words", words, copy_function=os.link)


def holders(cluster, run):
    """For each stage: where its chunks came from, and how many, in all epochs."""
    found = {}
    for number in range(1, WORKERS + 1):
        log = (cluster.folder / f"worker{number}.log").read_text()
        for stage, line in re.findall(rf"run {run}: stage (\d+) read of its data sets: (.*)", log):
            of_stage = found.setdefault(int(stage), {})
            for count, holder in re.findall(r"(\d+) chunks? \([^)]*\) from ([^,\n]+)", line):
                of_stage[holder] = of_stage.get(holder, 0) + int(count)
    return found


def train(cluster, name, stages, upload=False):
    path = write_run(cluster, name, stages, upload)
    run = cluster.cli("submit", path, "--watch").stdout.split()[0]
    readers = wait_for("both to say what they read",
                       lambda: (lambda found: found if len(found) == 2 else None)(holders(cluster, run)))
    print(f"{name}: {readers}", flush=True)
    return cluster.losses(run), readers


def expect_holders(readers, stage, *wanted):
    if set(readers[stage]) != set(wanted):
        raise AssertionError(f"stage {stage} had chunks from {readers[stage]}, expected {wanted}")


def from_the_other_stage(cluster, everywhere):
    """Wherever the only folder is, and with nothing at the coordinator."""
    for numbers in ({1}, {2}):
        show_set_to(cluster, numbers)
        losses, readers = train(cluster, f"at-{min(numbers)}", stages=2)
        expect_equal(f"the folder at worker {min(numbers)} alone", losses, everywhere)
        with_folder = [stage for stage in (0, 1) if "its folder" in readers[stage]]
        if len(with_folder) != 1:
            raise AssertionError(f"expected one stage with the folder: {readers}")
        expect_holders(readers, with_folder[0], "its folder")
        expect_holders(readers, 1 - with_folder[0], f"stage {with_folder[0]}")


def from_the_coordinator_once(cluster, everywhere, chunks):
    """Submitted with the folder there; then it is nowhere."""
    show_set_to(cluster, ())
    losses, readers = train(cluster, "uploaded", stages=3, upload=True)
    expect_equal("nobody has the folder", losses, everywhere)
    expect_holders(readers, 0, "the coordinator")
    expect_holders(readers, 2, "stage 0")
    if not 0 < readers[0]["the coordinator"] <= chunks:
        raise AssertionError(f"the coordinator gave {readers[0]} of {chunks} chunks")
    print(f"ok: the coordinator gave each of {readers[0]['the coordinator']} chunks once", flush=True)


def the_first_stage_dies(cluster, everywhere):
    """And comes back: both go on with what the coordinator and the other have."""
    path = write_run(cluster, "dies", stages=2, upload=True)
    path.write_text(path.read_text().replace("steps: 30", "steps: 60"))
    run = cluster.cli("submit", path).stdout.split()[0]
    wait_for("step 12", lambda: len(cluster.losses(run)) >= 12)
    number = int(cluster.status(run)["stages"][0]["worker_name"].removeprefix("worker"))
    cluster.kill(f"worker{number}")
    cluster.start_worker(number, cwd=home(cluster, number))
    wait_for("the end", lambda: cluster.seen(run)["state"] in ("done", "failed"))
    if cluster.status(run)["state"] != "done":
        raise AssertionError(cluster.status(run)["reason"])
    expect_equal("the first stage was killed", cluster.losses(run), everywhere)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        text_for_training(folder)
        with HolderCluster(sys.argv[1], folder, workers=0) as cluster:
            text = (cluster.folder / "text.txt").read_bytes()
            write_set(cluster.folder / "words", list(text), validation=list(text[:5000]))
            chunks = sum(-(-file.stat().st_size // CHUNK) for file in (cluster.folder / "words").glob("*.bin"))
            for number in range(1, WORKERS + 1):
                home(cluster, number).mkdir()
                cluster.start_worker(number, cwd=home(cluster, number))
            wait_for("the workers", lambda: len(cluster.connected()) == WORKERS)
            show_set_to(cluster, {1, 2, 3})
            everywhere, readers = train(cluster, "everywhere", stages=3)
            expect_holders(readers, 0, "its folder")
            expect_holders(readers, 2, "its folder")
            from_the_coordinator_once(cluster, everywhere, chunks)
            cluster.kill("worker3")
            wait_for("two workers", lambda: len(cluster.connected()) == 2)
            from_the_other_stage(cluster, everywhere)
            show_set_to(cluster, {1, 2})
            path = write_run(cluster, "long", stages=2, upload=False)
            path.write_text(path.read_text().replace("steps: 30", "steps: 60"))
            run = cluster.cli("submit", path, "--watch").stdout.split()[0]
            show_set_to(cluster, ())
            the_first_stage_dies(cluster, cluster.losses(run))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    main()
