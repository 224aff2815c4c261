#!/usr/bin/env python3
"""Runs the commands of the guides as a person types them, and compares the outputs that the guides show.

usage: run.py [--programs DIR] [--verbose] [PAGE...]
                                                   runs what is for Linux and needs no service
       run.py --extract PAGE --system SYSTEM       prints a script for sh(1) that runs what is for that system
       run.py --list                               prints each block, and where it runs

DIR has the built programs; it is target/release unless it is named. Without PAGE all pages of PAGES run.

Each page has a place of its own: an empty home directory, one interactive shell at a terminal, and a daemon that is
ended with it. After a page nothing may run any more, and no file may lie outside of its place. `[y/N]` is answered with
yes. `stages/PAGE.sh` makes what a page says is there already (`before`), and checks what must hold at its end
(`after`). Without PAGE the faults of MUTATIONS are put into a sample page, too: each must be noticed.

In a page, fenced blocks of the languages `sh` and `console` are commands. In `console` a line that begins with `$ ` or
`# ` is a command; a page with several hosts has the host's name before that. The other lines are the command's output,
in which `…` stands for any text of a line, and a line `…` for any lines. A comment before a block says what it is:

    <!-- guide: SYSTEM [USER] -->             where it runs, and as whom. `linux` is here; `linux root` and all of
                                              `freebsd` run in a system of their own, by the script of --extract
    <!-- guide: needs THING -->               that script runs the block if GUIDE_HAS names this thing
    <!-- guide: file PATH [OWNER MODE] -->    the block is this file, and is written
    <!-- guide: fails -->                     its commands fail, as the block shows
    <!-- guide: shown REASON -->              the block is not run
    <!-- guide: page … -->                    the same for the rest of the page

Several are separated by `;`. The last line is "N passed, N failed, N skipped", in blocks of commands and files: skipped
is a block that runs elsewhere, or is only shown.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import functools
import io
import json
import multiprocessing
import os
import pathlib
import pty
import pwd
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
HERE = TREE / "tests/guides"
sys.path += [str(TREE / "tests/agents"), str(TREE / "tests/interop")]
from harness import adopt_orphans, children, leftovers  # noqa: E402
from home import registries  # noqa: E402

PAGES = ["README.md", *(f"docs/guide/{name}.md" for name in (
    "laptop", "linux", "freebsd-host", "operating", "keeping", "fleet", "other-hosts")), "docs/scripts.md"]
PROGRAMS = ["colibri-mcp", "colibri-mcpd", "colibri-script"]
# For the stages of some pages; a release has none.
FIXTURES = ["fixture-server"]
# As root, everything runs as this account of Debian's, which nothing else uses: files outside are known by their owner.
USER = pwd.getpwuid(os.geteuid()) if os.geteuid() else pwd.getpwnam("games")
# Longest time for a command, and for what a page has started to end after its daemon.
COMMAND_LIMIT_S = 120
END_LIMIT_S = 30
COLUMNS = 100
# How directories of places begin, and the number of pages that run at a time: they mostly wait.
PLACE, WORKERS = "colibri-guide-", 4
UV = "uv==0.13.9"

# What a page writes for something that differs from case to case: page, text in its commands, replacement, and why.
SUBSTITUTIONS = [
    ("README.md", "cargo run --release --bin colibri-mcp --", "colibri-mcp", "the programs are built already"),
    ("fleet.md", "/var/db/postgres/data17", "$PGDATA", "a cluster of the place's own"),
    ("fleet.md", " -o postgres -g postgres", "", "there is one user here"),
    ("fleet.md", " -o colibri -g colibri", "", "there is one user here"),
    ("fleet.md", "db.example.org/", "localhost:$PGPORT/", "the server is on this machine"),
    ("fleet.md", "db.example.org", "localhost", "the server is on this machine"),
    ("fleet.md", "10.0.0.0/24", "127.0.0.1/32", "and so are the hosts"),
    ("fleet.md", "/usr/local/etc/colibri", "$HOME/alpha", "a directory of the place's own"),
    ("fleet.md", "/var/db/colibri", "$HOME/alpha/state", "a directory of the place's own"),
    ("operating.md", "approve 1f0c22d7", "approve $(pending | head -n 1)", "the ids of calls are random"),
    ("operating.md", "deny 8a41d09e", "deny $(pending)", "the ids of calls are random"),
    ("operating.md", "colibri-mcp watch", "calls_during colibri-mcp watch", "somebody calls meanwhile"),
    ("operating.md", "/var/log/auth.log", "~/auth.log", "the system's log is root's"),
]

# Programs that a person ends: part of the command, what must have been printed, and the keys then.
KEYS = [
    ("colibri-mcp watch messages git", r"result tools/call .*\n.*\n", "\x03"),
    ("colibri-mcp glasspane --servers", r"SERVER", "q"),
    ("colibri-mcp glasspane --open", r"\n", "\x03"),
]

COMMANDS, SHELL_PROMPT = ("sh", "console"), re.compile(r"\x1e(\d+)\x1e")
CONSOLE_PROMPT = re.compile(r"^([a-z]+[0-9]*)?([$#]) (.*)$")
CONSENT = re.compile(r"\[y/N\]\s*$")
# Control sequences of terminals (ECMA-48), and those of one character.
CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_=>78]")
OUR_PROGRAMS = re.compile(r"(?:[$#] )?(?:colibri-|chibi-mcp|service |sysrc |systemctl |pkg )")


class GuideError(Exception):
    """A page, or what its commands did, is not as it must be."""


@dataclasses.dataclass
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: list
    system: str = "linux"
    user: str = ""
    need: str = ""
    fails: bool = False
    file: tuple = ()
    shown: str = ""

    @property
    def name(self):
        return f"{self.page}:{self.line}"

    @property
    def counts(self):
        return self.language in COMMANDS or bool(self.file)

    @property
    def runs_here(self):
        return self.counts and not self.shown and self.system == "linux" and not self.user

    def apply(self, clauses):
        """Reads the clauses of a comment."""
        for clause in clauses.split(";"):
            word, _, rest = clause.strip().partition(" ")
            match word:
                case "linux" | "freebsd":
                    self.system, self.user = word, rest
                case "needs" if rest:
                    self.need = rest
                case "file" if rest:
                    self.file = tuple(rest.split())
                case "fails" if not rest:
                    self.fails = True
                case "shown" if rest:
                    self.shown = rest
                case _:
                    raise GuideError(f"{self.name}: the comment before it is not understood: {clause}")

    def commands(self):
        """The commands of the block, each with its output, or None where the page shows none."""
        if self.language == "sh":
            return [(command, None) for command in split_commands(self.text, self.name)]
        found = []
        for line in self.text:
            prompt = CONSOLE_PROMPT.match(line)
            if found and found[-1][0].endswith("\\") and not found[-1][1]:
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            elif prompt:
                found.append((prompt[3], []))
            elif not found:
                raise GuideError(f"{self.name}: the first line is no command")
            else:
                found[-1][1].append(line)
        return found


def split_commands(lines, name):
    """Commands of a shell script, each whole: several lines where it goes on."""
    found, open_lines = [], []
    for line in lines:
        if not open_lines and (not line.strip() or line.startswith("#")):
            continue
        open_lines.append(line)
        if not line.endswith("\\"):
            check = subprocess.run(["sh", "-n"], input="\n".join(open_lines), text=True, capture_output=True)
            # dash warns of a here-document that has no end, and takes it.
            if check.returncode == 0 and not check.stderr and not open_heredoc(open_lines):
                found.append("\n".join(open_lines))
                open_lines = []
    if open_lines:
        raise GuideError(f"{name}: this is no whole command: {open_lines[0]}")
    return found


def open_heredoc(lines):
    """True if a here-document has begun in these lines and not ended."""
    begun = re.search(r"<<-?\s*['\"]?(\w+)", "\n".join(lines))
    return bool(begun) and lines[-1].strip() != begun[1]


def read_blocks(page, text):
    """The fenced blocks of a page."""
    blocks, block, fence, comment, whole_page, previous = [], None, "", "", "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if block is not None:
            if line.strip() == fence:
                blocks.append(block)
                block = None
            else:
                block.text.append(line)
        elif begun := re.match(r"^( *)(```+)(\w*)$", line):
            fence = begun[2]
            block = Block(page, number, begun[3], [])
            for clauses in (whole_page, comment):
                if clauses:
                    block.apply(clauses)
            comment = ""
        elif marked := re.match(r"^<!-- guide: (page )?(.*?) -->$", line):
            if marked[1]:
                whole_page = marked[2]
            else:
                comment = marked[2]
        elif comment and line.strip():
            raise GuideError(f"{page}:{number}: no block follows the comment before it")
        elif not previous and line.startswith("    ") and OUR_PROGRAMS.match(line.strip()):
            raise GuideError(f"{page}:{number}: a command that is indented, not fenced: {line.strip()}")
        previous = line.strip()
    for block in blocks:
        if not block.counts and block.text and OUR_PROGRAMS.match(block.text[0]) and not block.shown:
            raise GuideError(f"{block.name}: a command in a block that is neither `sh` nor `console`")
    return blocks


def check_json(block):
    """Reads a block of JSON: a value, or members of an object, unless something is left out of it."""
    text = "\n".join(block.text)
    if block.language != "json" or "…" in text:
        return
    for whole in (text, f"{{{text.rstrip().rstrip(',')}}}"):
        with contextlib.suppress(ValueError):
            json.loads(whole)
            return
    raise GuideError("this is no JSON")


def output_pattern(lines):
    """What a page shows as output, as a regular expression over lines that each end with a newline."""
    def one(line):
        return ".*".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ ]*\n"

    return re.compile("".join(r"(?:.*\n)*?" if line.strip() == "…" else one(line) for line in lines))


def printed_lines(output):
    """What stands on the screen after this output of a terminal."""
    text = CONTROL.sub("", output.replace("\r\n", "\n"))
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


class Terminal:
    """An interactive shell of a user, at a terminal of its own."""

    def __init__(self, env, directory):
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        settings = termios.tcgetattr(its)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(its, termios.TCSANOW, settings)
        self.ours = ours
        # The prompt has the exit status of the command before it, between characters that nothing else prints.
        identity = {} if os.geteuid() else {"user": USER.pw_uid, "group": USER.pw_gid, "extra_groups": []}
        env = {**env, "PS1": "\x1e$?\x1e", "PS2": ""}
        self.shell = subprocess.Popen(["sh", "-i"], stdin=its, stdout=its, stderr=its, env=env, cwd=directory,
                                      start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                      **identity)
        os.close(its)
        self.read_answer("the shell")

    def run(self, command):
        """Runs a command: its exit status, and the lines that it printed."""
        os.write(self.ours, command.encode() + b"\n")
        return self.read_answer(command)

    def read_answer(self, command):
        keys = next((keys for keys in KEYS if keys[0] in command), None)
        output, until = "", time.monotonic() + COMMAND_LIMIT_S
        while not (prompt := SHELL_PROMPT.search(output)):
            left = until - time.monotonic()
            if left < 0 or not select.select([self.ours], [], [], left)[0]:
                raise GuideError(f"did not end in {COMMAND_LIMIT_S} s:\n{output[-3000:]}")
            try:
                output += os.read(self.ours, 65536).decode(errors="replace")
            except OSError:
                raise GuideError(f"the shell ended:\n{output[-3000:]}") from None
            if CONSENT.search(output):
                output += "y\n"
                os.write(self.ours, b"y\n")
            if keys and re.search(keys[1], output):
                os.write(self.ours, keys[2].encode())
                keys = None
        return int(prompt[1]), printed_lines(output[:prompt.start()])

    def close(self):
        os.close(self.ours)
        self.shell.wait(END_LIMIT_S)


@functools.cache
def package_registries():
    """How this machine reaches npm and PyPI."""
    return registries()


class Place:
    """What a page has for its own: directories, a user, a shell. Its end ends all that runs in it."""

    def __init__(self, tools, verbose, patience_s):
        self.verbose, self.patience_s = verbose, patience_s
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=PLACE))
        # Short: the path of a socket has 104 bytes at most.
        home = self.path / "home"
        for directory in (home, self.path / "tmp"):
            directory.mkdir()
        self.env = {"HOME": str(home), "PATH": f"{tools}/bin:{os.environ['PATH']}", "STAGES": f"{tools}/stages",
                    "TERM": "dumb", "NO_COLOR": "1",
                    "LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": f"{home}/.config", "XDG_STATE_HOME": f"{home}/.local/state",
                    "XDG_DATA_HOME": f"{home}/.local/share", "XDG_CACHE_HOME": f"{home}/.cache",
                    "TMPDIR": str(self.path / "tmp"), "UV_PYTHON_DOWNLOADS": "never", **package_registries()}

    def __enter__(self):
        for path in [self.path, *self.path.iterdir()]:
            os.chown(path, USER.pw_uid, -1)
        self.terminal = Terminal(self.env, self.env["HOME"])
        return self

    def __exit__(self, kind, *_):
        self.terminal.close()
        # A private daemon stays for the next client, by design; what it has started ends with it. Of a page that failed
        # anything may still run.
        for pid, command in children().items():
            if kind or os.path.basename(command.split(" ")[0]) == "colibri-mcpd":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        left = leftovers(patience_s=self.patience_s)
        while leftovers(patience_s=0.2):
            pass
        shutil.rmtree(self.path)
        if kind is None and left:
            raise GuideError(f"still runs after the page: {[*left.values()]}")


def files_outside():
    """Files of the user in directories that all can write, and in the home directory of the user database. Other
    programs of a person who runs this leave files there, too: of theirs those that are named after Colibri."""
    directories = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm",
                   *(f"{USER.pw_dir}/{name}" for name in ("", ".config", ".local/state", ".local/share"))]
    found = set()
    for directory in filter(os.path.isdir, directories):
        for entry in os.scandir(directory):
            with contextlib.suppress(OSError):
                is_ours = not os.geteuid() or "colibri" in entry.name
                if is_ours and entry.stat(follow_symlinks=False).st_uid == USER.pw_uid:
                    found.add(entry.path)
    return {path for path in found if not os.path.basename(path).startswith(PLACE)}


class Tools:
    """What all places share: our programs and the stages, where every user can read them, and uv."""

    def __init__(self, programs):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="colibri-guides-"))
        self.path.chmod(0o755)
        (self.path / "bin").mkdir()
        for name in PROGRAMS + FIXTURES:
            if not (programs / name).exists():
                if name in FIXTURES:
                    continue
                sys.exit(f"{programs / name} is not there: build it, or name the directory with --programs")
            try:
                os.link(programs / name, self.path / "bin" / name)
            except OSError:
                shutil.copy2(programs / name, self.path / "bin" / name)
        shutil.copytree(HERE / "stages", self.path / "stages")
        for name in ("uv", "uvx"):
            shutil.copy2(uv_directory() / name, self.path / "bin" / name)
        # No browser of the developer's is opened.
        (self.path / "bin/xdg-open").symlink_to("/bin/true")

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path)


def uv_directory():
    """The directory of uv and uvx: what is on PATH, or one of PyPI that is kept for the next run."""
    if found := shutil.which("uvx"):
        return pathlib.Path(found).parent
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "colibri-guides" / UV
    if not (cache / "complete").exists():
        shutil.rmtree(cache, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", cache], check=True)
        subprocess.run([cache / "bin/pip", "install", "--quiet", "--disable-pip-version-check", UV], check=True)
        (cache / "complete").touch()
    return cache / "bin"


def run_block(block, place, substitutions):
    """Runs the commands of a block, or writes its file."""
    if block.file:
        path = block.file[0].replace("~", place.env["HOME"], 1)
        script = f"mkdir -p {shlex.quote(os.path.dirname(path))} && cat > {shlex.quote(path)} <<'END_OF_BLOCK'\n"
        status, lines = place.terminal.run(script + "\n".join([*block.text, "END_OF_BLOCK"]))
        if status:
            raise GuideError(f"{path} cannot be written: {lines}")
        return
    for command, expected in block.commands():
        real = command
        for written, replacement in substitutions:
            real = real.replace(written, replacement)
        begun = time.monotonic()
        try:
            status, lines = place.terminal.run(real)
        except GuideError as error:
            raise GuideError(f"`{command}` {error}") from None
        output = "".join(f"{line}\n" for line in lines)
        if place.verbose:
            print(f"{block.name}: {time.monotonic() - begun:.1f} s: $ {real}\n{output}", end="", flush=True)
        if bool(status) != block.fails:
            raise GuideError(f"`{command}`: exit status {status}\n{output}")
        if expected is not None and not output_pattern(expected).fullmatch(output):
            shown = "".join(f"{line}\n" for line in expected)
            raise GuideError(f"`{command}` prints (exit status {status})\n{output}--- but the page shows\n{shown}")


def run_stage(place, page, moment):
    """Runs the part of a page's stage that comes before it, or after it."""
    stage = f"{place.env['STAGES']}/{page}.sh"
    if os.path.exists(stage):
        status, lines = place.terminal.run(f'. "{stage}" && {moment}')
        if place.verbose:
            print(f"stages/{page}.sh, {moment}:", *lines, sep="\n")
        if status:
            raise GuideError(f"{moment} of stages/{page}.sh: exit status {status}\n" + "\n".join(lines))


