#!/usr/bin/env python3
"""Configuration files as the programs themselves write them: imported, used, and taken out again without a trace.

Claude Code, Codex, Gemini CLI and OpenCode (tests/agents/install.sh) each get servers of every kind that they know by
their own command line, in an empty home. `colibri-mcp import` takes them over; a daemon of the user's own calls those
that run here; after `remove` every file of the home is as it was, but for what is kept of the registry, and the trail.
`connect` and `connect --remove` leave the same files as they were, byte for byte; so do `import --replace`, which
leaves no secret there, and `connect --remove`. Exit status 0: so it is.

VS Code, Cursor, Windsurf, Zed and Claude Desktop need a screen, and do not run here: their files are those of
tests/tests/clients/connect.rs and of the tests in crates/colibri-mcp/src/importers.
"""

import argparse
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import harness

LIMIT_S = 180
NOBODY = 65534
TOKEN, BEARER, KEY = "ghp_0123456789abcdef0123", "tok-0123456789abcdef", "abc123def456abc123"
REGISTRY = '{"mcpServers": { "byhand": {"command":"/bin/cat"}\n}  }\n'


class Witness(http.server.BaseHTTPRequestHandler):
    """An MCP server by Streamable HTTP (/mcp) and by HTTP+SSE (/sse) of before, which writes down what it is sent."""

    protocol_version = "HTTP/1.1"
    seen, streams = [], {}

    def log_message(self, *_):
        pass

    def answer(self, status, content=b"", kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        if self.path != "/sse":
            return self.answer(405)
        name, lines = str(id(self)), queue.Queue()
        self.streams[name] = lines
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(f"event: endpoint\ndata: /message?{name}\n\n".encode())
        with contextlib.suppress(OSError):
            while True:
                try:
                    event = f"event: message\ndata: {lines.get(timeout=1)}\n\n"
                except queue.Empty:
                    event = ": still here\n\n"
                self.wfile.write(event.encode())
        return None

    def do_DELETE(self):
        self.answer(200)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.seen.append((self.path.split("?")[0], asked.get("method"), headers))
        made = {
            "initialize": {"protocolVersion": "2025-06-18" if self.path == "/mcp" else "2024-11-05",
                           "capabilities": {"tools": {}}, "serverInfo": {"name": "witness", "version": "1"}},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": f"from {self.path.split('?')[0]}"}]},
        }.get(asked.get("method"))
        what = {"result": made} if made else {"error": {"code": -32601, "message": "no such method"}}
        said = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **what})
        if "id" not in asked:
            return self.answer(202)
        if self.path == "/mcp":
            return self.answer(200, said.encode())
        self.streams[self.path.split("?")[1]].put(said)
        return self.answer(202)


class Home:
    """An empty home, of nobody if this is root: the daemon refuses root."""

    def __init__(self, name, agents):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=f"colibri-import-{name}-"))
        self.project, self.scratch = self.path / "project", pathlib.Path(tempfile.mkdtemp(prefix="colibri-scratch-"))
        self.project.mkdir()
        for program in ("colibri-mcp", "colibri-mcpd", "fixture-server"):
            shutil.copy2(harness.binary(program), self.scratch / program)
        self.agents = agents
        self.own = {} if os.geteuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        if self.own:
            for path in (self.path, self.project, self.scratch):
                os.chown(path, NOBODY, NOBODY)
        below = {"XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share",
                 "XDG_CACHE_HOME": ".cache"}
        self.environment = {"HOME": str(self.path), "PATH": os.environ["PATH"], "TERM": "dumb", "NO_COLOR": "1",
                            "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "COLIBRI_MCP_END_IDLE": "3",
                            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "H_TOKEN": BEARER,
                            **{name: str(self.path / directory) for name, directory in below.items()}}
        self.registry = self.path / ".config/colibri/external-mcp.json"
        self.state = self.path / ".local/state/colibri"

    def run(self, *words):
        done = subprocess.run([str(word) for word in words], env=self.environment, cwd=self.project, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=LIMIT_S, **self.own)
        return done.returncode, done.stdout

    def good(self, *words):
        status, said = self.run(*words)
        if status:
            raise Wrong(f"{words}: exit status {status}: {said[-2000:]}")
        return said

    def agent(self, *words):
        return self.good(self.agents / words[0], *words[1:])

    def colibri(self, *words):
        return self.good(self.scratch / "colibri-mcp", *words)

    def write(self, path, text):
        script = 'umask 077; mkdir -p "${1%/*}"; cat > "$1"'
        subprocess.run(["sh", "-c", script, "sh", str(path)], input=text, text=True, check=True, **self.own)

    def tree(self):
        """Every file: its mode and hash; directories and links too."""
        found = {}
        for path in sorted(self.path.rglob("*")):
            facts = path.lstat()
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found[str(path.relative_to(self.path))] = (oct(facts.st_mode), hashlib.sha256(content).hexdigest())
        return found

    def ends(self):
        """Waits until the daemon of the user's own has ended."""
        for _ in range(600):
            if not (self.state / "colibri.sock").exists():
                return
            time.sleep(0.1)
        raise Wrong("the daemon does not end")

    def close(self):
        for path in (self.path, self.scratch):
            shutil.rmtree(path, ignore_errors=True)


