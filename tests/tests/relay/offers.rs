//! What servers offer beyond tools: their lists, what is told when these change, subscriptions, log
//! messages.

use std::sync::atomic::{AtomicUsize, Ordering};

use colibri_tests::{Client, Daemon, Era, LEGACY, MODERN, Place, is_short, text_of, wait_for};
use serde_json::{Value, json};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
const UPDATED: &str = "notifications/resources/updated";

const PROMPTS: &str = r#"[{"name":"review","description":"Review it."},{"title":"no name"}]"#;
const RESOURCES: &str = r#"[{"uri":"file:///a","name":"a"},{"uri":"file:///b","name":"b","description":"B"},{"uri":"x"},{"uri":"file:///no!","name":"no"}]"#;
const TEMPLATES: &str =
    r#"[{"uriTemplate":"file:///{path}","name":"any"},{"uri":"file:///c","name":"none"}]"#;

/// A place with one fixture server `fix` that offers something of everything.
fn place(args: &[&str], more: Value) -> Place {
    let place = Place::of_fixture(args, more);
    offer(&place, "fix");
    place
}

fn offer(place: &Place, name: &str) {
    place.defines(name, "prompts", PROMPTS);
    place.defines(name, "resources", RESOURCES);
    place.defines(name, "templates", TEMPLATES);
}

/// The names, URIs or templates that a list gives.
fn listed(client: &mut Client, method: &str) -> Vec<String> {
    let answer = client.ask(method, json!({}));
    let (member, key) = match method {
        "prompts/list" => ("prompts", "name"),
        "resources/list" => ("resources", "uri"),
        _ => ("resourceTemplates", "uriTemplate"),
    };
    let list = answer["result"][member].as_array();
    let list = list.unwrap_or_else(|| panic!("no list of {member}: {answer}"));
    list.iter()
        .map(|entry| entry[key].as_str().unwrap().to_owned())
        .collect()
}

fn tell(client: &mut Client, method: &str, params: Value) {
    let arguments = json!({ "method": method, "params": params });
    assert_eq!(text_of(&client.call("fix__tell", arguments)), "told");
}

/// A modern client that listens for this, with the id of its subscription.
fn listener(daemon: &Daemon<'_>, filter: Value) -> (Client, u64, Value) {
    let mut client = daemon.modern();
    let id = client.request("subscriptions/listen", json!({ "notifications": filter }));
    let told = client.notification("notifications/subscriptions/acknowledged");
    assert_eq!(told["params"]["_meta"][ID], id, "{told}");
    (client, id, told["params"]["notifications"].clone())
}

/// What a client was told before now, without answers. What its servers wrote before an answer that
/// somebody has read is before it: lists that changed are read, and told of, later.
fn told_so_far(client: &mut Client) -> Vec<Value> {
    match client.era {
        Era::Modern => drop(client.ask("server/discover", json!({}))),
        Era::Legacy => drop(client.ask("ping", json!({}))),
    }
    client.others.drain(..).collect()
}

/// Changes a list of `fix`, `prompts`, `resources` or `templates`, and waits until this client is
/// told of it. Everybody is then told of what had changed before.
fn change(place: &Place, caller: &mut Client, list: &str) {
    static CHANGES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("new{}", CHANGES.fetch_add(1, Ordering::Relaxed));
    let (kind, entry) = match list {
        "templates" => (
            "resources",
            json!({ "name": name, "uriTemplate": format!("{name}:{{z}}") }),
        ),
        "resources" => (
            "resources",
            json!({ "name": name, "uri": format!("file:///{name}") }),
        ),
        _ => ("prompts", json!({ "name": name })),
    };
    place.defines("fix", list, &json!([entry]).to_string());
    tell(caller, &format!("{kind}/list_changed"), json!({}));
    caller.notification(&format!("notifications/{kind}/list_changed"));
}

/// Waits until a client was told of what its servers offer at first: the notification of a change
/// may be of that, and then its own comes before that of the next change of another list.
fn settle(place: &Place, caller: &mut Client) {
    for list in ["resources", "prompts", "resources"] {
        told_so_far(caller);
        change(place, caller, list);
    }
}

/// A call whose server asks its person something, and says something more with the call's answer.
struct Question {
    person: Client,
    call: u64,
    /// The id of the request to the person.
    request: Value,
}

