#!/usr/bin/env python3
"""Real agents on a person's own machine: set up by `colibri-mcp agent add`, behind the private daemon, from a task to its
result, with their model behind the relay that holds the key. Then Claude Code and Codex in one home, while two glasspanes
are watched: these leave nothing in the trail but that they looked, and costs are of both.

usage: own.py [--bin DIR] [--agents DIR] [AGENT...]

AGENT is claude, codex, opencode or gemini; all of them without one. DIR of --bin has Colibri's programs and the tests'
fixtures (target/release), DIR of --agents the agents (target/agents, which tests/agents/install.sh makes). As root
everything runs as another user, since the daemon refuses root.
"""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading

from home import LIMIT_S, Home, need
from legs import command_line, run_legs
from model import Model
from run import texts

KEY = "sk-colibri-test-0123456789abcdef"
WORD = "echoed-word"
# The variable that has the key of each one's model.
AGENTS = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "opencode": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}

# What those two call themselves as clients, or a part of it.
CLIENTS = {"claude": "claude", "codex": "codex"}
# The methods of those who look.
LOOKS = {"colibri/overview", "colibri/agents", "colibri/agent-events", "colibri/servers", "colibri/costs"}


class Script(Model):
    """A model that has the agent take its task, call a tool, and finish."""

    def __init__(self):
        super().__init__([("colibri_next_task", {}), ("fix__echo", {"word": WORD}), ("colibri_finish_task", self.finish)])

    def finish(self):
        said = texts(self.results[0])
        task, claim = (int(re.search(rf'"{key}":\s*(\d+)', said)[1]) for key in ("id", "claim"))
        return {"task": task, "claim": claim, "result": f"the echo said {WORD}"}


def at_terminal(home, words, typed, **env):
    """Runs a command of Colibri's at a terminal at which this was typed: what it said."""
    ours, its = pty.openpty()
    os.write(ours, typed.encode())
    process = home.start([home.client, *words], {**home.env, **env}, stdin=its, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=LIMIT_S)
    os.close(ours)
    os.close(its)
    need(process.returncode == 0, f"{words}: exit status {process.returncode}\n{said}")
    return said


class Glasspane:
    """A glasspane at a terminal."""

    def __init__(self, home):
        self.ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = home.start([home.client, "glasspane"], {**home.env, "TERM": "xterm"}, stdin=its, stdout=its,
                                  stderr=subprocess.STDOUT)
        os.close(its)
        self.drawn = 0
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            while part := os.read(self.ours, 65536):
                self.drawn += len(part)
        except OSError:
            pass

    def close(self):
        """Ends it as a person does."""
        os.write(self.ours, b"q")
        need(self.process.wait(LIMIT_S) == 0, f"glasspane: exit status {self.process.returncode}")
        self.reader.join()
        os.close(self.ours)
        need(self.drawn > 0, "glasspane drew nothing")


def with_server(home):
    """A server with one tool."""
    echo = {"name": "echo", "description": "The tool echo.", "inputSchema": {"type": "object"}}
    home.write("servers/fix.definitions", json.dumps([echo]))
    home.colibri("add", "fix", "--yes", "--", home.path / "fixture-server", "--dir", home.path / "servers", "--as", "fix")


def with_agent(home, name, agents, model):
    """An agent in front of this model."""
    path = f"{agents / 'node_modules/.bin'}:{home.env['PATH']}"
    said = at_terminal(home, ["agent", "add", name], "y\n", PATH=path, **{AGENTS[name]: KEY})
    need("by nothing of Colibri's" in said and KEY not in said, said)
    # The model is a scripted one, at another address than the example's; what was edited needs consent again.
    path = home.path / ".config/colibri/external-mcp.json"
    registry = json.loads(path.read_text())
    entry = registry["agents"][name]
    entry["model"].update(url=model.url, allow_addresses=["loopback"])
    if name == "codex":
        # Its newest models write programs that call the tools, for which the scripted one is not clever enough.
        entry["args"].insert(entry["args"].index("exec") + 1, "--model=gpt-5")
    home.write(".config/colibri/external-mcp.json", json.dumps(registry))
    home.colibri("server", "enable", name, "--yes")


