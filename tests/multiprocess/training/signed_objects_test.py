"""Models and data sets that workers read at addresses which the coordinator signs: the hub's token and the keys of S3
are at the coordinator and at the user alone. Over real processes, with a hub and S3 of our own.

usage: signed_objects_test.py BIN_DIR [CASE...]
"""
import contextlib
import importlib.util
import json
import os
import pathlib
import random
import re
import sys
import tempfile

from cases import run_cases
from data_sets_test import write_set
from published_test import make_model
from remote_model_test import S3, TOKEN, WEED, Hub, RemoteCluster, s3_server
from training_test import GPT, NONE, RUN, Skipped, expect_equal, text_for_training, wait_for

SIGNATURES = b"X-Amz-Signature", b"Expires=2000000000", TOKEN.encode(), s3_server.SECRET_KEY.encode()
STEPS = 60  # of runs that read chunks in between
PERMISSION_DENIED = 7  # of gRPC
TEXT = "data: { text: [text.txt], tokenizer: bytes, seed: 3 }"
SECRETS = "HF_TOKEN", "HF_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"


class SignedCluster(RemoteCluster):
    """The coordinator and the user know the services and their secrets; workers know neither."""

    def __init__(self, programs, folder, workers):
        folder = pathlib.Path(folder)
        self.open = contextlib.ExitStack()
        self.hub = Hub(folder)
        self.open.callback(self.hub.stop)
        os.environ.update({"HF_ENDPOINT": self.hub.address, "HF_TOKEN": TOKEN})
        self.model = folder / "base"
        make_model(self.model, "BF16", tied=False)
        self.s3 = None
        if WEED.exists():
            # Elsewhere: what it keeps is searched for secrets with the rest of `folder`, and it writes its keys.
            self.s3 = S3(pathlib.Path(self.open.enter_context(tempfile.TemporaryDirectory(prefix="longhaul-test-s3-"))),
                         self.model)
            self.open.callback(self.s3.stop)
            os.environ.update(self.s3.environment())
        super().__init__(programs, folder, workers)

    def start(self, name, program, *arguments, cwd=None):
        hidden = {key: os.environ.pop(key) for key in SECRETS if key in os.environ and name.startswith("worker")}
        try:
            super().start(name, program, *arguments, cwd=cwd)
        finally:
            os.environ.update(hidden)

    def stop(self):
        try:
            super().stop()
        finally:
            self.open.close()


def write_run(cluster, name, model=GPT, data=TEXT, steps=6):
    text = RUN.format(name=name, steps=steps, stages=2, schedule="link-aware", links=NONE, transport="ucx")
    path = cluster.folder / f"{name}.yaml"
    path.write_text(text.replace(GPT, model).replace(TEXT, data).replace("warmup: 5", "warmup: 1"))
    return path


def train(cluster, name, **more):
    run = cluster.cli("submit", write_run(cluster, name, **more), "--watch").stdout.split()[0]
    return cluster.losses(run)


def failed(cluster, run, *expected):
    status = wait_for("the failure", lambda: (s := cluster.seen(run))["state"] == "failed" and s)
    if not all(text in status["reason"] for text in expected):
        raise AssertionError(status["reason"])
    print(f"ok: {status['reason']}", flush=True)


def expect_no_secret(cluster):
    for path in cluster.folder.rglob("*"):
        if path.is_file() and path.suffix != ".yaml" and "certificate" not in path.name:
            content = path.read_bytes()
            for secret in SIGNATURES:
                if secret in content:
                    raise AssertionError(f"{path} has {secret} in it")
    print("ok: no file of coordinator and workers has a token, a key or a signature in it", flush=True)


def model_at(address):
    return f"{{ from: {json.dumps(str(address))}, context: 64 }}"


def models(cluster):
    local = train(cluster, "local", model=model_at(cluster.model))
    cluster.hub.publish("private/tiny", cluster.model)
    cluster.hub.do("log")
    expect_equal("a private model on a hub", train(cluster, "hub", model=model_at("hf://private/tiny")), local)
    asked = [one for one in cluster.hub.do("log") if one["server"] == "cdn" and one["range"]]
    if not asked or any(one["authorization"] for one in asked):
        raise AssertionError(f"workers asked the CDN otherwise than at signed addresses: {asked}")
    if cluster.s3:
        expect_equal("a private model in S3", train(cluster, "s3", model=model_at("s3://bucket/tiny/")), local)
    expect_no_secret(cluster)


