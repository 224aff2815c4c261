#!/usr/bin/env python3
"""Twelve tasks of many steps over the reference servers, as calls and as scripts: the bytes that pass through a model.

Both ways must come to the same end. What passes through a model is the arguments that it writes and the results that it
reads. Prints the table; exit status 0: at least 80 % fewer bytes in all.

usage: run.py [DIRECTORY OF THE BUILT PROGRAMS]
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
GOAL = 0.80


class Client:
    """A client in lines that counts the bytes a model would write and read."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(120)
        self.stream.connect(str(path))
        self.file, self.id, self.bytes, self.calls = self.stream.makefile("rwb"), 0, 0, 0

    def ask(self, name, arguments):
        self.id += 1
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "scripts", "version": "1"}}
        params = {"name": name, "arguments": arguments, "_meta": meta}
        request = {"jsonrpc": "2.0", "id": self.id, "method": "tools/call", "params": params}
        self.file.write(json.dumps(request).encode() + b"\n")
        self.file.flush()
        while True:
            message = json.loads(self.file.readline())
            if message.get("id") == self.id:
                break
        result = message["result"]
        assert not result.get("isError"), result
        self.calls += 1
        self.bytes += len(json.dumps(arguments)) + len(json.dumps(result["content"]))
        return "\n".join(block.get("text", "") for block in result["content"])

    def tool(self, server, tool, **arguments):
        return self.ask(f"{server}__{tool}", arguments)

    def fs(self, tool, **arguments):
        return self.tool("fs", tool, **arguments)


def names(listing, kind="[FILE] "):
    return [line[len(kind):] for line in listing.splitlines() if line.startswith(kind)]


# What each script begins with: the same few words that a model would write.
FS = """const dir = (path) => tools.fs.list_directory({ path }).then((r) => (r.content ?? r).split("\\n"));
const files = async (path) => (await dir(path)).filter((l) => l.startsWith("[FILE] ")).map((l) => l.slice(7));
const read = (path) => tools.fs.read_text_file({ path }).then((r) => r.content ?? r);
"""


def errors(c, d):
    return sum(c.fs("read_text_file", path=f"{d}/logs/{n}").count("ERROR") for n in names(c.fs("list_directory", path=f"{d}/logs")))


def largest(c, d):
    sizes = {}
    for n in names(c.fs("list_directory", path=f"{d}/logs")):
        info = c.fs("get_file_info", path=f"{d}/logs/{n}")
        sizes[n] = int(next(line for line in info.splitlines() if line.startswith("size:")).split()[1])
    return max(sizes, key=sizes.get)


def rename_word(c, d):
    for n in names(c.fs("list_directory", path=f"{d}/notes")):
        c.fs("edit_file", path=f"{d}/notes/{n}", edits=[{"oldText": "draft", "newText": "final"}])
    return "final"


def index(c, d):
    firsts = [c.fs("read_text_file", path=f"{d}/notes/{n}").splitlines()[0] for n in names(c.fs("list_directory", path=f"{d}/notes"))]
    c.fs("write_file", path=f"{d}/index.md", content="\n".join(firsts))
    return len(firsts)


def differing(c, d):
    left, right = (set(names(c.fs("list_directory", path=f"{d}/{side}"))) for side in ("logs", "old"))
    return sorted(n for n in left & right
                  if c.fs("read_text_file", path=f"{d}/logs/{n}") != c.fs("read_text_file", path=f"{d}/old/{n}"))


def total(c, d):
    rows = (row for n in names(c.fs("list_directory", path=f"{d}/sales"))
            for row in c.fs("read_text_file", path=f"{d}/sales/{n}").splitlines()[1:])
    return sum(int(row.split(",")[2]) for row in rows)


def best_day(c, d):
    days = {}
    for n in names(c.fs("list_directory", path=f"{d}/sales")):
        for row in c.fs("read_text_file", path=f"{d}/sales/{n}").splitlines()[1:]:
            day, _, amount = row.split(",")
            days[day] = days.get(day, 0) + int(amount)
    return max(sorted(days), key=days.get)


