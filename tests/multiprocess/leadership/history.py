"""What clients asked of two coordinators, what they were told, and whether all of it is true in the end.

Each client submits runs that no cluster of the test can place, stops them and removes them, one call after another, until
it is told to end. A call ends with `ok`, or nobody knows whether it was carried out: the coordinator may have died behind
the change. What was `ok` must be there in the end, and what nobody knows may be there once.
"""
import dataclasses
import json
import threading
import time

ENDED = ("done", "failed", "stopped")


@dataclasses.dataclass
class Call:
    client: str
    kind: str  # submit, stop or rm
    run: str   # its name, which no other submit has
    began: float
    ended: float = 0
    ok: bool = False
    said: str = ""


class Client(threading.Thread):
    """Calls `cli(address, *arguments)`, which gives (exit code, output)."""

    def __init__(self, name, address, cli, run_file):
        super().__init__(name=name, daemon=True)
        self.address, self.cli, self.run_file = address, cli, run_file
        self.calls, self.ends = [], threading.Event()

    def run(self):
        number = 0
        while not self.ends.is_set():
            number += 1
            name = f"{self.name}-{number}"
            if not self.call("submit", name, self.run_file, "--set", f"name={name}").ok:
                continue
            if number % 2 == 0 and self.call("stop", name, name).ok and number % 4 == 0:
                self.call("rm", name, name)

    def call(self, kind, run, *arguments):
        call = Call(self.name, kind, run, time.monotonic())
        self.calls.append(call)
        code, call.said = self.cli(self.address, kind, *arguments)
        call.ended, call.ok = time.monotonic(), code == 0
        self.ends.wait(0.2)  # each call is a process, and the daemons need the cores
        return call


class History:
    def __init__(self, clients):
        self.clients = clients
        for client in clients:
            client.start()

    def end(self):
        for client in self.clients:
            client.ends.set()
        for client in self.clients:
            client.join()

    def calls(self):
        return sorted((call for client in self.clients for call in list(client.calls)), key=lambda call: call.ended)

    def answered_after(self, moment, client):
        """Whether a call of that client that began after `moment` was carried out."""
        return any(call.ok and call.began > moment for call in self.calls() if call.client == client)

    def check(self, ps_json):
        """Compares all calls with `longhaul ps --json` of whoever leads in the end. Gives how many were ok."""
        listed = json.loads(ps_json)
        rows = listed["runs"] if isinstance(listed, dict) else listed
        states = {}
        for row in rows:
            states.setdefault(row["name"], []).append(row["state"])
        by_run = {}
        for call in self.calls():
            by_run.setdefault(call.run, {})[call.kind] = call
        wrong = []
        for run, calls in by_run.items():
            there = states.get(run, [])
            submit, stop, rm = (calls.get(kind) for kind in ("submit", "stop", "rm"))
            if len(there) > 1:
                wrong.append(f"{run} is there {len(there)} times")
            if submit.ok and rm is None and not there:
                wrong.append(f"{run} was submitted and is not there")
            if rm is not None and rm.ok and there:
                wrong.append(f"{run} was removed and is there")
            if stop is not None and stop.ok and any(state not in ENDED for state in there):
                wrong.append(f"{run} was stopped and is {there[0]}")
        assert not wrong, "; ".join(wrong[:5])
        good = sum(call.ok for call in self.calls())
        assert good > 0, f"no call was carried out: {[call.said for call in self.calls()][:3]}"
        return good

    def expect_turns(self, one, two, most):
        """Clients that ask one coordinator alone are answered by turns: each change from one to the other is a takeover,
        and calls of both that were ok do not cross. Gives how many changes there were, at most `most`."""
        turns, last = 0, None
        for call in self.calls():
            if not call.ok or call.client not in (one, two):
                continue
            if last is not None and last.client != call.client:
                turns += 1
            last = call
        assert turns <= most, f"calls were answered by turns {turns} times with {most} takeovers: two accepted changes"
        return turns
