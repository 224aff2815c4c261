"""What the Python clients have in common: the steps of steps.mjs, over a session that each SDK makes plain."""

import contextlib
import json
import logging
import pathlib
import re
import sys
import time

import anyio

PATIENCE_S = 30
KEYS = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
# A server of files takes them in place of its arguments: what the steps read lies below.
ROOTS = [{"uri": pathlib.Path.cwd().as_uri(), "name": "work"}]
SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "a-model", "stopReason": "endTurn"}


class Absent(Exception):
    """The SDK has no such call."""


class Complaints(logging.Handler):
    """What the SDK warns of, such as a message it cannot place, is part of the report."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = []

    def emit(self, record):
        self.seen.append(record.getMessage())


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def filled(schema):
    """What a person would fill into a form; the same in every client."""
    texts = {"email": "ann@example.org", "uri": "https://example.org", "date": "2026-01-02", "date-time": "2026-01-02T03:04:05Z"}

    def value(field):
        if "enum" in field:
            return field["enum"][0]
        if choices := field.get("oneOf") or field.get("anyOf"):
            return choices[0]["const"]
        if field.get("type") == "boolean":
            return True
        if field.get("type") in ("integer", "number"):
            return field.get("minimum", 7)
        if field.get("type") == "array":
            return [value(field["items"])]
        return texts.get(field.get("format"), "Ann".ljust(field.get("minLength", 0), "n"))

    return {key: value(field) for key, field in (schema or {}).get("properties", {}).items()}


class Session:
    """An SDK's client made plain; a client program says how. What it leaves out, its SDK cannot do."""

    modern = False

    def __init__(self):
        self.told, self.asked, self.news = [], [], anyio.Event()

    def tell(self, notification):
        """Keeps a notification as {method, params}."""
        self.told.append(plain(notification))
        self.news.set()
        self.news = anyio.Event()

    async def missing(self, *_, **__):
        raise Absent("the SDK has no such call")

    list = call = read = prompt = complete = subscribe = set_level = missing

    @contextlib.asynccontextmanager
    async def listening(self, **_):
        """What a modern client opens to be told of changes."""
        yield

    async def wait_for(self, wanted):
        read = 0
        while True:
            while read < len(self.told):
                read += 1
                if await wanted(self.told[read - 1]):
                    return
            await self.news.wait()


class Steps:
    def __init__(self, session):
        self.session = session

    async def all(self, kind):
        entries, pages, cursor = [], 0, None
        while True:
            page = await self.session.list(kind, cursor)
            entries, pages, cursor = entries + page[kind], pages + 1, page.get("nextCursor")
            if cursor is None:
                return {"entries": entries, "pages": pages}

    async def list(self, step):
        return await self.all(step["kind"])

    async def call(self, step):
        seen = []

        async def progress(value, total=None, message=None):
            seen.append({k: v for k, v in (("progress", value), ("total", total), ("message", message)) if v is not None})

        result = await self.session.call(step["name"], step["arguments"], progress if step.get("progress") else None)
        return {"result": result, "progress": list(seen)}

    async def cancel(self, step):
        with anyio.CancelScope() as scope:

            async def progress(value, total=None, message=None):
                scope.cancel()

            result = await self.session.call(step["name"], step["arguments"], progress)
            return {"failed": f"answered all the same: {result}"}
        return {"ended": "the scope was cancelled", "byUs": True}

    async def changed(self, step):
        kind, method = step["kind"], f"notifications/{step['kind']}/list_changed"

        async def brought(told):
            # Another server's list may change meanwhile, so the first notification need not be the one waited for.
            if told["method"] != method:
                return False
            return step["expect"] in [entry[KEYS[kind]] for entry in (await self.all(kind))["entries"]]

        async with self.session.listening(**{f"{kind}_list_changed": True}):
            await self.session.call(step["name"], step["arguments"], None)
            await self.session.wait_for(brought)
        return {"brought": step["expect"]}

    async def updated(self, step):
        async def wanted(told):
            return told["method"] == "notifications/resources/updated" and told["params"]["uri"] == step["uri"]

        async with self.session.listening(resource_subscriptions=[step["uri"]]):
            if not self.session.modern:
                await self.session.subscribe(step["uri"])
            await self.session.call(step["name"], {}, None)
            await self.session.wait_for(wanted)
        return {"updated": step["uri"]}

    async def logging(self, step):
        if not self.session.modern:
            await self.session.set_level("info")
        await self.session.call(step["name"], {}, None)
        messages = [told["params"] for told in self.session.told if told["method"] == "notifications/message"]
        return {"messages": [[message["level"], message["data"]] for message in messages]}

    async def links(self, step):
        result = await self.session.call(step["name"], step["arguments"], None)
        links = [item for item in result["content"] if item["type"] == "resource_link"]
        if not links:
            raise Absent("no link that this version knows")
        return {"read": [(await self.session.read(link["uri"]))["contents"] for link in links]}

    async def read(self, step):
        return {"read": await self.session.read(step["uri"])}

    async def prompt(self, step):
        return {"prompt": await self.session.prompt(step["name"], step["arguments"])}

    async def complete(self, step):
        return {"completed": await self.session.complete(step["ref"], step["argument"])}

    async def unknown(self, step):
        try:
            return {"result": await self.session.call(step["name"], {}, None)}
        except Exception as error:
            return {"code": code_of(error), "message": str(error)}


def code_of(error):
    code = getattr(getattr(error, "error", None), "code", None)
    # The first SDK says it in words alone.
    said = re.match(r"code=(-?\d+) ", str(error))
    return int(said[1]) if code is None and said else code


def read_plan():
    with open(sys.argv[1], encoding="utf-8") as file:
        return json.load(file)


async def run(session, plan, protocol):
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    report = {"protocol": protocol, "steps": {}, "errors": complaints.seen}
    for step in plan["steps"]:
        session.told.clear()
        session.asked.clear()
        began = time.monotonic()
        try:
            with anyio.fail_after(PATIENCE_S):
                seen = await getattr(Steps(session), step["do"])(step)
        except Absent as why:
            seen = {"absent": str(why)}
        except Exception as error:
            hangs = time.monotonic() - began >= PATIENCE_S
            seen = {"failed": f"{type(error).__name__}: {error}", "code": code_of(error), "hangs": hangs}
        report["steps"][step["key"]] = seen | {"asked": list(session.asked)}
    return report
