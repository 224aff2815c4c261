"""A client on the Python SDK 1.x: the first (2024-11-05), which knows neither progress nor cancellation nor requests of
servers but roots, or the last of the legacy era."""

import inspect
import json

import anyio
import steps
from mcp import ClientSession, StdioServerParameters, stdio_client, types
from pydantic import AnyUrl

FIRST = "message_handler" not in inspect.signature(ClientSession.__init__).parameters


class Session(steps.Session):
    async def list(self, kind, cursor):
        call = {
            "tools": self.sdk.list_tools, "prompts": self.sdk.list_prompts, "resources": self.sdk.list_resources,
            "resourceTemplates": getattr(self.sdk, "list_resource_templates", None),
        }[kind]
        if call is None:
            raise steps.Absent("the SDK has no such call")
        if FIRST:
            page = steps.plain(await call())
            if "nextCursor" in page:
                raise steps.Absent("the SDK cannot ask for the next page")
            return page
        return steps.plain(await call(cursor))

    async def call(self, name, arguments, progress):
        if FIRST and progress:
            raise steps.Absent("the SDK has no progress")
        more = {"progress_callback": progress} if progress else {}
        return steps.plain(await self.sdk.call_tool(name, arguments, **more))

    async def read(self, uri):
        return steps.plain(await self.sdk.read_resource(AnyUrl(uri)))

    async def prompt(self, name, arguments):
        return steps.plain(await self.sdk.get_prompt(name, arguments))

    async def complete(self, ref, argument):
        kind = getattr(types, "PromptReference" if ref["type"] == "ref/prompt" else "ResourceReference", None)
        return steps.plain(await self.sdk.complete((kind or types.ResourceTemplateReference)(**ref), argument))

    async def subscribe(self, uri):
        await self.sdk.subscribe_resource(AnyUrl(uri))

    async def set_level(self, level):
        await self.sdk.set_logging_level(level)

    async def take(self, message):
        if isinstance(message, types.ServerNotification):
            self.tell(message.root)
        elif FIRST and isinstance(getattr(getattr(message, "request", None), "root", None), types.ListRootsRequest):
            self.asked.append("roots/list")
            await message.respond(types.ClientResult(types.ListRootsResult(roots=steps.ROOTS)))

    async def drain(self):
        """Reads what the server sends unasked: the SDK stops at the first such message that nobody takes."""
        async for message in self.sdk.incoming_messages:
            await self.take(message)

    def handlers(self):
        if FIRST:
            return {}

        async def sample(context, params):
            self.asked.append("sampling/createMessage")
            return types.CreateMessageResult(**steps.SAMPLE)

        async def elicit(context, params):
            url = getattr(params, "mode", "form") == "url"
            self.asked.append("elicitation/create url" if url else "elicitation/create")
            return types.ElicitResult(action="accept", content=None if url else steps.filled(params.requestedSchema))

        async def roots(context):
            self.asked.append("roots/list")
            return types.ListRootsResult(roots=steps.ROOTS)

        return {"sampling_callback": sample, "elicitation_callback": elicit, "list_roots_callback": roots,
                "message_handler": self.take}


async def main():
    plan = steps.read_plan()
    session = Session()
    server = StdioServerParameters(command=plan["command"], args=plan["args"], env=plan.get("env"))
    async with stdio_client(server) as streams, ClientSession(*streams, **session.handlers()) as session.sdk:
        async with anyio.create_task_group() as tasks:
            if FIRST:
                tasks.start_soon(session.drain)
            protocol = (await session.sdk.initialize()).protocolVersion
            # Said before the end, at which this SDK may fail over what still comes in.
            print(json.dumps(await steps.run(session, plan, protocol)), flush=True)
            tasks.cancel_scope.cancel()


anyio.run(main)
