#!/usr/bin/env python3
"""Thirty public servers, as their server.json, their manual or an editor's file has them, brought in by `colibri-mcp`.

Each either becomes an entry, and where it is a package it is installed from its registry and lists its tools through the
daemon, or is refused with a reason. Removing them leaves nothing. The entries are written here from facts; no address of
a remote server is connected to. Exit status 0: so it is.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import harness

# Longer than any installation takes on a busy machine.
PATIENCE_S = 900


def command(*words, env=()):
    """A command line, as manuals have it; `env`: what it is given."""
    flags = [word for pair in env for word in ("--env", pair)]
    return "add", [*flags, "--", *words]


def server_json(name, *packages, remotes=(), answers=()):
    text = {"$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": name, "description": "", "version": "1.0.0", "packages": list(packages), "remotes": list(remotes)}
    return "import", text, [word for pair in answers for word in ("--set", pair)]


def package(kind, identifier, version, *variables, **more):
    variables = [{"name": name, "isSecret": True, "isRequired": required} for name, required in variables]
    return {"registryType": kind, "identifier": identifier, "version": version, "transport": {"type": "stdio"},
            "environmentVariables": variables, **more}


def remote(url, kind="streamable-http", **more):
    return {"type": kind, "url": url, **more}


# Name, where it comes from, and what must come of it: RUNS (it is installed and lists tools), WRITTEN (an entry), or the
# words of the reason why it is refused.
RUNS, WRITTEN = object(), object()
MCP = "@modelcontextprotocol/server-"
OPTIONAL_ARGUMENTS = [{"type": "named", "name": name, "isRequired": False}
                      for name in ("--apiClientId", "--connectionString", "--readOnly", "--transport")]
BEARER = {"name": "Authorization", "value": "Bearer {token}", "isSecret": True, "variables": {"token": {}}}
SERVERS = [
    ("everything", command("npx", "-y", f"{MCP}everything@2026.8.31", "stdio"), RUNS),
    ("filesystem", command("npx", "-y", f"{MCP}filesystem@2026.8.31", "/tmp"), RUNS),
    ("memory", server_json("io.example/memory", package("npm", f"{MCP}memory", "2026.8.31")), RUNS),
    ("thinking", command("npm", "exec", "--", f"{MCP}sequential-thinking@2026.8.31"), RUNS),
    ("time", command("uvx", "mcp-server-time@2026.10.19", "--local-timezone", "Europe/Berlin"), RUNS),
    ("git", server_json("io.example/git", package("pypi", "mcp-server-git", "2026.10.19", runtimeHint="uvx")), RUNS),
    ("fetch", command("pipx", "run", "--spec", "mcp-server-fetch==2026.10.24", "mcp-server-fetch"), RUNS),
    ("context7", server_json("io.github.upstash/context7", package(
        "npm", "@upstash/context7-mcp", "1.0.26", ("CONTEXT7_API_KEY", False))), RUNS),
    ("firecrawl-mcp-server", server_json("io.github.firecrawl/firecrawl-mcp-server", package(
        "npm", "firecrawl-mcp", "3.20.2", ("FIRECRAWL_API_KEY", False)),
        answers=["FIRECRAWL_API_KEY=fc-0123456789abcdef"]), RUNS),
    ("brave-search-mcp-server", server_json("io.github.brave/brave-search-mcp-server", package(
        "npm", "@brave/brave-search-mcp-server", "2.1.3", ("BRAVE_API_KEY", True)),
        answers=["BRAVE_API_KEY=0123456789abcdef"]), RUNS),
    ("mongodb-mcp-server", server_json("io.github.mongodb-js/mongodb-mcp-server", package(
        "npm", "mongodb-mcp-server", "1.2.0", ("MDB_MCP_CONNECTION_STRING", False),
        packageArguments=OPTIONAL_ARGUMENTS)), RUNS),
    ("exa-mcp-server", command("npx", "-y", "exa-mcp-server"), RUNS),
    ("playwright", command("npx", "@playwright/mcp@latest"), RUNS),
    ("chrome-devtools", command("npx", "-y", "chrome-devtools-mcp@latest"), RUNS),
    ("notion", command("npx", "-y", "@notionhq/notion-mcp-server", env=["NOTION_TOKEN=ntn_0123456789ab"]), RUNS),

    ("github", command("/nonexistent/docker", "run", "-i", "--rm", "ghcr.io/github/github-mcp-server"), "is not there"),
    ("github-mcp-server", server_json("io.github.github/github-mcp-server", package(
        "oci", "ghcr.io/github/github-mcp-server:1", "1.0.0")), "container image"),
    ("nuget", server_json("com.example/nuget", package("nuget", "NuGet.Mcp.Server", "1.0.0")), ".NET"),
    ("bundle", server_json("com.example/bundle", package(
        "mcpb", "https://example.org/bundle.mcpb", "1.0.0", fileSha256="0" * 64)), "https://example.org/bundle.mcpb: "),
    ("serena", command("uvx", "--from", "git+https://github.com/oraios/serena", "serena"), "only published packages"),
    ("brave-unset", server_json("io.github.brave/brave-unset", package(
        "npm", "@brave/brave-search-mcp-server", "2.1.3", ("BRAVE_API_KEY", True))), "it needs BRAVE_API_KEY"),
    ("served", server_json("com.example/served", package(
        "npm", "exa-mcp-server", "3.2.0") | {"transport": {"type": "streamable-http", "url": "http://127.0.0.1/"}}),
        "serves HTTP itself"),

    ("exa", server_json("io.github.exa-labs/exa", remotes=[remote("https://mcp.exa.ai/mcp", "sse")]), WRITTEN),
    ("github-remote", server_json("com.github/github-remote", remotes=[
        remote("https://api.githubcopilot.com/mcp/", headers=[BEARER])], answers=["token=ghp_0123456789ab"]), WRITTEN),
    ("notion-remote", server_json("com.notion/notion-remote", remotes=[remote("https://mcp.notion.com/mcp")]), WRITTEN),
    ("sentry", server_json("io.sentry/sentry", remotes=[remote("https://mcp.sentry.dev/mcp")]), WRITTEN),
    ("linear", server_json("app.linear/linear", remotes=[remote("https://mcp.linear.app/sse", "sse")]), WRITTEN),
    ("cloudflare", ("add", ["--url", "https://docs.mcp.cloudflare.com/sse", "--sse"]), WRITTEN),
    ("huggingface", ("add", ["--url", "https://huggingface.co/mcp", "--header", "Authorization=Bearer hf_0123456789"]),
     WRITTEN),
    ("deepwiki", ("add", ["--url", "https://mcp.deepwiki.com/mcp"]), WRITTEN),
]


class User:
    """A user with nothing but an empty home, and where the client has everything of this user."""

    def __init__(self, work, name):
        self.home = work / name
        self.home.mkdir()
        self.own = self.home / "colibri"
        variables = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "HOME")
        # How this machine reaches the registries stands in its environment. A socket that is named: `add` starts no
        # daemon, so nothing that it writes is connected to.
        self.environment = {**os.environ, **{name: str(self.home) for name in variables},
                            "COLIBRI_MCP_SOCKET": str(self.own / "colibri.sock")}

    def client(self, *words):
        done = subprocess.run([harness.binary("colibri-mcp"), *words], env=self.environment, cwd=self.home,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PATIENCE_S)
        return done.returncode, done.stdout

    def bring(self, name, source):
        kind, what, *more = source
        if kind == "add":
            return self.client("add", name, "--yes", *what)
        path = self.home / f"{name}.server.json"
        path.write_text(json.dumps(what))
        return self.client("import", str(path), "--yes", *(more[0] if more else ()))

    def registry(self):
        path = self.own / "external-mcp.json"
        return json.loads(path.read_text()).get("servers", {}) if path.exists() else {}


def judge(user, name, source, wanted):
    """What is wrong with what came of a server; None: nothing."""
    status, said = user.bring(name, source)
    if isinstance(wanted, str):
        right = status == 65 and wanted in said and name not in user.registry()
        return None if right else f"not refused as it must be: {status}: {said[-1500:]}"
    entry = user.registry().get(name)
    if status or entry is None:
        return f"no entry: {status}: {said[-1500:]}"
    if re.search(r"0123456789ab", said + json.dumps(entry)):
        return "a secret shows"
    if wanted is WRITTEN:
        return None if "url" in entry else "its entry has no url"
    records = list(user.own.glob(f"servers/{name}/*/installed.json"))
    if "command" in entry or len(records) != 1 or str(user.home) in json.dumps(entry):
        return f"its entry has a path of this machine: {entry} {records}"
    words = json.loads(records[0].read_text())["command"]
    if re.search(r"/(npx|uvx|npm|pipx)$", words[0]) or not all(pathlib.Path(word).exists() for word in words[:2]):
        return f"its package runs {words[:2]}"
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", default="", metavar="PATTERN", help="these servers alone")
    only = arguments.parse_args().only
    servers = [server for server in SERVERS if re.search(only, server[0])]
    work = harness.work_directory("interop-bring")
    harness.adopt_orphans()
    # Remote servers have a registry that no daemon reads: nothing of the run goes there.
    with_daemon, without = User(work, "u"), User(work, "v")
    wrong, lines = {}, []
    for name, source, wanted in servers:
        user = with_daemon if wanted is RUNS else without
        why = judge(user, name, source, wanted)
        said = {RUNS: "installed", WRITTEN: "written"}.get(wanted, "refused") if why is None else f"WRONG: {why}"
        lines.append(f"{name}: {said}")
        print(lines[-1], flush=True)
        if why:
            wrong[name] = why
    tools_of(with_daemon, [name for name, _, wanted in servers if wanted is RUNS and name not in wrong], wrong)
    for user in (with_daemon, without):
        for name in user.registry():
            status, said = user.client("remove", name, "--yes")
            if status:
                wrong[name] = f"not removed: {said}"
        left = [path for place in ("servers", "daemon-secrets", "locks") for path in (user.own / place).glob("*")]
        if left or user.registry():
            wrong["left"] = f"{left} {user.registry()}"
    for name, why in wrong.items():
        print(f"WRONG: {name}: {why}", file=sys.stderr)
    left = harness.leftovers()
    print(f"{len(servers)} servers, {len(wrong)} wrong; left: {left or 'nothing'}")
    return 1 if wrong or left else 0


def tools_of(user, names, wrong):
    """Asks each server for its tools, through a daemon."""
    if not names:
        return
    user.own.mkdir(exist_ok=True)
    socket, log = user.own / "colibri.sock", (user.home / "daemon.log").open("w")
    flags = ["--external-call", "--socket", socket, "--external-config", user.own / "external-mcp.json",
             "--state-dir", user.own / "state", *(["--allow-root"] if os.geteuid() == 0 else [])]
    daemon = subprocess.Popen([harness.binary("colibri-mcpd"), *flags], env=user.environment, stdin=subprocess.DEVNULL,
                              stdout=log, stderr=log)
    try:
        for _ in range(600):
            if socket.exists() or daemon.poll() is not None:
                break
            time.sleep(0.1)
        for name in names:
            for _ in range(60):
                status, said = user.client("--socket", str(socket), "tools", name, "--json")
                if "still starting" not in said:
                    break
                time.sleep(2)
            tools = len(json.loads(said).get("tools", [])) if status == 0 else 0
            print(f"{name}: {tools} tools", flush=True)
            if not tools:
                wrong[name] = f"no tools: {status}: {said[-1500:]}"
    finally:
        daemon.terminate()
        daemon.wait(60)
        log.close()


if __name__ == "__main__":
    sys.exit(main())
