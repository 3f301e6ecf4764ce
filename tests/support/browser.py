"""A headless Chromium, driven by the DevTools protocol over a pipe: it needs nothing but the browser.

with Browser() as browser:
    page = browser.open("http://127.0.0.1:8080/")
    page.wait("document.querySelector('h1')")
    page.screenshot("page.png")

What scripts of a page complain about is in page.errors, and every address that it asked for in page.requests.
"""
import base64
import ctypes
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 20


def find():
    """The browser's path, or None."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


def leave_network():
    """Takes this process, and what it starts, into a network of its own that has only the loopback device.

    Chromium ends every request that is under way when the machine gets or loses a network device, as it does when
    other tests make network namespaces. Without the rights for that, everything stays as it is.
    """
    clone_newnet = 0x40000000
    if ctypes.CDLL(None).unshare(clone_newnet) == 0:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, width=1440, height=900):
        self.size = (width, height)
        self.folder = tempfile.mkdtemp(prefix="longhaul-browser-")
        from_us, to_us = os.pipe(), os.pipe()

        def wire():
            # The protocol's pipes are 3 and 4; both go above them first, so that neither is overwritten.
            high = [os.dup2(from_us[0], 20), os.dup2(to_us[1], 21)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
            os.setsid()

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--force-device-scale-factor=1", f"--window-size={width},{height}",
             f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(from_us[0])
        os.close(to_us[1])
        self.out, self.into = from_us[1], to_us[0]
        self.buffer, self.number, self.answers, self.pages = b"", 0, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The whole session of processes that was started here.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, session=None, **parameters):
        self.number += 1
        number = self.number
        request = {"id": number, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while number not in self.answers:
            self.take(end)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def take(self, end):
        """Reads what the browser says, at least one message or until `end`."""
        if not select.select([self.into], [], [], max(0, end - time.monotonic()))[0]:
            raise BrowserError("the browser does not answer")
        read = os.read(self.into, 1 << 20)
        if not read:
            raise BrowserError("the browser has ended")
        *messages, self.buffer = (self.buffer + read).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].hear(message["method"], message["params"])

    def open(self, address, scheme="light", width=None, before=None):
        """`before`: a script that runs before those of the page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, (width or self.size[0], self.size[1]))
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.resize(*page.size)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        if before:
            page.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        page.call("Page.navigate", url=address)
        page.wait("document.readyState === 'complete'")
        return page


class Page:
    def __init__(self, browser, session, size):
        self.browser, self.session, self.size = browser, session, size
        self.errors, self.requests = [], []

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def hear(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value", one.get("description")) for one in parameters["args"]]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            entry = parameters["entry"]
            self.errors.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)

    def evaluate(self, script):
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise BrowserError(f"{script}: {reply['exceptionDetails']['exception'].get('description')}")
        return reply["result"].get("value")

    def wait(self, condition, limit_s=PATIENCE_S, every_s=0.02):
        """Until the script's value is true."""
        end = time.monotonic() + limit_s
        while True:
            if self.evaluate(f"(() => {{ try {{ return !!({condition}); }} catch {{ return false; }} }})()"):
                return
            if time.monotonic() > end:
                raise BrowserError(f"after {limit_s} s not yet: {condition}\n" + "\n".join(self.errors))
            time.sleep(every_s)

    def hover(self, selector, right, down):
        """Points into the first element of `selector`, at these shares of its width and height."""
        left, top, width, height = self.evaluate(f"""(() => {{ const node = document.querySelector({json.dumps(selector)});
          node.scrollIntoView({{ block: 'center' }}); const box = node.getBoundingClientRect();
          return [box.left, box.top, box.width, box.height]; }})()""")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + right * width, y=top + down * height)

    def press(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key,
                      **({"text": key} if len(key) == 1 and kind == "keyDown" else {}))

    def screenshot(self, path, whole=False):
        """`whole`: with what one would have to scroll to."""
        if whole:
            height = self.evaluate("document.documentElement.scrollHeight")
            self.resize(self.size[0], min(int(height), 6000))
            self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
        if whole:
            self.resize(*self.size)

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])
