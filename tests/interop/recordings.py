#!/usr/bin/env python3
"""Sessions of the official Python SDKs of both eras with a server of others, recorded and replayed to them.

    recordings.py [--sessions N]

Each session must say the same when it is replayed, with --strict, and must be what the trail says. The server is FastMCP's
(servers/web.py's neighbours are for HTTP), which each era reaches through Colibri. Needs target/release (or
COLIBRI_BIN_DIR).
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

LEGACY = '''
import json, sys, anyio
from mcp import ClientSession, StdioServerParameters, stdio_client
from pydantic import AnyUrl

async def main():
    words, seed = sys.argv[2:], int(sys.argv[1])
    said = []
    async def progress(done, total, message=None):
        said.append([done, total])
    async with stdio_client(StdioServerParameters(command=words[0], args=words[1:])) as streams:
        async with ClientSession(*streams) as sdk:
            await sdk.initialize()
            said.append((await sdk.list_tools()).model_dump(mode="json"))
            for at in range(3):
                arguments = {"item": "x" * (seed % 7 + at), "count": at}
                said.append((await sdk.call_tool("price", arguments)).model_dump(mode="json"))
            items = ["a", "b"][: seed % 3]
            said.append((await sdk.call_tool("pack", {"items": items}, progress_callback=progress)).model_dump(mode="json"))
            said.append((await sdk.call_tool("fail", {})).model_dump(mode="json"))
            said.append((await sdk.read_resource(AnyUrl("shop://stock"))).model_dump(mode="json"))
    print(json.dumps(said, sort_keys=True))

anyio.run(main)
'''

MODERN = '''
import json, sys, anyio
from mcp import Client, StdioServerParameters

async def main():
    words, seed = sys.argv[2:], int(sys.argv[1])
    said = []
    async def progress(done, total, message=None):
        said.append([done, total])
    async with Client(StdioServerParameters(command=words[0], args=words[1:]), mode="2026-07-28") as sdk:
        said.append((await sdk.list_tools()).model_dump(mode="json"))
        for at in range(3):
            arguments = {"item": "x" * (seed % 7 + at), "count": at}
            said.append((await sdk.call_tool("price", arguments)).model_dump(mode="json"))
        items = ["a", "b"][: seed % 3]
        said.append((await sdk.call_tool("pack", {"items": items}, progress_callback=progress)).model_dump(mode="json"))
        said.append((await sdk.call_tool("fail", {})).model_dump(mode="json"))
        said.append((await sdk.read_resource("shop://stock")).model_dump(mode="json"))
    print(json.dumps(said, sort_keys=True))

anyio.run(main)
'''


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
        (home / "legacy.py").write_text(LEGACY)
        (home / "modern.py").write_text(MODERN)
        registry = home / "external-mcp.json"
        registry.write_text(json.dumps({"servers": {"shop": {
            "command": str(python["legacy"]), "args": [str(home / "server.py")]}}}))
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
                era = ["legacy", "modern"][number % 2]
                file = home / f"{number}.jsonl"

                def session(*words):
                    ran = subprocess.run([python[era], home / f"{era}.py", str(number), *colibri, *words],
                                         capture_output=True, text=True, env=environment, timeout=120)
                    return ran.stdout or ran.stderr

                then = session("record", "shop", file)
                deadline = time.monotonic() + 20
                while not file.exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
                again = session("replay", "--strict", file)
                checked = subprocess.run([*colibri, "record", "--verify", file], capture_output=True, text=True,
                                         env=environment)
                if then != again or not then.startswith("[") or checked.returncode:
                    wrong += 1
                    print(f"{number} {era}: {then}\nthen: {again}\n{checked.stdout}{checked.stderr}")
        finally:
            daemon.terminate()
            daemon.wait()
    print(f"{args.sessions - wrong} of {args.sessions} sessions said the same again, and happened so")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