impl Question {
    /// A call of `SERVER__ask_raw`, up to the request to the person.
    fn begin(place: &Place, daemon: &Daemon<'_>, server: &str, more: &Value) -> Question {
        let form =
            json!({ "message": "m", "requestedSchema": { "type": "object", "properties": {} } });
        let ask =
            json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form });
        place.frame("ask", ask.to_string().as_bytes());
        let answer = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":[]}}"#;
        place.frame("then", format!("{more}\n{answer}").as_bytes());
        let mut person = daemon.connect();
        person.open_with(LEGACY, json!({ "elicitation": {} }));
        let tool = format!("{server}__ask_raw");
        let call = person.request_tool(&tool, json!({ "case": "ask", "then": "then" }));
        let request = person.notification("elicitation/create")["id"].clone();
        Question {
            person,
            call,
            request,
        }
    }

    /// The person accepts.
    fn accept(mut self) -> Client {
        let result = json!({ "action": "accept", "content": {} });
        let reply = json!({ "jsonrpc": "2.0", "id": self.request, "result": result });
        self.person.send(reply.to_string());
        self.person
    }
}

/// How often a server's process was asked for a list.
fn times_read(place: &Place, server: &str, method: &str) -> usize {
    let lines = place.recorded(server, "line");
    let request = format!("\"{method}\"");
    lines.iter().filter(|line| line.contains(&request)).count()
}

fn methods(told: &[Value]) -> Vec<&str> {
    told.iter()
        .filter_map(|message| message["method"].as_str())
        .collect()
}

#[test]
fn every_list_of_a_server_is_read_and_remembered() {
    for version in [LEGACY, MODERN] {
        let place = place(&["--speak", version], json!({}));
        let check = |daemon: &Daemon<'_>| {
            for mut client in [daemon.legacy(LEGACY), daemon.modern()] {
                assert_eq!(listed(&mut client, "prompts/list"), ["fix__review"]);
                let resources = listed(&mut client, "resources/list");
                assert_eq!(
                    resources,
                    ["fix+file:///a", "fix+file:///b", "fix+file:///no!"]
                );
                let templates = listed(&mut client, "resources/templates/list");
                assert_eq!(templates, ["fix+file:///{path}"]);
            }
        };
        let daemon = place.start(&[]);
        check(&daemon);
        place.wait_for_state("file:///{path}\",");
        daemon.stop();
        let before = place.started("fix").len();
        let daemon = place.start(&[]);
        check(&daemon);
        assert_eq!(
            place.started("fix").len(),
            before,
            "a list started the server"
        );
    }
}

#[test]
fn a_server_without_templates_or_with_a_list_that_fails_keeps_the_rest() {
    let place = Place::of_fixture(&[], json!({}));
    // No templates: resources/templates/list is -32601. Its prompts are no list.
    place.defines("fix", "prompts", r#"{"not":"a list"}"#);
    place.defines("fix", "resources", RESOURCES);
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    assert!(client.tools().contains(&"fix__echo".to_owned()));
    assert_eq!(listed(&mut client, "resources/list").len(), 3);
    assert!(listed(&mut client, "resources/templates/list").is_empty());
    assert!(listed(&mut client, "prompts/list").is_empty());
    assert!(
        daemon
            .log()
            .contains("could not read the list of its prompts")
    );
    assert!(
        !daemon
            .log()
            .contains("could not read the list of its templates")
    );
}

#[test]
fn changes_are_told_of_exactly_the_lists_that_changed() {
    for version in [LEGACY, MODERN] {
        let place = place(&["--speak", version], json!({}));
        let daemon = place.start(&[]);
        let mut caller = daemon.legacy(LEGACY);
        listed(&mut caller, "prompts/list");
        settle(&place, &mut caller);
        let mut old = daemon.legacy("2024-11-05");
        let all = json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true });
        let (mut everything, id, honoured) = listener(&daemon, all.clone());
        assert_eq!(honoured, all);
        let (mut prompts, _, honoured) = listener(&daemon, json!({ "promptsListChanged": true }));
        assert_eq!(honoured, json!({ "promptsListChanged": true }));
        for list in ["resources", "templates", "prompts"] {
            change(&place, &mut caller, list);
        }
        // Said, but not so.
        let before = times_read(&place, "fix", "prompts/list");
        tell(&mut caller, "prompts/list_changed", json!({}));
        wait_for("another look", || {
            (times_read(&place, "fix", "prompts/list") > before).then_some(())
        });
        for list in ["resources", "prompts", "resources"] {
            change(&place, &mut caller, list);
        }
        let told = [&mut old, &mut everything, &mut prompts].map(told_so_far);
        // The last one may be on its way.
        assert_eq!(
            methods(&told[0])[..5],
            [
                RESOURCES_CHANGED,
                RESOURCES_CHANGED,
                PROMPTS_CHANGED,
                RESOURCES_CHANGED,
                PROMPTS_CHANGED
            ],
            "{version}"
        );
        assert_eq!(
            methods(&told[1])[..5],
            [
                RESOURCES_CHANGED,
                RESOURCES_CHANGED,
                PROMPTS_CHANGED,
                RESOURCES_CHANGED,
                PROMPTS_CHANGED
            ],
            "{version}"
        );
        assert_eq!(
            methods(&told[2]),
            [PROMPTS_CHANGED, PROMPTS_CHANGED],
            "{version}"
        );
        assert!(
            told[1].iter().all(|told| told["params"]["_meta"][ID] == id),
            "{told:?}"
        );
        place.defines("fix", "prompts", r#"[{"name":"third"}]"#);
        tell(&mut caller, "prompts/list_changed", json!({}));
        everything.notification(PROMPTS_CHANGED);
        assert_eq!(listed(&mut caller, "prompts/list"), ["fix__third"]);
    }
}

