"""The data set's folder appears whole or not at all."""
import ctypes
import errno
import fcntl
import os
import pathlib
import shutil

from . import manifest
from .errors import Problem

RENAME_EXCHANGE = 2
AT_FDCWD = -100


def exchange(one, other):
    """Two names change places at once. False where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))


class OutputFolder:
    """with OutputFolder(path, force) as folder: ... folder.commit(). Files are written into folder.path, which is
    DIR.partial; without commit() it is removed."""

    def __init__(self, target, force):
        # Not resolved: a link stays a link's problem, and is refused below as what is there already.
        self.target = pathlib.Path(os.path.abspath(target))
        self.path = self.target.with_name(self.target.name + ".partial")
        self._force = force
        self._lock = None
        self.problem = self._look()

    def _look(self):
        """Why DIR cannot be written, or None."""
        if not self.target.parent.is_dir():
            return f"--out: there is no folder {self.target.parent}"
        if not os.path.lexists(self.target):
            return None
        if self.target.is_dir() and not self.target.is_symlink():
            if not any(self.target.iterdir()):
                return None
            if self._force and (self.target / manifest.FILE).is_file():
                return None
            if self._force:
                return f"--out: {self.target} is no data set, so --force does not replace it; name another folder"
            return f"--out: {self.target} is there already; name another folder, or replace it with --force"
        return f"--out: {self.target} is there and is no folder; name another one"

    def __enter__(self):
        try:
            self.path.mkdir(exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise Problem(f"--out: cannot make {self.path}; {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            self._lock = None
            raise Problem(f"--out: another process is writing {self.path}") from error
        # Files that a killed process left.
        for left in self.path.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
        return self

    def __exit__(self, *_):
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            shutil.rmtree(self.path, ignore_errors=True)

    def commit(self):
        os.fsync(self._lock)
        self.problem = self._look()
        if self.problem:
            raise Problem(self.problem)
        try:
            if self.target.is_dir() and any(self.target.iterdir()):
                if not exchange(self.path, self.target):
                    old = self.target.with_name(self.target.name + ".old")
                    self.target.rename(old)
                    self.path.rename(self.target)
                    old.rename(self.path)
                shutil.rmtree(self.path)
            else:
                self.path.rename(self.target)
        except OSError as error:
            raise Problem(f"--out: cannot rename {self.path} to {self.target}; {error.strerror}") from error
        os.close(self._lock)
        self._lock = None
        parent = os.open(self.target.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(parent)
        os.close(parent)
