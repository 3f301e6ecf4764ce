"""A hub of models and data sets, its CDN, and the misbehaviour of both, for tests of base/remote.

usage: hub_server.py CERTIFICATE

Listens on free ports of 127.0.0.1 and prints "hub PORT cdn PORT s3 PORT tls PORT control PORT ready". Writes the
certificate of the server "tls" to the file CERTIFICATE. The test ends this process.

  hub      /api/models/ORG/NAME/revision/REV, /ORG/NAME/resolve/REV/PATH, the same for datasets.
           Takes commits with the token hf_good: preupload, LFS (files of more than 3 * PART bytes in parts), commit.
           With hf_good also makes repositories and branches. The token hf_read may only read.
           Repositories of ORG "private" want the token hf_good. Files of more than 1000 bytes are
           redirected to the CDN by an address that expires.
  cdn      /blob/SHA256?Expires=...&sig=N, and /web/PATH without a signature; PUT /web/PATH writes.
  s3       passes requests on to another server as they are (command "forward").
  tls      the CDN over https.
  control  POST / with a list of commands in JSON; see Control.
"""
import base64
import hashlib
import http.client
import http.server
import json
import pathlib
import re
import ssl
import subprocess
import sys
import threading
import urllib.parse

SMALL = 1000
PART = 4000


class State:
    def __init__(self):
        self.lock = threading.Condition()
        self.repositories = {}  # "models/ORG/NAME" -> {"revisions": {name: commit}, "commits": {commit: {path: bytes}}}
        self.blobs = {}
        self.uploads = {}  # path on the CDN -> bytes that came
        self.web = {}  # path -> (bytes, ETag or None)
        self.faults = []
        self.log = []
        self.signature = 1
        self.target = 0
        self.is_released = False


STATE = State()


class Control:
    """Commands: one method each, with the arguments of the command's object besides "do"."""

    @staticmethod
    def publish(repository, revision, files):
        """Makes a commit with these files (path -> [letter, bytes]) the revision's newest."""
        contents = {path: fill(*what) for path, what in files.items()}
        commit = hashlib.sha1(json.dumps([repository, files], sort_keys=True).encode()).hexdigest()
        entry = STATE.repositories.setdefault(repository, {"revisions": {}, "commits": {}})
        entry["commits"][commit] = contents
        entry["revisions"][revision] = commit
        for content in contents.values():
            STATE.blobs[hashlib.sha256(content).hexdigest()] = content
        return commit

    @staticmethod
    def publish_folder(repository, revision, folder):
        """Makes a commit with the files of a folder the revision's newest."""
        contents = {path.relative_to(folder).as_posix(): path.read_bytes()
                    for path in sorted(pathlib.Path(folder).rglob("*")) if path.is_file()}
        commit = hashlib.sha1(repr(sorted(contents.items())).encode()).hexdigest()
        entry = STATE.repositories.setdefault(repository, {"revisions": {}, "commits": {}})
        entry["commits"][commit] = contents
        entry["revisions"][revision] = commit
        for content in contents.values():
            STATE.blobs[hashlib.sha256(content).hexdigest()] = content
        return commit

    @staticmethod
    def repository(name):
        """Returns how many commits it has, whether it is private, and the SHA-256 of each file by branch."""
        entry = STATE.repositories[name]
        return {"commits": len(entry["commits"]), "private": entry.get("private", False), "files": {
            branch: {path: hashlib.sha256(content).hexdigest() for path, content in entry["commits"][commit].items()}
            for branch, commit in entry["revisions"].items()}}

    @staticmethod
    def web_folder(path, folder, etag):
        for file in pathlib.Path(folder).iterdir():
            STATE.web[path + file.name] = (file.read_bytes(), etag)

    @staticmethod
    def web(path, what, etag):
        STATE.web[path] = (fill(*what), etag)

    @staticmethod
    def fault(server, **what):
        """The next request to the server misbehaves. If the fault has the key "method" or "with": the next one
        with this method, and with this text in its path. Other keys say how: "status", with "headers" and "body";
        "hang" until the command "release"; and those of reply_file and Proxy.serve."""
        STATE.faults.append({"server": server, **what})

    @staticmethod
    def forward(port):
        STATE.target = port

    @staticmethod
    def revoke():
        """Addresses that the hub has signed so far are refused by the CDN."""
        STATE.signature += 1

    @staticmethod
    def release():
        """Requests that hang go on."""
        STATE.is_released = True
        STATE.lock.notify_all()

    @staticmethod
    def log():
        """Returns the requests since the last call."""
        log, STATE.log = STATE.log, []
        return log

    @staticmethod
    def wait(count):
        """Returns when the log has so many requests."""
        STATE.lock.wait_for(lambda: len(STATE.log) >= count, 60)

    @staticmethod
    def content(path):
        return STATE.web[path][0].decode("latin-1")


