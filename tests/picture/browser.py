"""A headless Chromium, spoken to over two pipes (--remote-debugging-pipe): no port, no library."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 120


def program():
    """Debian's Chromium, or what COLIBRI_CHROMIUM names."""
    found = os.environ.get("COLIBRI_CHROMIUM") or shutil.which("chromium")
    if not found:
        sys.exit("there is no chromium: apt-get install chromium, or set COLIBRI_CHROMIUM")
    return found


class Browser:
    """One browser with one page, as a context manager. `said` is what pages said on the console or did not do well,
    `asked` the URLs that were requested, `dialogs` the words of dialogs."""

    def __enter__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="colibri-chromium-"))
        ours, theirs = os.pipe(), os.pipe()
        flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.home}", "--no-first-run",
                 "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                 # A private /dev/shm may be small, and root has no sandbox.
                 "--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank"]
        # It reads from descriptor 3 and writes to 4.
        script = f'exec 3<&{ours[0]} 4>&{theirs[1]}; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", script, "chromium", program(), *flags], cwd=self.home,
                                        pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=(self.home / "stderr").open("wb"),
                                        start_new_session=True, env=os.environ | {"HOME": str(self.home)})
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.back = ours[1], theirs[0]
        self.buffer, self.number, self.session = b"", 0, None
        self.said, self.asked, self.dialogs, self.events = [], [], [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Network", "Log", "Runtime"]:
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.session = None
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            # Its process group has this number, and nothing else in it.
            os.killpg(self.process.pid, 9)
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.home, ignore_errors=True)

    def read(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.back], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.back, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("chromium says nothing: " + (self.home / "stderr").read_text()[-2000:])
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def note(self, message):
        method, params = message.get("method"), message.get("params", {})
        self.events.append(method)
        if method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            url = params["entry"].get("url", "")
            # A browser asks each site for its icon, at a time of its own, and no page of ours has one.
            if not url.endswith("/favicon.ico"):
                self.said.append(f"{params['entry']['text']} {url}".strip())
        elif method == "Runtime.exceptionThrown":
            self.said.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.said.append(json.dumps(params["args"]))
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def open(self, path, width=1280, height=900, dark=False):
        """Opens a file, and waits until it is loaded and drawn."""
        self.go(pathlib.Path(path).resolve().as_uri(), width, height, dark)

    def go(self, url, width=1280, height=900, dark=False):
        """Opens an address, and waits until it is loaded and drawn."""
        self.follow(url, width, height, dark)
        deadline = time.monotonic() + PATIENCE_S
        while "Page.loadEventFired" not in self.events:
            self.note(self.read(deadline))
        self.frames()

    def follow(self, url, width=1280, height=900, dark=False):
        """Opens an address, which may lead on to another one."""
        self.said, self.asked, self.dialogs, self.events = [], [], [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.dark(dark)
        self.call("Page.navigate", url=url)

    def dark(self, dark):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def frames(self):
        """Waits until what was changed is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def run(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True,
                           allowUnsafeEvalBlockedByCSP=False)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression, what):
        """Waits until an expression is true in the page, which may lead to another page meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self.run(f"Boolean({expression})"):
                    return
            except RuntimeError:
                # The page that was asked is gone.
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: {self.run('document.documentElement.innerText')[:2000]}")
            time.sleep(0.05)

    def zone(self, zone):
        """The time zone that pages have from now on."""
        self.call("Emulation.setTimezoneOverride", timezoneId=zone)

    def print(self, path):
        """A PDF of the page, as A4 paper."""
        pdf = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        pathlib.Path(path).write_bytes(base64.b64decode(pdf["data"]))

    def press(self, key):
        code = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Tab": 9, " ": 32}[key]
        more = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        for kind in ["keyDown", "keyUp"]:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      **(more if kind == "keyDown" else {}))
        self.frames()

    def picture(self, path, whole=True):
        """A PNG of the page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))
