"""results.toml, and how old the rows of each result are beside the code that they depend on."""
import csv
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tomllib

from figures.rows import STAMP

ROOT = pathlib.Path(__file__).resolve().parents[3]
RESULTS = pathlib.PurePath("docs/results")
REGISTRY = pathlib.PurePath("tests/bench/results.toml")
KEYS = {"page", "rows", "machine", "needs", "command", "by_hand", "printed", "not_measured", "depends"}
NEEDS = {"root", "gpus", "cores", "files"}


class RegistryError(Exception):
    """results.toml says something that cannot be."""


@dataclasses.dataclass
class Result:
    name: str
    page: str
    rows: str
    machine: str
    needs: dict
    command: str
    by_hand: str
    printed: bool
    not_measured: bool
    depends: list

    def lacks(self, programs):
        """What this machine does not have of what the result needs, in words."""
        missing = []
        if self.needs.get("root") and os.geteuid() != 0:
            missing.append("root, for network namespaces")
        if self.needs.get("gpus", 0) > gpus():
            missing.append(f"{self.needs['gpus']} GPUs, this machine has {gpus()}")
        if self.needs.get("cores", 0) > os.cpu_count():
            missing.append(f"{self.needs['cores']} cores, this machine has {os.cpu_count()}")
        missing += [f"${name}: {what}" for name, what in self.needs.get("files", {}).items()
                    if name not in os.environ]
        wanted = re.findall(r"\$BIN/([\w-]+)", self.command) or ["longhaul"]
        missing += [f"{programs / program}" for program in wanted
                    if self.command and not os.access(programs / program, os.X_OK)]
        return missing


def gpus():
    """How many GPUs nvidia-smi lists."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def load(root=ROOT):
    """{name: Result}."""
    known = tomllib.loads((root / REGISTRY).read_text(encoding="utf-8"))
    results = {}
    for name, entry in known["results"].items():
        if unknown := set(entry) - KEYS | set(entry.get("needs", {})) - NEEDS:
            raise RegistryError(f"{REGISTRY}: {name}: unknown {sorted(unknown)}; known: {sorted(KEYS)}, "
                                f"of needs {sorted(NEEDS)}")
        if not entry.get("command") and not entry.get("by_hand"):
            raise RegistryError(f"{REGISTRY}: {name}: expected command or by_hand")
        depends = [path for each in entry["depends"] for path in known["code"].get(each, [each])]
        for path in depends:
            if not (root / path).exists():
                raise RegistryError(f"{REGISTRY}: {name}: depends on {path}, which is not there")
        results[name] = Result(name, entry["page"], entry["rows"], entry["machine"], entry["needs"],
                               entry.get("command", ""), entry.get("by_hand", ""),
                               entry.get("printed", False), entry.get("not_measured", False), depends)
    return results


def stamps(path):
    """[(commit, date, machine)] of the rows of a file; of a text, those of its first line."""
    if path.suffix != ".csv":
        first = path.read_text(encoding="utf-8").split("\n", 1)[0]
        match = re.fullmatch(r"# commit (\w+), (\d{4}-\d\d-\d\d), (.*)", first)
        return [match.groups()] if match else []
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or any(column not in rows[0] for column in STAMP):
        return []
    return [tuple(row[column] for column in STAMP) for row in rows]


def stamp(path, commit_and_date, machine):
    """Adds commit, date and machine to the rows that lack them. `commit_and_date`: of a line's number."""
    if path.suffix != ".csv":
        text = path.read_text(encoding="utf-8")
        if not text.startswith("# commit "):
            path.write_text(f"# commit {commit_and_date(1)[0]}, {commit_and_date(1)[1]}, {machine}\n{text}",
                            encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    header = next(csv.reader(lines[:1]))
    with open(path, "w", newline="", encoding="utf-8") as file:
        for number, line in enumerate(lines, 1):
            values = STAMP if number == 1 else (*commit_and_date(number), machine)
            file.write(",".join([line, *(quoted(value) for column, value in zip(STAMP, values)
                                         if column not in header)]) + "\n")


def quoted(field):
    return f'"{field}"' if "," in field else field


class History:
    """Which commits changed which files; knows nothing where git or its history is missing."""

    def __init__(self, root=ROOT):
        self.unknown = ""
        self.order, self.changed = {}, []
        try:
            def git(*words):
                return subprocess.run(["git", "-c", f"safe.directory={root}", "-C", str(root), *words],
                                      capture_output=True, text=True, check=True).stdout
            if git("rev-parse", "--show-toplevel").strip() != str(root):
                self.unknown = "this folder is no git repository of its own"
                return
            if git("rev-parse", "--is-shallow-repository").strip() == "true":
                self.unknown = "this is a shallow clone"
                return
            log = git("log", "--format=%x00%H", "--name-only", "--no-renames", "HEAD")
        except (OSError, subprocess.CalledProcessError):
            self.unknown = "there is no git repository"
            return
        for number, block in enumerate(log.split("\0")[1:]):
            commit, *files = block.split("\n")
            self.order[commit[:8]] = number
            self.changed.append([file for file in files if file])

    def changes_since(self, commit, paths):
        """How many commits after `commit` changed something below `paths`; None: not known."""
        if self.unknown or commit[:8] not in self.order:
            return None
        below = tuple(path.rstrip("/") + "/" for path in paths)
        return sum(any(file.startswith(below) or file in paths for file in files)
                   for files in self.changed[:self.order[commit[:8]]])


@dataclasses.dataclass
class Age:
    """The oldest rows of a result."""
    commit: str
    date: str
    machines: list
    changes: int | None

    def words(self):
        if self.changes is None:
            return ""
        return "older than its code" if self.changes else "as its code is"


def age(result, history, root=ROOT):
    """None where there are no rows, or they do not say where they come from."""
    path = root / RESULTS / result.rows
    found = stamps(path) if path.exists() else []
    if not found:
        return None
    commit, date, _ = min(found, key=lambda row: (row[1], -history.order.get(row[0], 0)))
    machines = list(dict.fromkeys(machine for *_, machine in found))
    return Age(commit, date, machines, history.changes_since(commit, result.depends))
