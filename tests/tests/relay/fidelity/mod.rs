//! The daemon relays bytes: what a client sends arrives at the server, and what the server answers
//! at the client, identical outside the places that `docs/rewrites.md` lists. What cannot be
//! relayed is answered.

mod offered;
mod peers;
mod told;
mod unasked;

use colibri_tests::{
    Client, Daemon, LEGACY, MODERN, Place, code_of, modern_meta, text_of, wait_for,
};
use serde_json::{Value, json};

use peers::{Peer, Way, ways};

/// The longest message that is relayed.
const LIMIT: usize = 16 * 1024 * 1024;

/// The cases of a corpus file: name and message.
fn cases(file: &str) -> Vec<(String, Vec<u8>)> {
    let path = format!("{}/corpus/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.split('\n').filter(|line| !line.is_empty()).collect();
    let cases = lines.chunks(2).map(|pair| {
        let (name, _) = pair[0]
            .strip_prefix("# ")
            .unwrap()
            .split_once(": ")
            .unwrap();
        (name.to_owned(), pair[1].as_bytes().to_vec())
    });
    cases.collect()
}

/// The bytes with the first `what` replaced.
fn with(bytes: &[u8], what: &str, with: &str) -> Vec<u8> {
    let what = what.as_bytes();
    match bytes.windows(what.len()).position(|window| window == what) {
        Some(at) => [&bytes[..at], with.as_bytes(), &bytes[at + what.len()..]].concat(),
        None => bytes.to_vec(),
    }
}

/// The bytes with spaces for ends of lines.
fn spaced(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .map(|byte| if *byte == b'\r' { b' ' } else { *byte })
        .collect()
}

/// Ids in many spellings, which have to come back as they were written.
fn id(n: usize) -> String {
    match n % 5 {
        0 => format!("{n}"),
        1 => format!("\"call {n}\""),
        2 => format!("\"\\u0063all\\/{n}\""),
        3 => format!("1234567890123456789012345678901234567890{n}"),
        _ => format!("-{n}.50e0"),
    }
}

/// A `_meta` member for a request on this way, with a comma before it.
fn meta(way: Way, token: &str) -> String {
    let modern = if way.is_modern() {
        format!("{},", modern_meta())
    } else {
        String::new()
    };
    let tells = if way.told {
        r#""fixture/tells":1, "#
    } else {
        ""
    };
    format!(
        r#" , "_meta":{{ "a.b/c":[ ],{modern}{tells}"progressToken":{token},"progress":1e400 }}"#
    )
}

fn place(version: &str, prefix: bool) -> Place {
    let place = Place::new();
    let entry = place.fixture(
        "fix",
        &["--speak", version, "--offer-all"],
        json!({ "prefix": prefix, "timeout_ms": 600_000, "may_ask": ["elicitation", "sampling", "roots"] }),
    );
    place.registry(&json!({ "fix": entry }));
    place
}

fn client(daemon: &Daemon<'_>, version: &str) -> Client {
    if version == MODERN {
        daemon.modern()
    } else {
        daemon.quiet(version)
    }
}

fn exposed(prefix: bool, tool: &str) -> String {
    if prefix {
        format!("fix__{tool}")
    } else {
        tool.to_owned()
    }
}

/// Shows where two messages differ.
fn difference(wanted: &[u8], got: &[u8]) -> String {
    let at = wanted.iter().zip(got).take_while(|(a, b)| a == b).count();
    let show = |bytes: &[u8]| {
        let from = at.saturating_sub(30);
        String::from_utf8_lossy(&bytes[from.min(bytes.len())..(at + 60).min(bytes.len())])
            .into_owned()
    };
    format!(
        "at byte {at} of {}: wanted {:?}, got {:?}",
        wanted.len(),
        show(wanted),
        show(got)
    )
}

/// Nothing was found to be spoiled.
fn assert_whole(spoiled: &[String]) {
    let first = &spoiled[..spoiled.len().min(8)];
    assert!(
        spoiled.is_empty(),
        "{} are spoiled: {first:#?}",
        spoiled.len()
    );
}

/// Results that do not fit into a text file.
fn made_results() -> Vec<(String, Vec<u8>)> {
    let deep = |depth: usize| {
        let (open, close) = ("{\"a\":[".repeat(depth / 2), "]}".repeat(depth / 2));
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{{\"content\":[],\"structuredContent\":{open}1{close}}}}}"
        )
    };
    let long = |bytes: usize| {
        let text = "\\u0000😀 \u{2028}x".repeat(bytes / 15);
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}}}"
        )
    };
    let wide = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{{\"content\":[{}0]}}}}",
        "0,".repeat(100_000)
    );
    let keys: String = (0..20_000).map(|n| format!("\"k{n}\":{n},")).collect();
    let keys = format!("{{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{{{keys}\"content\":[]}}}}");
    let made = [
        ("depth-200", deep(200)),
        ("depth-20000", deep(20_000)),
        ("a-mebibyte", long(1 << 20)),
        ("16-mebibytes", long(LIMIT - 200)),
        ("100,000 elements", wide),
        ("20,000 keys", keys),
    ];
    made.into_iter()
        .map(|(name, text)| (name.to_owned(), text.into_bytes()))
        .collect()
}

