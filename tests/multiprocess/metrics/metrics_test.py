"""What daemons tell Prometheus, against what `longhaul` says of the same run; and whatever is made of these metrics.

usage: metrics_test.py SOURCE_DIR BIN_DIR

Dashboards, alert rules and docs/reference/metrics.md name no metric that no daemon has, and the page names all that there
are. promtool (deploy/setup.sh --test) checks the daemons' pages and the rules; without it these checks are skipped.
"""
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "training"))
from training_test import DEFAULT, RUN, Cluster, text_for_training, wait_for  # noqa: E402

METRICS = ["--metrics", "127.0.0.1:0"]
SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
NAME = re.compile(r"\blonghaul_[a-z_]+\b")
PARTS = {"forward", "backward", "optimizer", "wait_input", "wait_gradient", "wait_codec"}


class Page:
    """What one daemon serves."""

    def __init__(self, address):
        with urllib.request.urlopen(address, timeout=20) as answer:
            self.text = answer.read().decode()
        self.families = set(re.findall(r"^# TYPE (longhaul_\w+) ", self.text, re.MULTILINE))
        self.samples = [(match[1], dict(re.findall(r'(\w+)="([^"]*)"', match[2] or "")), float(match[3]))
                        for match in map(SAMPLE.match, self.text.splitlines()) if match]

    def all(self, name, **labels):
        return [(have, value) for family, have, value in self.samples
                if family == name and all(have.get(key) == label for key, label in labels.items())]

    def one(self, name, **labels):
        found = self.all(name, **labels)
        assert len(found) == 1, f"expected one {name} with {labels}, got {found}"
        return found[0][1]


def address_of(cluster, name):
    return wait_for(f"metrics of {name}", lambda: re.search(
        r"metrics at (http://\S+)", (cluster.folder / f"{name}.log").read_text()))[1]


def close(one, other):
    assert math.isclose(one, other, rel_tol=1e-6), f"{one} is not {other}"


def submit(cluster, name, steps):
    text_for_training(cluster.folder)
    path = cluster.folder / f"{name}.yaml"
    path.write_text(RUN.format(name=name, steps=steps, stages=2, schedule="1f1b", transport="grpc", links=DEFAULT))
    return cluster.cli("submit", path).stdout.split()[0]


def check_ended(cluster, coordinator):
    """Everything is known exactly about a run that is done."""
    run = submit(cluster, "ended", 12)
    wait_for("the end", lambda: cluster.seen(run)["state"] == "done")
    steps = [json.loads(line) for line in cluster.cli("steps", run, "--json").stdout.splitlines()]
    page = Page(coordinator)
    assert page.one("longhaul_run_state", run=run, state="done") == 1
    assert sum(value for _, value in page.all("longhaul_run_state", run=run)) == 1
    assert page.one("longhaul_run_step", run=run) == 12 == page.one("longhaul_run_steps", run=run)
    close(page.one("longhaul_run_loss", run=run), steps[-1]["loss"])
    close(page.one("longhaul_run_gradient_norm", run=run), steps[-1]["gradient_norm"])
    status = cluster.status(run)
    validated = next(step for step in steps if int(step["step"]) == int(status["validation_step"]))
    close(page.one("longhaul_run_validation_loss", run=run), validated["validation_loss"])
    assert page.one("longhaul_run_checkpoint_step", run=run) == int(status["checkpoint_step"])
    close(page.one("longhaul_run_checkpoint_timestamp_seconds", run=run),
          int(status["checkpoint_unix_ms"]) / 1e3)
    sent = sum(value for _, value in page.all("longhaul_link_step_payload_bytes", run=run))
    assert sent == int(steps[-1]["payload_bytes"]), (sent, steps[-1])
    for stage in ("0", "1"):
        parts = page.all("longhaul_stage_step_ratio", run=run, stage=stage)
        assert len(parts) == 5 and 0.98 <= sum(value for _, value in parts) <= 1.0001, parts
    assert page.one("longhaul_coordinator_computations_total", kind="plan") >= 1
    assert page.one("longhaul_coordinator_faults_total", kind="run_failed") == 0
    assert len(page.all("longhaul_coordinator_worker_connected")) == 2


def check_training(cluster, coordinator, workers):
    """Counters of a run under way grow, their parts add up, and go with the run."""
    run = submit(cluster, "training", 100_000)
    wait_for("some steps", lambda: cluster.step(run) >= 3)
    wait_for("samples of the run", lambda: all(Page(one).all("longhaul_worker_steps_total", run=run) for one in workers))
    before = [Page(one) for one in workers]
    seen = int(before[0].one("longhaul_worker_steps_total", run=run))
    wait_for("more steps", lambda: cluster.step(run) >= seen + 3)
    pages = [Page(one) for one in workers]
    for page, then in zip(pages, before):
        assert page.one("longhaul_worker_steps_total", run=run) > then.one("longhaul_worker_steps_total", run=run)
        parts = page.all("longhaul_worker_step_part_seconds_total", run=run)
        assert {labels["part"] for labels, _ in parts} == PARTS, parts
        whole = page.one("longhaul_worker_step_seconds_total", run=run)
        assert 0.95 <= sum(value for _, value in parts) / whole <= 1.01, (parts, whole)
        for name in ("sent_bytes_total", "step_payload_bytes_total", "frames_sent_total"):
            assert page.one(f"longhaul_worker_link_{name}", run=run) > then.one(f"longhaul_worker_link_{name}", run=run)
        assert page.one("longhaul_worker_planned_memory_bytes", run=run) > 0
        assert page.one("longhaul_worker_link_credit_frames", run=run) > 0
    # The coordinator shows them, too, for workers that Prometheus does not reach.
    through = wait_for("the workers' metrics at the coordinator", lambda: (page := Page(coordinator)) and
                       len(page.all("longhaul_worker_steps_total", run=run)) == 2 and page)
    assert {labels["worker"] for labels, _ in through.all("longhaul_worker_steps_total", run=run)} == {"worker1", "worker2"}
    lacking = pages[0].families - through.families
    assert not lacking, f"the coordinator does not show {sorted(lacking)}"
    # The first stage knows the norm, the last one the loss.
    assert sum(len(page.all("longhaul_worker_loss")) for page in pages) == 1
    assert sum(len(page.all("longhaul_worker_gradient_norm")) for page in pages) == 1
    cluster.cli("stop", run)
    wait_for("the worker to be without a stage",
             lambda: not any(labels.get("run") for one in workers for _, labels, _ in Page(one).samples))
    assert Page(coordinator).one("longhaul_run_state", run=run, state="stopped") == 1