class Wrong(Exception):
    """What is not as it must be."""


def check(holds, what):
    if not holds:
        raise Wrong(what)


def secret(name):
    return {"secret": name}


# What each program is told, in its own words, and the entries that must come of it.
def claude_code(home, fixture, url):
    add = ("claude", "mcp", "add")
    home.agent(*add, "-s", "user", "fx", "-e", f"FX_TOKEN={TOKEN}", "-e", "LOG=warn", "--", *fixture("fx"))
    home.agent(*add, "-s", "user", "-t", "http", "web", f"{url}/mcp", "-H", f"Authorization: Bearer {BEARER}",
               "-H", "X-Team: blue")
    home.agent(*add, "-s", "user", "-t", "sse", "old", f"{url}/sse", "-H", f"X-Api-Key: {KEY}")
    home.agent(*add, "local", "--", *fixture("local"))
    home.agent(*add, "-s", "project", "of_project", "--", *fixture("of-project"))
    words = [str(word) for word in fixture("a b")]
    home.agent("claude", "mcp", "add-json", "json", json.dumps(
        {"type": "stdio", "command": words[0], "args": words[1:], "env": {"WHERE": "${HOME}/x"}}))
    return ".claude.json", [(), (".mcp.json",)], {
        "fx": stdio(fixture("fx"), FX_TOKEN=secret("fx-fx-token"), LOG="warn"),
        "web": web(url, Authorization=secret("web-authorization"), **{"X-Team": "blue"}),
        "old": sse(url, **{"X-Api-Key": secret("old-x-api-key")}),
        "local": stdio(fixture("local")), "of-project": stdio(fixture("of-project")),
        "json": stdio(words, WHERE=f"{home.path}/x")}


def codex(home, fixture, url):
    add = ("codex", "mcp", "add")
    home.agent(*add, "fx", "--env", f"FX_TOKEN={TOKEN}", "--env", "LOG=warn", "--", *fixture("fx"))
    home.agent(*add, "web", "--url", f"{url}/mcp", "--bearer-token-env-var", "H_TOKEN")
    return ".codex/config.toml", [()], {
        "fx": stdio(fixture("fx"), FX_TOKEN=secret("fx-fx-token"), LOG="warn"),
        "web": web(url, Authorization=secret("web-authorization"))}


