#!/usr/bin/env python3
"""Takes the picture of the dashboard that README.md shows: a small model trains on four workers of this machine.

usage: deploy/site/picture.py BIN_DIR docs/dashboard.png

Needs Chromium (deploy/setup.sh --test). The run is real, and its links are those of the loopback interface.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import browser as browsers  # noqa: E402

STEPS = 60  # when the picture is taken
SIZE = (1440, 1140)
MOST_BYTES = 300_000
RUN = """\
name: small-gpt
model: { family: gpt, layers: 8, hidden: 128, heads: 4, context: 128 }
data: { text: ["/usr/share/common-licenses/*-[0-9]*"], tokenizer: bytes, seed: 1 }
validation: { share: 0.05, every: 10, samples: 8 }
train: { steps: 200, microbatches: 8, microbatch_size: 2, optimizer: { kind: adamw, lr: 2e-3 }, schedule: { kind: cosine, warmup: 10 } }
pipeline: { stages: 4, placement: names }
links: { forward: tah, backward: "fixed:bits=4,rounding=stochastic" }
checkpoint: { every: 50, keep: 2 }
"""


def wait_for(what, condition, seconds=300):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.2)
    raise SystemExit(f"picture.py: waited {seconds} s in vain for {what}")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    if browsers.find() is None:
        sys.exit("picture.py: there is no Chromium; deploy/setup.sh --test brings it")
    programs, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    started = []
    with tempfile.TemporaryDirectory(prefix="longhaul-picture-") as name:
        folder = pathlib.Path(name)
        environment = {**os.environ, "LONGHAUL_HOME": str(folder / "home")}

        def start(program, *arguments):
            log = open(folder / f"{len(started)}.log", "w", encoding="utf-8")
            started.append(subprocess.Popen([programs / program, *map(str, arguments)], stdout=log, stderr=log, env=environment))
            return folder / f"{len(started) - 1}.log"
        try:
            log = start("longhaul-coordinator", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state-dir", folder / "coordinator")
            page = wait_for("the dashboard", lambda: next((line.split()[2] for line in log.read_text().splitlines() if line.startswith("dashboard at")), None))
            access = ["--coordinator", (folder / "coordinator/address").read_text().strip(), "--token-file", folder / "coordinator/token"]
            for town in ("amsterdam", "berlin", "cracow", "dublin"):
                start("longhaul-worker", *access, "--name", town, "--state-dir", folder / town, "--device", "cpu")

            def asked(path):
                with urllib.request.urlopen(f"{page}api/{path}", timeout=20) as answer:
                    return json.load(answer)
            wait_for("the workers", lambda: asked("overview")["workers"]["connected"] == 4)
            (folder / "run.yaml").write_text(RUN)
            subprocess.run([programs / "longhaul", "submit", folder / "run.yaml", *access], check=True, env=environment, stdout=subprocess.DEVNULL)
            wait_for(f"step {STEPS}", lambda: asked("overview")["runs"][0]["step"] >= STEPS)
            with browsers.Browser(*SIZE) as browser:
                view = browser.open(page)
                view.wait("document.documentElement.dataset.drawn && document.querySelector('.map .way')", limit_s=60)
                view.screenshot(out)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
    size = out.stat().st_size
    print(f"{out}: {size / 1e3:.0f} KB")
    return 0 if size <= MOST_BYTES else sys.exit(f"picture.py: expected at most {MOST_BYTES / 1e3:.0f} KB, got {size / 1e3:.0f} KB")


if __name__ == "__main__":
    main()
