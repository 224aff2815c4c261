//! Results over their limit: kept whole, whatever kind they are, read in pieces by who called, and
//! by nobody else.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;

use colibri_tests::{
    Client, Daemon, LEGACY, MODERN, Mounted, Place, code_of, kept_of, last_text_of, text_of,
    wait_for,
};
use serde_json::{Value, json};

/// What an answer says of the result that is kept: its handle and how many bytes it has. Of a
/// tool's it has the beginning, and is none of an error.
fn kept(answer: &Value) -> (String, u64) {
    let result = answer.get("result").unwrap_or(answer);
    let (said, says) = match answer["error"].is_object() {
        true => {
            assert_eq!(code_of(answer), Some("RESULT_TOO_LARGE"), "{answer}");
            assert!(answer.to_string().contains("it begins: {"), "{answer}");
            let data = &answer["error"]["data"];
            let says = data["do"].as_str().unwrap();
            assert!(
                says.contains("\"lines\":1000") && says.contains("block"),
                "{says}"
            );
            (&data["kept"], says)
        }
        false => {
            assert!(
                result["isError"].is_null() && code_of(answer).is_none(),
                "{answer}"
            );
            let says = last_text_of(result);
            assert!(says.contains("do not make it again"), "{says}");
            (&result["_meta"]["org.colibri/kept"], says)
        }
    };
    let handle = said["handle"]
        .as_str()
        .unwrap_or_else(|| panic!("no handle: {answer}"));
    assert!(handle.len() == 32 && says.contains(handle), "{answer}");
    (handle.to_owned(), said["bytes"].as_u64().unwrap())
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
        let text = text_of(&piece);
        assert!(!text.is_empty() && text.len() <= 64 << 10);
        read.push_str(text);
        (next, length) = (next_of(&piece), length * 31 % 70_001);
        assert_eq!(next.unwrap_or(read.len() as u64), read.len() as u64);
    }
    read
}

/// The offset at which the next piece begins.
fn next_of(piece: &Value) -> Option<u64> {
    piece["_meta"]["org.colibri/next"].as_u64()
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
        let limited = |more| {
            place.registry(&json!({ "fix": place.library("fix", speak, more, &every_kind()) }))
        };
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
                assert!(
                    read == result["result"] && read.is_object(),
                    "{speak} {method}: {read}"
                );
            }
        }
        daemon.stop();
    }
}

/// A server with a tool `t` that answers so, and the tool's definition with this besides.
fn one_tool(place: &Place, speak: &str, (definition, more): (Value, Value), result: &Value) {
    let mut tool = json!({ "name": "t", "inputSchema": { "type": "object" } });
    tool.as_object_mut()
        .unwrap()
        .extend(definition.as_object().unwrap().clone());
    let says = json!({ "capabilities": { "tools": {} }, "tools/list": { "tools": [tool] }, "tools/call t": result });
    place.registry(&json!({ "fix": place.library("fix", speak, more, &says) }));
}

#[test]
fn a_tool_with_an_output_schema_keeps_its_structured_content_and_others_give_it_up() {
    let row = "r".repeat(3000);
    let schema = json!({ "outputSchema": { "type": "object", "properties": { "rows": { "type": "array" } },
        "required": ["rows"] } });
    let result = json!({ "content": [{ "type": "text", "text": format!("{row}\n{row}") }],
        "structuredContent": { "rows": [row] }, "_meta": { "own": 1 } });
    for speak in [LEGACY, MODERN] {
        for (definition, has_schema) in [(schema.clone(), true), (json!({}), false)] {
            let place = Place::new();
            one_tool(
                &place,
                speak,
                (definition, json!({ "result_limit": 4000 })),
                &result,
            );
            let daemon = place.start(&[]);
            for client in &mut [daemon.legacy(LEGACY), daemon.modern()] {
                let answer = client.ask("tools/call", json!({ "name": "fix__t", "arguments": {} }));
                let (handle, _) = kept(&answer);
                let part = &answer["result"];
                assert_eq!(
                    part["resultType"].is_string(),
                    client.era == colibri_tests::Era::Modern,
                    "{part}"
                );
                assert_eq!(part["_meta"]["own"], 1);
                assert_eq!(
                    part["structuredContent"]["rows"][0].is_string(),
                    has_schema,
                    "{part}"
                );
                let first = text_of(part);
                assert!(first.len() >= 1000 && row.starts_with(first), "{first}");
                let line = part["_meta"]["org.colibri/kept"]["line"].as_u64().unwrap();
                let rest = json!({ "handle": handle, "lines": 1000, "offset": line });
                let rest = client.call("colibri_read_result", rest);
                let read = format!("{first}{}", text_of(&rest));
                assert_eq!(
                    read,
                    format!("{row}\n{row}"),
                    "nothing is missing or doubled between the two"
                );
            }
            daemon.stop();
        }
    }
}

