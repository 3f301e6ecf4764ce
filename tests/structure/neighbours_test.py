"""Only run/plan/chain.h derives a neighbour from a number: looks for `stage + 1` and its like elsewhere.

usage: neighbours_test.py SOURCE_DIR

What the search takes for such a line though it is none stands in EXCEPTIONS, with the reason. An exception
that no line needs any more is an error, too.
"""
import pathlib
import re
import sys

# The folders that know of stages. base, codec and deploy/cluster do not.
PARTS = ["proto", "run", "transport", "worker", "planner", "coordinator", "cli", "deploy/sweep", "programs"]
HOME = "run/plan/chain.h"

# A stage, boundary, edge or cell by its name, or s and b as the simulator's arrays are indexed by.
NAME = r"(?:[a-z_]*(?:stage|boundary|edge|cell|peer|upper|lower|neighbour)[a-z_]*|stages?|[sb])"
CALLS = r"(?:\(\)|\.size\(\)|\.value\(\)|\.index|\.stage|->index|_size\(\))*"
NEIGHBOUR = re.compile(rf"\b{NAME}{CALLS}\s*[-+]\s*1\b(?![.\d])")
# `workers[i + 1]`: the next one of a list in pipeline order.
NEXT_OF_LIST = re.compile(r"\b(?:workers|stages|cells|candidates|interfaces|ratios|reports)\w*\)?\[\w+\s*[-+]\s*1\]")

# (file, what the line has in it, why it is none)
EXCEPTIONS = [
    ("planner/split.cc", "best(stages + 1", "a table of dynamic programming has a row for none"),
    ("planner/split.cc", "assign(stages + 1", "the same table's choices"),
    ("planner/split.cc", "s - 1", "rows of that table: splits over so many stages, not neighbours"),
    ("coordinator/state/ledger/stage_record.cc", "stages.size() - 1", "the place of what was just added to a list"),
    ("run/plan/plan.cc", "cells[i - 1].id", "ids in a list are compared, to see that they are in order"),
]


def code_of(text):
    """Lines with their numbers, without comments and the contents of strings."""
    for number, line in enumerate(text.splitlines(), start=1):
        line = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
        yield number, line.split("//", 1)[0]


def is_neighbour(line):
    return bool(NEIGHBOUR.search(line) or NEXT_OF_LIST.search(line))


def find(root):
    """(file, line number, line) of every line that looks like it."""
    for part in PARTS:
        for path in sorted((root / part).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            relative = path.relative_to(root).as_posix()
            if relative == HOME:
                continue
            for number, line in code_of(path.read_text(encoding="utf-8")):
                if is_neighbour(line):
                    yield relative, number, line.strip()


def check_the_search():
    for line in ["const uint32_t peer = stage + 1;", "plan.stages(stage() - 1)", "cost.stages[s - 1].forward",
                 "for (; boundary + 1 < workers.size();)", "workers[i + 1]", "stage.index + 1 == run.stages.size()",
                 "options_.stage.value() + 1 == options_.stages"]:
        assert is_neighbour(line), f"not found: {line}"
    for line in ["digits[i - 1]", "step + 1", "microbatch - 1", "s + 1.5", "layers + 1"]:
        assert not is_neighbour(line), f"found: {line}"


def main():
    check_the_search()
    errors, used = [], set()
    for relative, number, line in find(pathlib.Path(sys.argv[1])):
        matching = [e for e in EXCEPTIONS if e[0] == relative and e[1] in line]
        used.update(matching)
        if not matching:
            errors.append(f"{relative}:{number}: {line}\n    ask the assignment for its edges, or {HOME}")
    errors += [f"{e[0]}: no line needs the exception for '{e[1]}' any more" for e in EXCEPTIONS if e not in used]
    print("\n".join(errors) or f"a neighbour follows from a number in {HOME} alone ({len(EXCEPTIONS)} exceptions)")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
