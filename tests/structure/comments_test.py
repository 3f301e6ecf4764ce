#!/usr/bin/env python3
"""Holds how comments begin: with the thing and its verb, not with a genitive.

Usage: comments_test.py SOURCE_ROOT
Looks at the first words of each block of comments (and docstring of Python) in the sources.
"""

import ast
import io
import pathlib
import re
import sys
import tokenize

BANNED = ("Of", "Those", "Whose", "That which", "What it", "In whose", "Whence")
BANNED_START = re.compile(r"(?:%s)\b" % "|".join(BANNED))
C_LIKE = {".h", ".cc", ".cu", ".cuh", ".proto", ".js", ".css"}
HASH_LIKE = {".sh", ".cmake", ".yaml", ".yml"}
# A token of C++ that may hide the mark of a comment, or a comment.
C_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)

SKIPPED = {".git", ".ci", ".deps", "build", "docs"}


def blocks(comments, lines):
    """Joins (line, column, text) of comments that stand alone on consecutive lines."""
    result = []
    last = None
    for line, column, text in comments:
        alone = not lines[line - 1][:column].strip()
        if not (alone and last == (line - 1, column)):
            result.append((line, text))
        last = (line, column) if alone else None
    return result


def c_comments(text):
    found = []
    for match in C_TOKEN.finditer(text):
        if match.group("comment"):
            start = match.start()
            line = text.count("\n", 0, start) + 1
            column = start - (text.rfind("\n", 0, start) + 1)
            found.append((line, column, match.group("comment").lstrip("/*").strip()))
    return found


def python_comments(text):
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found.append((*token.start, token.string.lstrip("#").strip()))
    return found


def docstrings(text):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and (doc := ast.get_docstring(node)):
            yield node.body[0].lineno, doc


def hash_comments(lines):
    """Comments of shell, CMake and YAML: a # that begins a word, which misses none at a line's start."""
    for number, line in enumerate(lines, 1):
        if match := re.search(r"(?:^|\s)#+\s*(.*)", line):
            yield number, match.start() + len(match.group(0)) - len(match.group(0).lstrip()), match.group(1)


def first_words(path, text):
    """Line and text of each comment's first line."""
    lines = text.split("\n")
    if path.suffix in C_LIKE:
        return blocks(c_comments(text), lines)
    if path.suffix == ".py":
        return blocks(python_comments(text), lines) + list(docstrings(text))
    return blocks(list(hash_comments(lines)), lines)


def is_source(path):
    known = C_LIKE | HASH_LIKE | {".py"}
    return path.suffix in known or path.name == "CMakeLists.txt"


def self_test():
    cases = [
        ("a.h", '// Of a link.\nint x;\n', 1),
        ("a.h", '// Names the link.\n// Of it nothing is kept.\n', 0),
        ("a.h", 'const char* s = "// Of a link";\n', 0),
        ("a.h", 'int x = 1\'000;  // Those of a link\n', 1),
        ("a.py", 'x = "# Of a link"\n# Whose link\n', 1),
        ("a.py", 'def f():\n    """That which is sent."""\n', 1),
        ("a.py", '# That the link is up.\n', 0),
        ("a.sh", 'echo "x"  # What it says\n', 1),
        ("a.h", '// Office hours.\n', 0),
    ]
    for name, text, expected in cases:
        found = [w for _, w in first_words(pathlib.Path(name), text) if BANNED_START.match(w)]
        if len(found) != expected:
            raise AssertionError(f"{name}: {text!r} gave {found}")


def main():
    self_test()
    root = pathlib.Path(sys.argv[1])
    names = sorted(
        str(path.relative_to(root))
        for folder in root.iterdir()
        if folder.is_dir() and folder.name not in SKIPPED
        for path in folder.rglob("*")
    )
    bad = []
    seen = 0
    for name in names:
        path = root / name
        if not is_source(path) or not path.is_file() or "/.venv/" in name:
            continue
        seen += 1
        for line, words in first_words(path, path.read_text(errors="replace")):
            if BANNED_START.match(words):
                bad.append(f"{name}:{line}: {words}")
    for entry in bad:
        print(entry)
    if bad:
        print(f"{len(bad)} comments begin with one of: {', '.join(BANNED)}. Say what the thing is or does.")
        return 1
    print(f"{seen} sources: no comment begins with one of: {', '.join(BANNED)}.")
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
