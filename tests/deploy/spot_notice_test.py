"""deploy/recipes/spot_notice.py against servers that answer as the metadata of each cloud does.

usage: spot_notice_test.py SOURCE_DIR
"""
import contextlib
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

SCRIPT = pathlib.Path(sys.argv[1]).resolve() / "deploy/recipes/spot_notice.py"
DEADLINE_S = 120
CALM, BUSY = 3, 2  # answers without a notice; answers that are none, in between


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


class Metadata(http.server.ThreadingHTTPServer):
    """Says after some questions that the machine is taken back; some of them are not answered."""

    def __init__(self, cloud):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cloud, self.asked, self.tokens = cloud, 0, 0


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def say(self, status, text=""):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        if self.server.cloud != "aws" or not self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            return self.say(404)
        self.server.tokens += 1
        return self.say(200, f"token-{self.server.tokens}")

    def do_GET(self):
        cloud, path = self.server.cloud, self.path
        known = {"aws": "/latest/meta-data/spot/instance-action", "gcp": "/computeMetadata/v1/instance/preempted",
                 "azure": "/metadata/scheduledevents?api-version=2020-07-01"}[cloud]
        if path != known:
            return self.say(404)
        header = {"gcp": ("Metadata-Flavor", "Google"), "azure": ("Metadata", "true")}.get(cloud)
        if header and self.headers.get(header[0]) != header[1]:
            return self.say(403)
        if cloud == "aws" and self.server.asked == 1 and self.server.tokens == 1:
            return self.say(401)  # the token has ended
        if cloud == "aws" and self.headers.get("X-aws-ec2-metadata-token") != f"token-{self.server.tokens}":
            return self.say(401)
        self.server.asked += 1
        if self.server.asked in (2, 3):
            return self.say(500)
        gone = self.server.asked > CALM + BUSY
        return {"aws": lambda: self.say(200, json.dumps({"action": "terminate"})) if gone else self.say(404),
                "gcp": lambda: self.say(200, "TRUE" if gone else "FALSE"),
                "azure": lambda: self.say(200, json.dumps({"Events": [{"EventType": "Preempt"}] if gone else
                                                           [{"EventType": "Reboot"}]}))}[cloud]()


@contextlib.contextmanager
def served(cloud):
    server = Metadata(cloud)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def run(*words, **options):
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=DEADLINE_S,
                          check=False, **options)


def notice(cloud, named):
    with served(cloud) as (server, endpoint), tempfile.TemporaryDirectory() as folder:
        # The command notes how many questions had been asked, and has an exit code of its own.
        told = pathlib.Path(folder) / "told"
        done = run("--cloud", named, "--endpoint", endpoint, "--every", "0.01", "sh", "-c", f"touch {told}; exit 7")
        check(done.returncode == 7, cloud, done.returncode, done.stdout, done.stderr)
        check(told.exists() and server.asked > CALM + BUSY, cloud, "was told after", server.asked, "questions")
        check("is taken back" in done.stdout, done.stdout)
    print(f"ok: {cloud} ({named}): told after {server.asked} questions, two of which had no answer", flush=True)


def refused():
    for words, sentence in ((["--endpoint", "http://127.0.0.1:1"], "expected a command"),
                            (["--endpoint", "http://127.0.0.1:1", "--every", "0", "true"], "does not answer as the metadata"),
                            (["--cloud", "moon", "true"], "invalid choice")):
        done = run(*words)
        check(done.returncode == 2 and sentence in done.stderr, words, done.returncode, done.stderr)
    # A proxy of the environment is not asked.
    with served("gcp") as (_, endpoint):
        done = run("--endpoint", endpoint, "--every", "0.01", "true",
                   env={"http_proxy": "http://127.0.0.1:1", "PATH": "/usr/bin:/bin"})
        check(done.returncode == 0, done.returncode, done.stderr)
    print("ok: wrong words and machines of no cloud are refused", flush=True)


for one in ("aws", "gcp", "azure"):
    notice(one, one)
notice("azure", "auto")
refused()
