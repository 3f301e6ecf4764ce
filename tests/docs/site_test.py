"""Builds the documentation site from this checkout: every page is in it and in its navigation, every link and heading that
a page names is there, the search knows what pages say, and no page fetches anything from elsewhere.

usage: site_test.py SOURCE_DIR

mkdocs is taken from the Python that runs this, else from .deps/venv (deploy/setup.sh --test); without it the test is skipped.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SECONDS = 120
# Phrase: page that the search must find by it.
FOUND_BY_SEARCH = {"pipeline bubble": "glossary/", "Alertmanager": "guide/metrics/", "CUDA out of memory": "guide/questions/",
                   "gradient_accumulation_steps": "glossary/", "port forwarding": "guide/questions/",
                   "recovery.spares": "guide/run_file_keys/", "goes on with a run of this coordinator": "reference/errors/",
                   "goes on from that of step": "reference/events/", "longhaul_run_step_seconds": "reference/metrics/",
                   "every stage is ready": "design/states/", "--memory-share": "reference/commands/"}

# The first questions of people in public trackers of similar tools, in the words that they search by. All stand on one page,
# which is two clicks from the front: its part of the navigation, and the page.
QUESTIONS = ("guide/questions/", ("start a run on several machines", "find each other", "port forwarding", "How much bandwidth", "out of memory",
                                  "GPUs be different", "join or leave", "resume after a crash", "Hugging Face model", "gradient_accumulation_steps",
                                  "ZeRO or FSDP", "loss is NaN", "public swarm"))


def python_with_mkdocs(source):
    for python in (sys.executable, str(source / ".deps/venv/bin/python")):
        if os.path.exists(python) and subprocess.run([python, "-c", "import mkdocs, material"], capture_output=True,
                                                     check=False).returncode == 0:
            return python
    return None


def build(python, source, out):
    return subprocess.run([python, "-m", "mkdocs", "build", "--strict", "--config-file", source / "mkdocs.yml",
                           "--site-dir", out], capture_output=True, text=True, check=False, timeout=SECONDS,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


def problems(docs, out):
    pages = sorted(docs.rglob("*.md"))
    for page in pages:
        name = page.relative_to(docs).with_suffix("")
        html = out / ("index.html" if str(name) in ("index", "README") else
                      name.parent / "index.html" if name.name in ("index", "README") else name / "index.html")
        if not html.exists():
            yield f"{page}: no page of the site ({html.relative_to(out)})"
            continue
        text = html.read_text(encoding="utf-8")
        for address in re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?://[^\" >]+)", text):
            yield f"{page}: a browser would fetch {address}"
        if "mermaid" in text.split("</head>")[1] and "class=mermaid" in text.replace('"', ""):
            yield f"{page}: a diagram would need a script from elsewhere"
        if re.search(r"^```\w", re.sub(r"<[^>]*>", "", text), re.MULTILINE):
            yield f"{page}: a code block was not understood"
    entries = json.loads((out / "search/search_index.json").read_text())["docs"]
    for phrase, expected in FOUND_BY_SEARCH.items():
        found = [entry["location"] for entry in entries if phrase.lower() in (entry["title"] + entry["text"]).lower()]
        if not any(place.startswith(expected) for place in found):
            yield f"the search does not find {expected} by '{phrase}'; it finds {found[:5]}"
    page, phrases = QUESTIONS
    headings = [entry["title"] for entry in entries if entry["location"].startswith(page)]
    for phrase in phrases:
        if not any(phrase.lower() in re.sub(r"<[^>]*>", "", heading).lower() for heading in headings):
            yield f"{page} has no question '{phrase}'; it has {headings}"
    if f'href="{page}"' not in (front := (out / "index.html").read_text(encoding="utf-8")) and f"href={page}" not in front:
        yield f"the front page's navigation does not lead to {page}"
    if len(entries) < len(pages):
        yield f"the search knows {len(entries)} sections of {len(pages)} pages"


def breaks(python, source, folder):
    """None, or what a broken link did not do: the settings that make links count could get lost."""
    copy = folder / "copy"
    (copy / "docs").mkdir(parents=True)
    shutil.copytree(source / "deploy/site", copy / "deploy/site", ignore=shutil.ignore_patterns("__pycache__"))
    text = (source / "mkdocs.yml").read_text()
    (copy / "mkdocs.yml").write_text(text[:text.index("\nnav:")] + "\nnav:\n  - index.md\n  - Results: []\n")
    (copy / "docs/index.md").write_text("# A page\n\n[a heading](#that-is-missing)\n")
    (copy / "docs/results").mkdir()
    (copy / "docs/results/README.md").write_text("# Results\n")
    done = build(python, copy, folder / "broken")
    if done.returncode == 0 or "that-is-missing" not in done.stdout + done.stderr:
        return f"a link to a heading that is missing was not refused: {done.returncode} {done.stdout} {done.stderr}"
    return None


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    python = python_with_mkdocs(source)
    if python is None:
        print("skipped: mkdocs is not here; deploy/setup.sh --test brings it")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="longhaul-site-") as name:
        folder = pathlib.Path(name)
        done = build(python, source, folder / "site")
        if done.returncode != 0:
            print(f"mkdocs build --strict ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            return 1
        found = [*problems(source / "docs", folder / "site"), *filter(None, [breaks(python, source, folder)])]
        size = sum(path.stat().st_size for path in (folder / "site").rglob("*") if path.is_file())
    print("\n".join(found) or f"ok: a site of {size / 1e6:.1f} MB")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
