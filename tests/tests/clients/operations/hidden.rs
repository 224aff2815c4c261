//! What policy hides from a client stays hidden.

use super::*;

/// A place with the fixture servers `seen` and `hidden`, of which the user of this test may see the
/// first alone.
pub(super) fn place_with_a_hidden_server() -> Place {
    let place = Place::new();
    place.registry(&json!({
        "seen": place.fixture("seen", &[], json!({})), "hidden": place.fixture("hidden", &[], json!({})) }));
    let me = nix::unistd::geteuid().to_string();
    let rule = json!({ "users": { me: { "gates": ["write", "external-call"], "servers": { "seen": ["*"] } } } });
    place.clients(&rule.to_string());
    place
}

#[test]
fn nobody_starts_what_is_hidden_from_them() {
    let place = place_with_a_hidden_server();
    let try_all = |daemon: &Daemon<'_>| {
        let mut client = daemon.legacy(LEGACY);
        client.tools();
        client.ask(
            "tools/call",
            json!({ "name": "hidden__echo", "arguments": {} }),
        );
        client.ask("tools/call", json!({ "name": "nonsense", "arguments": {} }));
        let inner = json!({ "server": "hidden", "tool": "echo", "arguments": {} });
        client.call("colibri_external_mcp_call_tool", inner);
    };
    let list = |daemon: &Daemon<'_>| {
        daemon
            .legacy(LEGACY)
            .call("colibri_external_mcp_list_tools", json!({}))
    };
    // With a closed gate nothing is started at all, but to be listed.
    let daemon = place.start_plain(&[]);
    try_all(&daemon);
    assert!(place.started("seen").is_empty());
    list(&daemon);
    daemon.stop();
    let daemon = place.start(&[]);
    try_all(&daemon);
    list(&daemon);
    daemon.stop();
    assert!(!place.started("seen").is_empty());
    assert!(place.started("hidden").is_empty());
}

#[test]
fn nobody_is_told_the_instructions_of_what_is_hidden_from_them() {
    let place = place_with_a_hidden_server();
    let aside = place.path("aside.json");
    fs::rename(place.path("clients.json"), &aside).unwrap();
    let instructions = |daemon: &Daemon<'_>| {
        let client = json!({ "name": "e2e", "version": "1" });
        let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client });
        let legacy = daemon.connect().ask("initialize", params);
        let modern = daemon.modern().ask("server/discover", json!({}));
        [legacy, modern].map(|answer| {
            answer["result"]["instructions"]
                .as_str()
                .unwrap()
                .to_owned()
        })
    };
    let daemon = place.start(&[]);
    wait_for("both servers' tools", || {
        let tools = daemon.legacy(LEGACY).tools();
        ["seen__echo", "hidden__echo"]
            .iter()
            .all(|tool| tools.contains(&(*tool).to_owned()))
            .then_some(())
    });
    for text in instructions(&daemon) {
        assert!(
            text.contains("This is seen.") && text.contains("This is hidden."),
            "{text}"
        );
    }
    daemon.stop();
    fs::rename(&aside, place.path("clients.json")).unwrap();
    let daemon = place.start(&[]);
    for text in instructions(&daemon) {
        assert!(
            text.contains("This is seen.") && !text.contains("hidden"),
            "{text}"
        );
    }
}

#[test]
fn neither_status_nor_the_general_tool_tells_of_what_is_hidden() {
    let place = place_with_a_hidden_server();
    let clients = place.path("clients.json");
    let aside = place.path("aside.json");
    fs::rename(&clients, &aside).unwrap();
    place.registry(&json!({
        "seen": place.fixture("seen", &[], json!({})),
        "hidden": place.fixture("hidden", &["--only", "--tool", "colibri_status"], json!({ "prefix": false })),
        "hidden-too": place.fixture("hidden-too", &["--at-start", "exit"], json!({})),
    }));
    let shown = |client: &mut Client| client.call("colibri_status", json!({})).to_string();
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    wait_for("the collision", || {
        shown(&mut client)
            .contains("colibri_status of server hidden")
            .then_some(())
    });
    daemon.stop();
    fs::rename(&aside, &clients).unwrap();
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let status = shown(&mut client);
    assert!(!status.contains("hidden"), "{status}");
    let mut answer = |server: &str| {
        let call = json!({ "server": server, "tool": "echo", "arguments": {} });
        let params = json!({ "name": "colibri_external_mcp_call_tool", "arguments": call });
        let answer = client.ask("tools/call", params);
        answer["result"].to_string().replace(server, "SERVER")
    };
    assert_eq!(answer("hidden-too"), answer("no-such-one"));
    assert_eq!(answer("hidden"), answer("no-such-one"));
}
