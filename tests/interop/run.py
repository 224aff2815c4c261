#!/usr/bin/env python3
"""Real clients call real servers through Colibri, and must get what the same call gives directly.

Starts a private daemon that hosts the servers of SERVERS, lets each client of CLIENTS make the same steps through
`colibri-mcp`, compares with the reports of a client that talked to each server directly, and writes the matrix of
client, version, server and feature to target/interop/matrix.md. Exit status 0: everything agreed, nothing is left.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

import harness

FEATURES = ["list", "calls", "progress", "cancel", "list_changed", "unknown tool"]
CLIENT_PATIENCE_S = 240


def servers(install, work):
    """id → (era, command, steps). In the steps, {client} stands for a name that no other client uses."""
    node = str(install.node)
    everything = str(install.modules / "@modelcontextprotocol/server-everything/dist/index.js")
    filesystem = str(install.modules / "@modelcontextprotocol/server-filesystem/dist/index.js")
    python = str(install.python)
    files, repository = sample_files(work / "files"), sample_repository(work / "repository")

    def call(name, arguments, **more):
        return {"do": "call", "name": name, "arguments": arguments, **more}

    witness = [
        call("count", {"n": 20}, progress=True, steps=20),
        {"do": "cancel", "name": "hold", "arguments": {"file": str(work / "held-{client}-{server}")}},
        call("count", {"n": 1}),
        {"do": "changed", "name": "grow", "arguments": {"name": "new_{client}"}, "expect": "new_{client}"},
    ]
    return {
        "everything": ("legacy", [node, everything, "stdio"], [
            call("echo", {"message": "Grüße, 蜂鳥 \u2028 \ud83d\udc26"}),
            call("get-sum", {"a": 2, "b": 40}),
            call("get-structured-content", {"location": "New York"}),
            call("get-tiny-image", {}),
            call("get-resource-links", {"count": 2}),
            call("trigger-long-running-operation", {"duration": 0.4, "steps": 4}, progress=True, steps=4),
            {"do": "cancel", "name": "trigger-long-running-operation", "arguments": {"duration": 60, "steps": 600}},
            call("echo", {"message": "after the cancellation"}),
        ]),
        "filesystem": ("legacy", [node, filesystem, str(files)], [
            call("list_directory", {"path": str(files)}),
            call("read_text_file", {"path": str(files / "poem.txt")}),
            call("read_text_file", {"path": "/etc/passwd"}),
        ]),
        "time": ("modern", [python, "-m", "mcp_server_time", "--local-timezone", "UTC"], [
            call("get_current_time", {"timezone": "UTC"}, volatile=True),
            call("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
                 volatile=True),
        ]),
        "git": ("modern", [python, "-m", "mcp_server_git", "--repository", str(repository)], [
            call("git_status", {"repo_path": str(repository)}),
            call("git_log", {"repo_path": str(repository), "max_count": 5}),
            call("git_show", {"repo_path": str(repository), "revision": "HEAD"}),
        ]),
        "witness-legacy": ("legacy", [node, str(work / "witness-legacy.mjs")], witness),
        "witness-modern": ("modern", [node, str(work / "witness-modern.mjs")], witness),
    }


def sample_files(path):
    path.mkdir()
    (path / "poem.txt").write_text("A route of evanescence\nWith a revolving wheel;\n", encoding="utf-8")
    (path / "empty").touch()
    return path


def sample_repository(path):
    path.mkdir()
    who = {"NAME": "Colibri", "EMAIL": "colibri@localhost", "DATE": "2026-01-01T00:00:00Z"}
    env = {"PATH": os.environ["PATH"], "HOME": str(path), "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    (path / "README").write_text("One\n")
    for command in (["init", "-q", "-b", "main"], ["add", "README"], ["commit", "-q", "-m", "Add a file"]):
        subprocess.run(["git", *command], cwd=path, env=env, check=True)
    (path / "README").write_text("Two\n")
    return path


def clients(install):
    """name → (expected version, command, what the plan says of the client)."""
    node, sdk1, sdk2 = str(install.node), "sdk1.mjs", "sdk2.mjs"
    python, mcp2 = str(install.python), str(harness.HERE / "clients/mcp2.py")
    return {
        "TypeScript sdk 1.0.4": ("2024-11-05", [node, sdk1], {"package": "sdk-2024-11-05"}),
        "TypeScript sdk 1.12.3": ("2025-03-26", [node, sdk1], {"package": "sdk-2025-03-26"}),
        "TypeScript sdk 1.17.5": ("2025-06-18", [node, sdk1], {"package": "sdk-2025-06-18"}),
        "TypeScript sdk 1.32.2": ("2025-11-25", [node, sdk1], {"package": "@modelcontextprotocol/sdk"}),
        "TypeScript client 2.4.0, legacy": ("2025-11-25", [node, sdk2], {"mode": "legacy"}),
        "TypeScript client 2.4.0, modern": ("2026-07-28", [node, sdk2], {"mode": "modern"}),
        "Python mcp 1.1.3": ("2024-11-05", [str(install.old_python), str(harness.HERE / "clients/mcp1.py")], {}),
        "Python mcp 2.3.0, legacy": ("2025-11-25", [python, mcp2], {"mode": "legacy"}),
        "Python mcp 2.3.0, modern": ("2026-07-28", [python, mcp2], {"mode": "modern"}),
        "Python mcp 2.3.0, auto": ("2026-07-28", [python, mcp2], {"mode": "auto"}),
    }


def steps_for(server, steps, client, prefix):
    """The steps with keys, exposed names and the client's own name filled in."""
    filled = [{"do": "list", "key": f"{server} list"}] if not prefix else []
    for number, step in enumerate([*steps, {"do": "unknown", "name": "no_such_tool"}]):
        text = json.dumps(step).replace("{client}", client).replace("{server}", server)
        step = json.loads(text) | {"key": f"{server} {number} {step['do']}"}
        step["name"] = prefix + step["name"]
        if "expect" in step:
            step["expect"] = prefix + step["expect"]
        filled.append(step)
    return filled


