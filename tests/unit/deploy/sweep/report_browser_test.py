"""Opens reports in headless Chromium: no console errors, no requests, plots and tables present, and
nothing wider than the screen.

usage: report_browser_test.py REPORT_EXAMPLE
       report_browser_test.py --pictures OUT REPORT.html...   screenshots and PDFs to look at
"""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
import browser  # noqa: E402

DESKTOP, PHONE = 1280, 390

# Marks outside of their picture, and texts over each other, in a plot.
OUTSIDE = """
[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text,path.marker,rect')].filter(mark => {
    const box = mark.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
           box.bottom > frame.bottom + 1;
  }).map(mark => mark.outerHTML);
})"""
OVERLAPPING = """
[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) =>
    p.left < q.right && q.left < p.right && p.top + 2 < q.bottom - 2 && q.top + 2 < p.bottom - 2
  ).map(([b, q]) => a + ' over ' + b));
})"""
# Smallest contrast of a line or a text in a plot with the page.
CONTRAST = """
(() => {
  const parts = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = text => {
    const [r, g, b] = parts(text).map(v => v / 255).map(
      v => v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = light(getComputedStyle(document.body).backgroundColor);
  const contrast = text => {
    const of = light(text);
    return (Math.max(of, back) + 0.05) / (Math.min(of, back) + 0.05);
  };
  const strokes = [...document.querySelectorAll('path.line,path.marker')]
    .map(mark => contrast(getComputedStyle(mark).stroke));
  const texts = [...document.querySelectorAll('svg text')]
    .map(mark => contrast(getComputedStyle(mark).fill));
  return [Math.min(...strokes), Math.min(...texts)];
})()"""


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def others(page):
    """What the page asked for beside itself and what stands in it."""
    check(any(url.startswith("file:") for url in page.requests), "no request is seen")
    return [url for url in page.requests if not url.startswith(("file:", "data:"))]


def check_page(page, name, width, losses):
    check(page.errors == [], name, "console:", page.errors)
    check(others(page) == [], name, "requests:", others(page))
    plots = page.evaluate("document.querySelectorAll('figure.plot svg').length")
    check(plots >= (7 if losses else 4), name, "has", plots, "plots")
    drawn = page.evaluate("[...document.querySelectorAll('figure.plot svg')].filter("
                          "svg => svg.getBoundingClientRect().height > 50 && "
                          "svg.querySelector('path.marker,rect')).length")
    check(drawn == plots, name, "draws", drawn, "of", plots)
    check(page.evaluate("document.querySelectorAll('table tbody tr').length") > 8, name, "tables")
    shown = page.evaluate("document.documentElement.scrollWidth")
    check(shown <= width, name, "is", shown, "wide on a screen of", width)
    check(page.evaluate(OUTSIDE) == [], name, "outside:", page.evaluate(OUTSIDE))
    check(page.evaluate(OVERLAPPING) == [], name, "overlap:", page.evaluate(OVERLAPPING))
    strokes, texts = page.evaluate(CONTRAST)
    check(strokes >= 3 and texts >= 4.5, name, "contrast", strokes, texts)


def test(example):
    with tempfile.TemporaryDirectory() as folder, browser.Browser() as chromium:
        subprocess.run([example, folder], check=True, timeout=60)
        for name, losses in (("full", True), ("partial", True), ("replayed", False)):
            path = pathlib.Path(folder) / f"{name}.html"
            for width in (DESKTOP, PHONE):
                for dark in (False, True):
                    page = chromium.open(path.as_uri(), "dark" if dark else "light", width)
                    check_page(page, f"{name} at {width}{' dark' if dark else ''}", width, losses)
        check(page.pdf().startswith(b"%PDF"), "prints")
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
    if sys.argv[1] == "--pictures":
        pictures(pathlib.Path(sys.argv[2]), [pathlib.Path(name) for name in sys.argv[3:]])
    else:
        test(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
