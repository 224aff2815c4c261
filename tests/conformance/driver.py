#!/usr/bin/env python3
"""What the conformance suite runs as the client under test, with the URL of its server as the last argument: a daemon
whose registry has that server alone, and a client on the daemon's socket that lists and calls what the server has, answers
what it asks with the defaults of its forms, and logs in where the daemon says so, as a person would.

`colibri-mcp login` is the real one. The browser is a request whose redirect is not followed but pasted.
"""

import contextlib
import json
import os
import pathlib
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
import harness  # noqa: E402

CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
PATIENCE_S = 25
MODERN = "2026-07-28"
# How often one call may lead to a login; the suite counts how often is too often.
LOGINS = 3
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Client:
    """A client of the daemon, in the version that the suite asks for."""

    def __init__(self, path, version):
        self.version = version
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.settimeout(PATIENCE_S)
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.number = 0
        if version != MODERN:
            info = {"name": "driver", "version": "1"}
            self.ask("initialize", {"protocolVersion": version, "capabilities": CAPABILITIES, "clientInfo": info})
            self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.socket.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method, params):
        """The answer: its result, or {"error": …}. What is asked on the way is answered."""
        while True:
            self.number += 1
            if self.version == MODERN:
                params = {**params, "_meta": {
                    "io.modelcontextprotocol/protocolVersion": MODERN,
                    "io.modelcontextprotocol/clientInfo": {"name": "driver", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
                }}
            self.send({"id": self.number, "method": method, "params": params})
            answer = self.answer()
            result = answer.get("result", {"error": answer.get("error")})
            if result.get("resultType") != "input_required":
                return result
            params = {**params, "inputResponses": {
                key: answered(asked) for key, asked in result.get("inputRequests", {}).items()}}
            params.pop("requestState", None)
            if "requestState" in result:
                params["requestState"] = result["requestState"]

    def answer(self):
        for line in self.lines:
            message = json.loads(line)
            if "method" in message and "id" in message:
                self.send({"id": message["id"], "result": answered(message)})
            elif message.get("id") == self.number:
                return message
        raise EOFError("the daemon closed the connection")


def answered(asked):
    """What a person who takes every default answers."""
    if asked["method"] == "elicitation/create":
        fields = asked["params"].get("requestedSchema", {}).get("properties", {})
        content = {name: filled(schema) for name, schema in fields.items()}
        return {"action": "accept", "content": content}
    if asked["method"] == "sampling/createMessage":
        return {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "none"}
    return {"roots": []}


def filled(schema):
    """A value of a schema: its default, else the plainest."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    return {"integer": 2, "number": 2, "boolean": True, "array": [], "object": {}}.get(kind, "x")


class Redirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def log_in(daemon, context):
    """`colibri-mcp login`, with a browser that consents at once. Its exit status."""
    command = [*daemon.bridge(), "login", "server"]
    if token := context.get("idp_id_token"):
        return subprocess.run([*command, "--id-token"], input=token + "\n", text=True, timeout=PATIENCE_S).returncode
    login = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = ""
    for line in login.stdout:
        if found := re.fullmatch(r"  (https?://\S+)\n", line):
            try:
                urllib.request.build_opener(Redirect).open(found[1], timeout=PATIENCE_S)
            except urllib.error.HTTPError as answer:
                address = answer.headers.get("Location", "")
            break
    with contextlib.suppress(BrokenPipeError):
        login.communicate(address + "\n", timeout=PATIENCE_S)
    return login.returncode


def entry(url, scenario, context, secret):
    """The registry's entry, of what the suite gives."""
    oauth = {"client_metadata_url": CLIENT_METADATA}
    if client := context.get("client_id"):
        oauth = {"client_id": client, "issuer": context.get("issuer") or issuer_of(url)}
        if "client_secret" in context:
            oauth["client_secret"] = secret("client", context["client_secret"])
        if "private_key_pem" in context:
            oauth["private_key"] = secret("key", context["private_key_pem"])
        if "idp_issuer" in context:
            oauth["identity_provider"] = {"issuer": context["idp_issuer"], "client_id": context["idp_client_id"]}
    if scenario.startswith("auth/client-credentials"):
        oauth["grant"] = "client_credentials"
    # Some arguments of the suite are not as its tools' schemas say: what is tested is what becomes of them.
    return {"url": url, "allow_addresses": ["loopback"], "prefix": False, "may_ask": harness.ASKS,
            "validate": "contract", "oauth": oauth}


def issuer_of(url):
    """Who issues a server's tokens: what an operator looks up who registers a client."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    location = f"{scheme}://{host}/.well-known/oauth-protected-resource/{path}"
    with urllib.request.urlopen(location, timeout=PATIENCE_S) as answer:
        return json.load(answer)["authorization_servers"][0]


def wants_login(result):
    return "colibri-mcp login" in json.dumps(result)


def tried(client, daemon, context, method, params):
    """A request, with the logins to which it leads."""
    for _ in range(LOGINS):
        result = client.ask(method, params)
        if not wants_login(result) or log_in(daemon, context) != 0:
            break
    return result


def work(client, daemon, scenario, context):
    """Does with the server what a person would; whether it could be reached."""
    deadline, logins = time.monotonic() + PATIENCE_S, 0
    while True:
        tools = client.ask("tools/list", {}).get("tools", [])
        tools = [tool for tool in tools if not tool["name"].startswith("colibri_")]
        servers = client.ask("tools/call", {"name": "colibri_external_mcp_servers", "arguments": {}})
        if tools or time.monotonic() > deadline:
            break
        if wants_login(servers):
            logins += 1
            if logins > LOGINS or log_in(daemon, context) != 0:
                return False
        elif servers["structuredContent"]["servers"][0]["state"] != "starting":
            break
        time.sleep(0.2)
    print(json.dumps(servers.get("structuredContent", servers)), file=sys.stderr)
    calls = [{"name": tool["name"], "arguments": arguments(tool)} for tool in tools]
    if scenario == "json-schema-2020-12-preservation":
        # Its second tool is to be shown the first one's schema, as it arrived.
        shown = {name: tools[0]["inputSchema"] for name in calls[-1]["arguments"]}
        calls[-1]["arguments"] = shown
    for call in context.get("toolCalls") or calls:
        result = tried(client, daemon, context, "tools/call", call)
        print(call["name"], json.dumps(result)[:400], file=sys.stderr)
    for resource in client.ask("resources/list", {}).get("resources", []):
        tried(client, daemon, context, "resources/read", {"uri": resource["uri"]})
    for prompt in client.ask("prompts/list", {}).get("prompts", []):
        wanted = {argument["name"]: "x" for argument in prompt.get("arguments", [])}
        tried(client, daemon, context, "prompts/get", {"name": prompt["name"], "arguments": wanted})
    return bool(tools) or not wants_login(servers)


def arguments(tool):
    return {name: filled(schema) for name, schema in tool["inputSchema"].get("properties", {}).items()}


def main():
    url, scenario = sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") or MODERN
    harness.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="colibri-driver-") as directory:
        directory = pathlib.Path(directory)
        kept = directory / "daemon-secrets"
        kept.mkdir(mode=0o700)

        def secret(name, value):
            file = kept / f"{name}-{secrets.token_hex(4)}"
            file.touch(mode=0o400)
            file.chmod(0o600)
            file.write_text(value)
            file.chmod(0o400)
            return {"secret": file.name}

        with harness.Daemon(directory, {"server": entry(url, scenario, context, secret)}) as daemon:
            reached = work(Client(daemon.socket, version), daemon, scenario, context)
            print(daemon.log.read_text(), file=sys.stderr)
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()
