"""A page of Markdown whose figures are compared with rows, or filled in from them.

A page stays plain Markdown. What its figures are is said in pages/NAME.py, by the words or the table
around them:

  page.says("takes {} s with `none`", [1.25])            numbers in a sentence, in the order of {}
  page.table("| codec | step |", {"step": lambda row: ...})   numbers of a column, for each row
  page.given("25 ms", "2.11.0")                          settings and versions, which no row measures
  page.printed("CODECS ", "planned.txt")                 a block of code, line for line in a file
  page.generated("speed", lines)                         a part between two comments, all written from rows
  page.copied("| codec | encode |", rows)                a table whose cells are those of a CSV, as texts

Numbers keep the decimals with which they are printed. A figure that nothing covers is unbacked.
"""
import re

from figures.rows import RowsError

NUMBER = r"(?<![\w.,/:-])[+-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w]|[.,]\d)"
UNIT = re.compile(r"\s?(%|s\b|ms\b|us\b|min\b|hours\b|[KMGT]i?B\b|GB/s|TB/s|MB/s|tokens/s|times\b|nats\b|of a core)")
HIDDEN = re.compile(r"^```.*?^```[ \t]*$|<!--.*?-->|`[^`\n]*`|\]\([^)\s]*\)|^#.*?$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
SEPARATOR = re.compile(r"^\|[\s:|-]+\|$")
# Rates of links are what a measurement sets.
RATE = re.compile(r"\s?[MG]bit/s")


def as_number(text):
    return float(text.replace(",", ""))


def printed_as(value, like):
    """`value` with as many decimals, the separators and the sign of the text `like`."""
    if "e" in like:
        decimals = len(like.split("e")[0].partition(".")[2])
        text = f"{value:{'+' if like[0] == '+' else ''}.{decimals}e}"
        return text if re.search(r"e-?0", like) else re.sub(r"e(-?)\+?0(\d)$", r"e\1\2", text)
    decimals = len(like.partition(".")[2])
    signed = "+" if like[0] in "+-" and value > 0 and like[0] == "+" else ""
    comma = "," if "," in like or (abs(value) >= 10000 and decimals == 0) else ""
    return f"{value:{signed}{comma}.{decimals}f}"


def is_printed(value, text):
    """Whether `text` is `value` rounded to the text's decimals; halves may go either way."""
    if "e" in text:
        mantissa, exponent = text.split("e")
        half = 0.5 * 10.0 ** (int(exponent) - len(mantissa.partition(".")[2]))
        return abs(as_number(text) - value) <= half * (1 + 1e-6)
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return abs(as_number(text) - value) <= half * (1 + 1e-6) + 1e-12


class Page:
    """`text` is the page's; `wrong` its errors; `covered` the places of numbers that are checked."""

    def __init__(self, name, text, rows):
        self.name, self.text, self.rows = name, text, rows
        self.wrong, self.covered, self.edits = [], [], []

    def number_at(self, begin, end, value, what):
        """Compares one printed number with a value of the rows."""
        self.covered.append((begin, end))
        printed = self.text[begin:end]
        if not is_printed(value, printed):
            self.edits.append((begin, end, printed_as(value, printed)))
            line = self.text.count("\n", 0, begin) + 1
            self.wrong.append(f"{self.name}:{line}: {what}: the page has {printed}, the rows "
                              f"{printed_as(value, printed)}")

    def says(self, words, values):
        """`words` is on the page once, with a number for each {}; spaces match line ends."""
        parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in words.split("{}")]
        found = list(re.finditer(f"({NUMBER})".join(parts), self.text))
        if len(found) != 1:
            self.wrong.append(f"{self.name}: expected once: \"{words}\"; found {len(found)} times")
            return
        if len(parts) - 1 != len(values):
            self.wrong.append(f"{self.name}: \"{words}\" has {len(parts) - 1} numbers, the rows "
                              f"give {len(values)}")
            return
        for index, value in enumerate(values, 1):
            self.number_at(*found[0].span(index), value, f"\"{words}\"")

    def given(self, *words):
        """Texts whose numbers are settings, versions or sizes: nothing that was measured."""
        for text in words:
            found = list(re.finditer(r"\s+".join(map(re.escape, text.split())), self.text))
            if not found:
                self.wrong.append(f"{self.name}: has no \"{text}\", which is listed as given")
            self.covered += [match.span() for match in found]

    def table(self, header, columns, occurrence=0):
        """The body of the table whose first line begins with `header`.

        `columns`: a function for each column that is checked; gets the row as {column: text}, in
        which empty fields have the text above them, and gives a number, a list or None. Columns
        that are not named are settings.
        """
        starts = [match.start() for match in re.finditer(f"^{re.escape(header)}", self.text, re.MULTILINE)]
        if len(starts) <= occurrence:
            self.wrong.append(f"{self.name}: has no table {occurrence + 1} that begins \"{header}\"")
            return
        lines = self._lines_from(starts[occurrence])
        titles = [cell for cell, _ in cells_of(*lines[0])]
        for title in columns:
            if title not in titles:
                self.wrong.append(f"{self.name}: the table has no column \"{title}\"; it has {titles}")
        above = {}
        for begin, line in lines[2:]:
            cells = cells_of(begin, line)
            row = {title: text or above.get(title, "") for title, (text, _) in zip(titles, cells)}
            above = row
            for title, (text, at) in zip(titles, cells):
                self._cell(row, title, text, at, columns.get(title))
            self.covered += [(at, at + len(text)) for title, (text, at) in zip(titles, cells)
                             if title not in columns]

    def copied(self, header, rows, occurrence=0):
        """The table whose first line begins with `header` has the cells of the rows, as they are: rows
        that are the printed table of a command."""
        starts = [match.start() for match in re.finditer(f"^{re.escape(header)}", self.text, re.MULTILINE)]
        if len(starts) <= occurrence:
            self.wrong.append(f"{self.name}: has no table {occurrence + 1} that begins \"{header}\"")
            return
        lines = self._lines_from(starts[occurrence])
        if len(lines) - 2 != len(rows):
            self.wrong.append(f"{self.name}: the table \"{header}\" has {len(lines) - 2} rows, "
                              f"{rows.name} {len(rows)}")
        for (begin, line), row in zip(lines[2:], rows):
            self.covered.append((begin, begin + len(line)))
            for (text, at), wanted in zip(cells_of(begin, line), row.values()):
                if text != wanted:
                    self.edits.append((at, at + len(text), wanted))
                    self.wrong.append(f"{self.name}: \"{text}\", where {rows.name} has \"{wanted}\"")

    def _cell(self, row, title, text, at, function):
        if function is None or not text:
            return
        numbers = list(re.finditer(NUMBER, re.sub(r"`[^`]*`", lambda m: "`" * len(m.group()), text)))
        what = f"column {title} of {' | '.join(list(row.values())[:3])}"
        try:
            values = function(row)
        except RowsError as error:
            self.wrong.append(f"{self.name}: {what}: {error}")
            return
        if values is None:  # words, or a setting in a column of figures
            self.covered.append((at, at + len(text)))
            return
        values = values if isinstance(values, (list, tuple)) else [values]
        if len(values) != len(numbers):
            self.wrong.append(f"{self.name}: {what}: \"{text}\" has {len(numbers)} numbers, the rows "
                              f"give {len(values)}")
            return
        for match, value in zip(numbers, values):
            if value is not None:
                self.number_at(at + match.start(), at + match.end(), value, what)
            else:
                self.covered.append((at + match.start(), at + match.end()))

    def _lines_from(self, begin):
        lines = []
        for line in self.text[begin:].split("\n"):
            if not line.startswith("|"):
                break
            lines.append((begin, line))
            begin += len(line) + 1
        return lines

    def generated(self, name, lines):
        """The part between `<!-- NAME -->` and `<!-- end of NAME -->` is these lines, without rows a sentence."""
        match = re.search(f"<!-- {name} -->\n(.*?)<!-- end of {name} -->", self.text, re.DOTALL)
        if match is None:
            self.wrong.append(f"{self.name}: expected <!-- {name} --> and <!-- end of {name} -->")
            return
        wanted = "\n" + "".join(f"{line}\n" for line in lines or ["Not measured with rows."]) + "\n"
        self.covered.append(match.span())
        if match.group(1) != wanted:
            self.edits.append((*match.span(1), wanted))
            self.wrong.append(f"{self.name}: the part {name} is not what the rows give; run results.py fill")

    def printed(self, begins, path):
        """A block of code with a line that begins so: each of its lines is in the file."""
        lines = {line.strip() for line in path.read_text(encoding="utf-8").splitlines()}
        for match in FENCE.finditer(self.text):
            block = match.group(1).splitlines()
            if not any(line.strip().startswith(begins.strip()) for line in block):
                continue
            for line in block:
                if line.strip() and line.strip() not in lines:
                    self.wrong.append(f"{self.name}: \"{line.strip()}\" is in no line of the output "
                                      "that was kept")
            self.covered.append(match.span())
            return
        self.wrong.append(f"{self.name}: has no block of code with a line \"{begins}\"")

    def unbacked(self):
        """Figures that nothing covers, as (line, number, the words around)."""
        covered = sorted(self.covered)
        visible = HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), self.text)
        visible = re.sub(r"^\|[^\n]*\|\n(?=\|[\s:|-]+\|$)", lambda m: " " * (len(m.group()) - 1) + "\n",
                         visible, flags=re.MULTILINE)  # titles of tables
        for match in re.finditer(NUMBER, visible):
            begin, end = match.span()
            if any(left <= begin and end <= right for left, right in covered):
                continue
            start = visible.rfind("\n", 0, begin) + 1
            in_table = visible[start:start + 1] == "|"
            after = visible[end:end + 12]
            if RATE.match(after) and "." not in match.group():
                continue
            if in_table or "." in match.group() or "e" in match.group() or UNIT.match(after):
                yield (visible.count("\n", 0, begin) + 1, match.group(),
                       " ".join(self.text[max(start, begin - 40):end + 25].split()))

    def filled(self):
        """The text with the figures of the rows."""
        text = self.text
        for begin, end, new in sorted(self.edits, reverse=True):
            text = text[:begin] + new + text[end:]
        return text


def cells_of(begin, line):
    """[(text, where it begins in the page)] of a line of a table; `|` inside code divides no cells."""
    masked = re.sub(r"`[^`]*`", lambda match: "`" * len(match.group()), line)
    bars = [index for index, letter in enumerate(masked) if letter == "|"]
    cells = []
    for left, right in zip(bars, bars[1:]):
        raw = line[left + 1:right]
        cells.append((raw.strip(), begin + left + 1 + len(raw) - len(raw.lstrip())))
    return cells


def table_lines(titles, rows):
    """A table of Markdown."""
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]
