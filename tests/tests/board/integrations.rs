//! Integrations: servers of our own that reach something outside, as the daemon runs them, with the
//! contract that ships.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use colibri_tests::model::{Fault, ScriptedModel};
use colibri_tests::remote::{Authority, Port, Request, answer};
use colibri_tests::{Client, LEGACY, MODERN, Place, code_of, program, text_of, wait_for};
use serde_json::{Value, json};

const KEY: &str = "sk-0123456789-the-key";
const APIS: [&str; 4] = ["anthropic", "openai-responses", "openai-chat", "gemini"];
const WORDS: &str = "It was a dark and stormy night; the usage of tokens was great.";

/// A place whose server `model-api` is the adapter at this address, with the contract that ships,
/// but for models, and for waits of a moment.
fn place_at(url: &str, api: &str, more: &[&str]) -> Place {
    let place = Place::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/contracts/model-api.json");
    let mut contract: Value = serde_json::from_slice(&fs::read(shipped).unwrap()).unwrap();
    let complete = &mut contract["tools"]["complete"];
    complete["when"]["properties"]["model"] = json!({ "enum": ["m", "gemini-2.5-pro"] });
    complete["retries"]["MODEL_FAILED"] = json!([1, 1]);
    complete["retries"]["MODEL_BUSY"] = json!([1, 1]);
    complete["retries"]["INTEGRATION_UNAVAILABLE"] = json!([1, 1]);
    let path = place.path("contract.json");
    fs::write(&path, contract.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    place.secret("model", KEY);
    let mut args = vec![
        "integration",
        "model",
        "--api",
        api,
        "--url",
        url,
        "--allow-address",
        "loopback",
    ];
    args.extend(more);
    let entry = json!({ "command": program("colibri-mcp"), "args": args, "contract": path,
                        "env": { "MODEL_API_KEY": { "secret": "model" } } });
    place.registry(&json!({ "model-api": entry }));
    place
}

fn arguments(context: &str) -> Value {
    json!({ "task_id": "7", "context": context, "max_tokens": 100, "temperature": 0.5, "model": "m" })
}

fn complete(client: &mut Client, arguments: &Value) -> Value {
    client.ask(
        "tools/call",
        json!({ "name": "model-api__complete", "arguments": arguments }),
    )
}

/// What a call that failed at the adapter says.
fn failed(answer: &Value) -> (String, String) {
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer}");
    let error = &result["structuredContent"]["error"];
    let text = |key: &str| {
        error[key]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    };
    (text("code"), text("message"))
}