def run_page(page, text, tools, verbose=False, patience_s=END_LIMIT_S):
    """Runs the blocks of a page in order. Returns the number of those that ran, and the faults."""
    blocks = read_blocks(page, text)
    faults = []
    for block in blocks:
        try:
            check_json(block)
        except GuideError as error:
            faults.append(f"{block.name}: {error}")
    ours = [block for block in blocks if block.runs_here]
    commands = "\n".join(command for block in ours if not block.file for command, _ in block.commands())
    substitutions = [(written, real) for of, written, real, _ in SUBSTITUTIONS if page.endswith(of)]
    faults += [f"{page}: no command has {written} any more" for written, _ in substitutions if written not in commands]
    passed = 0
    if ours:
        stem = pathlib.Path(page).stem
        try:
            with Place(tools, verbose, patience_s) as place:
                run_stage(place, stem, "before")
                for block in ours:
                    try:
                        run_block(block, place, substitutions)
                        passed += 1
                    except GuideError as error:
                        # What follows builds on it.
                        raise GuideError(f"{block.name}: {error}") from None
                run_stage(place, stem, "after")
        except GuideError as error:
            faults.append(str(error))
    return blocks, passed, faults


# The beginning of a script that --extract prints. Commands run at a terminal of script(1)'s, where questions are
# answered.
EXTRACT_HEAD = r"""#!/bin/sh
# The blocks of @PAGE@ for @SYSTEM@, in order, made by tests/guides/run.py --extract. Run it as root, in a
# directory that has what they read there. Output is TAP 13,
# the exit status 0 if nothing failed. GUIDE_HAS names what blocks need that is there; the others are skipped.
number=0 failed=0
work=$(mktemp -d) && chmod 755 "$work" || exit 1
trap 'rm -rf "$work"' EXIT
export ASSUME_ALWAYS_YES=yes EDITOR=true
at_terminal() {
	if [ "$(uname)" = Linux ]; then script -qec "sh $1" /dev/null; else script -q /dev/null sh "$1"; fi
}
# block NAME USER NEED: runs the commands on standard input.
block() {
	number=$((number + 1))
	cat >"$work/block"
	case " ${GUIDE_HAS:-} " in
	*" $3 "*) ;;
	*) [ -z "$3" ] || { echo "ok $number - $1 # SKIP needs $3" && return; } ;;
	esac
	if [ "$2" = root ]; then
		echo "sh $work/block" >"$work/start"
	else
		echo "exec su -l $2 -c 'sh $work/block'" >"$work/start"
	fi
	if printf 'y\ny\ny\ny\n' | at_terminal "$work/start" >"$work/output" 2>&1; then
		echo "ok $number - $1"
	else
		failed=$((failed + 1))
		echo "not ok $number - $1"
	fi
	tr -d '\r' <"$work/output" | sed 's/^/# /'
}
echo "TAP version 13"
"""


