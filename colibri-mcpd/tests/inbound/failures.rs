//! Every class of failure, by a clock that is ours: how often a call is made, after which waits,
//! and what is recorded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use colibri_confine::{SpawnError, SpawnedServer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use super::world::{Task, World, code};

/// When each scripted server, by its id, was started or called.
static SEEN: Mutex<BTreeMap<String, Vec<Instant>>> = Mutex::new(BTreeMap::new());
/// The waits of a series, in milliseconds; a quarter more or less.
const WAITS: [u64; 3] = [200, 1000, 5000];
/// A limit is kept to a tenth of a second.
const SLACK: u64 = 150;

/// Notes that something happens to a server, and tells what its script says of it: the last word
/// holds for what follows.
fn next<'a>(what: &str, script: &'a str) -> &'a str {
    let mut seen = SEEN.lock().unwrap();
    let times = seen.entry(what.to_owned()).or_default();
    times.push(Instant::now());
    script.split(' ').take(times.len()).last().unwrap()
}

/// A server that starts and answers by scripts.
pub(crate) fn spawn(server: &str, starts: &str, calls: &str) -> Result<SpawnedServer, SpawnError> {
    let start = next(&format!("{server} start"), starts);
    match start {
        "later" => {
            let detail = "a lock is held".to_owned();
            return Err(SpawnError::TryLater { detail });
        }
        "full" => {
            let detail = "too many".to_owned();
            return Err(SpawnError::Limit { detail });
        }
        "refused" => {
            let detail = "not allowed".to_owned();
            return Err(SpawnError::Refused { detail });
        }
        "missing" => {
            let (program, error) = (PathBuf::from("/x"), std::io::ErrorKind::NotFound.into());
            return Err(SpawnError::Program { program, error });
        }
        _ => {}
    }
    let (stdin, requests) = tokio::io::duplex(1 << 16);
    let (answers, stdout) = tokio::io::duplex(1 << 16);
    let (what, start, calls) = (format!("{server} call"), start.to_owned(), calls.to_owned());
    let serving = async move {
        match &*start {
            "dies" => {}
            "mute" => std::future::pending().await,
            _ => serve(&what, &calls, requests, answers).await,
        }
    };
    Ok(SpawnedServer {
        stdin: Box::new(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(tokio::io::empty()),
        process: Box::new(Task(tokio::spawn(serving))),
    })
}

async fn serve(what: &str, calls: &str, requests: DuplexStream, mut answers: DuplexStream) {
    let mut lines = BufReader::new(requests).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request: Value = serde_json::from_str(&line).unwrap();
        let Some(id) = request.get("id") else {
            continue;
        };
        let said = match request["method"].as_str().unwrap() {
            "initialize" => json!({"result": {"protocolVersion": "2025-11-25",
                "serverInfo": {"name": "m", "version": "1"}, "capabilities": {"tools": {}, "prompts": {}}}}),
            "tools/list" => {
                json!({"result": {"tools": [{"name": "step", "inputSchema": {"type": "object"}}]}})
            }
            "prompts/list" => json!({"result": {"prompts": [{"name": "step"}]}}),
            "tools/call" | "prompts/get" => match next(what, calls) {
                "ok" => json!({"result": {"content": [], "messages": []}}),
                "isError" => json!({"result": {"content": [], "isError": true}}),
                // What an integration of ours would say.
                "claims" => {
                    json!({"result": {"content": [], "isError": true, "structuredContent": {
                    "ok": false, "error": {"code": "MODEL_TIMEOUT", "message": "m", "transient": true}}}})
                }
                "silent" => continue,
                "dies" => return,
                "long" => json!({"result": {"content": [], "x": "x".repeat(5 << 20)}}),
                "broken" => {
                    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{]}}\n");
                    answers.write_all(line.as_bytes()).await.unwrap();
                    continue;
                }
                error => {
                    let (after, number) = error.split_once('@').unwrap_or(("0", error));
                    sleep(Duration::from_millis(after.parse().unwrap())).await;
                    json!({"error": {"code": number.parse::<i64>().unwrap(), "message": "no"}})
                }
            },
            _ => json!({"error": {"code": -32601, "message": "no"}}),
        };
        let mut answer = said;
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = id.clone();
        if answers
            .write_all(format!("{answer}\n").as_bytes())
            .await
            .is_err()
        {
            return;
        }
    }
}

