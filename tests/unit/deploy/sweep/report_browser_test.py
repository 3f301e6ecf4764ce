"""Opens reports in headless Chromium: no console errors, no requests, charts and tables present, nothing
wider than the screen, no text cut off or over another.

usage: report_browser_test.py
       report_browser_test.py --pictures OUT REPORT.html...   screenshots and PDFs to look at
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
import browser  # noqa: E402
import sample  # noqa: E402
from longhaul_sweep import report  # noqa: E402

DESKTOP, PHONE = 1280, 390

# Remembers what stands on each canvas since it was cleared: texts with their places and colours.
REMEMBER = """
(() => {
  const drawn = new WeakMap();
  const context = CanvasRenderingContext2D.prototype;
  const { clearRect, fillText } = context;
  context.clearRect = function (...box) {
    drawn.set(this.canvas, []);
    clearRect.apply(this, box);
  };
  context.fillText = function (text, x, y) {
    fillText.call(this, text, x, y);
    const size = this.measureText(text), at = this.getTransform();
    const corners = [[x - size.actualBoundingBoxLeft, y - size.actualBoundingBoxAscent],
                     [x + size.actualBoundingBoxRight, y + size.actualBoundingBoxDescent]].map(([x, y]) => at.transformPoint({ x, y }));
    const [left, right] = corners.map((corner) => corner.x).sort((a, b) => a - b);
    const [top, bottom] = corners.map((corner) => corner.y).sort((a, b) => a - b);
    if (text !== '') drawn.get(this.canvas)?.push({ text, left, right, top, bottom, colour: this.fillStyle });
  };
  window.textsOf = (canvas) => drawn.get(canvas) ?? [];
})()"""
CANVASES = "[...document.querySelectorAll('figure.chart canvas')]"
# Texts that are cut off, and texts over each other.
OUTSIDE = f"""
{CANVASES}.flatMap((canvas) => textsOf(canvas).filter((text) =>
  text.left < -1 || text.right > canvas.width + 1 || text.top < -1 || text.bottom > canvas.height + 1).map((text) => text.text))"""
OVERLAPPING = f"""
{CANVASES}.flatMap((canvas) => textsOf(canvas).flatMap((a, i, texts) => texts.slice(i + 1).filter((b) =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom).map((b) => a.text + ' over ' + b.text)))"""
TEXTS = f"{CANVASES}.map((canvas) => textsOf(canvas).length)"
# Names in a legend that are cut off.
CUT_OFF = """
[...document.querySelectorAll('.u-legend th')].filter((name) => name.getBoundingClientRect().right >
  name.closest('tr').getBoundingClientRect().right + 1).map((name) => name.textContent)"""
# Smallest contrast of a curve and of a text with the page.
CONTRAST = f"""
(() => {{
  const numbers = (text) => text.startsWith('#') ? text.slice(1).match(/../g).map((two) => parseInt(two, 16))
    : text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (text) => {{
    const [r, g, b] = numbers(text).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }};
  const back = light(getComputedStyle(document.body).backgroundColor);
  const contrast = (text) => (Math.max(light(text), back) + 0.05) / (Math.min(light(text), back) + 0.05);
  const curves = [...document.querySelectorAll('figure.chart:not(.filled) tr:not(:first-child) .u-marker')]
    .map((one) => getComputedStyle(one).borderTopColor);
  const texts = {CANVASES}.flatMap((canvas) => textsOf(canvas).map((text) => text.colour));
  return [curves, texts].map((colours) => Math.min(...colours.map(contrast)));
}})()"""
# For each chart, the colours of its legend that the chart does not show.
MISSING = """
[...document.querySelectorAll('figure.chart')].map((figure) => {
  const canvas = figure.querySelector('canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Map();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] !== 255) continue;
    const colour = `rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`;
    seen.set(colour, (seen.get(colour) ?? 0) + 1);
  }
  const wanted = [...figure.querySelectorAll('tr:not(:first-child) .u-marker')].map((one) => {
    const style = getComputedStyle(one);
    return figure.classList.contains('filled') ? style.backgroundColor : style.borderTopColor;
  });
  return wanted.filter((colour) => !(seen.get(colour) >= 10)).length;
})"""
# How long the parts of the topmost bar are, of the chart's width.
BAR = """
(() => {
  const figure = document.querySelector('figure.filled');
  const canvas = figure.querySelector('canvas'), frame = canvas.getBoundingClientRect();
  const over = figure.querySelector('.u-over').getBoundingClientRect();
  const { data } = canvas.getContext('2d').getImageData(over.left - frame.left, over.top - frame.top + 16, over.width, 1);
  const parts = {};
  for (let i = 0; i < data.length; i += 4) {
    const colour = `rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`;
    parts[colour] = (parts[colour] ?? 0) + 1 / over.width;
  }
  return [...figure.querySelectorAll('tr:not(:first-child) .u-marker')].slice(0, 4).map((one) => parts[getComputedStyle(one).backgroundColor]);
})()"""


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def others(page):
    """What the page asked for beside itself and what stands in it."""
    check(any(url.startswith("file:") for url in page.requests), "no request is seen")
    return [url for url in page.requests if not url.startswith(("file:", "data:"))]


def check_page(page, name, width, charts):
    check(page.errors == [], name, "console:", page.errors)
    check(others(page) == [], name, "requests:", others(page))
    texts = page.evaluate(TEXTS)
    check(len(texts) == charts, name, "has", len(texts), "charts")
    check(min(texts) >= 5, name, "has", texts, "texts on its charts")
    check(page.evaluate("document.querySelectorAll('.scroll tbody tr').length") > 8, name, "tables")
    shown = page.evaluate("document.documentElement.scrollWidth")
    check(shown <= width, name, "is", shown, "wide on a screen of", width)
    check(page.evaluate(OUTSIDE) == [], name, "outside:", page.evaluate(OUTSIDE))
    check(page.evaluate(OVERLAPPING) == [], name, "overlap:", page.evaluate(OVERLAPPING))
    check(page.evaluate(CUT_OFF) == [], name, "legend:", page.evaluate(CUT_OFF))
    curves, texts = page.evaluate(CONTRAST)
    check(curves >= 3 and texts >= 4.5, name, "contrast", curves, texts)


def check_values(page):
    """What is drawn is what the sample has (sample.py)."""
    check(page.evaluate(MISSING) == [0] * 7, "curves that are not drawn:", page.evaluate(MISSING))
    for part, share in zip(page.evaluate(BAR), (0.3, 0.05, 0.2, 0.35)):
        check(abs(part - share) < 0.01, "a part is", part, "of the bar, not", share)
    for section, right, values in (
            ("throughput", 0.9, ["20 Mbit/s", "8,192", "5,851", "25,600", "21,558"]),
            ("throughput", 0.1, ["5 Mbit/s", "2,409", "1,638", "12,047", "8,904"]),
            ("prediction", 0.95, ["5 Mbit/s, fp32, 1f1b: predicted 2.42 s, measured 2.5 s", "", "", "", "–", "2.5 s", "–", "–"]),
            ("loss", 0.99, ["20", "3.0500", "3.1500", "2.8800", "2.8950"])):
        area = f".charts[data-charts={section}]"
        legend = f"[...document.querySelector('{area} .u-legend').querySelectorAll('td')].map((one) => one.textContent)"
        page.hover(f"{area} .u-over", right, 0.5)
        page.wait(f"{legend}[0] === '{values[0]}'")
        check(page.evaluate(legend) == values, section, page.evaluate(legend))


def check_print(page):
    """Paper is light, also where the screen is dark."""
    ink = f"textsOf({CANVASES}[0])[0].colour"
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {ink}; }})")
    check(page.pdf().startswith(b"%PDF"), "prints")
    check(page.evaluate("window.printed") == "#59636e", "ink on paper:", page.evaluate("window.printed"))
    page.wait(f"{ink} === '#a4adb6'")


def partial():
    results = sample.sample()
    results["points"][1].update(state="failed", reason="the run failed: worker2 was lost")
    results["points"][2]["state"] = "waiting"
    return results


def crowded():
    """Many of all dimensions, with long names, a link that is not shaped, and numbers that no axis has."""
    points = [{**sample.measured(rate or 2_000_000_000, links, schedule), "rate_bits_per_second": rate, "delay_seconds": 0.025,
               "variant": "microbatches of 2", "repeat": 2}
              for rate in (0, 1_000_000_000, 500_000_000, 400_000_000, 100_000_000, 10_000_000)
              for links in ("fp32", "four bits and eight bits", "c", "d", "e", "f")
              for schedule in ("link-aware", "1f1b", "gpipe", "2bw")]
    points[0]["simulated_seconds"] = 0.0
    for step in points[0]["curve"]:
        step.update(loss=None, validation_loss=None)
    return {**sample.sample(), "points": points}


def test():
    reports = {"full": sample.sample(), "partial": partial(), "replayed": sample.replayed(), "crowded": crowded()}
    with tempfile.TemporaryDirectory() as folder, browser.Browser() as chromium:
        # Throughput, times at each rate, prediction; losses against steps and against time at each rate.
        for name, charts in (("full", 1 + 2 + 1 + 3), ("partial", 1 + 2 + 1 + 3), ("replayed", 1 + 2 + 1),
                             ("crowded", 1 + 6 + 1 + 7)):
            path = pathlib.Path(folder) / f"{name}.html"
            path.write_text(report.page(reports[name]), encoding="utf-8")
            for width in (DESKTOP, PHONE):
                for dark in (False, True):
                    page = chromium.open(path.as_uri(), "dark" if dark else "light", width, REMEMBER)
                    check_page(page, f"{name} at {width}{' dark' if dark else ''}", width, charts)
                    if name == "full":
                        check_values(page)
        check_print(chromium.open((pathlib.Path(folder) / "full.html").as_uri(), "dark", DESKTOP, REMEMBER))
        # The test sees what it looks for.
        bad = pathlib.Path(folder) / "bad.html"
        bad.write_text("<body><img src='http://127.0.0.1:1/x.png'><script>console.error(1)</script>")
        page = chromium.open(bad.as_uri(), width=DESKTOP)
        check(page.errors != [] and others(page) != [], "a bad page passes")
    print("reports are fine in", browser.find())


def pictures(out, reports):
    out.mkdir(parents=True, exist_ok=True)
    with browser.Browser() as chromium:
        for report in reports:
            for width, dark in ((DESKTOP, False), (DESKTOP, True), (PHONE, False)):
                page = chromium.open(report.resolve().as_uri(), "dark" if dark else "light", width)
                name = f"{report.stem}-{width}{'-dark' if dark else ''}.png"
                page.screenshot(out / name, whole=True)
            (out / f"{report.stem}.pdf").write_bytes(page.pdf())
    print(out)


def main():
    if browser.find() is None:
        print("skipped: there is no Chromium; deploy/setup.sh --test brings it")
        return 77
    if sys.argv[1:2] == ["--pictures"]:
        pictures(pathlib.Path(sys.argv[2]), [pathlib.Path(name) for name in sys.argv[3:]])
    else:
        test()
    return 0


if __name__ == "__main__":
    sys.exit(main())
