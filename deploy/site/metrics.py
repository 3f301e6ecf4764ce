#!/usr/bin/env python3
"""Prints the reference of metrics, out of what the daemons say of themselves.

usage: deploy/site/metrics.py BIN_DIR > docs/reference/metrics.md
"""
import pathlib
import subprocess
import sys

HEAD = """# Metrics, one by one

<!-- deploy/site/metrics.py makes this page of what the daemons print with --dump-metrics; a test compares both. -->

How they are served, scraped and guarded: [metrics](../guide/metrics.md). On the coordinator's page the metrics of workers have the labels `worker` and
`worker_id` first. `part` is compute, forward, backward, optimizer, wait_input, wait_gradient, wait_codec, as far as a metric knows it.
"""
SECTIONS = (
    ("longhaul-coordinator", "longhaul_coordinator_worker_", "The coordinator, of workers"),
    ("longhaul-coordinator", "longhaul_coordinator_", "The coordinator, of itself"),
    ("longhaul-coordinator", "longhaul_run_", "The coordinator, of runs"),
    ("longhaul-coordinator", "longhaul_stage_", "The coordinator, of stages"),
    ("longhaul-coordinator", "longhaul_link_", "The coordinator, of links of runs"),
    ("longhaul-coordinator", "", "The coordinator, of measured links"),
    ("longhaul-worker", "longhaul_worker_link_", "A worker, of its links"),
    ("longhaul-worker", "", "A worker, of itself and its stage"),
)


def page(folder):
    rows = {}
    for program in ("longhaul-coordinator", "longhaul-worker"):
        text = subprocess.run([folder / program, "--dump-metrics"], capture_output=True, text=True, check=True).stdout
        head, rows[program] = text.splitlines()[:2], text.splitlines()[2:]
    parts = [HEAD]
    for program, prefix, title in SECTIONS:
        mine = [row for row in rows[program] if row.startswith(f"| `{prefix}")]
        rows[program] = [row for row in rows[program] if row not in mine]
        parts.append("\n".join([f"## {title}", "", *head, *mine, ""]))
    return "\n".join(parts)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    print(page(pathlib.Path(sys.argv[1])), end="")


if __name__ == "__main__":
    main()
