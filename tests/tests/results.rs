//! Results over their limit: kept whole, whatever kind they are, read in pieces by who called, and by nobody else.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Command;

use colibri_tests::{Client, Daemon, LEGACY, MODERN, Place, code_of, text_of, wait_for};
use serde_json::{Value, json};

/// What an answer says of the result that is kept instead: its handle and how many bytes it has.
fn kept(answer: &Value) -> (String, u64) {
    assert_eq!(code_of(answer), Some("RESULT_TOO_LARGE"), "{answer}");
    let places = [
        &answer["result"]["_meta"]["org.colibri/error"],
        &answer["error"]["data"],
        &answer["_meta"]["org.colibri/error"],
    ];
    let said = places.into_iter().find(|said| said.is_object()).unwrap();
    let handle = said["kept"]["handle"]
        .as_str()
        .unwrap_or_else(|| panic!("no handle: {answer}"));
    assert_eq!(handle.len(), 32);
    assert!(
        said["do"].as_str().unwrap().contains(handle) && answer.to_string().contains("it begins: {"),
        "{answer}"
    );
    (handle.to_owned(), said["kept"]["bytes"].as_u64().unwrap())
}

/// A kept result, read to its end in pieces of all sizes.
fn whole(client: &mut Client, handle: &str) -> String {
    let (mut read, mut next, mut length) = (String::new(), Some(0), 7);
    while let Some(offset) = next {
        let piece = client.call(
            "colibri_read_result",
            json!({ "handle": handle, "offset": offset, "length": length }),
        );
        assert_ne!(piece["isError"], true, "{piece}");
        let piece = &piece["structuredContent"];
        let text = piece["text"].as_str().unwrap();
        assert!(!text.is_empty() && text.len() <= 64 << 10);
        read.push_str(text);
        (next, length) = (piece["next"].as_u64(), length * 31 % 70_001);
        assert_eq!(next.unwrap_or(read.len() as u64), read.len() as u64);
    }
    read
}