def gemini(home, fixture, url):
    add, command = ("gemini", "mcp", "add"), fixture("fx")
    home.agent(*add, "fx", command[0], "-s", "user", "-e", f"FX_TOKEN={TOKEN}", "-e", "LOG=warn", "--include-tools",
               "echo", "--timeout", "5000", "--trust", "--", *command[1:])
    home.agent(*add, "web", f"{url}/mcp", "-s", "user", "-t", "http", "-H", f"Authorization: Bearer {BEARER}")
    home.agent(*add, "old", f"{url}/sse", "-s", "user", "-t", "sse", "-H", "X-Team: blue")
    home.agent(*add, "of-project", fixture("of-project")[0], "--", *fixture("of-project")[1:])
    return ".gemini/settings.json", [(), (".gemini/settings.json",)], {
        "fx": stdio(command, FX_TOKEN=secret("fx-fx-token"), LOG="warn") | {
            "timeout_ms": 5000, "tools": {"allow": ["echo"]}},
        "web": web(url, Authorization=secret("web-authorization")), "old": sse(url, **{"X-Team": "blue"}),
        "of-project": stdio(fixture("of-project"))}


def opencode(home, fixture, url):
    add = ("opencode", "mcp", "add")
    home.agent(*add, "fx", "--env", f"FX_TOKEN={TOKEN}", "--env", "LOG=warn", "--", *fixture("fx"))
    home.agent(*add, "web", "--url", f"{url}/mcp", "--header", f"Authorization=Bearer {BEARER}")
    return ".config/opencode/opencode.jsonc", [()], {
        "fx": stdio(fixture("fx"), FX_TOKEN=secret("fx-fx-token"), LOG="warn"),
        "web": web(url, Authorization=secret("web-authorization"))}


def stdio(words, **env):
    words = [str(word) for word in words]
    return {"command": words[0], **({"args": words[1:]} if words[1:] else {}), **({"env": env} if env else {})}


def web(url, **headers):
    return {"url": f"{url}/mcp", "allow_addresses": ["loopback"], "headers": headers}


def sse(url, **headers):
    return {"type": "sse", "url": f"{url}/sse", "allow_addresses": ["loopback"], "headers": headers}


# What shows the servers of each, which reads its file again.
LISTS = {name: (program, "mcp", "list") for name, program in (
    ("claude-code", "claude"), ("codex", "codex"), ("gemini", "gemini"), ("opencode", "opencode"))}
PROGRAMS = {"claude-code": claude_code, "codex": codex, "gemini": gemini, "opencode": opencode}


