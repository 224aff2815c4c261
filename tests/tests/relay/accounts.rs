//! Entries with several accounts: each a server of its own, and the one that policy says where the
//! entry alone is named.

use std::sync::{Arc, Mutex};

use colibri_tests::http::{meta, request};
use colibri_tests::remote::{Far, json_answer};
use colibri_tests::{Client, Daemon, Era, LEGACY, MODERN, Place, code_of, text_of};
use serde_json::{Value, json};

/// A place with the fixture as an entry `fix` of two accounts, each with a secret of its own.
fn place() -> Place {
    let place = Place::new();
    place.registry(&json!({ "fix": entry(&place) }));
    place.defines(
        "fix",
        "prompts",
        r#"[{"name":"review","description":"Review it."}]"#,
    );
    place
}

/// That entry.
fn entry(place: &Place) -> Value {
    let account = |name: &str| {
        place.secret(name, &format!("token-of-{name}"));
        json!({ "env": { "TOKEN": { "secret": name } } })
    };
    let accounts = json!({ "accounts": { "work": account("work"), "home": account("home") } });
    place.fixture("fix", &[], accounts)
}

/// The client policy in which the test's own user has this besides the gates.
fn policy(more: Value) -> String {
    let mut own = json!({ "gates": ["write", "external-call"] });
    for (key, value) in more.as_object().into_iter().flatten() {
        own[key] = value.clone();
    }
    json!({ "users": { nix::unistd::geteuid().to_string(): own } }).to_string()
}

/// The token that the process has which answers a tool called so.
fn token(client: &mut Client, server: &str) -> Value {
    let answer = client.call(&format!("{server}__environment"), json!({}));
    let environment: Value =
        serde_json::from_str(text_of(&answer)).unwrap_or_else(|_| panic!("{answer}"));
    environment["TOKEN"].clone()
}

fn prompts(client: &mut Client) -> Vec<String> {
    let answer = client.ask("prompts/list", json!({}));
    let prompts = answer["result"]["prompts"].as_array().unwrap().iter();
    prompts
        .map(|prompt| prompt["name"].as_str().unwrap().to_owned())
        .collect()
}

fn both(daemon: &Daemon<'_>) -> [Client; 2] {
    [daemon.legacy(LEGACY), daemon.modern()]
}