#[test]
fn an_image_is_an_image_whatever_its_size_and_text_alone_is_cut() {
    let image = |bytes: usize| json!({ "type": "image", "mimeType": "image/png", "data": "iVBO".repeat(bytes / 4) });
    let file = json!({ "type": "resource", "resource": { "uri": "file:///f", "blob": "AAAA".repeat(5000) } });
    let text = json!({ "type": "text", "text": "t".repeat(30_000) });
    for speak in [LEGACY, MODERN] {
        let contents = |blocks: Vec<Value>| json!({ "content": blocks });
        let cases = [
            (vec![image(20_000)], true),
            (
                vec![
                    json!({ "type": "text", "text": "a page" }),
                    image(600_000),
                    file.clone(),
                ],
                true,
            ),
            (vec![image(20_000), text.clone()], false),
        ];
        for (blocks, whole) in cases {
            let place = Place::new();
            one_tool(
                &place,
                speak,
                (json!({}), json!({})),
                &contents(blocks.clone()),
            );
            let daemon = place.start(&["--cost-mode", "smart"]);
            for client in &mut [daemon.legacy(LEGACY), daemon.modern()] {
                let answer = client.ask("tools/call", json!({ "name": "fix__t", "arguments": {} }));
                let content = answer["result"]["content"]
                    .as_array()
                    .unwrap_or_else(|| panic!("{answer}"));
                if whole {
                    let as_listed = json!(blocks)
                        .to_string()
                        .replace("file:///f", "fix+file:///f");
                    let passed = json!(content).to_string();
                    assert!(passed == as_listed, "{}", content.len());
                    continue;
                }
                let (handle, _) = kept(&answer);
                assert!(content.len() == 3 && content[1] == blocks[0], "{answer}");
                let read = client.call(
                    "colibri_read_result",
                    json!({ "handle": handle, "block": 0 }),
                );
                assert_eq!(read["content"], json!([blocks[0]]), "the block as it is");
                for (block, why) in [
                    (2, "there is no block 2"),
                    (u64::from(u32::MAX), "there is no block"),
                ] {
                    let read = client.call(
                        "colibri_read_result",
                        json!({ "handle": handle, "block": block }),
                    );
                    assert!(
                        read["isError"] == true && text_of(&read).contains(why),
                        "{read}"
                    );
                }
            }
            daemon.stop();
        }
    }
}

#[test]
fn a_screenshot_longer_than_the_whole_budget_reaches_a_model_as_often_as_it_is_taken() {
    let place = Place::new();
    let image = |data: &str| json!({ "type": "image", "mimeType": "image/png", "data": data.repeat(600_000) });
    let page = json!({ "type": "text", "text": "a page" });
    one_tool(
        &place,
        LEGACY,
        (json!({}), json!({})),
        &json!({ "content": [page, image("A")] }),
    );
    let daemon = place.start(&["--cost-mode", "fast"]);
    let mut client = daemon.legacy(LEGACY);
    for _ in 0..5 {
        let answer = client.call("fix__t", json!({}));
        assert!(
            answer["content"] == json!([page, image("A")]),
            "{}",
            text_of(&answer)
        );
    }
    let mut status = client.call("colibri_status", json!({}));
    let spending = status["structuredContent"]["spending"].take();
    assert!(
        spending["spent_bytes"].as_u64().unwrap() < 60_000,
        "{spending}"
    );
    daemon.stop();
}

