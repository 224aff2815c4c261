//! The table of `docs/roads.md` over the built programs: the limits of one policy, met on each road
//! by which a call comes. `tests/sources/roads.rs` holds the table.

mod changed;
mod held;
mod named;
mod refused;

use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use colibri_tests::http::Http;
use colibri_tests::{Bridge, Client, Daemon, Era, LEGACY, Place, code_of, text_of, wait_for};
use serde_json::{Value, json};

/// The road of a call of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolRoad {
    Lines,
    HttpSession,
    HttpRequest,
    AgentSocket,
    Script,
    /// A script that an agent runs.
    AgentScript,
    CallTool,
    ExternalCallTool,
    /// The same two of an agent.
    AgentCallTool,
    AgentExternalCallTool,
    /// The bridge, and the gate for one server that an SSH key leads to.
    SshGate,
}

impl ToolRoad {
    const ALL: [ToolRoad; 11] = [
        ToolRoad::Lines,
        ToolRoad::HttpSession,
        ToolRoad::HttpRequest,
        ToolRoad::AgentSocket,
        ToolRoad::Script,
        ToolRoad::AgentScript,
        ToolRoad::CallTool,
        ToolRoad::ExternalCallTool,
        ToolRoad::AgentCallTool,
        ToolRoad::AgentExternalCallTool,
        ToolRoad::SshGate,
    ];

    /// The roads of an agent.
    const OF_AGENTS: [ToolRoad; 4] = [
        ToolRoad::AgentSocket,
        ToolRoad::AgentScript,
        ToolRoad::AgentCallTool,
        ToolRoad::AgentExternalCallTool,
    ];

    fn is_script(self) -> bool {
        matches!(self, ToolRoad::Script | ToolRoad::AgentScript)
    }

    fn is_agents(self) -> bool {
        ToolRoad::OF_AGENTS.contains(&self)
    }
}

/// Runs the assertion of a test that is red because of a row of the findings or of
/// `docs/attacks.md`. Only the assertion belongs in `body`: a fixture that fails is no finding.
///
/// # Panics
/// If the assertion holds: the row is closed.
fn expected_to_fail(row: &str, body: impl FnOnce()) {
    let outcome = catch_unwind(AssertUnwindSafe(body));
    assert!(
        outcome.is_err(),
        "row {row} is closed: make this an ordinary test"
    );
}

/// The end of a call: the code of Colibri's error, or the text of its result.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Code(String),
    Text(String),
}

impl Outcome {
    fn of(message: &Value) -> Outcome {
        match code_of(message) {
            Some(code) => Outcome::Code(code.to_owned()),
            None if message["result"].is_null() => {
                let text = message["error"]["message"].as_str().unwrap_or_default();
                // What is hidden from an agent is answered as what is not there.
                if text.starts_with("unknown tool") {
                    return Outcome::Code("NO_SUCH_TOOL".to_owned());
                }
                // A session that sees one server alone is refused with it.
                if text.contains("policy does not say which") {
                    return Outcome::Code("POLICY_DENIED".to_owned());
                }
                Outcome::Code(message["error"].to_string())
            }
            None => Outcome::Text(text_of(&message["result"]).to_owned()),
        }
    }

    fn code(&self) -> &str {
        match self {
            Outcome::Code(code) => code,
            Outcome::Text(_) => "",
        }
    }
}

/// A client policy whose one user is the test's, an operator who decides about their own calls,
/// with these further keys.
fn policy(more: &Value) -> Value {
    let mut rights = json!({ "gates": ["write", "external-call"], "servers": { "*": ["*"] }, "operator": true,
        "self_approve": true });
    for (key, value) in more.as_object().into_iter().flatten() {
        rights[key] = value.clone();
    }
    json!({ "users": { nix::unistd::geteuid().to_string(): rights } })
}

/// Writes a registry with these servers and an agent `coder` that stays, with these further keys.
fn with_agent(place: &Place, servers: &Value, more: &Value) {
    let stays = "while :; do sleep 1; done";
    let mut coder = json!({ "command": "/bin/sh", "args": ["-c", stays, place.directory()], "stdin": "null",
        "events": "claude", "tools": { "*": { "allow": ["*"] } }, "max": 8 });
    for (key, value) in more.as_object().into_iter().flatten() {
        coder[key] = value.clone();
    }
    place.registry_text(&json!({ "servers": servers, "agents": { "coder": coder } }).to_string());
}

/// A client on a road.
struct Caller<'a> {
    road: ToolRoad,
    place: &'a Place,
    link: Link,
    /// The id of the call that was sent last on a connection of lines.
    last: u64,
}

/// The connection of a client.
enum Link {
    Lines(Client),
    Session(Http, String),
    Request(Http),
    /// A bridge for each call, which leads to one server.
    Gate(Option<Bridge>),
}

