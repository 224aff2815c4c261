//! What servers say unasked: log messages and updates of resources byte for byte but for what is
//! ours, and that a list has changed, which is the daemon's to say.

use colibri_tests::Place;
use serde_json::json;

use super::peers::{Ear, Peer, Way, ways};
use super::{assert_whole, difference, meta, with};

/// The ways on which a server says something of its own accord: it is not told to say more.
fn quiet_ways() -> impl Iterator<Item = Way> {
    ways().into_iter().filter(|way| !way.told)
}

/// A server with a resource, that logs.
fn place(way: Way) -> Place {
    let place = Place::new();
    let entry = place.fixture(
        "fix",
        &["--speak", way.version, "--logs"],
        json!({ "prefix": way.prefix }),
    );
    place.registry(&json!({ "fix": entry }));
    std::fs::write(
        place.path("fix.resources"),
        r#"[{"uri":"file:///a","name":"a"}]"#,
    )
    .unwrap();
    place
}

/// A call that has the server say this, before its answer or after it.
fn say(peer: &mut Peer<'_>, way: Way, case: &str, after: bool) {
    let tool = way.exposed("tell_raw");
    let meta = meta(way, "1").replace(
        r#""progress":"#,
        r#""io.modelcontextprotocol/logLevel":"debug","progress":"#,
    );
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{{"case":"{case}","after":{after}}}{meta}}}}}"#
    );
    peer.send(call.as_bytes(), "tools/call", &tool);
}

fn is_answer(message: &[u8]) -> bool {
    message.starts_with(br#"{"jsonrpc":"2.0","id":7,"result":"#)
}

/// What is heard while a call says it, whichever of the two comes first on the one connection.
fn heard(peer: &mut Peer<'_>, way: Way, ear: &mut Ear, (case, after): (&str, bool)) -> Vec<u8> {
    say(peer, way, case, after);
    let (mut heard, mut answered) = (None, false);
    while heard.is_none() || !answered {
        let got = if answered {
            peer.hear(ear)
        } else {
            peer.read()
        };
        if is_answer(&got) {
            answered = true;
        } else if !is_list_changed(&got) {
            assert_eq!(heard.replace(got), None, "one message and an answer");
        }
    }
    heard.expect("it was heard")
}

/// The lists of the first start may come whole only after the client has been told a part of them.
fn is_list_changed(message: &[u8]) -> bool {
    message.windows(14).any(|part| part == b"/list_changed\"")
}

const LOGS: [&str; 2] = [
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"\u0000\ud800"}}"#,
    r#" { "x":1e400,"method":"notifications\/message", "params" : {"x-before":{"level":"debug"},"data":{"n":18446744073709551616,"uri":"file:///a"},"logger":"a\/b","level": "\u0065rror" ,"_meta":{"a/b":[1.00]}},"jsonrpc":"2.0" } "#,
];

#[test]
fn log_messages_come_byte_for_byte() {
    let mut spoiled = Vec::new();
    for way in quiet_ways() {
        let place = place(way);
        for (n, frame) in LOGS.iter().enumerate() {
            place.frame(&n.to_string(), frame.as_bytes());
        }
        let daemon = place.start(&["--log-level", "warn"]);
        let mut peer = Peer::new(&daemon, way);
        let mut ear = peer.listen(&[]);
        if !way.is_modern() {
            let level = br#"{"jsonrpc":"2.0","id":0,"method":"logging/setLevel","params":{"level":"debug"}}"#;
            peer.ask(level, "", "");
        }
        for (n, frame) in LOGS.iter().enumerate() {
            // While a call is in flight it is the call's.
            say(&mut peer, way, &n.to_string(), false);
            let got = std::iter::repeat_with(|| peer.read())
                .find(|message| !is_list_changed(message))
                .expect("what it says");
            if got != frame.as_bytes() {
                spoiled.push(format!("{way}: {n} {}", difference(frame.as_bytes(), &got)));
            }
            assert!(is_answer(&peer.read()), "an answer behind it");
            // A legacy client is told without one as well.
            if !way.is_modern() {
                let got = heard(&mut peer, way, &mut ear, (&n.to_string(), true));
                if got != frame.as_bytes() {
                    spoiled.push(format!(
                        "{way}: {n} later {}",
                        difference(frame.as_bytes(), &got)
                    ));
                }
            }
        }
    }
    assert_whole(&spoiled);
}

