#!/usr/bin/env python3
"""Makes docs/picture/glasspane.png: the page of `colibri-mcp glasspane --open`, with a call that waits for a person.

usage: docs/picture/make.py

A private daemon hosts a directory of notes beside other servers. Its trail has a day of made-up calls (the fixture
recorded-day), and one real call, which a rule suspends. A headless Chromium draws the page that is served then. Programs
are taken from target/release, or COLIBRI_BIN_DIR; tests/picture/run.py draws the same picture, and checks it.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tests" / name) for name in ("picture", "interop")]

from browser import Browser  # noqa: E402
from harness import Daemon, binary  # noqa: E402

PICTURE = HERE / "glasspane.png"
WIDTH, HEIGHT = 1280, 1008
# Calls of the day, and the seconds of it that the page shows.
CALLS, SHOWN = 8000, 6 * 3600
CALL = ["call", "notes", "write_note", "name=agreed", "text=Move the backup to Monday."]
# A name that is nobody's machine.
HOST = "devbox"
# The texts in the window, and of these the ones that are cut off: a part of them lies outside of the nearest box, or of the
# window.
TEXTS = """(() => {
    const shown = [], cut = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, range = document.createRange();
        if (!node.data.trim() || !node.parentElement.checkVisibility()) continue;
        let box = node.parentElement;
        while (getComputedStyle(box).display === 'inline' && !(box instanceof SVGSVGElement)) box = box.parentElement;
        range.selectNodeContents(node);
        const outer = box.getBoundingClientRect();
        // Headings for screen readers alone.
        if (outer.width <= 1) continue;
        if (outer.top > innerHeight) continue;
        shown.push(node.data.trim());
        for (const inner of range.getClientRects())
            if (inner.right > Math.min(outer.right, innerWidth) + 1 || inner.left < Math.max(outer.left, 0) - 1)
                cut.push(node.data.trim().slice(0, 40));
    }
    return [shown, cut];
})()"""


def registry(notes):
    """The servers of the recorded day. Only notes is started."""
    fixture = {"command": str(binary("fixture-server"))}
    return {
        "github": {"url": "https://127.0.0.1:1/mcp"},
        "postgres": fixture | {"jail": {"name": "postgres", "user": "nobody"}},
        "files": fixture,
        "browser": fixture | {"jail": {"name": "browser", "user": "nobody"}},
        "notes": {"command": str(binary("colibri-mcp")), "args": ["demo-server", "--notes", str(notes)],
                  "tools": {"confirm": ["write_note"]}},  # fmt: skip
    }


def draw(browser, work, picture):
    """Writes the picture, by means of the empty directory `work`. Returns its texts, and those that are cut off."""
    state, notes = work / "state", work / "notes"
    notes.mkdir()
    subprocess.run([binary("recorded-day"), state, str(CALLS)], check=True)
    rights = {"gates": ["external-call"], "servers": {"*": ["*"]}, "operator": True, "self_approve": True}
    clients = work / "clients.json"
    clients.write_text(json.dumps({"users": {str(os.geteuid()): rights}}))
    clients.chmod(0o600)
    environment = os.environ | {"BROWSER": "/nonexistent/browser", "TMPDIR": str(work)}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # The page names the registry by the path that the daemon was given.
    with contextlib.chdir(work), Daemon(pathlib.Path(), registry(notes), "--clients", clients, state=state) as daemon:
        client = [binary("colibri-mcp"), "--socket", daemon.socket]
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - SHOWN))
        page = ["glasspane", "--open", "--since", since, "--state-dir", state]
        served = subprocess.Popen([*client, *page], env=environment, **pipes)
        call = subprocess.Popen([*client, *CALL], **pipes)
        try:
            line = next(line for line in served.stdout if "open.html" in line)
            browser.zone("UTC")
            browser.follow(pathlib.Path(re.search(r"(/\S+open\.html)", line)[1]).as_uri(), WIDTH, HEIGHT)
            drawn = "document.querySelector('#waiting button') && document.querySelector('#live').innerText.includes('Live')"
            browser.until(drawn, "a live page with the call that waits")
            browser.run(f"document.querySelector('#host').textContent = 'on {HOST}'")
            browser.frames()
            browser.picture(picture, whole=False)
            return browser.run(TEXTS)
        finally:
            for process in (served, call):
                process.kill()
                process.wait()
            browser.zone("")


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    with Browser() as browser, tempfile.TemporaryDirectory(prefix="colibri-picture-") as work:
        _, cut = draw(browser, pathlib.Path(work), PICTURE)
    if cut:
        sys.exit(f"make.py: texts are cut off: {cut}")
    print(f"wrote {PICTURE.name}: {PICTURE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
