#!/usr/bin/env python3
"""Counts lines of code, without comments and blank lines, of product and tests.

  tests/structure/count_lines.py                 the working tree
  tests/structure/count_lines.py --at v1.0       a revision of git
  tests/structure/count_lines.py --since v1.0    the working tree, and how it differs from a revision
"""
import argparse
import collections
import io
import os
import re
import subprocess
import sys
import tokenize

PRODUCT = ("base", "cli", "cmake", "codec", "coordinator", "deploy", "planner", "programs", "proto", "python",
           "run", "transport", "worker")
SLASHES = (".h", ".cc", ".cu", ".cuh", ".proto", ".js")
HASHES = (".sh", ".cmake")
# Strings are kept, so that a "//" in a URL does not begin a comment.
STRING = r'R"(?P<raw>[^\s()\\]{0,16})\([\s\S]*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`(?:\\.|[^`\\])*`'
C_TOKEN = re.compile(rf"(?P<string>{STRING})|//[^\n]*|/\*[\s\S]*?\*/")
DIGITS = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")


def without_c_comments(text):
    def keep(match):
        return match.group() if match.group("string") else "\n" * match.group().count("\n")
    return C_TOKEN.sub(keep, DIGITS.sub("", text))


def python_lines(text):
    """Lines that bear a token of code. A string that is a statement is documentation."""
    lines, statement = set(), []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                if any(each.type != tokenize.STRING for each in statement):
                    for each in statement:
                        lines.update(range(each.start[0], each.end[0] + 1))
                statement = []
            elif token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                statement.append(token)
    except (tokenize.TokenError, IndentationError):
        return sum(bool(line.strip()) for line in text.splitlines())
    return len(lines)


def count(path, text):
    """The lines of code in a file; None where it is no code."""
    name = path.rsplit("/", 1)[-1]
    if name.endswith(".min.js") or name.endswith(".min.css"):
        return None  # somebody else's
    if name.endswith(".py"):
        return python_lines(text)
    if name.endswith(SLASHES):
        text = without_c_comments(text)
    elif name.endswith(".css"):
        text = re.sub(r"/\*[\s\S]*?\*/", "", text)
    elif name.endswith(".html"):
        text = re.sub(r"<!--[\s\S]*?-->", "", text)
    elif name.endswith(HASHES) or name == "CMakeLists.txt":
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
    else:
        return None
    return sum(bool(line.strip()) for line in text.splitlines())


def git(*words):
    return subprocess.run(("git",) + words, check=True, capture_output=True).stdout


def files(revision):
    """Paths and texts of a revision, or of the working tree where it is None."""
    folders = PRODUCT + ("tests",)
    if revision is None:
        for path in git("ls-files", "-z", "--", *folders).decode().split("\0"):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield path, file.read()
            except OSError:
                continue
        return
    rows = [row.split("\t", 1) for row in git("ls-tree", "-r", "-z", revision, "--", *folders).decode().split("\0") if row]
    ids = "".join(head.split()[2] + "\n" for head, _ in rows)
    blobs = io.BytesIO(subprocess.run(("git", "cat-file", "--batch"), input=ids.encode(), check=True,
                                      capture_output=True).stdout)
    for _, path in rows:
        size = int(blobs.readline().split()[2])
        yield path, blobs.read(size + 1)[:size].decode(errors="replace")


def counts(revision):
    result = collections.Counter()
    for path, text in files(revision):
        lines = count(path, text)
        if lines is not None:
            result[path.split("/", 1)[0]] += lines
    return result


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser = argparse.ArgumentParser(description="Counts lines of code without comments and blank lines.")
    parser.add_argument("--at", metavar="REV", help="count a revision of git, not the working tree")
    parser.add_argument("--since", metavar="REV", help="compare with this revision")
    arguments = parser.parse_args()
    now = counts(arguments.at)
    before = counts(arguments.since) if arguments.since else None

    def row(name, names):
        line = f"{name:<12} {sum(now[each] for each in names):>8}"
        if before is not None:
            line += f" {sum(now[each] - before[each] for each in names):>+8}"
        print(line)
    for folder in PRODUCT:
        if now[folder] or (before and before[folder]):
            row(folder, (folder,))
    row("product", PRODUCT)
    row("tests", ("tests",))


if __name__ == "__main__":
    sys.exit(main())
