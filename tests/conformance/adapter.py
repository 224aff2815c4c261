#!/usr/bin/env python3
"""Streamable HTTP in front of an MCP server that speaks lines on stdio: test only, for the direct legs.

The conformance suite speaks HTTP, the fixture server lines. This program stands between: `adapter.py COMMAND…` starts
the server process. It listens on a loopback port of the system's choosing and prints `listening URL`. It ends when its
standard input does.

What belongs to the transport is done here: sessions, which message goes on which response stream, Host and Origin,
the headers that mirror the body, HTTP status codes. What belongs to the protocol passes untouched.

- Legacy (2025-03-26 to 2025-11-25): `initialize` opens a session with a peer of its own; later requests name it in
  `Mcp-Session-Id`; DELETE ends it; GET is its stream for what belongs to no request.
- Modern (2026-07-28): no session; all requests share one peer, as they would share one HTTP server. A request whose
  id is in flight already (legal over HTTP, ambiguous on a line) waits until that one is answered. A closed response
  stream is a cancellation, sent to the peer as `notifications/cancelled`.
"""

import asyncio
import base64
import json
import secrets
import sys

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LINE_LIMIT = 64 * 1024 * 1024
# Errors that say the request itself was wrong; the others were processed and are answered with 200.
STATUS = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}
REASON = {200: "OK", 202: "Accepted", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}


class Refused(Exception):
    """A request that the transport itself refuses."""

    def __init__(self, status, code=None, message="", request_id=None):
        super().__init__(message)
        self.status, self.code, self.message, self.request_id = status, code, message, request_id


class Peer:
    """One connection to the peer, and who waits for which of its messages."""

    def __init__(self, reader, writer, process):
        self.reader, self.writer, self.process = reader, writer, process
        self.flights = {}  # request id → its queue
        self.tokens = {}  # progress token → its queue
        self.listens = set()  # ids of subscriptions/listen requests
        self.stream = asyncio.Queue()  # what belongs to no request (legacy GET)
        self.landed = asyncio.Condition()
        self.pump = asyncio.create_task(self.run())

    @classmethod
    async def open(cls, command):
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE_LIMIT
        )
        return cls(process.stdout, process.stdin, process)

    async def send(self, message):
        self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        await self.writer.drain()

    async def run(self):
        while line := await self.reader.readline():
            message = json.loads(line)
            self.route(message).put_nowait(message)
        for queue in self.flights.values():
            queue.put_nowait(None)
        self.stream.put_nowait(None)

    def route(self, message):
        """The queue a message of the peer belongs to."""
        params = message.get("params") or {}
        if "method" not in message:
            return self.flights.get(message.get("id"), self.stream)
        subscription = (params.get("_meta") or {}).get(META_SUBSCRIPTION)
        if subscription is not None:
            return self.flights.get(subscription, self.stream)
        if message["method"] == "notifications/progress":
            return self.tokens.get(params.get("progressToken"), self.stream)
        # A log message or a request of the peer's names no request of ours: it goes with the latest call in flight.
        calls = [queue for key, queue in self.flights.items() if key not in self.listens]
        return calls[-1] if calls and "list_changed" not in message["method"] else self.stream

    async def close(self):
        self.writer.close()
        try:
            await asyncio.wait_for(self.process.wait(), 5)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        self.pump.cancel()


class Adapter:
    def __init__(self, command):
        self.command = command
        self.sessions = {}
        self.shared = None
        self.mirrored = {}  # tool → its parameters that a header mirrors: (header, parameter)
        self.opening = asyncio.Lock()

    async def modern_peer(self):
        async with self.opening:
            if self.shared is None or self.shared.pump.done():
                self.shared = await Peer.open(self.command)
            return self.shared

    async def serve(self, reader, writer):
        """One HTTP request a connection: simple, and the end of the connection is the end of the response."""
        try:
            try:
                method, headers, body = await read_request(reader)
                await self.handle(method, headers, body, reader, writer)
            except Refused as refusal:
                error = None
                if refusal.code is not None:
                    error = {"jsonrpc": "2.0", "error": {"code": refusal.code, "message": refusal.message}}
                    if refusal.request_id is not None:
                        error["id"] = refusal.request_id
                respond(writer, refusal.status, error)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def handle(self, method, headers, body, reader, writer):
        check_origin(headers)
        session_id = headers.get("mcp-session-id")
        session = self.sessions.get(session_id)
        if session_id and session is None:
            raise Refused(404, -32001, "Session not found")
        if method == "DELETE" and session:
            del self.sessions[session_id]
            await session.close()
            return respond(writer, 200)
        if method == "GET" and session:
            return await stream(session.stream, reader, writer)
        if method != "POST":
            raise Refused(405)
        try:
            message = json.loads(body)
        except ValueError:
            raise Refused(400, -32700, "Parse error") from None
        if not isinstance(message, dict):
            raise Refused(400, -32600, "One message a request")
        meta = (message.get("params") or {}).get("_meta") or {}
        extra = {}
        if session is None and message.get("method") == "initialize" and META_VERSION not in meta:
            session_id = secrets.token_hex(16)
            session = self.sessions[session_id] = await Peer.open(self.command)
            extra["Mcp-Session-Id"] = session_id
        if session is None:
            check_mirrors(headers, message, meta, self.mirrored)
        peer = session or await self.modern_peer()
        if "id" not in message or "method" not in message:
            await peer.send(message)
            return respond(writer, 202)
        await self.request(peer, message, session is None, extra, reader, writer)

    async def request(self, peer, message, modern, extra, reader, writer):
        request_id, queue = message["id"], asyncio.Queue()
        token = ((message.get("params") or {}).get("_meta") or {}).get("progressToken")
        async with peer.landed:
            await peer.landed.wait_for(lambda: request_id not in peer.flights)
            peer.flights[request_id] = queue
        if message["method"] == "subscriptions/listen":
            peer.listens.add(request_id)
        if token is not None:
            peer.tokens[token] = queue
        gone = asyncio.create_task(closed(reader))
        answered = False
        try:
            await peer.send(message)
            first = await first_of(queue, gone)
            if first is not None and "method" not in first:
                answered = True
                if message["method"] == "tools/list":
                    self.mirrored |= mirrors((first.get("result") or {}).get("tools", []))
                code = (first.get("error") or {}).get("code")
                # Legacy errors travel in a 200: the suite's legacy client takes any other status for a broken transport.
                respond(writer, STATUS.get(code, 200) if modern else 200, first, extra)
            elif first is not None:
                answered = await stream(queue, reader, writer, first, gone, extra)
        finally:
            gone.cancel()
            if modern and not answered:
                await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
            peer.listens.discard(request_id)
            peer.tokens.pop(token, None)
            async with peer.landed:
                del peer.flights[request_id]
                peer.landed.notify_all()


