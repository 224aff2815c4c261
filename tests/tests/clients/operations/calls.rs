//! Calls: cancellation, progress, batches, versions, limits, contracts, methods beyond MCP's.

use super::*;

#[test]
fn a_cancellation_reaches_the_server_and_nothing_is_answered() {
    for era in [Era::Legacy, Era::Modern] {
        let place = Place::of_fixture(&[], json!({}));
        let daemon = place.start(&[]);
        let mut client = if era == Era::Legacy {
            daemon.legacy(LEGACY)
        } else {
            daemon.modern()
        };
        let id = client.request_tool("fix__wait", json!({ "until": "cancelled" }));
        let call = wait_for("the call", || place.received("fix", "\"wait\"").pop());
        let upstream = &serde_json::from_str::<Value>(&call).unwrap()["id"];
        client.notify(
            "notifications/cancelled",
            json!({ "requestId": id, "reason": "changed my mind" }),
        );
        let told = wait_for("the cancellation", || {
            place.received("fix", "notifications/cancelled").pop()
        });
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(
            told["params"],
            json!({ "requestId": upstream, "reason": "changed my mind" })
        );
        place.release("cancelled");
        client.call("fix__pid", json!({}));
        assert!(
            client.others.iter().all(|message| message["id"] != id),
            "{:?}",
            client.others
        );
    }
}

#[test]
fn progress_comes_in_order_and_before_its_answer() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    for token in ["\"my token\"", "7", "9007199254740993"] {
        let mut client = daemon.quiet(LEGACY);
        client.send(format!(
            r#"{{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{{"_meta":{{"progressToken":{token}}},"name":"fix__progress","arguments":{{"n":500}}}}}}"#
        ));
        let token: Value = serde_json::from_str(token).unwrap();
        for n in 1..=500 {
            let progress = client.message();
            assert_eq!(progress["method"], "notifications/progress", "{progress}");
            assert_eq!(
                progress["params"],
                json!({ "progressToken": token, "progress": n })
            );
        }
        assert_eq!(client.message()["id"], 50);
    }
}

#[test]
fn batches_belong_to_2025_03_26() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet("2025-03-26");
    client.call("fix__pid", json!({}));
    client.send(concat!(
        r#"[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","method":"notifications/whatever"},"#,
        r#"{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"fix__count","arguments":{}}},"#,
        r#"{"jsonrpc":"2.0","id":"c","method":"no/such"},17]"#
    ));
    let answers = client.message();
    let mut ids: Vec<_> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["id"].to_string())
        .collect();
    ids.sort();
    assert_eq!(ids, ["\"a\"", "\"b\"", "\"c\"", "null"], "{answers}");
    // White space before it is JSON's.
    client.send(" \t\r[{\"jsonrpc\":\"2.0\",\"id\":\"d\",\"method\":\"ping\"}]");
    assert_eq!(
        client.message(),
        json!([{ "jsonrpc": "2.0", "id": "d", "result": {} }])
    );
    // A batch that wants no answer gets none.
    client.send(r#"[{"jsonrpc":"2.0","method":"notifications/whatever"}]"#);
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    assert!(client.others.is_empty(), "{:?}", client.others);
}

#[test]
fn versions_and_eras_are_kept_apart() {
    let place = Place::of_fixture(&[], json!({}));
    let daemon = place.start(&[]);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY] {
        let mut client = daemon.legacy(version);
        assert_eq!(text_of(&client.call("fix__count", json!({}))), "counted");
        assert_eq!(
            client.ask("server/discover", json!({}))["error"]["code"],
            -32601,
            "{version}"
        );
        assert_eq!(
            client.ask("initialize", json!({ "protocolVersion": version }))["error"]["code"],
            -32600
        );
    }
    let mut unknown = daemon.connect();
    let params = json!({ "protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": { "name": "e2e" } });
    assert_eq!(
        unknown.ask("initialize", params)["result"]["protocolVersion"],
        LEGACY
    );
    let mut modern = daemon.modern();
    assert_eq!(
        modern.call("fix__count", json!({}))["resultType"],
        "complete"
    );
    for method in ["initialize", "ping", "logging/setLevel"] {
        assert_eq!(
            modern.ask(method, json!({}))["error"]["code"],
            -32601,
            "{method}"
        );
    }
    let mut neither = daemon.connect();
    assert_eq!(
        neither.ask("tools/list", json!({}))["error"]["code"],
        -32602
    );
    let later = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2099-01-01" } });
    let refused = neither.ask("tools/list", later);
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    assert_eq!(refused["error"]["data"]["requested"], "2099-01-01");
}

