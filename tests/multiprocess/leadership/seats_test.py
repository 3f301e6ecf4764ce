"""Two coordinators change places because an admin wants it so, and find a leader without the witness.

usage: seats_test.py BIN_DIR

A run trains through all of it. The leader hands over to the standby. Then the witness and both coordinators are killed
at the same time, and the coordinators alone start again: one of them leads. When the witness is back, it learns who
leads, and the leader goes on alone when an admin says so.
"""
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from namespaces import machines  # noqa: E402
from trio import SEATS, Trio, other, wait_for  # noqa: E402


def expect(wanted, found):
    assert wanted == found, f"expected {wanted}, got {found}"


def hand_over(trio, goes_on):
    old = trio.leader()
    new = other(old)
    refused = trio.cli("lead", "--to", "127.0.0.1:9", check=False)
    assert refused.returncode != 0 and trio.addresses[new] in refused.stderr, refused.stderr
    said = trio.cli("lead", "--to", trio.addresses[new]).stdout
    assert f"{trio.addresses[new]} leads now" in said, said
    wait_for(f"{new} to serve", lambda: trio.leader() == new)
    goes_on("the leader handed over")
    wait_for(f"{old} to follow", lambda: trio.leadership(old)["role"] == "standby")
    trio.await_pair()
    said = trio.cli("audit").stdout
    assert any("lead" in line.split() and trio.addresses[new] in line for line in said.splitlines()), said
    expect(trio.witness_record()["seat"], trio.leadership(new)["seat"])


def start_without_witness(trio, goes_on):
    for name in ("witness", *SEATS):
        trio.kill(name)
    terms = {seat: trio.leadership(seat)["term"] for seat in SEATS}
    for seat in SEATS:
        trio.start_seat(seat)
    wait_for("one to be elected by the other", lambda: any(
        trio.leadership(seat).get("voter") and trio.leadership(seat)["role"] == "coordinator" for seat in SEATS))
    leads = trio.leader()
    assert trio.leadership(leads)["term"] > max(terms.values()), "the term is no newer one"
    expect([trio.leadership(leads)["seat"]], trio.leadership(leads)["in_sync"])
    goes_on("both were killed, and started without the witness")
    wait_for(f"{other(leads)} to follow", lambda: trio.leadership(other(leads))["role"] == "standby")


def alone(trio, goes_on):
    trio.start_witness()
    trio.await_pair()
    leads = trio.leader()
    # Its file of before has two in sync, too.
    wait_for("the witness to know", lambda: (record := trio.witness_record()).get("seat") == trio.leadership(leads)["seat"]
             and len(record["in_sync"]) == 2)
    # The witness writes its file, and then answers.
    wait_for("the leader to hear that", lambda: "voter" not in trio.leadership(leads))
    assert "leads alone" in trio.cli("lead", "--alone").stdout
    expect([trio.leadership(leads)["seat"]], trio.witness_record()["in_sync"])
    goes_on("the leader is alone")
    expect(1, len(trio.leadership(leads)["in_sync"]))


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-seats-") as folder, \
            machines(["one", "two", "witness", "worker1", "worker2"]) as places, \
            Trio(sys.argv[1], folder, places) as trio:
        run = trio.submit("kept", 1_000_000)

        def step():
            leads = trio.leader()
            return trio.step_at(leads, run) if leads else 0

        def goes_on(what):
            at = wait_for(f"an answer: {what}", step)
            wait_for(f"more steps: {what}", lambda: step() > at)
            print(f"ok: {what}, and the run goes on", flush=True)

        goes_on("two coordinators and a witness")
        for scene in (hand_over, start_without_witness, alone):
            began = time.monotonic()
            scene(trio, goes_on)
            print(f"   {scene.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
