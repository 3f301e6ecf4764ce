"""Training over real processes on the loopback interface: a coordinator, workers, the CLI.

usage: training_test.py BIN_DIR [parity|llama|optimizers|resume|resume_gauss|transports|faults ...]

Workers have the CPU. With LONGHAUL_TEST_GPUS=N each has one of N GPUs, and shares it where there are more workers.
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from nearness import expect_near

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from requirements import rootless  # noqa: E402

DEADLINE_S = 300  # of what comes within seconds: machines are busy, and sanitizers slow
GPUS = int(os.environ.get("LONGHAUL_TEST_GPUS", "0"))

RUN = """\
name: {name}
model: {{ family: gpt, layers: 4, hidden: 64, heads: 4, context: 64 }}
data: {{ text: [text.txt], tokenizer: bytes, seed: 3 }}
validation: {{ share: 0.1, every: 10, samples: 4 }}
train:
  steps: {steps}
  microbatches: 4
  microbatch_size: 2
  seed: 5
  optimizer: {{ kind: adamw, lr: 1e-3 }}
  schedule: {{ kind: cosine, warmup: 5 }}
pipeline: {{ stages: {stages}, schedule: {schedule}, placement: names }}
transport: {transport}
links: {links}
checkpoint: {{ every: 10, keep: 2 }}
recovery: {{ attempts: 0 }}
"""
GPT = "{ family: gpt, layers: 4, hidden: 64, heads: 4, context: 64 }"  # RUN's
ADAMW = "{ kind: adamw, lr: 1e-3 }"  # RUN's
MUON = "{ kind: muon, lr: 3e-3, moments: bf16 }"
# A model like Qwen2.5.
LLAMA = """{ family: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, intermediate: 160, context: 64,
         qkv_bias: true, rope_theta: 1000000, vocabulary: 320 }"""
NONE = "{ forward: none, backward: none }"
PREDICT = '{ forward: "predict/gauss:bits=3", backward: "fixed:bits=4,rounding=stochastic" }'
DEFAULT = '{ forward: tah, backward: "fixed:bits=4,rounding=stochastic" }'
GAUSS = "{ forward: gauss, backward: gauss }"


def wait_for(what, condition, deadline_s=DEADLINE_S):
    """Polls `condition` until it gives something; never longer than the deadline."""
    end, pause_s = time.monotonic() + deadline_s, 0.05
    while (began := time.monotonic()) < end:
        value = condition()
        if value:
            return value
        # Many conditions start the CLI, which takes the cores from the run: asking takes a quarter of the time at most.
        signal.sigtimedwait([signal.SIGCHLD], max(pause_s, min(3 * (time.monotonic() - began), 2)))
        pause_s = min(1.3 * pause_s, 0.3)
    raise AssertionError(f"waited {deadline_s} s in vain for {what}")


class Skipped(Exception):
    """What this machine lacks."""


@contextlib.contextmanager
def small_disk(folder):
    """`folder` is made, and is a file system of 64 MB of its own."""
    if os.geteuid() != 0:
        raise rootless("mounting a small file system needs root", Skipped)
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder],
                             capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        raise rootless(mounted.stderr.strip(), Skipped)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class Cluster:
    """A coordinator and workers as child processes, stopped at the end of a `with`; where that ends
    badly, their logs are shown."""

    LISTEN = "127.0.0.1:0"  # the coordinator

    def __init__(self, programs, folder, workers):
        self.programs, self.folder = pathlib.Path(programs).resolve(), pathlib.Path(folder)
        # The coordinator writes it; here nobody's certificates are mixed with a user's own.
        self.token = self.folder / "token"
        os.environ["LONGHAUL_HOME"] = str(self.folder / "home")
        self.processes = {}
        self.workers = range(1, workers + 1)
        self.others = set()  # names of workers that have flags of their own
        self.start("coordinator", "longhaul-coordinator", "--listen", self.LISTEN, "--http", "127.0.0.1:0")
        address = self.folder / "coordinator" / "address"
        self.address = wait_for("the coordinator's address",
                                lambda: address.exists() and address.read_text().strip())
        self.restore()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            for log in sorted(self.folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
        self.stop()

    def access(self):
        """The flags with which daemons and the CLI are let in."""
        return ["--token-file", self.token]

    def start(self, name, program, *arguments, cwd=None):
        log = open(self.folder / f"{name}.log", "a", encoding="utf-8")
        self.processes[name] = subprocess.Popen(
            [self.programs / program, *arguments, "--state-dir", self.folder / name,
             *self.access()], stdout=log, stderr=log, cwd=cwd)

    def start_as(self, user, name, program, *arguments):
        """As an ordinary user, with flags of its own."""
        log = open(self.folder / f"{name}.log", "a", encoding="utf-8")
        self.processes[name] = subprocess.Popen([self.programs / program, *arguments], stdout=log, stderr=log,
                                                user=user, group=user, extra_groups=[], cwd="/",
                                                env={"PATH": os.environ["PATH"]})

    def roots(self):
        """The folders in which its runs may name data: user and workers are one account."""
        return ["--data-root", self.folder]

    def devices(self, number):
        """The worker's devices, as its flag has them."""
        return f"cuda:{(number - 1) % GPUS}" if GPUS else "cpu"

    def restore(self):
        """The workers that it began with, and no others."""
        wanted = [f"worker{number}" for number in self.workers]
        for name in list(self.processes):
            if name.startswith("worker") and (name not in wanted or name in self.others):
                self.kill(name)
                del self.processes[name]
        self.others.clear()
        for number, name in zip(self.workers, wanted):
            if name not in self.processes or self.processes[name].poll() is not None:
                self.start_worker(number)
        wait_for("the workers", lambda: sorted(w["name"] for w in self.connected()) == sorted(wanted))

    def start_worker(self, number, *flags, cwd=None):
        if flags or cwd:
            self.others.add(f"worker{number}")
        self.start(f"worker{number}", "longhaul-worker", "--coordinator", self.address,
                   "--name", f"worker{number}", "--device", self.devices(number), *self.roots(), *flags, cwd=cwd)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def cli(self, *arguments, check=True):
        result = subprocess.run(
            [self.programs / "longhaul", *arguments, "--coordinator", self.address,
             *self.access()], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
            cwd=self.folder)
        if check and result.returncode != 0:
            raise AssertionError(f"longhaul {arguments}: {result.returncode}\n{result.stderr}")
        return result

    def connected(self):
        workers = json.loads(self.cli("workers", "--json").stdout)
        rows = workers["workers"] if isinstance(workers, dict) else workers
        return [w for w in rows if w.get("connected")]

    def status(self, run):
        return json.loads(self.cli("status", run, "--json").stdout)

    def seen(self, run):
        """The status for conditions that are polled: the dashboard's API gives it without starting a process. It is up
        to 0.2 s old, and has no plan."""
        try:
            log = (self.folder / "coordinator.log").read_text(encoding="utf-8")
            address = re.findall("dashboard at (.*)/", log)[-1]
            with urllib.request.urlopen(f"{address}/api/run?run={run}", timeout=DEADLINE_S) as answer:
                return json.load(answer)["run"]
        except (OSError, IndexError):  # a coordinator of another name, or started anew without a dashboard
            return self.status(run)

    def step(self, run):
        return int(self.seen(run).get("step", 0))

    def checkpoint_step(self, run):
        return int(self.seen(run).get("checkpoint_step", 0))

    def broken(self, path, *flags, middle, kill=("worker2",)):
        """A run of this file that has failed because these workers were killed in its `middle`, a condition on its
        status; with none to kill it was stopped there. One that was through before anybody looked is trained again."""
        for _ in range(5):
            run = self.cli("submit", path, *flags).stdout.split()[0]
            wait_for(f"the middle of {run}", lambda: middle(s := self.seen(run)) or s["state"] == "done")
            for name in kill:
                self.kill(name)
            if not kill:
                self.cli("stop", run, check=False)
            ends = ("failed" if kill else "stopped", "done")
            if wait_for("its end", lambda: (s := self.seen(run)["state"]) in ends and s) != "done":
                return run
            for name in kill:
                self.start_worker(int(name.removeprefix("worker")))
            wait_for("the workers again", lambda: len(self.connected()) == len(self.processes) - 1)
        raise AssertionError(f"{path} was trained each time before it was broken; give it more steps")

    def broken_after(self, step, path, *flags, **options):
        """The same, once the run has a checkpoint of that step."""
        return self.broken(path, *flags, middle=lambda status: int(status.get("checkpoint_step", 0)) >= step, **options)

    def stopped_after(self, step, path, *flags):
        """A run of this file that was stopped behind that step."""
        return self.broken(path, *flags, middle=lambda status: int(status.get("step", 0)) >= step, kill=())

    def end(self, run):
        """Stops the run, and gives its losses."""
        self.cli("stop", run)
        wait_for(f"the end of {run}", lambda: self.seen(run)["state"] == "stopped")
        return self.losses(run)

    def write_run(self, name, steps=30, stages=4, schedule="link-aware", links=NONE,
                  transport="ucx", model=GPT, optimizer=ADAMW):
        path = self.folder / f"{name}.yaml"
        text = RUN.format(name=name, steps=steps, stages=stages, schedule=schedule, links=links,
                          transport=transport)
        path.write_text(text.replace(GPT, model).replace(ADAMW, optimizer))
        return path

    def train(self, name, *flags, **options):
        path = self.write_run(name, **options)
        run = self.cli("submit", path, "--watch", *flags).stdout.split()[0]
        return self.losses(run)

    def losses(self, run):
        rows = [json.loads(line) for line in self.cli("steps", run, "--json").stdout.splitlines()]
        return [row["loss"] for row in rows if int(row["step"]) > 0]  # step 0 is a validation alone

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=DEADLINE_S)


