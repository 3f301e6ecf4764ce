"""Two workers that nobody can dial train through a relay, with the losses of a direct run; a relay that goes away.

usage: relay_test.py BIN_DIR
"""
import json
import os
import signal
import sys
import tempfile

from nat import RELAY, site
from training_test import NONE, RUN, expect_equal, text_for_training, wait_for
from requirements import without_root

STEPS = 20
LONG = 100000
UNMEASURED = "{ forward: none, backward: none, measure: false }"


def run_file(at, name, steps=STEPS, links=NONE):
    path = at.folder / f"{name}.yaml"
    path.write_text(RUN.format(name=name, steps=steps, stages=2, schedule="link-aware", links=links, transport="ucx"))
    return path


def train_through_the_coordinator(at):
    at.start_coordinator("--relay", f"0.0.0.0:{RELAY}")
    for name in "ab":
        at.start_worker(name, f"home{name}")
    at.wait_until_cut_off()
    plain = run_file(at, "plain", links="{ forward: none, backward: none, encrypt: off }")
    done = at.cli("submit", plain, check=False)
    if done.returncode != 1 or "which carries encrypted links only; links.encrypt is off" not in done.stderr:
        raise AssertionError(f"exit {done.returncode}, {done.stderr!r}")
    print(f"ok: {done.stderr.strip()}", flush=True)
    said = at.cli("plan", run_file(at, "planned")).stdout
    for sentence in ("relay of coordinator", "Neither reaches the other of a and b; their link goes through the relay "
                     "of coordinator", "because a relay carries one of them"):
        if sentence not in " ".join(said.split()):
            raise AssertionError(said)
    listed = at.cli("workers").stdout
    if f"the coordinator's host:{RELAY}" not in listed or not any(
            link["transport"] == "relay" and link["goodput_bits_per_second"] > 0 for link in at.workers()["links"]):
        raise AssertionError(listed)
    run = at.cli("submit", run_file(at, "relayed", links=UNMEASURED), "--watch").stdout.split()[0]
    print(f"ok: {STEPS} steps through the coordinator's relay", flush=True)
    return at.losses(run)


def status(at, run):
    return json.loads(at.cli("status", run, "--json").stdout)


def a_relay_that_goes_away(at):
    """With two relays the link heals through one of them, in the same epoch."""
    at.start_worker("relay1", "pub", "--relay", "0.0.0.0:7200")
    wait_for("the other relay", lambda: len(at.workers().get("relays", [])) == 2)
    run = at.cli("submit", run_file(at, "healed", steps=LONG, links=UNMEASURED)).stdout.split()[0]
    wait_for("some steps", lambda: int(status(at, run).get("step", 0)) >= 5)
    relays = [one["name"] for one in status(at, run)["plan"]["assignment"]["edges"][0]["relays"]]
    if relays != ["relay1", "coordinator"]:
        raise AssertionError(f"the link's relays are {relays}")
    before = status(at, run)
    killed = at.processes.running.pop("relay1")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    # Steps alone say little: a fast machine takes many before the relay is gone.
    wait_for("the link to heal", lambda: "relay" in (events := at.cli("events", run).stdout) and "healed" in events)
    healed = int(status(at, run)["step"])
    wait_for("more steps", lambda: int(status(at, run).get("step", 0)) >= healed + 20)
    after = status(at, run)
    if after["epoch"] != before["epoch"]:
        raise AssertionError(f"epoch {before['epoch']} became {after['epoch']}: {at.cli('events', run).stdout}")
    print("ok: a worker's relay was killed, and the link goes on through the coordinator's", flush=True)
    at.cli("stop", run)
    wait_for("the end", lambda: status(at, run)["state"] == "stopped")


def dialled_by_whom_ucx_cannot_dial_back(at):
    """UCX connects back to whoever dials it, here in vain. UCX's own log slows it down, so that it meets late events of the
    handshake (transport/p2p/ucx/async_thread.h): a worker that passes them on to UCX dies."""
    os.environ.update(UCX_LOG_LEVEL="trace", UCX_LOG_FILE="/dev/null")
    for name in "cd":
        at.start_worker(name, "pub")
    del os.environ["UCX_LOG_LEVEL"], os.environ["UCX_LOG_FILE"]
    for name in "cd":
        wait_for(f"{name} to be tried by a and b", lambda: {"a", "b"} <= {
            one["worker"] for one in (at.worker(name) or {}).get("cannot_talk_to", []) if one["transport"] == "ucx"})
    for name in "cd":
        if (code := at.processes.running[name].poll()) is not None:
            raise AssertionError(f"{name} ended with {code}")
        at.processes.end(name)
    print("ok: workers live on whom others dialled over UCX from behind routers", flush=True)


def train_directly(at):
    for name in "ab":
        at.processes.end(name)
    wait_for("both to leave", lambda: not at.worker("a") and not at.worker("b"))
    for name in "cd":
        at.start_worker(name, "pub")
    wait_for("a link between them", lambda: (at.worker("c") or {}).get("can_talk_to", 0) >= 1)
    run = at.cli("submit", run_file(at, "direct", links=UNMEASURED), "--watch").stdout.split()[0]
    return at.losses(run)


def main():
    if os.geteuid() != 0:
        return without_root("network namespaces need root")
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder, site(sys.argv[1], folder) as at:
        print("routers " + ("translate addresses (nft)" if at.nat.translates else "route: there is no nft"), flush=True)
        text_for_training(folder)
        relayed = train_through_the_coordinator(at)
        a_relay_that_goes_away(at)
        dialled_by_whom_ucx_cannot_dial_back(at)
        expect_equal("through a relay and directly", relayed, train_directly(at))
        print(f"ok: the {len(relayed)} losses are those of a direct run", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