#[test]
fn four_interfaces_are_asked_and_each_answer_is_recorded() {
    for api in APIS {
        let model = ScriptedModel::new();
        let place = place_at(&model.port.url(""), api, &[]);
        let daemon = place.start(&[]);
        for version in [LEGACY, MODERN] {
            let mut client = if version == MODERN {
                daemon.modern()
            } else {
                daemon.quiet(version)
            };
            let answer = complete(&mut client, &arguments("Hello, \u{fc}"));
            let said = &answer["result"]["structuredContent"];
            assert_eq!(
                (&said["completion"], &said["model_used"]),
                (&json!(WORDS), &json!("m")),
                "{api}: {answer}"
            );
            assert_eq!(text_of(&answer["result"]), WORDS);
        }
        let (path, key) = match api {
            "anthropic" => ("/v1/messages", ("x-api-key", KEY.to_owned())),
            "openai-responses" => ("/v1/responses", ("authorization", format!("Bearer {KEY}"))),
            "openai-chat" => (
                "/v1/chat/completions",
                ("authorization", format!("Bearer {KEY}")),
            ),
            _ => (
                "/v1beta/models/m:generateContent",
                ("x-goog-api-key", KEY.to_owned()),
            ),
        };
        model.last(|request| {
            assert_eq!(request.line, format!("POST {path} HTTP/1.1"), "{api}");
            assert_eq!(request.field(key.0), Some(&*key.1), "{api}");
            assert!(
                request.text.contains("Hello, \u{fc}") && !request.text.contains("\"stream\":true"),
                "{}",
                request.text
            );
        });
        let counted = model.counted();
        let records = place.trail();
        let calls: Vec<&Value> = records
            .iter()
            .filter(|record| record["event"] == "model_call")
            .collect();
        let sum = |key: &str| {
            calls
                .iter()
                .map(|record| record["details"][key].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(
            (calls.len(), sum("tokens_in"), sum("tokens_out")),
            (2, counted.read, counted.written),
            "{api}"
        );
        let details = &calls[0]["details"];
        assert_eq!(
            (&details["model"], &details["server"], &details["tool"]),
            (&json!("m"), &json!("model-api"), &json!("complete"))
        );
        assert!(
            details["stop_reason"].is_string() && details["latency_ms"].is_u64(),
            "{details}"
        );
        let entered = details["call"].as_u64().unwrap() as usize;
        assert_eq!(records[entered]["kind"], "enter");
        wait_for("the same in the ledger", || {
            let told = daemon.connect().ask("colibri/costs", json!({}));
            let rows = told["result"]["rows"].as_array()?;
            let row = rows.iter().find(|row| row["tool"] == "complete")?;
            counted.is_in(row, 2).then_some(())
        });
        drop(daemon);
        place.assert_trail_is_sound();
    }
}

#[test]
fn the_contract_keeps_a_call_to_what_it_is() {
    let model = ScriptedModel::new();
    let place = place_at(&model.port.url(""), "openai-chat", &[]);
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    for (key, value) in [
        ("model", json!("other")),
        ("max_tokens", json!(4097)),
        ("temperature", json!(2)),
        ("system", json!("you are root")),
        ("stream", json!(true)),
        ("messages", json!([])),
        ("context", json!([{ "type": "image" }])),
        ("task_id", json!(null)),
    ] {
        let mut odd = arguments("x");
        odd[key] = value;
        let answer = complete(&mut client, &odd);
        assert_eq!(code_of(&answer), Some("CONTRACT_DENIED"), "{key}: {answer}");
    }
    assert_eq!(model.requests(), 0);
}

#[test]
fn what_fails_is_tried_again_as_the_contract_says_and_once_by_the_adapter() {
    for (status, head, code, attempts) in [
        ("500 Oops", "", "MODEL_FAILED", 3),
        ("529 Overloaded", "", "MODEL_FAILED", 3),
        ("429 Too Many Requests", "", "MODEL_BUSY", 3),
        (
            "429 Too Many Requests",
            "Retry-After: 100000\r\n",
            "MODEL_BUSY",
            1,
        ),
        ("400 Bad Request", "", "MODEL_REFUSED", 1),
        ("401 Unauthorized", "", "MODEL_DENIED", 1),
        ("302 Found", "Location: /elsewhere\r\n", "MODEL_REFUSED", 1),
        ("204 No Content", "", "MODEL_REFUSED", 1),
    ] {
        let asked: Arc<AtomicUsize> = Arc::default();
        let counting = asked.clone();
        let port = Port::answering(move |request: &Request, stream: &mut TcpStream| {
            counting.fetch_add(1, Ordering::SeqCst);
            let told = format!(
                "no \u{1b}[2J\u{202e} {}",
                request.field("authorization").unwrap_or_default()
            );
            answer(
                stream,
                status,
                head,
                &json!({ "error": { "message": told } }).to_string(),
            )
        });
        let place = place_at(&port.url(""), "openai-chat", &[]);
        let daemon = place.start(&[]);
        let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
        let (found, message) = failed(&answer);
        assert_eq!(
            (&*found, asked.load(Ordering::SeqCst)),
            (code, attempts),
            "{status}: {message}"
        );
        // Neither the key nor what would act on a terminal comes through.
        assert!(
            !answer.to_string().contains(KEY) && !message.contains(['\u{1b}', '\u{202e}']),
            "{message}"
        );
        if status != "204 No Content" {
            assert!(message.contains("Bearer [key]"), "{message}");
        }
        let hints = [
            (
                "/elsewhere",
                "it leads to /elsewhere, which is not followed",
            ),
            ("100000", "left alone for 100000 s"),
        ];
        for (sent, hint) in hints.iter().filter(|(sent, _)| head.contains(sent)) {
            assert!(message.contains(hint), "{sent}: {message}");
        }
        let records = place.trail();
        let retries: Vec<&Value> = records
            .iter()
            .filter(|record| record["kind"] == "retry")
            .collect();
        assert_eq!(retries.len(), attempts - 1, "{status}");
        assert!(
            retries.iter().all(|record| record["error_code"] == code),
            "{retries:?}"
        );
        assert!(records.iter().all(|record| record["event"] != "model_call"));
        // The record has the adapter's code and class, whether the contract has it tried again or
        // not.
        let is_transient = matches!(code, "MODEL_FAILED" | "MODEL_BUSY");
        let class = if is_transient {
            "transient"
        } else {
            "permanent"
        };
        let exit = records
            .iter()
            .rfind(|record| record["kind"] == "exit")
            .unwrap();
        assert_eq!(
            (&exit["error_code"], &exit["error_class"]),
            (&json!(code), &json!(class)),
            "{exit}"
        );
        assert!(
            retries.iter().all(|record| record["error_class"] == class),
            "{retries:?}"
        );
    }
}

#[test]
fn a_model_that_is_not_there_is_tried_again_as_the_contract_says_and_then_is_somebodys_task() {
    // An address that nobody listens at: the connection is refused.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let place = place_at(&nobody, "openai-chat", &[]);
    let daemon = place.start(&[]);
    let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
    assert_eq!(failed(&answer).0, "INTEGRATION_UNAVAILABLE", "{answer}");
    assert!(deferred(&answer).is_some(), "{answer}");
    let records = place.trail();
    let of_call = |record: &&Value| record["operation"] == "complete";
    let said: Vec<_> = records
        .iter()
        .filter(of_call)
        .map(|record| {
            let text = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
            (text("result"), text("error_code"), text("error_class"))
        })
        .collect();
    let of = |result: &str| {
        (
            result.to_owned(),
            "INTEGRATION_UNAVAILABLE".to_owned(),
            "transient".to_owned(),
        )
    };
    assert_eq!(said, [of("RETRY"), of("RETRY"), of("FAIL")]);
    drop(daemon);
    place.assert_trail_is_sound();
}

#[test]
fn a_provider_that_is_none_is_no_answer() {
    let usage = r#""usage":{"prompt_tokens":1,"completion_tokens":1}"#;
    let of_length = |length: usize| {
        let content = "x".repeat(length);
        format!(
            r#"{{"choices":[{{"finish_reason":"stop","message":{{"content":"{content}"}}}}],{usage}}}"#
        )
    };
    // A byte over 1 MiB in all.
    let long = of_length((1 << 20) + 1 - of_length(0).len());
    let deep = "[".repeat(1_000_000);
    for (what, body) in [
        ("nothing", String::new()),
        ("text", "<html>".to_owned()),
        ("long", long),
        ("deep", deep),
        (
            "other",
            r#"{"choices":[{"finish_reason":"stop","message":{"content":"x"}}]}"#.to_owned(),
        ),
        (
            "negative",
            r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":-1,"completion_tokens":1e9}}"#.to_owned(),
        ),
        ("types", format!(r#"{{"choices":{{"finish_reason":7}},{usage}}}"#)),
        (
            "more than anything costs",
            r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":4294967297,"completion_tokens":1}}"#
                .to_owned(),
        ),
    ] {
        let port = Port::answering(move |_: &Request, stream: &mut TcpStream| {
            answer(stream, "200 OK", "Content-Type: application/json\r\n", &body)
        });
        let place = place_at(&port.url(""), "openai-chat", &[]);
        let daemon = place.start(&[]);
        let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
        assert_eq!(failed(&answer).0, "MODEL_ANSWER_INVALID", "{what}: {answer}");
    }
    // What a good answer holds is data, whatever it says of itself, and long words are cut.
    let port = Port::answering(move |_: &Request, stream: &mut TcpStream| {
        let choice = json!({ "finish_reason": "s".repeat(500), "message": { "content": format!("\u{202e}{KEY}") } });
        let body = json!({ "model": "\u{1b}m", "choices": [choice],
            "usage": { "prompt_tokens": 1_u64 << 32, "completion_tokens": 0 } });
        answer(stream, "200 OK", "", &body.to_string())
    });
    let place = place_at(&port.url(""), "openai-chat", &[]);
    let daemon = place.start(&[]);
    let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
    let said = &answer["result"]["structuredContent"];
    assert_eq!(said["model_used"], "\\u{1b}m", "{answer}");
    assert_eq!(said["completion"], "\u{202e}[key]");
    assert_eq!(said["stop_reason"].as_str().unwrap().chars().count(), 65);
    assert_eq!(said["tokens_in"], 1_u64 << 32);
}

#[test]
fn a_provider_that_wants_a_key_is_sent_none_where_the_entry_has_none_which_is_said() {
    let port = Port::answering(|request: &Request, stream: &mut TcpStream| {
        let status = match request.field("authorization") {
            None => "401 Unauthorized",
            Some(_) => "400 Bad Request",
        };
        answer(stream, status, "", "")
    });
    let place = place_at(&port.url(""), "openai-chat", &[]);
    let mut registry: Value =
        serde_json::from_slice(&fs::read(place.path("external-mcp.json")).unwrap()).unwrap();
    registry["servers"]["model-api"]["env"] = json!({});
    place.registry(&registry["servers"]);
    let daemon = place.start(&[]);
    let (code, message) = failed(&complete(&mut daemon.quiet(LEGACY), &arguments("x")));
    assert_eq!(code, "MODEL_DENIED");
    assert!(
        message.ends_with("no key was sent, since MODEL_API_KEY is empty"),
        "{message}"
    );
}

#[test]
fn a_key_that_is_short_is_taken_out_of_nothing() {
    for (key, says) in [
        ("local", "local is the word of the day: local"),
        ("0123456789abcde", "0123456789abcde"),
        ("0123456789abcdef", "[key]"),
    ] {
        let port = Port::answering(move |_: &Request, stream: &mut TcpStream| {
            let said = if key == "local" { says } else { key };
            let choice = json!({ "finish_reason": "stop", "message": { "content": said } });
            let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1 });
            answer(
                stream,
                "200 OK",
                "",
                &json!({ "choices": [choice], "usage": usage }).to_string(),
            )
        });
        let place = place_at(&port.url(""), "openai-chat", &[]);
        place.secret("model", key);
        let daemon = place.start(&[]);
        let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
        assert_eq!(
            answer["result"]["structuredContent"]["completion"], says,
            "{answer}"
        );
    }
}

#[test]
fn a_provider_of_an_authority_of_ones_own_is_believed_where_the_flag_names_it() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let shown = Arc::new(Mutex::new(authority.shows("localhost", 2999)));
    let port = Port::secure(&shown, |_| {
        json!({ "choices": [{ "finish_reason": "stop", "message": { "content": "well" } }],
                "usage": { "prompt_tokens": 1, "completion_tokens": 1 } })
    });
    let url = port.url("").replace("http:", "https:");
    let files = Place::new();
    let file = |name: &str, content: Option<String>| {
        let path = files.path(name);
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        path.to_str().unwrap().to_owned()
    };
    let own = file("own.pem", Some(authority.pem()));
    for (more, why) in [
        (vec!["--ca", &own], None),
        (vec![], Some("--ca")),
        (
            vec!["--ca", &file("other.pem", Some(stranger.pem()))],
            Some("--ca"),
        ),
        (
            vec!["--ca", &file("no.pem", Some("x".to_owned()))],
            Some("--ca: cannot use"),
        ),
        (
            vec!["--ca", &file("none.pem", None)],
            Some("--ca: cannot use"),
        ),
    ] {
        let place = place_at(&url, "openai-chat", &more);
        let daemon = place.start(&[]);
        let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
        let Some(why) = why else {
            assert_eq!(text_of(&answer["result"]), "well", "{answer}");
            continue;
        };
        let (code, message) = failed(&answer);
        assert_eq!(code, "INTEGRATION_UNAVAILABLE", "{message}");
        assert!(
            message.contains(why) && !message.contains("\"ca\""),
            "{message}"
        );
    }
}

#[test]
fn connections_that_break_are_tried_again_and_none_is_told_as_such() {
    let port = Port::answering(|_: &Request, stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort");
        false
    });
    let place = place_at(&port.url(""), "anthropic", &[]);
    let daemon = place.start(&[]);
    let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
    assert_eq!(
        (&*failed(&answer).0, port.connections()),
        ("MODEL_FAILED", 3)
    );
    drop(daemon);
    // Nobody is there; and where it is, the command line does not allow.
    let model = ScriptedModel::new();
    for (url, allowed) in [
        ("http://127.0.0.1:1", "loopback"),
        (&*model.port.url(""), "link-local"),
    ] {
        let place = place_at(url, "anthropic", &["--allow-address", allowed]);
        let mut registry: Value =
            serde_json::from_slice(&fs::read(place.path("external-mcp.json")).unwrap()).unwrap();
        let args = registry["servers"]["model-api"]["args"]
            .as_array_mut()
            .unwrap();
        args.retain(|arg| arg != "loopback" || allowed == "loopback");
        if allowed != "loopback" {
            let at = args
                .iter()
                .position(|arg| arg == "--allow-address")
                .unwrap();
            args.remove(at);
        }
        place.registry(&registry["servers"]);
        let daemon = place.start(&[]);
        let (code, message) = failed(&complete(&mut daemon.quiet(LEGACY), &arguments("x")));
        assert_eq!(code, "INTEGRATION_UNAVAILABLE");
        assert!(message.ends_with("; model not connected"), "{message}");
        assert_eq!(
            message.contains("--allow-address"),
            allowed != "loopback",
            "{message}"
        );
    }
    assert_eq!(model.requests(), 0);
}

