"""Runs the points of a sweep on its cluster, one after the other."""
import contextlib
import hashlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time

from .cluster import Cluster, Failed
from .files import write
from .local import LocalCluster
from .measure import StageShares, bytes_between, measured, unmeasured
from .results import last_of
from .texts import one_line, time_span, whole

QUEUE_PATIENCE_S = 60  # the cluster's workers are all connected and free when a run is submitted
STANDSTILL_S = 20 * 60  # longer than any step that anybody would wait for
LOOK_EVERY_S = 0.25
SILENT_S, REDRAW_S, NEW_LINE_S = 2, 0.2, 10


class Interrupted(Exception):
    """By a signal; the sentence says how to go on."""


@contextlib.contextmanager
def uninterrupted():
    """Signals that end the sweep wait until the block has ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class TimeLeft:
    """Estimates how long the sweep still takes. Every point takes the time that its bytes need on its links, and what earlier
    points took beyond that."""

    def __init__(self, network_seconds):
        self.waiting, self.extra = list(network_seconds), []

    def begin(self):
        self.current = self.waiting.pop(0)

    def ended(self, seconds):
        self.extra.append(max(0, seconds - self.current))

    def estimate(self, current_seconds):
        """`current_seconds`: what the point under way still needs; 0: not known. None where too little is known."""
        if not current_seconds or (self.waiting and not self.extra):
            return None
        extra = sum(self.extra) / len(self.extra) if self.extra else 0
        return current_seconds + sum(self.waiting) + extra * len(self.waiting)


class Progress:
    """A line that a terminal redraws; elsewhere one every ten seconds. Short work shows none."""

    def __init__(self, what):
        self.what, self.terminal, self.shown = what, sys.stderr.isatty(), False
        self.next = time.monotonic() + SILENT_S

    def say(self, text):
        if time.monotonic() < self.next:
            return
        line = f"{self.what}: {text}"
        if self.terminal:
            line = "\r\033[K" + line[:shutil.get_terminal_size().columns - 1]
        print(line, end="" if self.terminal else "\n", file=sys.stderr, flush=True)
        self.next, self.shown = time.monotonic() + (REDRAW_S if self.terminal else NEW_LINE_S), True

    def close(self):
        if self.shown and self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def step_text(status):
    return f"{status['step']}/{status['steps']}" if status["steps"] else str(status["step"])


def losses_text(result):
    """"loss 3.0831, validation 3.2986": the last of each that there is."""
    last = {name: last_of(result, name) for name in ("loss", "validation_loss")}
    return ", ".join(f"{name.removesuffix('_loss')} {value:.4f}" for name, value in last.items() if value is not None)


def statuses(process):
    """The run's states as `watch` prints them; None where none came for a while."""
    waiting = b""
    while True:
        if not select.select([process.stdout], [], [], LOOK_EVERY_S)[0]:
            yield None
            continue
        read = os.read(process.stdout.fileno(), 1 << 16)
        if not read:
            return
        *lines, waiting = (waiting + read).split(b"\n")
        yield from map(json.loads, lines)


