"""Runs the scripts of deploy/recipes on this machine: worker.sh with programs that stand in for a worker and for nvidia-smi,
and slurm.sh with real daemons and an `srun` that starts its command for two nodes: a run begins, is stopped as by Slurm
before the time is over, and goes on in the next job.

usage: recipes_run_test.py SOURCE_DIR BIN_DIR
"""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

SOURCE, PROGRAMS = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
RECIPES = SOURCE / "deploy/recipes"
DEADLINE_S = 120

RUN = """
name: queued
model: { family: gpt, layers: 2, hidden: 32, heads: 2, context: 32 }
data: { text: ["/usr/share/common-licenses/*-[0-9]*"] }
train: { steps: 100000, microbatches: 2, microbatch_size: 1 }
pipeline: { stages: 2 }
checkpoint: { every: 100000 }
"""
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for node in node1 node2; do LONGHAUL_NAME=$node "$@" & done
trap 'kill -TERM $(jobs -p)' TERM
wait
wait
"""
SMI = """#!/bin/sh
echo "GPU 0: NVIDIA L4 (UUID: GPU-00000000-0000-0000-0000-000000000000)"
echo "GPU 1: NVIDIA L4 (UUID: GPU-11111111-1111-1111-1111-111111111111)"
"""
# Says what it was given, and ends at SIGTERM as a worker does.
WORKER = """#!/bin/bash
trap 'echo "ended $*" >>"$SAYS"; exit 0' TERM
echo "token=${LONGHAUL_TOKEN:-none} $*" >>"$SAYS"
while :; do sleep 0.05; done
"""


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def wait_for(what, condition, process=None, log=None):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        if process is not None and process.poll() is not None:
            raise AssertionError(f"waited for {what}, and the script ended with {process.returncode}: {log.read_text()}")
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}: {log.read_text() if log else ''}")


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)


def worker_script(folder):
    """A worker a GPU, each with a name and a state folder of its own; the token is no longer in the environment."""
    tools, says, log = folder / "tools", folder / "says", folder / "worker.log"
    tools.mkdir()
    executable(tools / "nvidia-smi", SMI)
    executable(tools / "longhaul-worker", WORKER)
    says.touch()
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder), "SAYS": str(says), "LONGHAUL_TOKEN": "secret",
                   "LONGHAUL_COORDINATOR": "there:7070", "LONGHAUL_NAME": "box"}
    with log.open("w") as out:
        script = subprocess.Popen([RECIPES / "worker.sh", "--transport", "tcp"], env=environment, stdout=out,
                                  stderr=subprocess.STDOUT)
    try:
        lines = wait_for("two workers", lambda: sorted(says.read_text().splitlines()) if says.read_text().count("\n") == 2
                         else None, script, log)
        for number, line in enumerate(lines):
            check(line == f"token=none --coordinator there:7070 --token-file {folder}/longhaul/token --state-dir "
                  f"{folder}/longhaul/box-{number} --name box-{number} --device cuda:{number} --transport tcp", line)
        token = folder / "longhaul/token"
        check(token.read_text() == "secret\n" and token.stat().st_mode & 0o777 == 0o600, "the token's file")
        script.send_signal(signal.SIGTERM)
        code = script.wait(DEADLINE_S)
        check(code == 0 and says.read_text().count("ended") == 2, "after SIGTERM:", code, says.read_text(), log.read_text())
    finally:
        script.kill()
    for missing, sentence in (("LONGHAUL_COORDINATOR", "expected the coordinator's host:port"),
                              ("LONGHAUL_TOKEN", "expected a join token")):
        done = subprocess.run([RECIPES / "worker.sh"], env={key: value for key, value in environment.items() if key != missing},
                              capture_output=True, text=True, check=False)
        check(done.returncode == 1 and sentence in done.stderr, missing, done.returncode, done.stderr)
    print("ok: a worker for each GPU, which SIGTERM ends", flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """One job of Slurm: the script, as it would run on the first node."""

    def __init__(self, folder, number):
        self.log = folder / f"job{number}.log"
        port = free_port()
        tools = folder / "slurm"
        tools.mkdir(exist_ok=True)
        executable(tools / "srun", SRUN)
        self.environment = {
            "PATH": f"{tools}:{PROGRAMS}:/usr/bin:/bin", "HOME": str(folder), "LONGHAUL_PORT": str(port),
            "LONGHAUL_LISTEN": "127.0.0.1", "LONGHAUL_ADDRESS": "127.0.0.1", "LONGHAUL_RECIPES": str(RECIPES)}
        with self.log.open("w") as out:
            self.process = subprocess.Popen(["bash", RECIPES / "slurm.sh", folder / "run.yaml"], env=self.environment,
                                            stdout=out, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder)

    def step(self):
        """The last step that the log shows of a running run."""
        found = re.findall(r"running step (\d+)/", self.log.read_text())
        return int(found[-1]) if found else 0

    def trains_and_is_told_to_end(self):
        reached = wait_for("a step", lambda: self.step() if self.step() > 2 else None, self.process, self.log)
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE_S)
        text = self.log.read_text()
        check(re.search(r"queued-\w+ stopped step \d+", text), "the run was not stopped", code, text)
        return reached, re.search(r"(queued-\w+) stopped step (\d+)", text)

    def close(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def slurm_script(folder):
    (folder / "run.yaml").write_text(RUN)
    first = Job(folder, 1)
    try:
        _, stopped = first.trains_and_is_told_to_end()
    finally:
        first.close()
    second = Job(folder, 2)
    try:
        wait_for("the run to go on", lambda: second.step() > int(stopped.group(2)), second.process, second.log)
        check(stopped.group(1) in second.log.read_text(), "another run has begun", second.log.read_text())
        second.trains_and_is_told_to_end()
    finally:
        second.close()
    print(f"ok: a job that ends stops its run, after step {stopped.group(2)}; the next one goes on", flush=True)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as name:
        folder = pathlib.Path(name).resolve()
        (folder / "first").mkdir()
        (folder / "second").mkdir()
        worker_script(folder / "first")
        slurm_script(folder / "second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
