#!/usr/bin/env python3
"""Claude Code and Codex with a task each, while `colibri-mcp otlp` follows: the trace of each from its task to its calls,
read by the official definitions (PyPI's opentelemetry-proto), and nothing of the key or the texts in it.

usage: exported.py [--bin DIR] [--agents DIR]

The directories are those of own.py. Needs the Python that has opentelemetry-proto.
"""

import argparse
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/interop"))

import own
from home import LIMIT_S, Home, need
from otlp import Collector

# Texts of a task, of arguments and of what a model said, and the key: what no span may have.
SECRETS = [own.KEY, own.WORD, "Echo a word"]


def tree(spans, parent=b""):
    """The names of spans by those below them, in the order of their beginnings."""
    below = sorted((span for span in spans if span.parent_span_id == parent), key=lambda span: span.start_time_unix_nano)
    return [(span.name, tree(spans, span.span_id)) for span in below]


def attributes(span):
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def whole(spans, name, instance, model):
    """Sees to it that one trace has the agent's task, below it its run, and below that all its requests and calls."""
    [run] = [span for span in spans if span.name == f"invoke_agent {name}"]
    trace = [span for span in spans if span.trace_id == run.trace_id]
    [(task, runs)] = tree(trace)
    need(task == "task" and [one for one, _ in runs] == [run.name], f"{name}: {task}, {runs}")
    made = [one for one, _ in runs[0][1]]
    calls = [one for one in made if one.startswith("tools/call ")]
    need(calls == [f"tools/call {one}" for one in ("colibri_next_task", "echo", "colibri_finish_task")], f"{name}: {made}")
    chats = [span for span in trace if span.name.startswith("chat")]
    need(len(chats) == len([one for one in made if one.startswith("chat")]) == len(model.keys), f"{name}: {made}")
    for key, counted in zip(("input_tokens", "output_tokens"), model.tokens):
        told = sum(attributes(span)[f"gen_ai.usage.{key}"] for span in chats)
        need(told == attributes(run)[f"gen_ai.usage.{key}"] == counted, f"{name}: {told} {key}, the model counted {counted}")
    need(instance["calls"] <= len(made), f"{name}: {instance['calls']} calls, {made}")
    return f"{name}: {len(trace)} spans, {len(chats)} of the model, {len(calls)} of tools"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "target/release")
    parser.add_argument("--agents", type=pathlib.Path, default=ROOT / "target/agents")
    arguments = parser.parse_args()
    collector = Collector(429)
    with Home("exported", arguments.bin.resolve()) as home:
        own.with_server(home)
        models = {name: own.Script() for name in own.CLIENTS}
        for name, model in models.items():
            own.with_agent(home, name, arguments.agents.resolve(), model)
        exporter = home.start([home.client, "otlp", "--endpoint", collector.url, "--all"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        instances = {name: own.from_task_to_result(home, name, model) for name, model in models.items()}
        until = time.monotonic() + LIMIT_S
        while len([span for span in collector.spans() if span.name.startswith("invoke_agent ")]) < len(models):
            need(exporter.poll() is None and time.monotonic() < until, "the runs did not come")
            time.sleep(0.1)
        exporter.terminate()
        said = exporter.communicate(timeout=LIMIT_S)[0]
        need(exporter.returncode == 0 and ", 0 dropped" in said, said)
        for secret in SECRETS:
            need(not any(secret.encode() in body for body in collector.bodies), f"a span has {secret!r}")
        for name, model in models.items():
            print(whole(collector.spans(), name, instances[name], model), flush=True)


if __name__ == "__main__":
    main()
