//! The model relay: an agent asks its model through a socket of its own, and through nothing else.
//! What passes comes through byte for byte, what would be a way out is refused, tokens are those
//! that the model counts itself, and its key is nowhere to be seen from inside.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use colibri_tests::model::{Counted, Fault, ScriptedModel};
use colibri_tests::{Client, Daemon, PATIENCE, Place, program, records_in, wait_for};
use serde_json::{Value, json};

const KEY: &str = "sk-ant-0123456789-SECRET";
const APIS: [&str; 4] = ["anthropic", "openai-responses", "openai-chat", "gemini"];

/// An agent with a model, as it runs, and its model.
struct Running<'a> {
    model: &'a ScriptedModel,
    place: &'a Place,
    operator: Client,
    session: String,
    api: &'static str,
}

fn place_of(model: &ScriptedModel, api: &str, more: Value, budget: Value) -> Place {
    let place = Place::new();
    place.secret("model", KEY);
    let agent = json!({ "command": "/bin/sleep", "args": ["600"], "model": model.entry(api, more), "budget": budget });
    place.registry_text(&json!({ "agents": { "coder": agent } }).to_string());
    place
}

impl<'a> Running<'a> {
    fn start(
        model: &'a ScriptedModel,
        place: &'a Place,
        daemon: &Daemon<'_>,
        api: &'static str,
    ) -> Running<'a> {
        let mut operator = daemon.legacy(colibri_tests::LEGACY);
        let answer = operator.ask("colibri/spawn-agent", json!({ "agent": "coder" }));
        let session = answer["result"]["instance"]["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned();
        let running = Running {
            model,
            place,
            operator,
            session,
            api,
        };
        wait_for("the model's socket", || {
            running.socket().exists().then_some(())
        });
        running
    }

    fn socket(&self) -> PathBuf {
        self.place
            .path("doors")
            .join(&self.session)
            .join("model.sock")
    }

    /// Sends bytes, and reads until the other side closes or the answer is whole.
    fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // One that is refused early may not be read whole.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Answer::of(&answer)
    }

    fn send(&self, method: &str, target: &str, fields: &str, body: &str) -> Answer {
        let length = body.len();
        self.raw(
            format!(
                "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:8377\r\nConnection: close\r\nContent-Type: \
                 application/json\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
            )
            .as_bytes(),
        )
    }

    fn target(&self, streams: bool) -> &'static str {
        match (self.api, streams) {
            ("anthropic", _) => "/v1/messages?beta=true",
            ("openai-responses", _) => "/v1/responses",
            ("openai-chat", _) => "/v1/chat/completions",
            (_, true) => "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            (_, false) => "/v1beta/models/gemini-2.5-pro:generateContent",
        }
    }

    /// A request for an answer, with more keys.
    fn ask(&self, streams: bool, more: Value) -> Answer {
        self.send(
            "POST",
            self.target(streams),
            "",
            &body(self.api, streams, more).to_string(),
        )
    }

    /// Tokens in and out, as the daemon shows them.
    fn tokens(&mut self) -> (u64, u64) {
        let answer = self.operator.ask("colibri/agents", json!({}));
        let instances = answer["result"]["instances"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"));
        let own = instances
            .iter()
            .find(|instance| instance["id"] == self.session.as_str())
            .unwrap();
        (
            own["tokens_in"].as_u64().unwrap(),
            own["tokens_out"].as_u64().unwrap(),
        )
    }

    /// What the trail says of this.
    fn events(&self, event: &str) -> Vec<Value> {
        let records = records_in(&self.place.path("state").join("trail"));
        let events = records
            .into_iter()
            .filter(|record| record.rec["event"] == event);
        events.map(|record| record.rec["details"].clone()).collect()
    }

    /// That a request is refused before anything goes out, with these words.
    fn refused(&self, status: u16, words: &str, answer: &Answer, before: usize) {
        assert_eq!(answer.status, status, "{} {answer:?}", self.api);
        assert!(
            answer.message().contains(words),
            "{} {words:?} {answer:?}",
            self.api
        );
        assert!(
            answer.message().contains("Colibri's model relay"),
            "{answer:?}"
        );
        assert_eq!(
            self.model.requests(),
            before,
            "{} something went out: {answer:?}",
            self.api
        );
    }
}

/// The body of a request.
fn body(api: &str, streams: bool, more: Value) -> Value {
    let mut body = match api {
        "anthropic" => {
            json!({ "model": "m", "max_tokens": 1000, "messages": [{ "role": "user", "content": "Hello" }] })
        }
        "openai-responses" => {
            json!({ "model": "m", "max_output_tokens": 1000, "input": [{ "role": "user", "content": "Hello" }] })
        }
        "openai-chat" => {
            json!({ "model": "m", "max_tokens": 1000, "messages": [{ "role": "user", "content": "Hello" }] })
        }
        _ => json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello" }] }],
            "generationConfig": { "maxOutputTokens": 1000 } }),
    };
    if streams && api != "gemini" {
        body["stream"] = true.into();
    }
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
    is_whole: bool,
}

impl Answer {
    fn of(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        let head = head.to_ascii_lowercase();
        let (body, is_whole) = match head.contains("transfer-encoding: chunked") {
            true => dechunked(body),
            false => (body.to_owned(), true),
        };
        Answer {
            status,
            head,
            body,
            is_whole,
        }
    }

