"""A client of the chibi bridge, written from its protocol alone: `chibi_client.py HOME [REQUEST...]`.

Each request is a line of JSON, sent over a connection of its own; each answer is printed as a line of JSON. The bridge
has to run; its address is in HOME/mcp-bridge.lock.
"""

import json
import os
import socket
import sys


def address(home):
    with open(os.path.join(home, "mcp-bridge.lock"), encoding="utf-8") as file:
        lock = json.load(file)
    assert {"pid", "address", "started", "heartbeat_secs", "timestamp"} <= lock.keys(), lock
    assert lock["heartbeat_secs"] == 30, lock
    host, port = lock["address"].rsplit(":", 1)
    return host, int(port)


def ask(home, request, newline=False):
    with socket.create_connection(address(home), timeout=30) as connection:
        connection.sendall(request.encode() + (b"\n" if newline else b""))
        if not newline:
            connection.shutdown(socket.SHUT_WR)
        return json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))


if __name__ == "__main__":
    for number, line in enumerate(sys.argv[2:]):
        print(json.dumps(ask(sys.argv[1], line, newline=number % 2 == 1)))