def imported(name, home, url):
    home.write(home.registry, REGISTRY)

    def fixture(of):
        return [home.scratch / "fixture-server", "--dir", home.scratch, "--as", of]

    file, froms, wanted = PROGRAMS[name](home, fixture, url)
    before = home.tree()
    written = (home.path / file).read_bytes()
    for words in froms:
        status, said = home.run(home.scratch / "colibri-mcp", "import", *(words or (name,)))
        check(status == 1 and "--yes" in said, f"not asked: {status}: {said}")
        hidden(said)
    check(home.tree() == before, "something was written unasked")
    for words in froms:
        hidden(home.colibri("import", *(words or (name,)), "--yes"))
    registry = json.loads(home.registry.read_text())["mcpServers"]
    for server, entry in wanted.items():
        check(registry.get(server) == entry, f"{server}: {registry.get(server)}\n  must be {entry}")
    check(set(registry) == {"byhand", *wanted}, f"entries: {sorted(registry)}")
    consent = json.loads((home.state / "consent.json").read_text())["servers"]
    check(set(consent) == set(wanted), f"agreed to: {sorted(consent)}")
    for entry in wanted.values():
        for value in [*entry.get("env", {}).values(), *entry.get("headers", {}).values()]:
            if isinstance(value, dict):
                path = home.registry.with_name("daemon-secrets") / value["secret"]
                check(path.lstat().st_mode & 0o7777 == 0o600, f"{path}: mode")
                check(path.read_text() in (TOKEN, f"Bearer {BEARER}", KEY), f"{path}: content")

    # A daemon of the user's own calls what was agreed to, and nothing else.
    home.colibri("call", "fx", "echo")
    said = [home.colibri("call", server, "echo") for server in wanted if "url" in wanted[server]]
    check(all("from /" in one for one in said), f"{said}")
    headers = {path: headers for path, method, headers in Witness.seen if method == "tools/call"}
    check(headers["/mcp"].get("authorization") == f"Bearer {BEARER}", f"{headers}")
    if "old" in wanted:
        header, value = ("x-api-key", KEY) if name == "claude-code" else ("x-team", "blue")
        check(headers["/message"].get(header) == value, f"{headers}")
    status, said = home.run(home.scratch / "colibri-mcp", "call", "byhand", "echo")
    check(status and "agreed" in said, f"a server that nobody agreed to: {status}: {said}")
    home.ends()

    for server in wanted:
        home.colibri("remove", server, "--yes")
    home.ends()
    after = home.tree()
    kept = [path for path in after if ".colibri-backup-" in path]
    check(kept, "nothing was kept of the registry")
    # The trail and the pins stay: what was called was called.
    own = str(home.state.relative_to(home.path))
    left = {path: what for path, what in after.items() if path not in kept and not path.startswith(own)}
    new = set(left.items()) ^ set(before.items())
    above = {str(path) for path in pathlib.Path(own).parents}
    check(not {path for path, _ in new} - above, f"left: {new}")
    check(not (home.state / "consent.json").exists(), "consent is left")
    for path in after:
        if (home.path / path).is_file():
            content = (home.path / path).read_bytes()
            ours = path in kept or path.startswith(own)
            check(not ours or not any(one.encode() in content for one in (TOKEN, BEARER, KEY)), f"a secret is in {path}")

    # Its own file, with Colibri in it and out of it again.
    home.colibri("connect", name, "--yes")
    check((home.path / file).read_bytes() != written, "connect wrote nothing")
    home.colibri("connect", name, "--remove", "--yes")
    check((home.path / file).read_bytes() == written, f"{file} is not as it was")

    # Its servers moved out of it with their secrets, and back: but for those that do not start.
    _, said = home.run(home.scratch / "colibri-mcp", "import", name, "--replace", "--yes")
    hidden(said)
    left = (home.path / file).read_bytes()
    check(b"colibri-mcp" in left, f"nothing was moved: {said}")
    check(not any(one.encode() in left for one in (TOKEN, BEARER, KEY)), f"a secret is left in {file}")
    home.agent(*LISTS[name])
    home.colibri("connect", name, "--remove", "--yes")
    given = (home.path / file).read_bytes()
    is_back = given == written or name == "claude-code" and same_but_for_its_notes(given, written)
    check(is_back, f"{file} did not come back")
    return len(wanted)


def same_but_for_its_notes(given, written):
    """Claude Code counts in its file how often it was started: then entries come back into what it wrote."""
    servers = [json.loads(text) for text in (given, written)]
    one, other = ({"own": file.get("mcpServers"), "projects": {
        project: facts.get("mcpServers") for project, facts in file["projects"].items()}} for file in servers)
    return one == other


def hidden(said):
    check(not any(one in said for one in (TOKEN, BEARER, KEY)), f"a secret shows: {said}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--agents", type=pathlib.Path, default=harness.REPOSITORY / "target/agents",
                           help="where tests/agents/install.sh installed")
    arguments.add_argument("program", nargs="*", choices=[[], *PROGRAMS], help="these alone")
    chosen = arguments.parse_args()
    agents = chosen.agents.resolve() / "node_modules/.bin"
    harness.adopt_orphans()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Witness)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wrong = 0
    for name in chosen.program or PROGRAMS:
        Witness.seen.clear()
        home = Home(name, agents)
        try:
            servers = imported(name, home, f"http://127.0.0.1:{server.server_port}")
            print(f"{name}: {servers} servers of its own file imported, called, removed; no trace", flush=True)
        except (Wrong, subprocess.TimeoutExpired) as error:
            wrong += 1
            print(f"{name}: WRONG: {error}", file=sys.stderr, flush=True)
        finally:
            home.close()
    left = harness.leftovers()
    print(f"left: {left or 'nothing'}")
    return 1 if wrong or left else 0


if __name__ == "__main__":
    sys.exit(main())
