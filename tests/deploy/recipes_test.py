"""Checks deploy/recipes as far as that goes without the systems that they are for: every file is well formed and is as the
kept part of its system's schema has it, names flags and variables that exist, and scripts are understood by bash.

usage: recipes_test.py SOURCE_DIR BIN_DIR

promtool, amtool, shellcheck and kubectl are asked where they are here; what was not asked is named. Without PyYAML
(deploy/setup.sh --test brings it) the test is skipped.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SOURCE, PROGRAMS = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
RECIPES = SOURCE / "deploy/recipes"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import schema  # noqa: E402

try:
    import yaml
except ImportError:
    python = SOURCE / ".deps/venv/bin/python"
    if not python.exists() or os.path.samefile(sys.prefix, SOURCE / ".deps/venv") or \
            subprocess.run([python, "-c", "import yaml"], capture_output=True, check=False).returncode != 0:
        print("skipped: PyYAML is not here; deploy/setup.sh --test brings it")
        sys.exit(SKIPPED)
    os.execv(python, [str(python), *sys.argv])

# File: its schema.
SCHEMAS = {"skypilot.yaml": "skypilot", "worker.dstack.yml": "dstack", "cloud-init/worker.yaml": "cloud_init",
           "cloud-init/coordinator.yaml": "cloud_init", "compose/worker.yaml": "compose", "alerting/compose.yaml": "compose"}
# Files that a program of their own checks.
BY_PROGRAM = {"alerting/prometheus.yml", "alerting/alertmanager.yml", "kubernetes/kustomization.yaml"}


def load_schema(name):
    return json.loads((SOURCE / f"tests/deploy/schemas/{name}.json").read_text())


def documents(path):
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def by_schema():
    for name, kind in SCHEMAS.items():
        for document in documents(RECIPES / name):
            yield from (f"{name}: {what}" for what in schema.problems(document, load_schema(kind)))
    kinds = load_schema("kubernetes")["kinds"]
    for document in documents(RECIPES / "kubernetes/longhaul.yaml"):
        name = f"kubernetes/longhaul.yaml: {document['kind']} {document['metadata']['name']}"
        if document["kind"] not in kinds:
            yield f"{name}: no schema is kept of this kind"
            continue
        yield from (f"{name}: {what}" for what in schema.problems(document, kinds[document["kind"]]))


def nothing_is_left_out():
    known = set(SCHEMAS) | BY_PROGRAM | {"kubernetes/longhaul.yaml"}
    for path in sorted(RECIPES.rglob("*.y*ml")):
        name = str(path.relative_to(RECIPES))
        if name not in known:
            yield f"{name}: no check knows this file; add it to recipes_test.py"
        if not documents(path):
            yield f"{name}: is empty"


def a_schema_refuses():
    """Checks that cannot fail are none: well-known mistakes must be found."""
    right = documents(RECIPES / "skypilot.yaml")[0]
    for change in ({"num_node": 4}, {"num_nodes": "four"}, {"resources": {"use_spot": "yes"}}, {"envs": {"1X": "a"}}):
        if not list(schema.problems({**right, **change}, load_schema("skypilot"))):
            yield f"the schema of SkyPilot takes {change}"
    if not list(schema.problems({"packages": "curl"}, load_schema("cloud_init"))):
        yield "the schema of cloud-init takes a word for a list"


def help_of(program):
    return subprocess.run([PROGRAMS / program, "--help"], capture_output=True, text=True, check=True).stdout


def flags():
    """Flags that recipes hand to daemons, in commands and in their YAML files, are flags of these."""
    helps = {name: help_of(f"longhaul-{name}") for name in ("worker", "coordinator")}

    def unknown(daemon, names, where):
        return [f"{where}: longhaul-{daemon} has no flag --{name}" for name in names
                if not re.search(rf"^  (?:-\w,)?--{name}\b", helps[daemon], re.MULTILINE)]

    worker_lines = re.findall(r"worker\.sh\"? (--[^\n]*)", (RECIPES / "skypilot.yaml").read_text())
    yield from unknown("worker", re.findall(r"--([a-z-]+)", " ".join(worker_lines)), "skypilot.yaml")
    for document in documents(RECIPES / "kubernetes/longhaul.yaml"):
        if document["kind"] == "StatefulSet":
            container = document["spec"]["template"]["spec"]["containers"][0]
            names = [word[2:].split("=")[0] for word in container["args"]]
            yield from unknown(container["name"], names, "kubernetes/longhaul.yaml")
    for daemon in ("worker", "coordinator"):
        user_data = documents(RECIPES / f"cloud-init/{daemon}.yaml")[0]
        files = {one["path"]: one["content"] for one in user_data["write_files"]}
        keys = list(yaml.safe_load(files[f"/etc/longhaul/{daemon}.yaml"]))
        yield from unknown(daemon, keys, f"cloud-init/{daemon}.yaml")
        yield from script(files["/usr/local/sbin/longhaul-first-boot"], f"cloud-init/{daemon}.yaml")
        install = (SOURCE / "deploy/bundle/install").read_text()
        for flag in re.findall(r"/install ((?:--[a-z-]+ ?)+)", files["/usr/local/sbin/longhaul-first-boot"]):
            yield from (f"cloud-init/{daemon}.yaml: install has no {one}" for one in flag.split()
                        if f"{one})" not in install)


def variables():
    """Variables that recipes set are read by somebody."""
    readers = [RECIPES / "worker.sh", RECIPES / "slurm.sh", SOURCE / "deploy/images/worker-entry"]
    read = set(re.findall(r"LONGHAUL_[A-Z_]+", "".join(path.read_text() for path in readers)))
    for path in sorted(RECIPES.rglob("*.y*ml")):
        text = "\n".join(line.split(" #")[0] for line in path.read_text().splitlines() if not line.startswith("#"))
        own = set(re.findall(r"\$\{(LONGHAUL_[A-Z_]+)", text))  # compose substitutes these itself
        yield from (f"{path.relative_to(RECIPES)}: nobody reads {name}"
                    for name in sorted(set(re.findall(r"\bLONGHAUL_[A-Z_]+", text)) - own - read))


def script(text, name):
    for program in (["bash", "-n"], ["shellcheck", "-s", "bash", "-"]):
        if shutil.which(program[0]) is None:
            print(f"not asked: {program[0]}, of {name}")
            continue
        done = subprocess.run(program, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            yield f"{name}: {program[0]}: {done.stdout}{done.stderr}"


def scripts():
    for path in sorted(RECIPES.rglob("*.sh")):
        yield from script(path.read_text(), path.name)
        if not os.access(path, os.X_OK):
            yield f"{path.name}: cannot be executed"
    run = documents(RECIPES / "skypilot.yaml")[0]["run"]
    yield from script("#!/bin/bash\n" + run, "skypilot.yaml: run")


def program(name, *places):
    found = shutil.which(name) or next((str(place) for place in places if place.exists()), None)
    if found is None:
        print(f"not asked: {name}, which is not here")
    return found


def by_programs(folder):
    rules = SOURCE / "deploy/observe"
    for path in (RECIPES / "alerting/prometheus.yml", rules / "alerts.yml", rules / "targets.json"):
        shutil.copy(path, folder)
    asked = []
    if promtool := program("promtool", SOURCE / ".deps/promtool/promtool"):
        asked.append([promtool, "check", "config", str(folder / "prometheus.yml")])
    if amtool := program("amtool", SOURCE / ".deps/promtool/amtool"):
        asked.append([amtool, "check-config", str(RECIPES / "alerting/alertmanager.yml")])
        # Who hears of an alert, by its severity.
        for severity, receiver in (("page", "page"), ("warn", "mail")):
            done = subprocess.run([amtool, "config", "routes", "test", "--config.file",
                                   str(RECIPES / "alerting/alertmanager.yml"), f"severity={severity}", "alertname=RunStalled"],
                                  capture_output=True, text=True, check=False)
            if done.stdout.strip() != receiver:
                yield f"an alert with severity {severity} goes to {done.stdout.strip()!r}, expected {receiver!r} {done.stderr}"
    if kubectl := program("kubectl"):
        asked.append([kubectl, "kustomize", str(RECIPES / "kubernetes")])
    for command in asked:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            yield f"{' '.join(command[:2])}: {done.stdout}{done.stderr}"


def severities():
    """All severities of the rules are routed, and inhibitions name alerts that exist."""
    rules = documents(SOURCE / "deploy/observe/alerts.yml")[0]["groups"][0]["rules"]
    found = {rule["labels"]["severity"] for rule in rules}
    if found != {"page", "warn"}:
        yield f"alerting/alertmanager.yml is for severities page and warn; the rules have {sorted(found)}"
    alerts = {rule["alert"] for rule in rules}
    for rule in documents(RECIPES / "alerting/alertmanager.yml")[0]["inhibit_rules"]:
        text = " ".join(rule["source_matchers"] + rule["target_matchers"])
        yield from (f"alerting/alertmanager.yml names {name}, which is no alert"
                    for name in re.findall(r"[A-Z]\w+", text) if name not in alerts)


def main():
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        checks = (by_schema(), nothing_is_left_out(), a_schema_refuses(), flags(), variables(), scripts(), severities(),
                  by_programs(pathlib.Path(folder)))
        found = [what for check in checks for what in check]
    print("\n".join(found) or "ok: recipes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
