"""Checks the pages: every relative link and its heading is there, README.md is short, and every
page can be reached from README.md.

usage: links_test.py SOURCE_DIR
"""
import pathlib
import re
import sys

README_LINES = 130
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)|<(?:img|source)[^>]*?(?:src|srcset)=\"([^\"]+)\"")
FENCE = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def without_code(text):
    return FENCE.sub("", text)


def anchors(path):
    """The names that GitHub gives to a page's headings."""
    names = set()
    for heading in HEADING.findall(without_code(path.read_text(encoding="utf-8"))):
        plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
        names.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return names


def check(page, root, errors):
    """The pages and files that `page` links to."""
    targets = []
    for found in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        link = found[0] or found[1]
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        where = f"{page.relative_to(root)}: {link}"
        if not target.exists():
            errors.append(f"{where}: there is no such file")
            continue
        if anchor and target.suffix == ".md" and anchor not in anchors(target):
            errors.append(f"{where}: the page has no such heading; it has {sorted(anchors(target))}")
        targets.append(target)
    return targets


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    readme = root / "README.md"
    pages = sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md"))
    errors = []
    links = {page: check(page, root, errors) for page in pages}
    lines = len(readme.read_text(encoding="utf-8").splitlines())
    if lines > README_LINES:
        errors.append(f"README.md has {lines} lines; expected at most {README_LINES}: move what is "
                      "more to a page of docs/")
    reached, waiting = {readme}, [readme]
    while waiting:
        for target in links.get(waiting.pop(), []):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    errors += [f"{page.relative_to(root)}: no page that README.md leads to links here"
               for page in pages if page not in reached]
    count = sum(map(len, links.values()))
    if count == 0:
        errors.append("no page has a link: the pattern of this test is wrong")
    print("\n".join(errors) or f"{count} links of {len(pages)} pages lead somewhere; "
          f"README.md has {lines} lines")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