class Runner:
    """`sweep`: what the program has prepared (deploy/sweep/prepare.h)."""

    def __init__(self, sweep, store):
        self.sweep, self.store = sweep, store
        # The same folder always has the same cluster, so that what a killed sweep has left is found. A name has at most 12
        # characters.
        name = "sweep" + hashlib.sha256(str(store.folder.resolve()).encode()).hexdigest()[:7]
        flags = ["--python-codec", ",".join(sweep["python_codec"])] if sweep["python_codec"] else []
        if sweep["shaped"]:
            self.cluster = Cluster(sweep["program"], name, sweep["workers"], device=sweep["device"], flags=flags)
        else:
            self.cluster = LocalCluster(sweep["program"], store.folder / ".cluster", sweep["devices"], flags)
        waiting = {point["id"] for point in store.results["points"] if point["state"] == "waiting"}
        self.points = [point for point in sweep["points"] if point["id"] in waiting]
        self.time_left = TimeLeft(point["network_seconds"] for point in self.points)

    def run(self):
        """Runs all that wait. A point that fails is recorded, and the next one runs. The cluster is taken down in any case."""
        self.cluster.down()
        try:
            for point in self.points:
                self._run_next(point)
        finally:
            with uninterrupted():
                self.cluster.down()

    def _run_next(self, point):
        if self.sweep["base_within"]:
            write(self.store.folder / "run.yaml", self.sweep["base_text"])
        elif pathlib.Path(self.sweep["base_file"]).read_bytes() != self.sweep["base_text"].encode(errors="replace"):
            raise Failed(f"{self.sweep['base_file']} has changed since the sweep began; give it another --out, or make the file what "
                         "it was")
        begin = time.monotonic()
        self.time_left.begin()
        self._set_links(point)
        run = [""]  # its id, once it has one
        try:
            result = self._measure(point, run)
            say = losses_text(result) if self.sweep["curves"] else (
                f"{time_span(result['step_seconds'])} a step, {whole(result['tokens_per_second'])} tokens/s; simulated "
                f"{time_span(result['simulated_seconds'])}, lower bound {time_span(result['bound_seconds'])}")
        except (Failed, subprocess.SubprocessError) as error:
            result = unmeasured(point, "failed", str(error), run[0])
            say = f"failed: {one_line(str(error))}"
        self.time_left.ended(time.monotonic() - begin)
        with uninterrupted():
            print(f"{self._where(point)}: {say}", file=sys.stderr, flush=True)
            self.store.record(result)
        if result["state"] == "failed":
            # Whatever it left behind, a dead worker or half a run, is not the next one's business.
            self.cluster.down()

    def _where(self, point):
        return f"point {point['index'] + 1} of {len(self.store.results['points'])} ({point['description']})"

    def _set_links(self, point):
        link = self._link(point)
        try:
            if not self.cluster.is_up():
                self.cluster.link = link
                self.cluster.up()
            elif self.cluster.link != link:
                self.cluster.set_links(link)
                self.cluster.link = link
        except Failed as problem:
            raise Failed(f"the sweep's cluster: {problem}") from None

    @staticmethod
    def _link(point):
        return [word for key in ("rate", "delay", "jitter", "loss") for word in (f"--{key}", point[key])]

    def _arguments(self, point, measure_links):
        changes = [*point["overrides"], f"links.measure={'true' if measure_links else 'false'}"]
        base = self.sweep["base_file"]
        run = [self.store.folder / "run.yaml", "--relative-to", pathlib.Path(base).parent] if self.sweep["base_within"] else [base]
        return [*run, *(word for change in changes for word in ("--set", change))]

    def _measure(self, point, run):
        # The links are measured for a plan of its own, so that they count this run's bytes alone.
        self.cluster.cli("plan", *self._arguments(point, True), timeout=600, plain=True)
        before = self.cluster.state()
        run[0] = self.cluster.cli("submit", *self._arguments(point, False), timeout=None, plain=True).split()[0]
        shares = StageShares(self.sweep["warm_up"])
        self._wait_for_end(point, run[0], shares)
        link_bytes = bytes_between(before, self.cluster.state())
        status = self.cluster.status(run[0])
        return measured(point, self.sweep["warm_up"], status, self.cluster.lines("steps", run[0], plain=True),
                        self.cluster.predict(run[0], point["rate"], point["delay"]), shares, link_bytes)

    def _wait_for_end(self, point, run, shares):
        progress = Progress(self._where(point))
        begin = changed = time.monotonic()
        status = {"state": "queued", "sequence": 0, "reason": "", "step": 0, "steps": 0, "seconds_left": 0}
        with self.cluster.watch(run) as watch:
            try:
                for news in statuses(watch):
                    if news:
                        shares.add(news)
                        changed = time.monotonic() if news["sequence"] != status["sequence"] else changed
                        status = news
                    self._check_patience(status, time.monotonic() - begin, time.monotonic() - changed)
                    left = self.time_left.estimate(status["seconds_left"])
                    progress.say(f"{status['state']} step {step_text(status)}{f', {time_span(left)} left' if left else ''}")
            finally:
                progress.close()
                watch.kill()
        if status["state"] not in ("done", "failed", "stopped"):  # it was watched in vain: this says why
            status = self.cluster.status(run)
        if status["state"] != "done":
            raise Failed(f"the run {status['state']}: {status['reason']}")

    @staticmethod
    def _check_patience(status, seconds, unchanged_seconds):
        if status["state"] == "queued" and seconds > QUEUE_PATIENCE_S:
            raise Failed(f"it waited {time_span(QUEUE_PATIENCE_S)} in vain for its workers: {status['reason']}")
        if unchanged_seconds > STANDSTILL_S:
            raise Failed(f"nothing has changed for {time_span(STANDSTILL_S)} at step {step_text(status)}")
