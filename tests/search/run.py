#!/usr/bin/env python3
"""How often the tool that a person means is among the first that `colibri_find_tools` answers.

Starts a daemon with the public servers of servers.json, asks it for all tools, and for the tools of each task. Then the
same for parts of these tools, which servers of our own list as the public ones did. Prints the table that docs/search.md
has. Exit status 0: the goals are met, and nothing is left.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time

import install

HERE = install.HERE
sys.path.append(str(HERE.parent / "interop"))
import harness  # noqa: E402

# Longer than all servers take to start on a busy machine.
PATIENCE_S = 300
VERSION = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "search", "version": "1"}}
SIZES = 10, 50, 100, 200, 300
SEED = 12
# The first places that the table of all sizes shows.
PLACES = 5, 10
# With all tools, of the tasks that nobody tuned for: in whose words, among the first so many, in at least this part. A
# tool's own name as the query is asked for each tool.
UNTUNED = "held", "unseen"
GOALS = {("model", 1): 0.88, ("model", 5): 0.95, ("person", 5): 0.60}
OWN_NAME_FIRST = 0.95
# The most milliseconds for which the daemon computes, for ten words.
TEN_WORDS_MS = 2
# Bytes that a task of three tools is shown, as a part of those of listing all tools.
SHOWN = 0.05
AT_LEAST_SERVERS, AT_LEAST_TOOLS, AT_LEAST_TASKS = 15, 300, 150
# Where a server would call home, nobody answers.
NOWHERE = "http://127.0.0.1:9"


# The words of a task: a person's, and those that a model searches with for it.
WORDS = {"person": "task", "model": "query"}


class Connection:
    """A client of the daemon, in lines. A result comes with the bytes of its line."""

    def __init__(self, daemon):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(daemon.socket))
        self.stream = self.socket.makefile("rwb")
        self.number = 0
        # Which tool of which server, `server/tool`, has which name here: long names are cut.
        self.own = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.socket.close()

    def ask(self, method, **params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": {**params, "_meta": META}}
        self.stream.write(json.dumps(message).encode() + b"\n")
        self.stream.flush()
        while line := self.stream.readline():
            answer = json.loads(line)
            if answer.get("id") == self.number:
                if "result" not in answer or answer["result"].get("isError"):
                    raise RuntimeError(f"{method} {params}: {line.decode()[:2000]}")
                return answer["result"], len(line)
        raise RuntimeError(f"{method}: the daemon hung up")

    def call(self, name, /, **arguments):
        return self.ask("tools/call", name=name, arguments=arguments)

    def tools(self):
        """All tools, and the bytes of their list."""
        tools, size, more = [], 0, {}
        while True:
            result, bytes_ = self.ask("tools/list", **more)
            tools += result["tools"]
            size += bytes_
            if "nextCursor" not in result:
                return tools, size
            more = {"cursor": result["nextCursor"]}

    def find(self, words, **more):
        """What is found for these words, as `server/tool` in order, and the bytes of the answer."""
        result, size = self.call("colibri_find_tools", query=words, **more)
        return [self.own.get(one["name"], one["name"]) for one in result["structuredContent"]["tools"]], size

    def schema(self, tool):
        """The bytes of the answer that has the definition of `server/tool`."""
        (name,) = (name for name, own in self.own.items() if own == tool)
        return self.call("colibri_tool_schema", tool=name)[1]

    def settle(self, servers):
        """Waits until the tools of all servers are listed and can be found; these tools by `server/tool`, and the bytes of
        their list. The first list starts servers and does not wait for the slow ones."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            listed, size = self.tools()
            for server in set(servers) - {own.partition("/")[0] for own in self.own.values()}:
                result, _ = self.call("colibri_external_mcp_list_tools", server=server)
                for tool in result["structuredContent"]["tools"]:
                    self.own[tool["name"]] = f"{server}/{tool['tool']}"
            late = set(self.own) - {tool["name"] for tool in listed}
            late |= set(servers) - {own.partition("/")[0] for own in self.own.values()}
            late |= {server for server in set(servers) - late if not self.find(server, server=server, limit=1)[0]}
            if not late:
                named = {self.own[tool["name"]]: tool for tool in listed if tool["name"] in self.own}
                return {own: {**tool, "name": own.partition("/")[2]} for own, tool in named.items()}, size
            if time.monotonic() > deadline:
                sys.exit(f"not there: {sorted(late)}; the daemon's log is under target/search")
            time.sleep(0.2)