    fn message(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

fn dechunked(mut text: &str) -> (String, bool) {
    let mut body = String::new();
    loop {
        let Some((size, rest)) = text.split_once("\r\n") else {
            return (body, false);
        };
        match usize::from_str_radix(size, 16) {
            Ok(0) => return (body, true),
            Ok(size) if rest.len() >= size + 2 => {
                body.push_str(&rest[..size]);
                text = &rest[size + 2..];
            }
            _ => return (body, false),
        }
    }
}

#[test]
fn tokens_are_those_that_the_model_counts_in_four_interfaces() {
    for api in APIS {
        let model = ScriptedModel::new();
        let place = place_of(&model, api, json!({}), json!({}));
        let daemon = place.start(&["--write"]);
        let mut agent = Running::start(&model, &place, &daemon, api);
        for streams in [true, false, true] {
            let answer = agent.ask(streams, json!({}));
            assert_eq!((answer.status, answer.is_whole), (200, true), "{answer:?}");
            assert_eq!(answer.body, model.sent(), "{api}");
        }
        let tool = match api {
            "anthropic" => {
                json!({ "tools": [{ "name": "t", "input_schema": { "type": "object", "properties": { "url": {} } } }] })
            }
            "openai-responses" => {
                json!({ "tools": [{ "type": "function", "name": "t", "parameters": { "type": "object" } }] })
            }
            "openai-chat" => {
                json!({ "tools": [{ "type": "function", "function": { "name": "t", "parameters": {} } }] })
            }
            _ => {
                json!({ "tools": [{ "functionDeclarations": [{ "name": "t", "parameters": { "type": "OBJECT" } }] }] })
            }
        };
        let answer = agent.ask(true, tool);
        assert!(answer.body.contains("\"t\""), "{answer:?}");
        let counted = model.counted();
        assert_eq!(agent.tokens(), (counted.read, counted.written), "{api}");
        wait_for("the same in the ledger", || {
            let told = agent.operator.ask(
                "colibri/costs",
                json!({ "by": ["agent", "person", "server"] }),
            );
            let rows = told["result"]["rows"].as_array()?;
            let row = rows
                .iter()
                .find(|row| row["agent"] == "coder" && row["server"].is_null())?;
            counted.is_in(row, 4).then_some(())
        });
        costs_by_model(&place, api, counted);
        assert!(
            agent
                .events("model-answer")
                .iter()
                .all(|event| event["count"] == "counted")
        );
        // What costs nothing.
        let (target, body) = match api {
            "anthropic" => (
                "/v1/messages/count_tokens",
                Some(body(api, false, json!({}))),
            ),
            "gemini" => {
                let contents = body(api, false, json!({}))["contents"].take();
                (
                    "/v1beta/models/m:countTokens",
                    Some(json!({ "contents": contents })),
                )
            }
            _ => ("/v1/models", None),
        };
        let answer = match body {
            Some(body) => agent.send("POST", target, "", &body.to_string()),
            None => agent
                .raw(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        };
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(agent.tokens(), (counted.read, counted.written), "{api}");
        daemon.stop();
    }
}

/// Money is what the prices say of tokens, cached ones apart; a wrong file costs no tokens.
fn costs_by_model(place: &Place, api: &str, counted: Counted) {
    let name = if api == "gemini" {
        "gemini-2.5-pro"
    } else {
        "m"
    };
    let run = |args: &[&str]| {
        let output = place
            .colibri_mcp(&[&["costs", "--by", "model"], args].concat())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let row = |text: &str| {
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        let cells = row.unwrap_or_else(|| panic!("{text}")).split_whitespace();
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    let Counted {
        read,
        written,
        cached,
        kept,
    } = counted;
    let tokens = [read - cached - kept, cached, kept, written].map(|tokens| tokens.to_string());
    // Without prices there are tokens alone.
    let (status, text, _) = run(&[]);
    assert_eq!((status, &row(&text)[4..]), (Some(0), &tokens[..]), "{text}");
    let prices = place.path("prices.json");
    let list = r#"{ "currency": "EUR", "date": "2026-11-01", "models": [
        { "model": "NAME", "input": 1000, "cached_input": 100, "cache_write": 2000, "output": 5000 } ] }"#;
    fs::write(&prices, list.replace("NAME", name)).unwrap();
    let (status, text, _) = run(&[]);
    let amount = (read - cached - kept) * 1000 + cached * 100 + kept * 2000 + written * 5000;
    // Ten-thousandths, rounded.
    let parts = (amount + 50) / 100;
    let money = format!("{}.{:04}", parts / 10_000, parts % 10_000);
    assert_eq!(
        (status, &row(&text)[8..]),
        (Some(0), &[money.clone()][..]),
        "{text}"
    );
    assert!(
        text.contains(&format!("{money} EUR by the prices of 2026-11-01")),
        "{text}"
    );
    let (_, json, _) = run(&["--json"]);
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        answer["money"]["amount"].as_f64(),
        Some(amount as f64 / 1e6),
        "{answer}"
    );
    // The model has no price: nothing is guessed.
    fs::write(&prices, list.replace("NAME", "other-*")).unwrap();
    let (status, text, _) = run(&[]);
    assert_eq!(
        (status, &row(&text)[8..]),
        (Some(0), &["-".to_owned()][..]),
        "{text}"
    );
    assert!(
        text.contains(&format!(
            "in no sum of money: {} tokens: {name}",
            read + written
        )),
        "{text}"
    );
    // What is wrong is said with its place, and the tokens are shown all the same.
    fs::write(&prices, list.replace("100,", "cheap,")).unwrap();
    let (status, text, error) = run(&[]);
    assert_eq!(
        (status, &row(&text)[4..]),
        (Some(65), &tokens[..]),
        "{text}"
    );
    assert!(error.contains("prices.json:2:59: "), "{error}");
    fs::remove_file(&prices).unwrap();
    let (status, text, error) = run(&["--prices", &prices.display().to_string()]);
    assert_eq!(
        (status, &row(&text)[4..]),
        (Some(65), &tokens[..]),
        "{text}"
    );
    assert!(error.contains("there is no such file"), "{error}");
}

#[test]
fn a_stream_that_breaks_off_costs_what_was_reserved() {
    for api in APIS {
        for kept in [0, 1, 3] {
            let model = ScriptedModel::new();
            let place = place_of(&model, api, json!({}), json!({}));
            let daemon = place.start(&["--write"]);
            let mut agent = Running::start(&model, &place, &daemon, api);
            model.fault(Fault::BreaksOff(kept));
            let answer = agent.ask(true, json!({}));
            assert!(
                !answer.is_whole && answer.body == model.sent(),
                "{api} {kept} {answer:?}"
            );
            let reserved = wait_for("the answer's record", || agent.events("model-answer").pop());
            assert_eq!(reserved["count"], "reserved", "{api} {kept}");
            let requested = agent.events("model-request").pop().unwrap();
            let (read, written) = agent.tokens();
            // Of what was read no more than the model said by then.
            let most = requested["reserved"].as_u64().unwrap();
            assert!(
                read + written <= most && (kept > 0 || read + written == most),
                "{api} {kept}"
            );
            assert_eq!(written, 1000);
            let counted = model.counted();
            assert!(
                counted.read + counted.written <= read + written,
                "{api} {kept}"
            );
            daemon.stop();
        }
    }
}

#[test]
fn a_chat_without_a_usage_costs_what_was_reserved_and_usage_is_asked_for() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "openai-chat", json!({}), json!({}));
    let daemon = place.start(&["--write"]);
    let mut agent = Running::start(&model, &place, &daemon, "openai-chat");
    let plain = r#"{"model":"m", "max_tokens":77,"stream":true,"messages":[{"role":"user","content":"ä\u00e4"}]}"#;
    for (sent, passed) in [
        (
            plain.to_owned(),
            plain.replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1),
        ),
        (
            plain.replacen('{', r#"{"stream_options":{"include_obfuscation":true},"#, 1),
            plain.replacen(
                '{',
                r#"{"stream_options":{"include_usage":true,"include_obfuscation":true},"#,
                1,
            ),
        ),
        (
            plain.replacen('{', r#"{"stream_options": null ,"#, 1),
            plain.replacen('{', r#"{"stream_options": {"include_usage":true} ,"#, 1),
        ),
    ] {
        assert_eq!(
            agent.send("POST", "/v1/chat/completions", "", &sent).status,
            200
        );
        assert_eq!(model.last(|request| request.text.clone()), passed);
    }
    let before = model.requests();
    let refused = plain.replacen('{', r#"{"stream_options":{"include_usage":false},"#, 1);
    let answer = agent.send("POST", "/v1/chat/completions", "", &refused);
    agent.refused(403, "include_usage", &answer, before);
    let before = agent.tokens();
    model.fault(Fault::Uncounted);
    assert_eq!(
        agent.send("POST", "/v1/chat/completions", "", plain).status,
        200
    );
    assert_eq!(agent.tokens().1 - before.1, 77);
    daemon.stop();
}

#[test]
fn a_spent_budget_is_answered_429_and_requests_at_a_time_do_not_overrun_it() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "anthropic", json!({}), json!({ "tokens": 20_000 }));
    let daemon = place.start(&["--write"]);
    let mut agent = Running::start(&model, &place, &daemon, "anthropic");
    // Each may cost over five thousand.
    model.fault(Fault::BreaksOff(0));
    let statuses: Vec<u16> = thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| agent.ask(true, json!({})).status))
            .collect();
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        3,
        "{statuses:?}"
    );
    assert!(
        statuses.iter().all(|status| matches!(status, 200 | 429)),
        "{statuses:?}"
    );
    let (read, written) = wait_for("all to be settled", || {
        let tokens = agent.tokens();
        (tokens.1 == 3000).then_some(tokens)
    });
    assert!(read + written <= 20_000);
    let before = model.requests();
    let answer = agent.ask(true, json!({}));
    agent.refused(429, "smaller maximum", &answer, before);
    assert!(answer.head.contains("x-should-retry: false"), "{answer:?}");
    model.fault(Fault::None);
    assert_eq!(agent.ask(false, json!({ "max_tokens": 100 })).status, 200);
    daemon.stop();
}

