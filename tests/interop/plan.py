"""Who is in the era matrix: the servers and what is asked of each, and the clients that ask it."""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess

import harness

PYTHON = harness.HERE / "clients"


@dataclasses.dataclass
class Server:
    era: str  # the era in which its results are taken for right
    command: list
    steps: list
    env: dict = dataclasses.field(default_factory=dict)
    prefix: bool = True
    web: "Web" = None

    def entry(self):
        """Its entry in the registry."""
        if self.web:
            return self.web.entry | {"url": f"http://localhost:{self.web.port}{self.web.path}",
                                     "allow_addresses": ["loopback"], "may_ask": harness.ASKS}
        entry = {"command": self.command[0], "args": self.command[1:], "may_ask": harness.ASKS}
        if self.env:
            entry["env"] = self.env
        return entry


@dataclasses.dataclass
class Web:
    """The same server over HTTP: {port} in its command and environment becomes a free port."""
    command: list
    path: str
    env: dict = dataclasses.field(default_factory=dict)
    entry: dict = dataclasses.field(default_factory=dict)
    port: int = 0

    @contextlib.contextmanager
    def served(self, work):
        """Runs it until the end of the context."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

        def filled(text):
            return text.replace("{port}", str(self.port))

        env = {"PATH": os.environ["PATH"], "HOME": str(work)} | {key: filled(value) for key, value in self.env.items()}
        with (work / f"web-{self.port}.log").open("wb") as log:
            process = subprocess.Popen([filled(part) for part in self.command], env=env, cwd=work,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        harness.until_listening(process, self.port)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def step(do, feature, **more):
    return {"do": do, "feature": feature, **more}


def call(name, arguments, feature="calls", **more):
    return step("call", feature, name=name, arguments=arguments, **more)


LISTS = {kind: step("list", feature, kind=kind) for kind, feature in (
    ("tools", "list"), ("prompts", "prompts"), ("resources", "resources"), ("resourceTemplates", "resources"))}
TEMPLATE = "test://template/{id}/data"


def changed(kind, tool, name, expect=None):
    return step("changed", "list_changed", kind=kind, name=tool, arguments={"name": name}, expect=expect or name)


# What the own fixture is asked, in both eras. In the steps, {client} stands for a name that no other client uses, and
# {held} for a file that belongs to this pair alone.
OWN = [
    *LISTS.values(),
    call("test_simple_text", {}),
    call("test_multiple_content_types", {}),
    call("test_audio_content", {}),
    call("test_error_handling", {}),
    call("test_structured_content", {}, "structured"),
    call("test_tool_with_progress", {"steps": 20}, "progress", progress=True, steps=20),
    step("cancel", "cancel", name="test_hold", arguments={"file": "{held}"}),
    changed("tools", "test_trigger_tool_change", "new_{client}"),
    changed("prompts", "test_trigger_prompt_change", "new_{client}"),
    changed("resources", "test_trigger_resource_change", "test://new_{client}"),
    step("updated", "updated", name="test_update_resource", uri="test://watched-resource"),
    step("read", "resources", uri="test://static-text"),
    step("read", "resources", uri="test://static-binary"),
    step("read", "resources", uri="test://template/7/data"),
    step("links", "links", name="test_resource_links", arguments={}),
    step("prompt", "prompts", name="test_prompt_with_arguments", arguments={"arg1": "one", "arg2": "two"}),
    step("prompt", "prompts", name="test_prompt_with_image", arguments={}),
    step("prompt", "prompts", name="test_prompt_with_embedded_resource", arguments={"resourceUri": "test://static-text"}),
    step("complete", "completion", ref={"type": "ref/prompt", "name": "test_prompt_with_arguments"},
         argument={"name": "arg1", "value": "par"}),
    step("complete", "completion", ref={"type": "ref/resource", "uri": TEMPLATE}, argument={"name": "id", "value": "12"}),
    step("logging", "logging", name="test_tool_with_logging"),
    call("test_elicitation", {"message": "Who are you?"}, "form"),
    call("test_input_required_result_multi_round", {}, "form"),
    step("read", "form", uri="test://wants-input"),
    step("prompt", "form", name="test_input_required_result_prompt", arguments={}),
    call("test_elicitation_url", {}, "url"),
    call("test_sampling", {"prompt": "What is the capital of France?"}, "sampling"),
    call("test_roots", {}, "roots"),
]
# What the client of the tasks extension, and no other, asks of the own fixture in the modern era.
TASKS = [step("task", "tasks", client="tasks", **what) for what in (
    {"name": "slow_compute", "arguments": {"seconds": 0.3, "label": "sum"}},
    {"name": "slow_compute", "arguments": {"seconds": 600}, "cancel": True},
    {"name": "failing_job", "arguments": {}},
    {"name": "protocol_error_job", "arguments": {}},
    {"name": "confirm_delete", "arguments": {"filename": "notes"}},
    {"name": "multi_input", "arguments": {}},
    {"name": "greet", "arguments": {"name": "Ann"}},
)]
# What the witnesses on the SDKs are asked, in both eras.
WITNESS = [
    LISTS["tools"],
    call("count", {"n": 20}, "progress", progress=True, steps=20),
    step("cancel", "cancel", name="hold", arguments={"file": "{held}"}),
    call("count", {"n": 1}),
    changed("tools", "grow", "new_{client}"),
]


def servers(install, work):
    """id → Server."""
    node = str(install.node)
    python = str(install.python)
    fixture = str(harness.binary("conformance-fixture"))
    files, repository = sample_files(work / "files"), sample_repository(work / "repository")

    def official(name, *arguments):
        return [node, str(install.modules / f"@modelcontextprotocol/server-{name}/dist/index.js"), *arguments]

    everything = [
        *LISTS.values(),
        call("echo", {"message": "Grüße, 蜂鳥 \u2028 \ud83d\udc26"}),
        call("get-sum", {"a": 2, "b": 40}),
        call("get-structured-content", {"location": "New York"}, "structured"),
        call("get-tiny-image", {}),
        call("get-resource-reference", {"resourceType": "Text", "resourceId": 1}, volatile=True),
        step("links", "links", name="get-resource-links", arguments={"count": 2}, volatile=True),
        call("trigger-long-running-operation", {"duration": 0.4, "steps": 4}, "progress", progress=True, steps=4),
        step("cancel", "cancel", name="trigger-long-running-operation", arguments={"duration": 60, "steps": 600}),
        call("echo", {"message": "after the cancellation"}),
        step("read", "resources", uri="demo://resource/dynamic/text/3", volatile=True),
        step("prompt", "prompts", name="simple-prompt", arguments={}),
        step("prompt", "prompts", name="args-prompt", arguments={"city": "Lima"}),
        step("complete", "completion", ref={"type": "ref/prompt", "name": "completable-prompt"},
             argument={"name": "department", "value": "E"}),
        call("trigger-elicitation-request", {}, "form"),
        call("trigger-sampling-request", {"prompt": "Say something", "maxTokens": 10}, "sampling"),
        call("get-roots-list", {}, "roots"),
    ]
    return {
        "everything": Server("legacy", official("everything", "stdio"), everything),
        "ev-http": Server("legacy", official("everything", "stdio"), everything, web=Web(
            official("everything", "streamableHttp"), "/mcp", {"PORT": "{port}"})),
        "ev-sse": Server("legacy", official("everything", "stdio"), everything, web=Web(
            official("everything", "sse"), "/sse", {"PORT": "{port}"}, {"type": "sse"})),
        "filesystem": Server("legacy", official("filesystem", str(files)), [
            LISTS["tools"],
            call("list_directory", {"path": str(files)}),
            call("read_text_file", {"path": str(files / "poem.txt")}),
            call("read_text_file", {"path": "/etc/passwd"}),
        ]),
        "memory": Server("legacy", official("memory"), [
            LISTS["tools"],
            call("create_entities", {"entities": [{"name": "{client}", "entityType": "bird", "observations": ["hums"]}]}),
            call("search_nodes", {"query": "{client}"}, "structured"),
        ], {"MEMORY_FILE_PATH": str(work / "memory.json")}),
        "thinking": Server("legacy", official("sequential-thinking"), [
            LISTS["tools"],
            call("sequentialthinking", {"thought": "One", "nextThoughtNeeded": False, "thoughtNumber": 1,
                                        "totalThoughts": 1}, volatile=True),
        ]),
        "time": Server("modern", [python, "-m", "mcp_server_time", "--local-timezone", "UTC"], [
            LISTS["tools"],
            call("get_current_time", {"timezone": "UTC"}, volatile=True),
            call("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
                 volatile=True),
        ]),
        "git": Server("modern", [python, "-m", "mcp_server_git", "--repository", str(repository)], [
            LISTS["tools"],
            call("git_status", {"repo_path": str(repository)}),
            call("git_log", {"repo_path": str(repository), "max_count": 5}),
            call("git_show", {"repo_path": str(repository), "revision": "HEAD"}),
        ]),
        "fetch": Server("modern", [python, "-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"], [
            LISTS["tools"],
            LISTS["prompts"],
            call("fetch", {"url": "{page}", "raw": True}),
            step("prompt", "prompts", name="fetch", arguments={"url": "{page}"}),
        ]),
        "witness-old": Server("legacy", [node, str(work / "witness-legacy.mjs")], WITNESS),
        "witness-new": Server("modern", [node, str(work / "witness-modern.mjs")], WITNESS),
        # Its SDK makes a server for each request: a list that one changed is forgotten with it.
        "witness-http": Server("modern", [node, str(work / "witness-modern.mjs")], WITNESS[:-1], web=Web(
            [node, str(work / "witness-modern.mjs"), "{port}"], "/")),
        "python-http": Server("modern", [python, str(work / "web.py")], [
            LISTS["tools"],
            call("echo", {"text": "Grüße, 蜂鳥"}),
            call("count", {"n": 20}, "progress", progress=True, steps=20),
        ], web=Web([python, str(work / "web.py"), "{port}"], "/mcp")),
        "old": Server("legacy", [fixture, "legacy"], OWN),
        "new": Server("modern", [fixture, "modern"], OWN + TASKS),
        "apps": Server("modern", [node, str(work / "app-server.mjs")], [
            LISTS["tools"],
            LISTS["resources"],
            call("hand", {"by": 3}, "structured"),
            step("read", "resources", uri="ui://hand/view.html"),
            step("app", "apps", client="apps", name="hand", arguments={"by": 3}),
        ]),
        # A daemon of their own: their many resources are pages of ours.
        "paged-old": Server("legacy", [fixture, "legacy", "--page", "300", "--many", "1100"],
                            [LISTS["tools"], step("list", "pages", kind="resources")]),
        "paged-new": Server("modern", [fixture, "modern", "--page", "300", "--many", "1100"],
                            [LISTS["tools"], step("list", "pages", kind="resources")]),
    }


def clients(install):
    """name → (version, command, what the plan says of the client)."""
    node, sdk1, sdk2 = str(install.node), "sdk1.mjs", "sdk2.mjs"
    mcp1, mcp2 = str(PYTHON / "mcp1.py"), str(PYTHON / "mcp2.py")
    python, fast = str(install.python), str(install.fastmcp_python)
    return {
        "TypeScript sdk 1.0.4": ("2024-11-05", [node, sdk1], {"package": "sdk-2024-11-05"}),
        "TypeScript sdk 1.12.3": ("2025-03-26", [node, sdk1], {"package": "sdk-2025-03-26"}),
        "TypeScript sdk 1.17.5": ("2025-06-18", [node, sdk1], {"package": "sdk-2025-06-18"}),
        "TypeScript sdk 1.32.2": ("2025-11-25", [node, sdk1], {"package": "@modelcontextprotocol/sdk"}),
        "TypeScript client 2.4.0, legacy": ("2025-11-25", [node, sdk2], {"mode": "legacy"}),
        "TypeScript client 2.4.0, modern": ("2026-07-28", [node, sdk2], {"mode": "modern"}),
        "Python mcp 1.1.2": ("2024-11-05", [str(install.old_python), mcp1], {}),
        "Python mcp 1.30.0": ("2025-11-25", [str(install.legacy_python), mcp1], {}),
        "Python mcp 2.3.0, legacy": ("2025-11-25", [python, mcp2], {"mode": "legacy"}),
        "Python mcp 2.3.0, auto": ("2026-07-28", [python, mcp2], {"mode": "auto"}),
        "FastMCP 4.1.0, legacy": ("2025-11-25", [fast, mcp2], {"mode": "legacy", "fastmcp": True}),
        "FastMCP 4.1.0, modern": ("2026-07-28", [fast, mcp2], {"mode": "modern", "fastmcp": True}),
        # These make the steps alone that name them.
        "TypeScript ext-tasks 0.2.2": ("2026-07-28", [node, "tasks.mjs"], {"client": "tasks"}),
        "TypeScript ext-apps 2.0.4": ("2026-07-28", [node, "apps.mjs"], {"client": "apps"}),
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


def exposed_uri(server, uri):
    """How a server's URI or template stands behind its prefix (docs/rewrites.md)."""
    scheme = next((scheme for scheme in ("ui://", "skill://") if uri.startswith(scheme)), None)
    return uri.replace(scheme, f"{scheme}{server}/", 1) if scheme else f"{server}+{uri}"


def steps_for(server, steps, names, through, client=""):
    """The steps of a server with keys, for a client that talks to it itself or through the daemon; `names` are the
    values of what stands in braces. A client that has a name makes the steps for it, and those alone."""
    filled = []
    last = {"do": "unknown", "feature": "unknown tool", "name": "no_such_tool"}
    for number, one in enumerate([*steps, last]):
        if one.get("client", "") != client:
            continue
        text = json.dumps(one)
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", value)
        one = json.loads(text) | {"key": f"{server} {number}", "server": server}
        if through:
            if "name" in one:
                one["name"] = f"{server}__{one['name']}"
            if "uri" in one:
                one["uri"] = exposed_uri(server, one["uri"])
            if "expect" in one:
                kept = one["expect"]
                one["expect"] = exposed_uri(server, kept) if one["kind"] == "resources" else f"{server}__{kept}"
            ref = one.get("ref", {})
            if "name" in ref:
                ref["name"] = f"{server}__{ref['name']}"
            if "uri" in ref:
                ref["uri"] = exposed_uri(server, ref["uri"])
        filled.append(one)
    return filled
