#!/usr/bin/env python3
"""Sessions of the official Python SDKs of both eras with servers of others, recorded and replayed to them.

    recordings.py [--sessions N]

Each session must say the same when it is replayed, with --strict, and must be what the trail says. The servers are the
reference servers of npm and PyPI, and one on FastMCP that sends progress. Needs target/release (or COLIBRI_BIN_DIR).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

SERVER = '''
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("shop")

@server.tool()
def price(item: str, count: int = 1) -> str:
    return f"{item}: {len(item) * count} € \\u2603"

@server.tool()
async def pack(items: list[str], ctx: Context) -> list[str]:
    for at, _ in enumerate(items):
        await ctx.report_progress(at + 1, len(items))
    return [item.upper() for item in items]

@server.tool()
def fail() -> str:
    raise ValueError("sold out")

@server.resource("shop://stock")
def stock() -> str:
    return "empty"

server.run()
'''

# One session, by the era of its SDK: the calls and the resource of the command line, as JSON, and what came of them.
SESSION = '''
import contextlib, json, sys, anyio

async def session(sdk, calls, resource):
    said = []
    async def progress(done, total, message=None):
        said.append([done, total])
    said.append((await sdk.list_tools()).model_dump(mode="json"))
    for name, arguments in calls:
        said.append((await sdk.call_tool(name, arguments, progress_callback=progress)).model_dump(mode="json"))
    if resource:
        said.append((await sdk.read_resource(resource)).model_dump(mode="json"))
    print(json.dumps(said, sort_keys=True))

@contextlib.asynccontextmanager
async def legacy(command):
    from mcp import ClientSession, stdio_client
    async with stdio_client(command) as streams:
        async with ClientSession(*streams) as sdk:
            await sdk.initialize()
            yield sdk

def modern(command):
    from mcp import Client
    return Client(command, mode="2026-07-28")

async def main():
    from mcp import StdioServerParameters
    era, script, *words = sys.argv[1:]
    calls, resource = json.loads(script)
    async with globals()[era](StdioServerParameters(command=words[0], args=words[1:])) as sdk:
        await session(sdk, calls, resource)

anyio.run(main)
'''


def servers(installed, home):
    """The servers by name: how each is started, the calls of session number N, and a resource to read."""
    node = installed / "node_modules/@modelcontextprotocol"
    python = installed / "requirements/bin"
    files, repository = home / "files", home / "repository"
    files.mkdir()
    for number in range(4):
        (files / f"{number}.txt").write_text("line\n" * number)
    subprocess.run(["git", "init", "-q", repository], check=True)
    subprocess.run(["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty",
                    "-m", "first"], check=True)
    return {
        "shop": (
            [installed / "requirements-2025-11-25/bin/python", home / "server.py"],
            lambda n: [("price", {"item": "x" * (n % 7 + at), "count": at}) for at in range(3)]
            + [("pack", {"items": ["a", "b"][: n % 3]}), ("fail", {})],
            "shop://stock",
        ),
        "everything": (
            ["node", node / "server-everything/dist/index.js", "stdio"],
            lambda n: [("echo", {"message": f"{n} \u2603"}), ("get-sum", {"a": n, "b": 2}), ("get-tiny-image", {}),
                       ("trigger-long-running-operation", {"duration": 1, "steps": 3}), ("get-sum", {"a": "no"})],
            None,
        ),
        "files": (
            ["node", node / "server-filesystem/dist/index.js", files],
            lambda n: [("list_directory", {"path": str(files)}), ("read_text_file", {"path": str(files / f"{n % 4}.txt")}),
                       ("write_file", {"path": str(files / "new.txt"), "content": str(n)}),
                       ("read_text_file", {"path": str(files / "new.txt")}), ("read_text_file", {"path": "/etc/passwd"})],
            None,
        ),
        "memory": (
            ["node", node / "server-memory/dist/index.js"],
            lambda n: [("create_entities", {"entities": [{"name": f"e{n}", "entityType": "t", "observations": ["o"]}]}),
                       ("search_nodes", {"query": f"e{n}"}), ("delete_entities", {"entityNames": [f"e{n}"]})],
            None,
        ),
        "thinking": (
            ["node", node / "server-sequential-thinking/dist/index.js"],
            lambda n: [("sequentialthinking", {"thought": f"thought {at} of {n}", "thoughtNumber": at, "totalThoughts": 3,
                                               "nextThoughtNeeded": at < 3}) for at in range(1, 4)],
            None,
        ),
        "time": (
            [python / "mcp-server-time", "--local-timezone", "Europe/Berlin"],
            lambda n: [("get_current_time", {"timezone": "Asia/Tokyo"}),
                       ("convert_time", {"source_timezone": "UTC", "time": f"{n % 24:02}:00", "target_timezone": "Asia/Tokyo"}),
                       ("get_current_time", {"timezone": "nowhere"})],
            None,
        ),
        "git": (
            [python / "mcp-server-git", "--repository", repository],
            lambda n: [("git_status", {"repo_path": str(repository)}), ("git_log", {"repo_path": str(repository), "max_count": 1}),
                       ("git_show", {"repo_path": str(repository), "revision": f"HEAD~{n}"})],
            None,
        ),
    }


def main():
    parser = argparse.ArgumentParser(description="Recorded sessions, replayed to SDKs of both eras.")
    parser.add_argument("--sessions", type=int, default=10)
    args = parser.parse_args()
    installed = pathlib.Path(subprocess.run([HERE / "install.sh"], check=True, capture_output=True, text=True).stdout.strip())
    programs = pathlib.Path(os.environ.get("COLIBRI_BIN_DIR", HERE.parents[1] / "target/release")).absolute()
    python = {"legacy": installed / "requirements-2025-11-25/bin/python", "modern": installed / "requirements/bin/python"}
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="colibri-recordings-") as home:
        home = pathlib.Path(home)
        (home / "server.py").write_text(SERVER)
        (home / "session.py").write_text(SESSION)
        offered = servers(installed, home)
        registry = home / "external-mcp.json"
        registry.write_text(json.dumps({"servers": {
            name: {"command": str(words[0]), "args": [str(word) for word in words[1:]]}
            for name, (words, _, _) in offered.items()}}))
        registry.chmod(0o600)
        (home / "state").mkdir(mode=0o700)
        socket = home / "sock"
        daemon = subprocess.Popen([programs / "colibri-mcpd", "--allow-root", "--socket", socket, "--external-config",
                                   registry, "--state-dir", home / "state", "--external-call"],
                                  stderr=(home / "log").open("w"), env={**os.environ, "HOME": str(home)})
        colibri = [str(programs / "colibri-mcp"), "--socket", str(socket)]
        environment = {**os.environ, "HOME": str(home), "COLIBRI_STATE_DIR": str(home / "state")}

        try:
            while not socket.exists():
                if daemon.poll() is not None:
                    sys.exit((home / "log").read_text())
                time.sleep(0.05)
            for number in range(args.sessions):
                # Each server with each era in turn.
                era = ["legacy", "modern"][number % 2]
                server = list(offered)[number // 2 % len(offered)]
                _, calls, resource = offered[server]
                script = json.dumps([calls(number), resource])
                file = home / f"{number}.jsonl"

                def session(*words):
                    ran = subprocess.run([python[era], home / "session.py", era, script, *colibri, *words],
                                         capture_output=True, text=True, env=environment, timeout=120)
                    return ran.stdout or ran.stderr

                then = session("record", server, file)
                deadline = time.monotonic() + 20
                while not file.exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
                again = session("replay", "--strict", file)
                checked = subprocess.run([*colibri, "record", "--verify", file], capture_output=True, text=True,
                                         env=environment)
                if then != again or not then.startswith("[") or checked.returncode:
                    wrong += 1
                    print(f"{number} {server} {era}: {then}\nthen: {again}\n{checked.stdout}{checked.stderr}")
        finally:
            daemon.terminate()
            daemon.wait()
    print(f"{args.sessions - wrong} of {args.sessions} sessions said the same again, and happened so")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