/// Updates: `@URI@` stands for the resource, `@META@` for what a modern server and a modern client
/// have there.
const UPDATES: [&str; 2] = [
    r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"@URI@"@META@}}"#,
    r#" { "x":1e400,"method":"notifications\/resources\/updated", "params" : {"x-before":{"uri":"file:///b"} , "uri" : "@URI@" ,"x":[18446744073709551616,"\ud800"]@META@ },"jsonrpc":"2.0" } "#,
];

#[test]
fn updates_come_byte_for_byte() {
    let mut spoiled = Vec::new();
    for way in quiet_ways() {
        let place = place(way);
        let meta = |id: &str| match way.is_modern() {
            true => format!(
                r#", "_meta": {{"a/b":1e400,"io.modelcontextprotocol/subscriptionId":{id} }}"#
            ),
            false => String::new(),
        };
        let uri = if way.prefix {
            "fix+file:///a"
        } else {
            "file:///a"
        };
        for (n, frame) in UPDATES.iter().enumerate() {
            let frame = frame
                .replace("@URI@", "file:///a")
                .replace("@META@", &meta("@LISTENER@"));
            place.frame(&n.to_string(), frame.as_bytes());
        }
        let daemon = place.start(&["--log-level", "debug"]);
        let mut peer = Peer::new(&daemon, way);
        let mut ear = peer.listen(&[uri]);
        for (n, frame) in UPDATES.iter().enumerate() {
            let got = heard(&mut peer, way, &mut ear, (&n.to_string(), false));
            // The id of the subscription is the client's own, and stands first.
            let ours = r#""io.modelcontextprotocol/subscriptionId":"\u0065ar""#;
            let ours = match way.is_modern() {
                true => format!(r#", "_meta": {{{ours},"a/b":1e400 }}"#),
                false => String::new(),
            };
            let wanted = frame.replace("@URI@", uri).replace("@META@", &ours);
            if got != wanted.as_bytes() {
                spoiled.push(format!(
                    "{way}: {n} {}",
                    difference(wanted.as_bytes(), &got)
                ));
            }
        }
    }
    assert_whole(&spoiled);
}

/// The daemon says itself that a list has changed, when it has.
#[test]
fn that_a_list_has_changed_is_said_in_the_daemons_own_words() {
    let changed = r#" {"params":{"x":1e400@META@},"x":1,"method":"notifications\/tools\/list_changed","jsonrpc":"2.0"}"#;
    for way in quiet_ways() {
        let place = place(way);
        let listener = r#","_meta":{"io.modelcontextprotocol/subscriptionId":@LISTENER@}"#;
        let listener = if way.is_modern() { listener } else { "" };
        place.frame("changed", &with(changed.as_bytes(), "@META@", listener));
        let tools = |more: &str| {
            format!(r#"[{{"name":"tell_raw","inputSchema":{{"type":"object"}}}}{more}]"#)
        };
        place.defines("fix", "definitions", &tools(""));
        let daemon = place.start(&["--log-level", "warn"]);
        let mut peer = Peer::told(&daemon, way);
        let mut ear = peer.listen(&[]);
        // Its first start says something new as well, before the answer or behind it.
        say(&mut peer, way, "changed", false);
        while !is_answer(&peer.read()) {}
        place.defines(
            "fix",
            "definitions",
            &tools(r#",{"name":"more","inputSchema":{"type":"object"}}"#),
        );
        let wanted = match way.is_modern() {
            true => with(
                br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":@ID@}}}"#,
                "@ID@",
                r#""\u0065ar""#,
            ),
            false => br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.to_vec(),
        };
        let others =
            ["prompts/list", "resources/list"].map(|other| with(&wanted, "tools/list", other));
        let (mut seen, mut answered) = (false, false);
        say(&mut peer, way, "changed", false);
        while !(seen && answered) {
            let got = if answered {
                peer.hear(&mut ear)
            } else {
                peer.read()
            };
            match is_answer(&got) {
                true => answered = true,
                false if got == wanted => seen = true,
                // The other lists of the first start.
                false => assert!(
                    others.contains(&got),
                    "{way}: {}",
                    difference(&wanted, &got)
                ),
            }
        }
    }
}