def check_faults(cluster, coordinator):
    cluster.kill("worker2")
    wait_for("the fault", lambda: Page(coordinator).one("longhaul_coordinator_faults_total", kind="session_lost") == 1)
    assert Page(coordinator).one("longhaul_coordinator_worker_connected", worker="worker2") == 0
    cluster.start_worker(2, *METRICS)
    wait_for("the worker", lambda: Page(coordinator).one("longhaul_coordinator_worker_connected", worker="worker2") == 1)
    assert Page(coordinator).one("longhaul_coordinator_worker_sessions_total", worker="worker2") == 2


def check_names(source, families):
    """What is written of metrics is of metrics that there are."""
    observe = source / "deploy/observe"
    for path in (*observe.glob("dashboards/*.json"), observe / "alerts.yml"):
        if path.suffix == ".json":
            dashboard = json.loads(path.read_text())
            text = "\n".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", []))
            text += dashboard["templating"]["list"][0]["definition"]
        else:
            text = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("#"))
        named = set(NAME.findall(text))
        assert len(named) > 5, path
        assert named <= families, f"{path.name} names metrics that no daemon has: {sorted(named - families)}"
    documented = set(re.findall(r"^\| `(longhaul_[a-z_]+)", (source / "docs/reference/metrics.md").read_text(), re.MULTILINE))
    assert documented == families, (f"docs/reference/metrics.md lacks {sorted(families - documented)}, "
                                    f"and has {sorted(documented - families)} besides")


def check_address(cluster):
    """An address that others reach is said loudly; one that cannot be had is refused."""
    for name in ("coordinator", "worker1"):
        assert "OPEN METRICS" not in (cluster.folder / f"{name}.log").read_text()
    command = [cluster.programs / "longhaul-coordinator", "--listen", "127.0.0.1:0", "--state-dir",
               cluster.folder / "other", "--metrics"]
    with subprocess.Popen([*command, "0.0.0.0:0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as other:
        assert any("OPEN METRICS" in line for line in other.stderr)
        other.terminate()
    refused = subprocess.run([*command, "192.0.2.1:9464"], capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode == 1 and "cannot serve metrics at 192.0.2.1:9464" in refused.stderr, refused
    wrong = subprocess.run([*command, "127.0.0.1:0", "--metrics-key", "key.pem"], capture_output=True, text=True,
                           timeout=30, check=False)
    assert wrong.returncode == 2 and "--metrics-certificate and --metrics-key belong together" in wrong.stderr, wrong


def check_token(cluster):
    """A daemon that asks for a token gives its metrics to nobody else."""
    token = cluster.folder / "metrics-token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    with subprocess.Popen([cluster.programs / "longhaul-coordinator", "--listen", "127.0.0.1:0", "--state-dir",
                           cluster.folder / "guarded", "--metrics", "127.0.0.1:0", "--metrics-token-file", token],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as other:
        address = next(found[1] for line in other.stderr if (found := re.search(r"metrics at (http://\S+)", line)))
        try:
            Page(address)
            raise AssertionError("metrics without the token")
        except urllib.error.HTTPError as error:
            assert error.code == 401, error
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token.read_text().strip()}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert b"longhaul_coordinator_info" in answer.read()
        other.terminate()


def check_with_promtool(source, pages):
    promtool = next((path for path in (shutil.which("promtool"), str(source / ".deps/promtool/promtool"))
                     if path and pathlib.Path(path).exists()), None)
    if promtool is None:
        print("skipped: promtool's checks, because it is not here; deploy/setup.sh --test brings it", flush=True)
        return
    for page in pages:
        done = subprocess.run([promtool, "check", "metrics"], input=page.text, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for arguments in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"],
                      ["check", "config", "prometheus.yml"]):
        done = subprocess.run([promtool, *arguments], cwd=source / "deploy/observe", capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    print("ok: promtool", flush=True)


class Scraped(Cluster):
    """All daemons serve metrics."""

    def start(self, name, program, *arguments, cwd=None):
        super().start(name, program, *arguments, *([] if "--metrics" in arguments else METRICS), cwd=cwd)


def main():
    source, programs = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="longhaul-metrics-") as folder, Scraped(programs, folder, 2) as cluster:
        coordinator = address_of(cluster, "coordinator")
        workers = [address_of(cluster, f"worker{number}") for number in (1, 2)]
        check_ended(cluster, coordinator)
        print("ok: a run that is done", flush=True)
        check_training(cluster, coordinator, workers)
        print("ok: a run under way", flush=True)
        pages = [Page(coordinator), Page(workers[0])]
        check_names(source, pages[0].families | pages[1].families)
        print("ok: names", flush=True)
        check_with_promtool(source, pages)
        check_faults(cluster, coordinator)
        check_address(cluster)
        check_token(cluster)
        print("ok: faults and addresses", flush=True)


if __name__ == "__main__":
    main()
