//! One server alone, under its own names; and the names by which an app's page calls its server's
//! tools.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use colibri_tests::{Bridge, Client, Daemon, MODERN, Place, modern_meta, text_of};
use serde_json::{Value, json};

/// Two fixtures, `a` and `b`; `a` has a tool `alone` that `b` does not have.
fn place() -> Place {
    let place = Place::new();
    place.registry(&json!({
        "a": place.fixture("a", &["--tool", "alone"], json!({})),
        "b": place.fixture("b", &[], json!({})),
    }));
    place
}

/// The rule for whoever runs the tests.
fn rule(place: &Place, rule: Value) {
    place.clients(&json!({ "users": { "root": rule }, "others": rule }).to_string());
}

fn seen(daemon: &Daemon<'_>) -> Client {
    let mut client = daemon.modern();
    // The list waits for servers that were never seen.
    client.tools();
    client
}

fn refusal(client: &mut Client, method: &str, params: Value) -> String {
    let answer = client.ask(method, params);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn an_own_name_is_taken_where_one_server_alone_has_it() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = seen(&daemon);
    assert_eq!(text_of(&client.call("alone", json!({}))), "this is alone");
    let refused = refusal(
        &mut client,
        "tools/call",
        json!({ "name": "pid", "arguments": {} }),
    );
    assert!(refused.contains("several servers"), "{refused}");
    let refused = refusal(
        &mut client,
        "tools/call",
        json!({ "name": "nowhere", "arguments": {} }),
    );
    assert!(refused.ends_with("\"nowhere\""), "{refused}");
}

#[test]
fn policy_hides_tools_from_own_names_too() {
    let place = place();
    rule(
        &place,
        json!({ "gates": ["external-call"], "servers": { "*": ["*"] }, "deny": { "a": ["alone"], "b": ["pid"] } }),
    );
    let daemon = place.start(&[]);
    let mut client = seen(&daemon);
    let refused = refusal(
        &mut client,
        "tools/call",
        json!({ "name": "alone", "arguments": {} }),
    );
    assert!(refused.ends_with("\"alone\""), "{refused}");
    // What one may not see does not make a name ambiguous.
    let pid = client.call("a__pid", json!({}));
    assert_eq!(text_of(&client.call("pid", json!({}))), text_of(&pid));
}

#[test]
fn a_client_that_wants_one_server_sees_it_alone() {
    let place = place();
    let daemon = place.start(&[]);
    let mut bridge = Bridge::start(place.colibri_mcp(&["--only", "a"]));
    let discovered = bridge.ask("server/discover", json!({}));
    assert_eq!(
        discovered["result"]["resultType"], "complete",
        "{discovered}"
    );
    let tools = bridge.tools();
    assert!(
        tools.contains(&"alone".to_owned()) && tools.contains(&"pid".to_owned()),
        "{tools:?}"
    );
    assert!(
        tools
            .iter()
            .all(|tool| !tool.contains("__") && !tool.starts_with("colibri_")),
        "{tools:?}"
    );
    let listed = bridge.ask("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"][0].get("_meta"), None, "{listed}");
    let told = bridge.ask("server/discover", json!({}));
    assert_eq!(told["result"]["instructions"], "This is a.", "{told}");
    // It is the same process that others of this user get.
    let mut other = seen(&daemon);
    assert_eq!(
        text_of(&bridge.call("pid", json!({}))),
        text_of(&other.call("a__pid", json!({})))
    );
    for name in [
        "a__pid",
        "b__pid",
        "colibri_status",
        "colibri_external_mcp_call_tool",
    ] {
        let refused = refusal(
            &mut bridge,
            "tools/call",
            json!({ "name": name, "arguments": {} }),
        );
        assert!(refused.contains("unknown tool"), "{refused}");
    }
    let refused = bridge.ask("colibri/reload", json!({}));
    assert!(refused["error"].is_object(), "{refused}");
    assert!(bridge.end().success());
}