/// The connection of a new instance of the agent.
fn spawn_agent(place: &Place, daemon: &Daemon<'_>) -> Client {
    let answer = daemon
        .legacy(LEGACY)
        .ask("colibri/spawn-agent", json!({ "agent": "coder" }));
    let session = answer["result"]["instance"]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    let socket = place.path("doors").join(session).join("colibri.sock");
    let mut client = Client::over(UnixStream::connect(socket).unwrap());
    client.open(LEGACY);
    client
}

impl<'a> Caller<'a> {
    fn new(place: &'a Place, daemon: &Daemon<'_>, road: ToolRoad) -> Caller<'a> {
        let link = match road {
            ToolRoad::HttpSession => {
                let mut http = daemon.http();
                let session = http.open(LEGACY);
                Link::Session(http, session)
            }
            ToolRoad::HttpRequest => Link::Request(daemon.http()),
            ToolRoad::SshGate => Link::Gate(None),
            road if road.is_agents() => Link::Lines(spawn_agent(place, daemon)),
            _ => Link::Lines(daemon.quiet(LEGACY)),
        };
        Caller {
            road,
            place,
            link,
            last: 0,
        }
    }

    /// Calls a tool of Colibri's own.
    fn own(&mut self, tool: &str, arguments: Value) -> Value {
        self.begin_named(tool, arguments, &json!({}));
        self.end()
    }

    /// Sends a call of a tool by its road, with further members of its parameters.
    fn begin(&mut self, server: &str, tool: &str, arguments: Value, more: &Value) {
        if let Link::Gate(link) = &mut self.link {
            let mut bridge = Bridge::start(self.place.colibri_mcp(&["ssh-gate", server]));
            bridge.era = Era::Legacy;
            *link = Some(bridge);
            // Its session has one server, whose tools have their own names there. A call without a
            // handshake is one of 2026-07-28 that lacks what such a call has, so it comes first.
            let handshake = json!({ "protocolVersion": LEGACY, "capabilities": {},
                "clientInfo": { "name": "e2e", "version": "1" } });
            let bridge = link.as_mut().expect("a bridge to one server");
            self.last = bridge.request("initialize", handshake);
            let answer = bridge.answer(self.last);
            if answer["error"].is_object() {
                // The account or the server is refused with the session.
                bridge.others.push_back(answer);
                return;
            }
            return self.begin_named(tool, arguments, more);
        }
        let named = format!("{server}__{tool}");
        let (name, arguments) = match self.road {
            ToolRoad::CallTool | ToolRoad::AgentCallTool => (
                "colibri_call_tool".to_owned(),
                json!({ "tool": named, "arguments": arguments }),
            ),
            ToolRoad::ExternalCallTool | ToolRoad::AgentExternalCallTool => (
                "colibri_external_mcp_call_tool".to_owned(),
                json!({ "server": server, "tool": tool, "arguments": arguments }),
            ),
            ToolRoad::Script | ToolRoad::AgentScript => {
                let script = format!(
                    "try {{ return ['text', await tools[{server:?}][{tool:?}]({arguments})] }} \
                     catch (e) {{ return ['code', e.code] }}"
                );
                (
                    "colibri_run_script".to_owned(),
                    json!({ "script": script, "timeout_s": 60 }),
                )
            }
            _ => (named, arguments),
        };
        self.begin_named(&name, arguments, more);
    }

    fn begin_named(&mut self, name: &str, arguments: Value, more: &Value) {
        let mut params = json!({ "name": name, "arguments": arguments });
        for (key, value) in more.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        match &mut self.link {
            Link::Lines(client) => {
                self.last = client.request("tools/call", params);
            }
            Link::Session(http, session) => {
                let body =
                    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
                http.in_session(session, &body.to_string());
            }
            Link::Request(http) => {
                http.ask(json!(7), "tools/call", params);
            }
            Link::Gate(bridge) => {
                let bridge = bridge.as_mut().expect("a bridge to one server");
                self.last = bridge.request("tools/call", params);
            }
        }
    }

    /// The answer to the call that was sent last.
    fn end(&mut self) -> Value {
        match &mut self.link {
            Link::Lines(client) => client.answer(self.last),
            Link::Session(http, _) | Link::Request(http) => {
                let response = http.response();
                if !response.is_stream() {
                    return response.json();
                }
                let answer = http.events().into_iter().map(|event| event.message);
                answer
                    .into_iter()
                    .find(|message| message["id"] == 7)
                    .expect("an answer")
            }
            Link::Gate(bridge) => {
                let mut bridge = bridge.take().expect("a bridge to one server");
                let answer = bridge.answer(self.last);
                bridge.end();
                answer
            }
        }
    }

    /// Calls a tool by its road.
    fn call(&mut self, server: &str, tool: &str, arguments: Value) -> Outcome {
        self.call_with(server, tool, arguments, &json!({}))
    }

    fn call_with(&mut self, server: &str, tool: &str, arguments: Value, more: &Value) -> Outcome {
        self.begin(server, tool, arguments, more);
        let answer = self.end();
        self.outcome(&answer)
    }

    /// The end of the call of which this is the answer; of a script, that of the call within it.
    fn outcome(&self, answer: &Value) -> Outcome {
        let outcome = Outcome::of(answer);
        match &outcome {
            Outcome::Text(text) if self.road.is_script() => {
                let inner: Value = serde_json::from_str(text)
                    .unwrap_or_else(|_| panic!("a script returns a pair: {answer}"));
                let value = match &inner[1] {
                    Value::String(text) => text.clone(),
                    value => value.to_string(),
                };
                match inner[0] == "code" {
                    true => Outcome::Code(value),
                    false => Outcome::Text(value),
                }
            }
            _ => outcome,
        }
    }
}

