#!/usr/bin/env python3
"""Real agents, each from an empty home directory: two commands, and the first real tool call.

usage: run.py [--bin DIR] [--agents DIR] [AGENT...]

AGENT is claude-code, codex, opencode or gemini; all without one. DIR of --bin has Colibri's programs and the tests'
fixtures (target/release), DIR of --agents a node_modules/.bin with the agents (tests/agents/install.sh).
As root everything runs as another user, since the daemon refuses root.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from model import DONE, Model

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORD = "first-real-call"
NOBODY = 65534
LIMIT = 180

# Command lines: what makes each ask its model once, without a person, with Colibri's tool allowed.
PROMPT = "Call the tool echo, then say what it said."


def claude_code(bin, model, env):
    return [bin / "claude", "-p", PROMPT, "--allowedTools", "mcp__colibri"], env | {
        "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1"}


def codex(bin, model, env):
    provider = f'{{name="scripted",base_url="{model.url}/v1",wire_api="responses",env_key="NO_KEY"}}'
    return [bin / "codex", "exec", "--skip-git-repo-check", "-m", "gpt-5", "-c", 'model_provider="scripted"',
            "-c", f"model_providers.scripted={provider}", "-c", 'approval_policy="never"',
            "-c", 'mcp_servers.colibri.default_tools_approval_mode="approve"', PROMPT], env | {"NO_KEY": "none"}


def opencode(bin, model, env):
    settings = {"provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "options": {
        "baseURL": f"{model.url}/v1", "apiKey": "none"}, "models": {"m": {"tool_call": True}}}},
        "model": "scripted/m", "small_model": "scripted/m", "autoupdate": False, "share": "disabled"}
    return [bin / "opencode", "run", PROMPT], env | {"OPENCODE_CONFIG_CONTENT": json.dumps(settings)}


def gemini(bin, model, env):
    return [bin / "gemini", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash", "-p", PROMPT], env | {
        "GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"}


AGENTS = {"claude-code": claude_code, "codex": codex, "opencode": opencode, "gemini": gemini}


# What an agent will not start without, such as how it logs in.
BEFORE = {"gemini": (".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})}


def as_user():
    """What runs a command as somebody who is not root."""
    return {} if os.geteuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def run(command, env, cwd, **more):
    return subprocess.run([str(word) for word in command], env=env, cwd=cwd, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, **as_user(), **more)


def good(command, env, cwd):
    ran = run(command, env, cwd)
    if ran.returncode:
        sys.exit(f"{command}: exit status {ran.returncode}\n{ran.stdout}")
    return ran.stdout


def write(path, text):
    """Writes a file of the user's own."""
    script = 'umask 077; mkdir -p "${1%/*}"; cat > "$1"'
    subprocess.run(["sh", "-c", script, "sh", str(path)], input=text, text=True, check=True, **as_user())


def first_call(name, programs, agents):
    """Sets an agent up by two commands, has it call a tool, and says what is wrong; nothing if all is well."""
    home = pathlib.Path(tempfile.mkdtemp(prefix=f"colibri-{name}-"))
    try:
        project = home / "project"
        project.mkdir()
        for program in ["colibri-mcp", "colibri-mcpd", "fixture-server"]:
            shutil.copy2(programs / program, home / program)
        env = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "NO_COLOR": "1",
               "XDG_CONFIG_HOME": str(home / ".config"), "XDG_STATE_HOME": str(home / ".local/state"),
               "XDG_DATA_HOME": str(home / ".local/share"), "XDG_CACHE_HOME": str(home / ".cache"),
               "COLIBRI_MCP_END_IDLE": "5"}
        if not os.geteuid():
            for path in [home, project]:
                os.chown(path, NOBODY, NOBODY)
        colibri = home / "colibri-mcp"
        if name in BEFORE:
            file, settings = BEFORE[name]
            write(home / file, json.dumps(settings))
        # The two commands.
        good([colibri, "add", "fix", "--yes", "--", home / "fixture-server", "--dir", home, "--as", "fix"], env, project)
        good([colibri, "connect", name, "--yes"], env, project)
        model = Model("echo", {"word": WORD})
        command, its = AGENTS[name](agents, model, env)
        before = time.monotonic()
        ran = run(command, its, project)
        took = time.monotonic() - before
        said = f"exit status {ran.returncode}\n{ran.stdout[-3000:]}"
        if not any(WORD in result for result in model.results):
            return (f"the tool's answer did not reach the model: {model.results}; offered: "
                    f"{sorted(name for name in model.offered if 'echo' in name or 'colibri' in name)}; asked: "
                    f"{[path for path, _ in model.asked]}; {said}")
        if DONE not in ran.stdout:
            return f"the agent did not say what the model said: {said}"
        trail = good([colibri, "trail", "show", "--all", "--json"], env, project)
        records = [json.loads(line) for line in trail.splitlines() if line.startswith("{")]
        if '"SUCCESS"' not in trail or '"echo"' not in trail:
            return f"no record of the call: {records[-5:]}"
        own = [name for name in model.offered if name.endswith("colibri_status")]
        if not own:
            return f"Colibri's own tools were not offered: {sorted(model.offered)}"
        print(f"{name}: two commands, {len(model.offered)} tools offered, the call recorded; {took:.1f} s", flush=True)
        return None
    except subprocess.TimeoutExpired as error:
        return f"{error.cmd} did not end in {LIMIT} s: {str(error.stdout)[-3000:]}"
    finally:
        # The daemon ends by itself, 5 s after the agent.
        socket = home / ".local/state/colibri/colibri.sock"
        for _ in range(150):
            if not socket.exists():
                break
            time.sleep(0.1)
        shutil.rmtree(home, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "target/release")
    parser.add_argument("--agents", type=pathlib.Path, default=ROOT / "target/agents")
    parser.add_argument("agent", nargs="*", choices=[[], *AGENTS], help="which; all of them without one")
    arguments = parser.parse_args()
    agents = arguments.agents.resolve() / "node_modules/.bin"
    failed = 0
    for name in arguments.agent or AGENTS:
        wrong = first_call(name, arguments.bin.resolve(), agents)
        if wrong:
            failed += 1
            print(f"{name}: FAILED: {wrong}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
