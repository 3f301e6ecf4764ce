"""Git LFS keeps a pointer of three lines in the place of a file that was not fetched."""
from .errors import Problem

POINTER = b"version https://git-lfs.github.com/spec/"


def refuse_pointer(path):
    """Problem for a pointer. OSError where the file cannot be read."""
    with open(path, "rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise Problem(f"{path}: a Git LFS pointer, not the file itself; `git lfs pull` fetches the file")
