"""Runs results.py on a small tree: what it refuses, what it writes, and what it says of ages and machines."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().parent / "results.py"
REGISTRY = """
[code]
core = ["code"]

[results.steps]
page = "steps.md"
rows = "steps.csv"
machine = "a machine"
needs = {}
command = 'cp new.csv $ROWS'
depends = ["core"]

[results.large]
page = "steps.md"
rows = "large.csv"
machine = ""
needs = {root = true, gpus = 999, files = {NO_SUCH_VARIABLE = "a text"}}
command = "$BIN/no-such-program"
not_measured = true
depends = ["core"]
"""
PAGE = """# Steps

A step takes 1.25 s. 25 ms of delay are a setting.

| codec | step |
| --- | --- |
| `none` | 1,250 ms |
| `half` | 0.50 s |
"""
CHECK = """
def check(page, rows, folder):
    found = rows("steps.csv")
    page.says("A step takes {} s.", [found.where(codec="none").median("seconds")])
    page.table("| codec | step", {"step": lambda row: found.where(codec=row["codec"].strip("`")).median(
        "seconds") * (1000 if "ms" in row["step"] else 1)})
    page.given("25 ms of delay")
"""
ROWS = "codec,seconds\nnone,1.2\nnone,1.25\nnone,1.9\nhalf,0.5\n"


class Tree:
    """A tree with one result and one page, under git."""

    def __init__(self, root):
        self.root = root
        for path, text in {"tests/bench/results.toml": REGISTRY, "docs/results/steps.md": PAGE,
                           "tests/bench/figures/pages/steps.py": CHECK, "docs/results/README.md": "# All\n",
                           "README.md": "# Project\n", "code/a.cc": "1\n", "new.csv": ROWS}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        self.git("init", "-q")
        self.commit("first")
        self.run("run", "steps", expect="measured: steps")

    def git(self, *words):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", f"safe.directory={self.root}"]
        subprocess.run(["git", "-C", self.root, *identity, *words], check=True, capture_output=True)

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def run(self, *words, code=0, expect=""):
        done = subprocess.run([sys.executable, "-B", PROGRAM, "--root", self.root, *words], text=True,
                              capture_output=True, check=False,
                              env={k: v for k, v in os.environ.items() if k != "NO_SUCH_VARIABLE"})
        output = done.stdout + done.stderr
        assert done.returncode == code, f"{words}: expected {code}, got {done.returncode}:\n{output}"
        assert expect in output, f"{words}: expected \"{expect}\", got:\n{output}"
        return output

    def edit(self, path, old, new):
        file = self.root / path
        assert old in file.read_text(), f"{path} lacks \"{old}\":\n{file.read_text()}"
        file.write_text(file.read_text().replace(old, new))


def rows_are_stamped(tree):
    header, first, *_ = (tree.root / "docs/results/steps.csv").read_text().splitlines()
    assert header == "codec,seconds,commit,date,machine", header
    assert len(first.split(",")[2].rstrip("+")) == 8, first
    tree.run("check", expect="0 errors")
    page = (tree.root / "docs/results/steps.md").read_text()
    assert "Not measured with rows: `large`." in page and "as its code is" in page, page


def wrong_figures_are_found_and_filled(tree):
    tree.edit("docs/results/steps.md", "1.25 s.", "1.30 s.")
    tree.edit("docs/results/steps.md", "1,250 ms", "1,249 ms")
    output = tree.run("check", code=1, expect="the page has 1.30, the rows 1.25")
    assert "the page has 1,249, the rows 1,250" in output, output
    tree.run("fill", expect="2 figures changed")
    tree.run("check", expect="0 errors")


def figures_need_rows(tree):
    for added in ("Another takes 2.5 s.", "It is 7 % faster.", "| `third` | 0.1 s |"):
        page = tree.root / "docs/results/steps.md"
        before = page.read_text()
        if added[0] == "|":
            tree.edit("docs/results/steps.md", "| `half` | 0.50 s |", f"| `half` | 0.50 s |\n{added}")
        else:
            tree.edit("docs/results/steps.md", "A step takes", f"{added} A step takes")
        tree.run("check", code=1, expect="has no rows" if added[0] != "|" else "has no row with")
        page.write_text(before)


def sentences_must_be_there(tree):
    tree.edit("docs/results/steps.md", "A step takes", "One step takes")
    tree.run("check", code=1, expect="found 0 times")
    tree.edit("docs/results/steps.md", "One step takes", "A step takes")


def files_belong_to_results(tree):
    stray = tree.root / "docs/results/stray.csv"
    stray.write_text("a,b\n1,2\n")
    tree.run("check", code=1, expect="stray.csv: belongs to no result")
    stray.unlink()
    rows = tree.root / "docs/results/steps.csv"
    kept = rows.read_text()
    rows.write_text(ROWS)
    tree.run("check", code=1, expect="lack commit, date, machine")
    rows.write_text(kept)


def older_rows_are_a_warning(tree):
    tree.commit("rows")
    tree.edit("code/a.cc", "1", "2")
    tree.commit("changed code")
    tree.run("check", expect="warning: steps: 1 commits since")
    tree.run("list", expect="OLDER than its code by 1 commits")
    tree.run("fill", expect="steps.md: written")
    assert "older than its code" in (tree.root / "docs/results/steps.md").read_text()
    tree.run("check", expect="0 errors")


def ages_need_history(tree):
    shallow = tree.root.parent / "shallow"
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "-q", "--depth", "1", f"file://{tree.root}", shallow],
                   check=True, capture_output=True)
    whole, tree.root = tree.root, shallow
    tree.run("check", expect="this is a shallow clone")
    shutil.rmtree(shallow / ".git")
    tree.run("check", expect="is not known")
    tree.run("list", expect="is not known")
    tree.root = whole


def run_says_what_it_cannot(tree):
    output = tree.run("run", "large", code=77, expect="large: not run: needs")
    for missing in ("999 GPUs", "$NO_SUCH_VARIABLE: a text", "no-such-program"):
        assert missing in output, output
    tree.run("run", "unheard-of", code=1, expect="unknown: unheard-of")
    before = (tree.root / "docs/results/steps.csv").read_text()
    tree.edit("tests/bench/results.toml", "cp new.csv $ROWS", "cp new.csv $ROWS; false")
    output = tree.run("run", "steps", code=1, expect="the old rows stay")
    left = pathlib.Path(output.split("what it wrote is in ")[1].split()[0])
    assert (left / "steps.csv").read_text() == ROWS, "a failed command's rows must stay for a person to look at"
    shutil.rmtree(left)
    assert (tree.root / "docs/results/steps.csv").read_text() == before
    tree.edit("tests/bench/results.toml", "$ROWS; false", "$ROWS")
    (tree.root / "new.csv").write_text(ROWS.replace("0.5", "0.75"))
    tree.run("run", "steps", expect="1 figures changed")
    assert "| `half` | 0.75 s |" in (tree.root / "docs/results/steps.md").read_text()


def helpers_make_csvs(tree):
    figures, folder = PROGRAM.parent / "figures", tree.root.parent

    def run(*words, code=0, **environment):
        done = subprocess.run([*map(str, words)], text=True, capture_output=True, check=False,
                              env={**os.environ, **environment})
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr
    one, two, rows = (folder / name for name in ("one.csv", "two.csv", "rows.csv"))
    one.write_text("a,b\n1,2\n")
    two.write_text("a,b\n3,4\n")
    run(figures / "join_csv.py", rows, one, two)
    assert rows.read_text() == "a,b\n1,2\n3,4\n", rows.read_text()
    two.write_text("a,c\n3,4\n")
    assert "expected the columns a,b, got a,c" in run(figures / "join_csv.py", rows, one, two, code=1)
    table = folder / "table.json"
    table.write_text('{"complete": true, "rows": [{"codec": "none", "step": "1.5"}]}')
    run(figures / "table_csv.py", table, rows)
    assert rows.read_text() == "codec,step\nnone,1.5\n", rows.read_text()
    table.write_text('{"complete": false, "rows": [{"codec": "none"}]}')
    assert "cut off" in run(figures / "table_csv.py", table, rows, code=1)
    longhaul, out = folder / "longhaul", folder / "sweeps"
    longhaul.write_text("#!/bin/sh\nmkdir -p $4 && printf 'point,seconds\\n%s,1\\n' $2 > $4/results.csv\n")
    longhaul.chmod(0o755)
    run(figures / "sweep_rows.sh", 2, "some.yaml", BIN=str(folder), OUT=str(out), ROWS=str(rows))
    assert rows.read_text() == "point,seconds\n" + "some.yaml,1\n" * 2, rows.read_text()


PEERS = """rate,who,setting,stages,gpus,repeat,step,seconds
100mbit,torch,1F1B,8,8,1,2,20
100mbit,torch,GPipe,8,8,1,2,40
500mbit,torch,1F1B,8,8,1,2,4
100mbit,longhaul,default,8,8,1,2,5
100mbit,longhaul,default,8,8,1,3,7
100mbit,longhaul,default,8,8,2,2,6
500mbit,longhaul,default,8,8,1,2,1.5
"""


def the_plot_is_of_its_rows(tree):
    """Medians of each line, PyTorch's best schedule beside them; and a picture that is behind its rows is an error."""
    results = tree.root / "docs/results"
    (results / "peers_8_gpus.csv").write_text(PEERS)
    tree.edit("tests/bench/results.toml", "[results.steps]", '[results.peers]\npage = "steps.md"\nrows = "peers_8_gpus.csv"\nmachine = "m"\n'
              'needs = {}\ncommand = "true"\ndepends = ["core"]\n\n[results.steps]')
    sys.path.insert(0, str(PROGRAM.parent))
    from figures import rate_plot  # pylint: disable=import-outside-toplevel
    picture = rate_plot.drawn(results)
    for title in ("PyTorch, its best: 100 Mbit/s, 20 s", "PyTorch, its best: 500 Mbit/s, 4 s", "longhaul, default: 100 Mbit/s, 6 s"):
        assert f"<title>{title}</title>" in picture, picture
    assert "40 s" not in picture, picture
    place = results / rate_plot.NAME
    place.write_text(picture)
    assert "is not what its rows make" not in tree.run("check", code=1)
    place.write_text(picture.replace("500 Mbit/s, 4 s", "500 Mbit/s, 3 s"))
    tree.run("check", code=1, expect=f"{rate_plot.NAME}: is not what its rows make")
    tree.run("fill", expect=f"{rate_plot.NAME}: drawn")
    assert place.read_text() == picture


def main():
    if shutil.which("git") is None:
        print("skipped: there is no git")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve() / "tree"
        root.mkdir()
        tree = Tree(root)
        for test in (rows_are_stamped, wrong_figures_are_found_and_filled, figures_need_rows,
                     sentences_must_be_there, files_belong_to_results, older_rows_are_a_warning,
                     ages_need_history, run_says_what_it_cannot, helpers_make_csvs, the_plot_is_of_its_rows):
            test(tree)


if __name__ == "__main__":
    main()
