"""Errors that people read."""
import re


class Problem(Exception):
    """A sentence for people: what was expected, what came, what to do."""


def without_password(text):
    """Replaces the user and the password of addresses: packages put whole addresses into their errors."""
    return re.sub(r"(\w+://)[^/@\s]+@", r"\1...@", text)


def one_line(error):
    """An exception's first line, without what a terminal would obey."""
    words = (str(error).strip().splitlines() or [""])[0].rstrip(" .")
    words = "".join(char if char.isprintable() else "\ufffd" for char in words)
    return without_password(words) or type(error).__name__