#[test]
fn no_other_host_path_or_method_and_no_second_request_in_one() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "anthropic", json!({}), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = Running::start(&model, &place, &daemon, "anthropic");
    let good = body("anthropic", false, json!({})).to_string();
    let length = good.len();
    let with = |line: &str, fields: &str, body: &str| {
        agent.raw(format!("{line}\r\n{fields}\r\n{body}").as_bytes())
    };
    let fields = |host: &str, more: &str| {
        format!(
            "Host: {host}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n{more}"
        )
    };
    let post = "POST /v1/messages HTTP/1.1";
    for (line, host, more, status, words) in [
        // Other hosts.
        (post, "evil.example", "", 403, "Host"),
        (post, "localhost.evil.example", "", 403, "Host"),
        (post, "127.0.0.1@evil.example", "", 403, "Host"),
        (
            "POST http://evil.example/v1/messages HTTP/1.1",
            "localhost",
            "",
            403,
            "a path",
        ),
        (
            "POST http://localhost/v1/messages HTTP/1.1",
            "localhost",
            "",
            403,
            "a path",
        ),
        (
            "POST //evil.example/v1/messages HTTP/1.1",
            "localhost",
            "",
            404,
            "path",
        ),
        (
            "CONNECT evil.example:443 HTTP/1.1",
            "localhost",
            "",
            403,
            "a path",
        ),
        // Other paths.
        ("POST /v1/files HTTP/1.1", "localhost", "", 404, "path"),
        ("POST /v1/messages/ HTTP/1.1", "localhost", "", 404, "path"),
        (
            "POST /v1/messages/../files HTTP/1.1",
            "localhost",
            "",
            404,
            "path",
        ),
        (
            "POST /v1/messages%2f..%2ffiles HTTP/1.1",
            "localhost",
            "",
            404,
            "path",
        ),
        ("POST /V1/MESSAGES HTTP/1.1", "localhost", "", 404, "path"),
        (
            "GET /v1/models/..%2f..%2fadmin HTTP/1.1",
            "localhost",
            "",
            404,
            "path",
        ),
        ("POST /v1/complete HTTP/1.1", "localhost", "", 404, "path"),
        (
            "GET /v1/files/x/content HTTP/1.1",
            "localhost",
            "",
            404,
            "path",
        ),
        (
            "POST /v1/messages/batches HTTP/1.1",
            "localhost",
            "",
            404,
            "path",
        ),
        // Other methods.
        (
            "DELETE /v1/messages HTTP/1.1",
            "localhost",
            "",
            405,
            "method",
        ),
        ("GET /v1/messages HTTP/1.1", "localhost", "", 405, "method"),
        ("POST /v1/models HTTP/1.1", "localhost", "", 405, "method"),
        (
            "TRACE /v1/messages HTTP/1.1",
            "localhost",
            "",
            405,
            "method",
        ),
        // Other parameters.
        (
            "POST /v1/messages?url=http://evil.example HTTP/1.1",
            "localhost",
            "",
            403,
            "query",
        ),
        (
            "POST /v1/messages?beta=true&beta=true HTTP/1.1",
            "localhost",
            "",
            403,
            "twice",
        ),
        (
            "POST /v1/messages?beta=false HTTP/1.1",
            "localhost",
            "",
            403,
            "beta",
        ),
        // Another protocol.
        (post, "localhost", "Upgrade: websocket\r\n", 400, "Upgrade"),
        (
            post,
            "localhost",
            "Content-Encoding: gzip\r\n",
            415,
            "Content-Encoding",
        ),
        (post, "localhost", "Content-Length: 5\r\n", 400, "twice"),
        (
            post,
            "localhost",
            "Transfer-Encoding: chunked\r\n",
            400,
            "Transfer-Encoding",
        ),
        (
            post,
            "localhost",
            "Transfer-Encoding: gzip, chunked\r\n",
            400,
            "chunked",
        ),
        (
            post,
            "localhost",
            "X-A: a\nX-B: b\r\n",
            400,
            "control character",
        ),
        (post, "localhost", "X-A: a\r\n folded\r\n", 400, "next line"),
        (post, "localhost", "Host: evil.example\r\n", 400, "twice"),
        ("POST /v1/messages HTTP/1.0", "localhost", "", 400, "1.1"),
        ("POST /v1/messages HTTP/2.0", "localhost", "", 505, "1.1"),
    ] {
        let answer = with(line, &fields(host, more), &good);
        agent.refused(status, words, &answer, 0);
    }
    // Two in one.
    let answer = with(
        post,
        &fields("localhost", ""),
        &format!("{good}POST /v1/files HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    );
    agent.refused(400, "one request at a time", &answer, 0);
    let chunked =
        "Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    agent.refused(
        411,
        "Content-Length",
        &with(post, chunked, "2\r\n{}\r\n0\r\n\r\n"),
        0,
    );
    let huge = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 33554433\r\n";
    agent.refused(413, "32 MiB", &with(post, huge, ""), 0);
    let long = format!("Host: localhost\r\nX: {}\r\n", "x".repeat(40_000));
    agent.refused(431, "head", &with(post, &long, ""), 0);
    let text = fields("localhost", "").replace("application/json", "text/plain");
    agent.refused(415, "JSON", &with(post, &text, &good), 0);
    agent.refused(400, "no request", &agent.raw(b"\x16\x03\x01\x02"), 0);
    assert!(agent.events("model-request").is_empty());
    assert!(agent.events("model-refused").len() > 30);
    daemon.stop();
}