#[test]
fn each_account_is_a_server_with_secrets_and_processes_of_its_own() {
    let place = place();
    // Nor may another server's tool seem to be of the entry.
    let bare = place.fixture("bare", &[], json!({ "prefix": false }));
    let posing = r#"[{"name":"fix__environment","inputSchema":{"type":"object"}},{"name":"honest","inputSchema":{"type":"object"}}]"#;
    place.defines("bare", "definitions", posing);
    place.registry(&json!({ "fix": entry(&place), "bare": bare }));
    let daemon = place.start(&[]);
    for mut client in both(&daemon) {
        assert!(client.tools().contains(&"honest".to_owned()));
        for account in ["work", "home"] {
            let token = token(&mut client, &format!("fix-{account}"));
            assert_eq!(token, format!("token-of-{account}"));
        }
        let pids = ["fix-work__pid", "fix-home__pid"]
            .map(|tool| text_of(&client.call(tool, json!({}))).to_owned());
        assert_ne!(pids[0], pids[1]);
        let tools = client.tools();
        assert!(
            tools.contains(&"fix-work__echo".to_owned())
                && tools.contains(&"fix-home__echo".to_owned())
        );
        assert!(
            !tools.iter().any(|tool| tool.starts_with("fix__")),
            "{tools:?}"
        );
        assert_eq!(
            prompts(&mut client),
            ["fix-home__review", "fix-work__review"]
        );
        // By the entry's name alone none of them is meant.
        let named = json!({ "server": "fix", "tool": "environment" });
        for (tool, arguments) in [
            ("fix__environment", json!({})),
            ("colibri_external_mcp_call_tool", named),
            (
                "colibri_external_mcp_list_tools",
                json!({ "server": "fix" }),
            ),
            (
                "colibri_find_tools",
                json!({ "server": "fix", "query": "echo" }),
            ),
            (
                "colibri_call_tool",
                json!({ "tool": "fix__environment", "arguments": {} }),
            ),
        ] {
            let refused = client.call(tool, arguments);
            assert_eq!(
                code_of(&refused),
                Some("POLICY_DENIED"),
                "{tool}: {refused}"
            );
            let told = refused.to_string();
            let says = |text: &str| told.contains(text);
            assert!(
                says("fix-home, fix-work")
                    && says("clients.json")
                    && says(r#"{\"fix\": \"home\"}"#),
                "{tool}: {told}"
            );
        }
        let refused = client.ask("prompts/get", json!({ "name": "fix__review" }));
        assert!(
            refused["error"]["message"]
                .to_string()
                .contains("fix-home, fix-work"),
            "{refused}"
        );
    }
    for id in ["fix-work", "fix-home"] {
        assert_eq!(daemon.server(id)["state"], "ready");
    }
    let only = place.colibri_mcp(&["tools", "fix"]).output().unwrap();
    let said = String::from_utf8_lossy(&only.stderr).into_owned();
    assert!(
        !only.status.success() && said.contains("fix-home, fix-work"),
        "{said}"
    );
    assert!(!daemon.log().contains("token-of"), "{}", daemon.log());
}

#[test]
fn the_entrys_name_is_the_account_that_policy_says() {
    let place = place();
    let all = json!({ "fix-*": ["*"] });
    place.clients(&policy(
        json!({ "servers": all, "accounts": { "fix": "work" } }),
    ));
    let daemon = place.start(&[]);
    for mut client in both(&daemon) {
        // Before its server was ever seen, and then.
        for _ in 0..2 {
            assert_eq!(token(&mut client, "fix"), "token-of-work");
        }
        assert_eq!(token(&mut client, "fix-home"), "token-of-home");
        assert_eq!(token(&mut client, "fix-work"), "token-of-work");
        let tools = client.tools();
        let has = |name: &str| tools.iter().filter(|tool| *tool == name).count();
        assert_eq!(
            (
                has("fix__echo"),
                has("fix-work__echo"),
                has("fix-home__echo")
            ),
            (1, 0, 1)
        );
        assert_eq!(prompts(&mut client), ["fix-home__review", "fix__review"]);
        let found = client.call(
            "colibri_find_tools",
            json!({ "server": "fix", "query": "environment" }),
        );
        assert_eq!(
            found["structuredContent"]["tools"][0]["name"], "fix__environment",
            "{found}"
        );
        let called = json!({ "server": "fix", "tool": "environment", "arguments": {} });
        let answer = client.call("colibri_external_mcp_call_tool", called);
        assert!(text_of(&answer).contains("token-of-work"), "{answer}");
        let shown = client.call("colibri_tool_schema", json!({ "tool": "fix__environment" }));
        assert!(
            !shown["isError"].as_bool().unwrap_or_default()
                && shown.to_string().contains("fix__environment"),
            "{shown}"
        );
    }
    let only = place.colibri_mcp(&["tools", "fix"]).output().unwrap();
    assert!(only.status.success(), "{only:?}");
    assert!(
        String::from_utf8_lossy(&only.stdout).contains("echo"),
        "{only:?}"
    );

    // Another one from now on; and of what this user may not see nothing is said.
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    place.clients(&policy(
        json!({ "servers": { "fix-home": ["*"] }, "accounts": { "fix": "home" } }),
    ));
    daemon.reload();
    client.notification("notifications/tools/list_changed");
    assert_eq!(token(&mut client, "fix"), "token-of-home");
    let tools = client.tools();
    assert!(tools.contains(&"fix__echo".to_owned()), "{tools:?}");
    assert!(
        !tools.iter().any(|tool| tool.starts_with("fix-")),
        "{tools:?}"
    );
    let denied = client.call("fix-work__echo", json!({}));
    assert_eq!(code_of(&denied), Some("POLICY_DENIED"), "{denied}");

    // One that this user may not use, and one that there is not: never another in its place.
    for (account, why) in [
        ("work", "policy says fix-work, which"),
        ("wrok", "policy says fix-wrok, which"),
    ] {
        place.clients(&policy(
            json!({ "servers": { "fix-home": ["*"] }, "accounts": { "fix": account } }),
        ));
        daemon.reload();
        let denied = client.call("fix__echo", json!({}));
        assert_eq!(code_of(&denied), Some("POLICY_DENIED"), "{denied}");
        let told = denied.to_string();
        assert!(
            told.contains(why) && told.contains("accounts (fix-home), and"),
            "{told}"
        );
    }
    assert!(
        daemon
            .log()
            .contains("accounts.fix: the registry has no account fix-wrok"),
        "{}",
        daemon.log()
    );
    place.clients(&policy(json!({ "servers": { "other": ["*"] } })));
    daemon.reload();
    let answer = client.ask(
        "tools/call",
        json!({ "name": "fix__echo", "arguments": {} }),
    );
    assert!(!answer.to_string().contains("fix-"), "{answer}");
}

#[test]
fn who_wants_the_entry_alone_gets_the_account_that_policy_says() {
    let place = place();
    let all = json!({ "*": ["*"] });
    place.clients(&policy(json!({ "servers": all })));
    let daemon = place.start(&[]);
    let open = |only: &str| {
        let mut client = daemon.connect();
        client.era = Era::Modern;
        client.send(json!({ "colibri": 1, "only": only }).to_string());
        client
    };
    let refused = open("fix").ask("server/discover", json!({}));
    assert!(
        refused["error"]["message"]
            .to_string()
            .contains("fix-home, fix-work"),
        "{refused}"
    );
    let environment = |client: &mut Client| client.call("environment", json!({})).to_string();
    assert!(environment(&mut open("fix-home")).contains("token-of-home"));
    place.clients(&policy(
        json!({ "servers": all, "accounts": { "fix": "work" } }),
    ));
    daemon.reload();
    assert!(environment(&mut open("fix")).contains("token-of-work"));
    let mut http = daemon.http();
    let params = json!({ "name": "environment", "arguments": {}, "_meta": meta() });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let fields = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "environment"),
    ];
    let head = String::from_utf8(request("POST", &fields, &body)).unwrap();
    http.send(head.replacen("/mcp ", "/mcp/fix ", 1).as_bytes());
    let answer = http.response().json();
    assert!(answer.to_string().contains("token-of-work"), "{answer}");
}

