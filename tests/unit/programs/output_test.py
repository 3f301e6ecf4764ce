"""Commands whose output cannot be written say so and fail. Argument: longhaul."""
import pathlib
import subprocess
import sys
import tempfile

RUN = """\
name: tiny
model: { family: gpt, layers: 2, hidden: 64, heads: 4, context: 64 }
data: { text: [text.txt] }
train: { steps: 2, microbatches: 2 }
"""


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder, "run.yaml")
        run.write_text(RUN)
        pathlib.Path(folder, "text.txt").write_text("a text that is long enough for a few windows " * 200)
        commands = (["keys"], ["--json", "keys"], ["plan", str(run), "--show-config"], ["--help"], ["--version"])
        for command in commands:
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([program, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                                      timeout=60)
            expected = "the output cannot be written: No space left on device"
            if done.returncode != 1 or expected not in done.stderr:
                sys.exit(f"{command}: expected exit 1 and '{expected}', got {done.returncode} and {done.stderr!r}")
            print(f"ok: {' '.join(command)}")
        # A reader that wants no more is no failure to talk about.
        with subprocess.Popen([program, "keys"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as early:
            early.stdout.close()
            said = early.stderr.read()
            early.wait()
        if said:
            sys.exit(f"keys | true: expected silence, got {said!r}")


if __name__ == "__main__":
    main()