def text_for_training(folder):
    """English words in a fixed pseudo-random order: no file of the machine is needed."""
    words = "the quick brown fox jumps over a lazy dog while rain falls on slow links".split()
    state, out = 1, []
    for _ in range(20000):
        state = (state * 1103515245 + 12345) % 2**31
        out.append(words[(state >> 16) % len(words)])
    (pathlib.Path(folder) / "text.txt").write_text(" ".join(out))


def expect_equal(what, got, wanted):
    if got != wanted:
        first = next((i for i, (g, w) in enumerate(zip(got, wanted)) if g != w), "the length")
        raise AssertionError(f"{what}: losses differ first at index {first}: {len(got)} and "
                             f"{len(wanted)} of them\n{got[:3]} ...\n{wanted[:3]} ...")
    print(f"ok: {what}: {len(got)} losses bit-identical", flush=True)


def rounding(on_cpu):
    """The bound of a loss's relative difference, where GPUs add in other orders, too."""
    return max(on_cpu, 5e-4) if GPUS else on_cpu


def expect_reference(what, got, wanted):
    """Compares with the plain loop on the CPU: to the bit, or to rounding if workers have GPUs."""
    if not GPUS:
        return expect_equal(what, got, wanted)
    expect_near(what, got, wanted, bound=rounding(0))


