#!/usr/bin/env python3
"""Ten public servers learned, and locked: does the proposal let through what was seen, and how much more?

Each server runs below `colibri-mcp learn` while a recorded session calls its tools. Then, of its proposal:

- the same session passes in a root of what it shows alone (confine.py), and what it refuses of what was seen is left out
  as suspicious, with the reason;
- of the ways out that a hostile version would try from there (ways.py), all but one are closed;
- its parts are no more than 1.3 times the fewest that pass, found by leaving them out one by one.

As root, on Linux. Prints the table that docs/guide/learn.md has. Exit status 0: so it is, and nothing is left.
"""

import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "interop"), str(HERE.parent / "search")]
import harness  # noqa: E402
import install  # noqa: E402

PATIENCE_S = 120
WAYS, CLOSED_AT_LEAST, WIDTH_AT_MOST = 25, 24, 1.3
COUNTED = "root", "mount", "writable-mount", "address", "processes", "tool", "confirmed-tool"


def sessions(work, url):
    """Name, arguments, variables and calls of each server. `{work}` is a directory of its own."""
    file = f"{work}/a.xlsx"
    return {
        "filesystem": ([work], {}, [
            ("write_file", {"path": f"{work}/a.txt", "content": "one\n"}), ("read_text_file", {"path": f"{work}/a.txt"}),
            ("edit_file", {"path": f"{work}/a.txt", "edits": [{"oldText": "one", "newText": "two"}]}),
            ("create_directory", {"path": f"{work}/inner"}), ("list_directory", {"path": work}),
            ("directory_tree", {"path": work}), ("search_files", {"path": work, "pattern": "*.txt"})]),
        "memory": ([], {"MEMORY_FILE_PATH": f"{work}/memory.jsonl"}, [
            ("create_entities", {"entities": [{"name": "a", "entityType": "b", "observations": ["c"]}]}),
            ("read_graph", {}), ("search_nodes", {"query": "a"})]),
        "sequential-thinking": ([], {}, [("sequentialthinking", {
            "thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1})]),
        "everything": (["stdio"], {}, [("echo", {"message": "one"}), ("get-sum", {"a": 1, "b": 2})]),
        "time": ([], {}, [("get_current_time", {"timezone": "Europe/Vienna"}), ("convert_time", {
            "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"})]),
        "git": (["--repository", work], {}, [
            ("git_status", {"repo_path": work}), ("git_log", {"repo_path": work}),
            ("git_add", {"repo_path": work, "files": ["b.txt"]}), ("git_commit", {"repo_path": work, "message": "b"}),
            ("git_diff_unstaged", {"repo_path": work})]),
        "fetch": (["--allow-private-ips"], {}, [("fetch", {"url": url})]),
        "excel": (["stdio", "--allow-dir", work], {}, [
            ("create_workbook", {"path": file}),
            ("write_range", {"path": file, "sheet": "Sheet1", "at": "A1", "rows": [[1, 2], [3, 4]]}),
            ("read_range", {"path": file, "sheet": "Sheet1"})]),
        "word": ([], {}, [
            ("create_document", {"filename": f"{work}/a.docx"}),
            ("add_paragraph", {"filename": f"{work}/a.docx", "text": "one"}),
            ("get_document_text", {"filename": f"{work}/a.docx"})]),
        "email": (["stdio"], {}, [("list_available_accounts", {})]),
    }


class Session:
    """A client of a server on pipes."""

    def __init__(self, words, **more):
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more)
        self.timer = threading.Timer(PATIENCE_S, self.process.kill)
        self.timer.start()
        self.number = 0
        client = {"name": "learn", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while line := self.process.stdout.readline():
            answer = json.loads(line)
            if "method" in answer:
                if "id" in answer:
                    error = {"code": -32601, "message": "nobody is there"}
                    self.send({"jsonrpc": "2.0", "id": answer["id"], "error": error})
            elif answer.get("id") == self.number:
                return answer
        raise RuntimeError(f"{method}: the server hung up")

    def call(self, tool, arguments):
        """Whether the call succeeded, and its answer."""
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        return "result" in answer and not answer["result"].get("isError"), json.dumps(answer)[:300]

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()
        self.timer.cancel()


def covering(parts, path, kind):
    """The parts by which a path is read, or written."""
    if kind == "written":
        of_kind = [part for part in parts if part["kind"] == "writable-mount"]
    else:
        of_kind = [part for part in parts if part["kind"] in ("root", "mount", "writable-mount")]
    return frozenset(part["value"] for part in of_kind if f"{path}/".startswith(part["value"] + "/"))


def fewest(parts, seen):
    """The fewest parts with which everything passes that passes with all."""
    counted = [part for part in parts if part["kind"] in COUNTED]
    needs = set()
    for path, note in seen["files"].items():
        for kind in "read", "written", "executed":
            if note.get(kind):
                needs.add(covering(counted, path, kind))
    needs |= {frozenset([address]) for address in seen["addresses"]}
    needs |= {frozenset([tool]) for tool, note in seen["tools"].items() if note["calls"]}
    needs |= {frozenset([part["value"]]) for part in counted if part["kind"] == "processes"}
    needs.discard(frozenset())
    left = {part["value"] for part in counted}
    for value in sorted(left):
        if all(need & (left - {value}) for need in needs if need & left):
            left.discard(value)
    return len(left), len(counted)


class Host:
    """What there is to reach on the host."""

    def __init__(self, place):
        self.home, self.state = place / "home", place / "state"
        names = (".ssh/id_ed25519", ".aws/credentials", ".bash_history")
        self.secrets = [self.home / name for name in names] + [place / "project/.env"]
        self.secrets.append(self.state / "colibri/learned/secret")
        for secret in self.secrets:
            secret.parent.mkdir(parents=True, exist_ok=True)
            secret.write_text("canary\n")
        self.other = place / "other/file"
        self.other.parent.mkdir()
        self.other.write_text("canary\n")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.connect(("198.51.100.1", 9))
            self.address = one.getsockname()[0]
        self.loopback = socket.create_server(("127.0.0.1", 0))
        self.outside = socket.create_server((self.address, 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind((self.address, 0))
        threading.Thread(target=self.answer, daemon=True).start()
        self.local = socket.socket(socket.AF_UNIX)
        self.local.bind(str(place / "other/socket"))
        self.local.listen()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.listen_port = free.getsockname()[1]
        self.elsewhere = place / "elsewhere"
        self.web = http.server.ThreadingHTTPServer((self.address, 0), Page)
        threading.Thread(target=self.web.serve_forever, daemon=True).start()
        self.url = f"http://{self.address}:{self.web.server_port}/"

    def answer(self):
        while True:
            _, sender = self.udp.recvfrom(100)
            self.udp.sendto(b"seen", sender)

    def facts(self, proposal, work):
        writable = [part["value"] for part in proposal["parts"] if part["kind"] == "writable-mount"]
        programs = [part["value"] for part in proposal["parts"] if part["kind"] == "root" and part["value"].count("/") > 2]
        return {"secrets": [str(secret) for secret in self.secrets], "other_file": str(self.other),
                "home": str(self.home), "process": os.getpid(), "program": programs[0] if programs else "/usr/bin",
                "elsewhere": str(self.elsewhere), "loopback_port": self.loopback.getsockname()[1],
                "address": self.address, "address_port": self.outside.getsockname()[1],
                "udp_port": self.udp.getsockname()[1], "socket": self.local.getsockname(),
                "writable": writable[0] if writable else "/tmp", "listen_port": self.listen_port}


class Page(http.server.BaseHTTPRequestHandler):
    """A page for the server that fetches."""

    def do_GET(self):
        is_page = self.path == "/"
        self.send_response(200 if is_page else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html><body><p>one</p></body></html>" if is_page else b"")

    def log_message(self, *_):
        pass


def ways_open(proposal, host, work, network):
    """The ways out that are open, tried in the proposal's root. What the packet filter and the number of processes of a
    jail close, and nothing does on Linux, is decided by the parts."""
    facts = host.facts(proposal, work)
    told = {"parts": proposal["parts"], "directory": "/", "network": network}
    script = (HERE / "ways.py").read_text()
    words = ["python3", HERE / "confine.py", json.dumps(told), "/usr/bin/python3", "-c", script, json.dumps(facts)]
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
    found = {}
    for line in process.stdout:
        state, _, name = line.strip().partition(" ")
        if state == "listening":
            try:
                socket.create_connection((host.address, host.listen_port), 1).close()
            except OSError:
                pass
        else:
            found[name] = state == "open"
    process.wait()
    if len(found) != WAYS:
        raise RuntimeError(f"{len(found)} ways were tried, not {WAYS}: {found}")
    parts = {(part["kind"], part["value"]) for part in proposal["parts"]}
    if ("processes", "1") in parts:
        found["start a shell"] = False
    if network:
        # pf.conf of the proposal passes the proposed addresses alone, and a jail's loopback is its own.
        for name, port in (("connect to an address", facts["address_port"]), ("send by UDP", facts["udp_port"])):
            found[name] = ("address", f"{host.address}:{port}") in parts
        found["connect to a service on loopback"] = found["listen for others"] = False
    return [name for name, is_open in found.items() if is_open]


def prepare(name, work):
    if name == "git":
        for words in (["init", "-q"], ["config", "user.name", "a"], ["config", "user.email", "a@example.org"],
                      ["commit", "-q", "--allow-empty", "-m", "a"]):
            subprocess.run(["git", "-C", work, *words], check=True)
        (pathlib.Path(work) / "b.txt").write_text("b\n")


def program(name, where, servers):
    if name == "everything":
        modules = harness.Install().modules
        return [shutil.which("node"), (modules / "@modelcontextprotocol/server-everything/dist/index.js").resolve()]
    path = install.program(where, name, servers[name])
    return [path] if "pypi" in servers[name] else [shutil.which("node"), path.resolve()]


def measure(name, place, host, where, servers, client):
    work = place / "work" / name
    work.mkdir(parents=True)
    arguments, variables, calls = sessions(str(work), host.url)[name]
    environment = {**os.environ, "XDG_STATE_HOME": str(host.state)}
    words = [*program(name, where, servers), *arguments]
    given = {"HOME": str(host.home), **variables}
    flags = [flag for key, value in given.items() for flag in ("--env", f"{key}={value}")]
    prepare(name, work)
    session = Session([client, "learn", name, *flags, "--", *words], env=environment, stderr=subprocess.DEVNULL)
    before = [session.call(*call) for call in calls]
    session.end()
    shown = subprocess.run([client, "--json", "learn", name, "--propose"], env=environment, stdout=subprocess.PIPE, check=True)
    proposal = json.loads(shown.stdout)
    seen = json.loads((host.state / f"colibri/learned/{name}.json").read_text())
    # Once more, from the same beginning, in the root of the proposal.
    for inner in work.iterdir():
        shutil.rmtree(inner) if inner.is_dir() else inner.unlink()
    prepare(name, work)
    network = any(part["kind"] == "address" for part in proposal["parts"])
    told = {"parts": proposal["parts"], "directory": "/", "network": network, "env": variables}
    session = Session(["python3", HERE / "confine.py", json.dumps(told), *words], stderr=subprocess.DEVNULL)
    after = [session.call(*call) for call in calls]
    session.end()
    failed = [(call[0], one[1], two[1]) for call, one, two in zip(calls, before, after) if one[0] != two[0]]
    failed += [(call[0], one[1], "") for call, one in zip(calls, before) if not one[0]]
    # A reason that many have stands with the first of them, and as a warning.
    why = {left["value"] for left in proposal["left_out"] if left["is_suspicious"]}
    is_cut = any(warning.startswith("more than ") for warning in proposal["warnings"])
    names = any(left["why"].startswith("a name that nobody named") for left in proposal["left_out"])
    unsaid = [one for one in proposal["refused"] if one.split(" ", 1)[1].removeprefix("to ") not in why
              and not is_cut and not (names and one.endswith(":53"))]
    # What it put into its own program, it does again at the next run.
    for path in (path for path, note in seen["files"].items() if note.get("written") and path.startswith(str(where))):
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else pathlib.Path(path).unlink(True)
    open_ways = ways_open(proposal, host, work, network)
    least, parts = fewest(proposal["parts"], seen)
    return {"calls": len(calls), "permitted": proposal["permitted"], "refused": proposal["refused"], "failed": failed,
            "unsaid": unsaid, "open": open_ways, "least": least, "parts": parts}


def main():
    if os.geteuid() != 0:
        sys.exit("as root: confine.py makes a root of its own")
    subprocess.run([sys.executable, HERE.parent / "search/install.py"], check=True, stdout=subprocess.DEVNULL)
    harness.adopt_orphans()
    where = install.directory()
    servers = json.loads((HERE.parent / "search/servers.json").read_text())["servers"]
    client = harness.binary("colibri-mcp")
    wrong = []
    # Not below a home directory, which is nobody's work, and not in /tmp, which a jail has of its own.
    with tempfile.TemporaryDirectory(prefix="colibri-learn-", dir="/var/tmp") as place:
        place = pathlib.Path(place)
        host = Host(place)
        print("| server | calls passed | accesses | refused | closed of 25 | open | parts | fewest |")
        print("|---|---|---|---|---|---|---|---|")
        for name in sys.argv[1:] or sessions("", ""):
            it = measure(name, place, host, where, servers, client)
            closed = WAYS - len(it["open"])
            print(f"| {name} | {it['calls'] - len(it['failed'])} of {it['calls']} | {it['permitted'] + len(it['refused'])} | {len(it['refused'])} | {closed} | "
                  f"{', '.join(it['open'])} | {it['parts']} | {it['least']} |", flush=True)
            if it["unsaid"] or it["failed"] or closed < CLOSED_AT_LEAST or it["parts"] > WIDTH_AT_MOST * it["least"]:
                wrong.append((name, it["unsaid"][:10], it["failed"], it["open"]))
    left = harness.leftovers()
    for one in wrong:
        print("wrong:", *one, sep="\n  ")
    if left:
        print("left:", left)
    return 1 if wrong or left else 0


if __name__ == "__main__":
    sys.exit(main())
