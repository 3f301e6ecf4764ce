"""longhaul's programs as a Python package has them: a portable bundle in this folder, and what starts its programs."""
import os
import pathlib
import sys

BUNDLE = pathlib.Path(__file__).resolve().parent / "bundle"


def main():
    """Becomes the program of the bundle that has the name of the command."""
    name = pathlib.Path(sys.argv[0]).name
    program = BUNDLE / ("install" if name == "longhaul-install" else f"bin/{name}")
    # The packages of this Python come first: torch for workers, tokenizers for `longhaul data`.
    os.environ.setdefault("LONGHAUL_PYTHON", sys.executable)
    os.execv(program, [str(program), *sys.argv[1:]])
