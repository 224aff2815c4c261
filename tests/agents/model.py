"""A model on loopback that follows a script: it calls one tool of the agent's after the other, keeps what came back.

It speaks what the agents speak to theirs: Anthropic's messages, OpenAI's responses and chat completions, and Gemini's
generateContent, streamed. Whatever else it is asked for, such as a title, it answers with a word. It is not clever: of
the tools that a request offers it takes the one whose name ends as the step of the script says.
"""

import http.server
import json
import re
import sys
import threading

DONE = "The script is done."
WAIT = "WaitForMcpServers"
SEARCH = "ToolSearch"
MAX_SEARCHES = 20


class Model(http.server.ThreadingHTTPServer):
    """The model. `steps` are the tools to call with their arguments, one after the other. `offered` are the names of
    all tools that were offered, `requests` the paths that were asked for; `results` has for each step what the agent
    passed on of its answer, as it wrote it, and `bodies` the whole request that did. Arguments may be a function that makes
    them when it is their turn. `tokens` are those that answers said they took, in and out; `keys` what came as a key."""

    daemon_threads = True

    def __init__(self, steps):
        super().__init__(("127.0.0.1", 0), Handler)
        self.steps = steps
        self.offered, self.requests, self.results, self.bodies = set(), [], {}, {}
        self.tokens, self.keys = [0, 0], []
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """An agent that hangs up does so. What else goes wrong shows as an answer that is not there."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def decide(self, names, results, body):
        """What to do next: (number of the step, tool to call, its arguments), or (None, None, text to say)."""
        done = len(results)
        with self.lock:
            self.offered.update(names)
            if results:
                self.results.setdefault(done - 1, results[-1])
                self.bodies.setdefault(done - 1, body)
        if done >= len(self.steps):
            return None, None, DONE
        if WAIT in names:
            # Claude Code goes on while its servers are being connected to, and has a tool to wait for them.
            return "wait", WAIT, {}
        wanted, arguments = self.steps[done]
        name = next((name for name in names if name.endswith(wanted)), None)
        if not name:
            # Claude Code names the tools of its servers, and gives their definitions to a model that searches for them.
            text = json.dumps(body)
            named = re.search(rf"mcp__\w*{wanted}\b", text)
            if SEARCH in names and named and text.count("toolu_search") < 2 * MAX_SEARCHES:
                return "search", SEARCH, {"query": f"select:{named[0]}"}
            return None, None, "Well."
        return done, name, arguments() if callable(arguments) else arguments

    def took(self, read, wrote):
        """Counts the tokens of an answer."""
        with self.lock:
            self.tokens = [self.tokens[0] + read, self.tokens[1] + wrote]
        return read, wrote


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        self.answer({"data": [], "models": [], "object": "list"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        keys = [self.headers[name] for name in ("x-api-key", "authorization", "x-goog-api-key") if self.headers[name]]
        with self.server.lock:
            self.server.requests.append(path)
            self.server.keys.extend(keys)
        if path.endswith("/count_tokens"):
            self.answer({"input_tokens": 1})
        elif path.endswith("/messages"):
            self.anthropic_messages(body)
        elif path.endswith("/responses"):
            self.openai_responses(body)
        elif path.endswith("/chat/completions"):
            self.openai_completions(body)
        elif "enerateContent" in path:
            self.gemini(body, path)
        else:
            self.answer({})

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events, named=True):
        name = lambda event: f"event: {event['type']}\n" if named else ""
        data = "".join(f"{name(event)}data: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def anthropic_messages(self, body):
        names = [tool.get("name", "") for tool in body.get("tools") or []]
        contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
        parts = [part for content in contents for part in content]
        results = [part for part in parts
                   if part.get("type") == "tool_result" and part["tool_use_id"] not in ("toolu_wait", "toolu_search")]
        step, tool, what = self.server.decide(names, results, body)
        use = {"type": "tool_use", "id": f"toolu_{step}", "name": tool, "input": {}}
        block = use if tool else {"type": "text", "text": ""}
        delta = ({"type": "input_json_delta", "partial_json": json.dumps(what)} if tool
                 else {"type": "text_delta", "text": what})
        read, wrote = self.server.took(len(json.dumps(body)) // 4, 7)
        message = {"id": f"msg_{step}", "type": "message", "role": "assistant", "model": body.get("model", "m"),
                   "content": [], "stop_reason": None, "stop_sequence": None,
                   "usage": {"input_tokens": read, "output_tokens": 1}}
        reason = "tool_use" if tool else "end_turn"
        if not body.get("stream"):
            whole = block | ({"input": what} if tool else {"text": what})
            usage = {"input_tokens": read, "output_tokens": wrote}
            return self.answer(message | {"content": [whole], "stop_reason": reason, "usage": usage})
        self.stream([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
             "usage": {"output_tokens": wrote}},
            {"type": "message_stop"},
        ])

    def openai_responses(self, body):
        # A server's tools may stand in a namespace of its own.
        items = body.get("input") if isinstance(body.get("input"), list) else []
        names, spaces = [], {}
        for tool in body.get("tools") or []:
            for inner in tool.get("tools") or [tool]:
                names.append(inner.get("name", ""))
                if inner is not tool:
                    spaces[inner.get("name", "")] = tool.get("name")
        results = [item for item in items if item.get("type") == "function_call_output"]
        step, tool, what = self.server.decide(names, results, body)
        if tool:
            item = {"type": "function_call", "id": f"fc_{step}", "call_id": f"call_{step}", "name": tool,
                    "arguments": json.dumps(what)}
            if tool in spaces:
                item["namespace"] = spaces[tool]
        else:
            item = {"type": "message", "id": "msg_1", "role": "assistant",
                    "content": [{"type": "output_text", "text": what, "annotations": []}]}
        read, wrote = self.server.took(len(json.dumps(body)) // 4, 7)
        usage = {"input_tokens": read, "input_tokens_details": None, "output_tokens": wrote,
                 "output_tokens_details": None, "total_tokens": read + wrote}
        response = f"resp_{step}"
        self.stream([
            {"type": "response.created", "response": {"id": response}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": response, "usage": usage, "output": [item]}},
        ])

    def openai_completions(self, body):
        names = [tool.get("function", {}).get("name", "") for tool in body.get("tools") or []]
        results = [message for message in body["messages"] if message["role"] == "tool"]
        step, tool, what = self.server.decide(names, results, body)
        call = {"index": 0, "id": f"call_{step}", "type": "function",
                "function": {"name": tool, "arguments": json.dumps(what)}}
        said = {"role": "assistant", **({"tool_calls": [call]} if tool else {"content": what})}
        reason = "tool_calls" if tool else "stop"
        head = {"id": f"c{step}", "created": 0, "model": body.get("model", "m")}
        read, wrote = self.server.took(len(json.dumps(body)) // 4, 7)
        usage = {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
        if not body.get("stream"):
            choice = {"index": 0, "message": said, "finish_reason": reason}
            return self.answer(head | {"object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = head | {"object": "chat.completion.chunk"}
        events = [chunk | {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
                  chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}]
        if (body.get("stream_options") or {}).get("include_usage"):
            events.append(chunk | {"choices": [], "usage": usage})
        self.stream(events, named=False)

    def gemini(self, body, path):
        names = [f.get("name", "") for tool in body.get("tools") or [] for f in tool.get("functionDeclarations") or []]
        parts = [part for content in body.get("contents") or [] for part in content.get("parts") or []]
        results = [part for part in parts if "functionResponse" in part]
        _, tool, what = self.server.decide(names, results, body)
        part = {"functionCall": {"name": tool, "args": what}} if tool else {"text": what}
        read, wrote = self.server.took(len(json.dumps(body)) // 4, 7)
        answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
                  "usageMetadata": {"promptTokenCount": read, "candidatesTokenCount": wrote,
                                    "totalTokenCount": read + wrote}}
        if "stream" in path:
            self.stream([answer], named=False)
        else:
            self.answer(answer)
