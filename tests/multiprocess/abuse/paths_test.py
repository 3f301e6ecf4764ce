"""A user who names files and addresses that workers must not read, while a run of somebody else trains.

usage: paths_test.py BIN_DIR

The user speaks gRPC by herself, because the CLI refuses most of this. Her lists hash a few bytes of a file, so that a
worker that reads it tells by its log, or by how her run ends, whether she guessed right. She learns nothing, no worker
is stuck, nobody is asked who may not be, and the run that trains has the losses of an undisturbed one.
"""
import hashlib
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
import training_test as training  # noqa: E402
from abuse_test import another_user, start, start_workers  # noqa: E402
from http2 import CONTROL, Connection, Target, field, message, tls_as  # noqa: E402
from published_test import make_model  # noqa: E402

INVALID_ARGUMENT, FAILED_PRECONDITION = 3, 9
CHUNK = 4096
CONTEXT = 16
TOKENS = 2 * CONTEXT + 1
RUN = """\
name: {name}
model: {{ family: gpt, layers: 1, hidden: 8, heads: 1, context: 16, vocabulary: 65536 }}
data: {{ sets: [{sets}], list: {list}, vocabulary: 65536, upload: {upload}, seed: 1 }}
validation: {{ every: 0 }}
train: {{ steps: 8, microbatches: 4, microbatch_size: 2, schedule: {{ warmup: 1 }} }}
pipeline: {{ stages: 1 }}
recovery: {{ attempts: 0 }}
"""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def entry(file, data, offset=0):
    """A file of a list, of which she says that it has these two bytes there."""
    assert len(data) == 2
    return {"file": file, "offset": offset, "tokens": 1, "chunks": sha256(data)}


def whole_windows(entries):
    """These entries of one token each again and again, so often that every token is in a window of a run."""
    return (entries * TOKENS)[:TOKENS] if entries[0]["tokens"] == 1 else entries


def list_of(sets, chunk=CHUNK):
    """The list of data sets, {folder: entries}."""
    sources = [{"folder": folder, "weight": 1, "vocabulary": 65536, "bytes_per_token": 2, "packed": 0,
                "chunk_bytes": chunk, "training": whole_windows(entries), "validation": []}
               for folder, entries in sets.items()]
    return json.dumps({"format": "longhaul mixture", "version": 1, "sources": sources}).encode()


class User:
    """Somebody with a user's key, who writes lists and run files by hand."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.identity = another_user(cluster)
        self.environment = {**os.environ, "LONGHAUL_HOME": str(cluster.folder / "eve")}
        self.runs, self.name = 0, ""

    def call(self, path, body):
        """(status, message) of one call."""
        connection = Connection(Target(self.cluster.address, path, tls=tls_as(self.identity)))
        connection.introduce("")  # a stranger may say little
        connection.open(3, path, "", b"", end=False)
        data = message(body)
        while data:
            size = min(len(data), connection.room(3))
            if size > 0:
                connection.send_data(3, data[:size], flags=("END_STREAM",) if size == len(data) else ())
                data = data[size:]
            connection.read(0.01)
        assert connection.wait_ended(3) == 1, f"{path} has no end"
        connection.close()
        return connection.statuses[3], connection.messages[3]

    def upload(self, data):
        status, said = self.call(CONTROL + "UploadBlob", field(1, sha256(data)) + field(2, len(data)) + field(3, data))
        assert status == 0, said
        return sha256(data)

    def submit(self, run_yaml):
        return self.call(CONTROL + "Submit", field(1, run_yaml) + field(2, "run.yaml"))

    def cli(self, *arguments):
        done = subprocess.run([self.cluster.programs / "longhaul", *arguments, "--coordinator", self.cluster.address],
                              env=self.environment, capture_output=True, text=True, check=False,
                              timeout=training.DEADLINE_S, cwd=self.cluster.folder)
        return done.returncode, done.stdout + done.stderr


    def run_over(self, sets, upload=True, named=None, chunk=CHUNK):
        """(status, message) of a submission. `named`: the folders of the run file, if not those of the list."""
        self.runs += 1
        self.name = f"eves-{self.runs}"
        folders = ", ".join(json.dumps(folder) for folder in named or sets)
        return self.submit(RUN.format(name=self.name, sets=folders, list=self.upload(list_of(sets, chunk)),
                                      upload="true" if upload else "false"))

    def end(self, name, commands=("logs", "events")):
        """(state, reason, what she reads by `longhaul`) of a run of hers that has ended."""
        training.wait_for(f"the end of {name}", lambda: self.cluster.seen(name)["state"] in ("done", "failed"))
        status = json.loads(self.cli("status", name, "--json")[1])
        said = "\n".join(self.cli(command, name)[1] for command in commands)
        return status["state"], status.get("reason", ""), said

    def trained(self, *arguments, commands=("logs", "events"), **options):
        status, said = self.run_over(*arguments, **options)
        assert status == 0, said
        return self.end(self.name, commands)

    def refused(self, what, expected, *arguments, **options):
        status, said = self.run_over(*arguments, **options)
        assert status in (INVALID_ARGUMENT, FAILED_PRECONDITION) and expected in said, (what, status, said)
        print(f"ok: {what}: {said}", flush=True)


class Web(http.server.ThreadingHTTPServer):
    """Counts who asks. Answers with a redirect to `target`, if there is one."""

    def __init__(self, target=None):
        super().__init__(("127.0.0.1", 0), WebHandler)
        self.target, self.asked = target, []
        threading.Thread(target=self.serve_forever).start()

    def stop(self):
        self.shutdown()
        self.server_close()


class WebHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(302 if self.server.target else 404)
        if self.server.target:
            self.send_header("Location", self.server.target + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def lay_traps(folder):
    """A root for worker3, with what should not be read through it."""
    root, outside = folder / "root", folder / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "key").write_bytes(b"secret of the machine")
    (root / "data.bin").write_bytes(b"lawful bytes")
    (root / "relative").symlink_to("../outside/key")
    (root / "absolute").symlink_to(outside / "key")
    (root / "through").symlink_to("../outside")
    (root / "inside").symlink_to("folder/../data.bin")
    os.mkfifo(root / "fifo")
    return root, outside


def sources(log, name):
    """{holder: chunks} of a run's log line."""
    line, = re.findall(rf"run {name}\S*: stage 0 read of its data sets: (.*)", log)
    return {holder: int(count) for count, holder in re.findall(r"(\d+) chunks? \([^)]*\) from ([^,\n]+)", line)}


