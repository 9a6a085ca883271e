# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium over its pipe: opens a local page at a width, evaluates JavaScript, takes screenshots."""
import base64
import json
import os
import shutil
import subprocess
import tempfile

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """The path of a browser, or None."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """with Browser() as browser: browser.open(path); browser.resize(360, 640); browser.evaluate("document.title")"""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="medusa-browser-")
        to_read, self.to = os.pipe()
        self.answers, to_write = os.pipe()
        self.log = open(os.path.join(self.profile.name, "log"), "w+b")

        # The browser reads its orders from descriptor 3 and answers on descriptor 4. These may be the pipes' own numbers.
        def arrange():
            orders, answers = os.dup(to_read), os.dup(to_write)
            high = [os.dup2(fd, number) for fd, number in ((orders, 60), (answers, 61))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [find(), "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--force-color-profile=srgb", f"--user-data-dir={self.profile.name}/profile", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=arrange, pass_fds=(3, 4))
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.happened = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self.to)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)
        self.log.close()
        self.profile.cleanup()

    session = None

    def receive(self):
        while b"\0" not in self.rest:
            piece = os.read(self.answers, 1 << 16)
            if not piece:
                self.log.seek(0)
                raise RuntimeError("the browser has ended: " + self.log.read().decode(errors="replace")[-2000:])
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        order = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            order["sessionId"] = self.session
        data = json.dumps(order).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            message = self.receive()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.happened.append(message)

    def open(self, path):
        """Opens a file, or a page of a server, and returns when it has been loaded."""
        self.happened.clear()
        self.origin = "/".join(path.split("/")[:3]) + "/" if path.startswith("http:") else "file:"
        self.call("Page.navigate", url=path if path.startswith("http:") else "file://" + os.path.abspath(path))
        while not any(message["method"] == "Page.loadEventFired" for message in self.happened):
            self.happened.append(self.receive())

    def resize(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def scripts(self, on):
        """Whether pages that are opened from now on may run scripts; evaluate() works in any case."""
        self.call("Emulation.setScriptExecutionDisabled", value=not on)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def complaints(self):
        """Errors of the page, and what it tried to load beside itself."""
        found = []
        for message in self.happened:
            parameters = message.get("params", {})
            if message["method"] == "Log.entryAdded" or message["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters)[:300])
            if message["method"] == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith((self.origin, "data:")):
                found.append("loads " + parameters["request"]["url"][:200])
        return found

    def screenshot(self, path, whole=True):
        """Of the whole page, or of what the window shows."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))
