#!/usr/bin/env python3
"""Prints the reference of commands and flags, out of what the programs say of themselves.

usage: deploy/site/commands.py BIN_DIR > docs/reference/commands.md
"""
import os
import pathlib
import re
import subprocess
import sys

PROGRAMS = ["longhaul", "longhaul-coordinator", "longhaul-worker", "longhaul-codec", "longhaul-generate"]
HEAD = """# Commands and flags

<!-- deploy/site/commands.py makes this page of what the programs print; a test compares both. -->

Exit codes of all programs: 0 done, 1 failed, 2 wrong usage, 130 interrupted. `--json` of `longhaul` prints JSON: one document, or one object a line where
a command streams. Daemons read flags from a YAML file, too (`--config`); its keys are the flags' long names.
"""


def help_of(program, words):
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=False,
                          env={**os.environ, "COLUMNS": "100", "HOME": "/"})
    if done.returncode != 0:
        raise SystemExit(f"commands.py: {program.name} {' '.join(words)} --help ended with {done.returncode}: {done.stderr}")
    return done.stdout.rstrip()


def subcommands(text):
    """Names in the section Subcommands of a help text."""
    section = re.search(r"^(?:Subcommands|SUBCOMMANDS):\n((?:  .*\n?)+)", text, re.MULTILINE)
    return re.findall(r"^  ([a-z][a-z0-9-]*)\b", section.group(1), re.MULTILINE) if section else []


def sections(program, words=()):
    text = help_of(program, words)
    # Only the first line of a help text is about what the command does; "Usage" begins the rest.
    level = "#" * min(4, 2 + len(words))
    yield f"{level} {' '.join([program.name, *words])}\n\n```text\n{text}\n```\n"
    for name in subcommands(text):
        yield from sections(program, (*words, name))


def page(folder):
    return "\n".join([HEAD, *(part for name in PROGRAMS for part in sections(folder / name))])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    print(page(pathlib.Path(sys.argv[1])), end="")


if __name__ == "__main__":
    main()
