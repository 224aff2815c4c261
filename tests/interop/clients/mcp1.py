"""A client on the first Python SDK (2024-11-05). It knows neither progress nor cancellation nor changes of a list."""

import json
import sys

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def take(session, step):
    if step["do"] == "list":
        return {"tools": [plain(tool) for tool in (await session.list_tools()).tools]}
    if step["do"] == "call":
        return {"result": plain(await session.call_tool(step["name"], step["arguments"])), "progress": []}
    if step["do"] == "unknown":
        try:
            return {"result": plain(await session.call_tool(step["name"], {}))}
        except Exception as error:
            return {"code": getattr(getattr(error, "error", None), "code", None), "message": str(error)}
    return {"absent": "the SDK has no such call"}


async def drain(messages):
    """Reads what the server sends unasked: the SDK stops at the first such message that nobody takes."""
    async for _ in messages:
        pass


async def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    report = {"steps": {}, "errors": []}
    async with stdio_client(StdioServerParameters(command=plan["command"], args=plan["args"])) as streams:
        async with ClientSession(*streams) as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drain, session.incoming_messages)
                report["protocol"] = (await session.initialize()).protocolVersion
                for step in plan["steps"]:
                    try:
                        with anyio.fail_after(30):
                            report["steps"][step["key"]] = await take(session, step)
                    except Exception as error:
                        report["steps"][step["key"]] = {"failed": f"{type(error).__name__}: {error}"}
                tasks.cancel_scope.cancel()
    print(json.dumps(report))


anyio.run(main)
