"""Checks the run files of README.md and docs/start that guide_test.py does not run: each key is known and right. A model on the
Hub is replaced by a tiny one of the tests.

usage: run_files_test.py SOURCE_DIR BIN_DIR
"""
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    source, programs = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    count, wrong = 0, []
    with tempfile.TemporaryDirectory(prefix="longhaul-test-") as folder:
        file = pathlib.Path(folder) / "run.yaml"
        for page in [source / "README.md", *sorted((source / "docs/start").glob("*.md"))]:
            for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
                if not re.search(r"^train:", text, re.MULTILINE):
                    continue
                count += 1
                file.write_text(text)
                tiny = ["--set", f"model.from={source}/tests/fixtures/models/qwen2_5", "--set", "model.context=32"]
                done = subprocess.run([programs / "longhaul", "plan", file, "--show-config", *(tiny if "hf://" in text else [])],
                                      capture_output=True, text=True, check=False, timeout=60)
                if done.returncode != 0:
                    wrong.append(f"{page.relative_to(source)}: {done.stderr.strip().replace(str(file), 'its run file')}")
    if count < 3:
        wrong.append(f"expected the run files of README.md and of the tutorials, found {count}: the pattern of this test is wrong")
    print("\n".join(wrong) or f"ok: {count} run files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