#[test]
fn the_corpus_is_as_large_as_promised() {
    assert!(cases("results.txt").len() + made_results().len() >= 40);
    assert!(cases("requests.txt").len() >= 12);
}

#[test]
fn results_come_back_byte_for_byte() {
    let mut all = cases("results.txt");
    all.extend(made_results());
    let mut spoiled = Vec::new();
    for way in ways() {
        let place = place(way.version, way.prefix);
        for (n, (_, frame)) in all.iter().enumerate() {
            place.frame(&n.to_string(), frame);
        }
        let daemon = place.start(&["--log-level", "warn"]);
        let (mut peer, tool) = (Peer::new(&daemon, way), way.exposed("frame"));
        for (n, (name, frame)) in all.iter().enumerate() {
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"case":"{n}"}}{}}}}}"#,
                id(n),
                meta(way, "1")
            );
            let got = peer.ask(call.as_bytes(), "tools/call", &tool);
            let mut wanted = with(frame, "@ID@", &id(n));
            if peer.is_event() {
                wanted = spaced(&wanted);
            }
            if got != wanted {
                spoiled.push(format!("{way}: {name} {}", difference(&wanted, &got)));
            }
        }
        assert_eq!(peer.alone, way.http && !way.told, "{way}");
    }
    assert_whole(&spoiled);
}

#[test]
fn requests_arrive_byte_for_byte() {
    let mut all = cases("requests.txt");
    let big = "\\u0000😀 \u{2028}x".repeat((LIMIT - 1000) / 15);
    let deep = format!("{}1{}", "{\"a\":[".repeat(100), "]}".repeat(100));
    for (name, arguments) in [
        ("16-mebibytes", format!("{{\"s\":\"{big}\"}}")),
        ("depth-200", deep),
    ] {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":@ID@,"method":"tools/call","params":{{"name":@NAME@,"arguments":{arguments}@META@}}}}"#
        );
        all.push((name.to_owned(), text.into_bytes()));
    }
    let mut spoiled = Vec::new();
    for way in ways() {
        let place = place(way.version, way.prefix);
        let daemon = place.start(&["--log-level", "warn"]);
        let (mut peer, tool) = (Peer::new(&daemon, way), way.exposed("count"));
        if way.is_modern() {
            // The daemon's own there, which it takes from nobody who was not given it.
            for (_, template) in &mut all {
                *template = with(template, r#","requestState":"s""#, "");
            }
        }
        for (n, (_, template)) in all.iter().enumerate() {
            let line = with(
                template,
                "@META@",
                &meta(way, &format!("\"\\u0074oken {n}\"")),
            );
            let line = with(&line, "@NAME@", &format!("\"{tool}\""));
            let answer = peer.ask(&with(&line, "@ID@", &id(n)), "tools/call", &tool);
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(
                text_of(&answer["result"]),
                "counted",
                "{}: {answer}",
                all[n].0
            );
        }
        let received: Vec<Vec<u8>> = place
            .record("fix")
            .into_iter()
            .filter(|(_, kind, line)| {
                kind == "line" && line.windows(7).any(|window| window == b"\"count\"")
            })
            .map(|(_, _, line)| line)
            .collect();
        assert_eq!(received.len(), all.len());
        for ((name, template), got) in all.iter().zip(&received) {
            // The daemon's number stands in place of the id, and of the progress token too.
            let holes = with(template, "@META@", &meta(way, "@ID@"));
            let holes = with(&holes, "@NAME@", "\"count\"");
            let first = holes
                .windows(4)
                .position(|window| window == b"@ID@")
                .unwrap();
            let number = got
                .iter()
                .skip(first)
                .take_while(|byte| byte.is_ascii_digit());
            let digits: String = number.map(|byte| char::from(*byte)).collect();
            let mut wanted = with(&with(&holes, "@ID@", &digits), "@ID@", &digits);
            if way.http {
                wanted = spaced(&wanted);
            }
            if digits.is_empty() || *got != wanted {
                spoiled.push(format!("{way}: {name} {}", difference(&wanted, got)));
            }
        }
    }
    assert_whole(&spoiled);
}