def run_client(work, name, command, plan):
    """Runs a client program over a plan and returns its report, or says why there is none."""
    slug = re.sub(r"\W+", "-", name)
    path = work / f"{slug}.plan.json"
    path.write_text(json.dumps(plan))
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


def plain(value, volatile):
    """A result without what may differ between two calls or two SDKs: nulls, _meta, and digits where time passes."""
    if isinstance(value, dict):
        return {k: plain(v, volatile) for k, v in value.items() if v is not None and k not in ("_meta", "resultType")}
    if isinstance(value, list):
        return [plain(item, volatile) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return re.sub(r"\d", "0", value) if volatile and isinstance(value, str) else value


def compare_result(version, step, got, expected):
    """What is wrong with a result, or None."""
    got, expected = plain(got, step.get("volatile")), plain(expected, step.get("volatile"))
    if bool(got.get("isError")) != bool(expected.get("isError")):
        return f"isError differs: {json.dumps(got)[:400]}"
    known = {"text", "image", "resource"} | ({"audio"} if version >= "2025-03-26" else set())
    known |= {"resource_link"} if version >= "2025-06-18" else set()
    for item, wanted in zip(got["content"], expected["content"], strict=False):
        if wanted["type"] not in known:
            if item["type"] != "text":
                return f"content type {item['type']} is newer than {version}"
        elif wanted["type"] == "resource_link":
            # The URI of a link names its server, unlike direct.
            if {**item, "uri": 0} != {**wanted, "uri": 0}:
                return f"link differs: {item} instead of {wanted}"
        elif item != wanted:
            return f"content differs: {item} instead of {wanted}"
    if len(got["content"]) != len(expected["content"]):
        return f"{len(got['content'])} content items instead of {len(expected['content'])}"
    if version >= "2025-06-18" and got.get("structuredContent") != expected.get("structuredContent"):
        return f"structuredContent differs: {got.get('structuredContent')} instead of {expected.get('structuredContent')}"
    return None


def compare_list(version, prefix, got, expected):
    """What is wrong with the tools of a server in the joint list, or None."""
    keys = ["description", "inputSchema"]
    keys += ["annotations"] if version >= "2025-03-26" else []
    keys += ["outputSchema"] if version >= "2025-06-18" else []
    tools = {tool["name"]: tool for tool in got}
    for wanted in expected:
        tool = tools.get(prefix + wanted["name"])
        if tool is None:
            return f"{prefix}{wanted['name']} is missing"
        for key in keys:
            if plain(tool.get(key), False) != plain(wanted.get(key), False):
                return f"{key} of {prefix}{wanted['name']} is {tool.get(key)} instead of {wanted.get(key)}"
    return None


def judge_step(version, step, got, direct):
    """(feature, problem) pairs for one step through the daemon; a problem of None is a success."""
    features = {"call": "calls", "cancel": "cancel", "changed": "list_changed", "unknown": "unknown tool"}
    feature = "progress" if step.get("progress") else features[step["do"]]
    if got is None or "failed" in got:
        return feature, got["failed"] if got else "not run"
    if "absent" in got:
        return feature, "absent"
    if step["do"] == "call":
        problem = compare_result(version, step, got["result"], direct["result"])
        if problem or not step.get("progress"):
            return feature, problem
        if got["progress"] == [] and version == "2024-11-05" and "late" not in got:
            return feature, "absent"
        values = [update["progress"] for update in got["progress"]]
        if values != list(range(1, step["steps"] + 1)) or got.get("late"):
            return feature, f"progress {values}, after the result {got.get('late')}"
        return feature, None
    if step["do"] == "cancel":
        if not got["byUs"]:
            return feature, f"ended before it was cancelled: {got['ended']}"
        held = step["arguments"].get("file")
        return feature, None if not held or wait_for_cancellation(held) else "the cancellation did not reach the server"
    if step["do"] == "unknown":
        return feature, None if got.get("code") == -32602 else f"an unknown tool is answered with {json.dumps(got)[:300]}"
    return feature, None


def wait_for_cancellation(path):
    """Whether the witness has written that its call was cancelled (each call holds once and is cancelled once)."""
    deadline = time.monotonic() + harness.PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            if file.read() == "held\ncancelled\n":
                return True
        time.sleep(0.05)
    return False


class Matrix:
    def __init__(self):
        self.rows, self.problems = {}, []

    def note(self, client, version, server, feature, problem):
        cell = self.rows.setdefault((client, version, server), {})
        word = {None: "ok", "absent": "n/a"}.get(problem, "FAILED")
        order = ["n/a", "ok", "FAILED"]
        cell[feature] = max(cell.get(feature, "n/a"), word, key=order.index)
        if word == "FAILED":
            self.problems.append(f"{client} ({version}), {server}, {feature}: {problem}")

    def markdown(self):
        lines = ["| client | version | server | " + " | ".join(FEATURES) + " |", "|---" * (3 + len(FEATURES)) + "|"]
        for (client, version, server), cells in self.rows.items():
            lines.append(f"| {client} | {version} | {server} | " + " | ".join(cells.get(f, "n/a") for f in FEATURES) + " |")
        lines += ["", "n/a: the server offers no such tool, or the client's SDK cannot do it."]
        lines += ["", "Problems:", *(f"- {problem}" for problem in self.problems)] if self.problems else []
        return "\n".join(lines) + "\n"


def inspect(install, work, bridge, table, direct, matrix):
    """The Inspector's command line: one process a request, lists and calls only."""
    launcher = install.modules / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    config = work / "inspector.json"
    config.write_text(json.dumps({"mcpServers": {"colibri": {"command": bridge[0], "args": bridge[1:]}}}))
    home = work / "home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def ask(era, *arguments):
        command = [install.node, launcher, "--cli", "--config", config, "--server", "colibri",
                   "--protocol-era", era, "--format", "json", "--quiet", *arguments]
        done = subprocess.run(command, env=env, cwd=work, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            return None, f"exit status {done.returncode}: {done.stderr[-600:]}{done.stdout[-200:]}"
        answer = json.loads(done.stdout)
        return answer.get("result", answer), None

    for era, version in (("legacy", "2025-11-25"), ("modern", "2026-07-28")):
        name = f"Inspector CLI 2.12.0, {era}"
        listed, trouble = ask(era, "--method", "tools/list", "--strict")
        for server, (_, _, steps) in table.items():
            problem = trouble or compare_list(version, f"{server}__", listed["tools"], direct[server][f"{server} list"]["tools"])
            matrix.note(name, version, server, "list", problem)
            step = next(step for step in steps if step["do"] == "call" and not step.get("progress"))
            key = f"{server} {steps.index(step)} call"
            got, problem = ask(era, "--method", "tools/call", "--tool-name", f"{server}__{step['name']}",
                               "--tool-args-json", json.dumps(step["arguments"]))
            problem = problem or compare_result(version, step, got, direct[server][key]["result"])
            matrix.note(name, version, server, "calls", problem)


def main():
    harness.adopt_orphans()
    install = harness.Install()
    work = harness.work_directory("interop")
    for source in [*(harness.HERE / "clients").glob("*.mjs"), *(harness.HERE / "servers").glob("*.mjs")]:
        shutil.copy(source, work)
    (work / "node_modules").symlink_to(install.modules)
    table = servers(install, work)

    direct = {}
    for server, (era, command, steps) in table.items():
        plan = {"mode": era, "command": command[0], "args": command[1:], "steps": steps_for(server, steps, "direct", "")}
        report = run_client(work, f"direct {server}", [str(install.node), "sdk2.mjs"], plan)
        wrong = report.get("failed") or [step for step in report["steps"].values() if "failed" in step]
        if wrong:
            sys.exit(f"{server} does not work directly: {wrong}")
        direct[server] = report["steps"]
    if left := harness.leftovers():
        sys.exit(f"a server outlived its client: {left}")
    print(f"direct: {', '.join(table)} answered", flush=True)

    matrix = Matrix()
    registry = {server: {"command": command[0], "args": command[1:]} for server, (_, command, _) in table.items()}
    with harness.Daemon(work, registry) as daemon:
        bridge = daemon.bridge()
        settle(install, work, bridge, direct)
        for number, (name, (version, command, more)) in enumerate(clients(install).items()):
            steps = [{"do": "list", "key": "list"}]
            for server, (_, _, own) in table.items():
                steps += steps_for(server, own, f"c{number}", f"{server}__")
            report = run_client(work, name, command, {**more, "command": bridge[0], "args": bridge[1:], "steps": steps})
            print(f"{name}: {report.get('protocol') or report['failed']}", flush=True)
            judge_client(matrix, name, version, table, steps, report, direct)
        inspect(install, work, bridge, table, direct, matrix)

    text = matrix.markdown()
    (work / "matrix.md").write_text(text)
    print(text)
    cells = [cell for row in matrix.rows.values() for cell in row.values()]
    print(f"interop: {cells.count('ok')} ok, {cells.count('FAILED')} failed, {cells.count('n/a')} not applicable")
    if matrix.problems:
        print(f"the daemon's log: {work / 'colibri-mcpd.log'}")
        sys.exit(1)


def settle(install, work, bridge, direct):
    """Waits, as a client that was told of changes would, until every server's tools are in the list. The first list
    starts servers never seen before and does not wait for the slow ones."""
    names = [f"{server}__{tool['name']}" for server, steps in direct.items() for tool in steps[f"{server} list"]["tools"]]
    plan = {"package": "@modelcontextprotocol/sdk", "command": bridge[0], "args": bridge[1:],
            "steps": [{"do": "settle", "key": "settle", "expect": names}]}
    report = run_client(work, "settle", [str(install.node), "sdk1.mjs"], plan)
    lists = report.get("steps", {}).get("settle", report)
    if "lists" not in lists:
        sys.exit(f"the list of tools did not become complete: {lists}")
    print(f"first lists: {lists['lists']} tools", flush=True)


def judge_client(matrix, name, version, table, steps, report, direct):
    for server in table:
        if report.get("protocol") != version:
            matrix.note(name, version, server, "list", report.get("failed") or f"agreed on {report.get('protocol')}")
            continue
        if report["errors"]:
            matrix.note(name, version, server, "list", f"the SDK complained: {report['errors'][:5]}")
        listed = report["steps"]["list"]
        problem = listed.get("failed") or compare_list(
            version, f"{server}__", listed["tools"], direct[server][f"{server} list"]["tools"]
        )
        matrix.note(name, version, server, "list", problem)
        for step in steps:
            if step["key"].startswith(f"{server} "):
                feature, problem = judge_step(version, step, report["steps"].get(step["key"]), direct[server].get(step["key"]))
                matrix.note(name, version, server, feature, problem)


if __name__ == "__main__":
    main()
