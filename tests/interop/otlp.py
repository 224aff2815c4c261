#!/usr/bin/env python3
"""What `colibri-mcp otlp` exports, read by the official definitions (PyPI's opentelemetry-proto).

    otlp.py [--calls N]

That many calls through the bridge, every tenth of a tool that does not exist, each with a traceparent and a secret in its
arguments, while the exporter follows them: as many spans must come, linked, with nothing secret in them. The same calls
with no exporter: the daemon must count the same. Then Claude Code and Codex with a task each: theirs are a task's spans,
from it to its calls. Needs target/release (or COLIBRI_BIN_DIR), as root target/agents, and the Python that has
opentelemetry-proto.
"""

import argparse
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SECRETS = ["ghp_0123456789abcdef", "tell-nobody-this", "sk-ant-REDACTED"]
TRACE = "0af7651916cd43dd8448eb211c80319c"

SERVER = '''
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "s", "version": "1"}},
        "tools/list": {"tools": [{"name": "echo", "description": "d", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": json.dumps(asked.get("params", {}).get("arguments"))}]},
    }.get(asked["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
'''


class Collector(http.server.ThreadingHTTPServer):
    """A collector that answers with these statuses first."""

    def __init__(self, *statuses):
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies, self.statuses = [], list(statuses)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def spans(self):
        """All that came so far, of which none may have a secret."""
        found = []
        for body in self.bodies:
            assert not any(secret.encode() in body for secret in SECRETS), "a secret is in a span"
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            found += [span for of in request.resource_spans for scope in of.scope_spans for span in scope.spans]
        return found


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 200:
            self.server.bodies.append(body)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def call(number):
    tool = "nothing" if number % 10 == 9 else "echo"
    params = {"name": tool, "arguments": {"text": SECRETS[number % 3]},
              "_meta": {"traceparent": f"00-{TRACE}-{number + 1:016x}-01"}}
    return json.dumps({"jsonrpc": "2.0", "id": number + 10, "method": "tools/call", "params": params})


def counters(path):
    """The daemon's counters, from its metrics socket; not those of time and processors."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(path))
        stream.shutdown(socket.SHUT_WR)
        text = stream.makefile().read()
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, value in samples if re.search("_(total|count)", name) and "seconds_total" not in name}


def session(programs, home, calls, collector=None):
    """Makes the calls, with an exporter to the collector that follows: what the daemon counted."""
    home.mkdir()
    (home / "server.py").write_text(SERVER)
    registry, door, metrics = home / "external-mcp.json", home / "sock", home / "metrics"
    entry = {"command": sys.executable, "args": [str(home / "server.py")]}
    registry.write_text(json.dumps({"servers": {"shop": entry}}))
    registry.chmod(0o600)
    (home / "state").mkdir(mode=0o700)
    daemon = subprocess.Popen([programs / "colibri-mcpd", "--allow-root", "--socket", door, "--external-config", registry,
                               "--state-dir", home / "state", "--external-call", "--metrics-socket", metrics],
                              stderr=(home / "log").open("w"), env={**os.environ, "HOME": str(home)})
    exporter = None
    try:
        while not door.exists() or not metrics.exists():
            if daemon.poll() is not None:
                sys.exit((home / "log").read_text())
            time.sleep(0.05)
        if collector:
            exporter = subprocess.Popen([programs / "colibri-mcp", "otlp", "--state-dir", home / "state", "--endpoint",
                                         collector.url, "--all"], stdout=subprocess.PIPE, text=True)
        bridge = subprocess.Popen([programs / "colibri-mcp", "--socket", door, "--only", "shop"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        lines = [json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}),
                 json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})]
        for line in lines + [call(number) for number in range(calls)]:
            print(line, file=bridge.stdin, flush=True)
            if '"id"' in line:
                while json.loads(bridge.stdout.readline()).get("id") != json.loads(line)["id"]:
                    pass
        counted = counters(metrics)
        bridge.stdin.close()
        bridge.wait()
        if exporter:
            while len([span for span in collector.spans() if span.name.startswith("tools/call ")]) < calls:
                assert exporter.poll() is None, f"the exporter ended: {exporter.returncode}"
                time.sleep(0.1)
            exporter.terminate()
            said = exporter.communicate()[0]
            assert exporter.returncode == 0 and ", 0 dropped" in said, said
        return counted
    finally:
        for process in filter(None, (exporter, daemon)):
            process.terminate()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description="What otlp exports, read by the official definitions.")
    parser.add_argument("--calls", type=int, default=1000)
    args = parser.parse_args()
    programs = pathlib.Path(os.environ.get("COLIBRI_BIN_DIR", pathlib.Path(__file__).parents[2] / "target/release")).absolute()
    collector = Collector(503, 429)
    with tempfile.TemporaryDirectory(prefix="colibri-otlp-") as home:
        home = pathlib.Path(home)
        followed, alone = session(programs, home / "followed", args.calls, collector), session(programs, home / "alone", args.calls)
    calls = [span for span in collector.spans() if span.name.startswith("tools/call ")]
    parents = {span.parent_span_id.hex() for span in calls if span.trace_id.hex() == TRACE}
    failed = [span for span in calls if span.status.code == 2]
    right = (len(calls), len(parents), len(failed)) == (args.calls, args.calls, args.calls // 10)
    print(f"{len(calls)} spans of {args.calls} calls, {len(parents)} linked, {len(failed)} failed, nothing secret")
    other = {name: (value, alone.get(name)) for name, value in followed.items() if alone.get(name) != value}
    print(f"the daemon's {len(followed)} counters are the same without the exporter" if not other else f"counted: {other}")
    return not right or bool(other) or followed.keys() != alone.keys()


if __name__ == "__main__":
    sys.exit(main())
