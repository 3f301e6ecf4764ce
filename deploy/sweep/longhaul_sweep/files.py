"""Files that are whole whenever the program is killed, and rows of CSV."""
import contextlib
import csv
import fcntl
import os

PENDING = ".pending"


def write(path, text):
    """All of it or nothing, also where the machine dies."""
    fresh = path.with_name(path.name + PENDING)
    with fresh.open("w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_pending(folder):
    """Removes what processes that were killed while they wrote have left."""
    for left in folder.glob("*" + PENDING):
        with contextlib.suppress(OSError):
            left.unlink()


def lock(path):
    """A file that holds the lock until it is closed; None where another process has it."""
    # pylint: disable-next=consider-using-with  # The caller holds it.
    file = open(path, "a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def read_rows(path):
    """The rows of a CSV file with a header; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def append_rows(path, fields, rows):
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if is_new:
            writer.writeheader()
        writer.writerows(rows)