def fill(seed, size):
    """Bytes that differ at every offset below 2^16 steps of 251, and from those of other seeds."""
    block = bytes((i * i + 3 * i + ord(seed)) % 251 for i in range(251 * 8))
    return (block * (size // len(block) + 1))[:size]


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    name = ""
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.answer()

    def do_HEAD(self):
        self.answer()

    def do_PUT(self):
        self.answer()

    def answer(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with STATE.lock:
            STATE.log.append({"server": self.name, "method": self.command, "path": self.path,
                              "authorization": self.headers.get("Authorization"),
                              "range": self.headers.get("Range"), "if_match": self.headers.get("If-Match")})
            STATE.lock.notify_all()
            fault = next((f for f in STATE.faults
                          if f["server"] == self.name and f.get("method", self.command) == self.command
                          and f.get("with", "") in self.path), {})
            if fault:
                STATE.faults.remove(fault)
        if "status" in fault:
            self.reply(fault["status"], fault.get("body", "").encode(), fault.get("headers", {}))
        elif "hang" in fault:
            with STATE.lock:
                STATE.lock.wait_for(lambda: STATE.is_released, 60)
            self.close_connection = True
        else:
            self.fault = fault
            self.serve(urllib.parse.urlsplit(self.path))

    def reply(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_file(self, content, headers):
        """Ranges, If-Match, and what the fault says: cut (bytes sent before the connection breaks), no_length (the
        connection's end is the body's end), extra (bytes too many), set (headers), no_range."""
        fault, status, body = self.fault, 200, content
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        wanted = self.headers.get("If-Match")
        if wanted and headers.get("ETag") and wanted != headers["ETag"] and "no_match" not in fault:
            return self.reply(412)
        if match and "no_range" not in fault:
            first, last = int(match[1]), min(int(match[2]), len(content) - 1)
            if first > last:
                return self.reply(416, headers={"Content-Range": f"bytes */{len(content)}", **headers})
            status, body = 206, content[first:last + 1]
            headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}", **headers}
        headers = {**headers, **fault.get("set", {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        body += b"x" * fault.get("extra", 0)
        if "cut" in fault:
            self.close_connection = True
            if "no_length" not in fault:
                headers["Content-Length"] = str(len(body))
            else:
                self.protocol_version = "HTTP/1.0"
                headers["Content-Length"] = None
            self.send_response(status)
            for name, value in headers.items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[:fault["cut"]])
            self.wfile.flush()
            self.connection.shutdown(1)
            return None
        return self.reply(status, body, headers)


class Hub(Server):
    name = "hub"

    def do_POST(self):
        self.answer()

    def write(self, path):
        """Commits, by the four requests that they take."""
        match = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/(preupload|commit|branch)/(.+)", path)
        if path == "/complete":
            wanted = json.loads(self.body)
            parts = [STATE.uploads[f"/upload/{wanted['oid']}/{part['partNumber']}"] for part in wanted["parts"]]
            if any(part["etag"] != '"part"' for part in wanted["parts"]):
                return self.reply(400)
            STATE.uploads[f"/upload/{wanted['oid']}/0"] = b"".join(parts)
            return self.reply(200, b"{}")
        if self.headers.get("Authorization") == "Bearer hf_read" and not path.endswith("/verify"):
            return self.reply(403, b"your token may not write here")
        if self.headers.get("Authorization") != "Bearer hf_good":
            return self.reply(401)
        if path == "/api/repos/create":
            return self.create(json.loads(self.body))
        if path.endswith(".git/info/lfs/objects/batch"):
            wanted = json.loads(self.body)["objects"][0]
            oid, size = wanted["oid"], wanted["size"]
            at = f"http://127.0.0.1:{Cdn.port}/upload/{oid}"
            action = {"href": f"{at}/0?sig=1", "header": {"X-Store": "yes"}}
            if size > 3 * PART:
                action = {"href": f"http://127.0.0.1:{Hub.port}/complete", "header": {
                    "chunk_size": str(PART),
                    **{f"{i + 1:05}": f"{at}/{i + 1}?sig=1" for i in range((size - 1) // PART + 1)}}}
            verify = {"href": f"http://127.0.0.1:{Hub.port}/verify", "header": {"Authorization": "Bearer hf_good"}}
            actions = {} if oid in STATE.blobs else {"actions": {"upload": action, "verify": verify}}
            return self.reply(200, json.dumps({"objects": [{**wanted, **actions}]}).encode())
        if path == "/verify":
            wanted = json.loads(self.body)
            content = STATE.uploads[f"/upload/{wanted['oid']}/0"]
            good = hashlib.sha256(content).hexdigest() == wanted["oid"] and len(content) == wanted["size"]
            if good:
                STATE.blobs[wanted["oid"]] = content
            return self.reply(200 if good else 422)
        if not match:
            return self.reply(404)
        entry = STATE.repositories.get(f"{match[1]}/{match[2]}")
        if entry is None:
            return self.reply(404, headers={"X-Error-Code": "RepoNotFound"})
        if match[3] == "branch":
            entry["revisions"][match[4]] = entry["revisions"]["main"]
            return self.reply(200, b"{}")
        if match[4] not in entry["revisions"]:
            return self.reply(404, headers={"X-Error-Code": "RevisionNotFound"})
        if match[3] == "preupload":
            modes = [{"path": file["path"], "uploadMode": "lfs" if file["size"] > SMALL else "regular"}
                     for file in json.loads(self.body)["files"]]
            return self.reply(200, json.dumps({"files": modes}).encode())
        old = entry["revisions"][match[4]]
        files = dict(entry["commits"][old])
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = STATE.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = hashlib.sha1(old.encode() + self.body).hexdigest()
        entry["commits"][commit] = files
        entry["revisions"][match[4]] = commit
        return self.reply(200, json.dumps({"success": True, "commitOid": commit}).encode())

    def create(self, wanted):
        """Repositories of the organization "closed" cannot be made."""
        if wanted["organization"] == "closed":
            return self.reply(403, b"you may not make repositories here")
        kind = "datasets" if wanted.get("type") == "dataset" else "models"
        name = f"{kind}/{wanted['organization']}/{wanted['name']}"
        if name in STATE.repositories:
            return self.reply(409)
        first = hashlib.sha1(name.encode()).hexdigest()
        STATE.repositories[name] = {"revisions": {"main": first}, "commits": {first: {".gitattributes": b"lfs"}},
                                    "private": wanted["private"]}
        return self.reply(200, json.dumps({"url": name}).encode())

    def serve(self, url):
        path = urllib.parse.unquote(url.path)
        if self.command == "POST":
            return self.write(path)
        api = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/revision/(.+)", path)
        file = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if not api and not file:
            return self.reply(404)
        kind = api[1] if api else ("datasets" if file[1] else "models")
        name, revision = (api or file)[2], (api or file)[3]
        if name.startswith("private/") and self.headers.get("Authorization") != "Bearer hf_good":
            return self.reply(401, b"Invalid username or password.", {"X-Error-Code": "RepoNotFound"})
        entry = STATE.repositories.get(f"{kind}/{name}")
        if entry is None:
            return self.reply(404, headers={"X-Error-Code": "RepoNotFound"})
        commit = entry["revisions"].get(revision, revision)
        files = entry["commits"].get(commit)
        if files is None:
            return self.reply(404, headers={"X-Error-Code": "RevisionNotFound"})
        if api:
            siblings = [{"rfilename": path, "size": len(content),
                         **({"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}}
                            if len(content) > SMALL else {})} for path, content in files.items()]
            return self.reply(200, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode(),
                              {"Content-Type": "application/json"})
        content = files.get(file[4])
        if content is None:
            return self.reply(404, headers={"X-Error-Code": "EntryNotFound"})
        digest = hashlib.sha256(content).hexdigest()
        headers = {"X-Repo-Commit": commit, **self.fault.get("set", {})}
        if len(content) <= SMALL:
            return self.reply_file(content, {"ETag": f'"{digest[:40]}"', **headers})
        return self.reply(302, headers={
            "Location": f"http://127.0.0.1:{Cdn.port}/blob/{digest}?Expires=2000000000&sig={STATE.signature}",
            "X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{digest}"', **headers})


class Cdn(Server):
    name = "cdn"
    port = 0

    def serve(self, url):
        if url.path.startswith("/upload/") and self.command == "PUT":
            STATE.uploads[url.path] = self.body
            return self.reply(200, headers={"ETag": '"part"'})
        if url.path.startswith("/web/") and self.command == "PUT":
            STATE.web[url.path] = (self.body, '"put"')
            return self.reply(200, headers={"ETag": '"put"'})
        if url.path.startswith("/web/") and url.path in STATE.web:
            content, etag = STATE.web[url.path]
            return self.reply_file(content, {"ETag": etag})
        if not url.path.startswith("/blob/"):
            return self.reply(404)
        if urllib.parse.parse_qs(url.query).get("sig") != [str(STATE.signature)]:
            return self.reply(403)
        digest = url.path.removeprefix("/blob/")
        # Like the real one's: not the hub's tag.
        return self.reply_file(STATE.blobs[digest], {"ETag": f'"cdn-{digest[:8]}"'})


class Proxy(Server):
    name = "s3"

    def do_POST(self):
        self.answer()

    def do_DELETE(self):
        self.answer()

    def serve(self, url):
        """Faults: lose (the request is carried out, its answer never comes)."""
        connection = http.client.HTTPConnection("127.0.0.1", STATE.target)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(self.body)
        answer = connection.getresponse()
        body = answer.read()
        if "lose" in self.fault:
            self.close_connection = True
            self.connection.shutdown(2)
            return
        headers = {name: value for name, value in answer.getheaders()
                   if name not in ("Connection", "Transfer-Encoding", "Date", "Server")}
        self.reply(answer.status, body, headers)


class TlsCdn(Cdn):
    name = "tls"


def with_tls(server, certificate):
    key = certificate + ".key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=test",
                    "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)


class ControlServer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_POST(self):
        commands = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with STATE.lock:
            results = [getattr(Control, command.pop("do"))(**command) for command in commands]
        body = json.dumps(results).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    ports = []
    for handler in (Hub, Cdn, Proxy, TlsCdn, ControlServer):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        if handler is TlsCdn:
            with_tls(server, sys.argv[1])
        handler.port = server.server_address[1]
        ports.append(handler.port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("hub {} cdn {} s3 {} tls {} control {} ready".format(*ports), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