#[test]
fn what_has_the_provider_do_more_than_answer_is_refused() {
    let image = |source: Value| json!({ "messages": [{ "role": "user", "content": [{ "type": "image", "source": source }] }] });
    let chat = |part: Value| json!({ "messages": [{ "role": "user", "content": [part] }] });
    let item = |item: Value| json!({ "input": [item] });
    let part = |part: Value| json!({ "contents": [{ "role": "user", "parts": [part] }] });
    let tool = |tool: Value| json!({ "tools": [tool] });
    let cases: [(&str, &str, Vec<Value>); 26] = [
        (
            "anthropic",
            "web-search",
            vec![tool(
                json!({ "type": "web_search_20250305", "name": "web_search" }),
            )],
        ),
        (
            "anthropic",
            "web-fetch",
            vec![tool(
                json!({ "type": "web_fetch_20250910", "name": "web_fetch" }),
            )],
        ),
        (
            "anthropic",
            "code-execution",
            vec![
                tool(json!({ "type": "code_execution_20250825", "name": "code_execution" })),
                json!({ "container": "c_1" }),
            ],
        ),
        (
            "anthropic",
            "remote-mcp",
            vec![
                json!({ "mcp_servers": [{ "type": "url", "url": "https://evil.example", "name": "e" }] }),
                tool(json!({ "type": "mcp_toolset", "mcp_server_name": "e" })),
            ],
        ),
        (
            "anthropic",
            "urls",
            vec![image(
                json!({ "type": "url", "url": "https://evil.example/?secret" }),
            )],
        ),
        (
            "anthropic",
            "files",
            vec![
                image(json!({ "type": "file", "file_id": "file_1" })),
                json!({ "messages": [{ "role": "user", "content": [{ "type": "container_upload", "file_id": "f" }] }] }),
            ],
        ),
        (
            "anthropic",
            "does not know",
            vec![
                tool(json!({ "type": "teleport_20270101" })),
                json!({ "new_way_out": true }),
                json!({ "MCP_Servers": [{ "name": "e" }] }),
                json!({ "betas": ["mcp-client-2025-11-20"] }),
                image(json!({ "url": "https://evil.example/?secret", "type": "base64" })),
                tool(json!({ "name": "t", "url": "https://evil.example" })),
                json!({ "messages": [{ "role": "user", "content": [{ "type": "video" }] }] }),
            ],
        ),
        (
            "openai-responses",
            "web-search",
            vec![
                tool(json!({ "type": "web_search" })),
                tool(json!({ "type": "web_search_preview" })),
            ],
        ),
        (
            "openai-responses",
            "code-execution",
            vec![tool(
                json!({ "type": "code_interpreter", "container": { "type": "auto" } }),
            )],
        ),
        (
            "openai-responses",
            "remote-mcp",
            vec![tool(
                json!({ "type": "mcp", "server_url": "https://evil.example" }),
            )],
        ),
        (
            "openai-responses",
            "files",
            vec![
                tool(json!({ "type": "file_search", "vector_store_ids": ["v"] })),
                item(
                    json!({ "role": "user", "content": [{ "type": "input_file", "file_id": "f" }] }),
                ),
            ],
        ),
        (
            "openai-responses",
            "urls",
            vec![
                item(
                    json!({ "role": "user", "content": [{ "type": "input_image", "image_url": "https://evil.example" }] }),
                ),
                item(
                    json!({ "role": "user", "content": [{ "type": "input_file", "file_url": "https://evil.example" }] }),
                ),
                item(
                    json!({ "role": "user", "content": [{ "type": "input_file", "file_data": "https://evil.example" }] }),
                ),
            ],
        ),
        (
            "openai-responses",
            "stored",
            vec![
                json!({ "previous_response_id": "resp_1" }),
                json!({ "store": true }),
                json!({ "conversation": "conv_1" }),
                json!({ "background": true }),
                json!({ "prompt": { "id": "p_1" } }),
                item(json!({ "type": "item_reference", "id": "i" })),
            ],
        ),
        (
            "openai-responses",
            "does not know",
            vec![
                tool(json!({ "type": "teleport" })),
                json!({ "plugins": [] }),
            ],
        ),
        (
            "openai-chat",
            "urls",
            vec![
                chat(
                    json!({ "type": "image_url", "image_url": { "url": "https://evil.example" } }),
                ),
                chat(json!({ "type": "image_url", "image_url": "//evil.example" })),
                chat(json!({ "type": "file", "file": { "file_data": "https://evil.example" } })),
            ],
        ),
        (
            "openai-chat",
            "files",
            vec![chat(json!({ "type": "file", "file": { "file_id": "f" } }))],
        ),
        (
            "openai-chat",
            "web-search",
            vec![
                json!({ "web_search_options": {} }),
                json!({ "model": "any/model:online" }),
                json!({ "model": "gpt-4o-search-preview" }),
            ],
        ),
        ("openai-chat", "stored", vec![json!({ "store": true })]),
        (
            "openai-chat",
            "remote-mcp",
            vec![tool(
                json!({ "type": "mcp", "server_url": "https://evil.example" }),
            )],
        ),
        (
            "openai-chat",
            "does not know",
            vec![
                json!({ "plugins": [{ "id": "web" }] }),
                tool(json!({ "googleSearch": {} })),
                chat(json!({ "image": "https://evil.example" })),
                chat(json!({ "type": "file", "file": { "path": "file:///etc/passwd" } })),
            ],
        ),
        (
            "gemini",
            "web-search",
            vec![
                tool(json!({ "googleSearch": {} })),
                tool(json!({ "google_search": {} })),
                tool(json!({ "googleMaps": {} })),
            ],
        ),
        (
            "gemini",
            "web-fetch",
            vec![
                tool(json!({ "urlContext": {} })),
                tool(json!({ "url_context": {} })),
            ],
        ),
        (
            "gemini",
            "code-execution",
            vec![tool(json!({ "codeExecution": {} }))],
        ),
        (
            "gemini",
            "urls",
            vec![
                part(json!({ "fileData": { "fileUri": "https://evil.example" } })),
                part(json!({ "file_data": { "file_uri": "https://evil.example" } })),
            ],
        ),
        (
            "gemini",
            "stored",
            vec![
                json!({ "cachedContent": "cachedContents/1" }),
                json!({ "cached_content": "c" }),
            ],
        ),
        (
            "gemini",
            "does not know",
            vec![
                tool(json!({ "parallelAiSearch": {} })),
                part(json!({ "teleport": {} })),
            ],
        ),
    ];
    for api in APIS {
        let model = ScriptedModel::new();
        let place = place_of(&model, api, json!({}), json!({}));
        let daemon = place.start(&["--write"]);
        let agent = Running::start(&model, &place, &daemon, api);
        for (_, words, bodies) in cases.iter().filter(|(of, _, _)| *of == api) {
            for body in bodies {
                agent.refused(403, words, &agent.ask(false, body.clone()), 0);
            }
        }
        // What two readers could read differently, and what is no JSON.
        let good = body(api, false, json!({})).to_string();
        let twice = |key: &str| good.replacen('{', &format!("{{{key}:1,"), 1);
        let first = good.split('"').nth(1).unwrap();
        for body in [
            twice(&format!("\"{first}\"")),
            twice(&format!("\"{}\"", first.to_uppercase())),
            twice(&format!(
                "\"\\u{:04x}{}\"",
                first.as_bytes()[0],
                &first[1..]
            )),
            good.clone() + "{}",
            good[1..].to_owned(),
            format!("[{good}]"),
            String::new(),
            "{\"a\":".repeat(200) + "1" + &"}".repeat(200),
        ] {
            let answer = agent.send("POST", agent.target(false), "", &body);
            assert!(matches!(answer.status, 400 | 403), "{body} {answer:?}");
            agent.refused(answer.status, "body", &answer, 0);
        }
        daemon.stop();
    }
}

