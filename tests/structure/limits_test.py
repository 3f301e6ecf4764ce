"""Holds docs/design/limits.md and the code together.

usage: limits_test.py SOURCE_DIR

A row of the page may name constants beside the files: `coordinator/rpc/intake.h` `kMaxDevices`. Each has to be defined
in one of those files, and its value has to stand in the row's limit. Every constant kMax... of the parts below has to be
named on the page, or stand in EXCEPTIONS with the reason. An exception that no constant needs is an error, too.
"""
import ast
import pathlib
import re
import sys

PAGE = "docs/design/limits.md"
PARTS = ["coordinator", "proto/rpc"]
EXCEPTIONS = {
    ("coordinator/rpc/shell.h", "kMaxSessions"): "kMaxWorkerStreams, under the name that the shell had first",
    ("coordinator/rpc/follow_session.h", "kMaxOutgoingBytes"): "kMaxChangeBytes; a standby is an admin's",
    ("coordinator/standby/change_pieces.h", "kMaxChangeBytes"): "between a coordinator and its standby alone",
    ("coordinator/state/sessions/sessions.cc", "kMaxHelloText"): "kMaxHelloTextBytes again, for tests without the shell",
    ("coordinator/state/sessions/sessions.cc", "kMaxReplaced"): "older processes of one worker",
    ("coordinator/store/blob_store.h", "kMaxUploads"): "the same as kMaxUploads of member_limits.h, in all",
    ("proto/rpc/channel.h", "kMaxErrorBytes"): "what the coordinator itself says",
}
DEFINITION = re.compile(
    r"constexpr\s+(?P<type>[\w:]+(?:<\w+>)?)\s+(?P<body>k[A-Z]\w*\s*(?:=|\{)[^;]*);", re.DOTALL)
ONE = re.compile(r"(k[A-Z]\w*)\s*(?:=\s*([^,{]*(?:\{[^}]*\}[^,]*)?)|\{([^}]*)\})")
UNITS = {"Milliseconds": 1e-3, "Seconds": 1, "Minutes": 60, "Hours": 3600}
OPERATORS = {ast.LShift: lambda a, b: a << b, ast.Mult: lambda a, b: a * b, ast.Add: lambda a, b: a + b,
             ast.Sub: lambda a, b: a - b, ast.Div: lambda a, b: a / b}


def number(text):
    """The value of an expression of numbers, or None."""
    text = re.sub(r"(?<=\d)'(?=\d)", "", text)
    text = re.sub(r"\b[\w:]+\{([^{}]*)\}", r"(\1)", text)
    text = re.sub(r"\babsl::(\w+)\(([^()]*)\)", lambda m: f"(({m[2]})*{UNITS.get(m[1], 'None')})", text)
    text = re.sub(r"(?<=\d)[uUlL]+\b", "", text).strip()

    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(text)

    try:
        return value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError):
        return None


def constants(path):
    """{name: (values, whether they are a time)} of one file; no values: not numbers."""
    found = {}
    for definition in DEFINITION.finditer(re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))):
        for name, expression, braces in ONE.findall(definition["body"]):
            parts = re.findall(r"=([^,=]+)", braces) if braces else [expression]
            values = [number(part) for part in parts]
            found[name] = ([] if None in values else values, "Duration" in definition["type"])
    return found


def writings(value, is_time):
    """How a person may write it."""
    if is_time:
        return ([f"{value:g} s"] + [f"{value / 60:g} minutes"] * (value >= 60) +
                [f"{value / 3600:g} hours"] * (value >= 3600))
    texts = [f"{value:,.0f}", f"{value:.0f}", f"{value:g}"]
    for unit, size in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if value >= size and value % size == 0:
            texts.append(f"{value / size:,.0f} {unit}")
    return texts


def stands_in(text, cell):
    return re.search(rf"(?<![\d.,]){re.escape(text)}(?![\d]|,\d|\.\d)", cell) is not None


def rows(page):
    """(line number, limit, where) of every row of the tables."""
    for line_number, line in enumerate(page.splitlines(), start=1):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("|") and len(cells) >= 3 and not cells[1].startswith("---"):
            yield line_number, cells[1], cells[2]


def paths_of(root, where, last):
    """The files that a cell names; "same" are those of the row before. A name without its folder is one of the folder before, or of the state machine."""
    found = []
    for text in re.findall(r"`([\w./]+\.(?:h|cc))`", where):
        folders = ["", *(str(path.parent.relative_to(root)) + "/" for path in reversed(found + last)), "coordinator/"]
        found += [root / (folder + text) for folder in folders if (root / (folder + text)).exists()][:1]
    return found + last if where.startswith("same") or not found else found


def check(root):
    page, named, last = (root / PAGE).read_text(encoding="utf-8"), set(), []
    for line_number, limit, where in rows(page):
        last = paths_of(root, where, last)
        for name in re.findall(r"`(k[A-Z]\w*)`", where):
            known = {path.relative_to(root).as_posix(): constants(path) for path in last}
            files = [file for file, of_file in known.items() if name in of_file]
            if not files:
                yield f"{PAGE}:{line_number}: {name} is in none of {', '.join(known) or 'no file'}"
            for file in files:
                named.add((file, name))
                values, is_time = known[file][name]
                for value in values:
                    if not any(stands_in(text, limit) for text in writings(value, is_time)):
                        yield (f"{PAGE}:{line_number}: {name} of {file} is {writings(value, is_time)[-1]}, and the "
                               f"limit says '{limit}'")
    unused = set(EXCEPTIONS)
    for part in PARTS:
        for path in sorted((root / part).rglob("*")):
            file = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cc") or "/fuzz/" in file:
                continue
            for name in constants(path):
                if not re.match(r"kMax[A-Z]", name) or (file, name) in named:
                    continue
                if (file, name) not in EXCEPTIONS:
                    yield f"{file}: {name} is not named in {PAGE}: `{file}` `{name}` in the column 'where' of its row"
                unused.discard((file, name))
    for file, name in sorted(unused):
        yield f"{__file__}: no constant needs the exception of {name} in {file}"


def check_the_search():
    assert number("uint64_t{16} << 20") == 16 << 20 and number("1'000") == 1000 and number("kOther") is None
    assert number("absl::Hours(24)") == 86400 and number("{64} << 10") is None
    assert stands_in("64", "64, then") and not stands_in("64", "1,064") and not stands_in("64", "64,000")
    assert stands_in("64 KiB", "at most 64 KiB") and "16 MiB" in writings(16 << 20, False)
    assert "24 hours" in writings(86400, True)


def main():
    check_the_search()
    problems = list(check(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(problems) or "ok: the page of limits says what the code does")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
