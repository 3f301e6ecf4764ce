"""What stands in a report, and that no text gets out of its place."""
import html.parser
import json
import re
import unittest

import sample
from longhaul_sweep import report

VOID = {"meta", "link"}
EVIL = "\"><script src=\"https://evil.example/x.js\"></script><svg onload='x'>\x01"


class Tags(html.parser.HTMLParser):
    """All but HTML's void elements are closed in order; `problem` says what is not."""

    def __init__(self, text):
        super().__init__(convert_charrefs=False)
        self.open, self.problem, self.scripts, self.texts = [], "", 0, []
        self.feed(text)
        self.close()
        if self.open and not self.problem:
            self.problem = f"<{self.open[-1]}> is not closed"

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problem = self.problem or f"unexpected </{tag}>"

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.texts.append(data)
            if "<" in data:
                self.problem = self.problem or "a '<' that begins no tag"


def data_in(text):
    """What the charts are drawn from."""
    return json.loads(re.search('id="data">(.*?)</script>', text, re.DOTALL)[1])


class ReportTest(unittest.TestCase):
    def page(self, results):
        text = report.page(results)
        self.assertEqual(Tags(text).problem, "")
        return text

    def test_the_test(self):
        for bad in ("<p><b></p></b>", "<p>", "<p>1 < 2</p>"):
            self.assertNotEqual(Tags(bad).problem, "", bad)
        self.assertEqual(Tags('<p title="a">1 &lt; 2<br/></p>').problem, "")

    def test_curves_are_losses_alone(self):
        results = sample.sample()
        results["title"] = EVIL
        text = report.curves_page(results)
        self.assertEqual(Tags(text).problem, "")
        headings = re.findall("<h2>(.*?)</h2>", text)
        self.assertEqual(headings, ["Loss", "Details"])
        self.assertIn("What the runs sent between stages", text)
        self.assertEqual(len(data_in(text)["points"]), len(results["points"]))
        failed = sample.fresh()
        failed["points"][0].update(state="failed", reason="it broke <here>")
        text = report.curves_page(failed)
        self.assertEqual(Tags(text).problem, "")
        self.assertIn("it broke &lt;here&gt;", text)
        self.assertNotIn("<h2>Loss", text)

    def test_names_have_no_rate_where_nothing_shapes_links(self):
        results = sample.sample()
        for point in results["points"]:
            point["rate_bits_per_second"] = 0
        names = {point["name"] for point in data_in(report.page(results))["points"]}
        self.assertEqual(names, {"fp32, link-aware", "fp32, 1f1b", "paper, link-aware", "paper, 1f1b"})

    def test_every_chart_has_a_place(self):
        text = self.page(sample.sample())
        for chart in ("throughput", "time", "prediction", "loss"):
            self.assertEqual(text.count(f'data-charts="{chart}"'), 1, chart)
        for words in ("Permission is hereby granted", "Some CPU, 2 cores", "8 points done of 8", "the median of 8 points",
                      "Last point measured 2023-11-14 22:14 UTC"):
            self.assertIn(words, text)
        self.assertNotIn("Partial results", text)
        self.assertEqual(text.count('class="note"'), text.count("<noscript>"))

    def test_tables(self):
        text = self.page(sample.sample())
        # Throughput and how many times the first pair's; a point's step, error and share of the bound; bytes of its links.
        for cell in ('25,600 <span class="dim">3.12×</span>', "<td class=\"n\">-3.0 %</td>", "<td class=\"n\">90.0 %</td>",
                     "<td class=\"n\">50 KB</td>", "<td class=\"n\">1.5 KB</td>", "<td class=\"n\">35.0 %</td>",
                     "<td class=\"n\">2.9500</td>", "<td>egress of stage 1</td>", "<pre>name: tiny\nmodel: x\n</pre>"):
            self.assertTrue(cell in text, cell)

    def test_data_of_charts(self):
        results = sample.sample()
        data = data_in(self.page(results))
        self.assertEqual((len(data["curves"]), data["settings"], len(data["points"])), (4, [""], 8))
        self.assertEqual(data["rates"][1], {"place": 5e6, "label": "5 Mbit/s"})
        last, point = results["points"][-1], data["points"][-1]
        self.assertEqual((point["name"], point["rate"]), ("5 Mbit/s, paper, 1f1b", 1))
        self.assertEqual(data["curves"][point["curve"]]["name"], "paper, 1f1b")
        for key in ("step_seconds", "simulated_seconds"):
            self.assertEqual(point[key], last[key])
        self.assertAlmostEqual(point["shares"]["wait_gradient"], 0.35)
        self.assertAlmostEqual(point["shares"]["codec_thread"], 0.1)
        self.assertEqual((point["losses"]["validation"], point["losses"]["steps"]), (True, [5, 10, 15, 20]))
        self.assertAlmostEqual(point["losses"]["seconds"][1], 10 * last["step_seconds"])
        self.assertEqual(point["losses"]["values"][1], last["curve"][9]["validation_loss"])

    def test_a_chart_has_the_median_of_repeats(self):
        results = sample.sample()
        first = results["points"][0]
        results["points"] += [{**first, "repeat": repeat, "tokens_per_second": first["tokens_per_second"] / repeat}
                              for repeat in (2, 3)]
        data = data_in(self.page(results))
        self.assertEqual((len(data["points"]), len(data["medians"])), (10, 8))
        self.assertEqual(data["medians"][0]["tokens_per_second"], first["tokens_per_second"] / 2)

    def test_training_losses_where_nothing_validates(self):
        results = sample.sample()
        for step in results["points"][0]["curve"]:
            step["validation_loss"] = None
        losses = data_in(self.page(results))["points"][0]["losses"]
        self.assertEqual((losses["validation"], len(losses["steps"])), (False, 20))

    def test_partial(self):
        results = sample.sample()
        results["points"][3] = sample.waiting(20_000_000, "paper", "1f1b")
        text = self.page(results)
        self.assertIn("Partial results:</strong> 1 of 8 points have not run yet", text)
        self.assertIn("<td>waiting</td>", text)

    def test_nothing_yet(self):
        text = self.page(sample.fresh())
        self.assertIn("8 of 8 points have not run yet", text)
        self.assertEqual(text.count("data-charts="), 0)
        self.page({**sample.fresh(), "points": []})

    def test_what_failed_and_why(self):
        results = sample.sample()
        for i, (state, reason) in enumerate((("failed", "worker2 is <gone> & lost"), ("impossible", "too few workers"))):
            results["points"][i] = {**sample.fresh()["points"][i], "state": state, "reason": reason}
        text = self.page(results)
        self.assertIn("2 of 8 points have no measurement:</strong> 1 failed, 1 could not", text)
        self.assertIn("worker2 is &lt;gone&gt; &amp; lost", text)
        self.assertIn("too few workers", text)

    def test_replays(self):
        text = self.page(sample.replayed('one "GPU" a stage'))
        for words in ("<strong>Replayed:</strong>", "one &quot;GPU&quot; a stage", '<span class="badge">replayed</span>'):
            self.assertIn(words, text)
        self.assertNotIn("<h2>Loss</h2>", text)

    def test_no_text_gets_out_of_its_place(self):
        results = sample.replayed(EVIL)
        results.update(title=EVIL, version=EVIL, machine={**results["machine"], **dict.fromkeys(
            ("cpu", "system", "kernel", "gpus"), EVIL)}, identity=[{"what": EVIL, "text": EVIL + "\n" + EVIL}])
        for point in results["points"]:
            point.update(dict.fromkeys(("id", "links", "schedule", "variant", "bottleneck", "explanation", "reason"), EVIL))
            for row in point["stages"] + point["link_bytes"]:
                row["worker"] = EVIL
        results["points"][0]["state"] = "failed"
        text = self.page(results)
        self.assertEqual((Tags(text).scripts, text.count("<script"), text.count("</script")), (3, 3, 3))  # data, uPlot, ours
        self.assertIn("<script src=", data_in(text)["points"][0]["name"])
        self.assertIn("default-src 'none'; script-src 'sha256-", text)
        for bad in ("<svg onload", "\x01"):
            self.assertNotIn(bad, text)

    def test_a_link_that_is_not_shaped(self):
        results = sample.sample()
        for point in results["points"]:
            if point["rate_bits_per_second"] == 20_000_000:
                point["rate_bits_per_second"] = 0
        # Right of all others.
        self.assertEqual(data_in(self.page(results))["rates"],
                         [{"place": 5e6, "label": "5 Mbit/s"}, {"place": 15e6, "label": "not shaped"}])


if __name__ == "__main__":
    unittest.main()
