//! What servers offer beyond tools: prompts, resources and completions, both ways.

use colibri_tests::wait_for;
use serde_json::Value;

use super::peers::{Peer, ways};
use super::{assert_whole, cases, difference, exposed, id, meta, place, spaced, with};

/// A method, the params that name what is meant, with `@WHAT@` for the name as the client or the
/// server writes it, and what has a case of the fixture's answer in it.
const METHODS: [(&str, &str); 3] = [
    (
        "prompts/get",
        r#""name":@WHAT@,"arguments":{"case":"@CASE@"}"#,
    ),
    ("resources/read", r#""uri":@WHAT@"#),
    (
        "completion/complete",
        r#""ref":{"type":"ref/prompt","name":@WHAT@},"argument":{"name":"case","value":"@CASE@"}"#,
    ),
];

/// The name or URI that a client writes, or the server.
fn what(method: &str, case: &str, prefix: bool) -> String {
    let uri = format!("frame:{case}");
    match (method, prefix) {
        ("resources/read", true) => format!("\"fix+{uri}\""),
        ("resources/read", false) => format!("\"{uri}\""),
        _ => format!("\"{}\"", exposed(prefix, "frame")),
    }
}

/// A frame with the server's URIs in it as the client has to see them: they are changed where their
/// method has URIs. `@READ@` and `@PROMPT@` stand for one in what was read and in a prompt's
/// messages.
fn seen(frame: &[u8], method: &str, prefix: bool) -> Vec<u8> {
    let uri = |of: &str| {
        if prefix && of == method {
            "fix+frame:seen"
        } else {
            "frame:seen"
        }
    };
    let mut frame = String::from_utf8(frame.to_vec()).unwrap();
    frame = frame.replace("@READ@", uri("resources/read"));
    frame = frame.replace("@PROMPT@", uri("prompts/get"));
    // A case of `results.txt` that looks like what was read.
    if prefix && method == "resources/read" {
        frame = frame.replace(
            r#""contents":[{"uri":"file:"#,
            r#""contents":[{"uri":"fix+file:"#,
        );
    }
    frame.into_bytes()
}

#[test]
fn answers_come_back_byte_for_byte() {
    let mut spoiled = Vec::new();
    for way in ways() {
        let place = place(way.version, way.prefix);
        let own = cases("offered.txt");
        let common = cases("results.txt");
        for (n, (_, frame)) in own.iter().chain(&common).enumerate() {
            place.frame(&n.to_string(), &seen(frame, "", false));
        }
        let daemon = place.start(&["--log-level", "warn"]);
        let mut peer = Peer::new(&daemon, way);
        for (method, params) in METHODS {
            for (n, (name, frame)) in own.iter().chain(&common).enumerate() {
                // Of a modern server's contents it is said how long they are good: `offered.txt`
                // says so itself.
                if method == "resources/read" && way.is_modern() && n >= own.len() {
                    continue;
                }
                let what = what(method, &n.to_string(), way.prefix);
                let params = params
                    .replace("@WHAT@", &what)
                    .replace("@CASE@", &n.to_string());
                let line = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{{{params}{}}}}}"#,
                    id(n),
                    meta(way, "1")
                );
                let got = peer.ask(line.as_bytes(), method, what.trim_matches('"'));
                let mut wanted = with(&seen(frame, method, way.prefix), "@ID@", &id(n));
                if peer.is_event() {
                    wanted = spaced(&wanted);
                }
                if got != wanted {
                    let difference = difference(&wanted, &got);
                    spoiled.push(format!("{way}: {method}: {name} {difference}"));
                }
            }
        }
    }
    assert_whole(&spoiled);
}

#[test]
fn requests_arrive_byte_for_byte() {
    let mut spoiled = Vec::new();
    for way in ways() {
        let place = place(way.version, way.prefix);
        place.frame(
            "arrived",
            br#"{"jsonrpc":"2.0","id":@ID@,"result":{"ttlMs":1,"cacheScope":"private"}}"#,
        );
        let daemon = place.start(&["--log-level", "warn"]);
        let mut peer = Peer::new(&daemon, way);
        for (method, params) in METHODS {
            // Everything that JSON allows around what is ours.
            let template = format!(
                r#" {{ "x":{{"\u0061":1E400}}, "jsonrpc" :"2.0","id": @ID@ ,"method":"{}","params":{{ "x-before":[18446744073709551616,"\ud800"],{params}@META@ ,"x-after":{{"id":1,"name":"n","uri":"u"}} }} }} "#,
                method.replace('/', "\\/")
            );
            let template = template.replace("@CASE@", "arrived").into_bytes();
            let named = what(method, "arrived", way.prefix);
            let line = with(&template, "@META@", &meta(way, "\"\\u0074oken\""));
            let line = with(&with(&line, "@WHAT@", &named), "@ID@", "\"\\u0061\"");
            let answer: Value =
                serde_json::from_slice(&peer.ask(&line, method, named.trim_matches('"'))).unwrap();
            assert!(answer["result"].is_object(), "{way}: {method}: {answer}");
            let escaped = method.replace('/', "\\/");
            let got =
                wait_for("the request", || place.received("fix", &escaped).pop()).into_bytes();
            let holes = with(&template, "@META@", &meta(way, "@ID@"));
            let holes = with(
                &holes,
                "@WHAT@",
                &what(method, "arrived", false).replace("fix__", ""),
            );
            let first = holes
                .windows(4)
                .position(|window| window == b"@ID@")
                .unwrap();
            let number = got
                .iter()
                .skip(first)
                .take_while(|byte| byte.is_ascii_digit());
            let digits: String = number.map(|byte| char::from(*byte)).collect();
            let wanted = with(&with(&holes, "@ID@", &digits), "@ID@", &digits);
            if digits.is_empty() || got != wanted {
                let difference = difference(&wanted, &got);
                spoiled.push(format!("{way}: {method}: {difference}"));
            }
        }
    }
    assert_whole(&spoiled);
}
