#!/usr/bin/env python3
"""A login at an authorization server that is not ours: the official TypeScript SDK's example server, which takes only tokens
that its own authorization server issued for it, and `colibri-mcp login` with a browser that consents at once.

Refused without a login; a wrong `state` goes nowhere; logged in by what is pasted and by the browser that comes back; kept
over a restart of the daemon; gone after `logout`; begun anew with a server that forgot its clients. Wants release binaries
(or COLIBRI_BIN_DIR). Exit status 0: all of it is so.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import urllib.error
import urllib.request

import harness

EXAMPLE = "@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js"


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def example(install, work, port, issuer):
    """The server and its authorization server, until the end of the context."""
    env = {"PATH": os.environ["PATH"], "HOME": str(work), "MCP_PORT": str(port), "MCP_AUTH_PORT": str(issuer)}
    with (work / "server.log").open("ab") as log:
        process = subprocess.Popen([install.node, install.modules / EXAMPLE, "--oauth", "--oauth-strict"], env=env, cwd=work,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    for number in (port, issuer):
        harness.until_listening(process, number)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class Redirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def consented(url):
    """Where the browser is sent, or what it shows instead."""
    try:
        with urllib.request.build_opener(Redirect).open(url, timeout=harness.PATIENCE_S) as page:
            return page.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.headers.get("Location") or answer.read().decode()


def told(daemon, *arguments):
    """What a command of the operator's says, and its exit status."""
    run = subprocess.run([*daemon.bridge(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, timeout=harness.PATIENCE_S)
    return run.returncode, run.stdout


def logged_in(daemon, paste):
    """`colibri-mcp login`: `paste` gets where the browser was sent, and says what is pasted, if anything."""
    login = subprocess.Popen([*daemon.bridge(), "login", "web"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    for line in login.stdout:
        if found := re.fullmatch(r"  (https?://\S+)\n", line):
            break
    if pasted := paste(consented(found[1])):
        login.stdin.write(pasted + "\n")
        login.stdin.flush()
    said = login.stdout.read()
    return login.wait(harness.PATIENCE_S), said


def by_browser(address):
    """The browser runs on this machine and goes where it is sent: nothing is pasted."""
    with urllib.request.urlopen(address, timeout=harness.PATIENCE_S) as page:
        assert page.status == 200


def serves(daemon):
    status, said = told(daemon, "call", "web", "greet", "--args", json.dumps({"name": "Ada"}))
    assert status == 0 and "Hello, Ada!" in said, said


def denied(daemon):
    status, said = told(daemon, "call", "web", "greet", "--args", json.dumps({"name": "Ada"}))
    assert status != 0 and "colibri-mcp login web" in said, said


def main():
    install = harness.Install()
    work = harness.work_directory("oauth")
    port, issuer, redirect = free_ports(3)
    entry = {"url": f"http://localhost:{port}/mcp", "allow_addresses": ["loopback"], "oauth": {"redirect_port": redirect}}
    state = work / "state"
    daemon = lambda: harness.Daemon(work, {"web": entry}, state=state)
    with example(install, work, port, issuer):
        with daemon() as first:
            denied(first)
            status, said = logged_in(first, lambda address: address.replace("state=", "state=x"))
            assert status != 0 and "no login waits" in said, said
            denied(first)
            status, said = logged_in(first, lambda address: address)
            assert status == 0 and f"Logged in to web by http://localhost:{issuer}" in said, said
            serves(first)
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (state / "oauth").iterdir()}
        assert set(modes.values()) == {"0o600"}, modes
        with daemon() as second:
            serves(second)
            assert told(second, "login", "--forget", "web")[0] == 0
            denied(second)
            status, said = logged_in(second, by_browser)
            assert status == 0, said
            serves(second)
    # It comes back, and knows neither us nor our tokens.
    with example(install, work, port, issuer), daemon() as third:
        # To a token that it never issued it answers 500.
        assert told(third, "call", "web", "greet")[0] != 0
        assert told(third, "login", "--forget", "web")[0] == 0
        # The browser shows that it does not know us, and goes nowhere; who begins once more is somebody new to it.
        status, said = logged_in(third, lambda page: "invalid_client" in page and "nothing")
        assert status != 0, said
        status, said = logged_in(third, lambda address: address)
        assert status == 0, said
        serves(third)
    print("a login at the TypeScript SDK's authorization server: as it should be")


if __name__ == "__main__":
    main()