def reference_losses(cluster, **options):
    """Losses of the plain loop in one process."""
    path = cluster.write_run("reference", stages=1, **options)
    losses = [float(line) for line in subprocess.run(
        [cluster.programs / "reference_losses", path, cluster.folder / "text.txt", "30"],
        capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout.split()]
    expect_learnt("the plain loop", losses)
    return losses


def expect_learnt(what, losses):
    if not losses[-1] < 0.8 * losses[0]:
        raise AssertionError(f"{what}: nothing was learnt: {losses[0]} to {losses[-1]}")


def parity(cluster):
    reference = reference_losses(cluster)
    for stages, schedule in [(1, "link-aware"), (2, "link-aware"), (4, "link-aware"), (4, "1f1b"),
                             (2, "gpipe")]:
        losses = cluster.train(f"parity-{stages}-{schedule}", stages=stages, schedule=schedule)
        expect_equal(f"{stages} stages, {schedule}, against the plain loop", losses, reference)


def llama(cluster):
    reference = reference_losses(cluster, model=LLAMA)
    expect_equal("2 stages against the plain loop",
                 cluster.train("llama-none", stages=2, model=LLAMA), reference)
    losses = cluster.train("llama-tah", steps=60, links=DEFAULT, model=LLAMA)
    expect_learnt("the default codecs", losses)
    print(f"ok: 4 stages, default codecs: {losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps",
          flush=True)
    # Stopped, it goes on as if nothing had been; what only this family has is kept.
    path = cluster.write_run("llama-stopped", steps=60, links=DEFAULT, model=LLAMA)
    run = cluster.stopped_after(5, path)
    other = cluster.write_run("llama-stopped", steps=60, links=DEFAULT,
                              model=LLAMA.replace("rope_theta: 1000000", "rope_theta: 10000"))
    refused = cluster.cli("submit", other, "--resume", check=False)
    sentence = "model.rope_theta is 1000000 in the run and 10000 in this file"
    if refused.returncode != 1 or sentence not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}, {refused.stderr!r}")
    print(f"ok: {refused.stderr.strip()}", flush=True)
    path = cluster.write_run("llama-stopped", steps=60, links=DEFAULT, model=LLAMA)
    cluster.cli("submit", path, "--resume", "--watch")
    expect_equal("stopped and resumed, default codecs", cluster.losses(run), losses)


