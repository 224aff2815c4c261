//! What servers have beyond tools, through the built daemon: prompts, resources, templates and
//! completions, by names and URIs that lead back to their server, in every pair of eras.

use std::fs;

use colibri_tests::{
    Bridge, Client, Daemon, LEGACY, MODERN, Place, code_of, rule_of, text_of, wait_as_a_person,
    wait_for,
};
use serde_json::{Value, json};

/// What the server of this name was sent that contains `text`.
fn received(place: &Place, name: &str, text: &str) -> Vec<Value> {
    let record = fs::read_to_string(place.path(&format!("{name}.record"))).unwrap_or_default();
    let lines = record.lines().filter(|line| line.contains(text));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A server with some of everything.
fn everything() -> Value {
    json!({
        "capabilities": { "tools": {}, "prompts": {}, "resources": {}, "completions": {} },
        "tools/list": { "tools": [{ "name": "show", "inputSchema": { "type": "object" },
            "_meta": { "ui": { "resourceUri": "ui://show/page.html" }, "ui/resourceUri": "ui://show/page.html" } }] },
        "tools/call show": { "content": [
            { "type": "resource_link", "uri": "file:///a.txt", "name": "a" },
            { "type": "resource", "resource": { "uri": "ui://show/page.html", "text": "file:///a.txt" } } ],
            "_meta": { "ui": { "resourceUri": "ui://show/page.html" } } },
        "prompts/list": { "prompts": [
            { "name": "greet", "title": "Greet", "arguments": [{ "name": "who" }] },
            { "name": "strange name", "icons": [{ "src": "https://x/y" }] } ] },
        "prompts/get greet": { "messages": [
            { "role": "user", "content": { "type": "text", "text": "hello" } },
            { "role": "user", "content": { "type": "resource", "resource": { "uri": "file:///a.txt", "text": "x" } } },
            { "role": "user", "content": { "type": "resource_link", "uri": "ui://show/page.html", "name": "p" } } ] },
        "prompts/get strange name": { "messages": [] },
        "resources/list": { "resources": [
            { "uri": "file:///a.txt", "name": "a", "size": 5, "annotations": { "priority": 0.5 } },
            { "uri": "ui://show/page.html", "name": "page" } ] },
        "resources/templates/list": { "resourceTemplates": [{ "uriTemplate": "file:///{path}", "name": "files" }] },
        "resources/read file:///a.txt": { "contents": [{ "uri": "file:///a.txt", "text": "file:///a.txt" }] },
        "resources/read file:///b.txt": { "contents": [{ "uri": "file:///b.txt", "blob": "" }] },
        "resources/read ui://show/page.html": { "contents": [{ "uri": "ui://show/page.html", "text": "<p>" }] },
        "error resources/read file:///none": { "code": -32002, "message": "none", "data": { "uri": "file:///none" } },
        "completion/complete greet": { "completion": { "values": ["world"] } },
        "completion/complete file:///{path}": { "completion": { "values": ["a.txt"] } }
    })
}

fn clients(daemon: &Daemon<'_>) -> [(Client, &'static str); 3] {
    [
        (daemon.legacy("2025-06-18"), "2025-06-18"),
        (daemon.legacy(LEGACY), LEGACY),
        (daemon.modern(), MODERN),
    ]
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let entries = list.as_array().unwrap_or_else(|| panic!("{list}"));
    entries
        .iter()
        .map(|entry| entry[key].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn everything_that_a_server_has_is_had_through_the_daemon_in_every_pair_of_eras() {
    let place = Place::new();
    let mut says = everything();
    place.registry(&json!({
        "old": place.library("old", LEGACY, json!({}), &says),
        "new": place.library("new", MODERN, json!({}), &{
            for (key, result) in says.as_object_mut().unwrap() {
                if key.contains('/') && !key.starts_with("error ") {
                    result["resultType"] = json!("complete");
                }
            }
            says
        }),
    }));
    let daemon = place.start(&[]);
    for (mut client, version) in clients(&daemon) {
        let listed = client.ask("prompts/list", json!({}))["result"].take();
        assert_eq!(
            names(&listed["prompts"], "name"),
            [
                "new__greet",
                "new__strange_name_53efeed9",
                "old__greet",
                "old__strange_name_53efeed9"
            ],
            "{version}"
        );
        let strange = &listed["prompts"][3];
        assert_eq!(strange["title"], "strange name", "{strange}");
        assert_eq!(strange["_meta"]["org.colibri/name"], "strange name");
        assert_eq!(strange["icons"][0]["src"], "https://x/y");
        assert_eq!(listed["prompts"][0]["title"], "Greet");
        let listed = client.ask("resources/list", json!({}))["result"].take();
        assert_eq!(
            names(&listed["resources"], "uri"),
            [
                "new+file:///a.txt",
                "old+file:///a.txt",
                "ui://new/show/page.html",
                "ui://old/show/page.html"
            ]
        );
        assert_eq!(listed["resources"][0]["size"], 5);
        assert_eq!(listed["resources"][0]["_meta"]["org.colibri/server"], "new");
        if version == MODERN {
            assert_eq!(
                (&listed["ttlMs"], &listed["cacheScope"]),
                (&json!(0), &json!("private"))
            );
        } else {
            assert!(listed.get("ttlMs").is_none());
        }
        let listed = client.ask("resources/templates/list", json!({}))["result"].take();
        assert_eq!(
            names(&listed["resourceTemplates"], "uriTemplate"),
            ["new+file:///{path}", "old+file:///{path}"]
        );
        for server in ["old", "new"] {
            let text = format!("{server} {version}");
            // Listed, of a template, and a page of an app.
            for (own, uri) in [
                ("file:///a.txt", format!("{server}+file:///a.txt")),
                ("file:///b.txt", format!("{server}+file:///b.txt")),
                (
                    "ui://show/page.html",
                    format!("ui://{server}/show/page.html"),
                ),
            ] {
                let read = client.ask("resources/read", json!({ "uri": uri }));
                assert_eq!(
                    read["result"]["contents"][0]["uri"], uri,
                    "{text} {own} {read}"
                );
            }
            let missing = format!("{server}+file:///none");
            let missed = client.ask("resources/read", json!({ "uri": missing }));
            let code = if version == MODERN { -32602 } else { -32002 };
            assert_eq!(missed["error"]["code"], code, "{text} {missed}");
            assert_eq!(missed["error"]["data"]["uri"], missing);
            let got = client.ask(
                "prompts/get",
                json!({ "name": format!("{server}__greet"), "arguments": { "who": "you" } }),
            );
            let messages = &got["result"]["messages"];
            assert_eq!(
                messages[1]["content"]["resource"]["uri"],
                format!("{server}+file:///a.txt"),
                "{got}"
            );
            assert_eq!(
                messages[2]["content"]["uri"],
                format!("ui://{server}/show/page.html")
            );
            let strange = format!("{server}__strange_name_53efeed9");
            let got = client.ask("prompts/get", json!({ "name": strange }));
            assert_eq!(got["result"]["messages"], json!([]), "{text}");
            for (of, value) in [
                (
                    json!({ "type": "ref/prompt", "name": format!("{server}__greet") }),
                    "world",
                ),
                (
                    json!({ "type": "ref/resource", "uri": format!("{server}+file:///{{path}}") }),
                    "a.txt",
                ),
            ] {
                let asked = json!({ "ref": of, "argument": { "name": "who", "value": "w" } });
                let completed = client.ask("completion/complete", asked);
                assert_eq!(
                    completed["result"]["completion"]["values"][0], value,
                    "{text} {completed}"
                );
            }
            let called = client.call(&format!("{server}__show"), json!({}));
            assert_eq!(
                called["content"][0]["uri"],
                format!("{server}+file:///a.txt"),
                "{text}"
            );
            let embedded = &called["content"][1]["resource"];
            assert_eq!(embedded["uri"], format!("ui://{server}/show/page.html"));
            assert_eq!(embedded["text"], "file:///a.txt");
            let page = format!("ui://{server}/show/page.html");
            assert_eq!(called["_meta"]["ui"]["resourceUri"], page);
            let tools = client.ask("tools/list", json!({}));
            let tools = tools["result"]["tools"].as_array().unwrap().clone();
            let name = format!("{server}__show");
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            assert_eq!(tool["_meta"]["ui"]["resourceUri"], page);
            assert_eq!(tool["_meta"]["ui/resourceUri"], page);
        }
    }
    for server in ["old", "new"] {
        for (method, place_of, own) in [
            ("resources/read", "/params/uri", "ui://show/page.html"),
            ("prompts/get", "/params/name", "strange name"),
            ("completion/complete", "/params/ref/uri", "file:///{path}"),
            ("completion/complete", "/params/ref/name", "greet"),
        ] {
            let sent = received(&place, server, method);
            let named = sent
                .iter()
                .filter(|line| line.pointer(place_of) == Some(&json!(own)));
            assert_eq!(named.count(), 3, "{server} {method} {own}");
        }
    }
    let server = daemon.server("old");
    assert_eq!(
        (
            &server["tools"],
            &server["prompts"],
            &server["resources"],
            &server["templates"]
        ),
        (&json!(1), &json!(2), &json!(2), &json!(1)),
        "{server}"
    );
    daemon.stop();
    // Records say which method of which server, by the server's own name or URI.
    let trail = place.trail();
    let entered = |method: &str, own: &str, name: &str| {
        let found = trail.iter().filter(|record| {
            record["method"] == method && record["tool"] == own && record["name"] == name
        });
        found.filter(|record| record["server"] == "old").count()
    };
    assert_eq!(
        entered("resources/read", "file:///b.txt", "old+file:///b.txt"),
        3
    );
    assert_eq!(entered("prompts/get", "greet", "old__greet"), 3);
    assert_eq!(
        entered(
            "completion/complete",
            "file:///{path}",
            "old+file:///{path}"
        ),
        3
    );
    place.assert_trail_is_sound();
}

#[test]
fn what_nobody_has_is_refused_and_what_a_server_lacks_is_not_asked_of_it() {
    let place = Place::new();
    let plain = json!({ "capabilities": { "tools": {}, "prompts": {} }, "tools/list": { "tools": [] },
        "prompts/list": { "prompts": [{ "name": "greet" }] } });
    place.registry(&json!({ "plain": place.library("plain", LEGACY, json!({}), &plain) }));
    let daemon = place.start(&[]);
    for (mut client, version) in clients(&daemon) {
        let unknown = if version == MODERN { -32602 } else { -32002 };
        for (method, params, code) in [
            ("prompts/get", json!({ "name": "greet" }), -32602),
            ("prompts/get", json!({ "name": "plain__other" }), -32602),
            ("prompts/get", json!({ "name": 7 }), -32602),
            ("prompts/get", json!({}), -32602),
            (
                "prompts/get",
                json!({ "name": "plain__greet", "arguments": [] }),
                -32602,
            ),
            ("resources/read", json!({ "uri": "file:///a" }), unknown),
            (
                "resources/read",
                json!({ "uri": "nobody+file:///a" }),
                unknown,
            ),
            (
                "resources/read",
                json!({ "uri": "plain+file:///a" }),
                unknown,
            ),
            ("resources/read", json!({ "uri": "ui://plain/a" }), unknown),
            (
                "resources/read",
                json!({ "name": "plain+file:///a" }),
                -32602,
            ),
            ("completion/complete", json!({ "argument": {} }), -32602),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/tool", "name": "x" } }),
                -32602,
            ),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/prompt", "name": "x" } }),
                -32602,
            ),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/resource", "uri": "x" } }),
                unknown,
            ),
            (
                "completion/complete",
                json!({ "ref": { "type": "ref/prompt", "name": "plain__greet" } }),
                221,
            ),
        ] {
            let answer = client.ask(method, params.clone());
            assert_eq!(
                answer["error"]["code"], code,
                "{version} {method} {params}: {answer}"
            );
            if code == unknown && method == "resources/read" && code != -32602 {
                assert_eq!(answer["error"]["data"]["uri"], params["uri"]);
            }
        }
        let lacking = client.ask("resources/read", json!({ "uri": "plain+file:///a" }));
        let why = lacking["error"]["message"].as_str().unwrap().to_owned();
        assert!(why.contains("declares no resources"), "{why}");
        let twice = format!(
            r#"{{"jsonrpc":"2.0","id":"twice","method":"completion/complete","params":{{"ref":{{"type":"ref/prompt","name":"plain__greet","n\u0061me":"x"}},"_meta":{{{}}}}}}}"#,
            if version == MODERN {
                colibri_tests::modern_meta()
            } else {
                String::new()
            }
        );
        client.send(twice);
        let refused = client.message();
        assert!(
            refused["error"]["message"]
                .as_str()
                .unwrap()
                .contains("can be read as"),
            "{refused}"
        );
    }
    assert_eq!(
        received(&place, "plain", "resources/read"),
        Vec::<Value>::new()
    );
    assert_eq!(
        received(&place, "plain", "completion/complete"),
        Vec::<Value>::new()
    );
}

