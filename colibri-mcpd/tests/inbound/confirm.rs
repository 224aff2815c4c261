//! Calls that a person has to confirm, of clients in both eras whose program or whose person
//! replies: over pipes, under a clock that jumps to the next thing that happens.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use colibri_mcpd::inbound::InboundConnection;
use colibri_mcpd::inbound::lines::{LineInput, serve};
use colibri_policy::{Clients, DEFAULT_EXPIRY, SystemAccounts};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, DuplexStream, ReadBuf,
};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::OPEN;
use super::world::{PERSON, World, code};

const REGISTRY: &str = r#"{"servers":{"git":{"command":"/m/git","tools":{"confirm":["status"]}}}}"#;
/// The longest time in which a reply is the program's.
const PROGRAM: Duration = Duration::from_millis(150);
/// A time that a person takes.
const PERSON_TAKES: Duration = Duration::from_millis(151);
const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
/// More steps of the scheduler than a message takes from a client to its call.
const STEPS: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Era {
    Legacy,
    Modern,
}

/// What a client writes. Like a socket it says when the client is gone.
struct ClientPipe {
    pipe: DuplexStream,
    alive: watch::Receiver<()>,
}

impl AsyncRead for ClientPipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(context, into)
    }
}

impl LineInput for ClientPipe {
    async fn hung_up(&self) {
        let _ = self.alive.clone().changed().await;
    }
}

/// A client that can be asked for a confirmation.
struct TestClient {
    era: Era,
    /// Members of `_meta` of each request.
    meta: Value,
    reader: BufReader<DuplexStream>,
    writer: DuplexStream,
    /// Dropped with it.
    _alive: watch::Sender<()>,
    next: u64,
}

/// A call about which the client was asked.
struct AskedCall {
    params: Value,
    /// The call of a legacy client.
    call: u64,
    /// The daemon's request to a legacy client; the state for a modern one's retry.
    request: Value,
}

impl TestClient {
    async fn connect(world: &World, era: Era) -> TestClient {
        TestClient::named(world, era, "t", json!({})).await
    }

    async fn named(world: &World, era: Era, name: &str, mut meta: Value) -> TestClient {
        let (writer, requests) = tokio::io::duplex(64 << 10);
        let (answers, reader) = tokio::io::duplex(64 << 10);
        let (alive, gone) = watch::channel(());
        let connection = InboundConnection::enter(world.daemon.clone(), PERSON);
        let pipe = ClientPipe {
            pipe: requests,
            alive: gone,
        };
        tokio::spawn(serve(connection, pipe, answers));
        let info = json!({"name": name, "version": "1"});
        if era == Era::Modern {
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientInfo"] = info.clone();
            meta["io.modelcontextprotocol/clientCapabilities"] =
                json!({"elicitation": {"form": {}}});
        }
        let mut client = TestClient {
            era,
            meta,
            reader: BufReader::new(reader),
            writer,
            _alive: alive,
            next: 1,
        };
        if era == Era::Legacy {
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": info});
            let id = client.begin("initialize", params).await;
            client.answer(id).await;
            client.notify("notifications/initialized", json!({})).await;
        }
        client
    }

    async fn send(&mut self, message: Value) {
        self.writer
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    async fn cancel(&mut self, id: u64) {
        self.notify("notifications/cancelled", json!({"requestId": id}))
            .await;
    }

    async fn begin(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    /// The next message, past changes of lists.
    async fn message(&mut self) -> Value {
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).await.unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if !message["method"]
                .as_str()
                .unwrap_or_default()
                .ends_with("/list_changed")
            {
                return message;
            }
        }
    }

    /// The answer to a request, past notifications.
    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.message().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Makes a call, up to the request to the person.
    async fn call(&mut self, tool: &str, arguments: Value) -> AskedCall {
        let params = json!({"name": tool, "arguments": arguments, "_meta": self.meta});
        let call = self.begin("tools/call", params.clone()).await;
        loop {
            let message = self.message().await;
            let request = match self.era {
                Era::Legacy if message["method"] == "elicitation/create" => message["id"].clone(),
                Era::Modern if message["id"] == call => {
                    assert_eq!(
                        message["result"]["resultType"], "input_required",
                        "{message}"
                    );
                    message["result"]["requestState"].clone()
                }
                _ => continue,
            };
            return AskedCall {
                params,
                call,
                request,
            };
        }
    }

