#!/usr/bin/env python3
"""An MCP server that lists the tools in the file it is given and does nothing else: `replay.py FILE`."""

import json
import sys

TOOLS = json.load(open(sys.argv[1]))

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or "method" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    match asked["method"]:
        case "initialize":
            answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "replay", "version": "1"}}
        case "tools/list":
            answer["result"] = {"tools": TOOLS}
        case "ping":
            answer["result"] = {}
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