def extract(page, text, system):
    """The script for the blocks of a page that are for another system than a user's own, in order."""
    print(EXTRACT_HEAD.replace("@PAGE@", page).replace("@SYSTEM@", system), end="")
    number = 0
    for block in read_blocks(page, text):
        if not block.counts or block.shown or block.system != system or block.runs_here:
            continue
        if block.file:
            path, owner, mode = (*block.file, "root", "0644")[:3]
            lines = "\n".join([*block.text, "END_OF_FILE"])
            commands = [f"cat > {path} <<'END_OF_FILE'\n{lines}", f"chown {owner} {path}", f"chmod {mode} {path}"]
        else:
            commands = [command for command, _ in block.commands()]
        number += 1
        print(f"\nblock '{block.name}' {block.user or 'root'} '{block.need}' <<'END_OF_BLOCK'")
        for command in commands:
            print(f"{{ {command}\n}} || exit 1")
        print("END_OF_BLOCK")
    print(f'\necho "1..{number}"\n[ $failed -eq 0 ]')


# A page that passes, and changes of it that must each be noticed: what is replaced, by what, and what the fault says.
SAMPLE = """# Sample

```sh
echo first > file        # a comment
test "$(cat file)" = first
```

<!-- guide: freebsd root -->

```sh
pkg delete colibri-mcp
```

<!-- guide: shown it would never end -->

```sh
sleep 1000
```

<!-- guide: file ~/there/x.json -->

```json
{ "a": 1 }
```

```console
$ cat ~/there/x.json
{ "…": 1 }
$ printf 'one\\ntwo\\nthree\\n'
…
three
$ colibri-mcp --version
colibri-mcp …
```

<!-- guide: fails -->

```console
$ colibri-mcp no-such-command
error: unrecognized subcommand 'no-such-command'
…
```
"""
LEFT = "/var/tmp/colibri-left-by-a-sample"
MUTATIONS = [
    ("test \"$(cat", "tast \"$(cat", "exit status 127"),
    ("= first", "= second", "exit status 1"),
    ("colibri-mcp --version", "colibri-mcp --verison", "unexpected argument"),
    ("three\n$", "four\n$", "the page shows"),
    ('"…": 1', '"…": 2', "the page shows"),
    ('{ "a": 1 }', '{ "a" 1 }', "no JSON"),
    ("'no-such-command'", "'no-such-commnad'", "the page shows"),
    ("colibri-mcp no-such-command", "colibri-mcp --version", "exit status 0"),
    ("<!-- guide: shown it", "<!-- guide: shwon it", "is not understood"),
    ("```sh\nsleep", "sleep", "no block follows"),
    ("```sh\npkg", "```\npkg", "neither"),
    ("echo first", "(sleep 300 &) ; echo first", "still runs after the page"),
    ("echo first", f"touch {LEFT}; echo first", LEFT),
    ("# Sample", "# Sample\n\n    colibri-mcp status", "not fenced"),
]


