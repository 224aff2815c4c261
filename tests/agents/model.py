"""A model on loopback that follows a script: it calls one tool of the agent's, and then says what came back.

It speaks what the agents speak to theirs: Anthropic's messages, OpenAI's responses and chat completions, and Gemini's
generateContent, streamed. Whatever else it is asked for, such as a title, it answers with a word. It is not clever: of
the tools that a request offers it takes the one whose name ends as the script says.
"""

import http.server
import json
import threading

DONE = "The tool said: "


def of_content(content):
    """The text in a content of any of the three shapes."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(of_content(part) for part in content)
    if isinstance(content, dict):
        return of_content(content.get("text") or content.get("content") or content.get("output") or json.dumps(content))
    return json.dumps(content)


class Model(http.server.ThreadingHTTPServer):
    """The model. `offered` are the names of all tools that were offered, `results` what calls brought back."""

    daemon_threads = True

    def __init__(self, tool, arguments):
        super().__init__(("127.0.0.1", 0), Handler)
        self.tool, self.arguments = tool, arguments
        self.offered, self.results, self.asked = set(), [], []
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def decide(self, names, results):
        """(tool to call or None, text to say or None)."""
        with self.lock:
            self.offered.update(names)
            self.results.extend(result for result in results if result not in self.results)
        if results:
            return None, DONE + results[-1]
        wanted = next((name for name in names if name.endswith(self.tool)), None)
        return wanted, None if wanted else "Well."


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
        with self.server.lock:
            self.server.asked.append((path, body))
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
        results = [of_content(part.get("content", "")) for part in parts if part.get("type") == "tool_result"]
        tool, text = self.server.decide(names, results)
        use = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
        block = use if tool else {"type": "text", "text": ""}
        delta = ({"type": "input_json_delta", "partial_json": json.dumps(self.server.arguments)} if tool
                 else {"type": "text_delta", "text": text})
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model", "m"),
                   "content": [], "stop_reason": None, "stop_sequence": None,
                   "usage": {"input_tokens": 1, "output_tokens": 1}}
        reason = "tool_use" if tool else "end_turn"
        if not body.get("stream"):
            whole = block | ({"input": self.server.arguments} if tool else {"text": text})
            return self.answer(message | {"content": [whole], "stop_reason": reason})
        self.stream([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
             "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ])

    def openai_responses(self, body):
        # A server's tools may stand in a namespace of its own.
        names, spaces = [], {}
        for tool in body.get("tools") or []:
            for inner in tool.get("tools") or [tool]:
                names.append(inner.get("name", ""))
                if inner is not tool:
                    spaces[inner.get("name", "")] = tool.get("name")
        items = body.get("input") if isinstance(body.get("input"), list) else []
        results = [of_content(item.get("output", "")) for item in items if item.get("type") == "function_call_output"]
        tool, text = self.server.decide(names, results)
        if tool:
            item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool,
                    "arguments": json.dumps(self.server.arguments)}
            if tool in spaces:
                item["namespace"] = spaces[tool]
        else:
            item = {"type": "message", "id": "msg_1", "role": "assistant",
                    "content": [{"type": "output_text", "text": text, "annotations": []}]}
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
                 "total_tokens": 2}
        self.stream([
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "resp_1", "usage": usage, "output": [item]}},
        ])

    def openai_completions(self, body):
        names = [tool.get("function", {}).get("name", "") for tool in body.get("tools") or []]
        results = [of_content(message["content"]) for message in body["messages"] if message["role"] == "tool"]
        tool, text = self.server.decide(names, results)
        call = {"index": 0, "id": "call_1", "type": "function",
                "function": {"name": tool, "arguments": json.dumps(self.server.arguments)}}
        said = {"role": "assistant", **({"tool_calls": [call]} if tool else {"content": text})}
        reason = "tool_calls" if tool else "stop"
        head = {"id": "c1", "created": 0, "model": body.get("model", "m")}
        if not body.get("stream"):
            choice = {"index": 0, "message": said, "finish_reason": reason}
            return self.answer(head | {"object": "chat.completion", "choices": [choice],
                                       "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
        chunk = head | {"object": "chat.completion.chunk"}
        self.stream([
            chunk | {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
            chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        ], named=False)

    def gemini(self, body, path):
        names = [f.get("name", "") for tool in body.get("tools") or [] for f in tool.get("functionDeclarations") or []]
        parts = [part for content in body.get("contents") or [] for part in content.get("parts") or []]
        results = [of_content(part["functionResponse"].get("response")) for part in parts if "functionResponse" in part]
        tool, text = self.server.decide(names, results)
        part = {"functionCall": {"name": tool, "args": self.server.arguments}} if tool else {"text": text}
        answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
                  "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
        if "stream" in path:
            self.stream([answer], named=False)
        else:
            self.answer(answer)
