"""Runs SeaweedFS as a server that speaks S3, on free ports of 127.0.0.1.

usage: s3_server.py PROGRAM BUCKET FOLDER

FOLDER gets the data and the log. Prints "s3 PORT ready" when the bucket is there. The keys are ACCESS_KEY
and SECRET_KEY below, the region is us-east-1. The test ends this process and the program.
"""
import datetime
import hashlib
import hmac
import http.client
import json
import pathlib
import re
import socket
import subprocess
import sys
import time

ACCESS_KEY = "AKLONGHAULTEST"
# The key has the letters that need escapes in an address.
SECRET_KEY = "secret/with+letters=that%need&escapes"
LIMIT_SECONDS = 120


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def ask(port, method, path, query="", body=b""):
    """The answer's (status, body) to a signed request. `query`: sorted and escaped. A signature apart from the one that is
    tested."""
    host, now = f"127.0.0.1:{port}", datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope, digest = f"{now[:8]}/us-east-1/s3/aws4_request", hashlib.sha256(body).hexdigest()
    names = "host;x-amz-content-sha256;x-amz-date"
    request = f"{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n\n{names}\n{digest}"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = b"AWS4" + SECRET_KEY.encode()
    for part in [*scope.split("/"), text]:
        key = hmac.digest(key, part.encode(), "sha256")
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request(method, path + ("?" + query if query else ""), body=body, headers={
        "x-amz-content-sha256": digest, "x-amz-date": now,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={names}, "
                         f"Signature={key.hex()}"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def put(port, path, body=b""):
    """Makes a bucket ("/BUCKET") or an object ("/BUCKET/KEY", a key without escapes); returns whether it is there now."""
    try:
        return ask(port, "PUT", path, body=body)[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def keys(port, bucket, prefix):
    """The keys below a prefix without escapes but '/'; a thousand at most."""
    status, body = ask(port, "GET", f"/{bucket}", "list-type=2&prefix=" + prefix.replace("/", "%2F"))
    if status != 200:
        raise AssertionError(f"S3 does not list {prefix}: {status}: {body}")
    return re.findall("<Key>(.*?)</Key>", body.decode())


def main():
    program, bucket, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [{
        "name": "test", "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List"]}]}))
    parts = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
             "s3.port", "s3.port.grpc"]
    ports = dict(zip(parts, free_ports(len(parts))))
    process = subprocess.Popen(
        [program, "-logtostderr=true", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer",
         "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false",
         "-volume.max=8", "-master.volumeSizeLimitMB=64", "-filer.localSocket=" + str(folder / "filer.sock"),
         "-s3.localSocket=" + str(folder / "s3.sock"),
         *(f"-{part}={port}" for part, port in ports.items())],
        stdout=subprocess.DEVNULL, stderr=open(folder / "log", "wb"))
    # The server has no sign of its own that all its parts are up.
    end = time.monotonic() + LIMIT_SECONDS
    while not put(ports["s3.port"], "/" + bucket):
        if process.poll() is not None or time.monotonic() > end:
            sys.exit(f"{program} does not serve S3:\n" + (folder / "log").read_text(errors="replace")[-4000:])
        time.sleep(0.05)
    print(f"s3 {ports['s3.port']} ready", flush=True)
    sys.exit(process.wait())


if __name__ == "__main__":
    main()
