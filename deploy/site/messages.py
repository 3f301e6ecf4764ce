#!/usr/bin/env python3
"""Pages of the site that list what the programs say: error messages and events of runs, out of the sources.

usage: deploy/site/messages.py errors|events

The site makes the pages when it is built (hooks.py), so they are never behind the sources.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODES = {
    "InvalidArgument": "what was given is wrong",
    "FailedPrecondition": "a person has to act",
    "NotFound": "there is no such thing",
    "AlreadyExists": "it is there already",
    "PermissionDenied": "the caller has no right to it",
    "Unauthenticated": "the caller is not known",
    "ResourceExhausted": "a limit was reached",
    "Unavailable": "try again later",
    "DeadlineExceeded": "no answer came in time",
    "Aborted": "this attempt at a run is over; the run begins another",
    "DataLoss": "data are damaged",
}
CALL = re.compile(r"\b(?:absl::)?(" + "|".join(CODES) + r")(?:Error)?\(\s*(?:fmt::format\(\s*)?((?:\"(?:[^\"\\]|\\.)*\"\s*)+)")
EVENT = re.compile(r"(?:\bLog|\bLogEvent)\(\s*[^\";]*?\"(state|worker|checkpoint|link|loss|note|hook|verify)\",\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+)")
TEXT = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")
PARTS = (("cli", "The command line"), ("run", "Run files, models and data"), ("coordinator", "The coordinator"), ("planner", "The planner"),
         ("worker", "Workers"), ("transport", "Links and collectives"), ("codec", "Codecs"), ("proto", "Members, certificates and calls"),
         ("deploy", "Local clusters, sweeps, data"), ("programs", "Programs' flags"), ("base", "Files, addresses, other servers"))
EVENTS = {"state": "The run is in another state, and why.", "worker": "A worker came, went, or does another part.",
          "checkpoint": "Checkpoints and copies of state.", "link": "Links between workers.", "loss": "Validations.",
          "note": "What the plan decided, and what somebody should know.", "hook": "Programs after checkpoints.",
          "verify": "Workers that contradict each other or themselves."}
SHORTEST = 14  # letters; shorter ones say nothing by themselves: they stand behind what they are about


def message_of(literals):
    """The text of adjacent literals, with … for what is filled in."""
    text = "".join(TEXT.findall(literals))
    text = re.sub(r"\{[^{}]*\}", "…", text.replace("{{", "\0").replace("}}", "\1")).replace("\0", "{").replace("\1", "}")
    return text.replace("\\n", " ").replace('\\"', '"').replace("\\\\", "\\").strip()


def says_something(text):
    return len(re.sub(r"[\W…]", "", text)) >= SHORTEST


def sources(folder):
    return sorted(path for path in folder.rglob("*.*") if path.suffix in (".cc", ".h", ".cu"))


def cell(text):
    return text.replace("|", "\\|").replace("`", "'")


def errors(root=ROOT):
    lines = ["# Error messages", "", "What the programs and commands say when something does not go, in the order of the alphabet; … stands for a name or a number. Search "
             "for the part of a message that has neither. A message begins with what it is about, such as a file or a key.", ""]
    for folder, title in PARTS:
        found = {}
        for path in sources(root / folder):
            for code, literals in CALL.findall(path.read_text(encoding="utf-8", errors="replace")):
                text = message_of(literals)
                if says_something(text):
                    found.setdefault(text, code)
        if found:
            lines += [f"## {title}", "", "| message | means |", "| --- | --- |"]
            lines += [f"| `{cell(text)}` | {CODES[code]} |" for text, code in sorted(found.items(), key=lambda one: one[0].lower().lstrip("…:' "))]
            lines.append("")
    return "\n".join(lines)


def events(root=ROOT):
    found = {kind: set() for kind in EVENTS}
    for path in sources(root / "coordinator/state"):
        for kind, literals in EVENT.findall(path.read_text(encoding="utf-8", errors="replace")):
            if says_something(text := message_of(literals)):
                found[kind].add(text)
    lines = ["# Events of runs", "", "`longhaul events RUN`, `longhaul watch` and the dashboard show them, with the time and the attempt. … stands for a name or a number.", ""]
    for kind, what in EVENTS.items():
        if found[kind]:
            lines += [f"## {kind}", "", what, "", *(f"- `{cell(text)}`" for text in sorted(found[kind])), ""]
    return "\n".join(lines)


PAGES = {"reference/errors.md": errors, "reference/events.md": events}


def main():
    page = sys.argv[1] if len(sys.argv) == 2 else ""
    if f"reference/{page}.md" not in PAGES:
        sys.exit(__doc__.strip())
    print(PAGES[f"reference/{page}.md"](), end="")


if __name__ == "__main__":
    main()