#[test]
fn results_that_cannot_be_relayed_are_answered() {
    let mut all: Vec<(&str, Vec<u8>, &str)> = Vec::new();
    for (name, frame) in [
        (
            "result twice",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{},"result":{}}"#,
        ),
        (
            "result and Result",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{},"Result":{}}"#,
        ),
        (
            "result escaped twice",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{},"\u0072esult":{}}"#,
        ),
        (
            "result with NUL",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{},"re\u0000sult":{}}"#,
        ),
        (
            "wide result",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{},"ｒesult":{}}"#,
        ),
        (
            "id and ID",
            r#"{"jsonrpc":"2.0","id":@ID@,"ID":1,"result":{}}"#,
        ),
        (
            "result and error",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{},"error":{}}"#,
        ),
        ("neither", r#"{"jsonrpc":"2.0","id":@ID@}"#),
        ("no version", r#"{"id":@ID@,"result":{}}"#),
        (
            "another version",
            r#"{"jsonrpc":"1.0","id":@ID@,"result":{}}"#,
        ),
        ("not JSON", r#"{"jsonrpc":"2.0","id":@ID@,"result":{"a":}}"#),
        (
            "a comma too many",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{"a":1,}}"#,
        ),
        (
            "not a number",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{"a":NaN}}"#,
        ),
        (
            "a number with a zero",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{"a":01}}"#,
        ),
        (
            "single quotes",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{'a':1}}"#,
        ),
        (
            "a comment",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{}/* */}"#,
        ),
        (
            "a raw tab in a string",
            "{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{\"a\":\"\t\"}}",
        ),
        (
            "a raw NUL in a string",
            "{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{\"a\":\"\0\"}}",
        ),
        (
            "a bad escape",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{"a":"\x41"}}"#,
        ),
        (
            "two messages",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{}} {}"#,
        ),
        (
            "cut off",
            r#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":["#,
        ),
        (
            "byte order mark",
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{}}",
        ),
    ] {
        all.push((name, frame.as_bytes().to_vec(), "SERVER_ANSWER_INVALID"));
    }
    let before = b"{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{\"a\":\"".as_slice();
    for (name, bytes) in [
        ("not UTF-8", b"\xff\xfe".as_slice()),
        ("overlong UTF-8", b"\xc0\xaf"),
        ("a surrogate as UTF-8", b"\xed\xa0\x80"),
        ("beyond Unicode", b"\xf4\x90\x80\x80"),
        ("half a character", b"\xe2\x80"),
    ] {
        all.push((
            name,
            [before, bytes, b"\"}}"].concat(),
            "SERVER_ANSWER_INVALID",
        ));
    }
    all.push((
        "too long",
        [before, &vec![b'x'; LIMIT], b"\"}}"].concat(),
        "FRAME_TOO_LONG",
    ));
    for version in [LEGACY, MODERN] {
        let place = place(version, true);
        for (n, (_, frame, _)) in all.iter().enumerate() {
            place.frame(&n.to_string(), frame);
        }
        let daemon = place.start(&["--log-level", "warn"]);
        let mut client = client(&daemon, version);
        for (n, (name, _, code)) in all.iter().enumerate() {
            let answer = client.ask(
                "tools/call",
                json!({ "name": "fix__frame", "arguments": { "case": n.to_string() } }),
            );
            assert_eq!(code_of(&answer), Some(*code), "{version}: {name}: {answer}");
        }
        assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
        assert_eq!(
            place
                .started("fix")
                .iter()
                .filter(|pid| colibri_tests::is_alive(**pid))
                .count(),
            1
        );
    }
}

