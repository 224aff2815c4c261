#!/usr/bin/env python3
"""Real agents, each from an empty home directory, in front of a model that follows a script.

usage: run.py [--bin DIR] [--agents DIR] [AGENT...]

AGENT is claude-code, codex, opencode or gemini, or one of these with -acp, as an editor starts it; all without one.
DIR of --bin has Colibri's programs and the tests' fixtures (target/release), DIR of --agents the agents (target/agents,
which tests/agents/install.sh makes). As root everything runs as other users, since the daemon refuses root.

Two commands and the first call of a server from its registry; then, for each agent, everything that a tool can answer,
through the user's private daemon and through the socket of a service. README.md has what was seen.
"""

import argparse
import base64
import concurrent.futures
import dataclasses
import grp
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import time
import traceback
import zlib

import acp
from home import END_IDLE_S, MEMBERS, PERSON, SERVICE, Home, Wrong, as_user, need, registries
from model import DONE, Model

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPT = "Call the tools that you are told to call."


# What makes each agent ask its model once, without a person, with Colibri's tools allowed: command line, environment.

def claude_code(bin, model):
    return [bin / "claude", "-p", PROMPT, "--allowedTools", "mcp__colibri"], {
        "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1"}


def codex(bin, model):
    provider = f'{{name="scripted",base_url="{model.url}/v1",wire_api="responses",env_key="NO_KEY"}}'
    return [bin / "codex", "exec", "--skip-git-repo-check", "-m", "gpt-5", "-c", 'model_provider="scripted"',
            "-c", f"model_providers.scripted={provider}", "-c", 'approval_policy="never"',
            "-c", 'mcp_servers.colibri.default_tools_approval_mode="approve"',
            # Of its own environment it passes nothing on.
            "-c", f'mcp_servers.colibri.env.COLIBRI_MCP_END_IDLE="{END_IDLE_S}"', PROMPT], {"NO_KEY": "none"}


