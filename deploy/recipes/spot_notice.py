#!/usr/bin/env python3
"""Waits until the cloud says that it takes this machine back, and then runs a command, which tells workers to end.

usage: spot_notice.py [--cloud auto|aws|gcp|azure] [--endpoint URL] [--every SECONDS] COMMAND...

  spot_notice.py systemctl stop --no-block longhaul-worker.service "longhaul-worker@*.service"
  spot_notice.py kill -TERM "$worker_pid"

A worker that gets SIGTERM hands its stage to another one before it ends (longhaul-worker --leave-within: 25 s; AWS gives two
minutes, Google and Azure give 30 s). Where the metadata does not answer, it is asked again. Exit codes: that of the command;
2: wrong usage, or this is no machine of a cloud that is known here.
"""
import argparse
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

ENDPOINT = "http://169.254.169.254"  # of all three clouds, inside the machine
LIMIT_S = 2
# How often is asked whose machine this is. A network may come up late.
ATTEMPTS = 30
# Notices are for this machine alone; no proxy knows it.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(endpoint, path, headers, method="GET"):
    """The answer's status and text. Status 0: there is none."""
    request = urllib.request.Request(endpoint + path, headers=headers, method=method)
    try:
        with OPENER.open(request, timeout=LIMIT_S) as answer:
            return answer.status, answer.read(1 << 20).decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except (OSError, ValueError):
        return 0, ""


class Aws:
    """Metadata of EC2, version 2: a token first."""

    def __init__(self, endpoint):
        self.endpoint, self.token = endpoint, ""

    def is_here(self):
        status, token = ask(self.endpoint, "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "300"}, "PUT")
        self.token = token if status == 200 else ""
        return status == 200

    def notice(self):
        """None: the machine stays, as far as is known."""
        status, text = ask(self.endpoint, "/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": self.token})
        if status == 401:  # the token's time is over
            self.is_here()
        return f"AWS: {text}" if status == 200 else None


class Gcp:
    HEADERS = {"Metadata-Flavor": "Google"}

    def __init__(self, endpoint):
        self.endpoint = endpoint

    def is_here(self):
        return ask(self.endpoint, "/computeMetadata/v1/instance/preempted", self.HEADERS)[0] == 200

    def notice(self):
        status, text = ask(self.endpoint, "/computeMetadata/v1/instance/preempted", self.HEADERS)
        return "Google Cloud: preempted" if status == 200 and text.strip().upper() == "TRUE" else None


class Azure:
    PATH = "/metadata/scheduledevents?api-version=2020-07-01"

    def __init__(self, endpoint):
        self.endpoint = endpoint

    def is_here(self):
        return ask(self.endpoint, self.PATH, {"Metadata": "true"})[0] == 200

    def notice(self):
        status, text = ask(self.endpoint, self.PATH, {"Metadata": "true"})
        if status != 200:
            return None
        try:
            events = json.loads(text).get("Events", [])
            kinds = [event.get("EventType") for event in events]
        except (ValueError, AttributeError):
            return None
        return next((f"Azure: {kind}" for kind in kinds if kind in ("Preempt", "Terminate")), None)


CLOUDS = {"aws": Aws, "gcp": Gcp, "azure": Azure}


def find(cloud, endpoint, every_s):
    """The cloud that this machine is of. None: of none that is known."""
    names = list(CLOUDS) if cloud == "auto" else [cloud]
    for _ in range(ATTEMPTS):
        for name in names:
            one = CLOUDS[name](endpoint)
            if one.is_here():
                return one
        time.sleep(every_s)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--cloud", choices=["auto", *CLOUDS], default="auto")
    parser.add_argument("--endpoint", default=ENDPOINT, help="of the machine's metadata")
    parser.add_argument("--every", type=float, default=2, metavar="SECONDS", help="time between two questions")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what is run at the notice")
    options = parser.parse_args()
    if not options.command or options.command[0].startswith("-"):
        parser.error(f"expected a command to run at the notice, got {options.command[:1] or 'none'}")
    endpoint = options.endpoint.rstrip("/")
    cloud = find(options.cloud, endpoint, options.every)
    if cloud is None:
        print(f"spot_notice.py: {endpoint} does not answer as the metadata of {options.cloud} does: expected a machine of AWS, "
              "Google Cloud or Azure", file=sys.stderr)
        return 2
    print(f"spot_notice.py: a machine of {type(cloud).__name__.upper()}, asked every {options.every:g} s", flush=True)
    while not (notice := cloud.notice()):
        time.sleep(options.every)
    print(f"spot_notice.py: this machine is taken back: {notice}", flush=True)
    return subprocess.run(options.command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
