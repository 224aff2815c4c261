#!/usr/bin/env python3
"""The time that `colibri-mcp add` takes beside the runners that it replaces: `uvx` for a server of PyPI and `npx` for one of
npm, each with an empty cache and an empty home, from the start until the server's tools are there. Three runs of each,
interleaved.

`add` resolves first and installs by hashes, and has a daemon start the server; a runner does it at once. It is to take 1.3
times as long at most, by the middle of the runs. Of `add`, which runs at a terminal here, the longest time without a sign
of life is printed too. Exit status 0: so it is.
"""

import json
import os
import pathlib
import pty
import select
import shutil
import statistics
import subprocess
import sys
import time

import harness

GOAL = 1.3
ROUNDS = 3
PATIENCE_S = 600
UV = "uv==0.13.9"
SERVERS = {"time": ["uvx", "mcp-server-time"], "memory": ["npx", "-y", "@modelcontextprotocol/server-memory"]}
INFO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "add-time", "version": "1"}}
HANDSHAKE = [{"id": 1, "method": "initialize", "params": INFO}, {"method": "notifications/initialized"},
             {"id": 2, "method": "tools/list"}]


def uv(work):
    """The directory of uv and uvx: what is on PATH, or one of PyPI."""
    if found := shutil.which("uvx"):
        return pathlib.Path(found).parent
    subprocess.run([sys.executable, "-m", "venv", work / "uv"], check=True)
    subprocess.run([work / "uv/bin/pip", "install", "--quiet", "--disable-pip-version-check", UV], check=True)
    return work / "uv/bin"


def environment(home, programs):
    """That of a user with nothing but an empty home."""
    home.mkdir()
    own = {name: str(home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    more = {"npm_config_cache": str(home / "npm"), "UV_CACHE_DIR": str(home / "uv"), "UV_PYTHON_DOWNLOADS": "never",
            "COLIBRI_MCP_ALLOW_ROOT": "1", "COLIBRI_MCP_END_IDLE": "1", "PATH": f"{programs}:{os.environ['PATH']}"}
    return {**os.environ, **own, **more}


def by_runner(words, env):
    """Seconds until a runner's server has told its tools."""
    begun = time.monotonic()
    server = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for message in HANDSHAKE:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    server.stdin.flush()
    while line := server.stdout.readline():
        answer = json.loads(line)
        if answer.get("id") == 2:
            break
    else:
        sys.exit(f"{words} ended without a word")
    took = time.monotonic() - begun
    if not answer["result"]["tools"]:
        sys.exit(f"{words} has no tools: {answer}")
    server.stdin.close()
    server.wait(PATIENCE_S)
    return took


def by_add(name, words, env):
    """Seconds until `add` has told the tools, and the longest of them without a sign of life."""
    ours, its = pty.openpty()
    begun = last = time.monotonic()
    command = [harness.binary("colibri-mcp"), "add", name, "--yes", "--", *words]
    add = subprocess.Popen(command, env=env, cwd=env["HOME"], stdin=subprocess.DEVNULL, stdout=its, stderr=its)
    os.close(its)
    said, silent = b"", 0.0
    while select.select([ours], [], [], PATIENCE_S)[0]:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        now = time.monotonic()
        silent, last, said = max(silent, now - last), now, said + part
    took = time.monotonic() - begun
    os.close(ours)
    if add.wait(PATIENCE_S) != 0:
        sys.exit(f"add {name}: exit status {add.returncode}\n{said.decode(errors='replace')}")
    return took, silent


def main():
    work = harness.work_directory("interop-add-time")
    harness.adopt_orphans()
    programs = uv(work)
    missed = []
    for name, words in SERVERS.items():
        runner, add, silences = [], [], []
        for number in range(ROUNDS):
            runner.append(by_runner(words, environment(work / f"{name}-{number}-runner", programs)))
            took, silent = by_add(name, words, environment(work / f"{name}-{number}-add", programs))
            add.append(took)
            silences.append(silent)
        ratio = statistics.median(add) / statistics.median(runner)
        times = [" ".join(f"{took:.2f}" for took in all_) for all_ in (runner, add)]
        print(f"{name}: {words[0]} {times[0]} s, add {times[1]} s: {ratio:.2f} times (goal {GOAL}); "
              f"silent for {max(silences):.2f} s at most", flush=True)
        if ratio > GOAL:
            missed.append(name)
    left = harness.leftovers(patience_s=30)
    for pid, command in left.items():
        print(f"left: {pid} {command}")
    shutil.rmtree(work)
    return 1 if missed or left else 0


if __name__ == "__main__":
    sys.exit(main())