#[test]
fn requests_that_cannot_be_relayed_are_answered() {
    let place = place(LEGACY, true);
    let daemon = place.start(&["--log-level", "warn"]);
    let mut client = client(&daemon, LEGACY);
    client.call("fix__pid", json!({}));
    let call = r#""method":"tools/call""#;
    let good = r#""params":{"name":"fix__count","arguments":{}}"#;
    let mut all: Vec<(Vec<u8>, i64)> = Vec::new();
    for (text, code) in [
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},{good},{good}}}"#),
            -32602,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},{good},"Params":{{}}}}"#),
            -32602,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},{good},"METHOD":"ping"}}"#),
            -32602,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},{good},"\u006dethod":"ping"}}"#),
            -32602,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},{good},"iD":2}}"#),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","name":"fix__pid"}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","Name":"fix__pid"}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","n\u0061me":"fix__pid"}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","name\u0000":"fix__pid"}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","ｎａｍｅ":"fix__pid"}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","argumentſ":{{}},"arguments":{{}}}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","_meta":{{}},"_META":{{}}}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","_meta":{{"progressToken":1,"ProgressToken":2}}}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","_meta":[]}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","arguments":[]}}}}"#
            ),
            -32602,
        ),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","arguments":null}}}}"#
            ),
            -32602,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":["fix__count"]}}}}"#),
            -32602,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"\ud800"}}}}"#),
            -32602,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},"params":["fix__count"]}}"#),
            -32602,
        ),
        (format!(r#"{{"jsonrpc":"2.0","id":1,{call}}}"#), -32602),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},"params":7}}"#),
            -32600,
        ),
        (
            format!(r#"{{"jsonrpc":"2.1","id":1,{call},{good}}}"#),
            -32600,
        ),
        (format!(r#"{{"id":1,{call},{good}}}"#), -32600),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},{good},"result":{{}}}}"#),
            -32600,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":7,{good}}}"#),
            -32600,
        ),
        (format!(r#"{{"jsonrpc":"2.0","id":1,{call},{good}"#), -32700),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","arguments":{{"a":+1}}}}}}"#
            ),
            -32700,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,{call},{good}}}}}"#),
            -32700,
        ),
    ] {
        all.push((text.into_bytes(), code));
    }
    let invalid = format!(
        r#"{{"jsonrpc":"2.0","id":1,{call},"params":{{"name":"fix__count","arguments":{{"a":""#
    );
    all.push(([invalid.as_bytes(), b"\xff\"}}}"].concat(), -32700));
    all.push(([invalid.as_bytes(), b"\xed\xa0\x80\"}}}"].concat(), -32700));
    for (line, code) in &all {
        let shown = String::from_utf8_lossy(line).into_owned();
        client.send(line);
        let answer = client.message();
        assert_eq!(answer["id"], 1, "{shown}: {answer}");
        assert_eq!(answer["error"]["code"], *code, "{shown}: {answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().len() > 10,
            "{shown}: {answer}"
        );
    }
    client.send([invalid.as_bytes(), &vec![b'x'; LIMIT], b"\"}}}"].concat());
    let answer = client.message();
    assert_eq!(
        (code_of(&answer), &answer["id"]),
        (Some("FRAME_TOO_LONG"), &json!(1)),
        "{answer}"
    );
    for nameless in ["null", "[1]", "{}", "true"] {
        client.send(format!(
            r#"{{"jsonrpc":"2.0","id":{nameless},{call},{good}}}"#
        ));
        let answer = client.message();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&Value::Null, &json!(-32600)),
            "{nameless}: {answer}"
        );
    }
    assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    wait_for("the one good call", || place.received("fix", "count").pop());
    assert_eq!(
        place.received("fix", "count").len(),
        1,
        "a bad request reached the server"
    );
}