#[test]
fn blocks_that_do_not_pass_are_counted_and_come_back_as_the_blocks_that_they_are() {
    let data = "iVBO".repeat(50_000);
    let image = json!({ "type": "image", "mimeType": "image/png", "data": data });
    let mut said = image.clone();
    said["annotations"] = json!({ "x": "y".repeat(2_000) });
    let text = json!({ "type": "text", "text": "t".repeat(30_000) });
    let place = Place::new();
    let blocks = json!([image, text, said, said]);
    one_tool(
        &place,
        LEGACY,
        (json!({}), json!({})),
        &json!({ "content": blocks }),
    );
    let daemon = place.start(&["--cost-mode", "fast"]);
    let mut client = daemon.legacy(LEGACY);
    let answer = client.call("fix__t", json!({}));
    let (handle, _) = kept(&answer);
    assert_eq!(answer["content"].as_array().unwrap().len(), 3, "{answer}");
    assert!(answer["content"][1] == image);
    let note = last_text_of(&answer);
    assert!(
        note.contains("2 data blocks not among it (\"block\":2 is the first)"),
        "{note}"
    );
    let read = client.call(
        "colibri_read_result",
        json!({ "handle": handle, "block": 2 }),
    );
    assert!(read["content"] == json!([said]));
    daemon.stop();
}

#[test]
fn what_resources_and_prompts_have_beside_text_passes_or_is_read_block_by_block() {
    let data = "iVBO".repeat(50_000);
    let text = "a line of text\n".repeat(1_000);
    let image = json!({ "type": "image", "mimeType": "image/png", "data": data });
    let part = |uri: &str| json!({ "uri": uri, "mimeType": "image/png", "blob": data });
    let user = |content: Value| json!({ "role": "user", "content": content });
    let says = json!({
        "capabilities": { "resources": {}, "prompts": {} },
        "resources/list": { "resources": [{ "uri": "file:///a", "name": "a" }, { "uri": "file:///b", "name": "b" }] },
        "resources/templates/list": { "resourceTemplates": [] },
        "prompts/list": { "prompts": [{ "name": "p" }] },
        "resources/read file:///a": { "contents": [part("file:///a")] },
        "resources/read file:///b": { "contents": [part("file:///b"), { "uri": "file:///b", "text": text }] },
        "prompts/get p": { "messages": [user(image.clone()), user(json!({ "type": "text", "text": text }))] },
    });
    for speak in [LEGACY, MODERN] {
        let place = Place::new();
        place.registry(&json!({ "fix": place.library("fix", speak, json!({}), &says) }));
        let daemon = place.start(&["--cost-mode", "fast"]);
        for client in &mut [daemon.legacy(LEGACY), daemon.modern()] {
            let read = client.ask("resources/read", json!({ "uri": "fix+file:///a" }));
            assert!(
                read["result"]["contents"][0]["blob"] == data,
                "{}",
                read["error"]
            );
            let read = client.ask("resources/read", json!({ "uri": "fix+file:///b" }));
            let got = client.ask("prompts/get", json!({ "name": "fix__p" }));
            let embedded = json!({ "type": "resource", "resource": part("fix+file:///b") });
            for (answer, block) in [(read, embedded), (got, image.clone())] {
                let (handle, _) = kept(&answer);
                assert!(
                    !answer.to_string().contains("iVBOiVBO"),
                    "no base64 in place of text: {answer}"
                );
                let lines = client.call(
                    "colibri_read_result",
                    json!({ "handle": handle, "lines": 3 }),
                );
                assert_eq!(
                    text_of(&lines),
                    "a line of text\na line of text\na line of text"
                );
                let read = client.call(
                    "colibri_read_result",
                    json!({ "handle": handle, "block": 0 }),
                );
                assert!(read["content"] == json!([block]), "{}", text_of(&read));
            }
        }
        daemon.stop();
    }
}