#[test]
fn results_over_the_limit_are_replaced_whole() {
    let place = Place::of_fixture(&[], json!({ "result_limit": 1000 }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(
        text_of(&client.call("fix__huge", json!({ "bytes": 500 }))).len(),
        500
    );
    let part = client.call("fix__huge", json!({ "bytes": 5000 }));
    assert!(
        kept_of(&part).is_some() && part["isError"].is_null(),
        "{part}"
    );
    assert!(part.to_string().len() < 4096);
}

#[test]
fn an_entry_whose_contract_cannot_be_read_is_blocked() {
    let place = Place::new();
    let contract = place.path("contract.json");
    let write = |text: &str| {
        fs::write(&contract, text).unwrap();
        fs::set_permissions(&contract, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let good = r#"{ "tools": { "echo": { "allow": "it is harmless" } } }"#;
    write(good);
    let entry = place.fixture("fix", &[], json!({ "contract": contract }));
    place.registry(&json!({ "fix": entry }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(
        text_of(&client.call("fix__echo", json!({ "a": 1 }))),
        "{\"a\":1}"
    );
    let arrived = place.received("fix", "\"echo\"").len();
    for (what, why) in [
        ("missing", "cannot read"),
        ("open to all", "group or others"),
        ("garbage", "contract.json:1:"),
    ] {
        match what {
            "missing" => fs::remove_file(&contract).unwrap(),
            "garbage" => write("{ \"tools\": "),
            _ => {
                write(good);
                fs::set_permissions(&contract, fs::Permissions::from_mode(0o666)).unwrap();
            }
        }
        let (status, text) = place.refused(&["--check"]);
        assert_eq!(status, Some(0), "{text}");
        assert!(
            text.contains("would be blocked: its contract") && text.contains(why),
            "{text}"
        );
        daemon.reload();
        let servers = client.call("colibri_external_mcp_servers", json!({}));
        let fix = &servers["structuredContent"]["servers"][0];
        assert_eq!(fix["state"], "blocked", "{what}: {servers}");
        assert!(
            fix["reason"].as_str().unwrap().contains(why),
            "{what}: {servers}"
        );
        let result = client.call("fix__echo", json!({ "a": 1 }));
        assert_eq!(code_of(&result), Some("SERVER_UNSTARTABLE"), "{result}");
        assert!(
            text_of(&result).contains("its contract cannot be used"),
            "{result}"
        );
        assert_eq!(place.received("fix", "\"echo\"").len(), arrived);
    }
    write(good);
    daemon.reload();
    assert_eq!(
        text_of(&client.call("fix__echo", json!({ "a": 1 }))),
        "{\"a\":1}"
    );
}

#[test]
fn a_method_that_is_not_mcps_reaches_only_the_server_whose_entry_lists_it() {
    let listed = json!({ "methods": ["fixture/method", "fixture/unknown"] });
    let place = Place::new();
    place.registry(&json!({
        "legacy": place.fixture("legacy", &[], listed.clone()),
        "other": place.fixture("other", &[], listed),
    }));
    let daemon = place.start(&[]);
    for (mut client, complete) in [(daemon.legacy(LEGACY), false), (daemon.modern(), true)] {
        let answer = client.ask(
            "fixture/method",
            json!({ "value": [1, { "isError": "no" }] }),
        );
        assert_eq!(
            answer["result"]["value"],
            json!([1, { "isError": "no" }]),
            "{answer}"
        );
        assert_eq!(
            answer["result"]["resultType"] == "complete",
            complete,
            "{answer}"
        );
        let error = client.ask("fixture/unknown", json!({}));
        assert_eq!(error["error"]["message"], "no such method", "{error}");
        let unlisted = client.ask("fixture/other", json!({}));
        assert_eq!(unlisted["error"]["code"], -32601, "{unlisted}");
    }
    assert_eq!(place.received("legacy", "fixture/method").len(), 2);
    assert!(place.received("legacy", "fixture/other").is_empty());
    // The first by id has it, which is said.
    assert!(place.received("other", "fixture/method").is_empty());
    daemon.wait_for_log("method fixture/method of other: legacy lists it too");
    // It is in the trail as any other call, and succeeded.
    let shown = place
        .colibri_mcp(&[
            "trail",
            "show",
            "--json",
            "--server",
            "legacy",
            "--state-dir",
        ])
        .arg(place.path("state"))
        .output()
        .unwrap();
    let records = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(
        records.matches("\"method\":\"fixture/method\"").count(),
        2,
        "{records}"
    );
}

#[test]
fn a_method_without_params_reaches_a_modern_server_with_those_it_wants() {
    let place = Place::of_fixture(
        &["--speak", MODERN],
        json!({ "methods": ["fixture/method"] }),
    );
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.send("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"fixture/method\"}");
    let answer = client.message();
    assert_eq!(
        (&answer["id"], &answer["result"]["value"]),
        (&json!("x"), &Value::Null),
        "{answer}"
    );
    let sent = place.received("fix", "fixture/method");
    assert!(
        sent[0].contains("io.modelcontextprotocol/protocolVersion"),
        "{sent:?}"
    );
}

#[test]
fn a_method_beyond_mcps_is_behind_the_gate() {
    let place = Place::of_fixture(&[], json!({ "methods": ["fixture/method"] }));
    let daemon = place.start_plain(&[]);
    let answer = daemon.legacy(LEGACY).ask("fixture/method", json!({}));
    assert_eq!(code_of(&answer), Some("GATE_CLOSED"), "{answer}");
    assert!(place.started("fix").is_empty());
}