def tasks(*halves):
    """The tasks of these files, each with its file's name."""
    read = []
    for half in halves:
        for line in (HERE / "tasks" / f"{half}.jsonl").read_text().splitlines():
            read.append({**json.loads(line), "half": half})
    return read


def public(where, home):
    """The entries of the public servers."""
    entries = {}
    for name, server in json.loads((HERE / "servers.json").read_text())["servers"].items():
        program = install.program(where, name, server)
        words = [program] if "pypi" in server else [shutil.which("node"), program.resolve()]
        words += [word.format(home=home) for word in server.get("args", [])]
        entries[name] = {
            "command": str(words[0]), "args": [str(word) for word in words[1:]], "cwd": str(home),
            "env": {"HOME": str(home), "DO_NOT_TRACK": "1", "HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE},
            "start_timeout_ms": PATIENCE_S * 1000}
    return entries


def groups(wanted, tools, size, dice):
    """Tasks in groups, each with `size` tools: those that its tasks accept, which are half of them where one task does not
    accept more, and any others."""
    made = []
    for task in dice.sample(wanted, len(wanted)):
        accepted = set(task["tools"])
        for group_tasks, union in made:
            if len(union | accepted) <= size // 2:
                group_tasks.append(task)
                union |= accepted
                break
        else:
            made.append(([task], accepted))
    for group_tasks, union in made:
        others = sorted(set(tools) - union)
        yield group_tasks, sorted(union) + dice.sample(others, max(0, size - len(union)))


def replayed(directory, tools, names):
    """Entries of servers that list these of the tools as the public ones did."""
    by_server = {}
    for name in names:
        by_server.setdefault(name.split("/", 1)[0], []).append(tools[name])
    entries = {}
    for server, its in by_server.items():
        path = directory / f"{server}.json"
        path.write_text(json.dumps(its))
        entries[server] = {"command": sys.executable, "args": [str(HERE / "replay.py"), str(path)]}
    return entries


def ranks(connection, wanted, whose="person"):
    """For each task the rank, from 1, of the first tool found that it accepts; None: not among the first ten."""
    ranked = []
    for task in wanted:
        found, _ = connection.find(task[WORDS[whose]], limit=max(PLACES))
        ranked.append((task, next((rank for rank, one in enumerate(found, 1) if one in task["tools"]), None), found))
    return ranked


def shown(connection, wanted, dice):
    """The mean bytes shown to a model for a task of three tools: it searches for each and reads one definition each."""
    sums = []
    for three in zip(*[iter(dice.sample(wanted, len(wanted)))] * 3):
        sums.append(sum(connection.find(task["task"])[1] + connection.schema(task["tools"][0]) for task in three))
    return sum(sums) / len(sums)


def recall(ranked, first, *halves):
    """The part of the tasks (of some halves) of which a tool is among the first so many."""
    hits = [rank is not None and rank <= first for task, rank, _ in ranked if not halves or task["half"] in halves]
    return sum(hits) / len(hits)


def names_first(connection, tools):
    """The part of the tools that their own name, as the query, puts first."""
    return sum(connection.find(own.partition("/")[2], limit=1)[0] == [own] for own in tools) / len(tools)


def computed_s(process):
    """The seconds for which a process has computed."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def ten_words(daemon, connection, wanted):
    """The milliseconds that a search for ten words takes, the middle of a hundred; and those that the daemon computes
    for one, which other programs of a busy machine do not change."""
    words = [word for task in wanted for word in task["task"].split()]
    took, before = [], computed_s(daemon.process)
    for start in range(0, 1000, 10):
        began = time.perf_counter()
        connection.find(" ".join(words[start:start + 10]))
        took.append(time.perf_counter() - began)
    computed = (computed_s(daemon.process) - before) / len(took)
    return sorted(took)[len(took) // 2] * 1000, computed * 1000


def row(name, ranked, bytes_shown, bytes_all):
    cells = [f"{recall(ranked, first, *half):.2f}" for first in PLACES for half in ((), ("dev",), ("held",))]
    return [str(name), *cells, f"{bytes_shown:,.0f}", f"{bytes_all:,.0f}", f"{bytes_shown / bytes_all:.1%}"]


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--all-tools-only", action="store_true", help="without the parts")
    arguments.add_argument("--misses", choices=("dev", "held"), help="print what was found for the tasks of a half that "
                           "have no tool among the first five")
    wanted = arguments.parse_args()
    every, unseen = tasks("dev", "held"), tasks("unseen")
    work = harness.work_directory("search")
    harness.adopt_orphans()
    home = work / "home"
    home.mkdir()
    subprocess.run([HERE / "install.py"], check=True, stdout=subprocess.DEVNULL)

    entries = public(install.directory(), home)
    with harness.Daemon(work, entries) as daemon, Connection(daemon) as connection:
        tools, bytes_all = connection.settle(entries)
        digest = hashlib.sha256(json.dumps(tools, sort_keys=True).encode()).hexdigest()[:16]
        print(f"{len(tools)} tools of {len(entries)} servers (definitions {digest}), {len(every)} tasks; commit {commit()}",
              flush=True)
        if unknown := {one for task in every + unseen for one in task["tools"]} - set(tools):
            sys.exit(f"tasks accept tools that no server lists: {sorted(unknown)}")
        if len(entries) < AT_LEAST_SERVERS or len(tools) < AT_LEAST_TOOLS or len(every) < AT_LEAST_TASKS:
            sys.exit("too few servers, tools or tasks")
        by_words = {whose: ranks(connection, every + unseen, whose) for whose in WORDS}
        ranked = [one for one in by_words["person"] if one[0]["half"] != "unseen"]
        own_names, (took_ms, computed_ms) = names_first(connection, tools), ten_words(daemon, connection, every)
        bytes_shown = shown(connection, every, random.Random(SEED))
    (work / "found.json").write_text(json.dumps([{**task, "rank": rank, "found": found} for task, rank, found in ranked],
                                                indent=1, ensure_ascii=False))
    rows, part = [], bytes_shown / bytes_all
    for size in () if wanted.all_tools_only else SIZES:
        dice = random.Random(SEED)
        of_size, listing, showing = [], [], []
        for number, (group_tasks, names) in enumerate(groups(every, tools, size, dice)):
            directory = work / f"{size}-{number}"
            directory.mkdir()
            entries = replayed(directory, tools, names)
            with harness.Daemon(directory, entries) as daemon, Connection(daemon) as connection:
                there, listed = connection.settle(entries)
                if set(there) != set(names):
                    sys.exit(f"{directory}: not these tools: {sorted(set(there) ^ set(names))}")
                of_size += ranks(connection, group_tasks)
                listing.append(listed)
                if len(group_tasks) >= 3:
                    showing.append(shown(connection, group_tasks, dice))
        rows.append(row(size, of_size, sum(showing) / len(showing), sum(listing) / len(listing)))
        part = sum(showing) / len(showing) / (sum(listing) / len(listing))
        print(f"{size} tools: {number + 1} parts", flush=True)
    rows.append(row(f"all {len(tools)}", ranked, bytes_shown, bytes_all))

    heads = ["tools", *(f"{what}, {half}" for what in ("first 5", "first 10") for half in ("all", "dev", "held")),
             "bytes shown", "bytes of all", "part"]
    table = [heads, ["---:"] * len(heads), *rows, [], ["all tools, words of", "first", "in five", "in ten"], ["---"] * 4]
    for whose, found in by_words.items():
        for halves in (("dev",), ("held",), ("unseen",), UNTUNED):
            table.append([f"a {whose}, {' and '.join(halves)}", *(f"{recall(found, first, *halves):.2f}" for first in (1, *PLACES))])
    table.append(["a tool's own name", f"{own_names:.2f}", "", ""])
    table = "\n".join(f"| {' | '.join(cells)} |" if cells else "" for cells in table)
    (work / "table.md").write_text(table + "\n")
    print(table)
    print(f"ten words take {took_ms:.2f} ms, of which the daemon computes {computed_ms:.2f} ms")
    for task, rank, found in ranked:
        if task["half"] == wanted.misses and (rank is None or rank > 5):
            print(f"{task['task']}\n    wanted {' '.join(task['tools'])}\n    found  {' '.join(found)}")
    got = {(f"a {whose}'s words, first {first}"): (recall(by_words[whose], first, *UNTUNED), goal)
           for (whose, first), goal in GOALS.items()}
    got["own name first"] = own_names, OWN_NAME_FIRST
    wrong = [f"{what}: {part_met:.3f}, wanted {goal}" for what, (part_met, goal) in got.items() if part_met < goal]
    wrong += [f"ten words take {computed_ms:.2f} ms of the daemon, wanted {TEN_WORDS_MS}"] if computed_ms > TEN_WORDS_MS else []
    wrong += [f"shown are {part:.2%} of all bytes, wanted {SHOWN:.0%}"] if part > SHOWN else []
    left = harness.leftovers()
    wrong += [f"left: {left}"] if left else []
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    print(f"search: {len(got) + 2 - len(wrong)} of {len(got) + 2} goals met" if not left else "search: something is left")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
