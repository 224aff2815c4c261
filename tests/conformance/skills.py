#!/usr/bin/env python3
"""The official conformance suite's seven scenarios of the skills extension (SEP-2640), which no list of requirements names.

The three of servers run on our fixture server directly, and through the daemon with a client and a server of each era. The
four of clients run with a client of this file directly, which checks what it reads, and through the daemon: there nobody
but the daemon checks. Results: target/conformance-skills/.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import urllib.request

import official
from official import harness

HERE = pathlib.Path(__file__).resolve().parent
REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
OF_SERVERS = [f"sep-2640-skills-{name}" for name in ("enumeration", "manifest", "directory")]
OF_CLIENTS = [f"sep-2640-client-{name}" for name in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")]
PATIENCE_S = 120


def suite(install, work, name, *arguments):
    """Runs one scenario; its checks that are no success."""
    out = work / name
    log = work / f"{name}.log"
    with log.open("wb") as written:
        subprocess.run(
            [install.node, official.package(install) / "dist/index.js", *arguments, "-o", out],
            stdin=subprocess.DEVNULL, stdout=written, stderr=written, timeout=PATIENCE_S,
        )
    checks = [check for path in out.rglob("checks.json") for check in json.loads(path.read_text())]
    checks = [check for check in checks if check["id"].startswith("sep-2640")]
    if not checks:
        return [f"no check: {log.read_text()[-300:]}"]
    return [f"{check['id']}: {check['status']}: {check.get('errorMessage', '')}"
            for check in checks if check["status"] not in ("SUCCESS", "INFO")
            # The suite has cache attributes in the modern era alone.
            and not ("cache-attributes" in check["id"] and check["status"] == "SKIPPED")]


def of_server(install, work, leg, front, era):
    """The scenarios of a server behind a front that listens for it: how many pass, and what does not."""
    listener = subprocess.Popen(
        [sys.executable, HERE / front[0], *front[1:]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(work / f"{leg}.front").open("wb"), text=True,
    )
    problems, passed = [], 0
    try:
        url = listener.stdout.readline().removeprefix("listening ").strip()
        for scenario in OF_SERVERS:
            faults = suite(install, work, f"{leg}-{scenario}", "server", "--url", url, "--scenario", scenario,
                           "--spec-version", REVISIONS[era], "--force")
            passed += not faults
            problems += [f"{leg}: {scenario}: {fault}" for fault in faults]
    finally:
        listener.stdin.close()
        listener.wait(harness.PATIENCE_S)
    return passed, problems


def of_client(install, work, leg, command):
    problems, passed = [], 0
    for scenario in OF_CLIENTS:
        faults = suite(install, work, f"{leg}-{scenario}", "client", "--command", command, "--scenario", scenario)
        passed += not faults
        problems += [f"{leg}: {scenario}: {fault}" for fault in faults]
    return passed, problems


def load(ask, scenario, checks):
    """Does what a host does: lists skills, and loads the first one, unless that is what must not happen. A host that
    does not check reads on as long as it gets an answer."""
    skills = ask("skills/list", {}).get("skills", [])
    print(json.dumps(skills), file=sys.stderr)
    if scenario.endswith("no-prefetch"):
        return
    for file in skills[0]["resources"]:
        result = ask("resources/read", {"uri": file["uri"]})
        print(json.dumps(result), file=sys.stderr)
        if "contents" not in result:
            return
        text = result["contents"][0]["text"]
        digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        if checks and (digest, len(text.encode())) != (file["digest"], file["size"]):
            return
        front = skills[0]["frontmatter"]
        if checks and file["uri"].endswith("SKILL.md") and f"description: {front['description']}\n" not in text:
            return


def client_under_test(through):
    url, scenario = sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"]
    if through:
        import driver
        import tempfile

        harness.adopt_orphans()
        with tempfile.TemporaryDirectory(prefix="colibri-driver-") as directory:
            entry = {"url": url, "allow_addresses": ["loopback"]}
            with harness.Daemon(pathlib.Path(directory), {"server": entry}) as daemon:
                client = driver.Client(daemon.socket, driver.MODERN)
                client.ask("tools/list", {})
                load(client.ask, scenario, checks=False)
                print(daemon.log.read_text(), file=sys.stderr)
        return
    meta = {"io.modelcontextprotocol/protocolVersion": REVISIONS["modern"],
            "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}}

    def ask(method, params):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        request = urllib.request.Request(url, json.dumps(body).encode(), {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISIONS["modern"], "Mcp-Method": method})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["result"]

    load(ask, scenario, checks=True)


def main():
    if len(sys.argv) > 1 and sys.argv[1] in ("--direct", "--through"):
        return client_under_test(sys.argv[1] == "--through")
    harness.adopt_orphans()
    install = harness.Install()
    work = harness.work_directory("conformance-skills")
    fixture = str(harness.binary("conformance-fixture"))
    os.environ.setdefault("COLIBRI_BIN_DIR", str(harness.binary("colibri-mcpd").parent))
    lines, problems = [], []

    def note(leg, result, most):
        passed, faults = result
        lines.append(f"skills, {leg}: {passed} of {most}")
        problems.extend(faults)

    for era in REVISIONS:
        note(f"server direct {era}", of_server(install, work, f"direct-{era}", ["adapter.py", fixture, era], era), 3)
    with contextlib.ExitStack() as stack:
        for server in REVISIONS:
            directory = work / f"daemon-{server}"
            directory.mkdir()
            entry = {"command": fixture, "args": [server], "may_ask": harness.ASKS}
            daemon = stack.enter_context(harness.Daemon(directory, {"fixture": entry}))
            for era in REVISIONS:
                leg = f"{era}-to-{server}"
                result = of_server(install, work, leg, ["forward.py", str(daemon.socket)], era)
                note(f"server through, {era} client, {server} server", result, 3)
    for leg in ("direct", "through"):
        command = f"{sys.executable} {HERE / 'skills.py'} --{leg}"
        note(f"client {leg}", of_client(install, work, leg, command), 4)
    official.conclude(work, lines, problems)


if __name__ == "__main__":
    main()