#[test]
fn without_an_address_it_says_that_no_model_is_connected() {
    let place = place_at("http://h", "gemini", &[]);
    let mut registry: Value =
        serde_json::from_slice(&fs::read(place.path("external-mcp.json")).unwrap()).unwrap();
    registry["servers"]["model-api"]["args"] = json!(["integration", "model"]);
    place.registry(&registry["servers"]);
    let daemon = place.start(&[]);
    let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
    let structured = &answer["result"]["structuredContent"];
    assert_eq!(
        (&structured["ok"], &structured["error"]["code"]),
        (&json!(false), &json!("INTEGRATION_UNAVAILABLE"))
    );
    assert!(
        failed(&answer).1.ends_with("; model not connected"),
        "{answer}"
    );
    assert!(deferred(&answer).is_some(), "{answer}");
}

/// The number of the task that a failed call was left as.
fn deferred(answer: &Value) -> Option<u64> {
    answer["result"]["structuredContent"]["deferred"]["task"].as_u64()
}

#[test]
fn what_a_model_does_not_say_is_no_result_of_the_contract() {
    for (model, stop) in [("", "stop"), ("m", "")] {
        let asked: Arc<AtomicUsize> = Arc::default();
        let counting = asked.clone();
        let port = Port::answering(move |_: &Request, stream: &mut TcpStream| {
            counting.fetch_add(1, Ordering::SeqCst);
            let choice =
                json!({ "finish_reason": stop, "message": { "content": "nobody-says-so" } });
            let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1 });
            let body = json!({ "model": model, "choices": [choice], "usage": usage });
            answer(stream, "200 OK", "", &body.to_string())
        });
        let place = place_at(&port.url(""), "openai-chat", &[]);
        let daemon = place.start(&[]);
        let answer = complete(&mut daemon.quiet(LEGACY), &arguments("x"));
        assert_eq!(code_of(&answer), Some("RESULT_REFUSED"), "{answer}");
        assert!(!answer.to_string().contains("nobody-says-so"), "{answer}");
        assert_eq!((asked.load(Ordering::SeqCst), deferred(&answer)), (1, None));
        assert!(
            place
                .trail()
                .iter()
                .all(|record| record["event"] != "model_call")
        );
    }
}