/// One kind of failure.
struct Row {
    /// How each start goes, and each call.
    script: [&'static str; 2],
    /// More of its entry.
    entry: Value,
    method: &'static str,
    /// How long an attempt takes by itself, in milliseconds.
    takes: u64,
    /// The codes of the attempts that fail, in order; one that succeeds comes after them if
    /// `succeeds`.
    codes: &'static [&'static str],
    succeeds: bool,
}

fn row(starts: &'static str, calls: &'static str, codes: &'static [&'static str]) -> Row {
    Row {
        script: [starts, calls],
        entry: json!({}),
        method: "tools/call",
        takes: 0,
        codes,
        succeeds: false,
    }
}

impl Row {
    fn repeatable(self) -> Row {
        self.with(json!({ "tools": { "idempotent": ["step"] } }))
    }

    fn with(mut self, more: Value) -> Row {
        for (key, value) in more.as_object().unwrap() {
            self.entry[key] = value.clone();
        }
        self
    }

    fn taking(self, takes: u64) -> Row {
        Row { takes, ..self }
    }

    fn then_succeeds(self) -> Row {
        Row {
            succeeds: true,
            ..self
        }
    }

    fn prompt(self) -> Row {
        let method = "prompts/get";
        Row { method, ..self }
    }
}

const DIED: &str = "SERVER_DIED";
const FAILED: &str = "SERVER_FAILED";
const GONE: &str = "INTEGRATION_UNAVAILABLE";
const LATE: &str = "TIMEOUT_CALL";
const SLOW: &str = "TIMEOUT_START";
const ODD: &str = "SERVER_ANSWER_INVALID";

/// Every row of the table of classes that a server can bring about, before a byte of the call is
/// sent and after.
fn table() -> Vec<Row> {
    let second = json!({ "timeout_ms": 1000 });
    vec![
        // Before anything is sent: whatever the tool is.
        row("dies", "ok", &[GONE; 4]),
        row("dies dies dies dies ok", "ok", &[GONE; 2]).then_succeeds(),
        row("dies", "ok", &[GONE; 1]).with(json!({ "attempts": 1 })),
        row("dies", "ok", &[GONE; 6]).with(json!({ "attempts": 6 })),
        row("later", "ok", &[GONE; 4]),
        row("later later ok", "ok", &[GONE; 2]).then_succeeds(),
        row("full", "ok", &[SLOW; 1])
            .with(json!({ "start_timeout_ms": 2000 }))
            .taking(2000),
        row("mute", "ok", &[SLOW; 1])
            .with(json!({ "start_timeout_ms": 2000 }))
            .taking(2000),
        row("dies", "ok", &[GONE; 2]).with(json!({ "start_timeout_ms": 1000 })),
        row("refused", "ok", &["SERVER_UNSTARTABLE"]),
        row("missing", "ok", &["SERVER_UNSTARTABLE"]),
        // A tool of which nobody says that it may be called twice is not.
        row("ok", "dies", &[DIED]),
        row("ok", "silent", &[LATE])
            .with(second.clone())
            .taking(1000),
        row("ok", "-32603", &["-32603"]),
        row("ok", "-32000", &["-32000"]),
        row("ok", "broken", &[ODD]),
        // One of which the operator says so.
        row("ok", "dies", &[DIED; 4]).repeatable(),
        row("ok", "dies dies dies ok", &[DIED; 3])
            .repeatable()
            .then_succeeds(),
        row("ok", "silent", &[LATE; 4])
            .repeatable()
            .with(second.clone())
            .taking(1000),
        row("ok", "silent ok", &[LATE])
            .repeatable()
            .with(second.clone())
            .taking(1000)
            .then_succeeds(),
        row("ok", "3000@-32603", &["-32603"; 4])
            .repeatable()
            .taking(3000),
        row("ok", "-32603 dies ok", &["-32603", DIED])
            .repeatable()
            .then_succeeds(),
        row("ok", "-32000", &["-32000"; 2]).repeatable(),
        row("ok", "7 ok", &["7"]).repeatable().then_succeeds(),
        row("ok", "7 -32000 7", &["7", "-32000", "7"]).repeatable(),
        row("ok", "-32603 7 -32603 7", &["-32603", "7", "-32603", "7"]).repeatable(),
        row("ok", "broken", &[ODD; 2]).repeatable(),
        row("ok", "-32602", &["-32602"]).repeatable(),
        row("ok", "-32601", &["-32601"]).repeatable(),
        row("ok", "-32603 -32602", &["-32603", "-32602"]).repeatable(),
        row("ok", "long", &["FRAME_TOO_LONG"]).repeatable(),
        row("ok", "isError", &["TOOL_ERROR"]).repeatable(),
        row("ok", "claims", &["TOOL_ERROR"]).repeatable(),
        row("ok", "silent", &["TIMEOUT_TOTAL"])
            .repeatable()
            .with(json!({ "total_timeout_ms": 1000 }))
            .taking(1000),
        row("ok", "dies", &[DIED; 2])
            .repeatable()
            .with(json!({ "attempts": 2 })),
        // Reading changes nothing, and an error is an answer.
        row("ok", "dies", &[DIED; 4]).prompt(),
        row("ok", "silent", &[LATE])
            .prompt()
            .with(second)
            .taking(1000),
        row("ok", "-32603", &["-32603"]).prompt(),
        row("ok", "7", &["7"]).prompt(),
        row("ok", "-32602", &["-32602"]).prompt(),
    ]
}

