"""A user with an empty home directory, and what such a user starts."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

# As root everything runs as other users, since the daemon refuses root: the person, the service, and the group of those
# who may open its socket.
PERSON, SERVICE, MEMBERS = 65534, 65533, "users"
# For a command, and for what was started to end.
LIMIT_S = 300
# The person's daemon ends so long after its last client.
END_IDLE_S = 2


class Wrong(Exception):
    """What is not as it must be."""


def need(holds, why):
    if not holds:
        raise Wrong(why)


def as_user(uid, groups=()):
    """How a command is run as somebody who is not root."""
    return {} if os.geteuid() else {"user": uid, "group": uid, "extra_groups": list(groups)}


def registries():
    """How this machine reaches npm and PyPI, for somebody who has no settings."""
    kept = ("PIP_", "NPM_CONFIG_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")
    found = {name: value for name, value in os.environ.items() if name.upper().startswith(kept)}
    for key in ("registry", "cafile"):
        value = subprocess.run(["npm", "config", "get", key], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True).stdout.strip()
        if value not in ("", "null", "undefined"):
            found[f"npm_config_{key}"] = value
    return found


class Home:
    """A directory of a user's own with copies of the programs in it, gone at the end, and all that ran from it."""

    def __init__(self, name, programs, uid=PERSON, groups=()):
        self.uid, self.groups = uid, groups
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=f"colibri-{name}-"))
        self.project = self.path / "project"
        self.project.mkdir()
        for program in ["colibri-mcp", "colibri-mcpd", "colibri-script", "fixture-server"]:
            shutil.copy2(programs / program, self.path / program)
        if not os.geteuid():
            for path in [self.path, self.project]:
                os.chown(path, uid, uid)
        self.client = self.path / "colibri-mcp"
        self.env = {"HOME": str(self.path), "PATH": os.environ["PATH"], "TERM": "dumb", "NO_COLOR": "1",
                    "XDG_CONFIG_HOME": str(self.path / ".config"), "XDG_STATE_HOME": str(self.path / ".local/state"),
                    "XDG_DATA_HOME": str(self.path / ".local/share"), "XDG_CACHE_HOME": str(self.path / ".cache"),
                    "TMPDIR": str(self.path / "tmp"), "COLIBRI_MCP_END_IDLE": str(END_IDLE_S)}
        self.write("tmp/.keep", "")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        left = self.ended()
        shutil.rmtree(self.path, ignore_errors=True)
        if kind is None:
            need(not left, f"still there, after the agent: {left}")

    def processes(self):
        """All that was started from here and is not ours to wait for: their command lines by process id."""
        found, mark = {}, str(self.path).encode()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                line = (entry / "cmdline").read_bytes()
                if line and (mark in line or mark in (entry / "environ").read_bytes()):
                    found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace")[:200]
            except OSError:
                continue
        return found

    def ended(self):
        """Waits until nothing that was started from here runs any more. What did not end by itself is ended, and said."""
        until = time.monotonic() + END_IDLE_S + 30
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left

    def write(self, name, text, mode="077"):
        """Writes a file of the user's own."""
        script = 'umask "$2"; mkdir -p "${1%/*}"; cat > "$1"'
        subprocess.run(["sh", "-c", script, "sh", str(self.path / name), mode], input=text, text=True, check=True,
                       **as_user(self.uid))
        return self.path / name

    def start(self, command, env=None, **more):
        """Starts a command in the project, in a session of its own."""
        return subprocess.Popen([str(word) for word in command], env=env or self.env, cwd=self.project, text=True,
                                start_new_session=True, **as_user(self.uid, self.groups), **more)

    def run(self, command, env=None):
        """Runs a command: its exit status, and what it said."""
        process = self.start(command, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            raise Wrong(f"{command} did not end in {LIMIT_S} s: {said[-3000:]}") from None
        return process.returncode, said

    def colibri(self, *words, **more):
        """Runs a command of Colibri's that is to succeed: what it said."""
        status, said = self.run([self.client, *words], {**self.env, **more})
        need(status == 0, f"{words}: exit status {status}\n{said}")
        return said

    def watch_bridge(self):
        """From now on what bridges and agents say to each other is kept, in `to-bridge` and `to-agent`."""
        bridge = self.path / "colibri-mcp"
        self.client = bridge.rename(self.path / "bridge")
        script = f'#!/bin/sh\ntee -a {self.path}/to-bridge | {self.client} "$@" | tee -a {self.path}/to-agent\n'
        self.write("colibri-mcp", script).chmod(0o755)

    def said(self, name):
        """The messages of such a file."""
        return [json.loads(line) for line in (self.path / name).read_text().splitlines()]

    def trail(self, *words):
        """The calls in the trail."""
        said = self.colibri("trail", "show", "--all", "--json", *words)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]