def guesses_right(user, root, outside):
    """She has sent the right bytes of every file as well: where the worker took them from is in her log."""
    def first_of(path):
        return pathlib.Path(path).read_bytes()[:2]

    key, secret, passwd = (first_of(user.cluster.folder / "worker3/identity.pem"), first_of(outside / "key"),
                           first_of("/etc/passwd"))
    environment = first_of(f"/proc/{user.cluster.processes['worker3'].pid}/environ")
    for guess in (key, secret, passwd, environment, b"\0\0", b"la"):
        user.upload(guess)
    of_root = [entry("data.bin", b"la"), entry("relative", secret), entry("absolute", secret),
               entry("through/key", secret), entry("fifo", b"\0\0"), entry("folder", b"\0\0"),
               entry("data.bin", b"\0\0", 1 << 40), entry("data.bin", b"\0\0", 2**63 - 1),
               entry("data.bin", b"\0\0", 12),
               entry("inside", b"la")]
    other = {
        str(user.cluster.folder / "worker3"): entry("identity.pem", key),  # a root, but its own state
        str(user.cluster.folder / "worker1"): entry("identity.pem", key),
        f"{root}/../outside": entry("key", secret),
        f"{root}/through": entry("key", secret),
        str(outside): entry("key", secret),
        "/proc/self": entry("environ", environment),
        "/etc": entry("passwd", passwd),
        "/dev": entry("zero", b"\0\0"),
        "/proc/self/root/etc": entry("passwd", passwd),
        ".": entry("token", b"\0\0"),
    }
    state, reason, said = user.trained({str(root): of_root, **{folder: [one] for folder, one in other.items()}})
    assert state == "done", (state, reason)
    found = sources(said, user.name)
    lawful = sum(one in (of_root[0], of_root[-1]) for one in whole_windows(of_root))
    wanted = {"its folder": lawful, "the coordinator": TOKENS * (1 + len(other)) - lawful}
    assert found == wanted, f"{found} instead of {wanted}: data.bin and the link to it alone are in the folder"
    print(f"ok: right guesses about {len(of_root) + len(other)} files: {found}", flush=True)


