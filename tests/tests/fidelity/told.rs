//! What servers say unasked: notifications about a call, and requests to the client's side with their answers.

use std::collections::BTreeMap;

use colibri_tests::{Client, Daemon, LEGACY, MODERN, wait_for};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{client, difference, exposed, meta, place, ways, with};

/// Notifications, with what a client that speaks this version gets of them.
const NOTIFICATIONS: [&str; 3] = [
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@TOKEN@,"progress":1}}"#,
    r#" { "x":1e400,"method":"notifications\/progress", "params" : {"x-before":{"progressToken":7},"progress":0.1000,"message":"\ud800 \u0000","progressToken": @TOKEN@ ,"total":18446744073709551616,"_meta":{"a/b":[]}},"jsonrpc":"2.0" } "#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1E+400,"\u0070rogressToken":@TOKEN@}}"#,
];

#[test]
fn progress_comes_byte_for_byte() {
    let mut spoiled = Vec::new();
    for (version, prefix) in ways() {
        let place = place(version, prefix);
        for (n, frame) in NOTIFICATIONS.iter().enumerate() {
            place.frame(&n.to_string(), frame.as_bytes());
        }
        let daemon = place.start(&["--log-level", "warn"]);
        let mut client = client(&daemon, version);
        for (n, frame) in NOTIFICATIONS.iter().enumerate() {
            for token in ["7", "\"\\u0074oken\"", "-1.50e0", "123456789012345678901234567890"] {
                let name = exposed(prefix, "tell_raw");
                let meta = meta(version, token);
                client.send(format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{{"case":"{n}"}}{meta}}}}}"#
                ));
                let got = client.read().expect("a notification");
                let wanted = with(frame.as_bytes(), "@TOKEN@", token);
                if got != wanted {
                    let difference = difference(&wanted, &got);
                    spoiled.push(format!("{version}, prefix {prefix}: {n} {token}: {difference}"));
                }
                assert_eq!(client.message()["id"], 1, "an answer behind it");
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

/// A client that can be asked everything.
fn asked(daemon: &Daemon<'_>) -> Client {
    let mut client = daemon.connect();
    let capabilities = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
    let info = json!({ "name": "e2e", "version": "1" });
    let params = json!({ "protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info });
    client.ask("initialize", params);
    client.notify("notifications/initialized", json!({}));
    client
}

/// Requests of a legacy server to a legacy client, and the client's answers: ids alone are the daemon's own, and an
/// elicitation names the server before its message.
#[test]
fn what_a_server_asks_and_what_is_answered_passes_byte_for_byte() {
    let requests = [
        r#"{"jsonrpc":"2.0","id":"\u0061sk","method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"\ud800 \u0000"}}],"maxTokens":1e2,"x":[18446744073709551616],"_meta":{"a/b":1e400}}}"#,
        r#" {"params": { } ,"method":"roots\/list", "id" : 12345678901234567890123 ,"jsonrpc":"2.0","x":1.00} "#,
    ];
    let answers = [
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{"role":"assistant","content":{"type":"text","text":"\udfff\u2028"},"model":"m","x":1e400}}"#,
        r#" { "result" : {"roots":[{"uri":"file:///\u0061","x":[1.00]}],"_meta":{"a/b":18446744073709551616}}, "id" : @ID@ ,"jsonrpc":"2.0"} "#,
    ];
    // What names the server to the person.
    let named = [
        (r#""params":{"#, r#""params":{"systemPrompt":"[fix]","#),
        (r#"{ }"#, r#"{"_meta":{"org.colibri/server":"fix"} }"#),
    ];
    let (place, mut spoiled) = (place(LEGACY, true), Vec::new());
    for (n, frame) in requests.iter().enumerate() {
        place.frame(&n.to_string(), frame.as_bytes());
    }
    let daemon = place.start(&["--log-level", "warn"]);
    let mut client = asked(&daemon);
    client.call("fix__pid", json!({}));
    for (n, (request, answer)) in requests.iter().zip(answers).enumerate() {
        let call = client.request_tool("fix__ask_raw", json!({ "case": n.to_string() }));
        let (got, own) = loop {
            let line = client.read().expect("a request");
            // Read loosely: no Rust string holds what is in it.
            let members: BTreeMap<String, &RawValue> = serde_json::from_slice(&line).unwrap();
            let id = members.get("id").map(|id| id.get().to_owned());
            assert_ne!(id.as_deref(), Some(&*call.to_string()), "answered before it was asked");
            if let Some(id) = id {
                break (line, id);
            }
        };
        // Its id is the daemon's own, in place of the server's.
        let ids = ["\"\\u0061sk\"", "12345678901234567890123"];
        let wanted = with(request.as_bytes(), ids[n], &own);
        let wanted = with(&wanted, named[n].0, named[n].1);
        let wanted = with(
            &wanted,
            r#""_meta":{"a/b""#,
            r#""_meta":{"org.colibri/server":"fix","a/b""#,
        );
        if got != wanted {
            spoiled.push(format!("request {n}: {}", difference(&wanted, &got)));
        }
        client.send(answer.replace("@ID@", &own));
        assert_eq!(client.answer(call)["result"]["content"][0]["text"], "asked");
        let arrived = wait_for("the answer", || {
            place.received("fix", ["assistant", "roots\":["][n]).pop()
        });
        let wanted = answer.replace("@ID@", ids[n]);
        if arrived != wanted {
            spoiled.push(format!(
                "answer {n}: {}",
                difference(wanted.as_bytes(), arrived.as_bytes())
            ));
        }
    }
    assert!(
        spoiled.is_empty(),
        "{} are spoiled: {:#?}",
        spoiled.len(),
        &spoiled[..spoiled.len().min(8)]
    );
}

/// The modern way round: what a server wants to be told, and what it is told, with a retry between.
#[test]
fn a_modern_server_that_asks_a_modern_client_gets_its_own_state_back() {
    let place = place(MODERN, true);
    let result = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"x":1e400,"resultType":"input_required","inputRequests":{"\u0061":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}},"x":18446744073709551616}}},"requestState":"its own \u0000"}}"#;
    place.frame("asks", result.as_bytes());
    let daemon = place.start(&["--log-level", "warn"]);
    let mut client = daemon.modern();
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let able = r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}"#;
    let meta = meta(MODERN, "1").replace(capabilities, able);
    client.send(format!(
        r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"fix__frame","arguments":{{"case":"asks"}}{meta}}}}}"#
    ));
    let got = String::from_utf8(client.read().expect("an answer")).unwrap();
    let answer: Value = serde_json::from_str(&got.replace("1e400", "1").replace("18446744073709551616", "1")).unwrap();
    assert_eq!(answer["result"]["resultType"], "input_required", "{got}");
    let state = answer["result"]["requestState"].as_str().expect("a state").to_owned();
    assert!(
        got.contains(r#""x":1e400"#) && got.contains(r#""x":18446744073709551616"#),
        "{got}"
    );
    client.send(format!(
        r#"{{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{{"name":"fix__frame","arguments":{{"case":"asks"}},"inputResponses":{{"\u0061":{{"action":"accept","content":{{}},"x":1e400}}}},"requestState":"{state}"{meta}}}}}"#
    ));
    client.read().expect("an answer to the retry");
    let retry = wait_for("the retry", || place.received("fix", "inputResponses").pop());
    assert!(retry.contains(r#""requestState":"its own \u0000""#), "{retry}");
    assert!(
        retry.contains(r#""inputResponses":{"\u0061":{"action":"accept","content":{},"x":1e400}}"#),
        "{retry}"
    );
}
