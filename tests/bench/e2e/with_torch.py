"""What a Python has of torch, asked of a program in it that prints that when called with `versions`."""
import json
import subprocess
import sys

from cluster import Failed

SKIPPED = 77


def versions_of(python, program):
    """None where no torch can be imported, which is then said."""
    done = subprocess.run([python, program, "versions"], capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        print(done.stdout.strip() + "; for this program by --python PATH", file=sys.stderr)
        return None
    if done.returncode != 0:
        raise Failed(f"{python} {program.name} versions: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])