def optimizers(cluster):
    reference = reference_losses(cluster, optimizer=MUON)
    flags = ["--set", "train.on_nonfinite=skip"]
    expect_equal("muon, 2 stages, against the plain loop",
                 cluster.train("muon", *flags, stages=2, optimizer=MUON), reference)
    path = cluster.write_run("muon-stopped", stages=2, optimizer=MUON)
    run = cluster.stopped_after(5, path, *flags)
    other = cluster.write_run("muon-stopped", stages=2)
    refused = cluster.cli("submit", other, "--resume", check=False)
    if refused.returncode != 1 or "train.optimizer.kind is muon in the run" not in refused.stderr:
        raise AssertionError(f"exit {refused.returncode}, {refused.stderr!r}")
    print(f"ok: {refused.stderr.strip()}", flush=True)
    path = cluster.write_run("muon-stopped", stages=2, optimizer=MUON)
    cluster.cli("submit", path, "--resume", "--watch", *flags)
    expect_equal("muon, stopped and resumed", cluster.losses(run), reference)


def resume(cluster, kinds=(("none", NONE), ("tah", DEFAULT))):
    for name, links in kinds:
        unbroken = cluster.train(f"whole-{name}", links=links)
        path = cluster.write_run(f"broken-{name}", links=links)
        run = cluster.broken_after(10, path)
        reason = cluster.status(run)["reason"]
        # A worker that may live is waited for; this one is given up at once, as its neighbours lost it, too.
        if "worker2" not in reason or "its neighbours miss it too" not in reason:
            raise AssertionError(reason)
        print(f"ok: {reason}", flush=True)
        cluster.start_worker(2)
        wait_for("worker2 again", lambda: len(cluster.connected()) == 4)
        cluster.cli("submit", path, "--resume", "--watch")
        expect_equal(f"killed and resumed, {name}", cluster.losses(run), unbroken)


def resume_gauss(cluster):
    resume(cluster, [("gauss", GAUSS)])


