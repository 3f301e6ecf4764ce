"""The package longhaul on a real cluster: submit, follow, plot, stop, resume, export; and what is refused.

usage: api_test.py BIN_DIR
"""
import json
import os
import pathlib
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "training"), str(HERE.parents[3] / "python")]
from training_test import Cluster, wait_for  # noqa: E402

import longhaul  # noqa: E402

RUN = {"name": "api", "model": {"family": "gpt", "layers": 2, "hidden": 32, "heads": 2, "context": 32},
       "data": {"text": ["text.txt"], "tokenizer": "bytes"}, "train": {"steps": 6, "microbatches": 2},
       "validation": {"share": 0.1, "every": 3, "samples": 2}, "pipeline": {"stages": 2}, "links": "exact",
       "checkpoint": {"every": 3}}
ENDLESS = 100_000


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def refused(error, call, *words):
    try:
        call()
    except error as problem:
        for word in words:
            check(word in str(problem), problem, "lacks", word)
        return problem
    raise AssertionError(f"nothing was raised; expected {error.__name__} with {words}")


def trains(client, folder):
    run = client.submit(RUN, set={"train.steps": 6})
    steps = list(run.follow())
    check([step.step for step in steps if step.step > 0] == list(range(1, 7)), steps)
    check(all(step.loss > 0 and step.seconds > 0 for step in steps if step.step > 0), steps)
    check([step.step for step in steps if step.validation_loss is not None and step.step > 0] == [3, 6], steps)
    status = run.wait()
    check((status.state, status.step, status.steps, status.ended) == ("done", 6, 6, True), status)
    check(run.steps() == steps and run.steps(after=4) == steps[-2:], "steps")
    # As the command line prints them, to the last bit.
    printed = [json.loads(line) for line in cli(client, "steps", run.id, "--json").splitlines()]
    check([step.raw for step in steps] == printed, printed)
    check(client.run("api").id == run.id and client.runs()[0].id == run.id, client.runs())
    check(sorted(worker.name for worker in client.workers() if worker.connected) == ["worker1", "worker2"], client.workers())
    exported = run.export(folder / "model", dtype="bf16")
    check(json.loads((exported / "config.json").read_text())["model_type"] == "gpt2", exported)
    refused(longhaul.Error, lambda: run.export(folder / "model"), "model")  # it is there
    return run


def is_left_and_stopped(client, first):
    file = pathlib.Path("run.yaml")
    file.write_text(json.dumps({**RUN, "name": "long", "train": {**RUN["train"], "steps": ENDLESS}}))
    run = client.submit(file, set={"validation.every": 0})
    for step in run.follow():
        if step.step == 2:
            break
    check(not run.status().ended, "leaving the loop has ended the run")
    picture = longhaul.plot([first, run])
    texts = [text.text for text in xml.etree.ElementTree.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}text")]
    check(first.id in texts and run.id in texts, texts)
    check("<svg" in run.plot(x="seconds")._repr_svg_(), "no picture")
    run.stop()
    refused(longhaul.RunFailed, run.wait, run.id, "stopped at step", f"of {ENDLESS}")
    # It has done some steps before it was stopped, and does one more.
    more = run.status().step + 1
    again = client.submit(file, set={"validation.every": 0, "train.steps": more}, resume=True)
    check(again.id == run.id and again.wait().step == more, again.status())


def refuses(client, cluster):
    wrong = refused(longhaul.Error, lambda: client.submit(RUN, set={"train.stepps": 6}), "stepps", "did you mean 'steps'")
    check(wrong.code == 1, wrong.code)
    refused(longhaul.Error, lambda: client.run("nothing"), "there is no run 'nothing'")
    refused(longhaul.Error, lambda: longhaul.Client(cluster.address, "no-such-token", program=cluster.programs / "longhaul").runs(),
            "no-such-token")


def cli(client, *arguments):
    return client._program.text(*arguments)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-api-") as name, Cluster(sys.argv[1], name, 2) as cluster:
        os.chdir(name)
        pathlib.Path("text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 200)
        client = longhaul.Client(cluster.address, cluster.token, program=cluster.programs / "longhaul")
        wait_for("free workers", lambda: len(client.workers()) == 2)
        refuses(client, cluster)
        run = trains(client, pathlib.Path(name))
        is_left_and_stopped(client, run)
    print("ok: submit, follow, plot, stop, resume, export")


if __name__ == "__main__":
    main()
