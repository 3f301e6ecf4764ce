"""Programs that the coordinator runs after checkpoints (hooks.on_checkpoint), over real processes.

usage: hooks_test.py BIN_DIR [refused|runs|lora|dies ...]
"""
import json
import os
import pathlib
import subprocess
import sys

from cases import run_cases
from published_test import make_model
from training_test import GPT, NONE, RUN, Cluster, expect_equal, wait_for

SECRET = "hf_secret_of_the_daemon"
HOOK = """\
import json, os, pathlib, shutil, sys, time
kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
export, run, step = os.environ["LONGHAUL_EXPORT"], os.environ["LONGHAUL_RUN"], os.environ["LONGHAUL_STEP"]
assert pathlib.Path.cwd() == pathlib.Path(export)
shutil.copytree(export, folder / f"{kind}-{run}-{step}")
(folder / f"{kind}.environment").write_text(json.dumps(dict(os.environ)))
print("a line for the log", flush=True)
if kind == "bad":
    print("no accuracy", file=sys.stderr)
    sys.exit(3)
if kind == "hang":
    child = os.fork()
    if child == 0:
        os.setsid()
    else:
        (folder / "pids").write_text(f"{os.getpid()} {child}")
        (folder / "pids").rename(folder / f"{kind}.pids")
    time.sleep(10_000)
print(json.dumps({"accuracy": 0.5, "step": int(step)}))
"""


class HookCluster(Cluster):
    """Its coordinator runs hooks, and has a secret."""

    def start(self, name, program, *arguments, cwd=None):
        more = ("--allow-hooks",) if name == "coordinator" else ()
        os.environ["HF_TOKEN"] = SECRET
        try:
            super().start(name, program, *arguments, *more, cwd=cwd)
        finally:
            del os.environ["HF_TOKEN"]


def write_run(cluster, name, hooks="", model=GPT, lora=""):
    text = RUN.format(name=name, steps=20, stages=2, schedule="link-aware", links=NONE, transport="ucx")
    path = cluster.folder / f"{name}.yaml"
    path.write_text(text.replace(GPT, model).replace("  seed: 5\n", f"  seed: 5\n{lora}") + hooks)
    return path


def hook(cluster, kind, more=""):
    script = cluster.folder / "hook.py"
    script.write_text(HOOK)
    return f"hooks: {{ on_checkpoint: {json.dumps([sys.executable, str(script), kind, str(cluster.folder)])}{more} }}\n"


def train(cluster, name, **what):
    run = cluster.cli("submit", write_run(cluster, name, **what), "--watch").stdout.split()[0]
    return run, cluster.losses(run)


def events(cluster, run):
    return cluster.cli("events", run).stdout


def wait_for_event(cluster, run, text):
    line = wait_for(f"the event '{text}'",
                    lambda: next((line for line in events(cluster, run).splitlines() if text in line), None))
    print(f"ok: {line}", flush=True)
    return line


def expect_export(cluster, run, folder, *flags):
    """What the hook got is what `longhaul export` writes."""
    out = cluster.folder / f"out-{run}"
    cluster.cli("export", run, "--out", out, *flags)
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    if {path.name: path.read_bytes() for path in folder.iterdir()} != files:
        raise AssertionError(f"{folder} differs from {out}")
    print(f"ok: the hook got {', '.join(sorted(files))} as export writes them", flush=True)


def refused(cluster):
    """A coordinator without the flag."""
    folder = cluster.folder / "plain"
    process = subprocess.Popen([cluster.programs / "longhaul-coordinator", "--listen", "127.0.0.1:0", "--state-dir", folder],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = wait_for("its address", lambda: (folder / "address").exists() and (folder / "address").read_text().strip())
        answer = subprocess.run(
            [cluster.programs / "longhaul", "submit", write_run(cluster, "plain", hook(cluster, "good")), "--coordinator",
             address, "--token-file", folder / "token"], capture_output=True, text=True, check=False, cwd=cluster.folder)
    finally:
        process.terminate()
        process.wait()
    if answer.returncode != 1 or "--allow-hooks" not in answer.stderr:
        raise AssertionError(f"exit {answer.returncode}: {answer.stderr}")
    print(f"ok: {answer.stderr.strip()}", flush=True)


def runs(cluster):
    """One that succeeds, one that fails, one that hangs: losses are those of a run without."""
    _, wanted = train(cluster, "without")
    good, losses = train(cluster, "good", hooks=hook(cluster, "good"))
    expect_equal("with a hook that succeeds", losses, wanted)
    wait_for_event(cluster, good, 'checkpoint of step 20 ended with exit code 0: {"accuracy": 0.5, "step": 20}')
    expect_export(cluster, good, cluster.folder / f"good-{good}-20")
    environment = json.loads((cluster.folder / "good.environment").read_text())
    allowed = {"PATH", "HOME", "LANG", "LC_ALL", "LONGHAUL_EXPORT", "LONGHAUL_RUN", "LONGHAUL_STEP"}
    if not set(environment) - {"LC_CTYPE"} <= allowed:  # Python adds one
        raise AssertionError(f"the hook sees {sorted(environment)}")
    if "a line for the log" not in cluster.cli("logs", good).stdout:
        raise AssertionError("its output is not in the run's log")
    bad, losses = train(cluster, "bad", hooks=hook(cluster, "bad"))
    expect_equal("with a hook that fails", losses, wanted)
    wait_for_event(cluster, bad, "checkpoint of step 20 ended with exit code 3: no accuracy")
    hang, losses = train(cluster, "hang", hooks=hook(cluster, "hang", ", timeout: 1s"))
    expect_equal("with a hook that hangs", losses, wanted)
    wait_for_event(cluster, hang, "checkpoint of step 20 took longer than 1s and was killed: a line for the log")
    exports = list((cluster.folder / "coordinator" / "hooks").iterdir())
    if exports:
        raise AssertionError(f"exports stay: {exports}")
    for path in (cluster.folder / "coordinator.log", *cluster.folder.glob("*.environment")):
        if SECRET in path.read_text():
            raise AssertionError(f"a secret is in {path}")


def is_gone(pid):
    try:
        return ") Z " in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def dies(cluster):
    """A hook ends with its coordinator, however that ends, and so does what it has begun."""
    pids = cluster.folder / "hang.pids"
    pids.unlink(missing_ok=True)
    train(cluster, "endless", hooks=hook(cluster, "hang"))
    wait_for("the hook", pids.exists)
    cluster.kill("coordinator")
    for pid in pids.read_text().split():
        wait_for(f"the end of {pid}", lambda pid=pid: is_gone(pid))
    print("ok: the hook and its child are gone with their coordinator", flush=True)


def lora(cluster):
    make_model(cluster.folder / "base", "BF16", tied=False)
    what = {"model": "{ from: base, context: 64 }", "lora": "  lora: { rank: 4, targets: all-linear }\n"}
    for kind, more, flags in ("adapters", "", ()), ("merged", ", merged: true", ("--merged",)):
        run, _ = train(cluster, kind, hooks=hook(cluster, kind, more), **what)
        wait_for_event(cluster, run, "checkpoint of step 20 ended with exit code 0")
        expect_export(cluster, run, cluster.folder / f"{kind}-{run}-20", *flags)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    sys.exit(run_cases({"refused": refused, "runs": runs, "lora": lora, "dies": dies}, kind=HookCluster, workers=2))
