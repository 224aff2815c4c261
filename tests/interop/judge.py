"""What a step of the era matrix is worth: it works, it is refused with a reason, what it should bring is lost, or it
hangs."""

import contextlib
import json
import re
import time

import harness

FEATURES = ["list", "calls", "unknown tool", "structured", "links", "progress", "cancel", "list_changed", "resources",
            "updated", "prompts", "completion", "logging", "pages", "form", "url", "sampling", "roots", "tasks", "apps"]
# From good to bad. What is absent, the client's SDK cannot do or the server does not offer.
VERDICTS = ["absent", "works", "refused", "lost", "hangs"]
KEYS = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
# What came into an entry of a list with which version; what is older is in all.
LISTED = {
    "tools": {"description": "", "inputSchema": "", "annotations": "2025-03-26", "outputSchema": "2025-06-18"},
    "prompts": {"description": "", "arguments": ""},
    "resources": {"name": "", "description": "", "mimeType": "", "size": "2025-03-26"},
    "resourceTemplates": {"name": "", "description": "", "mimeType": ""},
}


def plain(value, volatile=False):
    """A result without what may differ between two calls or two SDKs: nulls, _meta, the era's own keys, a client's own
    names, and digits where time passes."""
    if isinstance(value, dict):
        left_out = ("_meta", "resultType", "ttlMs", "cacheScope", *(["blob"] if volatile else []))
        return {k: plain(v, volatile) for k, v in value.items() if v is not None and k not in left_out}
    if isinstance(value, list):
        return [plain(item, volatile) for item in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str):
        return 0 if volatile and isinstance(value, int) and not isinstance(value, bool) else value
    value = re.sub(r"\bclient[0-9]+[dt]\b", "client", value)
    return re.sub(r"\d+", "0", value) if volatile else value


def differ(what, got, expected):
    """That two values differ, in so many words; None if they do not."""
    if got == expected:
        return None
    return f"{what} differs: {json.dumps(got, ensure_ascii=False)[:300]} instead of {json.dumps(expected, ensure_ascii=False)[:300]}"


def known_content(version):
    known = {"text", "image", "resource"} | ({"audio"} if version >= "2025-03-26" else set())
    return known | ({"resource_link"} if version >= "2025-06-18" else set())


def without_uris(item):
    """A block whose URI names its server behind Colibri, unlike directly; that it reads back is another step."""
    if item["type"] == "resource_link":
        return {**item, "uri": 0}
    if item["type"] == "resource":
        return {**item, "resource": {**item["resource"], "uri": 0}}
    return item


def compare_result(version, got, expected, volatile):
    """What a tool's result lacks of what is expected, or None."""
    got, expected = plain(got, volatile), plain(expected, volatile)
    if len(got["content"]) != len(expected["content"]):
        return f"{len(got['content'])} content items instead of {len(expected['content'])}"
    for item, wanted in zip(got["content"], expected["content"], strict=True):
        if wanted["type"] not in known_content(version):
            if item["type"] != "text":
                return f"content type {item['type']} is newer than {version}"
        elif problem := differ("content", without_uris(item), without_uris(wanted)):
            return problem
    if version >= "2025-06-18":
        return differ("structuredContent", got.get("structuredContent"), expected.get("structuredContent"))
    return None


def compare_list(version, kind, through, got, expected):
    """What is wrong with the entries of a server in a list, or None; `through` makes names and URIs exposed ones."""
    key = KEYS[kind]
    entries = {entry[key]: entry for entry in got}
    # Names that are too long behind their prefix are shortened, and say what they were.
    shortened = {entry.get("_meta", {}).get("org.colibri/name"): entry for entry in got}
    for wanted in expected:
        if re.search(r"new_client", wanted[key]):
            continue
        name = through(wanted[key])
        # Through Colibri, what can be called as a task of 2025-11-25 only is hidden (docs/later.md).
        if name != wanted[key] and wanted.get("execution", {}).get("taskSupport") == "required":
            if name in entries:
                return f"{kind}: {name} is listed, and can be called as a task only"
            continue
        entry = entries.get(name) or (shortened.get(wanted[key]) if kind in ("tools", "prompts") and len(name) > 46 else None)
        if entry is None:
            return f"{kind}: {name} is missing"
        for member, since in LISTED[kind].items():
            if version >= since and (problem := differ(f"{member} of {entry[key]}", plain(entry.get(member)), plain(wanted.get(member)))):
                return problem
    return None


def contents(value, volatile):
    """What was read or prompted, without the URIs of what it holds."""
    value = plain(value, volatile)
    text = re.sub(r'"uri": "[^"]*"', '"uri": 0', json.dumps(value, sort_keys=True))
    return json.loads(text)


def differ_in_asking(step, got, reference):
    """That the client's side was asked something else, where a step is about that. For roots servers ask when they
    like: what they were told shows in the result."""
    if step["feature"] not in ("form", "url", "sampling"):
        return None
    asked, wanted = ([what for what in side["asked"] if what != "roots/list"] for side in (got, reference))
    return differ("what was asked", asked, wanted)


def wait_for_cancellation(path):
    """Whether the server has written that its call was cancelled."""
    deadline = time.monotonic() + harness.PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            if file.read() == "held\ncancelled\n":
                return True
        time.sleep(0.05)
    return False


