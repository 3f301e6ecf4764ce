"""docs/design/fuzzing.md names every fuzz target, and no other; every target has seeds.

usage: page_test.py SOURCE_DIR
"""
import pathlib
import re
import sys


def main():
    root = pathlib.Path(sys.argv[1])
    lists = [path for path in root.glob("*/**/CMakeLists.txt") if path.relative_to(root).parts[0] not in ("build", ".deps")]
    targets = {name for path in lists for name in re.findall(r"lh_fuzzer\((\w+)_fuzz ", path.read_text(encoding="utf-8"))}
    assert len(targets) > 40, f"found only {len(targets)} targets"
    page = (root / "docs/design/fuzzing.md").read_text(encoding="utf-8")
    # The first cell of a row has no names of targets.
    cells = "|".join(line.split("|", 2)[2] for line in page.splitlines() if line.startswith("| ") and line.count("|") > 2)
    named = {name for name in re.findall(r"`([a-z0-9_]+)`", cells) if (root / "tests/fuzz/corpus" / name).is_dir()}
    for name in sorted(targets - named):
        print(f"docs/design/fuzzing.md: the target {name} is missing, or tests/fuzz/corpus/{name} is")
    for name in sorted(named - targets):
        print(f"docs/design/fuzzing.md: there is no target {name}")
    assert targets == named, "the page and the targets differ"
    print(f"ok: {len(targets)} fuzz targets, all on the page and with seeds")


if __name__ == "__main__":
    main()