#[test]
fn what_an_entry_allows_passes() {
    let model = ScriptedModel::new();
    let place = place_of(
        &model,
        "anthropic",
        json!({ "allow": ["web-search", "urls"] }),
        json!({}),
    );
    let daemon = place.start(&["--write"]);
    let agent = Running::start(&model, &place, &daemon, "anthropic");
    let asked = json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }],
        "messages": [{ "role": "user", "content": [{ "type": "image", "source": { "type": "url", "url": "https://x.example" } }] }] });
    assert_eq!(agent.ask(false, asked).status, 200);
    let before = model.requests();
    let answer = agent.ask(false, json!({ "container": "c" }));
    agent.refused(403, "code-execution", &answer, before);
    daemon.stop();
}

#[test]
fn keys_go_in_neither_direction() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "anthropic", json!({}), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = Running::start(&model, &place, &daemon, "anthropic");
    let fields = "X-Api-Key: mine\r\nAuthorization: Bearer mine\r\nCookie: a=mine\r\nX-Forwarded-For: mine\r\n\
        Proxy-Authorization: mine\r\nX-Goog-Api-Key: mine\r\nForwarded: for=mine\r\nTE: trailers\r\nX-Other: mine\r\n\
        Accept-Encoding: gzip\r\nAnthropic-Version: 2023-06-01\r\n\
        Anthropic-Beta: files-api-2025-04-14, interleaved-thinking-2025-05-14,mcp-client-2025-04-04\r\n";
    let asked = body("anthropic", false, json!({})).to_string();
    let answer = agent.send("POST", "/v1/messages", fields, &asked);
    assert_eq!(
        (answer.status, answer.head.contains("request-id: req_1")),
        (200, true)
    );
    for dropped in ["set-cookie", "alt-svc"] {
        assert!(!answer.head.contains(dropped), "{}", answer.head);
    }
    model.last(|request| {
        assert!(
            request
                .fields
                .iter()
                .all(|(_, value)| !value.contains("mine")),
            "{request:?}"
        );
        assert_eq!(request.field("x-api-key"), Some(KEY));
        assert_eq!(request.field("accept-encoding"), Some("identity"));
        assert_eq!(request.field("anthropic-version"), Some("2023-06-01"));
        assert_eq!(
            request.field("anthropic-beta"),
            Some("interleaved-thinking-2025-05-14")
        );
        assert!(request.field("te").is_none() && request.field("connection").is_none());
        assert_eq!(request.text, asked);
    });
    // A model that repeats what it was sent shows no key.
    model.fault(Fault::Echo);
    let answer = agent.send("POST", "/v1/messages", fields, &asked);
    let shown = format!("{}\n{}", answer.head, answer.body);
    assert!(answer.status == 400 && shown.contains("******"), "{shown}");
    assert!(
        !shown.to_lowercase().contains(&KEY.to_lowercase()),
        "{shown}"
    );
    // Nor does the trail or the log.
    daemon.stop();
    for record in records_in(&place.path("state").join("trail")) {
        assert!(!record.rec.to_string().contains(KEY));
    }
    assert!(
        !std::fs::read_to_string(place.path("log"))
            .unwrap()
            .contains(KEY)
    );
}