/// The class of a failure with this code, if one is recorded.
fn class(code: &Value) -> Value {
    match code.as_str() {
        Some(GONE | DIED | FAILED | LATE | "-32603") => json!("transient"),
        Some(SLOW | ODD | "TOOL_ERROR" | "-32000" | "7") => json!("unknown"),
        Some(_) => json!("permanent"),
        None => Value::Null,
    }
}

fn open(id: &str, row: &Row) -> (String, Value) {
    let mut entry = json!({ "command": "/x", "args": row.script });
    for (key, value) in row.entry.as_object().unwrap() {
        entry[key] = value.clone();
    }
    (id.to_owned(), entry)
}

/// The retry and exit records of a server's only call.
fn attempts(world: &World, id: &str) -> Vec<Value> {
    let mut records = world.trail();
    records.retain(|record| {
        record["integration_id"] == id && matches!(record["kind"].as_str(), Some("retry" | "exit"))
    });
    records
}

/// The times at which it was tried: one attempt may start two processes.
fn tried(what: &str) -> Vec<Instant> {
    let mut times = SEEN.lock().unwrap().get(what).cloned().unwrap_or_default();
    times.dedup_by(|now, before| now.duration_since(*before) < Duration::from_millis(100));
    times
}

fn is_about(millis: f64, from: u64, to: u64) -> bool {
    millis >= from as f64 - 1.0 && millis <= (to + SLACK) as f64
}