def transports(cluster):
    for links in [NONE, DEFAULT]:
        name = "none" if links == NONE else "tah"
        wanted = cluster.train(f"ucx-{name}", links=links)
        for other in ("tcp", "grpc"):
            expect_equal(f"{other} against ucx, {name}",
                         cluster.train(f"{other}-{name}", links=links, transport=other), wanted)
        mixed = links.replace(" }", ", workers: { worker2: { transport: tcp } } }")
        path = cluster.write_run(f"mixed-{name}", links=mixed)
        plan = json.loads(cluster.cli("plan", path, "--json").stdout)
        used = [edge["transport"] for edge in (plan.get("plan") or plan)["assignment"]["edges"]]
        if used != ["tcp", "tcp", "ucx"]:
            raise AssertionError(f"the plan has {used}")
        run = cluster.cli("submit", path, "--watch").stdout.split()[0]
        expect_equal(f"worker2's links over tcp, {name}", cluster.losses(run), wanted)
    # Encrypted, over both, and what the plan says of it.
    mixed = cluster.write_run("encrypted", links=NONE.replace(" }", ", encrypt: required, workers: { "
                                                              "worker2: { transport: tcp } } }"))
    text = cluster.cli("plan", mixed).stdout
    if "Links between workers are encrypted (links.encrypt: required)" not in text:
        raise AssertionError(text)
    run = cluster.cli("submit", mixed, "--watch").stdout.split()[0]
    expect_equal("encrypted, over both", cluster.losses(run), cluster.losses("ucx-none"))
    def start_again(number, transport):
        cluster.kill(f"worker{number}")
        cluster.start_worker(number, "--transport", transport)
        return wait_for(f"worker{number} with {transport} alone", lambda: next(
            (w for w in cluster.connected() if w["name"] == f"worker{number}" and
             [one["transport"] for one in w["endpoints"] if one.get("addresses")] == [transport]), None))

    # Each link has what both its workers listen on.
    start_again(1, "tcp")
    path = cluster.write_run("auto", links=NONE, transport="auto")
    plan = json.loads(cluster.cli("plan", path, "--json").stdout)
    edges = (plan.get("plan") or plan)["assignment"]["edges"]
    if sorted(edge["transport"] for edge in edges) not in (["tcp", "tcp", "ucx"], ["tcp", "ucx", "ucx"]):
        raise AssertionError(f"the plan has {edges}")
    run = cluster.cli("submit", path, "--watch").stdout.split()[0]
    expect_equal("transports chosen for each link", cluster.losses(run), cluster.losses("ucx-none"))
    # What a worker does not listen on is refused at once, never replaced.
    listens = start_again(3, "ucx")
    path = cluster.write_run("refused", transport="grpc")
    result = cluster.cli("submit", path, check=False)
    # The sentence names the one of the two that the plan comes to first.
    named = any(words in result.stderr for words in ("worker1 has tcp only", "worker3 has ucx only"))
    if result.returncode != 1 or not named:
        raise AssertionError(f"exit {result.returncode}, {result.stderr!r}, {listens}")
    print(f"ok: {result.stderr.strip()}", flush=True)


def faults(cluster):
    def refused(name, sentence, text=None, **options):
        path = cluster.write_run(name, **options)
        if text:
            path.write_text(path.read_text().replace(*text))
        result = cluster.cli("submit", path, check=False)
        if result.returncode != 1 or sentence not in result.stderr:
            raise AssertionError(f"{name}: exit {result.returncode}, {result.stderr!r}")
        print(f"ok: {name}: {result.stderr.strip().splitlines()[0]}", flush=True)

    refused("unknown-key", "did you mean 'tokenizer'", ("tokenizer:", "tokeniser:"))
    refused("missing-data", "nowhere.txt", ("text.txt", "nowhere.txt"))
    refused("long-context", "context", ("context: 64", "context: 1000000"))
    refused("stages-over-layers", "layers", stages=5)
    # A stop in the middle leaves a checkpoint to go on from.
    path = cluster.write_run("stopped", steps=400)
    run = cluster.cli("submit", path).stdout.split()[0]
    wait_for("some steps", lambda: cluster.step(run) >= 5)
    cluster.cli("stop", run)
    status = wait_for("the stop", lambda: (s := cluster.seen(run))["state"] == "stopped" and s)
    if int(status["checkpoint_step"]) != int(status["step"]):
        raise AssertionError(f"stopped without a checkpoint: {status}")
    print(f"ok: stopped at step {status['step']} with its checkpoint", flush=True)


if __name__ == "__main__":
    from cases import run_cases
    sys.exit(run_cases({"parity": parity, "llama": llama, "optimizers": optimizers, "resume": resume,
                        "resume_gauss": resume_gauss, "transports": transports, "faults": faults}))