def duplicates(c, d):
    seen, found = {}, []
    for side in ("logs", "old"):
        for n in names(c.fs("list_directory", path=f"{d}/{side}")):
            text = c.fs("read_text_file", path=f"{d}/{side}/{n}")
            if text in seen:
                found.append(f"{side}/{n}")
            seen[text] = n
    return len(found)


def remember(c, d):
    made = 0
    for n in names(c.fs("list_directory", path=f"{d}/notes")):
        lines = c.fs("read_text_file", path=f"{d}/notes/{n}").splitlines()
        entity = {"name": lines[0], "entityType": "note", "observations": lines[1:3]}
        c.tool("memory", "create_entities", entities=[entity])
        made += 1
    return made


def relate(c, _):
    graph = json.loads(c.tool("memory", "read_graph"))
    notes = [e["name"] for e in graph["entities"]]
    for a, b in zip(notes, notes[1:]):
        c.tool("memory", "create_relations", relations=[{"from": a, "to": b, "relationType": "before"}])
    return len(notes) - 1


def observed(c, _):
    graph = json.loads(c.tool("memory", "read_graph"))
    return sum(len(json.loads(c.tool("memory", "open_nodes", names=[e["name"]]))["entities"][0]["observations"])
               for e in graph["entities"])


def sums(c, _):
    return sum(int(c.tool("all", "get-sum", a=n, b=n * n).split(" is ")[1].rstrip(".")) for n in range(1, 26))


MEMORY = "const graph = () => tools.memory.read_graph().then((g) => typeof g === 'string' ? JSON.parse(g) : g);\n"

# The name, the steps as calls, and the script; D is the directory.
TASKS = [
    ("lines with ERROR in 20 logs", errors, FS + """const all = await Promise.all((await files("D/logs")).map((n) => read("D/logs/" + n)));
return all.reduce((sum, text) => sum + text.split("ERROR").length - 1, 0);"""),
    ("the largest of 20 logs", largest, FS + """let best = ["", -1];
for (const n of await files("D/logs")) {
  const info = await tools.fs.get_file_info({ path: "D/logs/" + n });
  const size = Number(/size: (\\d+)/.exec(info.content ?? info)[1]);
  if (size > best[1]) best = [n, size];
}
return best[0];"""),
    ("a word in 12 notes replaced", rename_word, FS + """for (const n of await files("D/notes"))
  await tools.fs.edit_file({ path: "D/notes/" + n, edits: [{ oldText: "final", newText: "last" }] });
return "final";"""),
    ("an index of 12 notes", index, FS + """const firsts = [];
for (const n of await files("D/notes")) firsts.push((await read("D/notes/" + n)).split("\\n")[0]);
await tools.fs.write_file({ path: "D/index.md", content: firsts.join("\\n") });
return firsts.length;"""),
    ("logs that differ from their old ones", differing, FS + """const old = await files("D/old"), found = [];
for (const n of await files("D/logs"))
  if (old.includes(n) && (await read("D/logs/" + n)) !== (await read("D/old/" + n))) found.push(n);
return found.sort();"""),
    ("the sum of a column of 10 tables", total, FS + """let sum = 0;
for (const n of await files("D/sales"))
  for (const row of (await read("D/sales/" + n)).trim().split("\\n").slice(1)) sum += Number(row.split(",")[2]);
return sum;"""),
    ("the best day of 10 tables", best_day, FS + """const days = {};
for (const n of await files("D/sales"))
  for (const row of (await read("D/sales/" + n)).trim().split("\\n").slice(1)) {
    const [day, , amount] = row.split(",");
    days[day] = (days[day] ?? 0) + Number(amount);
  }
return Object.keys(days).sort().reduce((a, b) => (days[b] > days[a] ? b : a));"""),
    ("files that are there twice", duplicates, FS + """const seen = new Set();
let found = 0;
for (const side of ["logs", "old"])
  for (const n of await files("D/" + side)) {
    const text = await read("D/" + side + "/" + n);
    if (seen.has(text)) found++;
    seen.add(text);
  }
return found;"""),
    ("12 notes remembered", remember, FS + """const entities = [];
for (const n of await files("D/notes")) {
  const lines = (await read("D/notes/" + n)).split("\\n");
  entities.push({ name: lines[0], entityType: "note", observations: lines.slice(1, 3) });
}
await tools.memory.create_entities({ entities });
return entities.length;"""),
    ("what is remembered put in order", relate, MEMORY + """const notes = (await graph()).entities.map((e) => e.name);
await tools.memory.create_relations({ relations: notes.slice(1).map((to, i) => ({ from: notes[i], to, relationType: "before" })) });
return notes.length - 1;"""),
    ("what was observed counted", observed, MEMORY + """return (await graph()).entities.reduce((sum, e) => sum + e.observations.length, 0);"""),
    ("25 sums added up", sums, """const all = await Promise.all(Array.from({ length: 25 }, (_, i) => tools.all["get-sum"]({ a: i + 1, b: (i + 1) ** 2 })));
return all.reduce((sum, text) => sum + Number(/ is (\\d+)/.exec(text)[1]), 0);"""),
]


