//! What servers offer beyond tools: prompts, resources and completions, both ways.

use colibri_tests::{MODERN, wait_for};
use serde_json::Value;

use crate::{cases, client, difference, exposed, id, meta, place, ways, with};

/// A method, the params that name what is meant, with `@WHAT@` for the name as the client or the server writes it, and
/// what has a case of the fixture's answer in it.
const METHODS: [(&str, &str); 3] = [
    ("prompts/get", r#""name":@WHAT@,"arguments":{"case":"@CASE@"}"#),
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

/// A frame with the server's URIs in it as the client has to see them: they are changed where their method has URIs.
/// `@READ@` and `@PROMPT@` stand for one in what was read and in a prompt's messages.
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
        frame = frame.replace(r#""contents":[{"uri":"file:"#, r#""contents":[{"uri":"fix+file:"#);
    }
    frame.into_bytes()
}

#[test]
fn answers_come_back_byte_for_byte() {
    let mut spoiled = Vec::new();
    for (version, prefix) in ways() {
        let place = place(version, prefix);
        let own = cases("offered.txt");
        let common = cases("results.txt");
        for (n, (_, frame)) in own.iter().chain(&common).enumerate() {
            place.frame(&n.to_string(), &seen(frame, "", false));
        }
        let daemon = place.start(&["--log-level", "warn"]);
        let mut client = client(&daemon, version);
        for (method, params) in METHODS {
            for (n, (name, frame)) in own.iter().chain(&common).enumerate() {
                // Of a modern server's contents it is said how long they are good: `offered.txt` says so itself.
                if method == "resources/read" && version == MODERN && n >= own.len() {
                    continue;
                }
                let params = params
                    .replace("@WHAT@", &what(method, &n.to_string(), prefix))
                    .replace("@CASE@", &n.to_string());
                client.send(format!(
                    r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{{{params}{}}}}}"#,
                    id(n),
                    meta(version, "1")
                ));
                let got = client.read().expect("an answer");
                let wanted = with(&seen(frame, method, prefix), "@ID@", &id(n));
                if got != wanted {
                    let difference = difference(&wanted, &got);
                    spoiled.push(format!("{version}, prefix {prefix}: {method}: {name} {difference}"));
                }
            }
        }
    }
    assert!(
        spoiled.is_empty(),
        "{} are spoiled: {:#?}",
        spoiled.len(),
        &spoiled[..spoiled.len().min(8)]
    );
}

#[test]
fn requests_arrive_byte_for_byte() {
    let mut spoiled = Vec::new();
    for (version, prefix) in ways() {
        let place = place(version, prefix);
        place.frame(
            "arrived",
            br#"{"jsonrpc":"2.0","id":@ID@,"result":{"ttlMs":1,"cacheScope":"private"}}"#,
        );
        let daemon = place.start(&["--log-level", "warn"]);
        let mut client = client(&daemon, version);
        for (method, params) in METHODS {
            // Everything that JSON allows around what is ours.
            let template = format!(
                r#" {{ "x":{{"\u0061":1E400}}, "jsonrpc" :"2.0","id": @ID@ ,"method":"{}","params":{{ "x-before":[18446744073709551616,"\ud800"],{params}@META@ ,"x-after":{{"id":1,"name":"n","uri":"u"}} }} }} "#,
                method.replace('/', "\\/")
            );
            let template = template.replace("@CASE@", "arrived").into_bytes();
            let line = with(&template, "@META@", &meta(version, "\"\\u0074oken\""));
            let line = with(&line, "@WHAT@", &what(method, "arrived", prefix));
            client.send(with(&line, "@ID@", "\"\\u0061\""));
            let answer: Value = serde_json::from_slice(&client.read().expect("an answer")).unwrap();
            assert!(answer["result"].is_object(), "{version}: {method}: {answer}");
            let escaped = method.replace('/', "\\/");
            let got = wait_for("the request", || place.received("fix", &escaped).pop()).into_bytes();
            let holes = with(&template, "@META@", &meta(version, "@ID@"));
            let holes = with(&holes, "@WHAT@", &what(method, "arrived", false).replace("fix__", ""));
            let first = holes.windows(4).position(|window| window == b"@ID@").unwrap();
            let number = got.iter().skip(first).take_while(|byte| byte.is_ascii_digit());
            let digits: String = number.map(|byte| char::from(*byte)).collect();
            let wanted = with(&with(&holes, "@ID@", &digits), "@ID@", &digits);
            if digits.is_empty() || got != wanted {
                let difference = difference(&wanted, &got);
                spoiled.push(format!("{version}, prefix {prefix}: {method}: {difference}"));
            }
        }
    }
    assert!(
        spoiled.is_empty(),
        "{} are spoiled: {:#?}",
        spoiled.len(),
        &spoiled[..spoiled.len().min(8)]
    );
}