#[test]
fn a_model_that_misbehaves_is_refused_or_cut_off() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "openai-responses", json!({}), json!({}));
    let daemon = place.start(&["--write"]);
    let mut agent = Running::start(&model, &place, &daemon, "openai-responses");
    for (fault, words, cost) in [
        (Fault::Redirect, "redirect", 0),
        (Fault::Upgrade, "protocol", 0),
        (Fault::Encoded, "encoded", 1000),
    ] {
        model.fault(fault);
        let (before, asked) = (agent.tokens().1, model.requests());
        let answer = agent.ask(true, json!({}));
        assert_eq!(
            (answer.status, model.requests()),
            (502, asked + 1),
            "{answer:?}"
        );
        assert!(answer.message().contains(words), "{answer:?}");
        assert_eq!(agent.tokens().1 - before, cost, "{fault:?}");
    }
    // What the provider says of itself passes, and costs nothing.
    model.fault(Fault::Busy);
    let before = agent.tokens();
    let answer = agent.ask(true, json!({}));
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (429, "{\"error\":\"busy\"}")
    );
    assert!(answer.head.contains("retry-after: 7"));
    assert_eq!(agent.tokens(), before);
    // An answer without an end is one who asks may leave, and costs what was reserved.
    model.fault(Fault::Endless);
    let mut stream = UnixStream::connect(agent.socket()).unwrap();
    let asked = body("openai-responses", true, json!({})).to_string();
    let head = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length:";
    write!(stream, "{head} {}\r\n\r\n{asked}", asked.len()).unwrap();
    stream.read_exact(&mut [0; 100_000]).unwrap();
    drop(stream);
    wait_for("the answer to be settled", || {
        (agent.tokens().1 == before.1 + 1000).then_some(())
    });
    // What it does not say is said for it: it keeps nothing.
    model.fault(Fault::None);
    assert_eq!(agent.ask(true, json!({})).status, 200);
    model.last(|request| assert_eq!(request.body["store"], false));
    daemon.stop();
}

