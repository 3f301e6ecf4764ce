"""A headless Chromium, driven over a pair of pipes. Standard library only.

with Browser() as browser:
    page = browser.open(pathlib.Path("report.html"), width=390)
    page.evaluate("document.title")
"""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DEADLINE_S = 60


def find():
    """The program, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="longhaul-browser-",
                                                   ignore_cleanup_errors=True)
        its_read, self.write = os.pipe()
        self.read, its_write = os.pipe()
        # Beyond 3 and 4, which the browser wants them to be.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (its_read, its_write)]
        command = [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update",
                   "--disable-dev-shm-usage", "--remote-debugging-pipe",
                   f"--user-data-dir={self.profile.name}", "about:blank"]

        def take_their_places():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(command, close_fds=False, preexec_fn=take_their_places,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in (its_read, its_write, *ends):
            os.close(fd)
        self.buffer, self.number, self.events = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(timeout=DEADLINE_S)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.profile.cleanup()

    def _receive(self, end):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError("the browser does not answer")
            data = os.read(self.read, 1 << 16)
            if not data:
                raise AssertionError("the browser has ended")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, parameters=None, session=None):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + DEADLINE_S
        while True:
            answer = self._receive(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method):
        end = time.monotonic() + DEADLINE_S
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._receive(end))

    def open(self, path, width, height=844, dark=False):
        return Page(self, path, width, height, dark)


class Page:
    def __init__(self, browser, path, width, height, dark):
        self.browser = browser
        target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.session = browser.call("Target.attachToTarget",
                                    {"targetId": target, "flatten": True})["sessionId"]
        browser.events.clear()
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.call("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        self.url = path.resolve().as_uri()
        self.call("Page.navigate", {"url": self.url})
        browser.wait_for("Page.loadEventFired")

    def call(self, method, parameters=None):
        return self.browser.call(method, parameters, self.session)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def requests(self):
        """URLs that the page asked for, other than its own and what stands in it."""
        urls = [event["params"]["request"]["url"] for event in self.browser.events
                if event.get("method") == "Network.requestWillBeSent"]
        assert self.url in urls, urls  # else nothing is seen
        return [url for url in urls if url != self.url and not url.startswith("data:")]

    def complaints(self):
        """What the console says."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.browser.events if event.get("method") in methods]

    def screenshot(self):
        """PNG of the whole page."""
        return base64.b64decode(self.call("Page.captureScreenshot", {
            "captureBeyondViewport": True, "clip": {
                "x": 0, "y": 0, "scale": 1, "width": self.evaluate("innerWidth"),
                "height": self.evaluate("document.documentElement.scrollHeight")}})["data"])

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", {
            "printBackground": False, "preferCSSPageSize": True})["data"])
