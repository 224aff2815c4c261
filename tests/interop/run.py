#!/usr/bin/env python3
"""The era matrix: real clients of all ages and real servers of all ages, each pair directly and through Colibri.

Per pair and feature something works, or is refused with a reason: nothing may be lost and nothing may hang, and what
works directly works through Colibri. Starts private daemons that host the servers of plan.py, lets each client make the
same steps, and writes the matrix to target/interop/matrix.md. Exit status 0: so it is, and nothing is left.

What comes of each pair directly depends on other people's programs alone, whose versions are fixed: direct.tsv has what
does not work. With --direct it is tried again; if it differs, direct.tsv is written anew and the exit status is 1.
"""

import argparse
import concurrent.futures
import contextlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading

import harness
import judge
import plan

sys.path.append(str(harness.REPOSITORY / "tests/agents"))
import retries

CLIENT_PATIENCE_S = 400
# Clients wait more than they compute.
AT_ONCE = 4
# Daemons with the same servers, each for a share of the clients.
SHARES = 3
DIRECT = harness.HERE / "direct.tsv"
# The Inspector's command line as clients: its era and the version that it speaks then.
INSPECTORS = {"Inspector CLI 2.12.0, legacy": ("legacy", "2025-11-25"), "Inspector CLI 2.12.0, modern": ("modern", "2026-07-28")}
# What is known to be worse through Colibri: a pattern over `client | server | feature`, and why it is as it should be.
EXPECTED = []