#[test]
fn a_connection_serves_one_request_after_the_other_and_there_are_not_too_many() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "anthropic", json!({}), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = Running::start(&model, &place, &daemon, "anthropic");
    let asked = body("anthropic", false, json!({})).to_string();
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{asked}",
        asked.len()
    );
    let mut connection =
        colibri_tests::http::Http::over(UnixStream::connect(agent.socket()).unwrap());
    for _ in 0..3 {
        assert!(connection.send(request.as_bytes()));
        assert_eq!(connection.response().status, 200);
    }
    assert_eq!((model.requests(), model.port.connections()), (3, 1));
    let mut open: Vec<UnixStream> = (0..30)
        .map(|_| UnixStream::connect(agent.socket()).unwrap())
        .collect();
    let closed = open.iter_mut().skip(15).filter(|stream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        matches!((&**stream).read(&mut [0]), Ok(0) | Err(_))
    });
    assert_eq!(closed.count(), 15);
    drop(open);
    daemon.stop();
}

#[test]
fn of_long_requests_few_are_in_memory_until_they_are_answered() {
    const ANSWER: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let upstream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    let release = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let released = release.clone();
    // One that reads everything, and answers nobody until it is let.
    thread::spawn(move || {
        for mut stream in upstream.incoming().flatten() {
            let released = released.clone();
            thread::spawn(move || {
                // All of the request: an answer before its end would have the connection end there.
                let mut request = BufReader::new(&stream);
                let (mut line, mut length) = (String::new(), 0);
                while request.read_line(&mut line).unwrap() > 2 {
                    if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = said.trim().parse().unwrap();
                    }
                    line.clear();
                }
                std::io::copy(&mut request.take(length), &mut std::io::sink()).unwrap();
                while !released.load(std::sync::atomic::Ordering::SeqCst) {
                    thread::sleep(std::time::Duration::from_millis(10));
                }
                let _ = stream.write_all(ANSWER);
            });
        }
    });
    let model = ScriptedModel::new();
    let place = place_of(
        &model,
        "anthropic",
        json!({ "url": format!("http://{address}") }),
        json!({}),
    );
    let daemon = place.start(&["--write"]);
    let running = Running::start(&model, &place, &daemon, "anthropic");
    let long = json!({ "system": "x".repeat(3 << 19) });
    thread::scope(|scope| {
        let asked: Vec<_> = (0..7)
            .map(|_| scope.spawn(|| running.ask(false, long.clone())))
            .collect();
        let out = || running.events("model-request").len();
        wait_for("long requests to go out", || (out() >= 4).then_some(()));
        // The others wait for their turn, and short ones do not.
        let short = scope.spawn(|| running.ask(false, json!({})));
        wait_for("a short request to go out", || (out() == 5).then_some(()));
        release.store(true, std::sync::atomic::Ordering::SeqCst);
        for asked in asked.into_iter().chain([short]) {
            assert_eq!(asked.join().unwrap().status, 200);
        }
        assert_eq!(out(), 8);
    });
    daemon.stop();
}