def from_task_to_result(home, name, model):
    """Has the agent do a task: its instance."""
    task = json.loads(home.colibri("tasks", "create", "Echo a word and say what came back", "--json"))["task"]["id"]
    said = home.colibri("agent", "run", name, "--task", task, "--follow")
    one = json.loads(home.colibri("tasks", "show", task, "--json"))
    need(one["task"]["status"] == "done" and WORD in json.dumps(one["result"]), f"the task is {one}; it said: {said}")
    instances = json.loads(home.colibri("agent", "list", "--json"))["instances"]
    [instance] = [instance for instance in instances if instance["agent"] == name]
    need(instance["state"] == "done", f"{instance}")
    need(instance["tokens_in"] == model.tokens[0] and instance["tokens_out"] == model.tokens[1],
         f"tokens: {instance['tokens_in']}, {instance['tokens_out']}, the model counted {model.tokens}")
    need(all(KEY in value for value in model.keys) and model.keys, f"keys: {model.keys}")
    # As the agent, through its own socket: not as the person whose socket it could reach as well.
    calls = [call for call in home.trail("--agent", name) if call.get("tool") == "echo" and call["kind"] == "enter"]
    need(len(calls) == 1, f"the trail has {calls}")
    model.shutdown()
    model.server_close()
    return instance


def leg(name, programs, agents):
    """One agent, from nothing to a result."""
    with Home(f"own-{name}", programs) as home:
        model = Script()
        with_server(home)
        with_agent(home, name, agents, model)
        instance = from_task_to_result(home, name, model)
        return f"{instance['events']} events, {instance['calls']} calls, {model.tokens} tokens"


def costs(home, by):
    """The ledger's rows, after the words of a daemon that starts."""
    said = home.colibri("costs", "--by", by, "--json")
    return json.loads(said[said.index("{"):])["rows"]


def watched(programs, agents):
    """Two agents, with two glasspanes open: the trail has their calls, and costs have both."""
    with Home("own-watched", programs) as home:
        with_server(home)
        models = {name: Script() for name in CLIENTS}
        for name, model in models.items():
            with_agent(home, name, agents, model)
        panes = [Glasspane(home) for _ in range(2)]
        instances = {name: from_task_to_result(home, name, model) for name, model in models.items()}
        for pane in panes:
            pane.close()
        records = home.trail()
        entered = [record for record in records if record["kind"] == "enter"]
        looks = [record["method"] for record in entered if record["method"] in LOOKS]
        need(not looks, f"looking is a call: {looks}")
        for name, instance in instances.items():
            made = len([record for record in home.trail("--agent", name) if record.get("method") == "tools/call"])
            need(made == instance["calls"], f"{name} made {instance['calls']} calls, recorded are {made}")
        ended = [record["details"]["looks"] for record in records if record.get("event") == "look-ended"]
        need(len([looks for looks in ended if looks > 5]) >= 2, f"the glasspanes looked: {ended}")
        rows = costs(home, "client")
        clients = [row["client"] for row in rows if row.get("client")]
        for name, client in CLIENTS.items():
            need(any(client in named for named in clients), f"{name} is a client of {clients}")
        rows = costs(home, "agent")
        for name, model in models.items():
            [row] = [row for row in rows if row.get("agent") == name]
            for told, counted in zip((row["tokens_in"], row["tokens_out"]), model.tokens):
                need(abs(told - counted) <= counted / 10, f"{name}: {told} tokens, the model counted {counted}")
        return f"{len(entered)} calls, {sum(ended)} looks, clients {', '.join(sorted(clients))}"


def main():
    arguments = command_line(__doc__, AGENTS)
    programs, agents = arguments.bin, arguments.agents
    legs = {name: lambda name=name: leg(name, programs, agents) for name in arguments.agent}
    if CLIENTS.keys() <= legs.keys():
        legs["watched"] = lambda: watched(programs, agents)
    run_legs(legs)


if __name__ == "__main__":
    main()
