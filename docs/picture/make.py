#!/usr/bin/env python3
"""Draws docs/picture/colibri.svg: what a terminal shows of a call, of a refusal, and of the servers.

usage: docs/picture/make.py BINDIR [FILE]

Nothing in it is made up. The built programs of BINDIR serve a directory of notes from a temporary place, with a contract,
and what they print on a terminal is drawn, colours included.
"""

import fcntl
import html
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time

COLUMNS, WIDTH, HEIGHT, MARGIN, BAR = 96, 8.4, 19, 18, 34
COLOURS = {1: "#f0746e", 2: "#7ecb8f", 3: "#e8c468", 4: "#7aa7e8", 5: "#c792ea", 6: "#6fc6cf", 7: "#d7dae0"}
PLAIN, FAINT, PROMPT, GROUND = "#d7dae0", "#8b93a1", "#7ecb8f", "#1d2026"

CONTRACT = {
    "tools": {
        "read_note": {"allow": "reading is harmless"},
        "write_note": {
            "when": {
                "required": ["name", "text"],
                "properties": {"name": {"type": "string", "pattern": "^draft-[a-z]+$"}, "text": {"type": "string"}},
            },
            "reason": "only drafts may be written: draft-NAME",
        },
    }
}
COMMANDS = [
    ["call", "notes", "write_note", "name=draft-move", "text=Move the backup on Monday."],
    ["call", "notes", "write_note", "name=agreed", "text=The agent says: move it now."],
    ["glasspane", "--servers", "--once"],
]
# Of the servers what stands above the end of the trail: that is long.
UNTIL = re.compile(r"^TRAIL")


def shown(command, environment):
    """What a command prints on a terminal of COLUMNS columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    output = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:
            break
        if not more:
            break
        output += more
    process.wait()
    os.close(ours)
    return output.decode().replace("\r\n", "\n").rstrip("\n").split("\n")


def quoted(word):
    key, equals, value = word.partition("=")
    return f"{key}{equals}'{value}'" if " " in word else word


def session(bindir):
    """Lines as a terminal has them, escape sequences included; of the prompt's lines the first member is true."""
    with tempfile.TemporaryDirectory(prefix="host-") as name:
        place = pathlib.Path(name)
        (place / "notes").mkdir()
        contract, registry = place / "contract.json", place / "registry.json"
        contract.write_text(json.dumps(CONTRACT))
        server = {"command": str(bindir / "colibri-mcp"), "args": ["demo-server", "--notes", str(place / "notes")],
                  "contract": str(contract)}  # fmt: skip
        registry.write_text(json.dumps({"servers": {"notes": server}}))
        for file in (contract, registry):
            file.chmod(0o600)
        environment = {"PATH": f"{bindir}:{os.environ['PATH']}", "TERM": "xterm-256color", "HOME": name,
                       "COLIBRI_MCP_SOCKET": str(place / "socket"), "LANG": "C.UTF-8"}  # fmt: skip
        flags = ["--external-call", "--external-config", registry, "--state-dir", place / "state"]
        if os.getuid() == 0:
            flags.append("--allow-root")
        daemon = subprocess.Popen([bindir / "colibri-mcpd", *flags], env=environment, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                if subprocess.run([bindir / "colibri-mcp", "status"], env=environment, capture_output=True).returncode == 0:
                    break
                time.sleep(0.1)
            subprocess.run([bindir / "colibri-mcp", "tools", "notes"], env=environment, capture_output=True)
            for command in COMMANDS:
                yield True, "colibri-mcp " + " ".join(map(quoted, command))
                for line in shown(["colibri-mcp", *command], environment):
                    if UNTIL.match(line):
                        break
                    yield False, line
        finally:
            daemon.terminate()
            daemon.wait()


def runs(line):
    """(text, colour, bold) of a line with SGR sequences; what else begins with ESC is left out."""
    colour, bold = PLAIN, False
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", line):
        if part.startswith("\x1b["):
            if part.endswith("m"):
                for code in [int(code or 0) for code in part[2:-1].split(";")]:
                    if code == 0:
                        colour, bold = PLAIN, False
                    elif code == 1:
                        bold = True
                    elif code == 22:
                        bold = False
                    elif code == 2 or code == 90:
                        colour = FAINT
                    elif 31 <= code <= 37 or 91 <= code <= 97:
                        colour = COLOURS[code % 10]
                    elif code == 39:
                        colour = PLAIN
        elif part:
            yield part, colour, bold


def wrapped(line):
    """A line as a terminal breaks it; only of lines without colour."""
    if "\x1b" in line or len(line) <= COLUMNS:
        return [line]
    return [line[at : at + COLUMNS] for at in range(0, len(line), COLUMNS)]


def text(column, row, content, colour, bold):
    x, y = MARGIN + column * WIDTH, BAR + MARGIN + row * HEIGHT + 14
    weight = ' font-weight="bold"' if bold else ""
    length = len(content) * WIDTH
    return (f'<text x="{x:.1f}" y="{y}" fill="{colour}"{weight} textLength="{length:.1f}">'
            f"{html.escape(content)}</text>")  # fmt: skip


def draw(lines):
    body, row = [], 0
    for prompt, line in lines:
        if prompt:
            row += 1 if row else 0
            body.append(text(0, row, "$", PROMPT, True))
            body.append(text(2, row, line, PLAIN, True))
            row += 1
            continue
        for piece in wrapped(line):
            column = 0
            for content, colour, bold in runs(piece):
                body.append(text(column, row, content, colour, bold))
                column += len(content)
            row += 1
    width, height = COLUMNS * WIDTH + 2 * MARGIN, BAR + 2 * MARGIN + row * HEIGHT
    dots = "".join(f'<circle cx="{20 + 18 * at}" cy="17" r="5" fill="#3a3f4a"/>' for at in range(3))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" \
aria-label="A terminal: a call, a refusal, and colibri-mcp glasspane">
<rect width="100%" height="100%" rx="9" fill="{GROUND}"/>
{dots}
<g font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14" xml:space="preserve">
{chr(10).join(body)}
</g>
</svg>
"""


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    bindir = pathlib.Path(sys.argv[1]).resolve()
    picture = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else pathlib.Path(__file__).with_name("colibri.svg"))
    lines = list(session(bindir))
    for word in ("written", "CONTRACT_DENIED", "APPROVALS WAITING"):
        if not any(word in line for _, line in lines):
            sys.exit(f"make.py: the programs do not say {word} any more: change what is drawn")
    picture.write_text(draw(lines))
    print(f"wrote {picture}")


main()