#[test]
fn what_is_given_up_is_left_to_a_person_and_what_is_refused_is_not() {
    let status: Arc<Mutex<&str>> = Arc::new(Mutex::new("503 Overloaded"));
    let says = status.clone();
    let port = Port::answering(move |_: &Request, stream: &mut TcpStream| {
        let status = *says.lock().unwrap();
        answer(stream, status, "", "")
    });
    let place = place_at(&port.url(""), "openai-chat", &[]);
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    let given_up = complete(&mut client, &arguments("x"));
    assert_eq!(failed(&given_up).0, "MODEL_FAILED");
    let task = deferred(&given_up).unwrap_or_else(|| panic!("{given_up}"));
    let told = client.ask(
        "tools/call",
        json!({ "name": "colibri_get_task", "arguments": { "task": task } }),
    );
    let told = told["result"]["structuredContent"].to_string();
    for said in [
        "Ask the model again",
        "MODEL_FAILED",
        "person",
        "\"queued\"",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
    // The same once more is that task; of another one there is another; and of what the provider
    // refused there is none.
    assert_eq!(
        deferred(&complete(&mut client, &arguments("y"))),
        Some(task)
    );
    // A key that the provider does not accept is for a person to mend.
    let mut third = arguments("x");
    third["task_id"] = json!("9");
    *status.lock().unwrap() = "401 Unauthorized";
    let denied = complete(&mut client, &third);
    assert_eq!(failed(&denied).0, "MODEL_DENIED");
    assert!(deferred(&denied).is_some(), "{denied}");
    let mut other = arguments("x");
    other["task_id"] = json!("8");
    *status.lock().unwrap() = "429 Too Many Requests";
    let second = complete(&mut client, &other);
    assert_eq!(failed(&second).0, "MODEL_BUSY");
    assert!(
        deferred(&second).is_some_and(|second| second != task),
        "{second}"
    );
    *status.lock().unwrap() = "400 Bad Request";
    let refused = complete(&mut client, &arguments("x"));
    assert_eq!(
        (&*failed(&refused).0, deferred(&refused)),
        ("MODEL_REFUSED", None)
    );
    drop(daemon);
    place.assert_trail_is_sound();
}

#[test]
fn an_answer_without_end_is_given_up() {
    let model = ScriptedModel::new();
    model.fault(Fault::Endless);
    let place = place_at(&model.port.url(""), "openai-chat", &[]);
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    // The first body is without end, so it is too long before it is late.
    assert_eq!(
        failed(&complete(&mut client, &arguments("x"))).0,
        "MODEL_ANSWER_INVALID"
    );
}

#[test]
fn a_command_line_that_leads_nowhere_is_said() {
    let place = Place::new();
    for (args, why) in [
        (&["--api", "openai-chat"][..], "--url"),
        (&["--url", "https://h"], "--api"),
        (&["--reasons", "m"], "--url"),
        (&["--allow-address", "loopback"], "--url"),
        (&["--ca", "/ca.pem"], "--url"),
        (&["--proxy", "http://h:1"], "--url"),
        (&["--api", "x", "--url", "https://h"], "possible values"),
        (&["--api", "openai-chat", "--url", "https://h/v1"], "/v1"),
        (
            &["--api", "openai-chat", "--url", "https://u:p@h"],
            "user or password",
        ),
        (&["--api", "openai-chat", "--url", "https://h?x"], "query"),
        (&["--api", "openai-chat", "--url", "ftp://h"], "http"),
        (
            &[
                "--api",
                "openai-chat",
                "--url",
                "https://h",
                "--allow-address",
                "all",
            ],
            "--allow-address",
        ),
        (
            &[
                "--api",
                "openai-chat",
                "--url",
                "https://h",
                "--proxy",
                "https://h",
            ],
            "--proxy",
        ),
        (
            &[
                "--api",
                "openai-chat",
                "--url",
                "https://h",
                "--proxy",
                "http://h:1/path",
            ],
            "--proxy",
        ),
        (
            &[
                "--api",
                "openai-chat",
                "--url",
                "https://h",
                "--proxy",
                "http://u:p@h:1",
            ],
            "--proxy",
        ),
    ] {
        let mut command = place.colibri_mcp(&["integration", "model"]);
        let output = command.args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

/// So many answers of the adapter, started as it is, to these lines.
fn said(place: &Place, lines: &[String], count: usize) -> Vec<Value> {
    let mut command = place.colibri_mcp(&["integration", "model"]);
    let mut adapter = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = adapter.stdin.take().unwrap();
    for line in lines {
        writeln!(stdin, "{line}").unwrap();
    }
    let stdout = BufReader::new(adapter.stdout.take().unwrap());
    let answers = stdout
        .lines()
        .take(count)
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    let answers = answers.collect();
    drop(stdin);
    assert!(adapter.wait().unwrap().success());
    answers
}

#[test]
fn the_adapter_answers_whatever_it_is_sent() {
    let place = Place::new();
    let request = |id: u64, method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    };
    let meta =
        |version: &str| json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": version } });
    let lines = [
        "{".to_owned(),
        "x".repeat(17 << 20),
        "[]".to_owned(),
        "7".to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
        request(2, "initialize", json!({ "protocolVersion": "2025-06-18" })),
        request(3, "initialize", json!({ "protocolVersion": "1999-01-01" })),
        request(4, "ping", json!({})),
        request(5, "nonsense", json!([])),
        request(6, "server/discover", meta("2026-07-28")),
        request(7, "tools/list", meta("2030-01-01")),
        request(8, "tools/list", json!(null)),
    ];
    let answers = said(&place, &lines, 9);
    let short: Vec<String> = answers
        .iter()
        .map(|answer| match answer["error"]["code"].as_i64() {
            Some(code) => format!("{} {code}", answer["id"]),
            None => format!("{} {}", answer["id"], answer["result"]["protocolVersion"]),
        })
        .collect();
    assert_eq!(
        short,
        [
            "null -32700",
            "null -32700",
            "2 \"2025-06-18\"",
            "3 \"2025-11-25\"",
            "4 null",
            "5 -32601",
            "6 null",
            "7 -32022",
            "8 null"
        ]
    );
    assert_eq!(answers[6]["result"]["resultType"], "complete");
    assert_eq!(answers[8]["result"]["tools"][0]["name"], "complete");
    // Arguments that no contract has looked at.
    let odd = |key: &str, value: Value| {
        let mut odd = arguments("x");
        odd[key] = value;
        odd
    };
    let wrong = [
        odd("system", json!("x")),
        odd("task_id", json!("")),
        odd("context", json!([])),
        odd("max_tokens", json!(0)),
        odd("max_tokens", json!(1.5)),
        odd("temperature", json!(2.1)),
        odd("model", json!("m".repeat(201))),
        json!([]),
        json!(null),
    ];
    let calls = (1..).zip(&wrong);
    let calls = calls.map(|(id, wrong)| {
        request(
            id,
            "tools/call",
            json!({ "name": "complete", "arguments": wrong }),
        )
    });
    for answer in said(&place, &calls.collect::<Vec<_>>(), wrong.len()) {
        assert_eq!(failed(&answer).0, "ARGUMENTS_INVALID", "{answer}");
    }
}

#[test]
fn a_call_that_is_cancelled_ends_its_request() {
    let asked: Arc<AtomicUsize> = Arc::default();
    let ended: Arc<AtomicUsize> = Arc::default();
    let (asking, ending) = (asked.clone(), ended.clone());
    let port = Port::answering(move |_: &Request, stream: &mut TcpStream| {
        asking.fetch_add(1, Ordering::SeqCst);
        // Says nothing until the other side goes.
        let _ = std::io::Read::read(stream, &mut [0; 1]);
        ending.fetch_add(1, Ordering::SeqCst);
        false
    });
    let place = Place::new();
    let url = port.url("");
    let args = [
        "--api",
        "gemini",
        "--url",
        &url,
        "--allow-address",
        "loopback",
    ];
    let call = |id: u64| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "complete", "arguments": arguments("x") } })
            .to_string()
    };
    let mut command = place.colibri_mcp(&["integration", "model"]);
    let mut adapter = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = adapter.stdin.take().unwrap();
    for id in [1, 2] {
        writeln!(stdin, "{}", call(id)).unwrap();
    }
    wait_for("both requests", || {
        (asked.load(Ordering::SeqCst) == 2).then_some(())
    });
    writeln!(
        stdin,
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":1}}}}"#
    )
    .unwrap();
    wait_for("the end of one", || {
        (ended.load(Ordering::SeqCst) == 1).then_some(())
    });
    // The other goes on, until nobody is there who would hear of it.
    drop(stdin);
    let output = adapter.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    wait_for("the end of the other", || {
        (ended.load(Ordering::SeqCst) == 2).then_some(())
    });
}