def tokens(count):
    random.seed(3)
    return [first + (at * at) % 11 for first in range(1, 200) for at in range(count // 200)]


def make_set(cluster, name):
    folder = cluster.folder / name
    write_set(folder, tokens(40_000))
    return folder


def sets_at(address):
    return f"data: {{ sets: [{json.dumps(str(address))}], seed: 3, memory: 64KiB }}"


def put(cluster, folder, key):
    for file in folder.iterdir():
        if not s3_server.put(cluster.s3.port, f"/bucket/{key}/{file.name}", file.read_bytes()):
            raise AssertionError(f"S3 does not take {file}")


def data(cluster):
    folder = make_set(cluster, "words")
    local = train(cluster, "local-set", data=sets_at(folder), steps=STEPS)
    cluster.hub.do("publish_folder", repository="datasets/private/words", revision="main", folder=str(folder))
    at_hub = sets_at("hf://datasets/private/words")
    expect_equal("a private data set on a hub", train(cluster, "hub-set", data=at_hub, steps=STEPS), local)
    # What passes: a busy hub, a CDN that breaks off or is in trouble, and addresses that have expired meanwhile.
    cluster.hub.do("fault", server="hub", method="HEAD", status=429, headers={"Retry-After": "0"})
    cluster.hub.do("fault", server="cdn", status=500)
    cluster.hub.do("fault", server="cdn", cut=100)
    run = cluster.cli("submit", write_run(cluster, "expired-set", data=at_hub, steps=STEPS)).stdout.split()[0]
    wait_for("the first step", lambda: cluster.step(run) >= 1)
    cluster.hub.do("revoke")
    cluster.hub.do("log")
    wait_for("the end", lambda: cluster.seen(run)["state"] == "done")
    if not any(one["server"] == "hub" and one["method"] == "HEAD" for one in cluster.hub.do("log")):
        raise AssertionError("no address was asked for again")
    expect_equal("addresses that expire in the middle", cluster.losses(run), local)
    # The same bytes get another tag in the middle: each chunk's hash says that they are right.
    tag = [0]

    def serve():
        tag[0] += 1
        cluster.hub.do("web_folder", path="/web/words/", folder=str(folder), etag=f'"{tag[0]}"')

    serve()
    on_web = sets_at(f"http://127.0.0.1:{cluster.hub.ports['cdn']}/web/words")
    run = cluster.cli("submit", write_run(cluster, "web-set", data=on_web, steps=STEPS)).stdout.split()[0]
    wait_for("the first step", lambda: cluster.step(run) >= 1)
    serve()
    wait_for("the end", lambda: cluster.seen(run)["state"] == "done")
    expect_equal("files that are written anew", cluster.losses(run), local)
    if cluster.s3:
        put(cluster, folder, "words")
        in_s3 = sets_at("s3://bucket/words")
        expect_equal("a data set in S3", train(cluster, "s3-set", data=in_s3, steps=STEPS), local)
    expect_no_secret(cluster)


def wrong(cluster):
    """What is not there, and what has changed since the run was submitted, is not trained on."""
    if not cluster.s3:
        raise Skipped("deploy/setup.sh --test has not brought SeaweedFS")
    folder = make_set(cluster, "changing")
    put(cluster, folder, "changing")
    answer = cluster.cli("submit", write_run(cluster, "nothing", data=sets_at("s3://bucket/nothing")), check=False)
    if answer.returncode != 1 or "s3://bucket/nothing/dataset.json" not in answer.stderr:
        raise AssertionError(answer.stderr)
    file = sorted(folder.glob("training-*.bin"))[0]
    content = file.read_bytes()
    for what, changed in (("other tokens", content[:-2] + b"\1\1"), ("fewer tokens", content[:5000])):
        cluster.kill("worker2")
        wait_for("one worker", lambda: len(cluster.connected()) == 1)
        put(cluster, folder, "changing")
        run = cluster.cli("submit", write_run(cluster, what.replace(" ", "-"), steps=40,
                                              data=sets_at("s3://bucket/changing"))).stdout.split()[0]
        for each in folder.glob("training-*.bin"):
            s3_server.put(cluster.s3.port, f"/bucket/changing/{each.name}", changed)
        cluster.start_worker(2)
        failed(cluster, run, "s3://bucket/changing/training-", "has changed since the run was submitted")


def sign(cluster, worker, run, address, use=3):
    """(status, message) of SignObject, as this worker."""
    # Debian's Python has the packages that these need.
    for name in ("members", "abuse"):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / name))
    from http2 import WORKER, field, message
    from members_test import call

    body = message(field(1, run) + field(2, address) + field(use, b""))
    return call(cluster.address, cluster.folder / worker / "identity.pem", WORKER + "SignObject", body)


def refusals(cluster):
    """Workers get addresses of the objects that their own run names, and of no other ones."""
    if importlib.util.find_spec("hpack") is None:
        raise Skipped("this Python lacks hpack, which Debian's has")
    cluster.hub.publish("private/tiny", cluster.model)
    path = write_run(cluster, "named", model=model_at("hf://private/tiny"), steps=100_000)
    run = cluster.cli("submit", path).stdout.split()[0]
    wait_for("the first step", lambda: cluster.step(run) >= 1)
    shown = cluster.cli("plan", path, "--show-config").stdout
    folder = re.search(r"hf://private/tiny@\w+/", shown)[0]
    named = folder + "model.safetensors"
    status, said = sign(cluster, "worker1", run, named)
    if status != 0:
        raise AssertionError(f"an object of its run was refused: {said}")
    cluster.start_worker(3)
    wait_for("a worker without a cell", lambda: len(cluster.connected()) == 3)
    cases = {"a file that the list does not name": ("worker1", run, folder + "config.json", 3),
             "another repository": ("worker1", run, "hf://private/other/model.safetensors", 3),
             "a bucket": ("worker1", run, "s3://bucket/tiny/model.safetensors", 3),
             "another branch": ("worker1", run, "hf://private/tiny/model.safetensors", 3),
             "to write": ("worker1", run, named, 4),
             "of another worker's run": ("worker3", run, named, 3),
             "of no run": ("worker1", "nothing", named, 3)}
    for what, (worker, of, address, use) in cases.items():
        status, said = sign(cluster, worker, of, address, use)
        if status != PERMISSION_DENIED:
            raise AssertionError(f"{what}: {status}: {said}")
        print(f"ok: {what}: {said}", flush=True)
    cluster.cli("stop", run, "--now")
    wait_for("the end", lambda: cluster.seen(run)["state"] == "stopped")
    status, said = sign(cluster, "worker1", run, named)
    if status != PERMISSION_DENIED:
        raise AssertionError(f"a run that has ended: {status}: {said}")
    print(f"ok: a run that has ended: {said}", flush=True)


CASES = {"models": models, "data": data, "wrong": wrong, "refusals": refusals}

if __name__ == "__main__":
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    sys.exit(run_cases(CASES, kind=SignedCluster, workers=2, text=text_for_training))