    /// Replies to the request. Returns the id that gets the answer to the call.
    async fn reply(&mut self, asked: &AskedCall, action: &str) -> u64 {
        match self.era {
            Era::Legacy => {
                let result = json!({"action": action});
                self.send(json!({"jsonrpc": "2.0", "id": asked.request, "result": result}))
                    .await;
                asked.call
            }
            Era::Modern => {
                let mut params = asked.params.clone();
                params["requestState"] = asked.request.clone();
                params["inputResponses"] = json!({"confirm": {"action": action}});
                self.begin("tools/call", params).await
            }
        }
    }

    /// Everything that the client gets within a second.
    async fn hears_nothing_of(&mut self, id: u64) {
        while let Ok(message) = timeout(Duration::from_secs(1), self.message()).await {
            assert!(
                message["id"] != id || message.get("method").is_some(),
                "{message}"
            );
        }
    }
}

/// The ids of the calls that wait for an operator, as soon as there are so many.
async fn waiting(world: &World, count: usize) -> Vec<String> {
    for _ in 0..10_000 {
        let list = world.daemon.chain.approvals.list();
        if list.len() == count {
            return list.into_iter().map(|approval| approval.id).collect();
        }
        yield_now().await;
    }
    panic!("{:?}", world.daemon.chain.approvals.list());
}

/// True if an operator's decision about a call is taken.
fn decides(world: &World, id: &str, approve: bool) -> bool {
    world
        .daemon
        .chain
        .approvals
        .decide(id, approve, 0, false)
        .is_ok()
}

fn is_made(answer: &Value) -> bool {
    answer["result"]["content"][0]["text"] == "status {}"
}

/// The outcome and the author of each reply in the trail.
fn replies(world: &World) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let trail = world.trail().into_iter();
    trail
        .filter(|record| record["event"] == "answered")
        .map(|record| {
            (
                text(&record["details"]["outcome"]),
                text(&record["details"]["answered_by"]),
            )
        })
        .collect()
}

