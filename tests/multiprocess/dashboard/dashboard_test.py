"""The dashboard in a real browser, over stand-in workers: what it shows, that it follows, and that it asks nobody else.

usage: dashboard_test.py BIN_DIR SCREENSHOT_DIR

Exit code 77 where there is no Chromium (deploy/setup.sh --test brings it). Screenshots are for people to look at.
"""
import pathlib
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/bench/coordinator/dashboard")]
import browser as browsers  # noqa: E402
from fleet import Fleet  # noqa: E402

SKIPPED = 77
STAGES = 8
DRAWN = "document.documentElement.dataset.drawn"
# Every element that can be reached by keyboard or read aloud, and has no name of its own.
NAMELESS = """[...document.querySelectorAll('a, button, input, canvas, section, [role=img], [tabindex="0"]')]
  .filter((one) => !(one.closest('[role=img]')?.getAttribute('aria-label') || one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length))
  .map((one) => one.outerHTML.slice(0, 120))"""


def check(condition, *what):
    assert condition, " ".join(map(str, what))


def text(page, selector):
    return page.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")


def quiet(page, address):
    """No script complained, and nobody but the coordinator was asked."""
    check(not page.errors, "errors of the page:", page.errors)
    host = urllib.parse.urlsplit(address).netloc
    asked = {urllib.parse.urlsplit(url).netloc for url in page.requests if not url.startswith("data:")}
    check(asked == {host}, "the page asked", asked)


def shows_a_run(page, fleet):
    page.wait(DRAWN)
    check(fleet.run in text(page, "h1") and "running" in text(page, "h1"), text(page, "h1"))
    check(text(page, "#connection") == "live", text(page, "#connection"))
    check(page.evaluate("document.querySelectorAll('.cell').length") == STAGES, "not all cells")
    check(page.evaluate("document.querySelectorAll('.flow').length") == 2 * (STAGES - 1), "not all directions")
    for words in ("tah:p=0.7", "fixed:bits=6", "Mbit/s", "limited by", "waits for"):
        check(words in text(page, "#pipeline"), "the pipeline lacks", words)
    check(page.evaluate("document.querySelectorAll('.uplot').length") >= 3, "not all charts")
    # Something is drawn in the chart of the losses.
    check(page.evaluate("""(() => { const canvas = document.querySelector('.uplot canvas');
      const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return pixels.filter((value, index) => index % 4 === 3 && value > 0).length })()""") > 500, "an empty chart")
    page.wait("document.querySelector('#timeline .muted').textContent.startsWith('step ')")
    page.wait("document.querySelectorAll('#events li').length > 3")
    check(page.evaluate(NAMELESS) == [], "elements without a name:", page.evaluate(NAMELESS))


def follows(page, fleet):
    """A step is on the page within a second of the worker's report."""
    late_s = []
    for _ in range(3):
        step, _ = fleet.say("step 5").split()
        begin = time.monotonic()
        page.wait(f"document.documentElement.dataset.step === '{step}'")
        late_s.append(time.monotonic() - begin)
    check(f"{int(step):,}" in text(page, "#summary"), text(page, "#summary"))
    fleet.say("link 3 lost")
    page.wait("document.querySelectorAll('.flow.bad').length === 2")
    check("link lost" in text(page, "#pipeline"), text(page, "#pipeline"))
    page.wait("document.querySelector('#events').innerText.includes('is lost')")
    return late_s


def comes_back(page, fleet):
    """The coordinator goes away and returns: the page says so, and goes on by itself."""
    fleet.say("close")
    page.wait("document.querySelector('#connection').textContent === 'reconnecting'")
    check(fleet.say("open") == "opened", "the dashboard does not open again")
    page.wait("document.querySelector('#connection').textContent === 'live'")
    # The browser's own complaints of the requests that failed.
    refused = [error for error in page.errors if "ERR_CONNECTION_REFUSED" in error or "ERR_INCOMPLETE_CHUNKED" in error
               or "ERR_EMPTY_RESPONSE" in error or "ERR_CONNECTION_RESET" in error]
    check(page.errors == refused, page.errors)
    page.errors.clear()
    step, _ = fleet.say("step 5").split()
    page.wait(f"document.documentElement.dataset.step === '{step}'")


def other_views(page, fleet):
    page.press("w")
    page.wait("document.querySelectorAll('#workers tbody tr').length === 8")
    check("stand-in" in text(page, "#workers"), text(page, "#workers"))
    page.evaluate("document.querySelector('main input').value = 'worker0003'")
    page.evaluate("document.querySelector('main input').dispatchEvent(new Event('input'))")
    page.wait("document.querySelectorAll('#workers tbody tr').length === 1")
    check(page.evaluate(NAMELESS) == [], "elements without a name:", page.evaluate(NAMELESS))
    page.evaluate("location.hash = '#reports'")
    page.wait("document.querySelector('#reports a')")
    check("/report?name=rates&ticket=" in page.evaluate("document.querySelector('#reports a').href"), "no report")
    page.press("r")
    page.wait("document.querySelectorAll('.cell').length === 8")
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.press("t")
    page.wait(f"document.documentElement.dataset.theme !== '{theme}'")
    page.press("t")


def shows_that_a_run_is_gone(page, fleet):
    """Also for addresses that people write. Last, as it removes the fleet's run."""
    for name in ("never-was", "%zz"):
        page.evaluate(f"location.hash = '#run/{name}'")
        page.wait(f"document.querySelector('h1').innerText === 'There is no run {name}'")
    page.evaluate(f"location.hash = '#run/{fleet.run}'")
    page.wait("document.querySelectorAll('.cell').length === 8")
    # What was asked of a run that is not there.
    check(all("404" in error for error in page.errors), page.errors)
    page.errors.clear()
    check(fleet.say("remove") == "removed", "the run is not removed")
    page.wait(f"document.querySelector('h1').innerText === 'There is no run {fleet.run}'")
    check(text(page, "#summary") == "", "what it was is shown")
    check(not page.evaluate("document.querySelector('#run-list li')"), "it is listed")
    page.press("r")
    page.wait("document.querySelector('h1').innerText === 'No runs yet'")
    page.errors.clear()


def main():
    programs, pictures = sys.argv[1], pathlib.Path(sys.argv[2])
    if browsers.find() is None:
        print("skipped: there is no Chromium; deploy/setup.sh --test brings it")
        return SKIPPED
    browsers.leave_network()
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as reports:
        (pathlib.Path(reports) / "rates").mkdir()
        (pathlib.Path(reports) / "rates/report.html").write_text("<h1>rates</h1>")
        with Fleet(programs, "--workers", STAGES, "--stages", STAGES, "--reports", reports) as fleet, \
                browsers.Browser() as browser:
            page = browser.open(fleet.address)
            shows_a_run(page, fleet)
            page.screenshot(pictures / "run_light.png", whole=True)
            late_s = follows(page, fleet)
            page.screenshot(pictures / "run_link_lost.png", whole=True)
            comes_back(page, fleet)
            other_views(page, fleet)
            quiet(page, fleet.address)
            dark = browser.open(fleet.address, scheme="dark")
            dark.wait(DRAWN)
            check(dark.evaluate("document.documentElement.dataset.theme") == "dark", "not dark")
            dark.wait("document.querySelector('#timeline .muted').textContent.startsWith('step ')")
            dark.screenshot(pictures / "run_dark.png", whole=True)
            quiet(dark, fleet.address)
            shows_that_a_run_is_gone(page, fleet)
            quiet(page, fleet.address)
    print(f"updates were seen after {', '.join(f'{one:.2f}' for one in late_s)} s; screenshots in {pictures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
