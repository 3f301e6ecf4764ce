"""The results of a sweep so far, and their files: results.json (docs/design/formats.md), results.csv with a row a point, and
report.html. A point is the object that stands for it in results.json."""
import csv
import io
import json
import math
import pathlib

from . import files, report
from .cluster import Failed
from .measure import SAME

FORMAT = 1
COLUMNS = ("point", *SAME[1:], "state", "reason", "run_id", "replayed", "steps", "warm_up", "tokens_per_step", "tokens_per_second",
           "step_seconds", "step_seconds_low", "step_seconds_high", "simulated_seconds", "bound_seconds", "floor_seconds",
           "plan_simulated_seconds", "plan_bound_seconds", "bottleneck", "link_bytes_per_step", "payload_bytes_per_step",
           "uplink_bytes", "downlink_bytes", "last_loss", "last_validation_loss", "last_clean_validation_loss")
LONGEST_SHOWN = 80  # characters of a value in a message


def count(results, state):
    return sum(point["state"] == state for point in results["points"])


def to_json(results):
    ordered = {"format": FORMAT, "title": results["title"], "version": results["version"],
               "partial": count(results, "waiting") > 0, "machine": results["machine"], "identity": results["identity"],
               "points": results["points"]}
    return json.dumps(ordered, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def last_of(point, loss):
    return next((step[loss] for step in reversed(point["curve"]) if step[loss] is not None), None)


def total_of(point, direction):
    counts = [link[direction] for link in point["link_bytes"]]
    return sum(counts) if counts and None not in counts else None


def cell(value):
    """Nine digits of a number; empty where there is nothing to say."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else ""
    return value


def to_csv(results):
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # RFC 4180
    writer.writerow(COLUMNS)
    for point in results["points"]:
        row = {**point, "point": point["id"]}
        if point["state"] == "done":
            row.update(uplink_bytes=total_of(point, "up"), downlink_bytes=total_of(point, "down"),
                       **{f"last_{loss}": last_of(point, loss) for loss in ("loss", "validation_loss", "clean_validation_loss")})
        writer.writerow([cell(row.get(column)) for column in COLUMNS])
    return text.getvalue()


def what_changed(before, now):
    """The differences of two identities: "rates: '1gbit' is now '100mbit'"; "" if there are none."""
    old, new = ({entry["what"]: entry["text"] for entry in results["identity"]} for results in (before, now))

    def difference(what):
        texts = old.get(what, ""), new.get(what, "")
        if any(len(text) > LONGEST_SHOWN or "\n" in text for text in texts):
            return f"{what}: not what it was"
        return f"{what}: '{texts[0]}' is now '{texts[1]}'"

    return "; ".join(difference(what) for what in sorted({*old, *new}) if old.get(what, "") != new.get(what, ""))


class Store:
    """The results in a folder. `fresh`: those of a sweep of which nothing has run. `page` makes the report of results. Holds the
    folder's lock until it is closed."""

    def __init__(self, folder, fresh, retry_failed, page=report.page):
        self.folder, self.results, self.goes_on, self.page = pathlib.Path(folder), fresh, False, page
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = files.lock(self.folder / ".lock")
        except OSError as error:
            raise Failed(f"--out: {error}") from None
        if self.lock is None:
            raise Failed(f"another `longhaul sweep` is at work in {folder}; wait for it, or give another --out")
        files.remove_pending(self.folder)
        try:
            self._take_over(self.folder / "results.json", retry_failed)
        except BaseException:
            self.close()
            raise

    def close(self):
        self.lock.close()

    def report_path(self):
        return self.folder / "report.html"

    def _take_over(self, path, retry_failed):
        if not path.exists():
            return
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
            if before["format"] != FORMAT:
                raise ValueError(f"expected format {FORMAT}, got {before['format']}")
            known = {point["id"]: point for point in before["points"]}
            changed = what_changed(before, self.results)
            # Whether a point is possible is for this machine to say, now.
            kept = {name for name, point in known.items()
                    if point["state"] == "done" or (point["state"] == "failed" and not retry_failed)}
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"{path} is no results file that this version can go on with: {type(error).__name__}: {error}. Give "
                         "another --out, or delete the file to begin anew") from None
        if changed:
            raise Failed(f"{path} has results of another sweep: {changed}. Give another --out, or make the sweep what it was; to "
                         "begin anew here, delete the folder")
        self.results["points"] = [known[point["id"]] if point["id"] in kept else point for point in self.results["points"]]
        self.goes_on = True

    def record(self, result):
        points = self.results["points"]
        points[[point["id"] for point in points].index(result["id"])] = result
        self.write()

    def write(self):
        """Writes everything anew."""
        files.write(self.folder / "results.json", to_json(self.results))
        files.write(self.folder / "results.csv", to_csv(self.results))
        files.write(self.report_path(), self.page(self.results))
