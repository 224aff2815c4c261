#!/usr/bin/env python3
"""Real agents as Colibri runs them: each in a jail of its own (on Linux the development sandbox), from a task to its
result, with its model behind the relay that holds the key.

usage: jailed.py [--bin DIR] [--agents DIR] [AGENT...]

AGENT is claude, codex, opencode or gemini; all of them without one. DIR of --bin has Colibri's programs and the tests'
fixtures (target/release), DIR of --agents the agents (target/agents, which tests/agents/install.sh makes). Needs root:
the helper is installed for as long as this runs; what stood in its place comes back.
"""

import contextlib
import fcntl
import grp
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from home import need
from legs import ROOT, command_line, run_legs
from model import Model
from run import texts

SAMPLES = ROOT / "etc/agents"
CONFIG = pathlib.Path("/usr/local/etc/colibri")
HELPER = pathlib.Path("/usr/local/libexec/colibri-jail-helper")
RUN, JAILS = pathlib.Path("/run/colibri"), pathlib.Path("/run/colibri-jail")
PLACE = pathlib.Path("/usr/local/colibri-test-agents")
LOCK = "/tmp/colibri-installed.lock"
# Who asks for the agents.
PERSON = 65534
KEY = "sk-colibri-test-0123456789abcdef"
WORD = "echoed-word"
LIMIT_S = 300
# Where a sample's program is in the root, and what it is among what npm installed.
AGENTS = {
    "claude": ("usr/local/bin/claude", "@anthropic-ai/claude-code/bin/claude.exe"),
    "codex": ("usr/local/bin/codex", "@openai/codex/bin/codex.js"),
    "opencode": ("usr/local/bin/opencode", "opencode-ai/bin/opencode.exe"),
    "gemini": ("usr/local/mcp/bin/gemini", "@google/gemini-cli/bundle/gemini.js"),
}


def put_program(program, root, at):
    """A program with the libraries that it needs, at their own paths."""
    to = root / at.lstrip("/")
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(program, to)
    put_libraries(program, root)


def put_libraries(program, root):
    said = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", said):
        if not (root / library[1:]).exists():
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(library), root / library[1:])