/// Each call has one end, and nothing waits.
fn assert_is_quiet(world: &World) {
    assert!(world.daemon.chain.approvals.list().is_empty());
    let trail = world.trail();
    let of = |kind: &str, member: &str| {
        let mut numbers: Vec<_> = trail
            .iter()
            .filter(|record| record["kind"] == kind)
            .collect();
        numbers.retain(|record| !record[member].is_null());
        numbers
            .into_iter()
            .map(|record| record[member].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let (mut entered, mut left) = (of("enter", "n"), of("exit", "enter"));
    // The first record of a call whose server was not known yet is continued by another.
    let continued = of("enter", "continues");
    entered.retain(|n| !continued.contains(n) || left.contains(n));
    left.sort_unstable();
    assert_eq!(entered, left);
}

#[tokio::test(start_paused = true)]
async fn a_reply_decides_if_a_person_can_have_given_it() {
    for era in ERAS {
        for (took, action, decided, author) in [
            (Duration::ZERO, "accept", None, "program"),
            (Duration::ZERO, "decline", None, "program"),
            (Duration::ZERO, "cancel", None, "program"),
            (PROGRAM, "accept", None, "program"),
            (PERSON_TAKES, "accept", Some(true), "person"),
            (PERSON_TAKES, "decline", Some(false), "person"),
            (PERSON_TAKES, "cancel", Some(false), "person"),
            // What cannot be read decides nothing.
            (PERSON_TAKES, "yes", None, ""),
        ] {
            let shown = format!("{era:?} {took:?} {action}");
            let world = World::new(REGISTRY, OPEN).await;
            let mut client = TestClient::connect(&world, era).await;
            let asked = client.call("git__status", json!({})).await;
            sleep(took).await;
            let id = client.reply(&asked, action).await;
            if decided.is_none() {
                // Not before somebody has decided.
                client.hears_nothing_of(id).await;
                let id = waiting(&world, 1).await.remove(0);
                assert!(decides(&world, &id, true), "{shown}");
            }
            let answer = client.answer(id).await;
            assert_eq!(
                is_made(&answer),
                decided.unwrap_or(true),
                "{shown} {answer}"
            );
            if decided == Some(false) {
                assert_eq!(code(&answer), "APPROVAL_DENIED", "{shown} {answer}");
            }
            let outcome = if author.is_empty() {
                "unreadable"
            } else {
                action
            };
            assert_eq!(
                replies(&world),
                [(outcome.to_owned(), author.to_owned())],
                "{shown}"
            );
            assert_is_quiet(&world);
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_reply_of_a_client_without_a_person_is_the_programs() {
    let turn = |trigger: &str| json!({"x-codex-turn-metadata": {"turn_trigger": trigger}});
    for era in ERAS {
        for (trigger, author) in [("exec", "program"), ("user", "person")] {
            let world = World::new(REGISTRY, OPEN).await;
            let mut client =
                TestClient::named(&world, era, "codex-mcp-client", turn(trigger)).await;
            let asked = client.call("git__status", json!({})).await;
            sleep(Duration::from_secs(10)).await;
            let id = client.reply(&asked, "accept").await;
            if author == "program" {
                client.hears_nothing_of(id).await;
                let id = waiting(&world, 1).await.remove(0);
                assert!(decides(&world, &id, true));
            }
            assert!(is_made(&client.answer(id).await), "{era:?} {trigger}");
            assert_eq!(
                replies(&world),
                [("accept".to_owned(), author.to_owned())],
                "{era:?}"
            );
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_ours_that_a_program_accepts_waits_as_well() {
    for era in ERAS {
        let world = World::new(REGISTRY, OPEN).await;
        let mut client = TestClient::connect(&world, era).await;
        let arguments = json!({"title": "t", "share": "all"});
        let asked = client.call("colibri_create_task", arguments).await;
        let id = client.reply(&asked, "accept").await;
        let waits = waiting(&world, 1).await.remove(0);
        assert!(decides(&world, &waits, false));
        assert_eq!(code(&client.answer(id).await), "APPROVAL_DENIED", "{era:?}");
        assert_is_quiet(&world);
        world.end().await;
    }
}

/// The end of a call whose client's program has replied.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Approval,
    Denial,
    Expiry,
    Cancellation,
    Disconnect,
    DaemonEnds,
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_program_replied_ends_as_one_whose_client_cannot_be_asked() {
    for era in ERAS {
        for end in [
            End::Approval,
            End::Denial,
            End::Expiry,
            End::Cancellation,
            End::Disconnect,
            End::DaemonEnds,
        ] {
            let shown = format!("{era:?} {end:?}");
            let world = World::new(REGISTRY, OPEN).await;
            let mut client = TestClient::connect(&world, era).await;
            let asked = client.call("git__status", json!({})).await;
            let id = client.reply(&asked, "decline").await;
            let waits = waiting(&world, 1).await.remove(0);
            // The program cannot take its reply back.
            let again = client.reply(&asked, "accept").await;
            if era == Era::Modern {
                let answer = client.answer(again).await;
                assert_eq!(answer["error"]["code"], -32602, "{shown} {answer}");
            }
            match end {
                End::Approval | End::Denial => {
                    assert!(decides(&world, &waits, end == End::Approval), "{shown}")
                }
                End::Expiry => sleep(DEFAULT_EXPIRY - Duration::from_secs(1)).await,
                End::Cancellation => client.cancel(id).await,
                End::Disconnect | End::DaemonEnds => {}
            }
            if end == End::Disconnect {
                drop(client);
                waiting(&world, 0).await;
                assert!(!decides(&world, &waits, true), "{shown}");
                assert_is_quiet(&world);
                world.end().await;
                continue;
            }
            if end == End::Cancellation {
                client.hears_nothing_of(id).await;
                assert!(!decides(&world, &waits, true), "{shown}");
                assert_is_quiet(&world);
            }
            if end == End::DaemonEnds {
                world.daemon.end().await;
                let answer = client.answer(id).await.to_string();
                assert!(answer.contains("DAEMON_STOPPING"), "{shown} {answer}");
                continue;
            }
            if end != End::Cancellation {
                let answer = client.answer(id).await;
                assert_eq!(is_made(&answer), end == End::Approval, "{shown} {answer}");
                let text = answer.to_string();
                assert_eq!(
                    text.contains("program replied decline"),
                    end == End::Expiry,
                    "{shown} {text}"
                );
            }
            assert!(!decides(&world, &waits, true), "{shown}");
            assert_is_quiet(&world);
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_operator_and_a_person_one_decides_whenever_they_do() {
    let world = World::new(REGISTRY, OPEN).await;
    for approve in [true, false] {
        for action in ["accept", "decline", "cancel"] {
            for steps in 0..STEPS {
                let shown = format!("{approve} {action} {steps}");
                let mut client = TestClient::connect(&world, Era::Legacy).await;
                let asked = client.call("git__status", json!({})).await;
                let waits = waiting(&world, 1).await.remove(0);
                sleep(PERSON_TAKES).await;
                let id = client.reply(&asked, action).await;
                for _ in 0..steps {
                    yield_now().await;
                }
                let is_operators = decides(&world, &waits, approve);
                let answer = client.answer(id).await;
                let is_allowed = if is_operators {
                    approve
                } else {
                    action == "accept"
                };
                assert_eq!(is_made(&answer), is_allowed, "{shown} {answer}");
            }
        }
    }
    assert_is_quiet(&world);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_allowed_is_decided_again() {
    fn close(world: &World) {
        world.daemon.chain.rules.gates.store(Arc::default());
    }
    fn deny(world: &World) {
        let text = br#"{"others":{"gates":["external-call"],"servers":{"git":["log"]}}}"#;
        let clients = Clients::parse(text, "clients.json", Box::new(SystemAccounts)).unwrap();
        world.daemon.chain.rules.clients.store(Arc::new(clients));
    }
    let changes = [
        (close as fn(&World), "GATE_CLOSED"),
        (deny, "POLICY_DENIED"),
    ];
    for (change, expected) in changes {
        for era in ERAS {
            for by_operator in [false, true] {
                let world = World::new(REGISTRY, OPEN).await;
                let mut client = TestClient::connect(&world, era).await;
                let asked = client.call("git__status", json!({})).await;
                // A modern client's call waits for an operator once its program has replied.
                let mut id = asked.call;
                if !by_operator {
                    sleep(PERSON_TAKES).await;
                } else if era == Era::Modern {
                    id = client.reply(&asked, "accept").await;
                }
                let waits = match by_operator {
                    true => waiting(&world, 1).await.pop(),
                    false => None,
                };
                change(&world);
                match waits {
                    Some(waits) => assert!(decides(&world, &waits, true)),
                    None => id = client.reply(&asked, "accept").await,
                }
                let answer = client.answer(id).await;
                assert_eq!(code(&answer), expected, "{era:?} {by_operator} {answer}");
                assert_is_quiet(&world);
                world.end().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_entry_changed_while_it_waited_is_decided_by_what_is_there_now() {
    let entry = |keys: &str| format!(r#"{{"servers":{{"git":{{"command":"/m/git",{keys}}}}}}}"#);
    let confirms = r#""tools":{"confirm":["status"]}"#;
    let cases = [
        // A new server, which nobody has asked for its tools.
        (format!(r#"{confirms},"timeout_ms":9000"#), None),
        (
            r#""tools":{"deny":["status"]}"#.to_owned(),
            Some("POLICY_DENIED"),
        ),
        (
            format!(r#"{confirms},"flow":{{"untrusted":["no_such"]}}"#),
            Some("POLICY_DENIED"),
        ),
    ];
    for (keys, expected) in cases {
        for era in ERAS {
            let world = World::new(REGISTRY, OPEN).await;
            let mut client = TestClient::connect(&world, era).await;
            let asked = client.call("git__status", json!({})).await;
            sleep(PERSON_TAKES).await;
            world.load(&entry(&keys));
            let id = client.reply(&asked, "accept").await;
            let answer = client.answer(id).await;
            match expected {
                None => assert!(is_made(&answer), "{era:?} {keys} {answer}"),
                Some(expected) => assert_eq!(code(&answer), expected, "{era:?} {keys} {answer}"),
            }
            assert_is_quiet(&world);
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_comes_while_a_call_waits_is_asked_about_once() {
    for era in ERAS {
        let world = World::new(REGISTRY, OPEN).await;
        let mut client = TestClient::connect(&world, era).await;
        let mut asked = client.call("git__status", json!({})).await;
        let task = json!({"title": "t", "may": ["git/big"]});
        let mut operator = TestClient::connect(&world, Era::Legacy).await;
        let id = operator.begin("colibri/create-task", task).await;
        let made = operator.answer(id).await;
        assert!(made.get("error").is_none(), "{made}");
        let params = json!({"name": "colibri_next_task", "arguments": {}, "_meta": client.meta});
        let id = client.begin("tools/call", params).await;
        let claimed = client.answer(id).await;
        assert!(claimed["result"]["isError"].is_null(), "{claimed}");
        sleep(PERSON_TAKES).await;
        let id = client.reply(&asked, "accept").await;
        let question = match era {
            Era::Legacy => {
                let message = client.message().await;
                asked.request = message["id"].clone();
                message["params"].clone()
            }
            Era::Modern => {
                let answer = client.answer(id).await;
                asked.request = answer["result"]["requestState"].clone();
                answer["result"]["inputRequests"]["confirm"]["params"].clone()
            }
        };
        let question = question["message"].as_str().unwrap_or_default().to_owned();
        assert!(question.contains("outside task 1"), "{era:?} {question}");
        assert!(!question.contains("confirm"), "{era:?} {question}");
        sleep(PERSON_TAKES).await;
        let id = client.reply(&asked, "accept").await;
        let answer = client.answer(id).await;
        assert!(is_made(&answer), "{era:?} {answer}");
        assert_is_quiet(&world);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_and_a_cancellation_that_meet_have_one_outcome() {
    for era in ERAS {
        for disconnects in [false, true] {
            let world = World::new(REGISTRY, OPEN).await;
            let mut before = 0;
            for steps in 0..STEPS {
                let shown = format!("{era:?} {disconnects} {steps}");
                let mut client = TestClient::connect(&world, era).await;
                let asked = client.call("git__status", json!({})).await;
                let id = client.reply(&asked, "cancel").await;
                let waits = waiting(&world, 1).await.remove(0);
                let client = match disconnects {
                    true => None,
                    false => {
                        client.cancel(id).await;
                        Some(client)
                    }
                };
                for _ in 0..steps {
                    yield_now().await;
                }
                let is_approved = decides(&world, &waits, true);
                waiting(&world, 0).await;
                sleep(Duration::from_secs(1)).await;
                drop(client);
                let trail = world.trail();
                let ends = trail
                    .iter()
                    .filter(|record| record["kind"] == "exit" && record["operation"] == "status");
                let made = ends.filter(|record| record["error_code"].is_null()).count();
                // The first answer to a modern client, which asks, is a success too.
                let now = made - before - usize::from(era == Era::Modern);
                assert!(now <= usize::from(is_approved), "{shown} {now}");
                before = made;
            }
            assert_is_quiet(&world);
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_first_has_read_what_waits() {
    for era in ERAS {
        let world = World::new(REGISTRY, OPEN).await;
        let mut client = TestClient::named(&world, era, "t", json!({"progressToken": "p"})).await;
        let call = client.begin(
            "tools/call",
            json!({"name": "git__status", "arguments": {}, "_meta": client.meta}),
        );
        let call = call.await;
        let (mut id, mut notice) = (call, Value::Null);
        while notice.is_null() {
            let message = client.message().await;
            if message["method"] == "notifications/progress" {
                notice = message["params"].clone();
            } else if message["result"]["resultType"] == "input_required" {
                let params = json!({"name": "git__status", "arguments": {}, "_meta": client.meta});
                let request = message["result"]["requestState"].clone();
                id = client
                    .reply(
                        &AskedCall {
                            params,
                            call,
                            request,
                        },
                        "cancel",
                    )
                    .await;
            }
        }
        if era == Era::Legacy {
            let request = client.message().await["id"].clone();
            let params = Value::Null;
            client
                .reply(
                    &AskedCall {
                        params,
                        call,
                        request,
                    },
                    "cancel",
                )
                .await;
        }
        let waits = waiting(&world, 1).await.remove(0);
        let message = notice["message"].as_str().unwrap();
        assert_eq!(notice["progressToken"], "p");
        assert!(
            message.starts_with("the call of status of git waits for approval"),
            "{message}"
        );
        assert!(
            message.contains(&format!("colibri-mcp approvals approve {waits}")),
            "{message}"
        );
        // Its own time is over.
        sleep(Duration::from_secs(60)).await;
        client.cancel(id).await;
        client.hears_nothing_of(id).await;
        assert!(!decides(&world, &waits, true), "the row is withdrawn");
        assert_is_quiet(&world);
        // The same call, made again, waits anew.
        let asked = client.call("git__status", json!({})).await;
        client.reply(&asked, "cancel").await;
        assert_ne!(waiting(&world, 1).await, [waits]);
        drop(client);
        waiting(&world, 0).await;
        world.end().await;
    }
}