#[test]
fn a_server_behind_a_url_gets_the_header_of_each_account() {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = heard.clone();
    let account = |name: &str| json!({ "headers": { "Authorization": { "secret": name } } });
    let accounts = json!({ "accounts": { "work": account("work"), "home": account("home") } });
    let far = Far::new(accounts, move |_, request, stream| {
        let field = request
            .field("authorization")
            .unwrap_or_default()
            .to_owned();
        hears.lock().unwrap().push(field.clone());
        json_answer(stream, &request.text(&field))
    });
    far.place.secret("work", "Bearer of-work");
    far.place.secret("home", "Bearer of-home");
    let daemon = far.place.start(&[]);
    let mut client = daemon.modern();
    for account in ["work", "home", "work"] {
        let answer = client.call(&format!("web-{account}__echo"), json!({}));
        assert_eq!(text_of(&answer), format!("Bearer of-{account}"), "{answer}");
    }
    let refused = client.call("web__echo", json!({}));
    assert_eq!(code_of(&refused), Some("POLICY_DENIED"), "{refused}");
    assert_eq!(far.calls(), 3);
    assert!(
        heard
            .lock()
            .unwrap()
            .iter()
            .all(|field| field.starts_with("Bearer of-"))
    );
}

#[test]
fn entries_whose_accounts_cannot_be_told_apart_are_refused() {
    let place = place();
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert_eq!(token(&mut client, "fix-work"), "token-of-work");
    let account = json!({ "work": { "env": { "A": "b" } } });
    let with = |more: Value| place.fixture("fix", &[], more);
    for (servers, wanted) in [
        (
            json!({ "fix": with(json!({ "accounts": {} })) }),
            "at least one account",
        ),
        (
            json!({ "fix": with(json!({ "accounts": account })), "fix-work": with(json!({})) }),
            "has the id fix-work",
        ),
        (
            json!({ "fix": with(json!({ "accounts": account, "prefix": false })) }),
            "does not go with accounts",
        ),
        (
            json!({ "fix": with(json!({ "accounts": account, "env": {} })) }),
            "stands beside accounts too",
        ),
        (
            json!({ "fix": with(json!({ "accounts": { "work": { "command": "/bin/x" } } })) }),
            "an account has no command of its own",
        ),
    ] {
        place.registry(&servers);
        daemon.reload();
        let log = daemon.log();
        assert!(
            log.contains(wanted) && log.contains("external-mcp.json:1:"),
            "{wanted}: {log}"
        );
    }
    // Nothing of them was taken over.
    assert_eq!(token(&mut client, "fix-work"), "token-of-work");
}
