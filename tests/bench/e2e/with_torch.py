"""What a Python has of torch, asked of a program in it that prints that when called with `versions`."""
import json
import os
import subprocess
import sys

from cluster import Failed, call

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


def libraries_of(python):
    """Where the LibTorch is that `python` imports."""
    return call([python, "-c", "import os, torch; print(os.path.dirname(torch.__file__) + '/lib')"]).strip()


def environment_of(program, torch_libraries):
    """LibTorch where the program does not find its own, and what lies beside it. `torch_libraries`: the
    folder, or a function that finds it."""
    if "not found" not in call(["ldd", program]):
        return None
    found = torch_libraries() if callable(torch_libraries) else torch_libraries
    paths = [str(program.parent.parent / "lib"), found, os.environ.get("LD_LIBRARY_PATH")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}