async def read_request(reader):
    method = (await reader.readline()).split(b" ")[0].decode()
    headers = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return method, headers, await reader.readexactly(int(headers.get("content-length", 0)))


def check_origin(headers):
    """Host and Origin must be this machine, against DNS rebinding."""
    for value in (headers.get("host", ""), headers.get("origin", "//localhost").partition("//")[2]):
        host = value.rpartition(":")[0] if value.rpartition(":")[2].isdigit() else value
        if host not in ("localhost", "127.0.0.1", "[::1]"):
            raise Refused(403)


NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri",
         "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


def check_mirrors(headers, message, meta, mirrored):
    """The headers of a modern request must say what its body says (2026-07-28, Streamable HTTP, "Request Metadata")."""
    params, method = message.get("params") or {}, message.get("method")
    pairs = [("mcp-protocol-version", meta.get(META_VERSION)), ("mcp-method", method)]
    if method in NAMED:
        pairs.append(("mcp-name", params.get(NAMED[method])))
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        pairs += [(header, arguments.get(key)) for header, key in mirrored.get(params.get("name"), [])]
    for name, expected in pairs:
        value = headers.get(name)
        try:
            if value and value.startswith("=?base64?") and value.endswith("?="):
                value = base64.b64decode(value[9:-2], validate=True).decode()
        except ValueError:
            value = None
        # A missing _meta is the server's to refuse, and says more than a header that is there without it.
        if value != expected and (expected is not None or name.startswith("mcp-param-")):
            raise Refused(400, -32020, f"Header mismatch: {name} is {value!r}, the body says {expected!r}", message.get("id"))


def mirrors(tools):
    """tool → the headers that mirror a parameter of it."""
    found = {}
    for tool in tools:
        for key, schema in tool["inputSchema"].get("properties", {}).items():
            if isinstance(schema, dict) and "x-mcp-header" in schema:
                found.setdefault(tool["name"], []).append((f"mcp-param-{schema['x-mcp-header']}".lower(), key))
    return found


def respond(writer, status, message=None, extra=None):
    body = b"" if message is None else json.dumps(message).encode()
    headers = {"Content-Length": len(body), "Connection": "close", **(extra or {})}
    if body:
        headers["Content-Type"] = "application/json"
    head(writer, status, headers)
    writer.write(body)


def head(writer, status, headers):
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {status} {REASON[status]}\r\n{lines}\r\n".encode())


async def closed(reader):
    """Returns when the client has closed its side."""
    while await reader.read(4096):
        pass


async def first_of(queue, gone):
    """The next message of the queue; None when the peer or the client has gone first."""
    waiting = asyncio.create_task(queue.get())
    await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        return waiting.result()
    waiting.cancel()
    return None


async def stream(queue, reader, writer, first=None, gone=None, extra=None):
    """Sends a queue as server-sent events, up to and with the response. True if that was reached."""
    own = None if gone else asyncio.create_task(closed(reader))
    head(writer, 200, {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "Connection": "close", **(extra or {})})
    try:
        message = first or await first_of(queue, gone or own)
        while message is not None:
            writer.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
            await writer.drain()
            if "method" not in message and first is not None:
                return True
            message = await first_of(queue, gone or own)
        return False
    finally:
        if own:
            own.cancel()


async def main():
    adapter = Adapter(sys.argv[1:])
    server = await asyncio.start_server(adapter.serve, "127.0.0.1", 0, limit=LINE_LIMIT)
    print(f"listening http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", flush=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    server.close()
    peers = [*adapter.sessions.values(), *([adapter.shared] if adapter.shared else [])]
    await asyncio.gather(*(peer.close() for peer in peers))


if __name__ == "__main__":
    asyncio.run(main())
