"""Runs a command that must end with 0 and say something. ctest's PASS_REGULAR_EXPRESSION would take
whatever exit code comes with the right words.

usage: expect_output.py PATTERN COMMAND [ARGUMENT]...

PATTERN is a regular expression over all that the command prints, newlines among it. Exit codes: the
command's own; 1 where it ends with 0 and does not say it.
"""
import re
import subprocess
import sys


def main():
    pattern, command = sys.argv[1], sys.argv[2:]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        print(f"expect_output: expected exit code 0, got {done.returncode}", file=sys.stderr)
        # A signal's number is negative.
        return done.returncode if done.returncode > 0 else 1
    if not re.search(pattern, done.stdout, re.DOTALL):
        print(f"expect_output: expected output that has '{pattern}'", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
