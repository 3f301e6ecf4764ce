"""The files of a sweep's results: their forms, and that nothing that was recorded is lost."""
import contextlib
import csv
import json
import os
import pathlib
import signal
import tempfile
import unittest
from unittest import mock

import sample
from longhaul_sweep import machine
from longhaul_sweep.cluster import Failed
from longhaul_sweep.results import COLUMNS, Store, count, to_csv, to_json, what_changed

DOCUMENTED = pathlib.Path(__file__).resolve().parents[4] / "docs/design/formats.md"


class FormsTest(unittest.TestCase):
    def test_json(self):
        results = sample.sample()
        document = json.loads(to_json(results))
        self.assertEqual(document["points"], results["points"])
        self.assertEqual((document["format"], document["partial"]), (1, False))
        results["points"][2] = sample.fresh()["points"][2]
        self.assertTrue(json.loads(to_json(results))["partial"])

    def test_csv_has_a_row_a_point_and_all_columns(self):
        results = sample.sample()
        results["points"][1] = {**sample.fresh()["points"][1], "state": "failed", "reason": 'it said "no", twice'}
        results["points"][2]["link_bytes"][0]["up"] = None
        lines = to_csv(results)
        self.assertEqual(lines.count("\r\n"), 9)
        rows = list(csv.DictReader(lines.splitlines()))
        self.assertEqual([row["point"] for row in rows], [point["id"] for point in results["points"]])
        self.assertEqual(rows[0]["step_seconds"], "0.5")
        self.assertEqual((rows[0]["uplink_bytes"], rows[2]["uplink_bytes"]), ("4000006", ""))
        self.assertEqual((rows[0]["last_loss"], rows[0]["last_validation_loss"], rows[0]["last_clean_validation_loss"]),
                         ("2.95", "3.05", "3"))
        self.assertEqual((rows[1]["reason"], rows[1]["replayed"], rows[0]["replayed"]), ('it said "no", twice', "", "no"))

    def test_every_column_is_documented(self):
        text = DOCUMENTED.read_text(encoding="utf-8")
        self.assertEqual([column for column in COLUMNS if f"`{column}`" not in text], [])

    def test_what_changed(self):
        def results(**identity):
            return {"identity": [{"what": what, "text": text} for what, text in identity.items()]}

        self.assertEqual(what_changed(results(a="1"), results(a="1")), "")
        self.assertEqual(what_changed(results(a="1", b="x\ny", c="3"), results(a="2", b="x\nz", d="4")),
                         "a: '1' is now '2'; b: not what it was; c: '3' is now ''; d: '' is now '4'")

    def test_this_machine(self):
        here = machine.this_machine()
        self.assertTrue(here["cpu"] and here["system"] and here["kernel"].startswith("Linux "), here)
        self.assertTrue(here["cores"] >= 1 and here["memory_bytes"] > 1 << 20, here)


def fresh():
    """Few points, for the many kills."""
    return {**sample.fresh(), "points": sample.fresh()["points"][:3]}


class StoreTest(unittest.TestCase):
    def setUp(self):
        # pylint: disable-next=consider-using-with  # The test's end removes it.
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name) / "out"

    def store(self, results=None, retry_failed=False):
        return contextlib.closing(Store(self.folder, results or fresh(), retry_failed))

    def states(self, **options):
        with self.store(**options) as store:
            return [point["state"] for point in store.results["points"]]

    def refusal(self, results=None):
        with self.assertRaises(Failed) as caught, self.store(results):
            pass
        return str(caught.exception)

    def test_goes_on_where_it_was(self):
        done = sample.sample()["points"][0]
        with self.store() as store:
            self.assertFalse(store.goes_on)
            store.record(done)
            store.record({**fresh()["points"][1], "state": "failed", "reason": "it died"})
        with self.store() as store:
            self.assertTrue(store.goes_on)
            self.assertEqual(store.results["points"][0], done)
        self.assertEqual(self.states(), ["done", "failed", "waiting"])
        self.assertEqual(self.states(retry_failed=True), ["done", "waiting", "waiting"])

    def test_what_is_possible_is_said_anew(self):
        results = fresh()
        results["points"][0]["state"] = "impossible"
        with self.store(results) as store:
            store.write()
        self.assertEqual(self.states(), ["waiting"] * 3)

    def test_another_sweep_is_refused(self):
        with self.store() as store:
            store.write()
        other = fresh()
        other["identity"][0]["text"] = "1gbit"
        said = self.refusal(other)
        self.assertIn("rates: '20mbit, 5mbit' is now '1gbit'", said)
        self.assertIn("Give another --out, or make the sweep what it was", said)

    def test_one_sweep_at_a_time(self):
        with self.store():
            self.assertIn("another `longhaul sweep` is at work in", self.refusal())
        self.assertEqual(self.states(), ["waiting"] * 3)

    def test_other_files_are_not_overwritten(self):
        self.folder.mkdir()
        for other in ('{"mine": 1}', "[]", "not JSON", '{"format": 2}'):
            (self.folder / "results.json").write_text(other)
            self.assertIn("is no results file that this version can go on with", self.refusal())
            self.assertEqual((self.folder / "results.json").read_text(), other)

    def test_unknown_points_are_refused(self):
        with self.store() as store, self.assertRaises(ValueError):
            store.record(sample.waiting(1, "x", "y"))

    def killed_at(self, deadly):
        """Records all points in another process, killed as by kill -9 at its `deadly`-th change of a file; whether it was."""
        child = os.fork()
        if child == 0:
            left = [deadly]

            def dying(real):
                def change(*arguments):
                    if left[0] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left[0] -= 1
                    return real(*arguments)
                return change

            with mock.patch("os.fsync", dying(os.fsync)), mock.patch("os.replace", dying(os.replace)), \
                    mock.patch("longhaul_sweep.report.page", str), self.store() as store:
                for point, result in zip(store.results["points"], sample.sample()["points"]):
                    if point["state"] == "waiting":
                        store.record(result)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            return True
        self.assertEqual(os.WEXITSTATUS(status), 0)
        return False

    def test_a_kill_at_any_moment_loses_nothing_that_was_recorded(self):
        recorded = set()
        for deadly in range(1000):
            killed = self.killed_at(deadly)
            with self.store() as store:
                points = store.results["points"]
                done = count(store.results, "done")
                # A prefix of the points, each as it was measured.
                self.assertEqual(points, sample.sample()["points"][:done] + fresh()["points"][done:])
            recorded.add(done)
            # It goes on from there to the end, and nothing else is left in the folder.
            self.assertFalse(self.killed_at(-1))
            self.assertEqual(self.states(), ["done"] * 3)
            self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                             [".lock", "report.html", "results.csv", "results.json"])
            self.temporary.cleanup()
            if not killed:
                break
        # Three files a point, each synced and renamed, and its folder synced.
        self.assertEqual((deadly, recorded), (3 * 3 * 3, {0, 1, 2, 3}))


if __name__ == "__main__":
    unittest.main()