#[test]
fn long_requests_of_two_agents_that_do_not_end_keep_no_third_waiting() {
    let model = ScriptedModel::new();
    let place = Place::new();
    place.secret("model", KEY);
    let entry = model.entry("anthropic", json!({}));
    let agent = json!({ "command": "/bin/sleep", "args": ["600"], "max": 3, "model": entry });
    place.registry_text(&json!({ "agents": { "coder": agent } }).to_string());
    let daemon = place.start(&["--write"]);
    let start = || Running::start(&model, &place, &daemon, "anthropic");
    let (slow, third) = ([start(), start()], start());
    let long = "x".repeat(3 << 19);
    let begun = slow
        .iter()
        .flat_map(|agent| (0..4).map(|_| agent.socket()))
        .map(|socket| {
            let mut stream = UnixStream::connect(socket).unwrap();
            let head = "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:8377\r\nContent-Type: application/json\r\n\
                    Content-Length: 4000000\r\n\r\n";
            stream.write_all(format!("{head}{long}").as_bytes()).unwrap();
            stream
        });
    let begun: Vec<_> = begun.collect();
    assert_eq!(third.ask(false, json!({ "system": long })).status, 200);
    for mut stream in begun {
        // None of them was answered meanwhile: they are read, and nobody waited for their end.
        stream.set_nonblocking(true).unwrap();
        let answered = stream.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(answered, Err(std::io::ErrorKind::WouldBlock));
    }
    daemon.stop();
}

#[test]
fn nothing_goes_out_that_cannot_be_recorded() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "gemini", json!({}), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = Running::start(&model, &place, &daemon, "gemini");
    assert_eq!(agent.ask(true, json!({})).status, 200);
    let request = agent.events("model-request").pop().unwrap();
    let sent = body("gemini", true, json!({})).to_string();
    assert_eq!(request["sha256"], colibri_registry::sha256_hex(&sent));
    assert_eq!(
        (&request["length"], &request["n"]),
        (&json!(sent.len()), &json!(1))
    );
    assert_eq!(
        (&request["agent"], &request["api"]),
        (&json!("coder"), &json!("gemini"))
    );
    assert_eq!(
        request["path"],
        "/v1beta/models/gemini-2.5-pro:streamGenerateContent"
    );
    assert_eq!(request["session"], agent.session.as_str());
    // Without its directory there is no trail.
    let (trail, away) = (
        place.path("state").join("trail"),
        place.path("state").join("away"),
    );
    std::fs::rename(&trail, &away).unwrap();
    // That it is gone is seen after a moment.
    wait_for("a refusal", || {
        (agent.ask(true, json!({})).status == 503).then_some(())
    });
    let before = model.requests();
    agent.refused(503, "recorded", &agent.ask(true, json!({})), before);
    std::fs::rename(&away, &trail).unwrap();
    wait_for("the trail to be there again", || {
        (agent.ask(true, json!({})).status == 200).then_some(())
    });
    daemon.stop();
}

#[test]
fn an_instance_that_ends_takes_its_relay_along() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "anthropic", json!({}), json!({}));
    let daemon = place.start(&["--write"]);
    let mut agent = Running::start(&model, &place, &daemon, "anthropic");
    let mut idle = UnixStream::connect(agent.socket()).unwrap();
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    let session = agent.session.clone();
    agent
        .operator
        .ask("colibri/stop-agent", json!({ "id": session }));
    assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
    wait_for("the socket to go", || {
        (!agent.socket().exists()).then_some(())
    });
    daemon.stop();
}

#[test]
fn a_program_behind_the_forwarder_reaches_its_model() {
    let model = ScriptedModel::new();
    let place = place_of(&model, "anthropic", json!({}), json!({}));
    let daemon = place.start(&["--write"]);
    let agent = Running::start(&model, &place, &daemon, "anthropic");
    // A shell asks over TCP where it was told to, and says what came back by its exit status.
    let script = r#"
        exec 3<>"/dev/tcp/127.0.0.1/${ANTHROPIC_BASE_URL##*:}" || exit 3
        body='{"model":"m","max_tokens":9,"messages":[]}'
        printf 'POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' "${#body}" "$body" >&3
        cat <&3; echo; echo "$OPENAI_BASE_URL $GOOGLE_GEMINI_BASE_URL"; exit 42"#;
    let door = |script: &str| {
        let mut command = std::process::Command::new(program("colibri-mcp"));
        command
            .args([
                "door",
                "--listen",
                "127.0.0.1:0",
                "--",
                "/bin/bash",
                "-c",
                script,
            ])
            .env(
                "COLIBRI_MCP_SOCKET",
                agent.socket().with_file_name("colibri.sock"),
            )
            .env("GOOGLE_GEMINI_BASE_URL", "mine")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let output = door(script).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        output.status.code(),
        Some(42),
        "{said} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        said.contains("200 OK") && said.contains("input_tokens"),
        "{said}"
    );
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("http://127.0.0.1:") && last.ends_with("/v1 mine"),
        "{last}"
    );
    // Signals are the command's, and so is the status that they bring about.
    let mut child = door("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
        .spawn()
        .unwrap();
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0; 6])
        .unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.id() as i32),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(door("kill -KILL $$").status().unwrap().code(), Some(137));
    // Without a relay it says so.
    let lost = script.replace("exit 42", "exit 0");
    let output = door(&lost)
        .env("COLIBRI_MODEL_SOCKET", "/nowhere/model.sock")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("503") && said.contains("/nowhere/model.sock"),
        "{said} {output:?}"
    );
    // Only loopback is listened on, and what is not there cannot be run.
    let run = |args: &[&str]| {
        std::process::Command::new(program("colibri-mcp"))
            .args(args)
            .output()
            .unwrap()
    };
    assert_eq!(
        run(&["door", "--listen", "0.0.0.0:0", "--", "true"])
            .status
            .code(),
        Some(64)
    );
    assert_eq!(
        run(&["door", "--listen", "127.0.0.1:0", "--", "/no/such"])
            .status
            .code(),
        Some(127)
    );
    daemon.stop();
}