/// What stands for two things among the names of all servers stands for one at its server's own
/// door.
#[test]
fn what_collides_among_all_is_had_at_its_servers_own_door() {
    let place = Place::new();
    let bare = |name, tools: &[&str]| {
        let tools = tools
            .iter()
            .flat_map(|tool| ["--tool", tool])
            .collect::<Vec<_>>();
        place.fixture(
            name,
            &[&["--only"], &tools[..]].concat(),
            json!({ "prefix": false }),
        )
    };
    place.registry(&json!({
        "a": bare("a", &["same", "of_a"]),
        "b": bare("b", &["same", "c__same", "colibri_status"]),
        "c": place.fixture("c", &["--only", "--tool", "same"], json!({})),
    }));
    let daemon = place.start(&[]);
    let mut all = seen(&daemon);
    let tools = all.tools();
    assert!(!tools.contains(&"b__same".to_owned()), "{tools:?}");
    assert_eq!(text_of(&all.call("same", json!({}))), "this is same");
    assert!(
        place.received("b", "\"same\"").is_empty(),
        "the name is a's"
    );
    let status = all.call("colibri_status", json!({}));
    assert!(status["structuredContent"].is_object(), "{status}");
    let told = status["structuredContent"].to_string();
    for blocked in [
        "same of server b",
        "c__same of server b",
        "colibri_status of server b",
    ] {
        assert!(told.contains(blocked), "{blocked}: {told}");
    }
    let mut bridge = Bridge::start(place.colibri_mcp(&["--only", "b"]));
    assert_eq!(bridge.tools(), ["c__same", "colibri_status", "same"]);
    for tool in ["same", "c__same", "colibri_status"] {
        assert_eq!(
            text_of(&bridge.call(tool, json!({}))),
            format!("this is {tool}")
        );
        assert_eq!(
            place.received("b", &format!("\"{tool}\"")).len(),
            1,
            "{tool}"
        );
    }
    assert!(bridge.end().success());
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let place = place();
    rule(
        &place,
        json!({ "gates": ["external-call"], "servers": { "a": ["*"] } }),
    );
    let daemon = place.start(&[]);
    for only in ["b", "c"] {
        let mut bridge = Bridge::start(place.colibri_mcp(&["--only", only]));
        let refused = refusal(&mut bridge, "server/discover", json!({}));
        assert!(
            refused.contains(&format!("no server \"{only}\"")),
            "{refused}"
        );
        assert!(bridge.tools().is_empty());
    }
    let mut legacy = daemon.connect();
    legacy.send(r#"{"colibri":1,"narrow":[],"only":7}"#);
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "e", "version": "1" } });
    let refused = refusal(&mut legacy, "initialize", params);
    assert!(refused.contains("no server \"\""), "{refused}");
}

/// The answer to a modern request over HTTP, on a connection of its own: status line and body.
fn posted(place: &Place, path: &str, method: &str, params: &str) -> (String, Value) {
    let meta = format!("\"_meta\":{{{}}}", modern_meta());
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{meta}{params}}}}}"#);
    let name = if method == "tools/call" {
        "Mcp-Name: pid\r\n"
    } else {
        ""
    };
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{name}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap().to_owned();
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn one_server_alone_is_to_be_had_over_http_too() {
    let place = place();
    let daemon = place.start(&[]);
    let mut joint = seen(&daemon);
    let (_, listed) = posted(&place, "/mcp/a", "tools/list", "");
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "alone"), "{listed}");
    assert!(
        tools
            .iter()
            .all(|tool| !tool["name"].as_str().unwrap().contains("__")),
        "{listed}"
    );
    let (_, called) = posted(
        &place,
        "/mcp/a",
        "tools/call",
        r#","name":"pid","arguments":{}"#,
    );
    assert_eq!(
        text_of(&called["result"]),
        text_of(&joint.call("a__pid", json!({}))),
        "{called}"
    );
    let (_, refused) = posted(&place, "/mcp/c", "server/discover", "");
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let (status, _) = posted(&place, "/mcp/", "server/discover", "");
    assert!(status.contains("404"), "{status}");
}
