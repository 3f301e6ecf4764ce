#!/usr/bin/env python3
"""Every measured result of the project: what it is, whether its page says what its rows say, and how it
is measured again. results.toml lists the results, figures/pages says which figure is which number of the
rows. Standard library only.

  tests/bench/results.py list             each result: rows, commit, date, whether its code has changed since
  tests/bench/results.py check            figures of README.md and docs/results against the rows
  tests/bench/results.py fill             writes the rows' numbers into the pages, and how old rows are
  tests/bench/results.py run NAME...      measures again what this machine can, then fills ("all": everything)

`check` fails where a figure differs from its rows, where a figure has no rows, and where a file of
docs/results belongs to no result. Rows that are older than the code they depend on are a warning. Without
git's history, as in a shallow clone, ages are not known, which is said.

Exit codes: 0; 1 where something is wrong; 77 where `run` could measure nothing that was named.
"""
import argparse
import csv
import datetime
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from figures import rate_plot, registry  # noqa: E402
from figures.page import Page  # noqa: E402
from figures.registry import RESULTS, ROOT  # noqa: E402
from figures.rows import STAMP, RowsError, read  # noqa: E402

SKIPPED = 77
BEGIN = "<!-- What follows is written by tests/bench/results.py fill. -->"
PAGES_WITHOUT_ROWS = {"README.md"}  # of docs/results; figures of theirs are other pages'


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="of the tree (default: this one)")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("list", "the results"), ("check", "figures against rows"),
                       ("fill", "rows' numbers into pages")):
        commands.add_parser(name, help=what)
    run = commands.add_parser("run", help="measure again")
    run.add_argument("names", nargs="+", metavar="NAME", help="results, or all")
    run.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin",
                     help="folder of the programs (default %(default)s)")
    run.add_argument("--dry-run", action="store_true", help="say what would run, and run nothing")
    return parser.parse_args()


def state_line(results, ages):
    """One line that says which rows a page has, from when, and which are older than their code."""
    parts, missing = [], []
    for result in results:
        age = ages[result.name]
        if result.not_measured and age is None:
            missing.append(f"`{result.name}`")
            continue
        words = [f"{age.date}, commit {age.commit}" if age else "not stamped"]
        if age and age.words():
            words.append(age.words())
        if result.printed:
            words.append("values as printed, repeats not kept")
        link = pathlib.PurePath(result.rows)
        parts.append(f"[{link.name}]({link}) ({'; '.join(words)})")
    lines = [f"Rows: {', '.join(parts)}."] * bool(parts)
    lines += [f"Not measured with rows: {', '.join(missing)}."] * bool(missing)
    return " ".join(lines) or "This page has no rows of its own."


def without_ages(line):
    """The line less what changes with every commit."""
    return re.sub(r"; (older than its code|as its code is)", "", line)


def with_state(text, line):
    """The page with `line` at its end."""
    return f"{text.split(BEGIN)[0].rstrip()}\n\n{BEGIN}\n\n{line}\n"


def pages_of(root):
    """{name below docs/results, or README of the root: path}."""
    pages = {path.name: path for path in sorted((root / RESULTS).glob("*.md"))}
    return {"/README.md": root / "README.md", **pages}


def loaded(source):
    spec = importlib.util.spec_from_file_location(f"figures.pages.{source.stem}", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(name, path, root):
    """The page, compared with its rows."""
    files = {}

    def rows(file):
        if file not in files:
            files[file] = read(root / RESULTS / file)
        return files[file]
    label = str(path.relative_to(root))
    text = path.read_text(encoding="utf-8").split(BEGIN)[0]
    page = Page(label, text, rows)
    module = "front" if name == "/README.md" else name.removesuffix(".md").lower()
    source = root / "tests/bench/figures/pages" / f"{module}.py"
    if source.exists():
        try:
            loaded(source).check(page, rows, root / RESULTS)
        except (RowsError, OSError, KeyError) as error:
            page.wrong.append(f"{label}: {error!r}")
    return page


def all_ages(results, root):
    history = registry.History(root)
    return {name: registry.age(result, history, root) for name, result in results.items()}, history


def check(root):
    results = registry.load(root)
    ages, history = all_ages(results, root)
    wrong, warnings, unmeasured = [], [], []
    folder = root / RESULTS
    known = {result.rows for result in results.values()} | {"curves_gpt2_small.svg", rate_plot.NAME}
    picture = folder / rate_plot.NAME
    if picture.exists() and picture.read_text(encoding="utf-8") != rate_plot.drawn(folder):
        wrong.append(f"{RESULTS / rate_plot.NAME}: is not what its rows make; `fill` draws it "
                     "anew")
    pages = pages_of(root)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and path.suffix != ".md" and name not in known:
            wrong.append(f"{RESULTS / name}: belongs to no result; register it in {registry.REGISTRY}, or "
                         "delete it")
    for name, result in results.items():
        if result.not_measured and not (folder / result.rows).exists():
            unmeasured.append(name)
        elif not (folder / result.rows).exists():
            wrong.append(f"{name}: has no rows: {RESULTS / result.rows} is missing")
        elif ages[name] is None:
            wrong.append(f"{name}: rows of {RESULTS / result.rows} lack {', '.join(STAMP)}")
        if result.page not in pages:
            wrong.append(f"{name}: its page {RESULTS / result.page} is missing")
        if ages[name] and ages[name].changes:
            warnings.append(f"{name}: {ages[name].changes} commits since {ages[name].commit} changed "
                            "what it depends on")
    for name, path in pages.items():
        page = checked(name, path, root)
        wrong += page.wrong
        wrong += [f"{page.name}:{line}: {number} has no rows: \"{around}\""
                  for line, number, around in page.unbacked()]
        own = [result for result in results.values() if result.page == name]
        if name in ("/README.md", *PAGES_WITHOUT_ROWS):
            continue
        tail = path.read_text(encoding="utf-8").partition(BEGIN)[2].strip()
        if without_ages(tail) != without_ages(state_line(own, ages)):
            wrong.append(f"{page.name}: its last line is not the one of its rows; run results.py fill")
    if history.unknown:
        print(f"how old rows are beside their code is not known: {history.unknown}")
    for warning in warnings:
        print(f"warning: {warning}")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(results)} results, {len(warnings)} older than their code, {len(unmeasured)} never measured, "
          f"{len(pages)} pages, {len(wrong)} errors")
    return 1 if wrong else 0


