"""Hooks of mkdocs. Pages are written for GitHub, where they also name files outside docs/ and where fences carry
attributes for tests/docs/guide_test.py. The site has neither.
"""
import pathlib
import re
import sys

from mkdocs.structure.files import File

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import diagrams  # noqa: E402
import messages  # noqa: E402

LINK = re.compile(r"(?<!`)\[([^\]\n]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w+)[ \t]+([^\n]*)$", re.MULTILINE)


def fence(match):
    """A fence with the name of the file that its block is written to as title, and no other attribute."""
    attributes = dict(part.split("=", 1) for part in match.group(2).split() if "=" in part)
    title = f' title="{attributes["file"]}"' if "file" in attributes else ""
    return f"```{match.group(1)}{title}"


def on_page_markdown(markdown, page, config, files):
    docs = pathlib.Path(config["docs_dir"]).resolve()
    folder = (docs / page.file.src_uri).parent

    def link(match):
        text, target = match.groups()
        name = target.split("#")[0]
        if not name or re.match(r"[a-z]+:", target):
            return match.group(0)
        path = (folder / name).resolve()
        if not path.exists() or docs in path.parents:
            return match.group(0)
        # A file of the repository that the site does not have: its name alone.
        return f"{text} (`{path.relative_to(docs.parent)}`)"

    def block(part):
        return diagrams.replace(part) if part.startswith("```mermaid") else FENCE.sub(fence, part)

    parts = re.split(r"(^```.*?^```[ \t]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(block(part) if part.startswith("```") else LINK.sub(link, part) for part in parts)


def on_files(files, config):
    """Pages that are made of the sources, as far as the navigation has them."""
    root = pathlib.Path(config["docs_dir"]).resolve().parent
    for name, make in messages.PAGES.items():
        if name in str(config["nav"]):
            files.append(File.generated(config, name, content=make(root)))
    return files


def on_config(config):
    """Pages of results come and go with what is measured: they are listed by their folder, not by mkdocs.yml."""
    folder = pathlib.Path(config["docs_dir"]) / "results"
    for part in config["nav"]:
        if "Results" in part:
            part["Results"] = ["results/README.md"] + [
                f"results/{path.name}" for path in sorted(folder.glob("*.md")) if path.name != "README.md"]
    return config