@contextlib.contextmanager
def web_page():
    """The URL of a page on this machine, for the server that fetches."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b"A page to fetch.\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def run_client(work, slug, command, what):
    """Runs a client program over a plan and returns its report, or says why there is none."""
    slug = re.sub(r"\W+", "-", slug)
    path = work / f"{slug}.plan.json"
    path.write_text(json.dumps(what))
    try:
        done = subprocess.run([*command, path], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, timeout=CLIENT_PATIENCE_S)
    except subprocess.TimeoutExpired as late:
        return {"failed": f"no report within {CLIENT_PATIENCE_S} s; stderr: {(late.stderr or b'').decode()[-2000:]}"}
    (work / f"{slug}.stderr").write_bytes(done.stderr)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {"failed": f"exit status {done.returncode}, no report; stderr: {done.stderr.decode()[-2000:]}"}
    (work / f"{slug}.report.json").write_text(json.dumps(report, indent=1))
    return report


class Run:
    def __init__(self, install, work, page, wanted):
        self.install, self.work, self.page = install, work, page

        def chosen(what, table):
            return {name: entry for name, entry in table.items() if re.search(getattr(wanted, what), name)}

        self.servers = chosen("servers", plan.servers(install, work))
        self.clients = chosen("clients", plan.clients(install))
        self.inspectors = chosen("clients", INSPECTORS)
        self.matrix, self.reference = judge.Matrix(), {}

    def steps(self, number, servers, leg, kind=""):
        steps = []
        for server in servers:
            client = f"client{number}{leg[0]}"
            names = {"client": client, "held": str(self.work / f"held-{client}-{server}"), "page": self.page}
            steps += plan.steps_for(server, self.servers[server].steps, names, leg == "through", kind)
        return steps

    def direct(self, number, client, server):
        """A client's report on a server that it starts itself."""
        _, command, more = client
        what = self.servers[server]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.work)} | what.env
        if "MEMORY_FILE_PATH" in env:
            env["MEMORY_FILE_PATH"] += f".{number}"
        steps = self.steps(number, [server], "direct", more.get("client", ""))
        return run_client(self.work, f"direct {number} {server}", command,
                          {**more, "command": what.command[0], "args": what.command[1:], "env": env, "steps": steps})

    def take_references(self, pool):
        """What the steps bring where they certainly work: the newest TypeScript client in the server's own era, or the
        client that they are for."""
        clients = plan.clients(self.install)
        special = [client for client in clients.values() if "client" in client[2]]
        runs = [
            (server, pool.submit(self.direct, number, client, server))
            for server, what in self.servers.items()
            for number, client in enumerate((clients[f"TypeScript client 2.4.0, {what.era}"], *special), 90)
            if self.steps(number, [server], "direct", client[2].get("client", ""))
        ]
        for server, run in runs:
            report = run.result()
            wrong = report.get("failed") or {k: v for k, v in report["steps"].items() if "failed" in v}
            if wrong:
                sys.exit(f"{server} does not work directly: {wrong}")
            self.reference.setdefault(server, {}).update(report["steps"])

    def judge(self, name, leg, servers, steps, report):
        version = self.clients[name][0]
        for step in steps:
            server = step["server"]
            if server not in servers:
                continue
            row = (name, version, server)
            if "failed" in report:
                # Directly: no version in common, as a rule. Through the daemon that may not be.
                verdict = ("absent" if leg == "direct" else "lost", judge.reason(report["failed"]))
            elif report["protocol"] != version and leg == "through":
                verdict = ("lost", f"agreed on {report['protocol']}")
            else:
                through = self.exposed(server, step) if leg == "through" else str
                verdict = judge.judge(version, step, report["steps"].get(step["key"]), self.reference[server].get(step["key"]), through)
            self.matrix.note(row, leg, step["feature"], *verdict)

    @staticmethod
    def exposed(server, step):
        if step.get("kind") in ("resources", "resourceTemplates"):
            return lambda uri: plan.exposed_uri(server, uri)
        return lambda name: f"{server}__{name}"

    def all_direct(self, pool):
        runs = {}
        for number, name in enumerate(self.clients):
            for server in self.servers:
                if steps := self.steps(number, [server], "direct", self.clients[name][2].get("client", "")):
                    runs[name, server] = steps, pool.submit(self.direct, number, self.clients[name], server)
        for (name, server), (steps, run) in runs.items():
            self.judge(name, "direct", [server], steps, run.result())

    def start(self, stack, name, servers):
        """A daemon that hosts these servers, and what belongs to it alone: a directory, and those that listen."""
        directory = self.work / f"daemon-{name}"
        directory.mkdir()
        entries = {}
        for server in servers:
            what = self.servers[server]
            if what.web:
                stack.enter_context(what.web.served(directory))
            entries[server] = what.entry()
            if "MEMORY_FILE_PATH" in what.env:
                entries[server]["env"] = what.env | {"MEMORY_FILE_PATH": str(directory / "memory.json")}
        return stack.enter_context(harness.Daemon(directory, entries))

    def read_direct(self):
        """Notes what comes of each pair without Colibri, as it was tried last: everything works that is not named."""
        found = {}
        for line in DIRECT.read_text().splitlines():
            client, version, server, feature, verdict = line.split("\t")
            found[(client, version, server), feature] = verdict
        for row, features in self.matrix.rows.items():
            for feature in features:
                self.matrix.note(row, "direct", feature, found.get((row, feature), "works"), None)

    def compare_direct(self):
        """Writes what does not work without Colibri. Returns the lines that were otherwise."""
        before = set(DIRECT.read_text().splitlines())
        now = ["\t".join((*row, feature, direct[0])) for row, feature, direct, _ in self.matrix.cells() if direct[0] != "works"]
        if before != set(now):
            DIRECT.write_text("".join(f"{line}\n" for line in sorted(now)))
        return sorted(before ^ set(now))

    def all_through(self, daemon, servers, names):
        """These clients' reports, one after the other: what a legacy server says unasked, it says to all of a user's
        clients that it works for."""
        bridge = daemon.bridge()
        reports = []
        for number, name in names:
            _, command, more = self.clients[name]
            steps = self.steps(number, servers, "through", more.get("client", ""))
            if steps:
                what = {**more, "command": bridge[0], "args": bridge[1:], "steps": steps}
                reports.append((name, steps, run_client(self.work, f"through {servers[0]} {name}", command, what)))
        return reports

    def judge_through(self, servers, reports):
        for name, steps, report in reports:
            if report.get("errors"):
                self.matrix.note((name, self.clients[name][0], servers[0]), "through", "list", "lost",
                                 f"the SDK complained: {report['errors'][:5]}")
            self.judge(name, "through", servers, steps, report)

    def settle(self, daemon, servers):
        """Waits, as a client that was told of changes would, until every server is in the list. The first list
        starts servers never seen before and does not wait for the slow ones."""
        names = []
        for server in servers:
            for step in self.steps(0, [server], "through"):
                if step.get("kind") == "tools" and step["do"] == "list":
                    # One of each: what else a server has, comes with it.
                    names.append(f"{server}__{self.reference[server][step['key']]['entries'][0]['name']}")
        bridge = daemon.bridge()
        what = {"package": "@modelcontextprotocol/sdk", "command": bridge[0], "args": bridge[1:],
                "steps": [{"do": "settle", "key": "settle", "expect": names}]}
        report = run_client(self.work, f"settle {daemon.socket}", [str(self.install.node), "sdk1.mjs"], what)
        lists = report.get("steps", {}).get("settle", report)
        if "lists" not in lists:
            sys.exit(f"the list of tools did not become complete: {lists}")
        print(f"first lists: {lists['lists']} tools", flush=True)

    def inspect(self, pool, daemon, servers, legs):
        """What to note of the Inspector's command line: one process a request."""
        launcher = self.install.modules / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        bridge = daemon.bridge()
        entries = {server: {"command": self.servers[server].command[0], "args": self.servers[server].command[1:],
                            "env": self.servers[server].env} for server in servers}
        entries["colibri"] = {"command": bridge[0], "args": bridge[1:]}
        config = self.work / "inspector.json"
        config.write_text(json.dumps({"mcpServers": entries}))
        home = self.work / "home"
        home.mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": str(home)}

        def ask(era, server, step):
            arguments = {
                "list": lambda: [f"{step['kind'] if step['kind'] != 'resourceTemplates' else 'resources/templates'}/list"],
                "call": lambda: ["tools/call", "--tool-name", step["name"], "--tool-args-json", json.dumps(step["arguments"])],
                "read": lambda: ["resources/read", "--uri", step["uri"]],
                "prompt": lambda: ["prompts/get", "--prompt-name", step["name"],
                                   *(["--prompt-args", *(f"{k}={v}" for k, v in step["arguments"].items())] if step["arguments"] else [])],
            }[step["do"]]()
            command = [self.install.node, launcher, "--cli", "--config", config, "--server", server,
                       "--protocol-era", era, "--format", "json", "--quiet", "--method", *arguments]
            done = subprocess.run(command, env=env, cwd=self.work, capture_output=True, text=True, timeout=90)
            if done.returncode != 0:
                text = f"{done.stderr[-600:]}{done.stdout[-200:]}"
                return {"failed": text, "code": done.returncode if "error" in text.lower() else None}
            answer = json.loads(done.stdout)
            result = answer.get("result", answer)
            if step["do"] == "list":
                return {"entries": result[step["kind"]], "asked": []}
            return {{"call": "result", "read": "read", "prompt": "prompt"}[step["do"]]: result, "asked": []}

        runs = []
        for number, (name, (era, version)) in enumerate(self.inspectors.items(), 80):
            for server in servers:
                for leg in legs:
                    if leg == "direct" and era != self.servers[server].era:
                        continue
                    steps = self.steps(number, [server], leg)
                    wanted = {}
                    for step in steps:
                        # One step a feature: a process each takes its time.
                        if step["do"] in ("list", "call", "read", "prompt") and not step.get("progress") \
                                and step["feature"] in ("list", "calls", "resources", "prompts"):
                            wanted.setdefault((step["feature"], step["do"]), step)
                    for step in wanted.values():
                        target = server if leg == "direct" else "colibri"
                        runs.append(((name, version, server), leg, step, pool.submit(ask, era, target, step)))
        notes = []
        for row, leg, step, run in runs:
            _, version, server = row
            through = self.exposed(server, step) if leg == "through" else str
            verdict = judge.judge(version, step, run.result(), self.reference[server][step["key"]], through)
            notes.append((row, leg, step["feature"], *verdict))
        return notes