def reason(text):
    return re.sub(r"[\s|]+", " ", text)[:300]


def judge(version, step, got, reference, through):
    """The verdict on a step, and why. `reference` is what the step brought where it certainly works."""
    if got is None:
        return "lost", "the client did not come to this step"
    if "absent" in got:
        return "absent", got["absent"]
    if "failed" in got:
        if got.get("hangs") and got.get("code") is None or "timed out" in got["failed"].lower():
            return "hangs", reason(got["failed"])
        if got.get("code") is not None or "McpError" in got["failed"] or "MCPError" in got["failed"]:
            return "refused", reason(got["failed"])
        return "lost", reason(got["failed"])
    do, volatile = step["do"], step.get("volatile", False)
    problem = None
    if do == "unknown":
        problem = None if got.get("code") == -32602 else f"answered with {json.dumps(got)[:300]}"
    elif do == "cancel":
        held = step["arguments"].get("file")
        if not got["byUs"]:
            problem = f"ended before it was cancelled: {got['ended']}"
        elif held and not wait_for_cancellation(held):
            problem = "the cancellation did not reach the server"
    elif do == "list":
        problem = compare_list(version, step["kind"], through, got["entries"], reference["entries"])
    elif do == "call":
        result, expected = got["result"], reference["result"]
        if result.get("isError") and not expected.get("isError"):
            return "refused", reason(str(result["content"][0].get("text", result)))
        if expected.get("isError") and not result.get("isError"):
            problem = "a failed call is no failure"
        problem = problem or compare_result(version, result, expected, volatile)
        problem = problem or differ_in_asking(step, got, reference)
        if not problem and step.get("progress"):
            # The oldest SDKs have no way to ask for progress.
            if got["progress"] == [] and version == "2024-11-05" and "late" not in got:
                return "absent", "no progress in this SDK"
            values = [update["progress"] for update in got["progress"]]
            if values != list(range(1, step["steps"] + 1)) or got.get("late"):
                problem = f"progress {values}, after the result {got.get('late')}"
    elif do in ("read", "links", "prompt", "complete", "logging"):
        key = {"read": "read", "links": "read", "prompt": "prompt", "complete": "completed", "logging": "messages"}[do]
        problem = differ(do, contents(got[key], volatile), contents(reference[key], volatile))
        problem = problem or differ_in_asking(step, got, reference)
    elif do in ("task", "app"):
        problem = differ(do, plain(got["saw"]), plain(reference["saw"])) or differ("what was asked", got["asked"], reference["asked"])
    return ("lost", reason(problem)) if problem else ("works", None)


class Matrix:
    """(client, version, server) → feature → (verdict, why), directly and through the daemon."""

    def __init__(self):
        self.rows = {}

    def note(self, row, leg, feature, verdict, why):
        """The worst of a feature's steps is its verdict."""
        cell = self.rows.setdefault(row, {}).setdefault(feature, {})
        before = cell.get(leg, ("absent", None))
        cell[leg] = max(before, (verdict, why), key=lambda found: VERDICTS.index(found[0]))

    def cells(self):
        for row, features in self.rows.items():
            for feature, cell in features.items():
                yield row, feature, cell.get("direct", ("absent", None)), cell.get("through", ("absent", None))

    def problems(self, expected):
        """What must not be: something lost or hanging through the daemon that is not so directly, or refused although it
        works directly."""
        found = []
        for row, feature, (direct, _), (verdict, why) in self.cells():
            worse = verdict == "refused" and direct == "works" or verdict == "absent" and direct == "works"
            if verdict in ("lost", "hangs") and verdict != direct or worse:
                client, version, server = row
                if any(pattern.search(f"{client} | {server} | {feature}") for pattern in expected):
                    continue
                found.append(f"{client} ({version}), {server}, {feature}: {verdict} (directly {direct}): {why}")
        return found

    def markdown(self, problems):
        used = [feature for feature in FEATURES if any(feature in features for features in self.rows.values())]
        lines = ["| client | version | server | " + " | ".join(used) + " |", "|---" * (3 + len(used)) + "|"]
        reasons = {}
        for (client, version, server), features in self.rows.items():
            words = []
            for feature in used:
                cell = features.get(feature, {})
                direct, (verdict, why) = cell.get("direct", ("absent", None))[0], cell.get("through", ("absent", None))
                if verdict == "refused":
                    verdict += f" {reasons.setdefault(why, len(reasons) + 1)}"
                if direct != verdict.split(" ")[0] and verdict != "absent":
                    verdict += {"absent": "*"}.get(direct, f" ({direct})")
                words.append("" if verdict == "absent" else verdict)
            lines.append(f"| {client} | {version} | {server} | " + " | ".join(words) + " |")
        lines += ["", "Empty: the server offers no such thing, or the client's SDK cannot do it. `*`: directly client and",
                  "server have no version in common, or the SDK alone cannot; in brackets what comes of it directly."]
        lines += ["", "Refused, with the reason that the client is given:", ""]
        lines += [f"{number}. {why}" for why, number in reasons.items()]
        lines += ["", "Problems:", "", *(f"- {problem}" for problem in problems)] if problems else []
        return "\n".join(lines) + "\n"