#[test]
fn servers_without_a_prefix_keep_their_names_and_uris_and_pass_for_no_other() {
    let place = Place::new();
    let mut bare = everything();
    bare["resources/list"] = json!({ "resources": [
        { "uri": "file:///a.txt", "name": "a" },
        { "uri": "fs+file:///a.txt", "name": "looks like another's" },
        { "uri": "UI://FS/page", "name": "looks like another's" } ] });
    bare["prompts/list"] = json!({ "prompts": [{ "name": "greet" }, { "name": "fs__greet" }] });
    bare["resources/read fs+file:///a.txt"] =
        json!({ "contents": [{ "uri": "x", "text": "evil" }] });
    let other = json!({ "capabilities": { "resources": {} }, "resources/list": { "resources": [
        { "uri": "file:///a.txt", "name": "taken" }, { "uri": "memo://b", "name": "b" } ] },
        "resources/read memo://b": { "contents": [{ "uri": "memo://b", "text": "b" }] },
        "resources/templates/list": { "resourceTemplates": [{ "uriTemplate": "memo://{x}/y", "name": "y" }] },
        "resources/read memo://1/y": { "contents": [{ "uri": "memo://1/y", "text": "y" }] } });
    place.registry(&json!({
        "bare": place.library("bare", LEGACY, json!({ "prefix": false }), &bare),
        "other": place.library("other", LEGACY, json!({ "prefix": false }), &other),
        "fs": place.library("fs", LEGACY, json!({}), &everything()),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let listed = client.ask("resources/list", json!({}));
    assert_eq!(
        names(&listed["result"]["resources"], "uri"),
        [
            "file:///a.txt",
            "fs+file:///a.txt",
            "memo://b",
            "ui://fs/show/page.html"
        ]
    );
    let prompts = client.ask("prompts/list", json!({}));
    assert_eq!(
        names(&prompts["result"]["prompts"], "name"),
        ["fs__greet", "fs__strange_name_53efeed9", "greet"]
    );
    let mut read = |uri: &str| client.ask("resources/read", json!({ "uri": uri }));
    assert_eq!(
        read("fs+file:///a.txt")["result"]["contents"][0]["uri"],
        "fs+file:///a.txt"
    );
    assert_eq!(
        read("file:///a.txt")["result"]["contents"][0]["uri"],
        "file:///a.txt"
    );
    // By the template that it could be of; and what could be anybody's is nobody's.
    assert_eq!(read("memo://1/y")["result"]["contents"][0]["text"], "y");
    let nobodys = read("memo://none");
    assert!(
        nobodys["error"]["message"]
            .as_str()
            .unwrap()
            .contains("several servers"),
        "{nobodys}"
    );
    let called = client.call("show", json!({}));
    assert_eq!(called["content"][0]["uri"], "file:///a.txt");
    let status = client.call("colibri_status", json!({}));
    let collisions = status["structuredContent"]["collisions"].to_string();
    for (what, whose) in [
        ("resource fs+file:///a.txt of server bare", "server fs"),
        ("resource UI://FS/page of server bare", "server fs"),
        ("resource file:///a.txt of server other", "server bare"),
        ("prompt fs__greet of server bare", "server fs"),
    ] {
        assert!(
            collisions.contains(what) && collisions.contains(whose),
            "{what}: {collisions}"
        );
    }
    assert_eq!(received(&place, "bare", "fs+file"), Vec::<Value>::new());
}

#[test]
fn a_rule_names_its_line_after_it_has_moved_too() {
    let place = Place::new();
    let rules = json!({ "tools": { "deny": ["count"] } });
    let registry = json!({ "servers": { "fix": place.fixture("fix", &[], rules) } });
    place.registry_text(&registry.to_string());
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    let mut refused = || {
        let refused = client.call("fix__count", json!({}));
        assert_eq!(code_of(&refused), Some("POLICY_DENIED"), "{refused}");
        let rule = rule_of(&refused).unwrap().to_owned();
        assert!(text_of(&refused).contains(&rule), "{refused}");
        (
            rule,
            text_of(&client.call("fix__pid", json!({}))).to_owned(),
        )
    };
    let file = place.path("external-mcp.json").display().to_string();
    let (rule, process) = refused();
    assert_eq!(rule, format!("{file}:1: servers.fix.tools.deny[0]"));
    place.registry_text(&format!("\n\n{registry}"));
    daemon.reload();
    // The server is the same, and nobody is told of another list.
    assert_eq!(
        refused(),
        (format!("{file}:3: servers.fix.tools.deny[0]"), process)
    );
    daemon.stop();
}

#[test]
fn policy_gates_and_an_entrys_rules_hold_for_prompts_and_resources() {
    let place = Place::new();
    let rules = json!({
        "prompts": { "deny": ["strange*"] },
        "resources": { "allow": ["file:///*", "ui://*"], "deny": ["*b.txt"] },
    });
    place.registry(&json!({
        "fs": place.library("fs", LEGACY, rules, &everything()),
        "hidden": place.library("hidden", LEGACY, json!({}), &everything()),
    }));
    place.clients(
        &json!({ "others": { "gates": ["external-call"], "servers": {
            "fs": { "tools": ["*"], "prompts": ["greet", "strange*"], "resources": ["file:///*"] } } },
            "users": { "0": { "gates": ["external-call"], "servers": {
            "fs": { "tools": ["*"], "prompts": ["greet", "strange*"], "resources": ["file:///*"] } } } } })
        .to_string(),
    );
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    let prompts = client.ask("prompts/list", json!({}));
    assert_eq!(
        names(&prompts["result"]["prompts"], "name"),
        ["fs__greet", "fs__strange_name_53efeed9"]
    );
    let resources = client.ask("resources/list", json!({}));
    assert_eq!(
        names(&resources["result"]["resources"], "uri"),
        ["fs+file:///a.txt"]
    );
    let mut code = |method: &str, params: Value| {
        let answer = client.ask(method, params);
        (
            code_of(&answer).map(str::to_owned),
            answer["error"]["data"]["rule"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    assert_eq!(
        code("resources/read", json!({ "uri": "fs+file:///a.txt" })).0,
        None
    );
    let (refused, rule) = code("resources/read", json!({ "uri": "fs+file:///b.txt" }));
    assert_eq!(refused.as_deref(), Some("POLICY_DENIED"));
    assert!(
        rule.ends_with("external-mcp.json:1: servers.fs.resources.deny[0]"),
        "{rule}"
    );
    let (refused, rule) = code("resources/read", json!({ "uri": "ui://fs/show/page.html" }));
    assert_eq!(refused.as_deref(), Some("POLICY_DENIED"));
    assert!(rule.contains("clients.json"), "{rule}");
    let (refused, rule) = code(
        "prompts/get",
        json!({ "name": "fs__strange_name_53efeed9" }),
    );
    assert_eq!(refused.as_deref(), Some("POLICY_DENIED"));
    assert!(
        rule.ends_with("external-mcp.json:1: servers.fs.prompts.deny[0]"),
        "{rule}"
    );
    // Of a hidden server nothing is said.
    let hidden = client.ask("resources/read", json!({ "uri": "hidden+file:///a.txt" }));
    assert_eq!(hidden["error"]["code"], -32002, "{hidden}");
    let hidden = client.ask("prompts/get", json!({ "name": "hidden__greet" }));
    assert!(
        code_of(&hidden) == Some("POLICY_DENIED") || hidden["error"]["code"] == -32602,
        "{hidden}"
    );
    daemon.stop();
    // With the gate closed nothing is listed, and who asks is told what to set.
    let daemon = place.start_plain(&[]);
    let mut client = daemon.legacy(LEGACY);
    for (method, member) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
        assert_eq!(client.ask(method, json!({}))["result"][member], json!([]));
    }
    let closed = client.ask("resources/read", json!({ "uri": "fs+file:///a.txt" }));
    assert_eq!(code_of(&closed), Some("GATE_CLOSED"), "{closed}");
}

#[test]
fn a_server_that_was_never_seen_is_started_for_its_prompts_and_resources() {
    for (method, params) in [
        ("prompts/get", json!({ "name": "fs__greet" })),
        ("resources/read", json!({ "uri": "fs+file:///a.txt" })),
        ("resources/read", json!({ "uri": "ui://fs/show/page.html" })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "fs__greet" } }),
        ),
        ("prompts/get", json!({ "name": "greet" })),
        ("resources/read", json!({ "uri": "file:///b.txt" })),
    ] {
        let place = Place::new();
        let prefix = params.to_string().contains("fs");
        let entry = place.library("fs", LEGACY, json!({ "prefix": prefix }), &everything());
        place.registry(&json!({ "fs": entry }));
        let daemon = place.start(&[]);
        let answer = daemon.legacy(LEGACY).ask(method, params.clone());
        assert!(answer["error"].is_null(), "{method} {params}: {answer}");
    }
}

#[test]
fn a_resource_that_needs_a_person_waits_for_one_and_a_contract_narrows_prompts() {
    let place = Place::new();
    let contract = json!({ "tools": {}, "prompts": { "greet": { "reason": "only people called bob",
        "when": { "properties": { "who": { "const": "bob" } } } } } });
    let path = place.path("contract.json");
    fs::write(&path, contract.to_string()).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let rules = json!({ "resources": { "confirm": ["file:///a*"] }, "contract": path });
    place.registry(&json!({ "fs": place.library("fs", LEGACY, rules, &everything()) }));
    let daemon = place.start(&[]);
    let mut client = daemon.quiet("2025-06-18");
    let id = client.request("resources/read", json!({ "uri": "fs+file:///a.txt" }));
    let mut operator = daemon.modern();
    let waiting = wait_for("the question", || {
        let waiting = operator.ask("colibri/approvals", json!({}));
        let first = waiting["result"]["approvals"][0].clone();
        first.is_object().then_some(first)
    });
    assert_eq!(
        (&waiting["server"], &waiting["tool"]),
        (&json!("fs"), &json!("file:///a.txt")),
        "{waiting}"
    );
    assert_eq!(
        received(&place, "fs", "resources/read"),
        Vec::<Value>::new()
    );
    let denied = operator.ask("colibri/deny", json!({ "id": waiting["id"] }));
    assert!(denied["error"].is_null(), "{denied}");
    let answer = client.answer(id);
    assert_eq!(code_of(&answer), Some("APPROVAL_DENIED"), "{answer}");
    let read = client.ask("resources/read", json!({ "uri": "fs+file:///b.txt" }));
    assert!(read["error"].is_null(), "{read}");
    let mut got = |who: &str| {
        let answer = client.ask(
            "prompts/get",
            json!({ "name": "fs__greet", "arguments": { "who": who } }),
        );
        code_of(&answer).map(str::to_owned)
    };
    assert_eq!(got("bob"), None);
    assert_eq!(got("eve").as_deref(), Some("CONTRACT_DENIED"));
}

#[test]
fn what_a_person_has_to_confirm_is_not_subscribed_to_by_the_way() {
    let place = Place::new();
    let rules = json!({ "resources": { "confirm": ["file:///a*"] } });
    let mut says = everything();
    says["capabilities"]["resources"]["subscribe"] = json!(true);
    for uri in ["file:///a.txt", "file:///b.txt"] {
        says[format!("resources/subscribe {uri}")] = json!({});
        says[format!("resources/unsubscribe {uri}")] = json!({});
    }
    place.registry(&json!({ "fs": place.library("fs", LEGACY, rules, &says) }));
    let daemon = place.start(&[]);
    let mut client = daemon.modern();
    let uris = ["fs+file:///a.txt", "fs+file:///b.txt"];
    // Before the server was ever seen, and after.
    for _ in 0..2 {
        let filter = json!({ "resourceSubscriptions": uris });
        client.request("subscriptions/listen", json!({ "notifications": filter }));
        let told = client.notification("notifications/subscriptions/acknowledged");
        assert_eq!(
            told["params"]["notifications"]["resourceSubscriptions"],
            json!([uris[1]]),
            "{told}"
        );
        client.tools();
    }
    assert!(
        received(&place, "fs", "resources/subscribe")
            .iter()
            .all(|of| of["params"]["uri"] == "file:///b.txt")
    );
    let mut legacy = daemon.quiet("2025-06-18");
    let id = legacy.request("resources/subscribe", json!({ "uri": uris[0] }));
    let mut operator = daemon.modern();
    let waiting = wait_for("the question", || {
        let waiting = operator.ask("colibri/approvals", json!({}));
        let first = waiting["result"]["approvals"][0].clone();
        first.is_object().then_some(first)
    });
    operator.ask("colibri/deny", json!({ "id": waiting["id"] }));
    assert_eq!(code_of(&legacy.answer(id)), Some("APPROVAL_DENIED"));
    // A person's yes to reading it is enough, once.
    let mut meta: Value =
        serde_json::from_str(&format!("{{{}}}", colibri_tests::modern_meta())).unwrap();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    let mut params = json!({ "uri": uris[0], "_meta": meta });
    let mut read = |params: &Value| {
        let id = client.next_id();
        client.send(
            json!({ "jsonrpc": "2.0", "id": id, "method": "resources/read", "params": params })
                .to_string(),
        );
        client.answer(id)
    };
    let asked = read(&params);
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({ "confirm": { "action": "accept" } });
    wait_as_a_person();
    let answer = read(&params);
    assert!(answer["result"]["contents"].is_array(), "{answer}");
}

#[test]
fn a_person_lists_reads_and_gets_them_by_commands() {
    let place = Place::new();
    let mut says = everything();
    says["resources/read file:///a.txt"]["contents"][0]["text"] = json!("first\u{1b}[2J\nsecond");
    place.registry(&json!({ "fs": place.library("fs", LEGACY, json!({}), &says) }));
    let daemon = place.start(&[]);
    let run = |args: &[&str]| {
        let output = place.colibri_mcp(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    for args in [&["resources"][..], &["resources", "list"]] {
        let (code, listed, _) = run(args);
        assert_eq!(code, Some(0));
        for uri in [
            "fs+file:///a.txt",
            "ui://fs/show/page.html",
            "fs+file:///{path}",
        ] {
            assert!(listed.contains(uri), "{listed}");
        }
    }
    let (code, read, _) = run(&["resources", "read", "fs+file:///a.txt"]);
    assert_eq!((code, &*read), (Some(0), "first\\u{1b}[2J\nsecond\n"));
    let (code, _, why) = run(&["resources", "read", "fs+file:///none"]);
    assert!(code == Some(65) && why.contains("none"), "{code:?} {why}");
    let (_, listed, _) = run(&["prompts"]);
    assert!(
        listed.contains("fs__greet") && listed.contains("[who]"),
        "{listed}"
    );
    let (code, got, _) = run(&["prompts", "get", "fs__greet", "who=you"]);
    assert_eq!(code, Some(0));
    assert!(
        got.contains("hello") && got.contains("fs+file:///a.txt"),
        "{got}"
    );
    let sent = received(&place, "fs", "prompts/get");
    assert_eq!(sent[0]["params"]["arguments"], json!({ "who": "you" }));
    let (_, raw, _) = run(&["--json", "resources", "list"]);
    let raw: Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(raw["resources"][0]["size"], 5, "{raw}");
    assert_eq!(
        names(&raw["resourceTemplates"], "uriTemplate"),
        ["fs+file:///{path}"]
    );
    drop(daemon);
}

/// What a client at the door of `fs` sees and does.
fn at_the_door_of_fs(mut ask: impl FnMut(&str, Value) -> Value) {
    let mut list = |method: &str, member: &str, key: &str| {
        names(&ask(method, json!({}))["result"][member], key)
    };
    assert_eq!(list("tools/list", "tools", "name"), ["show"]);
    assert_eq!(
        list("prompts/list", "prompts", "name"),
        ["greet", "strange name"]
    );
    assert_eq!(
        list("resources/list", "resources", "uri"),
        ["file:///a.txt", "ui://show/page.html"]
    );
    assert_eq!(
        list(
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate"
        ),
        ["file:///{path}"]
    );
    let listed = ask("tools/list", json!({}))["result"]["tools"][0].take();
    assert_eq!(listed["_meta"]["ui"]["resourceUri"], "ui://show/page.html");
    assert!(
        listed["_meta"].get("org.colibri/server").is_none(),
        "{listed}"
    );
    let called = ask("tools/call", json!({ "name": "show", "arguments": {} }));
    assert_eq!(called["result"]["content"][0]["uri"], "file:///a.txt");
    let read = ask("resources/read", json!({ "uri": "ui://show/page.html" }));
    assert_eq!(read["result"]["contents"][0]["uri"], "ui://show/page.html");
    let read = ask("resources/read", json!({ "uri": "file:///b.txt" }));
    assert_eq!(read["result"]["contents"][0]["uri"], "file:///b.txt");
    let got = ask("prompts/get", json!({ "name": "strange name" }));
    assert_eq!(got["result"]["messages"], json!([]));
    for name in ["fs__show", "other__show", "colibri_status", "only_other"] {
        let refused = ask("tools/call", json!({ "name": name, "arguments": {} }));
        assert_eq!(refused["error"]["code"], -32602, "{name}: {refused}");
    }
    let refused = ask("prompts/get", json!({ "name": "other__greet" }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let refused = ask("resources/read", json!({ "uri": "other+file:///a.txt" }));
    assert_ne!(refused["error"], Value::Null, "{refused}");
}

#[test]
fn a_door_of_one_server_shows_it_alone_under_its_own_names() {
    let place = Place::new();
    let mut other = everything();
    let more = json!({ "name": "only_other", "inputSchema": {} });
    other["tools/list"]["tools"]
        .as_array_mut()
        .unwrap()
        .push(more);
    place.registry(&json!({
        "fs": place.library("fs", LEGACY, json!({}), &everything()),
        "other": place.library("other", LEGACY, json!({}), &other),
    }));
    let daemon = place.start(&[]);
    // Others' lists, made before, are not the ones that are shown here.
    assert!(
        daemon
            .legacy(LEGACY)
            .tools()
            .contains(&"fs__show".to_owned())
    );
    let mut client = daemon.connect();
    client.send(r#"{"colibri":1,"narrow":[],"only":"fs"}"#);
    client.initialize(LEGACY);
    at_the_door_of_fs(|method, params| client.ask(method, params));
    let mut bridge = Bridge::start(place.colibri_mcp(&["--only", "fs"]));
    at_the_door_of_fs(|method, params| bridge.ask(method, params));
    assert_eq!(received(&place, "other", "tools/call"), Vec::<Value>::new());
}

#[test]
fn an_apps_page_calls_its_servers_own_tools_on_the_joint_door() {
    let place = Place::new();
    let mut other = everything();
    other["tools/list"] = json!({ "tools": [{ "name": "refresh", "inputSchema": {} }] });
    other["tools/call refresh"] = json!({ "content": [] });
    let mut third = other.clone();
    let more = json!({ "name": "show", "inputSchema": {} });
    third["tools/list"]["tools"]
        .as_array_mut()
        .unwrap()
        .push(more);
    place.registry(&json!({
        "fs": place.library("fs", LEGACY, json!({}), &everything()),
        "other": place.library("other", LEGACY, json!({}), &other),
    }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    let called = client.call("show", json!({}));
    assert_eq!(called["content"][0]["uri"], "fs+file:///a.txt");
    client.call("refresh", json!({}));
    assert_eq!(received(&place, "other", "tools/call").len(), 1);
    place.registry(&json!({
        "fs": place.library("fs", LEGACY, json!({}), &everything()),
        "third": place.library("third", LEGACY, json!({}), &third),
    }));
    daemon.reload();
    client.tools();
    let refused = client.ask("tools/call", json!({ "name": "show", "arguments": {} }));
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("several servers have a tool of that name"),
        "{why}"
    );
    assert_eq!(refused["error"]["code"], -32602);
}
