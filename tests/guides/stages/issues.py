"""A server with the two tools that docs/scripts.md calls, and three issues."""

import json
import sys

ISSUES = {1: ("The editor crashes", "A crash at the first key."), 2: ("Colours", "They are too pale."),
          3: ("Save fails", "It crashed with a full disk.")}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("list_issues", "get_issue")]


def result(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "issues", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if params["name"] == "list_issues":
        value = [{"number": number, "title": title} for number, (title, _) in ISSUES.items()]
    else:
        number = params["arguments"]["number"]
        value = {"number": number, "title": ISSUES[number][0], "body": ISSUES[number][1]}
    return {"content": [{"type": "text", "text": json.dumps(value)}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] in ("initialize", "tools/list", "tools/call"):
        answer = {"result": result(message["method"], message.get("params", {}))}
    else:
        answer = {"error": {"code": -32601, "message": "unknown method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