def fill(d):
    for name in ("logs", "old", "notes", "sales"):
        (d / name).mkdir(parents=True)
    for n in range(20):
        lines = [f"2026-11-28T10:{m:02}:00 {'ERROR' if (m * n) % 7 == 3 else 'INFO'} request {m * n} of client {n}" for m in range(30 + n)]
        (d / f"logs/{n:02}.log").write_text("\n".join(lines))
        (d / f"old/{n:02}.log").write_text("\n".join(lines if n % 5 else lines[:-1]))
    for n in range(12):
        text = f"Note {n}\nWritten on day {n}\nAbout subject {n}\n" + f"This is a draft about {n}, and goes on. " + "More words follow here. " * 40
        (d / f"notes/{n:02}.md").write_text(text)
    for n in range(10):
        rows = ["day,shop,amount"] + [f"2026-11-{day:02},shop {n},{day * 13 % 29 + n}" for day in range(1, 29)]
        (d / f"sales/{n:02}.csv").write_text("\n".join(rows))


def main():
    programs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else TREE / "target/release").resolve()
    installed = subprocess.run([TREE / "tests/interop/install.sh"], check=True, capture_output=True, text=True).stdout.split()[-1]
    modules = pathlib.Path(installed) / "node_modules/@modelcontextprotocol"
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place).resolve()
        data = place / "data"
        fill(data)
        server = lambda name, *more: {"command": "/usr/bin/env", "args": ["node", str(modules / f"server-{name}/dist/index.js"), *more]}  # noqa: E731
        memory = server("memory")
        memory["env"] = {"MEMORY_FILE_PATH": str(place / "memory.json")}
        registry = {"servers": {"fs": server("filesystem", str(data)), "memory": memory, "all": server("everything")}}
        (place / "registry.json").write_text(json.dumps(registry))
        daemon = subprocess.Popen([programs / "colibri-mcpd", "--socket", place / "s", "--external-config", place / "registry.json",
                                   "--state-dir", place / "state", "--external-call", "--allow-root", "--log-level", "error"],
                                  env={**os.environ, "HOME": str(place)}, stderr=subprocess.DEVNULL)
        try:
            while not (place / "s").exists() and daemon.poll() is None:
                time.sleep(0.05)
            return compare(place / "s", str(data))
        finally:
            daemon.terminate()
            daemon.wait()


def compare(path, data):
    Client(path).ask("colibri_external_mcp_list_tools", {})
    whole = [0, 0]
    print("| task | calls | bytes as calls | as a script | fewer |\n|---|---:|---:|---:|---:|")
    for name, steps, script in TASKS:
        calls, one = Client(path), Client(path)
        told = steps(calls, data)
        said = one.ask("colibri_run_script", {"script": script.replace("D/", data + "/")})
        end = told if isinstance(told, str) else json.dumps(told, separators=(",", ":"))
        assert said == end, (name, told, said)
        whole = [whole[0] + calls.bytes, whole[1] + one.bytes]
        print(f"| {name} | {calls.calls} | {calls.bytes:,} | {one.bytes:,} | {1 - one.bytes / calls.bytes:.0%} |")
    fewer = 1 - whole[1] / whole[0]
    print(f"| all | | {whole[0]:,} | {whole[1]:,} | {fewer:.0%} |")
    return 0 if fewer >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
