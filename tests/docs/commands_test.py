"""Compares the references of commands and of metrics with what the programs print.

usage: commands_test.py SOURCE_DIR BIN_DIR
"""
import difflib
import pathlib
import subprocess
import sys


PAGES = ("commands", "metrics")


def compare(source, programs, page):
    made = subprocess.run([sys.executable, source / f"deploy/site/{page}.py", programs], capture_output=True, text=True,
                          check=True, timeout=60).stdout
    kept = (source / f"docs/reference/{page}.md").read_text()
    if made == kept:
        print(f"ok: {page}, {len(made.splitlines())} lines")
        return True
    print("\n".join(difflib.unified_diff(kept.splitlines(), made.splitlines(), "the page", "the programs", lineterm="", n=1)))
    print(f"write the page anew: deploy/site/{page}.py build/release/bin > docs/reference/{page}.md")
    return False


def main():
    source, programs = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    return 0 if all([compare(source, programs, page) for page in PAGES]) else 1


if __name__ == "__main__":
    sys.exit(main())
