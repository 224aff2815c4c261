"""An editor that speaks the Agent Client Protocol, as small as one can be: Zed starts agents so."""

import json
import os
import signal
import subprocess
import threading

from home import END_IDLE_S, LIMIT_S, Wrong, need


def servers_of_zed(home):
    """What `colibri-mcp connect zed` wrote, as Zed hands it to an agent."""
    settings = json.loads((home.path / ".config/zed/settings.json").read_text())
    return [{"name": name, "command": entry["command"], "args": entry["args"],
             "env": [{"name": key, "value": value} for key, value in {
                 **entry["env"], "COLIBRI_MCP_END_IDLE": str(END_IDLE_S)}.items()]}
            for name, entry in settings["context_servers"].items()]


class Editor:
    """An agent on stdio, and what it tells."""

    def __init__(self, home, command, env):
        self.log = (home.path / "acp.log").open("w+")
        self.agent = home.start(command, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.watch = threading.Timer(LIMIT_S, self.kill)
        self.watch.start()
        self.updates, self.number = [], 0

    def kill(self):
        if self.agent.poll() is None:
            os.killpg(self.agent.pid, signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Some wait for more when nobody writes any more.
        self.agent.stdin.close()
        self.agent.terminate()
        try:
            self.agent.wait(3)
        except subprocess.TimeoutExpired:
            self.kill()
            self.agent.wait()
        self.watch.cancel()
        self.log.close()

    def send(self, message):
        self.agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.agent.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        for line in self.agent.stdout:
            if not line.startswith("{"):
                continue
            message = json.loads(line)
            if "method" not in message and message.get("id") == self.number:
                need("result" in message, f"{method}: {message}")
                return message["result"]
            self.heard(message)
        self.log.seek(0)
        raise Wrong(f"the agent ended before it answered {method}: {self.log.read()[-3000:]}")

    def heard(self, message):
        """What the agent tells or asks meanwhile. The person allows what it asks for."""
        if message.get("method") == "session/update":
            self.updates.append(message["params"]["update"])
        elif message.get("method") == "session/request_permission":
            allowed = [option for option in message["params"]["options"] if option["kind"].startswith("allow")]
            self.send({"id": message["id"], "result": {"outcome": {
                "outcome": "selected", "optionId": allowed[0]["optionId"]}}})
        elif "id" in message and "method" in message:
            self.send({"id": message["id"], "error": {"code": -32601, "message": "no such method here"}})

    def said(self):
        """What the agent says to the person."""
        texts = [update["content"].get("text", "") for update in self.updates
                 if update["sessionUpdate"] == "agent_message_chunk"]
        return "".join(texts)


def prompt(home, command, env, text, mode=None):
    """One prompt in a new session, with the servers that Zed has: what the agent said."""
    with Editor(home, command, env) as editor:
        editor.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {},
                                  "clientInfo": {"name": "editor", "version": "1"}})
        session = editor.ask("session/new", {"cwd": str(home.project), "mcpServers": servers_of_zed(home)})
        if mode:
            editor.ask("session/set_mode", {"sessionId": session["sessionId"], "modeId": mode})
        ended = editor.ask("session/prompt", {"sessionId": session["sessionId"],
                                              "prompt": [{"type": "text", "text": text}]})
        need(ended["stopReason"] == "end_turn", f"the turn ended with {ended}")
        return editor.said()