#[test]
fn nobody_is_told_of_changes_of_what_is_hidden_from_them() {
    let place = Place::new();
    place.registry(&json!({
        "fix": place.fixture("fix", &[], json!({})), "hidden": place.fixture("hidden", &[], json!({})) }));
    offer(&place, "fix");
    offer(&place, "hidden");
    let me = nix::unistd::geteuid().to_string();
    let rule = |servers: Value| json!({ "users": { &me: { "gates": ["write", "external-call"], "servers": servers } } });
    place.clients(&rule(json!({ "fix": ["*"], "hidden": ["*"] })).to_string());
    // With the answer to its question the hidden server says that its list has changed.
    let daemon = place.start(&[]);
    let question = Question::begin(
        &place,
        &daemon,
        "hidden",
        &json!({ "jsonrpc": "2.0", "method": PROMPTS_CHANGED }),
    );
    let mut caller = daemon.legacy(LEGACY);
    assert_eq!(listed(&mut caller, "prompts/list").len(), 2);
    // Hidden from now on, but its process is there.
    place.clients(&rule(json!({ "fix": ["*"] })).to_string());
    daemon.reload();
    settle(&place, &mut caller);
    let mut other = daemon.legacy(LEGACY);
    place.defines("hidden", "prompts", r#"[{"name":"secret"}]"#);
    let before = times_read(&place, "hidden", "prompts/list");
    let _person = question.accept();
    wait_for("another look", || {
        (times_read(&place, "hidden", "prompts/list") > before).then_some(())
    });
    for list in ["resources", "prompts", "resources"] {
        change(&place, &mut caller, list);
    }
    // The last one may be on its way.
    assert_eq!(
        methods(&told_so_far(&mut other))[..2],
        [RESOURCES_CHANGED, PROMPTS_CHANGED]
    );
}

#[test]
fn a_flood_of_changes_is_read_now_and_then_and_told_once() {
    for version in [LEGACY, MODERN] {
        let place = place(&["--speak", version], json!({}));
        let daemon = place.start(&[]);
        let mut caller = daemon.legacy(LEGACY);
        listed(&mut caller, "prompts/list");
        settle(&place, &mut caller);
        let mut other = daemon.legacy(LEGACY);
        place.defines("fix", "resources", r#"[{"uri":"file:///z","name":"z"}]"#);
        let before = times_read(&place, "fix", "resources/list");
        let arguments = json!({ "method": "resources/list_changed", "times": 20_000 });
        assert_eq!(text_of(&caller.call("fix__tell", arguments)), "told");
        caller.notification(RESOURCES_CHANGED);
        assert_eq!(listed(&mut other, "resources/list"), ["fix+file:///z"]);
        change(&place, &mut caller, "prompts");
        let times = times_read(&place, "fix", "resources/list") - before;
        assert!((1..20).contains(&times), "{version}: read {times} times");
        change(&place, &mut caller, "resources");
        // The last one may be on its way.
        assert_eq!(
            methods(&told_so_far(&mut other))[..2],
            [RESOURCES_CHANGED, PROMPTS_CHANGED],
            "{version}"
        );
    }
}

/// A client that is subscribed to a resource, with its subscription's id where it is modern.
fn subscribed(daemon: &Daemon<'_>, era: Era, uri: &str) -> (Client, Value) {
    match era {
        Era::Legacy => {
            let mut client = daemon.legacy(LEGACY);
            let answer = client.ask("resources/subscribe", json!({ "uri": uri }));
            assert_eq!(answer["result"], json!({}), "{answer}");
            (client, Value::Null)
        }
        Era::Modern => {
            let (client, id, honoured) =
                listener(daemon, json!({ "resourceSubscriptions": [uri] }));
            assert_eq!(honoured, json!({ "resourceSubscriptions": [uri] }));
            (client, json!(id))
        }
    }
}

/// How often the process of a server was asked to tell of a resource, and to tell of it no more.
fn asked_to_tell(place: &Place, uri: &str) -> (usize, usize) {
    let count = |kind: &str| {
        place
            .recorded("fix", kind)
            .iter()
            .filter(|line| **line == uri)
            .count()
    };
    (count("resources/subscribe"), count("resources/unsubscribe"))
}

/// Whether the newest filter that a modern server was given has a resource.
fn listens_for(place: &Place, uri: &str) -> bool {
    place
        .recorded("fix", "listen")
        .last()
        .is_some_and(|filter| filter.contains(uri))
}

#[test]
fn updates_go_to_exactly_those_who_are_subscribed() {
    for version in [LEGACY, MODERN] {
        let place = place(&["--speak", version], json!({}));
        let daemon = place.start(&[]);
        let mut caller = daemon.legacy(LEGACY);
        let both = [Era::Legacy, Era::Modern].map(|era| subscribed(&daemon, era, "fix+file:///a"));
        let [mut legacy, mut modern] = both;
        let (mut other, _) = subscribed(&daemon, Era::Legacy, "fix+file:///b");
        if version == LEGACY {
            assert_eq!(asked_to_tell(&place, "file:///a"), (1, 0));
        } else {
            assert!(listens_for(&place, "file:///a") && listens_for(&place, "file:///b"));
        }
        let update = |client: &mut Client, uri: &str| {
            tell(client, "resources/updated", json!({ "uri": uri, "x": 1 }))
        };
        for (own, shown) in [
            ("file:///a", "fix+file:///a"),
            ("file:///a/part", "fix+file:///a/part"),
        ] {
            update(&mut caller, own);
            for (client, id) in [&mut legacy, &mut modern] {
                let told = client.notification(UPDATED);
                assert_eq!(told["params"]["uri"], shown, "{told}");
                // In our own words where it came just before the subscription was open.
                let x = told["params"].get("x");
                assert!(x.is_none_or(|x| *x == 1), "{told}");
                assert_eq!(told["params"]["_meta"][ID], *id, "{told}");
            }
        }
        // Nobody is subscribed to these.
        for uri in ["file:///c", "file:///ab", "fix+file:///a", ""] {
            update(&mut caller, uri);
        }
        for client in [&mut caller, &mut legacy.0, &mut modern.0, &mut other] {
            let told = told_so_far(client);
            let told = told.iter().filter(|message| message["method"] == UPDATED);
            assert_eq!(told.count(), 0, "{version}");
        }
        // One leaves in its way, the other by going.
        let answer = legacy
            .0
            .ask("resources/unsubscribe", json!({ "uri": "fix+file:///a" }));
        assert_eq!(answer["result"], json!({}));
        update(&mut caller, "file:///a");
        assert_eq!(
            modern.0.notification(UPDATED)["params"]["_meta"][ID],
            modern.1
        );
        // Both were looked at before the next message of the server was read.
        tell(
            &mut caller,
            "resources/updated",
            json!({ "uri": "file:///nobody" }),
        );
        assert_eq!(methods(&told_so_far(&mut legacy.0)), Vec::<&str>::new());
        drop(modern);
        wait_for("the end of the subscription at the server", || {
            let is_over = match version {
                LEGACY => asked_to_tell(&place, "file:///a") == (1, 1),
                _ => !listens_for(&place, "file:///a") && listens_for(&place, "file:///b"),
            };
            is_over.then_some(())
        });
        update(&mut caller, "file:///b");
        assert_eq!(
            other.notification(UPDATED)["params"]["uri"],
            "fix+file:///b"
        );
    }
}

#[test]
fn what_a_server_cannot_tell_of_is_refused_with_a_reason() {
    for version in [LEGACY, MODERN] {
        let place = place(&["--speak", version], json!({}));
        place.registry(&json!({
            "fix": place.fixture("fix", &["--speak", version], json!({})),
            "tools": place.fixture("tools", &["--speak", version], json!({})),
            "each": place.fixture("each", &["--speak", version], json!({ "isolation": "call" })),
        }));
        offer(&place, "each");
        let daemon = place.start(&[]);
        let mut client = daemon.legacy(LEGACY);
        client.tools();
        for (uri, wanted) in [
            (
                "fix+file:///no!",
                if version == LEGACY {
                    "no such resource"
                } else {
                    "does not honour"
                },
            ),
            ("tools+file:///a", ""),
            ("each+file:///a", "isolation"),
            ("nobody+file:///a", ""),
            ("file:///a", ""),
        ] {
            let answer = client.ask("resources/subscribe", json!({ "uri": uri }));
            let message = answer["error"]["message"]
                .as_str()
                .unwrap_or_else(|| panic!("{uri}: {answer}"));
            assert!(message.contains(wanted), "{uri}: {message}");
        }
        let uris = [
            "fix+file:///no!",
            "fix+file:///a",
            "tools+x",
            "each+file:///a",
            "nobody+x",
            "x",
        ];
        let (_client, _, honoured) = listener(&daemon, json!({ "resourceSubscriptions": uris }));
        assert_eq!(
            honoured,
            json!({ "resourceSubscriptions": ["fix+file:///a"] }),
            "{version}"
        );
    }
}

#[test]
fn a_process_that_comes_after_another_is_subscribed_again() {
    for version in [LEGACY, MODERN] {
        let place = place(&["--speak", version], json!({ "idle_timeout_s": 1 }));
        place.add_brief();
        let daemon = place.start(&[]);
        let mut clients =
            [Era::Legacy, Era::Modern].map(|era| subscribed(&daemon, era, "fix+file:///a").0);
        // It is not idle while somebody is subscribed.
        daemon.outlast_brief();
        let before = place.started("fix").len();
        let mut caller = daemon.legacy(LEGACY);
        caller.call("fix__exit", json!({}));
        for client in &mut clients {
            let told = client.notification(UPDATED);
            assert_eq!(
                told["params"]["uri"], "fix+file:///a",
                "nobody knows what was missed"
            );
        }
        assert_eq!(place.started("fix").len(), before + 1, "{version}");
        tell(
            &mut caller,
            "resources/updated",
            json!({ "uri": "file:///a" }),
        );
        for client in &mut clients {
            client.notification(UPDATED);
        }
        // A changed entry has other processes.
        let entry = place.fixture("fix", &["--speak", version, "--tool", "more"], json!({}));
        place.registry(&json!({ "fix": entry }));
        daemon.reload();
        for client in &mut clients {
            client.notification(UPDATED);
        }
    }
}

#[test]
fn a_server_that_hangs_up_is_asked_again() {
    let place = place(&["--speak", MODERN], json!({}));
    let daemon = place.start(&[]);
    let (mut client, _) = subscribed(&daemon, Era::Legacy, "fix+file:///a");
    let before = place.recorded("fix", "listen").len();
    client.call("fix__hang_up", json!({}));
    wait_for("another subscription", || {
        (place.recorded("fix", "listen").len() > before).then_some(())
    });
    assert!(listens_for(&place, "file:///a"));
    tell(
        &mut client,
        "resources/updated",
        json!({ "uri": "file:///a" }),
    );
    let told = client.notification(UPDATED);
    assert_eq!(told["params"]["uri"], "fix+file:///a");
}

#[test]
fn a_flood_of_updates_costs_nobody_anything() {
    for version in [LEGACY, MODERN] {
        // The flood takes as long as it does.
        let place = place(&["--speak", version], json!({ "timeout_ms": 600_000 }));
        let daemon = place.start(&[]);
        let mut caller = daemon.legacy(LEGACY);
        settle(&place, &mut caller);
        let mut clients =
            [Era::Legacy, Era::Modern].map(|era| subscribed(&daemon, era, "fix+file:///a").0);
        for client in &mut clients {
            told_so_far(client);
        }
        let times = if is_short() { 5_000 } else { 50_000 };
        let flood = |client: &mut Client, uri: &str| {
            let arguments =
                json!({ "method": "resources/updated", "params": { "uri": uri }, "times": times });
            assert_eq!(text_of(&client.call("fix__tell", arguments)), "told");
        };
        flood(&mut caller, "file:///other");
        flood(&mut caller, &"file:///other/".repeat(500));
        for client in &mut clients {
            assert_eq!(told_so_far(client), [] as [Value; 0]);
        }
        flood(&mut caller, "file:///a");
        for client in &mut clients {
            client.notification(UPDATED);
            let told = 1 + told_so_far(client).len();
            assert!(told < 5_000, "{told}");
        }
        // What comes after is told again, in the server's words.
        for client in &mut clients {
            wait_for("an update that is passed on", || {
                tell(
                    &mut caller,
                    "resources/updated",
                    json!({ "uri": "file:///a", "x": 1 }),
                );
                let told = told_so_far(client);
                told.iter()
                    .any(|message| message["params"]["x"] == 1)
                    .then_some(())
            });
        }
    }
}

#[test]
fn the_end_of_a_subscription_counts_though_its_server_was_taken_away() {
    let place = place(&[], json!({}));
    let daemon = place.start(&[]);
    let (mut client, _) = subscribed(&daemon, Era::Legacy, "fix+file:///a");
    // A call keeps the process beyond the reload; with its answer it tells of an update.
    let update = json!({ "jsonrpc": "2.0", "method": UPDATED, "params": { "uri": "file:///a" } });
    let question = Question::begin(&place, &daemon, "fix", &update);
    place.registry(&json!({}));
    daemon.reload();
    let answer = client.ask("resources/unsubscribe", json!({ "uri": "fix+file:///a" }));
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
    let call = question.call;
    assert_eq!(
        question.accept().answer(call)["result"]["content"],
        json!([])
    );
    let told = told_so_far(&mut client);
    assert!(!methods(&told).contains(&UPDATED), "{told:?}");
}

/// What a client is told of log messages while it has one of this level written for it.
fn logged(client: &mut Client, level: &str, meta: Value) -> usize {
    let arguments =
        json!({ "method": "message", "params": { "level": level, "data": { "n": 1 }, "x": [1] } });
    let params = json!({ "name": "fix__tell", "arguments": arguments, "_meta": meta });
    let before = client.others.len();
    let id = client.request("tools/call", params);
    let answer = client.answer(id);
    assert_eq!(text_of(&answer["result"]), "told");
    // They come before the answer, as the server wrote them.
    let new: Vec<Value> = client.others.drain(before..).collect();
    let told = new
        .iter()
        .filter(|message| message["method"] == "notifications/message");
    for message in told.clone() {
        assert_eq!(
            message["params"],
            json!({ "level": level, "data": { "n": 1 }, "x": [1] })
        );
    }
    told.count()
}

#[test]
fn log_messages_go_to_those_whose_call_they_are_about_and_who_want_them() {
    const WANTED: &str = "io.modelcontextprotocol/logLevel";
    for version in [LEGACY, MODERN] {
        let place = place(&["--speak", version, "--logs"], json!({}));
        let daemon = place.start(&[]);
        let mut plain = daemon.legacy(LEGACY);
        plain.tools();
        // Who never said what it wants gets what the server sends.
        assert_eq!(logged(&mut plain, "debug", json!({})), 1);
        let mut grave = daemon.legacy("2024-11-05");
        let answer = grave.ask("logging/setLevel", json!({ "level": "warning" }));
        assert_eq!(answer["result"], json!({}), "{answer}");
        assert_eq!(
            grave.ask("logging/setLevel", json!({ "level": "loud" }))["error"]["code"],
            -32602
        );
        assert_eq!(logged(&mut grave, "info", json!({})), 0, "{version}");
        assert_eq!(logged(&mut grave, "warning", json!({})), 1, "{version}");
        assert_eq!(logged(&mut grave, "emergency", json!({})), 1, "{version}");
        let mut modern = daemon.modern();
        assert_eq!(
            modern.ask("logging/setLevel", json!({ "level": "info" }))["error"]["code"],
            -32601
        );
        assert_eq!(logged(&mut modern, "error", json!({})), 0, "{version}");
        assert_eq!(
            logged(&mut modern, "error", json!({ WANTED: "notice" })),
            1,
            "{version}"
        );
        assert_eq!(
            logged(&mut modern, "info", json!({ WANTED: "notice" })),
            0,
            "{version}"
        );
        // Nobody without a call there was told anything.
        for client in [&mut plain, &mut grave] {
            let told = told_so_far(client);
            assert!(
                !methods(&told).contains(&"notifications/message"),
                "{told:?}"
            );
        }
        if version == LEGACY {
            assert_eq!(
                place.recorded("fix", "level"),
                ["\"warning\"", "\"notice\""]
            );
            drop(modern);
            wait_for("the level of those who are left", || {
                (place.recorded("fix", "level").last()? == "\"warning\"").then_some(())
            });
        } else {
            let lines = place.recorded("fix", "line");
            let said = |level: &str| {
                lines
                    .iter()
                    .filter(|line| line.contains(&format!("logLevel\":\"{level}")))
                    .count()
            };
            assert_eq!((said("warning"), said("notice")), (3, 2));
        }
    }
}

#[test]
fn log_messages_of_no_call_go_to_those_who_said_that_they_want_them() {
    let place = place(&["--logs"], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    let (mut other, mut silent) = (daemon.legacy(LEGACY), daemon.legacy(LEGACY));
    client.ask("logging/setLevel", json!({ "level": "info" }));
    other.ask("logging/setLevel", json!({ "level": "error" }));
    for caller in [&mut other, &mut silent] {
        caller.call("fix__pid", json!({}));
    }
    let params = json!({ "level": "warning", "data": 1 });
    client.call("fix__tell_later", json!({ "params": params }));
    assert_eq!(
        client.notification("notifications/message")["params"],
        params
    );
    for caller in [&mut other, &mut silent] {
        assert!(!methods(&told_so_far(caller)).contains(&"notifications/message"));
    }
}

#[test]
fn a_log_message_does_not_overtake_the_answer_before_it() {
    let place = place(&["--logs"], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    client.ask("logging/setLevel", json!({ "level": "info" }));
    // Both are read at once.
    let answer = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"content":[]}}"#;
    let message =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    place.frame("both", format!("{answer}\n{message}").as_bytes());
    for _ in 0..20 {
        let call = client.request_tool("fix__frame", json!({ "case": "both" }));
        client.answer(call);
        let told: Vec<Value> = client.others.drain(..).collect();
        assert!(
            !methods(&told).contains(&"notifications/message"),
            "{told:?}"
        );
        client.notification("notifications/message");
    }
}

#[test]
fn log_messages_of_a_process_of_several_users_are_for_our_log_alone() {
    let place = place(&["--logs"], json!({ "isolation": "shared" }));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    assert_eq!(logged(&mut client, "emergency", json!({})), 0);
}

#[test]
fn a_flood_of_log_messages_is_cut_and_the_answer_comes() {
    let place = place(&["--logs"], json!({}));
    let daemon = place.start(&[]);
    let mut client = daemon.legacy(LEGACY);
    client.tools();
    let padding = "x".repeat(1000);
    let arguments = json!({ "method": "message", "params": { "level": "info", "data": padding }, "times": 100_000 });
    // It does not read meanwhile; another one is served as ever.
    let id = client.request_tool("fix__tell", arguments);
    let mut other = daemon.legacy(LEGACY);
    for _ in 0..20 {
        other.call("fix__pid", json!({}));
    }
    let answer = client.answer(id);
    assert_eq!(text_of(&answer["result"]), "told");
    assert!(client.others.len() > 100, "{}", client.others.len());
    assert_ne!(client.call("fix__pid", json!({}))["isError"], true);
}
