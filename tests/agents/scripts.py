#!/usr/bin/env python3
"""Real agents whose model writes scripts (docs/scripts.md), before the reference server `everything` from its registry: it
finds a tool, runs a script that calls some, and gets a result, an image among them; a person approves a call in the
middle of a script; and an agent that is interrupted ends the calls of its script.

usage: scripts.py [--bin DIR] [--agents DIR] [AGENT...]

AGENT is claude-code or codex; both without one. DIR of --bin and --agents as for own.py. As root everything runs as
another user, since the daemon refuses root.
"""

import json
import signal
import subprocess
import time

from home import LIMIT_S, Home, Wrong, need, registries
from legs import command_line, run_legs
from limits import waiting
from model import DONE, Model
from own import at_terminal
from run import AGENTS, image_in, texts

NAMES = ("claude-code", "codex")
SERVER = ("everything", "--yes", "--", "npx", "-y", "@modelcontextprotocol/server-everything")
RUN = "colibri_run_script"
# Base64 of a PNG file.
PNG = r"iVBORw0KGgo[A-Za-z0-9+/=]+"

SUMS = """\
const { everything } = tools;
const words = await Promise.all(["one", "two", "three"].map((message) => everything.echo({ message })));
console.log("calls:", words.length);
return { joined: words.map((word) => word.replace("Echo: ", "")).join("+"), long: "x".repeat(1000).length };
"""
IMAGE = "return await tools.everything['get-tiny-image']({});"
APPROVED = """\
const { everything } = tools;
const before = await everything.echo({ message: "before the question" });
const sum = await everything["get-sum"]({ a: 19, b: 23 });
return [before, sum, await everything.echo({ message: "after the answer" })];
"""
# Two calls that take long and one before them; those after them are never sent.
INTERRUPTED = """\
const { everything } = tools;
await everything.echo({ message: "sent and answered" });
const slow = (steps) => everything["trigger-long-running-operation"]({ duration: 120, steps });
await Promise.all([slow(2), slow(3)]);
return await everything.echo({ message: "never sent" });
"""
SLOW = "trigger-long-running-operation"


def calls_within(home):
    """The last script's record in the trail and those of its calls, with the code with which each ended, if it did."""
    records = home.trail()
    entered = [record for record in records if record["kind"] == "enter"]
    [*_, outer] = [record for record in entered if record.get("tool") == RUN] or [None]
    if not outer:
        return None, [], None
    ends = {record["enter"]: record for record in records if record["kind"] == "exit"}
    # A call of a tool that was only looked at then enters twice: the second record continues the first.
    continued = {record.get("continues") for record in entered}
    within = [(record.get("tool"), ends.get(record["n"], {}).get("result"), ends.get(record["n"], {}).get("error_code"))
              for record in entered if record.get("within") == outer["n"] and record["n"] not in continued]
    events = [record["details"] for record in records
              if record.get("event") == "script" and record["details"]["call"] == outer["n"]]
    return (ends.get(outer["n"]) or {}).get("error_code"), within, events[0] if events else None


class Session:
    """An agent that runs, in front of a model of this script."""

    def __init__(self, home, name, agents, steps):
        self.model = Model(steps)
        command, env = AGENTS[name].command(agents, self.model)
        self.running = home.start(command, home.env | env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)

    def end(self):
        """Waits for its end: what it said."""
        try:
            said, _ = self.running.communicate(timeout=LIMIT_S)
        finally:
            self.running.kill()
            self.model.shutdown()
            self.model.server_close()
        return said


def through(home, name, agents, steps, decide=lambda running: None):
    """Has the agent follow these steps to their end: its model."""
    session = Session(home, name, agents, steps)
    try:
        decide(session.running)
    except Wrong as error:
        session.running.kill()
        raise Wrong(f"{error}; the model has {session.model.results}; the agent said {session.end()[-3000:]}") from None
    said = session.end()
    model = session.model
    need(len(model.results) == len(steps), f"{len(model.results)} of {len(steps)} answers reached the model: "
         f"{model.results}; offered: {sorted(model.offered)}; it said: {said[-3000:]}")
    need(DONE in said, f"the agent did not say what the model said: {said[-3000:]}")
    return model


def scripted(home, name, agents):
    """A tool is found, and scripts' results reach the model, an image as an image."""
    steps = [("colibri_find_tools", {"query": "echo a message"}), (RUN, {"script": SUMS}), (RUN, {"script": IMAGE})]
    model = through(home, name, agents, steps)
    found, sums, image = (texts(result) for result in model.results.values())
    need("everything__echo" in found, f"not found: {found}")
    for part in ("one+two+three", "1000", "[printed]", "calls: 3"):
        need(part in sums, f"{part} did not reach the model: {sums}")
    need(image_in(model.bodies[2], PNG), f"no image reached the model: {image[:500]}")
    need(not image_in(model.bodies[1], PNG), "an image was there before")