def opencode(bin, model):
    settings = {"provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "options": {
        "baseURL": f"{model.url}/v1", "apiKey": "none"}, "models": {"m": {
            "tool_call": True, "attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}}}},
        "model": "scripted/m", "small_model": "scripted/m", "autoupdate": False, "share": "disabled"}
    return [bin / "opencode", "run", PROMPT], {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings), "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def gemini(bin, model):
    return [bin / "gemini", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash", "-p", PROMPT], {
        "GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"}


# The same agents as editors start them that speak the Agent Client Protocol: the adapters use the programs above.

def claude_code_acp(bin, model):
    _, env = claude_code(bin, model)
    return [bin / "../../acp/node_modules/.bin/claude-agent-acp"], env | {"CLAUDE_CODE_EXECUTABLE": str(bin / "claude")}


def codex_acp(bin, model):
    provider = {"name": "scripted", "base_url": f"{model.url}/v1", "wire_api": "responses", "env_key": "NO_KEY"}
    settings = {"model": "gpt-5", "model_provider": "scripted", "model_providers": {"scripted": provider}}
    return [bin / "../../acp/node_modules/.bin/codex-acp"], {
        "NO_KEY": "none", "CODEX_PATH": str(bin / "codex"), "CODEX_CONFIG": json.dumps(settings)}


def opencode_acp(bin, model):
    return [bin / "opencode", "acp"], opencode(bin, model)[1]


def gemini_acp(bin, model):
    return [bin / "gemini", "--experimental-acp", "--skip-trust", "-m", "gemini-2.5-flash"], gemini(bin, model)[1]


@dataclasses.dataclass
class Agent:
    """How an agent is run, and what reaches its model of what a tool answers with: that is its own affair, but when it
    changes, README.md has to."""

    command: object
    # Of a structured result: what is structured, or the text beside it.
    structured: str
    # What it will not start without, such as how it logs in: file and content.
    before: tuple = None
    # The editor that `connect` is told, where one starts the agent; and the mode in which the agent asks the person,
    # where its usual one asks the model whether a call is safe.
    editor: str = None
    mode: str = None


GEMINI_LOGIN = (".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})
AGENTS = {
    "claude-code": Agent(claude_code, "structured"),
    "codex": Agent(codex, "structured"),
    "opencode": Agent(opencode, "text"),
    "gemini": Agent(gemini, "text", GEMINI_LOGIN),
    "claude-code-acp": Agent(claude_code_acp, "structured", editor="zed", mode="default"),
    "codex-acp": Agent(codex_acp, "structured", editor="zed", mode="workspace-write"),
    "opencode-acp": Agent(opencode_acp, "text", editor="zed"),
    "gemini-acp": Agent(gemini_acp, "text", GEMINI_LOGIN, editor="zed"),
}

# Servers as a newcomer takes them: the words for `add`, a call, and what it must say.
FIRST = {
    "claude-code": (("everything", "--yes", "--", "npx", "-y", "@modelcontextprotocol/server-everything"),
                    ("everything__echo", {"message": "first-real-call"}), "first-real-call"),
    "codex": (("time", "--yes", "--", "uvx", "mcp-server-time"),
              ("time__convert_time", {"source_timezone": "Europe/Rome", "target_timezone": "Asia/Tokyo",
                                      "time": "12:00"}), "Asia/Tokyo"),
}


def picture():
    """A PNG file in Base64."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + b"".join(bytes([16 * y, 128, 255 - 16 * x]) for x in range(16)) for y in range(16))
    whole = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) +
             chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return base64.b64encode(whole).decode()


PICTURE = picture()
MEASURED, SAID = {"degrees": 21.5, "place": "Lisboa"}, "It is warm."
WORD = "echoed-word"
STEPS = {
    "call": ("fix__echo", {"word": WORD}),
    "progress": ("fix__progress", {"n": 3}),
    "image": ("fix__frame", {"case": "picture"}),
    "structured": ("meter__frame", {"case": "measure"}),
    "rule": ("colibri_external_mcp_call_tool", {"server": "fix", "tool": "pid", "arguments": {}}),
    "gate": ("colibri_create_task", {"title": "Never"}),
    "died": ("gone__exit", {}),
    "down": ("gone__echo", {"word": WORD}),
}
# A private daemon lists no tool that its user keeps closed, so that no agent calls one.
PRIVATE = {step: call for step, call in STEPS.items() if step != "gate"}
# What the model must be told of each.
MUST = {
    "call": [WORD],
    "progress": ["done"],
    "rule": ["POLICY_DENIED", "do not repeat"],
    "gate": ["GATE_CLOSED", "--write"],
    "died": ["SERVER_DIED", "the last words of the fixture"],
    "down": ["INTEGRATION_UNAVAILABLE", "the disk is full"],
}
# What the trail must have of them: server, tool, error code. What commands ask beside them is not looked at.
RECORDS = [
    ("fix", "echo", None), ("fix", "progress", None), ("fix", "frame", None), ("meter", "frame", None),
    ("fix", "pid", "POLICY_DENIED"), (None, "colibri_create_task", "GATE_CLOSED"), ("gone", "exit", "SERVER_DIED"),
    ("gone", "echo", "INTEGRATION_UNAVAILABLE"),
]
OWN = ("colibri_external_mcp_list_tools", "colibri_snapshot")
# What a service allows the person.
PERSON_MAY = {"gates": ["external-call"], "servers": {"*": ["*"]}, "deny": {"fix": ["pid"]}}
# Where tools are searched for. A tool that is refused looks like one that is not there.
SEARCH = {
    "find": ("colibri_find_tools", {"query": "echo a word"}),
    "schema": ("colibri_tool_schema", {"tool": "fix__echo"}),
    "call": ("colibri_call_tool", {"tool": "fix__echo", "arguments": {"word": WORD}}),
    "refused": ("colibri_call_tool", {"tool": "fix__pid", "arguments": {}}),
}
SEARCH_MUST = {"find": ["fix__echo"], "schema": ["The tool echo.", "object"], "call": [WORD], "refused": ["NO_SUCH_TOOL"]}
SEARCHED = "found, definition, call, a refusal"
# What is asked of a server that is recorded, and the words by which an agent is given this command in place of the bridge.
RECORDED = [("echo", {"word": WORD}), ("progress", {"n": 3}), ("frame", {"case": "picture"})]
IN_PLACE = {
    "claude-code": lambda command: ["--mcp-config", json.dumps({"mcpServers": {"colibri": {
        "command": command[0], "args": command[1:]}}})],
    "codex": lambda command: ["-c", f"mcp_servers.colibri.command={json.dumps(command[0])}",
                              "-c", f"mcp_servers.colibri.args={json.dumps(command[1:])}",
                              "-c", 'mcp_servers.colibri.env_vars=["XDG_CONFIG_HOME", "XDG_STATE_HOME"]'],
}
SEEN = "call, progress, image, structured result, {} refusals"


def put_servers(home):
    """The files of three servers: fix, meter with structured answers, and gone, which will not start any more once it
    ended. Returns their entries for a registry."""
    def definition(name, **more):
        return {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}, **more}
    schema = {"type": "object", "required": ["degrees", "place"],
              "properties": {"degrees": {"type": "number"}, "place": {"type": "string"}}}
    definitions = {"fix": [definition(name) for name in ("echo", "frame", "pid", "progress")],
                   "meter": [definition("frame", outputSchema=schema)],
                   "gone": [definition("echo"), definition("exit")]}
    for name, tools in definitions.items():
        home.write(f"servers/{name}.definitions", json.dumps(tools))
    results = {"picture": {"content": [{"type": "image", "data": PICTURE, "mimeType": "image/png"}]},
               "measure": {"content": [{"type": "text", "text": SAID}], "structuredContent": MEASURED}}
    for name, result in results.items():
        frame = json.dumps({"jsonrpc": "2.0", "id": "@ID@", "result": result}).replace('"@ID@"', "@ID@")
        home.write(f"servers/frames/{name}", frame)
    directory = home.path / "servers"
    script = home.write("gone.sh", f"""\
if grep -qs '"name":"exit"' {directory}/gone.record; then
	echo 'the disk is full' >&2
	exit 7
fi
exec {home.path}/fixture-server --dir {directory} --as gone
""")
    command = {name: [str(home.path / "fixture-server"), "--dir", str(directory), "--as", name] for name in definitions}
    command["gone"] = ["/bin/sh", str(script)]
    return command


def texts(value):
    """All texts in an answer, whatever its form."""
    if isinstance(value, str):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return "\n".join(filter(None, map(texts, inner)))


def image_in(value, picture=re.escape(PICTURE)):
    """Whether a request has the picture, an expression for its Base64, as a picture: as data of its own, not within a
    text."""
    if isinstance(value, str):
        return re.fullmatch(rf"(data:image/\w+;base64,)?{picture}", value) is not None
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(image_in(one, picture) for one in inner)


def ask(name, agents, home, steps, more=()):
    """Has the agent, with more words on its command line, follow the script: its model."""
    model, agent = Model(steps), AGENTS[name]
    command, its = agent.command(agents, model)
    command = [*command, *more]
    before = time.monotonic()
    if agent.editor:
        said = acp.prompt(home, command, home.env | its, PROMPT, agent.mode)
    else:
        status, said = home.run(command, home.env | its)
        need(status == 0, f"exit status {status}\n{said[-3000:]}")
    model.took = time.monotonic() - before
    model.shutdown()
    model.server_close()
    need(len(model.results) == len(steps), f"{len(model.results)} of {len(steps)} answers reached the model: "
         f"{model.results}; offered: {sorted(model.offered)}; asked: {model.requests}; it said: {said[-3000:]}")
    need(DONE in said, f"the agent did not say what the model said: {said[-3000:]}")
    return model


def judge(name, model, home, trail, steps=STEPS):
    """Sees to it that the model was told all that the tools answered, that the agent was told of progress, and that the
    trail has the calls."""
    for step, (result, body) in zip(steps, zip(model.results.values(), model.bodies.values())):
        told = texts(result)
        for part in MUST.get(step, ()):
            need(part in told, f"{step}: {part!r} did not reach the model: {told}")
        if step == "image":
            need(image_in(body), f"{step}: no image reached the model: {told}")
        if step == "structured":
            seen = "structured" if MEASURED["place"] in told else "text" if SAID in told else "nothing"
            need(seen == AGENTS[name].structured, f"{step}: {seen} reached the model, which is new: {told}")
    # Every one of them asks for progress, and it comes complete, in order and before the answer.
    [call] = [said for said in home.said("to-bridge") if said.get("params", {}).get("name") == "fix__progress"]
    token = call["params"]["_meta"]["progressToken"]
    came = [said.get("params") or said["id"] for said in home.said("to-agent")
            if said.get("params", {}).get("progressToken") == token or "result" in said and said["id"] == call["id"]]
    need(came == [*({"progressToken": token, "progress": n} for n in (1, 2, 3)), call["id"]], f"progress: {came}")
    ended = {call["enter"]: call for call in trail if call["kind"] == "exit"}
    calls = [call for call in trail
             if call["kind"] == "enter" and call["method"] == "tools/call" and call["tool"] not in OWN]
    calls = [(call.get("server"), call["tool"], ended[call["n"]]["error_code"], call["uid"]) for call in calls]
    uid = os.geteuid() or PERSON
    records = [(*record, uid) for record in RECORDS if "gate" in steps or record[2] != "GATE_CLOSED"]
    need(calls == records, f"the trail has {calls}")


def judge_search(_, model, home, trail):
    """Sees to it that the model was offered no server's tool and told what the four answered, and that the trail has the
    call under the name of its server and tool."""
    listed = [one for one in model.offered if re.search("(fix|meter|gone)__", one)]
    need(not listed, f"listed all the same: {listed}")
    for step, result in zip(SEARCH, model.results.values()):
        for part in SEARCH_MUST[step]:
            need(part in texts(result), f"{step}: {part!r} did not reach the model: {texts(result)}")
    calls = [(call.get("server"), call["tool"], call["uid"]) for call in trail
             if call["kind"] == "enter" and call.get("server") == "fix"]
    need(calls[:1] == [("fix", "echo", os.geteuid() or PERSON)], f"the trail has {calls}")


def prepare(name, home):
    if AGENTS[name].before:
        file, settings = AGENTS[name].before
        home.write(file, json.dumps(settings))


def first(name, programs, agents):
    """Two commands, and the first call of a real server's tool."""
    add, step, must = FIRST[name]
    with Home(name, programs) as home:
        said = home.colibri("add", *add, **registries())
        home.colibri("connect", name, "--yes")
        model = ask(name, agents, home, [step])
        need(must in texts(model.results[0]), f"{must} is not in {model.results[0]}")
        records = [record for record in home.trail() if record["kind"] == "exit" and record["operation"] in step[0]]
        need([record["result"] for record in records] == ["SUCCESS"], f"the trail has {records}")
        offered = re.search(r"offers (\d+ tools)", said)
        need(offered, f"add did not say what the server offers: {said}")
        return model, f"add ({offered[1]}), connect, {step[0]}"


def recorded(name, programs, agents):
    """A session with a server is recorded. In another home, where there is neither server nor daemon, it is replayed to
    the same script."""
    def session(home, *words):
        command = [str(word) for word in (home.client, *words, home.path / "session.jsonl")]
        return ask(name, agents, home, RECORDED, IN_PLACE[name](command))
    with Home(name, programs) as home:
        home.colibri("add", "fix", "--yes", "--", *put_servers(home)["fix"])
        then = session(home, "record", "fix")
        home.colibri("record", "--verify", home.path / "session.jsonl")
        file = (home.path / "session.jsonl").read_text()
    with Home(name, programs) as elsewhere:
        elsewhere.write("session.jsonl", file)
        again = session(elsewhere, "replay", "--strict")
        need(not (elsewhere.path / ".local/state/colibri").exists(), "a private daemon was started")
    for number, (tool, _) in enumerate(RECORDED):
        # Codex puts its own number and the time before what a tool said.
        one, other = (texts(model.results[number]).splitlines()[-1] for model in (then, again))
        need(one == other, f"{tool}: the model was told {one}, and of the recording {other}")
        if tool == "frame":
            need(image_in(again.bodies[number]), f"no image of the recording reached the model: {other}")
    return again, "a recorded session, replayed without its server"


def private(name, programs, agents):
    """Through the bridge and the user's private daemon."""
    with Home(name, programs) as home:
        prepare(name, home)
        for server, command in put_servers(home).items():
            home.colibri("add", server, "--yes", "--", *command)
        # A rule of the user's own. An entry that was edited needs their consent again.
        registry = home.path / ".config/colibri/external-mcp.json"
        rule = '"fix": {\n      "tools": { "deny": ["pid"] },'
        home.write(".config/colibri/external-mcp.json", registry.read_text().replace('"fix": {', rule, 1))
        home.colibri("server", "enable", "fix", "--yes")
        home.colibri("connect", AGENTS[name].editor or name, "--yes")
        home.watch_bridge()
        model = ask(name, agents, home, list(PRIVATE.values()))
        judge(name, model, home, home.trail(), PRIVATE)
        return model, SEEN.format("three")


def service(name, programs, agents):
    """Through the bridge and the socket of a daemon that runs as the service does, as another user."""
    return through_service(name, programs, agents, PERSON_MAY, STEPS, judge), SEEN.format("four")


def searching(name, programs, agents):
    """The same, where no server's tool is listed: the model finds one, asks for its definition, and calls it."""
    return through_service(name, programs, agents, PERSON_MAY | {"list": "search"}, SEARCH, judge_search), SEARCHED


def through_service(name, programs, agents, person, steps, judge):
    """Has the agent follow the script with a service that allows the person this: its model."""
    group = grp.getgrnam(MEMBERS).gr_gid
    with Home("service", programs, SERVICE) as host, Home(name, programs, groups=[group]) as home:
        prepare(name, home)
        del host.env["COLIBRI_MCP_END_IDLE"]
        entries = {server: {"command": words[0], "args": words[1:]} for server, words in put_servers(host).items()}
        registry = host.write("registry.json", json.dumps({"servers": entries}))
        clients = host.write("clients.json", json.dumps({"others": person}))
        # As rc.d/colibri_mcp and the unit make them: the group of the socket's directory says who may open it.
        host.write("run/.keep", "")
        socket, state = host.path / "run/colibri.sock", host.path / "state"
        flags = ["--learn", "--external-call", "--socket", socket, "--state-dir", state, "--external-config", registry,
                 "--clients", clients]
        if not os.geteuid():
            host.path.chmod(0o711)
            os.chown(socket.parent, SERVICE, group)
            socket.parent.chmod(0o2750)
            flags += ["--socket-group", MEMBERS]
        with (host.path / "daemon.log").open("w+") as log:
            daemon = host.start([host.path / "colibri-mcpd", *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                while "The tool echo." not in home.run([home.client, "tools", "gone", "--socket", socket])[1]:
                    need(daemon.poll() is None, f"the daemon ended: {(host.path / 'daemon.log').read_text()}")
                    time.sleep(0.1)
                home.colibri("connect", AGENTS[name].editor or name, "--yes", "--socket", socket)
                home.watch_bridge()
                need(not (home.path / ".local/state/colibri").exists(), "a private daemon was started")
                model = ask(name, agents, home, list(steps.values()))
                need(not (home.path / ".local/state/colibri").exists(), "a private daemon was started")
            finally:
                daemon.terminate()
                daemon.wait(60)
            judge(name, model, home, host.trail("--state-dir", state))
        return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "target/release")
    parser.add_argument("--agents", type=pathlib.Path, default=ROOT / "target/agents")
    parser.add_argument("agent", nargs="*", choices=[[], *AGENTS], help="which; all of them without one")
    arguments = parser.parse_args()
    agents, programs = arguments.agents.resolve() / "node_modules/.bin", arguments.bin.resolve()
    if subprocess.run(["test", "-x", agents / "claude"], **as_user(PERSON)).returncode:
        sys.exit(f"{agents} is not there, or not for user {PERSON}: tests/agents/install.sh, where others can read")
    names = arguments.agent or list(AGENTS)
    # Those first that wait for registries, then each agent through both doors.
    legs = [(first, name) for name in names if name in FIRST]
    legs += [(recorded, name) for name in names if name in IN_PLACE]
    legs += [(leg, name) for name in names for leg in (private, service)]
    legs += [(searching, name) for name in names if not AGENTS[name].editor]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = {pool.submit(leg, name, programs, agents): f"{name}, {leg.__name__}" for leg, name in legs}
        for done in concurrent.futures.as_completed(running):
            try:
                model, seen = done.result()
                print(f"{running[done]}: {seen}; {len(model.offered)} tools, {model.took:.1f} s", flush=True)
            except Exception as error:
                failed += 1
                why = str(error) if isinstance(error, Wrong) else traceback.format_exc()
                print(f"{running[done]}: FAILED: {why}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
