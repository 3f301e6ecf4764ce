"""Compares the reference of commands with what the programs print.

usage: commands_test.py SOURCE_DIR BIN_DIR
"""
import difflib
import pathlib
import subprocess
import sys


def main():
    source, programs = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    made = subprocess.run([sys.executable, source / "deploy/site/commands.py", programs], capture_output=True, text=True,
                          check=True, timeout=60).stdout
    kept = (source / "docs/reference/commands.md").read_text()
    if made == kept:
        print(f"ok: {made.count('```text')} commands")
        return 0
    print("\n".join(difflib.unified_diff(kept.splitlines(), made.splitlines(), "the page", "the programs", lineterm="", n=1)))
    print("write the page anew: deploy/site/commands.py build/release/bin > docs/reference/commands.md")
    return 1


if __name__ == "__main__":
    sys.exit(main())
