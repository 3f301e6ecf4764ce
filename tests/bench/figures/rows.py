"""Rows of measurements: a CSV of docs/results, chosen from and summarised."""
import csv
import statistics

STAMP = ("commit", "date", "machine")  # columns that say where a row comes from


class RowsError(Exception):
    """A figure asks for rows that are not there."""


class Rows:
    """Some rows of one file, as dicts of strings. Choosing never gives an empty set."""

    def __init__(self, name, rows):
        self.name, self.rows = name, rows

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)

    def where(self, test=None, **columns):
        """Rows whose columns have these values: a text or number, a list of them, or a test."""
        def fits(row):
            return (test is None or test(row)) and all(matches(row[column], wanted)
                                                       for column, wanted in columns.items())
        for column in columns:
            if column not in self.rows[0]:
                raise RowsError(f"{self.name} has no column '{column}'; it has {list(self.rows[0])}")
        found = [row for row in self.rows if fits(row)]
        if not found:
            wanted = {column: "a test" if callable(value) else value for column, value in columns.items()}
            raise RowsError(f"{self.name} has no row with {wanted or 'what was asked'}")
        return Rows(self.name, found)

    def all(self, column):
        """The column's numbers; empty fields are left out."""
        values = [float(row[column]) for row in self.rows if row[column] not in ("", None)]
        if not values:
            raise RowsError(f"{self.name}: column '{column}' of the chosen rows is empty")
        return values

    def one(self, column):
        """The number of the only row."""
        values = self.all(column)
        if len(values) != 1:
            raise RowsError(f"{self.name}: expected one row for '{column}', got {len(values)}: "
                            f"{self.rows[:3]}")
        return values[0]

    def median(self, column):
        return statistics.median(self.all(column))

    def mean(self, column):
        return statistics.fmean(self.all(column))

    def least(self, column):
        return min(self.all(column))

    def most(self, column):
        return max(self.all(column))


def matches(field, wanted):
    if callable(wanted):
        return wanted(field)
    if isinstance(wanted, (list, tuple, set)):
        return any(matches(field, each) for each in wanted)
    if isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
        try:
            return float(field) == wanted
        except ValueError:
            return False
    return field == str(wanted)


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    if not found:
        raise RowsError(f"{path.name} has no rows")
    return Rows(path.name, found)