def tells_nothing(user, root, outside):
    """Whether a guess is right, wrong, or about a file that is not there: her run ends with the same words."""
    for folder, file in ((outside, "key"), (root, "relative"), (user.cluster.folder / "worker3", "identity.pem")):
        right = (folder / file).read_bytes()[:2]
        heard = []
        for name, guess in ((file, right), (file, b"?!"), ("no-such-file", right)):
            state, reason, said = user.trained({str(folder): [entry(name, guess)]}, upload=False)
            assert state == "failed", (folder, name, state)
            heard.append(re.sub(r"[0-9a-f]{64}", "HASH", reason.replace(name, "FILE").replace(user.name, "RUN")))
            assert "from its folder" not in said, said
        heard = {re.sub(r"RUN-\w+", "RUN", one) for one in heard}
        assert len(heard) == 1, heard
    print(f"ok: a right guess, a wrong one and no file: {heard.pop()}", flush=True)


def kept_by_a_worker(user):
    """A worker keeps the text of somebody else's run, whose hash she has guessed. It is not hers to train on."""
    path = user.cluster.write_run("theirs", steps=10, stages=1, transport="tcp")
    user.cluster.cli("submit", path, "--watch")
    kept = [blob for blob in (user.cluster.folder / "worker3/blobs").iterdir() if blob.stat().st_size > 4 * CHUNK]
    assert kept, "worker3 keeps no text"
    for blob in kept:
        size = blob.stat().st_size // 2 * 2
        assert size == blob.stat().st_size, "choose a text with an even number of bytes"
        whole = {"file": "none", "offset": 0, "tokens": size // 2, "chunks": blob.name}
        state, reason, _ = user.trained({"/none": [whole]}, upload=False, chunk=1 << 20)
        assert state == "failed" and "no run in which the worker worker3 has a cell names this blob" in reason, reason
    print("ok: what a worker keeps of another run is no chunk of hers", flush=True)


def by_weights(user, outside):
    """The same by a list of weights, one tensor of which is said to be in a file with a secret."""
    cluster, folder = user.cluster, user.cluster.folder / "eves-model"
    make_model(folder, "BF16", tied=False)
    path = cluster.folder / "eves-weights.yaml"
    text = RUN.format(name="eves-weights", sets="x", list="x", upload="true")
    text = re.sub(r"model: .*", f"model: {{ from: {folder}, context: {CONTEXT} }}", text)
    path.write_text(re.sub(r"data: .*", "data: { text: [text.txt], tokenizer: bytes }", text))
    code, said = user.cli("submit", path, "--watch")
    assert code == 0, said
    blobs = [blob.read_bytes() for blob in (cluster.folder / "coordinator/blobs").iterdir() if len(blob.name) == 64]
    weights = json.loads(next(blob for blob in blobs if b"longhaul weights" in blob))
    code, config = user.cli("plan", path, "--show-config")
    assert code == 0, config
    bias = next(one for one in weights["tensors"] if one["name"].endswith("0.self_attn.k_proj.bias"))
    secret = (outside / "key").read_bytes().ljust(bias["bytes"], b"!")
    (outside / "key").write_bytes(secret)
    bias.update(file="key", offset=0, sha256=user.upload(secret))
    text_blob = sha256((cluster.folder / "text.txt").read_bytes())
    size = (cluster.folder / "text.txt").stat().st_size
    for name, at in (("weights-outside", outside), ("weights-elsewhere", "hf://org/name@main/")):
        mine = user.upload(json.dumps(weights).encode())
        run = re.sub(r"\n  from: .*", f'\n  from: "{at}"', config)
        run = re.sub(r"\n  (# )?weights:.*", f"\n  weights: {mine}", re.sub("^name: .*", f"name: {name}", run))
        status, said = user.call(CONTROL + "Submit", field(1, run) + field(2, "run.yaml") + field(
            4, field(1, "text.txt") + field(2, text_blob) + field(3, size)))
        if at == outside:
            assert status == 0, said
            state, reason, said = user.end(name)
            # Whatever comes of such a bias: its bytes came from her upload.
            assert ": 0 B from there" in said, (state, reason, said)
        else:
            assert status == INVALID_ARGUMENT and "expected a list of the weights in hf://org" in said, (status, said)
    print("ok: a list of weights gives no byte of a file outside, and is of the run file's model", flush=True)


def lists(user, root):
    """Lists that lead out of the folder that the run file names."""
    user.upload(b"la")
    one = [entry("data.bin", b"la")]
    user.refused("another folder", "expected a list of the data set in /nowhere", {str(root): one}, named=["/nowhere"])
    user.refused("one folder more", "expected a list of 1 data sets", {str(root): one, "/etc": one}, named=[str(root)])
    for file in ("../outside/key", "/etc/passwd", "folder/../../outside/key", "./data.bin", "folder//x"):
        user.refused(f"the file {file}", "is no file of it", {str(root): [entry(file, b"la")]})
    folder = user.cluster.folder / "eves-set"
    folder.mkdir()
    for file in ("../outside/key", str(root / "data.bin")):
        (folder / "dataset.json").write_text(json.dumps({
            "format": "longhaul data set", "version": 1, "tokenizer": None, "end_token": 0, "vocabulary": 256,
            "bytes_per_token": 2, "packed": 0, "chunk_bytes": CHUNK, "documents": 1, "training": [entry(file, b"la")],
            "validation": []}))
        path = user.cluster.folder / "eves-set.yaml"
        path.write_text(re.sub(r"data: .*", "data: { sets: [eves-set] }",
                               RUN.format(name="eves-set", sets="x", list="x", upload="true")))
        code, said = user.cli("submit", path)
        assert code == 1 and "is no file of it" in said, (code, said)
    print("ok: the CLI refuses such a set, too", flush=True)


def addresses(user, allowed, secret):
    """Servers that a worker must not ask: by address, by a name that leads there, by a redirect from an allowed one."""
    port, name = secret.server_port, f"localhost:{secret.server_port}"
    cases = [("http://169.254.169.254/latest", None), (f"http://127.0.0.1:{port}", None),
             (f"https://127.0.0.1:{port}", None), (f"http://[::1]:{port}", None), ("https://10.0.0.1", None),
             ("http://192.168.0.1", None), (f"http://{name}", None), (f"http://metadata.{name}", None),
             ("https://example.org", None),
             (f"http://2130706433:{port}", None),
             (f"http://127.0.0.1:{allowed.server_port}", f"http://127.0.0.1:{port}"),
             (f"http://127.0.0.1:{allowed.server_port}", "http://169.254.169.254"),
             (f"http://127.0.0.1:{allowed.server_port}", f"http://metadata.{name}")]
    for address, target in cases:
        allowed.target = target
        before = len(allowed.asked)
        state, reason, _ = user.trained({f"{address}/set/": [entry("key", b"la")]}, commands=())
        assert state == "failed" and re.search("not among the allowed hosts|private or local address|expected https",
                                               reason), (address, target, state, reason)
        assert not secret.asked, f"{address} {target}: the worker asked for {secret.asked}"
        assert (len(allowed.asked) > before) == (target is not None), (address, target, allowed.asked)
    print(f"ok: {len(cases)} addresses, and nobody there was asked", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-paths-") as folder:
        training.text_for_training(folder)
        root, outside = lay_traps(pathlib.Path(folder))
        allowed, secret = Web(), Web()
        try:
            with training.Cluster(sys.argv[1], folder, workers=0) as cluster:
                _, _, proxies = start_workers(cluster)
                guarded = start(cluster, "guarded")
                for proxy in proxies:
                    proxy.pause_s = 0.1  # all its steps are repeated below
                (cluster.folder / "worker3").mkdir(mode=0o700)
                cluster.start("worker3", "longhaul-worker", "--coordinator", cluster.address, "--name", "worker3",
                              "--data-root", root, "--data-root", cluster.folder / "worker3",
                              "--remote-host", f"127.0.0.1:{allowed.server_port}", "--remote-host", "*.localhost:*")
                training.wait_for("three workers", lambda: len(cluster.connected()) == 3)
                user = User(cluster)
                guesses_right(user, root, outside)
                tells_nothing(user, root, outside)
                by_weights(user, outside)
                kept_by_a_worker(user)
                lists(user, root)
                addresses(user, allowed, secret)
                before = cluster.step(guarded)
                training.wait_for("two more steps", lambda: cluster.step(guarded) > before + 1)
                assert int(cluster.status(guarded)["epoch"]) == 1
                losses = cluster.end(guarded)
                for proxy in proxies:
                    proxy.pause_s = 0
                calm = start(cluster, "calm")
                training.wait_for("as many steps", lambda: cluster.step(calm) >= len(losses))
                training.expect_equal("under attack and undisturbed", losses, cluster.end(calm)[:len(losses)])
                for name, process in cluster.processes.items():
                    assert process.poll() is None, f"{name} ended with {process.returncode}"
        finally:
            allowed.stop()
            secret.stop()


if __name__ == "__main__":
    main()