def leg_of(problem):
    """The client, the server and the leg's name of a problem."""
    client, server, feature = re.match(r"(.+) \([^()]*\), ([^,]+), ([^,:]+): ", problem).groups()
    return client, server, f"interop: {server}, {feature}"


def passes_once_more(problem):
    """True if the problem is of a leg that may stumble once, and client and server do without it in a second run."""
    client, server, name = leg_of(problem)
    again = [sys.executable, __file__, "--work", "interop-again", "--clients", f"^{re.escape(client)}$",
             "--servers", f"^{re.escape(server)}$"]
    runs = iter([[sys.executable, "-c", "raise SystemExit(1)"], again])
    try:
        retries.attempt(name, lambda: subprocess.run(next(runs), check=True, stdout=subprocess.DEVNULL))
    except (AssertionError, subprocess.CalledProcessError) as error:
        print(f"{name}: {error}", flush=True)
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", default="", help="a pattern: of the clients, these alone")
    parser.add_argument("--servers", default="", help="a pattern: of the servers, these alone")
    parser.add_argument("--direct", action="store_true", help="try the pairs directly, too")
    parser.add_argument("--work", default="interop", help="the directory below target, default interop")
    wanted = parser.parse_args()
    harness.adopt_orphans()
    install = harness.Install()
    work = harness.work_directory(wanted.work)
    for source in [*(harness.HERE / "clients").glob("*.mjs"), *(harness.HERE / "servers").glob("*.*")]:
        shutil.copy(source, work)
    (work / "node_modules").symlink_to(install.modules)
    with web_page() as page, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        run = Run(install, work, page, wanted)
        run.take_references(pool)
        if wanted.direct:
            run.all_direct(pool)
        print("direct: done", flush=True)
        if left := harness.leftovers():
            sys.exit(f"a server outlived its client: {left}")
        names = list(enumerate(run.clients))
        # Of many resources alone: their pages are ours.
        paged = [server for server in run.servers if server.startswith("paged-")]
        others = [server for server in run.servers if server not in paged]
        groups = [(f"{number}", others, names[number::SHARES]) for number in range(SHARES)]
        groups += [(server, [server], names) for server in paged]
        legs = ["direct", "through"] if wanted.direct else ["through"]
        with contextlib.ExitStack() as stack:
            runs, inspector = [], None
            with concurrent.futures.ThreadPoolExecutor(len(groups) + 1) as shares:
                if others and run.inspectors:
                    daemon = run.start(stack, "inspector", others)
                    run.settle(daemon, others)
                    inspector = shares.submit(run.inspect, pool, daemon, others, legs)
                for name, servers, share in groups:
                    if servers and share:
                        # One after the other: each starts all its servers at once.
                        daemon = run.start(stack, name, servers)
                        run.settle(daemon, servers)
                        runs.append((servers, shares.submit(run.all_through, daemon, servers, share)))
                for servers, reports in runs:
                    run.judge_through(servers, reports.result())
                    print(f"through: {len(servers)} servers done", flush=True)
                for note in inspector.result() if inspector else []:
                    run.matrix.note(*note)
    if not wanted.direct:
        run.read_direct()
    elif not (wanted.clients or wanted.servers) and (changed := run.compare_direct()):
        sys.exit(f"{DIRECT} was written anew: {changed}")
    problems = run.matrix.problems([re.compile(pattern) for pattern, _ in EXPECTED])
    if wanted.work == "interop":
        stumbled = {leg_of(problem)[2] for problem in problems}
        problems = [problem for problem in problems
                    if leg_of(problem)[2] not in retries.LISTED or not passes_once_more(problem)]
        for name in retries.LISTED:
            if name.startswith("interop: ") and name not in stumbled:
                retries.note_outcome(name, False)
    text = run.matrix.markdown(problems)
    (work / "matrix.md").write_text(text)
    print(text)
    verdicts = [through[0] for _, _, _, through in run.matrix.cells()]
    print("interop: " + ", ".join(f"{verdicts.count(word)} {word}" for word in judge.VERDICTS))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
