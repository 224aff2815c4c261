"""A client on the Python SDK 2.x or on FastMCP, in the era that the plan's mode names."""

import contextlib
import json
import warnings

import anyio
import steps
from mcp import Client, StdioServerParameters, types

MODES = {"legacy": "legacy", "modern": "2026-07-28", "auto": "auto"}


class Session(steps.Session):
    async def list(self, kind, cursor):
        call = {
            "tools": self.sdk.list_tools, "prompts": self.sdk.list_prompts, "resources": self.sdk.list_resources,
            "resourceTemplates": self.sdk.list_resource_templates,
        }[kind]
        return steps.plain(await call(cursor=cursor, cache_mode="refresh"))

    async def call(self, name, arguments, progress):
        more = {"progress_callback": progress} if progress else {}
        return steps.plain(await self.sdk.call_tool(name, arguments, steps.PATIENCE_S, **more))

    async def read(self, uri):
        return steps.plain(await self.sdk.read_resource(uri, cache_mode="refresh"))

    async def prompt(self, name, arguments):
        return steps.plain(await self.sdk.get_prompt(name, arguments))

    async def complete(self, ref, argument):
        kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
        return steps.plain(await self.sdk.complete(kind(**ref), argument))

    async def subscribe(self, uri):
        await self.sdk.subscribe_resource(uri)

    async def set_level(self, level):
        await self.sdk.set_logging_level(level)

    @contextlib.asynccontextmanager
    async def listening(self, **wanted):
        if not self.modern:
            yield
            return
        async with self.sdk.listen(**wanted) as subscription, anyio.create_task_group() as tasks:
            tasks.start_soon(self.forward, subscription)
            yield
            tasks.cancel_scope.cancel()

    async def forward(self, subscription):
        """Makes the SDK's events look like the notifications that they were."""
        kinds = {"ToolsListChanged": "tools", "PromptsListChanged": "prompts", "ResourcesListChanged": "resources"}
        async for event in subscription:
            kind = kinds.get(type(event).__name__)
            method = f"notifications/{kind}/list_changed" if kind else "notifications/resources/updated"
            self.told.append({"method": method, "params": {"uri": str(getattr(event, "uri", ""))}})
            self.news.set()
            self.news = anyio.Event()

    async def take(self, message):
        message = getattr(message, "root", message)
        if hasattr(message, "method") and "otification" in type(message).__name__:
            self.tell(message)

    async def sample(self, context, params):
        self.asked.append("sampling/createMessage")
        return types.CreateMessageResult(**steps.SAMPLE)

    async def elicit(self, context, params):
        url = params.mode == "url"
        self.asked.append("elicitation/create url" if url else "elicitation/create")
        return types.ElicitResult(action="accept", content=None if url else steps.filled(params.requested_schema))

    async def roots(self, context):
        self.asked.append("roots/list")
        return types.ListRootsResult(roots=steps.ROOTS)


class OfFastMcp(Session):
    """FastMCP's client; where it only wraps the SDK's, the SDK's methods are used as it names them."""

    async def list(self, kind, cursor):
        call = {
            "tools": self.sdk.list_tools_mcp, "prompts": self.sdk.list_prompts_mcp,
            "resources": self.sdk.list_resources_mcp, "resourceTemplates": self.sdk.list_resource_templates_mcp,
        }[kind]
        return steps.plain(await call(cursor=cursor, cache_mode="refresh"))

    async def call(self, name, arguments, progress):
        return steps.plain(await self.sdk.call_tool_mcp(name, arguments, progress_handler=progress, timeout=steps.PATIENCE_S))

    async def read(self, uri):
        return steps.plain(await self.sdk.read_resource_mcp(uri))

    async def prompt(self, name, arguments):
        return steps.plain(await self.sdk.get_prompt_mcp(name, arguments))

    async def complete(self, ref, argument):
        kind = types.PromptReference if ref["type"] == "ref/prompt" else types.ResourceTemplateReference
        return steps.plain(await self.sdk.complete_mcp(kind(**ref), argument))

    async def subscribe(self, uri):
        await self.sdk.session.subscribe_resource(uri)

    @contextlib.asynccontextmanager
    async def listening(self, **_):
        if self.modern:
            raise steps.Absent("the client cannot listen")
        yield

    async def elicit_fast(self, message, kind, params, context):
        return await self.elicit(context, params)

    async def sample_fast(self, messages, params, context):
        return await self.sample(context, params)


def connect(plan, session):
    if plan.get("fastmcp"):
        import fastmcp
        from fastmcp.client.transports import StdioTransport

        transport = StdioTransport(plan["command"], plan["args"], env=plan.get("env"))
        return fastmcp.Client(
            transport, mode=MODES[plan["mode"]], message_handler=session.take, roots=[types.Root(**root) for root in steps.ROOTS],
            sampling_handler=session.sample_fast, elicitation_handler=session.elicit_fast,
        )
    server = StdioServerParameters(command=plan["command"], args=plan["args"], env=plan.get("env"))
    modern = MODES[plan["mode"]] != "legacy"
    return Client(
        server, mode=MODES[plan["mode"]], message_handler=session.take, sampling_callback=session.sample,
        elicitation_callback=session.elicit, list_roots_callback=session.roots,
        **({"log_level": "info"} if modern else {}),
    )


async def main():
    warnings.simplefilter("ignore")
    plan = steps.read_plan()
    session = OfFastMcp() if plan.get("fastmcp") else Session()
    async with connect(plan, session) as session.sdk:
        session.modern = session.sdk.protocol_version >= "2026"
        report = await steps.run(session, plan, session.sdk.protocol_version)
    print(json.dumps(report))


anyio.run(main)