def check_itself(tools):
    """Runs the sample, and each mutation of it. Returns what is to be printed, and a row of the table."""
    begun = time.monotonic()
    outside = files_outside()

    def run(text):
        found = run_page("SAMPLE.md", text, tools, patience_s=1)[2]
        return [*found, *(f"outside: {path}" for path in files_outside() - outside)]

    faults = run(SAMPLE)
    for old, new, fault in MUTATIONS:
        mutated = SAMPLE.replace(old, new, 1)
        try:
            found = run(mutated) if mutated != SAMPLE else []
        except GuideError as error:
            found = [str(error)]
        if not any(fault in one for one in found):
            faults.append(f"{new!r} in place of {old!r} is not noticed: {found}")
    pathlib.Path(LEFT).unlink(missing_ok=True)
    took = f"{time.monotonic() - begun:.1f}"
    row = ("mutations of a page", len(MUTATIONS) + 1 - len(faults), 0, 0, len(faults), took)
    return "".join(f"FAILED: {fault}\n" for fault in faults), row


def report(page, text, tools, verbose):
    """Runs a page. Returns what is to be printed of it, and its row of the table."""
    begun, output = time.monotonic(), io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            blocks, passed, faults = run_page(page, text, tools, verbose)
        except GuideError as error:
            blocks, passed, faults = [], 0, [str(error)]
        counted = [block for block in blocks if block.counts]
        shown = [block for block in counted if block.shown]
        elsewhere = [block for block in counted if not block.shown and not block.runs_here]
        for block in shown:
            print(f"shown: {block.name}: {block.shown}")
        for fault in faults:
            print(f"FAILED: {fault}")
    took = f"{time.monotonic() - begun:.1f}"
    return output.getvalue(), (page, passed, len(elsewhere), len(shown), len(faults), took)