def approved(home, name, agents):
    """A person approves a call in the middle of a script, which goes on."""
    def decide(running):
        call = waiting(home, running)
        need(call["tool"] == "get-sum" and "19" in call["arguments"], f"what waits is {call}")
        _, within, event = calls_within(home)
        need([tool for tool, result, _ in within if result] == ["echo"] and not event, f"before the answer: {within}")
        at_terminal(home, ["approvals", "approve", call["id"]], "")
    model = through(home, name, agents, [(RUN, {"script": APPROVED})], decide)
    said = texts(model.results[0])
    for part in ("before the question", "42", "after the answer"):
        need(part in said, f"{part} did not reach the model: {said}")
    _, within, event = calls_within(home)
    need([call[:2] for call in within] == [("echo", "SUCCESS"), ("get-sum", "SUCCESS"), ("echo", "SUCCESS")], f"{within}")
    need((event["calls"], event["failed"], event["cancelled"]) == (3, 0, 0), f"{event}")


def headless(home, name, agents):
    """A call of the agent's own waits as well: its program replies where a person should, and the person approves."""
    def decide(running):
        call = waiting(home, running)
        need(call["tool"] == "get-sum" and "19" in call["arguments"], f"what waits is {call}")
        until = time.monotonic() + LIMIT_S
        while not (replies := [record["details"] for record in home.trail() if record.get("event") == "answered"]):
            need(running.poll() is None and time.monotonic() < until, "the agent's program did not reply")
            time.sleep(0.2)
        need([reply.get("answered_by") for reply in replies] == ["program"], f"it is taken for a person: {replies}")
        at_terminal(home, ["approvals", "approve", call["id"]], "")
    arguments = {"server": "everything", "tool": "get-sum", "arguments": {"a": 19, "b": 23}}
    model = through(home, name, agents, [("colibri_external_mcp_call_tool", arguments)], decide)
    need("42" in texts(model.results[0]), f"what was approved did not reach the model: {model.results}")


def interrupted(home, name, agents):
    """The agent is interrupted in the middle of a script: its calls end, and the trail has those that were sent."""
    session = Session(home, name, agents, [(RUN, {"script": INTERRUPTED, "timeout_s": 600})])
    until = time.monotonic() + LIMIT_S
    while len([call for call in calls_within(home)[1] if call[0] == SLOW]) < 2:
        if session.running.poll() is not None or time.monotonic() > until:
            session.running.kill()
            raise Wrong(f"the calls were not made: {calls_within(home)}; the agent said {session.end()[-3000:]}")
        time.sleep(0.2)
    session.running.send_signal(signal.SIGINT)
    said = session.end()
    until = time.monotonic() + LIMIT_S
    while not (seen := calls_within(home))[2] and time.monotonic() < until:
        time.sleep(0.2)
    code, within, event = seen
    need(within == [("echo", "SUCCESS", None), (SLOW, "FAIL", "CANCELLED"), (SLOW, "FAIL", "CANCELLED")],
         f"the calls ended so: {within}; the agent said {said[-3000:]}")
    need(code == "CANCELLED", f"the script ended with {code}")
    need((event["calls"], event["cancelled"]) == (3, 2), f"{event}")
    cancelled = any(message.get("method") == "notifications/cancelled" for message in home.said("to-bridge"))
    return "by notifications/cancelled" if cancelled else "by the end of its connection"


def leg(name, programs, agents):
    """One agent with all of it, in one home."""
    with Home(f"scripts-{name}", programs) as home:
        home.colibri("add", *SERVER, **registries())
        path = home.path / ".config/colibri/external-mcp.json"
        registry = json.loads(path.read_text())
        registry["servers"]["everything"]["tools"] = {"confirm": ["get-sum"]}
        home.write(".config/colibri/external-mcp.json", json.dumps(registry))
        home.colibri("server", "enable", "everything", "--yes")
        home.colibri("connect", name, "--yes")
        scripted(home, name, agents)
        approved(home, name, agents)
        headless(home, name, agents)
        home.watch_bridge()
        how = interrupted(home, name, agents)
        return f"found, three calls in a script, an image, an approval in a script and one of a call, cancelled {how}"


def main():
    arguments = command_line(__doc__, NAMES)
    agents = arguments.agents / "node_modules/.bin"
    run_legs({name: lambda name=name: leg(name, arguments.bin, agents) for name in arguments.agent})


if __name__ == "__main__":
    main()
