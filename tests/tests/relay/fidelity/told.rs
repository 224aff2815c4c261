//! What servers say unasked: notifications about a call, and requests to the client's side with
//! their answers.

use std::collections::BTreeMap;

use colibri_tests::wait_for;
use serde_json::Value;
use serde_json::value::RawValue;

use super::peers::{Peer, ways};
use super::{assert_whole, difference, meta, place, with};

/// Notifications, with what a client that speaks this version gets of them.
const NOTIFICATIONS: [&str; 3] = [
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":@TOKEN@,"progress":1}}"#,
    r#" { "x":1e400,"method":"notifications\/progress", "params" : {"x-before":{"progressToken":7},"progress":0.1000,"message":"\ud800 \u0000","progressToken": @TOKEN@ ,"total":18446744073709551616,"_meta":{"a/b":[]}},"jsonrpc":"2.0" } "#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1E+400,"\u0070rogressToken":@TOKEN@}}"#,
];

#[test]
fn progress_comes_byte_for_byte() {
    let mut spoiled = Vec::new();
    for way in ways().into_iter().filter(|way| !way.told) {
        let place = place(way.version, way.prefix);
        for (n, frame) in NOTIFICATIONS.iter().enumerate() {
            place.frame(&n.to_string(), frame.as_bytes());
        }
        let daemon = place.start(&["--log-level", "warn"]);
        let (mut peer, name) = (Peer::new(&daemon, way), way.exposed("tell_raw"));
        for (n, frame) in NOTIFICATIONS.iter().enumerate() {
            for token in [
                "7",
                "\"\\u0074oken\"",
                "-1.50e0",
                "123456789012345678901234567890",
            ] {
                let meta = meta(way, token);
                let call = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{{"case":"{n}"}}{meta}}}}}"#
                );
                peer.send(call.as_bytes(), "tools/call", &name);
                let got = peer.read();
                let wanted = with(frame.as_bytes(), "@TOKEN@", token);
                if got != wanted {
                    let difference = difference(&wanted, &got);
                    spoiled.push(format!("{way}: {n} {token}: {difference}"));
                }
                let answer: Value = serde_json::from_slice(&peer.read()).unwrap();
                assert_eq!(answer["id"], 1, "an answer behind it");
            }
        }
    }
    assert_whole(&spoiled);
}

/// Requests of a legacy server to a legacy client, and the client's answers: ids alone are the
/// daemon's own, and an elicitation names the server before its message.
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
    let mut spoiled = Vec::new();
    for way in ways()
        .into_iter()
        .filter(|way| !way.is_modern() && way.prefix && !way.told)
    {
        let place = place(way.version, true);
        for (n, frame) in requests.iter().enumerate() {
            place.frame(&n.to_string(), frame.as_bytes());
        }
        let daemon = place.start(&["--log-level", "warn"]);
        let mut peer = Peer::able(&daemon, way);
        for (n, (request, answer)) in requests.iter().zip(answers).enumerate() {
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{{"name":"fix__ask_raw","arguments":{{"case":"{n}"}}}}}}"#
            );
            peer.send(call.as_bytes(), "tools/call", "fix__ask_raw");
            let got = peer.read();
            // Read loosely: no Rust string holds what is in it.
            let members: BTreeMap<String, &RawValue> = serde_json::from_slice(&got).unwrap();
            let own = members["id"].get().to_owned();
            assert_ne!(own, "\"call\"", "answered before it was asked");
            // Its id is the daemon's own, in place of the server's.
            let ids = ["\"\\u0061sk\"", "12345678901234567890123"];
            let wanted = with(request.as_bytes(), ids[n], &own);
            let wanted = with(&wanted, named[n].0, named[n].1);
            let named = r#""_meta":{"org.colibri/server":"fix","a/b""#;
            let wanted = with(&wanted, r#""_meta":{"a/b""#, named);
            if got != wanted {
                spoiled.push(format!("{way}: request {n}: {}", difference(&wanted, &got)));
            }
            peer.answer(answer.replace("@ID@", &own).as_bytes());
            let answered: Value = serde_json::from_slice(&peer.read()).unwrap();
            assert_eq!(answered["result"]["content"][0]["text"], "asked");
            let arrived = wait_for("the answer", || {
                place.received("fix", ["assistant", "roots\":["][n]).pop()
            });
            let wanted = answer.replace("@ID@", ids[n]);
            if arrived != wanted {
                let difference = difference(wanted.as_bytes(), arrived.as_bytes());
                spoiled.push(format!("{way}: answer {n}: {difference}"));
            }
        }
    }
    assert_whole(&spoiled);
}

/// The modern way round: what a server wants to be told, and what it is told, with a retry between.
#[test]
fn a_modern_server_that_asks_a_modern_client_gets_its_own_state_back() {
    let result = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"x":1e400,"resultType":"input_required","inputRequests":{"\u0061":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}},"x":18446744073709551616}}},"requestState":"its own \u0000"}}"#;
    for way in ways()
        .into_iter()
        .filter(|way| way.is_modern() && way.prefix)
    {
        let place = place(way.version, true);
        place.frame("asks", result.as_bytes());
        let daemon = place.start(&["--log-level", "warn"]);
        let mut peer = Peer::new(&daemon, way);
        let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
        let able = r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}"#;
        let meta = meta(way, "1").replace(capabilities, able);
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"fix__frame","arguments":{{"case":"asks"}}{meta}}}}}"#
        );
        let got = String::from_utf8(peer.ask(call.as_bytes(), "tools/call", "fix__frame")).unwrap();
        let readable = got
            .replace("1e400", "1")
            .replace("18446744073709551616", "1");
        let answer: Value = serde_json::from_str(&readable).unwrap();
        assert_eq!(answer["result"]["resultType"], "input_required", "{got}");
        let state = answer["result"]["requestState"]
            .as_str()
            .expect("a state")
            .to_owned();
        // The server's name and the state are the daemon's; nothing else is.
        let wanted = with(result.as_bytes(), "@ID@", "5");
        let wanted = with(&wanted, r#""message":"m""#, r#""message":"[fix] m""#);
        let wanted = with(
            &wanted,
            r#""params":{"#,
            r#""params":{"_meta":{"org.colibri/server":"fix"},"#,
        );
        let wanted = with(&wanted, r#""its own \u0000""#, &format!("\"{state}\""));
        assert_eq!(got, String::from_utf8(wanted).unwrap(), "{way}");
        let retry = format!(
            r#"{{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{{"name":"fix__frame","arguments":{{"case":"asks"}},"inputResponses":{{"\u0061":{{"action":"accept","content":{{}},"x":1e400}}}},"requestState":"{state}"{meta}}}}}"#
        );
        peer.ask(retry.as_bytes(), "tools/call", "fix__frame");
        let retry = wait_for("the retry", || {
            place.received("fix", "inputResponses").pop()
        });
        assert!(
            retry.contains(r#""requestState":"its own \u0000""#),
            "{way}: {retry}"
        );
        assert!(
            retry.contains(
                r#""inputResponses":{"\u0061":{"action":"accept","content":{},"x":1e400}}"#
            ),
            "{way}: {retry}"
        );
    }
}