#[tokio::test(start_paused = true)]
async fn every_class_of_failure_has_its_attempts_waits_and_records() {
    let rows = table();
    let ids: Vec<String> = (0..rows.len()).map(|at| format!("row{at}")).collect();
    let servers: BTreeMap<String, Value> = ids
        .iter()
        .zip(&rows)
        .map(|(id, row)| open(id, row))
        .collect();
    let world = World::new(&json!({ "servers": servers }).to_string(), super::OPEN).await;
    let mut peer = world.operator().await;
    for (id, row) in ids.iter().zip(&rows) {
        let name = format!("{id} {:?}", row.script);
        let begun = Instant::now();
        let params = json!({ "name": format!("{id}__step"), "arguments": {} });
        let answer = peer.ask(row.method, params).await;
        let took = begun.elapsed().as_millis() as u64;
        let is_good = answer.get("error").is_none() && answer["result"]["isError"] != true;
        assert_eq!(is_good, row.succeeds, "{name}: {answer}");

        // N - 1 records of attempts that another followed, and one of the end.
        let records = attempts(&world, id);
        let said: Vec<_> = records
            .iter()
            .map(|record| {
                (
                    &record["result"],
                    &record["attempt_number"],
                    &record["error_code"],
                )
            })
            .collect();
        let count = row.codes.len() + usize::from(row.succeeds);
        assert_eq!(said.len(), count, "{name}: {said:?}");
        for (at, (result, number, code)) in said.into_iter().enumerate() {
            let expected = match row.codes.get(at) {
                None => (json!("SUCCESS"), Value::Null),
                Some(code) if at + 1 == count => (json!("FAIL"), json!(code)),
                Some(code) => (json!("RETRY"), json!(code)),
            };
            assert_eq!((result, code), (&expected.0, &expected.1), "{name}");
            assert_eq!(number, at + 1, "{name}");
        }
        for record in &records {
            assert_eq!(
                record["error_class"],
                class(&record["error_code"]),
                "{name}: {record}"
            );
        }

        // Their waits, and of each attempt its own time.
        let waits: Vec<u64> = (0..count - 1).map(|at| WAITS[at.min(2)]).collect();
        let is_called = row.script[0] == "ok";
        let times = tried(&format!(
            "{id} {}",
            if is_called { "call" } else { "start" }
        ));
        // Who waits for its turn asks again and again.
        if row.script[0] != "full" {
            assert_eq!(times.len(), count, "{name}");
            for (pair, wait) in times.windows(2).zip(&waits) {
                let gap = pair[1].duration_since(pair[0]).as_secs_f64() * 1000.0;
                assert!(
                    is_about(gap, row.takes + wait * 3 / 4, row.takes + wait * 5 / 4),
                    "{name}: {gap}"
                );
            }
        }
        for record in &records[..count - 1] {
            let latency = record["latency_ms"].as_f64().unwrap();
            assert!(is_about(latency, row.takes, row.takes), "{name}: {record}");
        }
        let total: u64 = waits.iter().sum();
        let own = row.takes * row.codes.len() as u64;
        let slack = SLACK * count as u64;
        assert!(
            (own + total * 3 / 4..=own + total * 5 / 4 + slack).contains(&took),
            "{name}: {took}"
        );
        let whole = records[count - 1]["latency_ms"].as_f64().unwrap();
        assert!(
            is_about(whole, took - SLACK.min(took), took),
            "{name}: {whole} of {took}"
        );
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_comes_when_others_have_waited_for_a_turn_waits_once_more() {
    let row = row("full", "ok", &[]).with(json!({ "start_timeout_ms": 2000 }));
    let servers: BTreeMap<String, Value> = [open("turn", &row)].into();
    let world = World::new(&json!({ "servers": servers }).to_string(), super::OPEN).await;
    let mut peer = world.operator().await;
    let begun = Instant::now();
    let first = peer
        .begin("tools/call", json!({ "name": "turn__step" }))
        .await;
    sleep(Duration::from_millis(1500)).await;
    let second = peer
        .begin("tools/call", json!({ "name": "turn__step" }))
        .await;
    let mut took = Vec::new();
    for call in [first, second] {
        let answer = peer.answer(call).await;
        assert_eq!(code(&answer), SLOW, "{answer}");
        took.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    assert!(is_about(took[0], 2000, 2000), "{took:?}");
    // From when it came, however often it was tried.
    assert!(is_about(took[1], 3500, 3500), "{took:?}");
    let said = attempts(&world, "turn");
    let said: Vec<_> = said
        .iter()
        .map(|record| {
            (
                record["result"].as_str().unwrap(),
                record["attempt_number"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        said.iter().filter(|one| **one == ("FAIL", 1)).count(),
        1,
        "{said:?}"
    );
    assert_eq!(
        said.iter().filter(|one| **one == ("RETRY", 1)).count(),
        1,
        "{said:?}"
    );
    assert_eq!(said.last(), Some(&("FAIL", 2)), "{said:?}");
    assert_eq!(said.len(), 3, "{said:?}");
    world.end().await;
}

/// Waits for the record of a first attempt that another is to follow.
async fn first_retry(world: &World, id: &str) {
    while attempts(world, id).is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_cancels_or_leaves_between_two_attempts_ends_the_series() {
    let both = [row("dies", "ok", &[]), row("ok", "dies", &[]).repeatable()];
    for (at, row) in both.iter().enumerate() {
        for leaves in [false, true] {
            let id = format!("ends{at}{leaves}");
            let servers: BTreeMap<String, Value> = [open(&id, row)].into();
            let world = World::new(&json!({ "servers": servers }).to_string(), super::OPEN).await;
            let mut peer = world.operator().await;
            let call = peer
                .begin("tools/call", json!({ "name": format!("{id}__step") }))
                .await;
            first_retry(&world, &id).await;
            let begun = Instant::now();
            if leaves {
                drop(peer);
            } else {
                let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": call } });
                peer.send(&cancelled.to_string()).await;
            }
            while attempts(&world, &id).len() < 2 {
                sleep(Duration::from_millis(1)).await;
            }
            assert!(
                begun.elapsed() < Duration::from_millis(140),
                "{id}: {:?}",
                begun.elapsed()
            );
            // Nothing more happens, however long one waits.
            sleep(Duration::from_secs(60)).await;
            let said = attempts(&world, &id);
            assert_eq!(said.len(), 2, "{id}: {said:?}");
            let end = &said[1];
            assert_eq!(
                (&end["result"], &end["error_code"], &end["attempt_number"]),
                (&json!("FAIL"), &json!("CANCELLED"), &json!(2))
            );
            let what = ["start", "call"][at];
            assert_eq!(tried(&format!("{id} {what}")).len(), 1, "{id}");
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_taken_away_is_not_tried_again() {
    let id = "taken".to_owned();
    let servers: BTreeMap<String, Value> = [open(&id, &row("ok", "dies", &[]).repeatable())].into();
    let world = World::new(&json!({ "servers": servers }).to_string(), super::OPEN).await;
    let mut peer = world.operator().await;
    let call = peer
        .begin("tools/call", json!({ "name": "taken__step" }))
        .await;
    first_retry(&world, &id).await;
    world
        .daemon
        .host
        .load(&colibri_mcpd::registry::LoadedRegistry::default());
    let answer = peer.answer(call).await;
    assert_eq!(code(&answer), GONE, "{answer}");
    let said = attempts(&world, &id);
    let said: Vec<_> = said
        .iter()
        .map(|record| (&record["result"], &record["error_code"]))
        .collect();
    assert_eq!(
        said,
        [
            (&json!("RETRY"), &json!(DIED)),
            (&json!("FAIL"), &json!(GONE))
        ]
    );
    world.end().await;
}

/// A server behind a URL that answers calls with these heads, after so many ms where they say so,
/// the last one again and again. When it was called.
async fn behind_a_url(
    heads: &'static [&'static str],
) -> (String, std::sync::Arc<Mutex<Vec<Instant>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let times: std::sync::Arc<Mutex<Vec<Instant>>> = Default::default();
    let called = times.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_http(stream, heads, called.clone()));
        }
    });
    (url, times)
}

async fn answer_http(
    stream: TcpStream,
    heads: &'static [&'static str],
    called: std::sync::Arc<Mutex<Vec<Instant>>>,
) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 2) {
            if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if length == 0
            || tokio::io::AsyncReadExt::read_exact(&mut stream, &mut body)
                .await
                .is_err()
        {
            return;
        }
        let request: Value = serde_json::from_slice(&body).unwrap();
        let (head, result) = match request["method"].as_str().unwrap() {
            "server/discover" => (
                "200 OK",
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
            ),
            "tools/list" => (
                "200 OK",
                json!({"tools": [{"name": "step", "inputSchema": {"type": "object"}}]}),
            ),
            _ => {
                let mut times = called.lock().unwrap();
                times.push(Instant::now());
                (
                    heads[(times.len() - 1).min(heads.len() - 1)],
                    json!({"content": []}),
                )
            }
        };
        let (after, head) = head.split_once('@').unwrap_or(("0", head));
        sleep(Duration::from_millis(after.parse().unwrap())).await;
        let mut result = result;
        for (key, value) in [
            ("resultType", json!("complete")),
            ("ttlMs", json!(0)),
            ("cacheScope", json!("private")),
        ] {
            result[key] = value;
        }
        let body = json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string();
        let answer = format!(
            "HTTP/1.1 {head}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_server_refuses_that_was_taken_away_is_not_tried_again() {
    let (url, times) = behind_a_url(&["1000@429 Too Many Requests\r\nRetry-After: 7"]).await;
    let entry = json!({ "url": url, "allow_addresses": ["loopback"] });
    let world = World::new(
        &json!({ "servers": { "gone": entry } }).to_string(),
        super::OPEN,
    )
    .await;
    let mut peer = world.operator().await;
    let call = peer
        .begin("tools/call", json!({ "name": "gone__step" }))
        .await;
    while times.lock().unwrap().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    world
        .daemon
        .host
        .load(&colibri_mcpd::registry::LoadedRegistry::default());
    let answer = peer.answer(call).await;
    assert_eq!(code(&answer), GONE, "{answer}");
    let said = attempts(&world, "gone");
    assert_eq!(
        (said.len(), &said[0]["result"]),
        (1, &json!("FAIL")),
        "{said:?}"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_server_behind_a_url_refuses_is_tried_again_as_it_says() {
    const BUSY: &str = "429 Too Many Requests\r\nRetry-After: 7";
    const MUTE: &str = "503 Service Unavailable";
    // The heads of its answers; whether its tool may be called twice; the waits, in ms; the code of
    // each failure.
    type Case = (
        &'static [&'static str],
        bool,
        &'static [u64],
        &'static str,
        bool,
    );
    let cases: [Case; 12] = [
        (&[BUSY], false, &[7000; 3], GONE, false),
        (&[BUSY, BUSY, "200 OK"], false, &[7000; 2], GONE, true),
        (&[MUTE, "200 OK"], false, &[30_000], GONE, true),
        (&["401 Unauthorized"], true, &[], "SERVER_DENIED", false),
        (&["403 Forbidden"], true, &[], "SERVER_DENIED", false),
        (&["500 Oops"], false, &[], FAILED, false),
        (&["500 Oops"], true, &[200, 1000, 5000], FAILED, false),
        (&["502 Bad Gateway", "200 OK"], true, &[200], FAILED, true),
        (
            &["504 Gateway Timeout", "500 Oops", "200 OK"],
            true,
            &[200, 1000],
            FAILED,
            true,
        ),
        (&["501 Not Implemented"], true, &[], ODD, false),
        (
            &["408 Request Timeout", "200 OK"],
            true,
            &[200],
            FAILED,
            true,
        ),
        (&["408 Request Timeout"], false, &[], FAILED, false),
    ];
    for (at, (heads, repeatable, waits, wanted, succeeds)) in cases.into_iter().enumerate() {
        let (url, times) = behind_a_url(heads).await;
        let id = format!("web{at}");
        let idempotent = if repeatable {
            json!(["step"])
        } else {
            json!([])
        };
        let entry = json!({ "url": url, "allow_addresses": ["loopback"], "tools": { "idempotent": idempotent } });
        let world = World::new(
            &json!({ "servers": { id.clone(): entry } }).to_string(),
            super::OPEN,
        )
        .await;
        let mut peer = world.operator().await;
        let answer = peer.call(&format!("{id}__step"), json!({})).await;
        assert_eq!(
            answer["result"]["isError"] != true,
            succeeds,
            "{heads:?}: {answer}"
        );
        let records = attempts(&world, &id);
        let failures = records.len() - usize::from(succeeds);
        assert_eq!(records.len(), waits.len() + 1, "{heads:?}: {records:?}");
        for record in &records[..failures] {
            assert_eq!(record["error_code"], wanted, "{heads:?}");
        }
        for (at, record) in records.iter().enumerate() {
            let end = if succeeds { "SUCCESS" } else { "FAIL" };
            let expected = if at < waits.len() { "RETRY" } else { end };
            assert_eq!(
                (&record["result"], &record["attempt_number"]),
                (&json!(expected), &json!(at + 1)),
                "{heads:?}"
            );
        }
        let times = times.lock().unwrap().clone();
        for (pair, wait) in times.windows(2).zip(waits) {
            let gap = pair[1].duration_since(pair[0]).as_secs_f64() * 1000.0;
            let spread = if *wait <= 5000 { wait / 4 } else { 0 };
            assert!(
                is_about(gap, wait - spread, wait + spread),
                "{heads:?}: {gap}"
            );
        }
        world.end().await;
    }
}

/// How long a call took by the clock, and its answer.
async fn timed(peer: &mut super::world::Peer, name: &str) -> (f64, Value) {
    let begun = Instant::now();
    let answer = peer.call(name, json!({})).await;
    (begun.elapsed().as_secs_f64(), answer)
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_a_server_fails_to_start_is_answered_at_once() {
    let servers: BTreeMap<String, Value> = [open("ill", &row("dies", "ok", &[]))].into();
    let world = World::new(&json!({ "servers": servers }).to_string(), super::OPEN).await;
    let mut peer = world.operator().await;
    let (took, _) = timed(&mut peer, "ill__step").await;
    assert!(
        (4.6..8.0).contains(&took),
        "all attempts of the first: {took}"
    );
    for _ in 0..3 {
        let before = tried("ill start").len();
        // Still backing off, then half-open: one start, and its caller waits for nothing else.
        let (took, answer) = timed(&mut peer, "ill__step").await;
        assert!(took < 0.15 && code(&answer) == GONE, "{took}: {answer}");
        assert_eq!(tried("ill start").len(), before);
        sleep(Duration::from_secs(6)).await;
        let (took, answer) = timed(&mut peer, "ill__step").await;
        assert!(took < 0.15 && code(&answer) == GONE, "{took}: {answer}");
        assert_eq!(tried("ill start").len(), before + 1);
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn after_calls_that_were_given_up_one_a_minute_is_tried() {
    let (url, times) = behind_a_url(&["502 Bad Gateway"]).await;
    let entry =
        json!({ "url": url, "allow_addresses": ["loopback"], "tools": { "idempotent": ["step"] } });
    let other = open("well", &row("ok", "ok", &[]));
    let servers = json!({ "web": entry, other.0: other.1 });
    let world = World::new(&json!({ "servers": servers }).to_string(), super::OPEN).await;
    let mut peer = world.operator().await;
    let called = || times.lock().unwrap().len();
    for given_up in 1..=3 {
        let answer = peer.call("web__step", json!({})).await;
        assert_eq!(
            (code(&answer), called()),
            (FAILED, 4 * given_up),
            "{answer}"
        );
    }
    // It is open: answered at once, with why and until when, and nothing is sent.
    let (took, answer) = timed(&mut peer, "web__step").await;
    let text = answer.to_string();
    assert!(
        took < 0.01 && code(&answer) == GONE && called() == 12,
        "{took}: {answer}"
    );
    assert!(
        text.contains("with SERVER_FAILED") && text.contains("call it again in 60 s"),
        "{text}"
    );
    let listed = peer
        .call("colibri_external_mcp_servers", json!({}))
        .await
        .to_string();
    assert!(
        listed.contains("backing off") && listed.contains("with SERVER_FAILED"),
        "{listed}"
    );
    // Another server has its own.
    assert_eq!(
        peer.call("well__step", json!({})).await["result"]["isError"],
        Value::Null
    );
    // One trial, with one attempt; then another minute.
    for trial in 1..=3 {
        sleep(Duration::from_secs(60)).await;
        let answer = peer.call("web__step", json!({})).await;
        assert_eq!((code(&answer), called()), (FAILED, 12 + trial), "{answer}");
        sleep(Duration::from_secs(30)).await;
        let answer = peer.call("web__step", json!({})).await;
        assert!(
            code(&answer) == GONE && answer.to_string().contains("call it again in 30 s"),
            "{answer}"
        );
        assert_eq!(called(), 12 + trial);
    }
    // Records of what was not called say so.
    let last = attempts(&world, "web").pop().unwrap();
    assert_eq!(
        (&last["error_code"], &last["attempt_number"]),
        (&json!(GONE), &json!(1)),
        "{last}"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_call_that_is_answered_closes_the_breaker() {
    const BAD: &str = "502 Bad Gateway";
    // Given up three times, a trial that fails, one that is answered, and then all attempts again.
    let heads: &[&str] = &[
        BAD, BAD, BAD, BAD, BAD, BAD, BAD, "200 OK", BAD, BAD, "200 OK",
    ];
    let (url, times) = behind_a_url(heads).await;
    let entry = json!({ "url": url, "allow_addresses": ["loopback"], "attempts": 2, "tools": { "idempotent": ["step"] } });
    let world = World::new(
        &json!({ "servers": { "web": entry } }).to_string(),
        super::OPEN,
    )
    .await;
    let mut peer = world.operator().await;
    for _ in 0..3 {
        assert_eq!(code(&peer.call("web__step", json!({})).await), FAILED);
    }
    sleep(Duration::from_secs(61)).await;
    assert_eq!(code(&peer.call("web__step", json!({})).await), FAILED);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(
        peer.call("web__step", json!({})).await["result"]["isError"],
        Value::Null
    );
    assert_eq!(times.lock().unwrap().len(), 8);
    let listed = peer
        .call("colibri_external_mcp_servers", json!({}))
        .await
        .to_string();
    assert!(!listed.contains("backing off"), "{listed}");
    assert_eq!(code(&peer.call("web__step", json!({})).await), FAILED);
    assert_eq!(
        peer.call("web__step", json!({})).await["result"]["isError"],
        Value::Null
    );
    assert_eq!(times.lock().unwrap().len(), 11);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_one_user_gives_up_at_a_shared_server_cost_no_other_user_a_call() {
    let calls = "silent silent silent silent silent silent 300@7";
    let shared = json!({ "isolation": "shared", "timeout_ms": 1000, "attempts": 2 });
    let servers: BTreeMap<String, Value> = [open(
        "one",
        &row("ok", calls, &[]).repeatable().with(shared),
    )]
    .into();
    let world = World::new(&json!({ "servers": servers }).to_string(), super::OPEN).await;
    let mut alice = world.operator().await;
    let bob = world.agent("00000000000000aa", super::ALL);
    let mut bob = bob.connect().await;
    for _ in 0..3 {
        let answer = alice.call("one__step", json!({})).await;
        assert_eq!(code(&answer), LATE, "{answer}");
    }
    let step = || json!({ "name": "one__step", "arguments": {} });
    let both = [
        bob.begin("tools/call", step()).await,
        bob.begin("tools/call", step()).await,
    ];
    assert_eq!(
        code(&alice.call("one__step", json!({})).await),
        GONE,
        "it is open for alice"
    );
    for id in both {
        let answer = bob.answer(id).await;
        assert!(
            answer["error"]["code"] == 7 || code(&answer) == LATE,
            "{answer}"
        );
    }
    // The server has answered somebody, so that it is there for all.
    assert_eq!(alice.call("one__step", json!({})).await["error"]["code"], 7);
    world.end().await;
}
