#!/usr/bin/env python3
"""What Colibri adds to a call of a server behind a URL: the same calls directly and through the daemon, in turns, in one run.

Prints the medians and their ratio for the TypeScript SDK's server and the Python SDK's; wants release binaries and a quiet
machine (or COLIBRI_BIN_DIR). Exit status 0: all were measured.
"""

import json
import re
import shutil
import socket
import statistics
import time

import harness
import plan

CALLS = 1000
VERSION = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "latency", "version": "1"}}


def message(number, name, arguments):
    params = {"name": name, "arguments": arguments, "_meta": META}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def answered(text):
    """Whether an answer, as JSON or as events, is the result of a call."""
    assert b'"content"' in text and b'"isError":true' not in text, text
    return text


def directly(port, path, name, arguments):
    """A function that makes one call over a connection that is kept, with as little of a client as there can be."""
    connection = socket.create_connection(("localhost", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = (f"POST {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\n"
            f"Mcp-Method: tools/call\r\nMcp-Name: {name}\r\nContent-Length: ")

    def call(number):
        body = message(number, name, arguments)
        connection.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
        read = b""
        while not is_whole(read):
            part = connection.recv(65536)
            assert part, read
            read += part
        return answered(read)

    return call


def is_whole(read):
    """Whether an answer has come whole, whose body has a length or comes in chunks."""
    head, end, body = read.partition(b"\r\n\r\n")
    if length := re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE):
        return len(body) >= int(length[1])
    return bool(end) and read.endswith(b"\r\n0\r\n\r\n")


def through(daemon, name, arguments):
    """The same over the daemon's socket, as lines."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(daemon.socket))
    stream = connection.makefile("rwb")

    def call(number):
        stream.write(message(number, f"web__{name}", arguments) + b"\n")
        stream.flush()
        return answered(stream.readline())

    return call


def main():
    install = harness.Install()
    work = harness.work_directory("latency")
    for source in (harness.HERE / "servers").glob("*.*"):
        shutil.copy(source, work)
    (work / "node_modules").symlink_to(install.modules)
    servers = plan.servers(install, work)
    for server in ("witness-http", "python-http"):
        web = servers[server].web
        directory = work / server
        directory.mkdir()
        with web.served(work), harness.Daemon(directory, {"web": servers[server].entry()}) as daemon:
            ways = [directly(web.port, web.path, "count", {"n": 1}), through(daemon, "count", {"n": 1})]
            times = [[], []]
            for number in range(CALLS):
                for way, spent in zip(ways, times):
                    start = time.perf_counter()
                    way(number)
                    spent.append(time.perf_counter() - start)
            direct, via = (statistics.median(spent[CALLS // 10:]) * 1e6 for spent in times)
            print(f"{server}: direct {direct:.0f} µs, through {via:.0f} µs: {via / direct:.2f} ×, {via - direct:.0f} µs added",
                  flush=True)


if __name__ == "__main__":
    main()