def main():
    parser = argparse.ArgumentParser(usage="\n".join(__doc__.split("\n\n")[1].splitlines()).removeprefix("usage: "))
    parser.add_argument("--programs", type=pathlib.Path, default=TREE / "target/release")
    parser.add_argument("--extract", metavar="PAGE")
    parser.add_argument("--system", choices=["linux", "freebsd"])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("pages", nargs="*")
    options = parser.parse_args()

    def page_text(page):
        """The name of a page in the tree, and its text: a page of the guide may be named alone."""
        named = [one for one in (page, f"docs/guide/{page}", f"docs/{page}") if (TREE / one).is_file()]
        if not named:
            sys.exit(f"there is no page {page}")
        return named[0], (TREE / named[0]).read_text()

    if options.extract:
        if not options.system:
            parser.error("--extract needs --system")
        return extract(*page_text(options.extract), options.system)
    if options.list:
        for page in options.pages or PAGES:
            for block in read_blocks(*page_text(page)):
                where = block.shown and f"shown: {block.shown}" or f"{block.system} {block.user}"
                print(f"{block.name}: {block.language or 'text'}: {where if block.counts else 'no commands'}")
        return 0
    rows = []
    fork = multiprocessing.get_context("fork")
    with (Tools(options.programs.resolve()) as tools,
          concurrent.futures.ProcessPoolExecutor(WORKERS, fork, adopt_orphans) as pool):
        runs = [] if options.pages else [pool.submit(check_itself, tools)]
        # What it leaves on purpose is not the pages'.
        concurrent.futures.wait(runs)
        outside = files_outside()
        runs += [pool.submit(report, *page_text(page), tools, options.verbose) for page in options.pages or PAGES]
        for run in runs:
            text, row = run.result()
            print(text, end="", flush=True)
            rows.append(row)
        left = files_outside() - outside
        if left:
            print(f"FAILED: files outside of the places are left: {left}")
            rows.append(("files outside", 0, 0, 0, len(left), ""))
    for row in [("page", "run", "elsewhere", "shown", "failed", "seconds"), *rows]:
        print(f"{row[0]:28}" + "".join(f"{cell:>11}" for cell in row[1:]))
    passed, elsewhere, shown, failed = (sum(row[column] for row in rows) for column in range(1, 5))
    print(f"{passed} passed, {failed} failed, {elsewhere + shown} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