def fill(root):
    results = registry.load(root)
    ages, _ = all_ages(results, root)
    for name, path in pages_of(root).items():
        before = path.read_text(encoding="utf-8")
        page = checked(name, path, root)
        text = page.filled()
        if name not in ("/README.md", *PAGES_WITHOUT_ROWS):
            own = [result for result in results.values() if result.page == name]
            text = with_state(text, state_line(own, ages))
        if text != before:
            path.write_text(text, encoding="utf-8")
            print(f"{page.name}: written, {len(page.edits)} figures changed")
    picture = root / RESULTS / rate_plot.NAME
    if picture.exists() and picture.read_text(encoding="utf-8") != (text := rate_plot.drawn(root / RESULTS)):
        picture.write_text(text, encoding="utf-8")
        print(f"{RESULTS / rate_plot.NAME}: drawn")
    return 0


def show(root):
    results = registry.load(root)
    ages, history = all_ages(results, root)
    for name, result in results.items():
        age = ages[name]
        state = f"{age.date} {age.commit}" if age else "NOT MEASURED"
        if age and age.changes:
            state += f"  OLDER than its code by {age.changes} commits"
        needs = ", ".join(["root"] * bool(result.needs.get("root")) +
                          [f"{result.needs[key]} {key}" for key in ("gpus", "cores") if key in result.needs])
        how = "by hand" if result.by_hand else "command"
        print(f"{name:32} {how:8} {needs or 'any machine':24} {result.page:24} {state}")
    if history.unknown:
        print(f"how old rows are beside their code is not known: {history.unknown}")
    return 0


def head(root):
    """Commit and date of the tree; "+" where files differ from the commit."""
    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True,
                              check=False).stdout.strip()
    commit = git("rev-parse", "--short=8", "HEAD") or "unknown"
    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return commit + changed, datetime.date.today().isoformat()


def this_machine(result):
    """Its processors, and the GPUs where the result has any."""
    model = next((line.split(":", 1)[1].strip() for line in
                  pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
                  if line.startswith("model name")), platform.machine())
    words = [f"{model}, {os.cpu_count()} cores"]
    if result.needs.get("gpus"):
        listed = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                                capture_output=True, text=True, check=False).stdout.split("\n")
        words.insert(0, f"{result.needs['gpus']} {listed[0]}")
    return ", ".join(words)


def measure(result, programs, root):
    """Runs the command; the new rows replace those that were kept. A sentence where that fails."""
    target = root / RESULTS / result.rows
    folder = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-results-"))
    new, out = folder / target.name, folder / "out"
    out.mkdir()
    environment = {**os.environ, "BIN": str(programs), "OUT": str(out), "ROWS": str(new)}
    ended = subprocess.run(["bash", "-euc", result.command], cwd=root, env=environment, check=False)
    if ended.returncode:  # a failure at the very end may have left all rows: a person looks
        return f"its command ended with {ended.returncode}; the old rows stay, what it wrote is in {folder}"
    if not new.exists() or not new.read_text(encoding="utf-8").strip():
        return f"its command wrote no rows; the old ones stay, what it wrote is in {folder}"
    commit, date = head(root)
    if new.suffix == ".csv" and target.exists():
        columns = [next(csv.reader(path.read_text(encoding="utf-8").splitlines())) for path in (target, new)]
        kept = [[name for name in names if name not in STAMP] for names in columns]
        if kept[0] != kept[1]:
            print(f"{result.name}: columns were {kept[0]}, and are {kept[1]}")
    registry.stamp(new, lambda _: (commit, date), this_machine(result))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(new, target)
    shutil.rmtree(folder)
    return ""


def run(arguments):
    root, results = arguments.root, registry.load(arguments.root)
    names = list(results) if arguments.names == ["all"] else arguments.names
    if unknown := [name for name in names if name not in results]:
        print(f"unknown: {', '.join(unknown)}; results.py list names the results", file=sys.stderr)
        return 1
    done, failed = [], []
    for name in names:
        result = results[name]
        lacks = result.lacks(arguments.programs)
        if not result.command or result.by_hand:
            print(f"{name}: not run: {result.by_hand}")
        elif lacks:
            print(f"{name}: not run: needs {'; '.join(lacks)}")
        elif arguments.dry_run:
            print(f"{name}: would run: {result.command}")
            done.append(name)
        else:
            print(f"{name}: {result.command}", flush=True)
            problem = measure(result, arguments.programs, root)
            (failed if problem else done).append(name)
            if problem:
                print(f"{name}: {problem}", file=sys.stderr)
    if done and not arguments.dry_run:
        fill(root)
    print(f"measured: {', '.join(done) or 'nothing'}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0 if done else SKIPPED


def main():
    arguments = parse()
    arguments.root = arguments.root.resolve()
    try:
        if arguments.command == "run":
            return run(arguments)
        return {"list": show, "check": check, "fill": fill}[arguments.command](arguments.root)
    except registry.RegistryError as error:
        print(f"results: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
