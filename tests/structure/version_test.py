#!/usr/bin/env python3
"""Holds that the version stands in CMakeLists.txt alone, and that the changelog's newest release is that version.

Usage: version_test.py SOURCE_ROOT
"""
import pathlib
import re
import sys

# Files that name a version of longhaul for people or packagers, where a second place would be written by mistake.
WITHOUT = ["CITATION.cff", "python/pyproject.toml", "python/setup.py", "README.md", "mkdocs.yml"]


def problems(root):
    version = re.search(r"project\(longhaul VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text()).group(1)
    headings = re.findall(r"^## (\d[0-9.]*)", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if headings[:1] != [version]:
        yield f"CHANGELOG.md: expected the newest release to be {version}, as in CMakeLists.txt, got {headings[:1]}"
    for name in WITHOUT:
        path = root / name
        if path.exists() and (found := re.search(rf"^.*(?:^version\b|\b{re.escape(version)}\b).*$", path.read_text(),
                                                 re.MULTILINE)):
            yield f"{name}: `{found.group(0).strip()}` repeats the version of CMakeLists.txt"


def main():
    root = pathlib.Path(sys.argv[1])
    found = list(problems(root))
    print("\n".join(found) or "ok: the version stands in CMakeLists.txt")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