#[test]
fn three_hundred_kilobytes_are_read_in_fast_line_by_line() {
    let text: String = (0..7000)
        .map(|n| format!("line {n} of \"a file\" of some length, as it is\n"))
        .collect();
    assert!(text.len() > 300_000);
    let place = Place::new();
    one_tool(
        &place,
        LEGACY,
        (json!({}), json!({})),
        &json!({ "content": [{ "type": "text", "text": text }] }),
    );
    let daemon = place.start(&["--cost-mode", "fast"]);
    let mut client = daemon.legacy(LEGACY);
    let answer = client.call("fix__t", json!({}));
    let (handle, _) = kept(&answer);
    let (mut lines, mut sent) = (
        text_of(&answer)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>(),
        0,
    );
    let mut next = answer["_meta"]["org.colibri/kept"]["line"].as_u64();
    while let Some(offset) = next {
        let piece = client.call(
            "colibri_read_result",
            json!({ "handle": handle, "lines": 1000, "offset": offset }),
        );
        assert!(
            piece["structuredContent"].is_null() && piece["isError"].is_null(),
            "{piece}"
        );
        lines.extend(text_of(&piece).lines().map(str::to_owned));
        sent += piece.to_string().len();
        next = next_of(&piece);
    }
    assert!(
        lines.iter().map(String::as_str).eq(text.lines()),
        "{} lines",
        lines.len()
    );
    assert!(
        sent * 10 < text.len() * 13,
        "{sent} bytes sent for {}",
        text.len()
    );
    daemon.stop();
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
    assert!(
        last_text_of(&answer).contains("the tool succeeded"),
        "{answer}"
    );
    assert!(text_of(&answer).starts_with("ü\nü\n"), "{answer}");
    let (handle, bytes) = kept(&answer);
    assert_eq!(
        (whole(&mut client, &handle), bytes),
        (result.clone(), result.len() as u64)
    );
    assert_eq!(
        fs::metadata(place.path("state/results"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    assert_eq!(
        fs::metadata(&files(&place)[0])
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    daemon.kill();
    fs::write(
        place
            .path("state/results")
            .join(format!(".{}.new", "0".repeat(32))),
        "torn",
    )
    .unwrap();
    let daemon = place.start(&[]);
    assert_eq!(files(&place).len(), 1, "what a crash left is gone");
    let mut client = daemon.modern();
    assert_eq!(whole(&mut client, &handle), result);
    let ask = |client: &mut Client, more: Value| {
        let mut given = json!({ "handle": handle });
        given
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let piece = client.call("colibri_read_result", given);
        assert!(next_of(&piece).is_none(), "{piece}");
        text_of(&piece).to_owned()
    };
    assert_eq!(
        ask(&mut client, json!({ "lines": 2, "offset": 39_999 })),
        "ü"
    );
    assert_eq!(
        ask(&mut client, json!({ "json_pointer": "/big" })),
        "12345678901234567890"
    );
    let hostile = ask(
        &mut client,
        json!({ "pattern": "^(ü+)+$", "offset": 39_998 }),
    );
    assert_eq!(hostile, "39998: ü\n39999: ü\n");
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
            assert!(
                text_of(&long["result"]).contains("the limit is 1048576"),
                "{long}"
            );
        } else {
            // To it the word means nothing.
            kept(&short);
            kept(&long);
        }
        daemon.stop();
    }
}

/// The bytes of the answer to a read of this handle, by a user that is not the daemon's where the
/// test is root.
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
#[cfg_attr(not(root), ignore = "needs root")]
fn another_users_handle_is_like_one_that_never_was() {
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
    place.limits(json!({ "result_bytes_per_user": 1_000_000, "result_bytes": 2_000_000 }));
    let daemon = place.start(&[]);
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
    let read = clients[0].call(
        "colibri_read_result",
        json!({ "handle": last.unwrap(), "length": 1 }),
    );
    assert!(
        text_of(&read) == "{" || code_of(&read) == Some("NO_SUCH_RESULT"),
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

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn where_the_disk_is_full_the_answer_says_so_and_has_the_beginning() {
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    let results = place.path("state/results");
    let mut directory = fs::DirBuilder::new();
    directory
        .recursive(true)
        .mode(0o700)
        .create(&results)
        .unwrap();
    let _small = Mounted::on(&results, "size=128k,mode=0700");
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let (early, _) = kept(&client.call("fix__huge", json!({ "bytes": 20_000 })));
    let refused = client.call("fix__huge", json!({ "bytes": 200_000 }));
    let text = last_text_of(&refused);
    assert!(
        text.contains("No space left on device") && text.contains("The rest is not kept"),
        "{text}"
    );
    assert!(
        kept_of(&refused).is_none() && refused["isError"].is_null(),
        "{refused}"
    );
    assert!(
        refused["_meta"]["org.colibri/kept"]["bytes"].as_u64() > Some(200_000),
        "{refused}"
    );
    assert_eq!(files(&place).len(), 1, "nothing is left of it");
    daemon.wait_for_log("are not kept any more");
    whole(&mut client, &early);
    kept(&client.call("fix__huge", json!({ "bytes": 20_000 })));
    daemon.wait_for_log("are kept again");
    drop((client, daemon));
}

/// Bytes that are free on the file system of the state directory.
fn free(place: &Place) -> u64 {
    let found = nix::sys::statvfs::statvfs(&place.path("state")).unwrap();
    found.blocks_available() * found.fragment_size()
}

/// Fills a file system: one file after the other of a size, until there is no space for a byte
/// more.
fn fill(mut next: impl FnMut() -> PathBuf, content: &[u8]) {
    use std::io::Write as _;
    while fs::write(next(), content).is_ok() {}
    let mut last = fs::File::options()
        .append(true)
        .create(true)
        .open(next())
        .unwrap();
    while last.write_all(b"x").is_ok() {}
}

#[test]
#[cfg_attr(not(root), ignore = "needs root")]
fn one_users_results_on_a_small_file_system_cost_nobody_a_record_nor_the_next_start() {
    const RESERVED: u64 = 3 << 20;
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    let _small = Mounted::on(&place.path("state"), "size=24m,mode=0700");
    place.open_to_group();
    let flags = ["--socket-group", "root"];
    let daemon = place.start(&flags);
    let mut client = daemon.legacy(LEGACY);
    let another_is_answered = || {
        let answered = place.stranger(&["call", "fix", "count"]).output().unwrap();
        assert!(answered.status.success(), "{answered:?}");
    };
    let mut last = String::new();
    for number in 0..80 {
        last = kept(&client.call("fix__huge", json!({ "bytes": 400_000 }))).0;
        assert!(free(&place) >= RESERVED, "{number}: {}", free(&place));
        if number % 10 == 0 {
            another_is_answered();
        }
    }
    assert!(files(&place).len() > 20, "what there is room for is kept");
    assert!(whole(&mut client, &last).len() > 400_000);
    // Files that are no result's take all that is left: those of results go, and no record is lost.
    let ballast = |number: usize| place.path("state").join(format!("ballast{number}"));
    let mut number = 0..;
    fill(|| ballast(number.next().unwrap()), &[b'x'; 65_536]);
    for _ in 0..20 {
        another_is_answered();
        assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
    }
    daemon.wait_for_log("its file system is full");
    assert!(free(&place) > 0);
    daemon.kill();
    for number in 0..number.next().unwrap() {
        fs::remove_file(ballast(number)).unwrap();
    }
    // As an earlier daemon left it, which reserved nothing.
    let one = fs::read(&files(&place)[0]).unwrap();
    let mut number = 0..;
    fill(
        || place.path(&format!("state/results/{:032x}", number.next().unwrap())),
        &one,
    );
    assert_eq!(free(&place), 0);
    let daemon = place.start(&flags);
    another_is_answered();
    assert!(free(&place) >= RESERVED, "{}", free(&place));
    kept(
        &daemon
            .legacy(LEGACY)
            .call("fix__huge", json!({ "bytes": 400_000 })),
    );
    daemon.stop();
    place.assert_trail_is_sound();
}

#[test]
fn a_directory_that_somebody_removed_is_made_again() {
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let (gone, _) = kept(&client.call("fix__huge", json!({ "bytes": 5000 })));
    fs::remove_dir_all(place.path("state/results")).unwrap();
    let (handle, _) = kept(&client.call("fix__huge", json!({ "bytes": 5000 })));
    whole(&mut client, &handle);
    let read = client.call("colibri_read_result", json!({ "handle": gone }));
    assert_eq!(code_of(&read), Some("NO_SUCH_RESULT"), "{read}");
    let mode = fs::metadata(place.path("state/results"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    daemon.stop();
}

#[test]
fn none_are_kept_where_the_limit_is_none() {
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    place.limits(json!({ "result_bytes_per_user": 0 }));
    let daemon = place.start(&[]);
    let refused = daemon
        .legacy(LEGACY)
        .call("fix__huge", json!({ "bytes": 5000 }));
    assert!(
        last_text_of(&refused).contains("The rest is not kept"),
        "{refused}"
    );
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