fn files(place: &Place) -> Vec<PathBuf> {
    let files = fs::read_dir(place.path("state/results")).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

/// What a server says with results of every kind, each of some kilobytes.
fn every_kind() -> Value {
    let text = "Zeile \u{1f426} \"1\"\n".repeat(300);
    json!({
        "capabilities": { "tools": {}, "resources": {}, "prompts": {}, "completions": {} },
        "tools/list": { "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] },
        "resources/list": { "resources": [{ "uri": "file:///a", "name": "a" }] },
        "resources/templates/list": { "resourceTemplates": [] },
        "prompts/list": { "prompts": [{ "name": "p" }] },
        "tools/call t": { "content": [{ "type": "text", "text": text },
            { "type": "resource_link", "uri": "file:///a", "name": "a" }], "structuredContent": { "n": 1e300 } },
        "resources/read file:///a": { "contents": [{ "uri": "file:///a", "text": text }] },
        "prompts/get p": { "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] },
        "completion/complete": { "completion": { "values": [text] } },
    })
}

#[test]
fn results_of_every_kind_between_every_era_are_kept_as_they_would_have_been_sent() {
    for speak in [LEGACY, MODERN] {
        let place = Place::new();
        let limited = |more| place.registry(&json!({ "fix": place.library("fix", speak, more, &every_kind()) }));
        limited(json!({ "result_limit": 500 }));
        let daemon = place.start(&[]);
        let requests = [
            ("tools/call", json!({ "name": "fix__t", "arguments": {} })),
            ("resources/read", json!({ "uri": "fix+file:///a" })),
            ("prompts/get", json!({ "name": "fix__p" })),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/prompt", "name": "fix__p" }, "argument": { "name": "x", "value": "" } }),
            ),
        ];
        let mut clients = [daemon.legacy(LEGACY), daemon.modern()];
        let mut handles = Vec::new();
        for client in &mut clients {
            for (method, params) in &requests {
                let answer = client.ask(method, params.clone());
                assert_eq!(
                    answer["error"].is_object(),
                    *method != "tools/call",
                    "{method}: {answer}"
                );
                handles.push(kept(&answer));
            }
        }
        let mut handles = handles.into_iter();
        // A reload takes nothing away, and the limit goes with the next call.
        limited(json!({ "whole": true }));
        daemon.reload();
        for client in &mut clients {
            for (method, params) in &requests {
                let (handle, bytes) = handles.next().unwrap();
                let result = client.ask(method, params.clone());
                let read = whole(client, &handle);
                assert_eq!(read.len() as u64, bytes);
                let read: Value = serde_json::from_str(&read).unwrap();
                assert!(read == result["result"] && read.is_object(), "{speak} {method}: {read}");
            }
        }
        daemon.stop();
    }
}

#[test]
fn a_result_is_kept_byte_by_byte_and_over_a_restart() {
    let place = Place::of_fixture(&[], json!({ "result_limit": "1K" }));
    let result = format!(
        r#"{{"content":[{{"type":"text","text":"{}"}}], "big":12345678901234567890, "a":1e400,"a":"\ud800"}}"#,
        "ü\\n".repeat(40_000)
    );
    place.frame(
        "odd",
        format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#).as_bytes(),
    );
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let answer = client.call("fix__frame", json!({ "case": "odd" }));
    assert!(text_of(&answer).contains("the tool succeeded"), "{answer}");
    let (handle, bytes) = kept(&answer);
    assert_eq!(
        (whole(&mut client, &handle), bytes),
        (result.clone(), result.len() as u64)
    );
    assert_eq!(
        fs::metadata(place.path("state/results")).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(
        fs::metadata(&files(&place)[0]).unwrap().permissions().mode() & 0o777,
        0o600
    );
    daemon.kill();
    fs::write(
        place.path("state/results").join(format!("{}.new", "0".repeat(32))),
        "torn",
    )
    .unwrap();
    let daemon = place.start(&[]);
    assert_eq!(files(&place).len(), 1, "what a crash left is gone");
    let mut client = daemon.modern();
    assert_eq!(whole(&mut client, &handle), result);
    let ask = |client: &mut Client, more: Value| {
        let mut given = json!({ "handle": handle });
        given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.call("colibri_read_result", given)["structuredContent"].clone()
    };
    assert_eq!(
        ask(&mut client, json!({ "lines": 2, "offset": 39_999 })),
        json!({ "text": "ü" })
    );
    assert_eq!(
        ask(&mut client, json!({ "json_pointer": "/big" })),
        json!({ "text": "12345678901234567890" })
    );
    let hostile = ask(&mut client, json!({ "pattern": "^(ü+)+$", "offset": 39_998 }));
    assert_eq!(hostile, json!({ "text": "39998: ü\n39999: ü\n" }));
    daemon.stop();
    place.assert_trail_is_sound();
}

#[test]
fn what_is_no_result_is_no_way_around_the_limit() {
    for speak in [LEGACY, MODERN] {
        let place = Place::of_fixture(&["--speak", speak], json!({ "result_limit": 1000 }));
        for (case, length) in [("short", 5_000), ("long", 2 << 20)] {
            let text = "x".repeat(length);
            let asks = format!(
                r#"{{"jsonrpc":"2.0","id":@ID@,"result":{{"resultType":"input_required","requestState":"s","content":[{{"type":"text","text":"{text}"}}]}}}}"#
            );
            place.frame(&format!("asks {case}"), asks.as_bytes());
        }
        let daemon = place.start(&[]);
        let mut client = if speak == MODERN {
            daemon.modern()
        } else {
            daemon.legacy(LEGACY)
        };
        let mut says = |case: &str| {
            client.ask(
                "tools/call",
                json!({ "name": "fix__frame", "arguments": { "case": case } }),
            )
        };
        let [short, long] = ["asks short", "asks long"].map(&mut says);
        if speak == MODERN {
            assert_eq!(short["result"]["resultType"], "input_required", "{short}");
            assert_eq!(code_of(&long), Some("SERVER_ANSWER_INVALID"));
            assert!(text_of(&long["result"]).contains("the limit is 1048576"), "{long}");
        } else {
            // To it the word means nothing.
            kept(&short);
            kept(&long);
        }
        daemon.stop();
    }
}

/// The bytes of the answer to a read of this handle, by a user that is not the daemon's where the test is root.
fn read_by_a_stranger(place: &Place, handle: &str) -> String {
    let argument = format!("handle={handle}");
    let output = place
        .stranger(&["call", "colibri", "colibri_read_result", &argument])
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn another_users_handle_is_like_one_that_never_was() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    place.open_to_group();
    let daemon = place.start(&["--socket-group", "root"]);
    let mut client = daemon.legacy(LEGACY);
    let (handle, _) = kept(&client.call("fix__huge", json!({ "bytes": 5000 })));
    let others = read_by_a_stranger(&place, &handle);
    assert!(others.contains("NO_SUCH_RESULT"), "{others}");
    let guessed = "0123456789abcdef0123456789abcdef";
    assert_eq!(others, read_by_a_stranger(&place, guessed));
    assert_eq!(others, read_by_a_stranger(&place, "../colibri.db"));
    let own = client.call("colibri_read_result", json!({ "handle": guessed }));
    assert_eq!(code_of(&own), Some("NO_SUCH_RESULT"), "{own}");
    whole(&mut client, &handle);
}

#[test]
fn the_limits_hold_under_load_and_every_call_is_answered_once() {
    const EACH: usize = 300_000;
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    let daemon = place.start(&["--max-results-per-user", "1000000", "--max-results", "2000000"]);
    let mut clients: Vec<Client> = (0..4).map(|_| daemon.legacy(LEGACY)).collect();
    let mut last = None;
    for _ in 0..3 {
        let ids: Vec<Vec<u64>> = clients
            .iter_mut()
            .map(|client| {
                (0..8)
                    .map(|_| client.request_tool("fix__huge", json!({ "bytes": EACH })))
                    .collect()
            })
            .collect();
        for (client, ids) in clients.iter_mut().zip(ids) {
            for id in ids {
                last = Some(kept(&client.answer(id)).0);
                // A file may go while it is looked at.
                let sizes = files(&place)
                    .into_iter()
                    .filter_map(|file| Some(fs::metadata(file).ok()?.len()));
                assert!(sizes.sum::<u64>() <= 1_000_000 + 4 * 256);
            }
        }
    }
    assert_eq!(files(&place).len(), 3, "the newest that there is room for");
    let read = clients[0].call("colibri_read_result", json!({ "handle": last.unwrap(), "length": 1 }));
    assert!(
        read["structuredContent"]["text"] == "{" || code_of(&read) == Some("NO_SUCH_RESULT"),
        "{read}"
    );
    daemon.stop();
    place.assert_trail_is_sound();
    let records = place.records();
    assert_eq!(
        records
            .iter()
            .filter(|record| record.rec["event"] == "result-kept")
            .count(),
        4 * 8 * 3
    );
}

/// A file system of 128 KiB where results are kept; unmounted when dropped.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn where_the_disk_is_full_the_answer_says_so_and_has_the_beginning() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    let small = Small(place.path("state/results"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&small.0)
        .unwrap();
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=128k,mode=0700", "tmpfs"])
        .arg(&small.0);
    assert!(mount.status().unwrap().success(), "a tmpfs can be mounted");
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let (early, _) = kept(&client.call("fix__huge", json!({ "bytes": 20_000 })));
    let refused = client.call("fix__huge", json!({ "bytes": 200_000 }));
    let text = text_of(&refused);
    assert!(
        text.contains("No space left on device") && text.contains("it begins: {"),
        "{text}"
    );
    assert!(refused["_meta"]["org.colibri/error"].get("kept").is_none(), "{refused}");
    assert_eq!(files(&place).len(), 1, "nothing is left of it");
    daemon.wait_for_log("are not kept any more");
    whole(&mut client, &early);
    kept(&client.call("fix__huge", json!({ "bytes": 20_000 })));
    daemon.wait_for_log("are kept again");
    drop((client, daemon));
}

#[test]
fn none_are_kept_where_the_limit_is_none() {
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    let daemon = place.start_in(&[("COLIBRI_MCP_MAX_RESULTS_PER_USER", "0")], &["--external-call"]);
    let refused = daemon.legacy(LEGACY).call("fix__huge", json!({ "bytes": 5000 }));
    assert!(text_of(&refused).contains("and it is not kept"), "{refused}");
    assert_eq!(files(&place).len(), 0);
}

#[test]
fn a_call_that_is_cancelled_while_its_result_is_kept_gets_no_answer_and_progress_comes_first() {
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet(LEGACY);
    for _ in 0..20 {
        let id = client.request_tool("fix__huge", json!({ "bytes": 3_000_000 }));
        client.notify("notifications/cancelled", json!({ "requestId": id }));
    }
    // Whatever of them was answered before its cancellation was read, the daemon goes on.
    kept(&client.call("fix__huge", json!({ "bytes": 5000 })));
    wait_for("nothing in flight", || is_quiet(&daemon).then_some(()));
}

fn is_quiet(daemon: &Daemon<'_>) -> bool {
    daemon.server("fix")["processes"][0]["in_flight"] == 0
}