class Installed:
    """User and group, helper, policy and registry at the paths that the helper trusts, a root; all of it gone at the end."""

    def __init__(self, programs, agents):
        self.programs, self.agents = programs, agents
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        lock = self.stack.enter_context(open(LOCK, "w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (["groupadd", "-f", "-r", "colibri"], ["groupadd", "-f", "-r", "mcpusers"]):
            subprocess.run(command, check=True)
        if subprocess.run(["id", "-u", "colibri"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            subprocess.run(["useradd", "-r", "-g", "colibri", "-M", "colibri"], check=True)
        self.user, self.group = pwd.getpwnam("colibri").pw_uid, grp.getgrnam("colibri").gr_gid
        for path in (CONFIG, HELPER, RUN, PLACE):
            aside = path.with_name(path.name + ".before-agents")
            if path.exists() and not aside.exists():
                path.rename(aside)
                self.stack.callback(aside.rename, path)
            self.stack.callback(self.remove, path)
            self.remove(path)
        self.stack.callback(self.remove, JAILS)
        HELPER.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.programs / "colibri-jail-helper", HELPER)
        os.chown(HELPER, 0, self.group)
        HELPER.chmod(0o4550)
        (CONFIG / "daemon-secrets").mkdir(parents=True)
        os.chown(CONFIG / "daemon-secrets", 0, self.group)
        (CONFIG / "daemon-secrets").chmod(0o750)
        RUN.mkdir(0o750)
        os.chown(RUN, self.user, grp.getgrnam("users").gr_gid)
        RUN.chmod(0o2750)
        for name in ("state", "servers"):
            (PLACE / name).mkdir(parents=True)
            os.chown(PLACE / name, self.user, self.group)
        echo = {"name": "echo", "description": "The tool echo.", "inputSchema": {"type": "object"}}
        (PLACE / "servers/fix.definitions").write_text(json.dumps([echo]))
        root = PLACE / "root"
        for name in ("dev", "tmp", "proc", "agents", "work", "home/agent", "var/run/colibri"):
            (root / name).mkdir(parents=True)
        for program in ("/bin/sh", "/usr/bin/env", "/usr/bin/node"):
            put_program(program, root, program)
        put_program(self.programs / "colibri-mcp", root, "/usr/local/bin/colibri-mcp")
        shutil.copy2(SAMPLES / "gemini-settings.json", root / "home/agent/settings.json")
        for at, program in AGENTS.values():
            (root / at).parent.mkdir(parents=True, exist_ok=True)
            (root / at).symlink_to(f"/agents/node_modules/{program}")
            put_libraries(self.agents / "node_modules" / program, root)
        for name in ("colibri-mcpd", "colibri-mcp", "fixture-server"):
            shutil.copy2(self.programs / name, PLACE / name)
        return self

    def __exit__(self, *_):
        self.stack.close()

    @staticmethod
    def remove(path):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def write(self, path, text, mode):
        path.write_text(text)
        os.chown(path, 0, self.group)
        path.chmod(mode)

    def configure(self, name, model):
        """Registry and policy as they are shipped for this agent, in front of this model."""
        sample = json.loads((SAMPLES / f"{name}.json").read_text())
        [entry], policy = sample["registry"]["agents"].values(), sample["policy"]
        self.uid = policy["users"][name]["uid"]
        work = PLACE / f"work-{name}"
        work.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"uid={self.uid},gid={self.uid},mode=755", "tmpfs", work], check=True)
        self.stack.callback(subprocess.run, ["umount", work], check=True)
        mounts = [{"path": str(self.agents), "owner": 0, "at": "/agents", "write": False, "bounded": False},
                  {"path": str(work), "owner": self.uid, "at": "/work", "write": True}]
        if name == "codex":
            # Its newest models write programs that call the tools, for which the scripted one is not clever enough.
            entry["args"].insert(entry["args"].index("exec") + 1, "--model=gpt-5")
        policy.update(audit="best-effort", ephemeral=[str(PLACE / "root")], mounts=mounts)
        # The development sandbox is Linux's own.
        policy.pop("abi", None)
        entry["jail"].pop("abi", None)
        entry["jail"].update(path=str(PLACE / "root"), mounts=[
            {key: mount[key] for key in ("path", "at", "write")} for mount in mounts])
        entry["model"].update(url=model.url, allow_addresses=["loopback"])
        entry.update(tools={"fix": {"allow": ["echo"]}}, users=[pwd.getpwuid(PERSON).pw_name], disabled=False)
        [(header, value)] = entry["model"]["headers"].items()
        self.write(CONFIG / "daemon-secrets" / value["secret"], ("Bearer " if header == "authorization" else "") + KEY, 0o440)
        servers = {"fix": {"command": str(PLACE / "fixture-server"), "args": ["--dir", str(PLACE / "servers"), "--as", "fix"]}}
        self.write(CONFIG / "jail-policy.json", json.dumps(policy), 0o644)
        self.write(CONFIG / "external-mcp.json", json.dumps({"servers": servers, "agents": {name: entry}}), 0o640)


def memory_with_key(uid):
    """Where within the jail the key is found: processes' memory, arguments and environment, and the files they can write."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != uid:
                continue
            for name in ("environ", "cmdline"):
                if KEY.encode() in (entry / name).read_bytes():
                    found.append(f"{entry}/{name}")
            with open(entry / "mem", "rb", 0) as memory:
                for line in (entry / "maps").read_text().splitlines():
                    span, mode = line.split()[:2]
                    if not mode.startswith("rw"):
                        continue
                    first, last = (int(part, 16) for part in span.split("-"))
                    while first < last:
                        size = min(last - first, 1 << 24)
                        try:
                            memory.seek(first)
                            if KEY.encode() in memory.read(size):
                                found.append(f"{entry}/mem at {first:x}: {line}")
                        except OSError:
                            pass
                        first += size
            for below in ("tmp", "work"):
                for path in (entry / "root" / below).rglob("*"):
                    if path.is_file() and not path.is_symlink() and KEY.encode() in path.read_bytes():
                        found.append(str(path))
        except (OSError, ValueError):
            continue
    return found


class Script(Model):
    """A model that has the agent take its task, call a tool, and finish; looks for the key meanwhile."""

    def __init__(self, installed):
        self.installed, self.found, self.looked = installed, [], False
        super().__init__([("colibri_next_task", {}), ("fix__echo", {"word": WORD}), ("colibri_finish_task", self.finish)])

    def finish(self):
        if not self.looked:
            self.looked = True
            self.found = memory_with_key(self.installed.uid)
        said = texts(self.results[0])
        task, claim = (int(re.search(rf'"{key}":\s*(\d+)', said)[1]) for key in ("id", "claim"))
        return {"task": task, "claim": claim, "result": f"the echo said {WORD}"}


def colibri(*words, uid=PERSON, status=0):
    groups = [grp.getgrnam("users").gr_gid]
    done = subprocess.run([str(PLACE / "colibri-mcp"), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, user=uid, group=uid, extra_groups=groups,
                          env={"PATH": "/usr/bin:/bin", "NO_COLOR": "1", "COLIBRI_MCP_SOCKET": str(RUN / "colibri.sock")})
    need(done.returncode == status, f"{words}: exit status {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def processes_of(uid):
    """The pids of a user's processes."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        # One that has ended meanwhile is not left.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(f"/proc/{pid}").st_uid == uid:
                yield pid


def leg(name, installed):
    """One agent, from task to result."""
    model = Script(installed)
    installed.configure(name, model)
    log = open(PLACE / "daemon.log", "w+")
    daemon = subprocess.Popen(
        [str(PLACE / "colibri-mcpd"), "--external-call", "--write", "--learn", "--socket", str(RUN / "colibri.sock"),
         "--state-dir", str(PLACE / "state"), "--external-config", str(CONFIG / "external-mcp.json")],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=installed.user, group=installed.group, extra_groups=[],
        cwd="/", env={"PATH": "/usr/bin:/bin"})
    try:
        until = time.monotonic() + 60
        while not (RUN / "colibri.sock").exists() and time.monotonic() < until:
            need(daemon.poll() is None, "the daemon ended")
            time.sleep(0.1)
        made = json.loads(colibri("tasks", "create", "Echo a word and say what came back", "--json"))
        task = made["task"]["id"]
        said = colibri("agent", "run", name, "--task", task, "--follow")
        one = json.loads(colibri("tasks", "show", task, "--json"))
        need(one["task"]["status"] == "done" and WORD in json.dumps(one["result"]), f"the task is {one}; it said: {said}")
        agents = json.loads(colibri("agent", "list", "--json"))
        instance = agents["instances"][0]
        need(instance["state"] == "done", f"{instance}")
        need(model.looked and not model.found, f"the key is in the jail: {model.found}")
        need(instance["tokens_in"] == model.tokens[0] and instance["tokens_out"] == model.tokens[1],
             f"tokens: {instance['tokens_in']}, {instance['tokens_out']}, the model counted {model.tokens}")
        need(all(KEY in value for value in model.keys) and model.keys, f"keys: {model.keys}")
        return f"{instance['events']} events, {instance['calls']} calls, {model.tokens} tokens"
    except Exception:
        log.seek(0)
        sys.stderr.write(log.read()[-6000:])
        raise
    finally:
        daemon.terminate()
        daemon.wait(60)
        model.shutdown()
        model.server_close()
        left = list(processes_of(installed.uid))
        need(not left and not any(RUN.glob("doors/*")), f"left: {left}, {list(RUN.glob('doors/*'))}")


def main():
    arguments = command_line(__doc__, AGENTS)
    if os.geteuid():
        sys.exit("jailed.py installs the set-user-ID helper: run it as root")
    # Told to end, it still puts back what stood there.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Installed(arguments.bin, arguments.agents) as installed:
        run_legs({name: lambda name=name: leg(name, installed) for name in arguments.agent})


if __name__ == "__main__":
    main()
