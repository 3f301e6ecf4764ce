#!/usr/bin/env python3
"""The table that a benchmark of tests/bench/e2e/run.py wrote with --json, or an array of rows, as a CSV.

usage: table_csv.py TABLE.json ROWS.csv
"""
import csv
import json
import pathlib
import sys


def main():
    table = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    if isinstance(table, list):
        table = {"complete": True, "rows": table}
    if not table["complete"] or not table["rows"]:
        sys.exit(f"{sys.argv[1]}: expected a whole table with rows; the benchmark was cut off")
    with open(sys.argv[2], "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, table["rows"][0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table["rows"])


if __name__ == "__main__":
    main()
