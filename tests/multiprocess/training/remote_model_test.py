"""model.from as an address, over real processes: a hub and S3 of our own, and workers without credentials.

usage: remote_model_test.py BIN_DIR
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import urllib.request

from published_test import make_model
from training_test import NONE, RUN, Cluster, GPT, expect_equal, text_for_training, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests/support"))
import s3_server  # noqa: E402

WEED = ROOT / ".deps/venv/bin/weed"
TOKEN = "hf_good"  # the hub's


class Hub:
    """tests/support/hub_server.py as a child."""

    def __init__(self, folder):
        self.process = subprocess.Popen([sys.executable, ROOT / "tests/support/hub_server.py", folder / "certificate"],
                                        stdout=subprocess.PIPE, text=True)
        words = self.process.stdout.readline().split()
        self.ports = {name: int(port) for name, port in zip(words[0::2], words[1::2])}
        self.address = f"http://127.0.0.1:{self.ports['hub']}"

    def do(self, command, **arguments):
        body = json.dumps([{"do": command, **arguments}]).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports['control']}/", data=body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)[0]

    def publish(self, repository, model):
        return self.do("publish_folder", repository=f"models/{repository}", revision="main", folder=str(model))

    def serve(self, model, etag):
        """Puts the folder on a web server."""
        self.do("web_folder", path="/web/model/", folder=str(model), etag=etag)
        return f"http://127.0.0.1:{self.ports['cdn']}/web/model/"

    def stop(self):
        self.process.kill()
        self.process.wait()


class S3:
    """SeaweedFS as a child, with the model's files below the key tiny/."""

    def __init__(self, folder, model):
        self.process = subprocess.Popen([sys.executable, ROOT / "tests/support/s3_server.py", WEED, "bucket", folder],
                                        stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.port = int(self.process.stdout.readline().split()[1])
        for file in model.iterdir():
            if not s3_server.put(self.port, f"/bucket/tiny/{file.name}", file.read_bytes()):
                raise AssertionError(f"S3 does not take {file}")

    def environment(self):
        return {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_KEY}

    def stop(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class RemoteCluster(Cluster):
    """Workers may ask this machine, and have no credentials of the user who submits."""

    def start_worker(self, number, *flags, cwd=None):
        self.start(f"worker{number}", "longhaul-worker", "--coordinator", self.address, "--name", f"worker{number}",
                   "--device", self.devices(number), "--remote-host", "127.0.0.1:*", *self.roots(), *flags,
                   cwd=cwd)


def write_run(cluster, name, model, lora=None):
    text = RUN.format(name=name, steps=6, stages=2, schedule="link-aware", links=NONE, transport="ucx")
    model = f"{{ from: {json.dumps(str(model))}, context: 32 }}"
    if lora:
        text = text.replace("  seed: 5\n", f"  seed: 5\n  lora: {lora}\n")
    path = cluster.folder / f"{name}.yaml"
    path.write_text(text.replace(GPT, model).replace("warmup: 5", "warmup: 1").replace("every: 10", "every: 3"))
    return path


def train(cluster, name, model, **more):
    run = cluster.cli("submit", write_run(cluster, name, model, **more), "--watch").stdout.split()[0]
    return run, cluster.losses(run)


def refused(cluster, name, model, *expected):
    answer = cluster.cli("submit", write_run(cluster, name, model), check=False)
    if answer.returncode != 1 or not all(text in answer.stderr for text in expected):
        raise AssertionError(f"{name}: exit {answer.returncode}: {answer.stderr}")
    print(f"ok: {answer.stderr.strip()}", flush=True)


def from_hub(cluster, hub, local):
    commit = hub.publish("org/tiny", cluster.model)
    hub.do("log")
    run, losses = train(cluster, "hub", "hf://org/tiny")
    expect_equal("from a hub, against the folder", losses, local)
    log = hub.do("log")
    if not any(request["server"] == "cdn" and request["range"] for request in log):
        raise AssertionError("nobody read from the CDN")
    shown = cluster.cli("plan", write_run(cluster, "hub", "hf://org/tiny"), "--show-config").stdout
    if f"hf://org/tiny@{commit}/" not in shown:
        raise AssertionError(f"no commit in {shown}")
    cluster.cli("export", run, "--out", cluster.folder / "hub-out")
    if (cluster.folder / "hub-out" / "tokenizer.json").read_bytes() != (cluster.model / "tokenizer.json").read_bytes():
        raise AssertionError("another tokenizer")


def lora(cluster):
    lora = "{ rank: 4, targets: all-linear }"
    _, local = train(cluster, "lora-local", cluster.model, lora=lora)
    run, losses = train(cluster, "lora-hub", "hf://org/tiny", lora=lora)
    expect_equal("adapters of a model on a hub", losses, local)
    cluster.cli("export", "lora-local", "--merged", "--out", cluster.folder / "merged-local")
    cluster.cli("export", run, "--merged", "--out", cluster.folder / "merged-hub")
    files = [(cluster.folder / name / "model.safetensors").read_bytes() for name in ("merged-local", "merged-hub")]
    if files[0] != files[1]:
        raise AssertionError("merged: other tensors than those of the folder")
    cluster.cli("export", run, "--out", cluster.folder / "adapters")
    base = json.loads((cluster.folder / "adapters" / "adapter_config.json").read_text())["base_model_name_or_path"]
    if base != "org/tiny":
        raise AssertionError(f"the adapters are of {base}")
    print("ok: adapters are merged into the tensors of the hub", flush=True)


def private(cluster, hub, local):
    """The user's token reads the list; workers have none, and say so. With the flag they have their own."""
    hub.publish("private/tiny", cluster.model)
    refused(cluster, "hidden", "hf://private/tiny", "hf://private/tiny", "401", "HF_TOKEN")
    refused(cluster, "nothing", "hf://org/nothing", "hf://org/nothing", "404", "HF_TOKEN")
    os.environ["HF_TOKEN"] = TOKEN
    try:
        run = cluster.cli("submit", write_run(cluster, "private", "hf://private/tiny")).stdout.split()[0]
        status = wait_for("the failure", lambda: (s := cluster.seen(run))["state"] == "failed" and s)
        if "401" not in status["reason"] or "--remote-credentials" not in status["reason"]:
            raise AssertionError(status["reason"])
        print(f"ok: {status['reason']}", flush=True)
        trust_workers(cluster)
        expect_equal("a private model", train(cluster, "trusted", "hf://private/tiny")[1], local)
    finally:
        del os.environ["HF_TOKEN"]


def trust_workers(cluster):
    """Starts the workers anew, with the credentials that are in the environment now."""
    for number in cluster.workers:
        cluster.kill(f"worker{number}")
    wait_for("no workers", lambda: not cluster.connected())
    for number in cluster.workers:
        cluster.start_worker(number, "--remote-credentials")
    wait_for("the workers", lambda: len(cluster.connected()) == len(cluster.workers))


def from_s3(cluster, local):
    if not WEED.exists():
        print("skipped: S3, because deploy/setup.sh --test has not brought SeaweedFS", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="longhaul-test-s3-") as folder:
        server = S3(pathlib.Path(folder), cluster.model)
        os.environ.update(server.environment())
        try:
            trust_workers(cluster)
            expect_equal("from S3", train(cluster, "s3", "s3://bucket/tiny/")[1], local)
            refused(cluster, "no-object", "s3://bucket/nothing/", "s3://bucket/nothing/config.json", "404")
            os.environ["AWS_SECRET_ACCESS_KEY"] = "wrong"
            refused(cluster, "wrong-key", "s3://bucket/tiny/", "403", "AWS_SECRET_ACCESS_KEY")
        finally:
            for name in server.environment():
                del os.environ[name]
            server.stop()


def expect_forbidden(cluster, address):
    """A worker that was not allowed this machine does not ask it."""
    cluster.kill("worker2")
    Cluster.start_worker(cluster, 2)
    wait_for("two workers", lambda: len(cluster.connected()) == 2)
    run = cluster.cli("submit", write_run(cluster, "forbidden", address)).stdout.split()[0]
    status = wait_for("the failure", lambda: (s := cluster.seen(run))["state"] == "failed" and s)
    if "worker2" not in status["reason"] or "--remote-host" not in status["reason"]:
        raise AssertionError(status["reason"])
    print(f"ok: {status['reason']}", flush=True)


def from_web(cluster, hub, local):
    address = hub.serve(cluster.model, '"one"')
    expect_equal("from a web server", train(cluster, "web", address)[1], local)
    expect_forbidden(cluster, address)
    # The file changes before the second worker reads it.
    cluster.kill("worker2")
    wait_for("one worker", lambda: len(cluster.connected()) == 1)
    run = cluster.cli("submit", write_run(cluster, "changed", address)).stdout.split()[0]
    hub.serve(cluster.model, '"two"')
    cluster.start_worker(2)
    status = wait_for("the failure", lambda: (s := cluster.seen(run))["state"] == "failed" and s)
    if "has changed since the run was submitted" not in status["reason"]:
        raise AssertionError(status["reason"])
    print(f"ok: {status['reason']}", flush=True)


def away(cluster, hub):
    """The hub is gone when workers want the model."""
    cluster.kill("worker2")
    wait_for("one worker", lambda: len(cluster.connected()) == 1)
    run = cluster.cli("submit", write_run(cluster, "away", "hf://org/tiny")).stdout.split()[0]
    hub.stop()
    cluster.start_worker(2)
    status = wait_for("the failure", lambda: (s := cluster.seen(run))["state"] == "failed" and s)
    if f"127.0.0.1:{hub.ports['hub']}" not in status["reason"]:
        raise AssertionError(status["reason"])
    print(f"ok: {status['reason']}", flush=True)


def expect_no_secret(folder):
    for path in folder.rglob("*"):
        for secret in TOKEN, s3_server.SECRET_KEY:
            if path.is_file() and secret.encode() in path.read_bytes():
                raise AssertionError(f"{path} has a secret in it")
    print("ok: no file of coordinator and workers has a secret in it", flush=True)


@contextlib.contextmanager
def beside_a_hub(programs):
    """Yields a cluster with two workers and a model, and the hub that they ask without credentials."""
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as name:
        folder = pathlib.Path(name)
        text_for_training(name)
        hub = Hub(folder)
        os.environ["HF_ENDPOINT"] = hub.address
        os.environ["HF_HOME"] = str(folder / "no-credentials")
        os.environ.pop("HF_TOKEN", None)
        try:
            with RemoteCluster(programs, folder, workers=2) as cluster:
                cluster.model = folder / "base"
                make_model(cluster.model, "BF16", tied=False)
                yield cluster, hub
        finally:
            hub.stop()


def main():
    with beside_a_hub(sys.argv[1]) as (cluster, hub):
        _, local = train(cluster, "local", cluster.model)
        from_hub(cluster, hub, local)
        lora(cluster)
        from_web(cluster, hub, local)
        private(cluster, hub, local)
        from_s3(cluster, local)
        away(cluster, hub)
        expect_no_secret(cluster.folder)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    main()