/// Makes calls by a road until one has this code, and shows that there is one.
fn exhaust(caller: &mut Caller<'_>, tool: &str, arguments: &Value, code: &str) {
    let mut last = None;
    for _ in 0..1000 {
        let outcome = caller.call("plain", tool, arguments.clone());
        if outcome.code() == code {
            return;
        }
        last = Some(outcome);
    }
    panic!("{:?}: no {code}: {last:?}", caller.road);
}

/// Makes long results until the budget of a caller's user is spent.
fn spend_budget(caller: &mut Caller<'_>) {
    exhaust(caller, "huge", &json!({ "bytes": 900_000 }), "BUDGET_SPENT");
}

/// Writes the definitions of a server's tools, described so.
fn define(place: &Place, server: &str, tools: &[&str], description: &str) {
    let schema = json!({ "type": "object" });
    let tool =
        |name: &&str| json!({ "name": name, "description": description, "inputSchema": schema });
    let tools: Vec<Value> = tools.iter().map(tool).collect();
    place.defines(server, "definitions", &json!(tools).to_string());
}

/// Changes the definitions of a server's tools, `echo` and `change_tools` among them, and waits
/// until that is seen.
fn change_definitions(caller: &mut Caller<'_>, server: &str, tools: &[&str]) {
    define(caller.place, server, tools, "another text");
    caller.call(server, "change_tools", json!({}));
    wait_for("the change to be seen", || {
        let outcome = caller.call(server, "echo", json!({}));
        (outcome.code() == "PIN_CHANGED").then_some(())
    });
}

/// Makes calls whose last attempt fails in a way that could pass, until the breaker is open.
fn open_breaker(caller: &mut Caller<'_>, server: &str) {
    wait_for("the breaker to open", || {
        let outcome = caller.call(server, "frame", json!({ "case": "broken" }));
        (outcome.code() == "INTEGRATION_UNAVAILABLE").then_some(())
    });
}

/// Makes a call that nothing refuses: true if it waits for a person, who then denies it; false if
/// its server has got it.
fn is_held(
    daemon: &Daemon<'_>,
    caller: &mut Caller<'_>,
    server: &str,
    tool: &str,
    arguments: Value,
) -> bool {
    let place = caller.place;
    let before = received(place, server, "tools/call");
    caller.begin(server, tool, arguments, &json!({}));
    let is_held = wait_until_held(daemon, place, (server, "tools/call"), before);
    let answer = caller.end();
    let outcome = caller.outcome(&answer);
    assert_eq!(outcome.code() == "APPROVAL_DENIED", is_held, "{answer}");
    is_held
}

/// The requests of a method that a server has received.
fn received(place: &Place, server: &str, method: &str) -> usize {
    place.received(server, &format!("\"{method}\"")).len()
}

/// Waits until a request waits for a person, who then denies it, or until its server has received
/// more than `before` of its kind: true if it waited.
fn wait_until_held(
    daemon: &Daemon<'_>,
    place: &Place,
    (server, method): (&str, &str),
    before: usize,
) -> bool {
    let mut operator = daemon.quiet(LEGACY);
    let is_held = wait_for("a call to wait or to be sent", || {
        let answer = operator.ask("colibri/approvals", json!({}));
        if answer["result"]["approvals"][0].is_object() {
            return Some(true);
        }
        (received(place, server, method) > before).then_some(false)
    });
    if is_held {
        decide(daemon, "deny");
    }
    is_held
}

/// Decides about the one call that waits, and returns the rule for which it did.
fn decide(daemon: &Daemon<'_>, how: &str) -> String {
    let mut operator = daemon.quiet(LEGACY);
    let waiting = wait_for("a call to wait", || {
        let answer = operator.ask("colibri/approvals", json!({}));
        answer["result"]["approvals"].get(0).cloned()
    });
    let decided = operator.ask(&format!("colibri/{how}"), json!({ "id": waiting["id"] }));
    assert!(decided["error"].is_null(), "{decided}");
    waiting["rule"].as_str().unwrap().to_owned()
}
