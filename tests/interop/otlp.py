#!/usr/bin/env python3
"""What `colibri-mcp otlp` exports, read by the official definitions (PyPI's opentelemetry-proto).

    otlp.py [--calls N]

That many calls through the bridge, every tenth of a tool that does not exist, each with a traceparent and a secret in its
arguments: as many spans must come, linked, with nothing secret in them. Needs target/release (or COLIBRI_BIN_DIR), and
the Python that has opentelemetry-proto.
"""

import argparse
import http.server
import json
import os
import pathlib
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


class Collector(http.server.BaseHTTPRequestHandler):
    bodies, statuses = [], [503, 429]

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self.bodies.append(body)
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


def main():
    parser = argparse.ArgumentParser(description="What otlp exports, read by the official definitions.")
    parser.add_argument("--calls", type=int, default=1000)
    args = parser.parse_args()
    programs = pathlib.Path(os.environ.get("COLIBRI_BIN_DIR", pathlib.Path(__file__).parents[2] / "target/release")).absolute()
    with tempfile.TemporaryDirectory(prefix="colibri-otlp-") as home:
        home = pathlib.Path(home)
        (home / "server.py").write_text(SERVER)
        registry, socket = home / "external-mcp.json", home / "sock"
        entry = {"command": sys.executable, "args": [str(home / "server.py")]}
        registry.write_text(json.dumps({"servers": {"shop": entry}}))
        registry.chmod(0o600)
        (home / "state").mkdir(mode=0o700)
        daemon = subprocess.Popen([programs / "colibri-mcpd", "--allow-root", "--socket", socket, "--external-config",
                                   registry, "--state-dir", home / "state", "--external-call"],
                                  stderr=(home / "log").open("w"), env={**os.environ, "HOME": str(home)})
        try:
            while not socket.exists():
                if daemon.poll() is not None:
                    sys.exit((home / "log").read_text())
                time.sleep(0.05)
            bridge = subprocess.Popen([programs / "colibri-mcp", "--socket", socket, "--only", "shop"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            lines = [json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}),
                     json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})]
            for line in lines + [call(number) for number in range(args.calls)]:
                print(line, file=bridge.stdin, flush=True)
                if '"id"' in line:
                    while json.loads(bridge.stdout.readline()).get("id") != json.loads(line)["id"]:
                        pass
            bridge.stdin.close()
            bridge.wait()
            collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
            threading.Thread(target=collector.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{collector.server_port}"
            subprocess.run([programs / "colibri-mcp", "--socket", socket, "otlp", "--endpoint", url, "--once", "--all"],
                           check=True)
        finally:
            daemon.terminate()
            daemon.wait()
    spans = []
    for body in Collector.bodies:
        assert not any(secret.encode() in body for secret in SECRETS), "a secret is in a span"
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        spans += [span for of in request.resource_spans for scope in of.scope_spans for span in scope.spans]
    calls = [span for span in spans if span.name.startswith("tools/call ")]
    parents = {span.parent_span_id.hex() for span in calls if span.trace_id.hex() == TRACE}
    failed = [span for span in calls if span.status.code == 2]
    right = (len(calls), len(parents), len(failed)) == (args.calls, args.calls, args.calls // 10)
    print(f"{len(calls)} spans of {args.calls} calls, {len(parents)} linked, {len(failed)} failed, nothing secret")
    return not right


if __name__ == "__main__":
    sys.exit(main())
