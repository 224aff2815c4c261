"""A client on the Python SDK 2.x, in the era that the plan's mode names. The steps are those of steps.mjs."""

import json
import logging
import sys

import anyio
from mcp import Client, StdioServerParameters

PATIENCE_S = 30
MODES = {"legacy": "legacy", "modern": "2026-07-28", "auto": "auto"}


class Complaints(logging.Handler):
    """What the SDK warns of, such as a message it cannot place, is part of the report."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = []

    def emit(self, record):
        self.seen.append(record.getMessage())


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Steps:
    def __init__(self, client, modern, changes):
        self.client, self.modern, self.changes = client, modern, changes

    async def list(self, step):
        return {"tools": [plain(tool) for tool in (await self.client.list_tools(cache_mode="refresh")).tools]}

    async def call(self, step):
        seen = []

        async def progress(value, total, message):
            seen.append({k: v for k, v in (("progress", value), ("total", total), ("message", message)) if v is not None})

        callback = {"progress_callback": progress} if step.get("progress") else {}
        result = await self.client.call_tool(step["name"], step["arguments"], PATIENCE_S, **callback)
        return {"result": plain(result), "progress": list(seen)}

    async def cancel(self, step):
        with anyio.CancelScope() as scope:

            async def progress(value, total, message):
                scope.cancel()

            result = await self.client.call_tool(step["name"], step["arguments"], PATIENCE_S, progress_callback=progress)
            return {"failed": f"answered all the same: {plain(result)}"}
        return {"ended": "the scope was cancelled", "byUs": True}

    async def changed(self, step):
        with anyio.fail_after(PATIENCE_S):
            if not self.modern:
                return await self.wait_for(step, self.changes)
            async with self.client.listen(tools_list_changed=True) as subscription:
                return await self.wait_for(step, subscription)

    async def wait_for(self, step, notifications):
        await self.client.call_tool(step["name"], step["arguments"], PATIENCE_S)
        # Another server's list may change meanwhile, so the first notification need not be the one waited for.
        async for _ in notifications:
            if step["expect"] in [tool.name for tool in (await self.client.list_tools(cache_mode="refresh")).tools]:
                return {"brought": step["expect"]}
        return {"failed": f"no list_changed that brought {step['expect']}"}

    async def unknown(self, step):
        try:
            return {"result": plain(await self.client.call_tool(step["name"], {}, PATIENCE_S))}
        except Exception as error:
            return {"code": getattr(getattr(error, "error", None), "code", None), "message": str(error)}


async def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    told, changes = anyio.create_memory_object_stream(100)

    async def on_message(message):
        if type(getattr(message, "root", message)).__name__ == "ToolListChangedNotification":
            told.send_nowait(None)

    server = StdioServerParameters(command=plan["command"], args=plan["args"])
    client = Client(server, mode=MODES[plan["mode"]], message_handler=on_message)
    report = {"steps": {}, "errors": complaints.seen}
    async with client:
        report["protocol"] = client.protocol_version
        steps = Steps(client, client.protocol_version >= "2026", changes)
        for step in plan["steps"]:
            try:
                report["steps"][step["key"]] = await getattr(steps, step["do"])(step)
            except Exception as error:
                report["steps"][step["key"]] = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(report))


anyio.run(main)
