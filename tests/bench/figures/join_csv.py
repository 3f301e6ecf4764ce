#!/usr/bin/env python3
"""Joins CSVs with the same columns into one.

usage: join_csv.py ROWS.csv PART.csv...
"""
import pathlib
import sys


def main():
    parts = [pathlib.Path(name).read_text(encoding="utf-8").splitlines() for name in sys.argv[2:]]
    for name, part in zip(sys.argv[2:], parts):
        if not part or part[0] != parts[0][0]:
            sys.exit(f"{name}: expected the columns {parts[0][0] if parts[0] else 'of rows'}, got "
                     f"{part[0] if part else 'nothing'}")
    lines = parts[0][:1] + [line for part in parts for line in part[1:]]
    pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
