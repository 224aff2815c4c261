//! Skills: of servers behind their prefix, of Colibri itself, pinned by their digests; in both
//! eras.

use std::fs;
use std::process::Stdio;

use colibri_protocol::extensions::{EXPERIMENTAL, EXTENSIONS};
use colibri_tests::{Client, Daemon, LEGACY, MODERN, Place, text_of, wait_for};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const MAIN: &str = "skill://acme/pdf/SKILL.md";
const FORMS: &str = "skill://acme/pdf/references/FORMS.md";
const FRONT: &str = "---\nname: pdf\ndescription: Fills forms\nmetadata:\n  version: \"1\"\n---\nSee references/FORMS.md.\n";
const FORM: &str = "A form has fields.\n";

fn file(uri: &str, text: &str) -> Value {
    let digest: String = Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    json!({ "uri": uri, "digest": format!("sha256:{digest}"), "size": text.len() })
}

fn entry(form: &str) -> Value {
    json!({
        "uri": MAIN,
        "frontmatter": { "name": "pdf", "description": "Fills forms", "metadata": { "version": "1" } },
        "resources": [file(MAIN, FRONT), file(FORMS, form)],
    })
}

/// A place whose server `fix` of a version has one skill.
fn place(speak: &str, more: Value) -> Place {
    let place = Place::of_fixture(&["--speak", speak], more);
    place.defines("fix", "skills", &json!([entry(FORM)]).to_string());
    files(&place, FRONT, FORM);
    place
}

fn files(place: &Place, front: &str, form: &str) {
    place.defines(
        "fix",
        "files",
        &json!({ MAIN: front, FORMS: form }).to_string(),
    );
}

/// A client of an era that has waited for the servers.
fn client(daemon: &Daemon<'_>, era: &str) -> Client {
    let mut client = match era {
        MODERN => daemon.modern(),
        _ => daemon.legacy(era),
    };
    client.tools();
    client
}

fn skills(client: &mut Client) -> Vec<Value> {
    let answer = client.ask("skills/list", json!({}));
    answer["result"]["skills"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"))
        .clone()
}

fn read(client: &mut Client, uri: &str) -> Value {
    client.ask("resources/read", json!({ "uri": uri }))
}

/// The exit status of `colibri-mcp` and all that it wrote.
fn colibri(place: &Place, args: &[&str]) -> (Option<i32>, String) {
    let output = place
        .colibri_mcp(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_servers_skills_are_listed_got_and_read_in_both_eras() {
    for speak in [LEGACY, MODERN] {
        let place = place(speak, json!({}));
        let daemon = place.start(&[]);
        for era in [LEGACY, MODERN] {
            let mut client = client(&daemon, era);
            let listed = skills(&mut client);
            let main = "skill://fix/acme/pdf/SKILL.md";
            let [skill] = &listed[..] else {
                panic!("{listed:?}")
            };
            assert_eq!(skill["uri"], main);
            assert_eq!(skill["frontmatter"], entry(FORM)["frontmatter"]);
            let forms = "skill://fix/acme/pdf/references/FORMS.md";
            assert_eq!(
                skill["resources"],
                json!([file(main, FRONT), file(forms, FORM)])
            );
            let got = client.ask("skills/get", json!({ "uri": main }));
            assert_eq!(got["result"]["skill"], *skill, "{got}");
            let modern = (era == MODERN).then_some("complete");
            assert_eq!(got["result"]["resultType"].as_str(), modern, "{got}");
            assert_eq!(
                got["result"]["cacheScope"].as_str(),
                modern.map(|_| "private"),
                "{got}"
            );
            assert_eq!(
                read(&mut client, main)["result"]["contents"][0]["text"],
                FRONT
            );
            assert_eq!(
                read(&mut client, forms)["result"]["contents"][0]["uri"],
                forms
            );
            for (directory, children) in [
                ("skill://fix/acme", json!(["pdf"])),
                ("skill://fix/acme/pdf", json!(["SKILL.md", "references"])),
                ("skill://fix/acme/pdf/references", json!(["FORMS.md"])),
            ] {
                let answer = client.ask("resources/directory/read", json!({ "uri": directory }));
                let found = answer["result"]["resources"].as_array().unwrap().iter();
                let found: Vec<_> = found.map(|child| child["name"].clone()).collect();
                assert_eq!(json!(found), children, "{directory}: {answer}");
            }
            // Nothing of the sort is there: the same code in both eras.
            for (method, uri) in [
                ("skills/get", "skill://fix/acme/word/SKILL.md"),
                ("skills/get", "skill://nobody/pdf/SKILL.md"),
                ("skills/get", "skill://colibri/pdf/SKILL.md"),
                ("skills/get", "../../etc/passwd"),
                ("resources/directory/read", main),
                ("resources/directory/read", "skill://fix/acm"),
            ] {
                let answer = client.ask(method, json!({ "uri": uri }));
                assert_eq!(answer["error"]["code"], -32602, "{method} {uri}: {answer}");
            }
            for params in [json!({}), json!({ "uri": 7 })] {
                assert_eq!(client.ask("skills/get", params)["error"]["code"], -32602);
            }
        }
        // A client that sees the server alone knows its skills by its own URIs.
        let mut alone = daemon.connect();
        alone.send(r#"{"colibri":1,"narrow":[],"only":"fix"}"#);
        alone.initialize(LEGACY);
        assert_eq!(skills(&mut alone), [entry(FORM)]);
        assert_eq!(
            alone.ask("skills/get", json!({ "uri": MAIN }))["result"]["skill"],
            entry(FORM)
        );
        assert_eq!(
            read(&mut alone, FORMS)["result"]["contents"][0]["text"],
            FORM
        );
    }
}

#[test]
fn what_is_read_of_a_skill_is_what_its_entry_says() {
    let place = place(MODERN, json!({}));
    let daemon = place.start(&[]);
    let mut client = client(&daemon, MODERN);
    let (main, forms) = (
        "skill://fix/acme/pdf/SKILL.md",
        "skill://fix/acme/pdf/references/FORMS.md",
    );
    let refused = |client: &mut Client, uri: &str, why: &str| {
        let answer = read(client, uri).to_string();
        assert!(
            answer.contains("PIN_CHANGED") || answer.contains(why),
            "{uri}: {answer}"
        );
        assert!(answer.contains(why), "{uri}: {answer}");
        assert!(!answer.contains("evil"), "{answer}");
    };
    files(&place, &FRONT.replace("See", "evi"), "A form evil field\n");
    refused(&mut client, main, "its SHA-256 is another");
    refused(&mut client, forms, "bytes, not");
    files(&place, FRONT, FORM);
    assert_eq!(
        read(&mut client, main)["result"]["contents"][0]["text"],
        FRONT
    );
    // A file that the entry does not list is none of the skill.
    place.defines(
        "fix",
        "files",
        &json!({ "skill://acme/pdf/more.md": "evil" }).to_string(),
    );
    refused(
        &mut client,
        "skill://fix/acme/pdf/more.md",
        "not among the files",
    );
    // The digest fits, the front matter does not.
    let other = FRONT.replace("Fills forms", "evil");
    let mut lies = entry(FORM);
    lies["resources"][0] = file(MAIN, &other);
    lies["uri"] = json!("skill://acme/pdf/SKILL.md");
    place.defines("fix", "skills", &json!([]).to_string());
    let liar = self::place(MODERN, json!({}));
    liar.defines("fix", "skills", &json!([lies]).to_string());
    files(&liar, &other, FORM);
    let daemon = liar.start(&[]);
    refused(&mut self::client(&daemon, MODERN), main, "front matter");
    // What a server lists and no client could take is left out, and said.
    let mut wrong = entry(FORM);
    wrong["resources"] = json!([file("skill://other/SKILL.md", "x")]);
    liar.defines("fix", "skills", &json!([wrong, { "uri": "x" }]).to_string());
    let mut legacy = self::client(&daemon, LEGACY);
    legacy.call("fix__tell", json!({ "method": "resources/list_changed" }));
    wait_for("the list without it", || {
        skills(&mut legacy).is_empty().then_some(())
    });
    let reason = daemon.server("fix")["reason"].to_string();
    assert!(reason.contains("not in its directory"), "{reason}");
}

#[test]
fn a_skill_that_is_not_listed_is_pinned_when_it_is_got() {
    let place = place(MODERN, json!({}));
    place.defines("fix", "skills", "[]");
    place.defines("fix", "unlisted", &json!([entry(FORM)]).to_string());
    let daemon = place.start(&[]);
    let mut client = client(&daemon, MODERN);
    let main = json!({ "uri": "skill://fix/acme/pdf/SKILL.md" });
    assert!(skills(&mut client).is_empty());
    let got = client.ask("skills/get", main.clone());
    assert_eq!(
        got["result"]["skill"]["frontmatter"]["name"], "pdf",
        "{got}"
    );
    assert_eq!(
        client.ask("resources/read", main.clone())["result"]["contents"][0]["text"],
        FRONT
    );
    // Another entry of that URI is a change, though nothing was told of it.
    place.defines("fix", "unlisted", &json!([entry("evil\n")]).to_string());
    let held = client.ask("skills/get", main.clone()).to_string();
    assert!(
        held.contains("blocked") && held.contains("pin diff fix"),
        "{held}"
    );
    let held = client.ask("resources/read", main.clone()).to_string();
    assert!(held.contains("blocked"), "{held}");
    let (status, text) = colibri(&place, &["--json", "pin", "diff", "fix", "--skill", MAIN]);
    assert_eq!(status, Some(0), "{text}");
    let diff: Value = serde_json::from_str(&text).unwrap();
    assert!(
        diff["diffs"][0]["diff"]
            .as_str()
            .unwrap()
            .contains("/resources/1/digest"),
        "{diff}"
    );
    let hash = diff["diffs"][0]["waiting"].as_str().unwrap();
    let (status, text) = colibri(
        &place,
        &["pin", "accept", "fix", "--skill", MAIN, "--sha256", hash],
    );
    assert_eq!(status, Some(0), "{text}");
    files(&place, FRONT, "evil\n");
    assert!(client.ask("skills/get", main)["result"]["skill"].is_object());
}

#[test]
fn a_thousand_changed_digests_are_held() {
    const MANY: usize = 1_000;
    let uri = |at: usize| format!("skill://s{at:03}/SKILL.md");
    let entries = |text: &str| {
        let one = |at: usize| {
            json!({
                "uri": uri(at),
                "frontmatter": { "name": format!("s{at:03}"), "description": "Does it" },
                "resources": [file(&uri(at), &format!("{text}{at}"))],
            })
        };
        Value::from_iter((0..MANY).map(one)).to_string()
    };
    let place = place(LEGACY, json!({}));
    place.defines("fix", "skills", &entries("good"));
    let daemon = place.start(&[]);
    let mut client = client(&daemon, LEGACY);
    assert_eq!(skills(&mut client).len(), MANY);
    place.defines("fix", "skills", &entries("evil"));
    client.call("fix__tell", json!({ "method": "resources/list_changed" }));
    wait_for("the changed skills to be held", || {
        skills(&mut client).is_empty().then_some(())
    });
    let mut held = 0;
    for at in 0..MANY {
        let exposed = json!({ "uri": uri(at).replace("//", "//fix/") });
        let answer = client.ask("skills/get", exposed.clone()).to_string();
        let content = client.ask("resources/read", exposed).to_string();
        held += usize::from(answer.contains("blocked") && content.contains("blocked"));
    }
    assert_eq!(held, MANY);
    assert_eq!(
        place.received("fix", "resources/read"),
        Vec::<String>::new()
    );
    assert_eq!(daemon.server("fix")["others_blocked"], MANY);
    println!("{held} of {MANY} skills with changed digests were held");
}

#[test]
fn colibris_own_skills_are_offered_by_the_same_methods() {
    let place = place(MODERN, json!({}));
    let root = place.path("skills");
    fs::create_dir_all(root.join("notes/images")).unwrap();
    let text = "---\nname: notes\ndescription: Writes notes\nlicense: MIT\n---\nText.\n";
    fs::write(root.join("notes/SKILL.md"), text).unwrap();
    fs::write(root.join("notes/images/a.png"), [0x89, 0xff]).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("notes/passwd")).unwrap();
    let daemon = place.start(&["--skills", root.to_str().unwrap()]);
    for era in [LEGACY, MODERN] {
        let mut client = client(&daemon, era);
        let main = "skill://colibri/notes/SKILL.md";
        let listed = skills(&mut client);
        let uris: Vec<_> = listed
            .iter()
            .map(|skill| skill["uri"].as_str().unwrap())
            .collect();
        assert_eq!(uris, [main, "skill://fix/acme/pdf/SKILL.md"]);
        assert_eq!(listed[0]["frontmatter"]["license"], "MIT");
        assert_eq!(listed[0]["resources"][0], file(main, text));
        assert_eq!(
            client.ask("skills/get", json!({ "uri": main }))["result"]["skill"],
            listed[0]
        );
        assert_eq!(
            read(&mut client, main)["result"]["contents"][0]["text"],
            text
        );
        let image = read(&mut client, "skill://colibri/notes/images/a.png");
        assert_eq!(image["result"]["contents"][0]["blob"], "if8=", "{image}");
        let directory = client.ask(
            "resources/directory/read",
            json!({ "uri": "skill://colibri/notes" }),
        );
        assert_eq!(
            directory["result"]["resources"][1]["mimeType"], "inode/directory",
            "{directory}"
        );
        let resources = client.ask("resources/list", json!({}));
        assert_eq!(
            resources["result"]["resources"][0]["description"], "Writes notes",
            "{resources}"
        );
        for uri in [
            "skill://colibri/notes/passwd",
            "skill://colibri/notes/../notes/SKILL.md",
            "skill://colibri/",
        ] {
            assert!(read(&mut client, uri)["error"].is_object(), "{uri}");
        }
    }
    // Who sees one server alone has none of them.
    let mut alone = daemon.connect();
    alone.send(r#"{"colibri":1,"narrow":[],"only":"fix"}"#);
    alone.initialize(LEGACY);
    assert_eq!(skills(&mut alone).len(), 1);
}

/// Each capability that is shown, with a request for each of its methods.
fn methods_of(capability: &str) -> Vec<(&'static str, Value)> {
    let uri = json!({ "uri": "skill://fix/acme/pdf/SKILL.md" });
    match capability {
        "tools" => vec![
            ("tools/list", json!({})),
            (
                "tools/call",
                json!({ "name": "fix__echo", "arguments": {} }),
            ),
        ],
        "prompts" => vec![
            ("prompts/list", json!({})),
            ("prompts/get", json!({ "name": "nothing" })),
        ],
        "resources" => vec![
            ("resources/list", json!({})),
            ("resources/templates/list", json!({})),
            ("resources/read", uri.clone()),
        ],
        "completions" => vec![(
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "nothing" }, "argument": { "name": "a", "value": "" } }),
        )],
        "logging" => vec![],
        other => {
            let (kind, name) = other.split_once(' ').unwrap_or((other, ""));
            let table = match kind {
                "extensions" => &EXTENSIONS[..],
                "experimental" => &EXPERIMENTAL[..],
                _ => panic!("{other} is advertised, and nothing says what it needs"),
            };
            let passed = table.iter().find(|passed| passed.name == name);
            let passed =
                passed.unwrap_or_else(|| panic!("{other} is advertised, and no table has it"));
            // Of each notification a test says that it arrives.
            for notification in passed.notifications {
                assert!(
                    ["notifications/tasks", "notifications/claude/channel"].contains(notification),
                    "{notification}"
                );
            }
            let methods = passed.methods.iter().map(|method| match method.as_str() {
                "resources/directory/read" => (
                    "resources/directory/read",
                    json!({ "uri": "skill://fix/acme/pdf" }),
                ),
                "tools/call" => (
                    "tools/call",
                    json!({ "name": "fix__echo", "arguments": {} }),
                ),
                tasks if tasks.starts_with("tasks/") => {
                    (tasks, json!({ "taskId": "0".repeat(32) }))
                }
                method => (method, uri.clone()),
            });
            methods.collect()
        }
    }
}

#[test]
fn every_capability_that_is_shown_is_served() {
    const TASKS: &str = "io.modelcontextprotocol/tasks";
    for (speak, prefix) in [
        (LEGACY, true),
        (LEGACY, false),
        (MODERN, true),
        (MODERN, false),
    ] {
        let place = place(speak, json!({ "prefix": prefix }));
        let declared = json!({ TASKS: {}, "io.modelcontextprotocol/ui": {}, "org.example/x": {} });
        fs::write(place.path("fix.extensions"), declared.to_string()).unwrap();
        let experimental = json!({ "claude/channel": {}, "other": {} });
        fs::write(place.path("fix.experimental"), experimental.to_string()).unwrap();
        let daemon = place.start(&[]);
        client(&daemon, LEGACY);
        let reason = daemon.server("fix")["reason"].to_string();
        for left_out in ["extensions org.example/x", "experimental other"] {
            assert!(reason.contains(left_out), "{reason}");
        }
        for (era, alone) in [
            (LEGACY, false),
            (LEGACY, true),
            (MODERN, false),
            (MODERN, true),
        ] {
            let mut client = daemon.connect();
            if alone {
                client.send(r#"{"colibri":1,"narrow":[],"only":"fix"}"#);
            }
            if era == MODERN {
                client = match alone {
                    true => continue,
                    false => daemon.modern(),
                };
            }
            let hello = match era {
                MODERN => client.ask("server/discover", json!({})),
                _ => {
                    let info = json!({ "name": "walk", "version": "1" });
                    let params =
                        json!({ "protocolVersion": era, "capabilities": {}, "clientInfo": info });
                    client.ask("initialize", params)
                }
            };
            let mut names = Vec::new();
            for (name, value) in hello["result"]["capabilities"].as_object().unwrap() {
                match name.as_str() {
                    "extensions" | "experimental" => {
                        names.extend(
                            value
                                .as_object()
                                .unwrap()
                                .keys()
                                .map(|key| format!("{name} {key}")),
                        );
                    }
                    _ => names.push(name.clone()),
                }
            }
            let is_bare = alone || !prefix;
            assert_eq!(
                names.contains(&"experimental claude/channel".to_owned()),
                is_bare,
                "{hello}"
            );
            assert!(
                names.contains(&"extensions io.modelcontextprotocol/skills".to_owned()),
                "{hello}"
            );
            for (method, mut params) in names.iter().flat_map(|name| methods_of(name)) {
                if method.starts_with("tasks/") {
                    if era == LEGACY {
                        // The extension is one of the modern era.
                        continue;
                    }
                    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                        json!({ "extensions": { TASKS: {} } });
                }
                let answer = client.ask(method, params);
                assert_ne!(answer["error"]["code"], -32601, "{method} {era}: {answer}");
            }
        }
    }
}

#[test]
fn a_channel_reaches_who_sees_the_server_without_a_prefix() {
    let place = place(LEGACY, json!({}));
    fs::write(
        place.path("fix.experimental"),
        json!({ "claude/channel": {} }).to_string(),
    )
    .unwrap();
    let daemon = place.start(&[]);
    let mut joint = client(&daemon, LEGACY);
    assert!(text_of(&joint.call("fix__echo", json!({ "a": 1 }))).contains('1'));
    let mut alone = daemon.connect();
    alone.send(r#"{"colibri":1,"narrow":[],"only":"fix"}"#);
    alone.initialize(LEGACY);
    alone.call("echo", json!({}));
    let channel =
        r#"{"jsonrpc":"2.0","method":"notifications/claude/channel","params":{"content":"hi"}}"#;
    place.frame("channel", channel.as_bytes());
    joint.call("fix__tell_raw", json!({ "case": "channel" }));
    let told = alone.notification("notifications/claude/channel");
    assert_eq!(told["params"]["content"], "hi");
    joint.call("fix__echo", json!({}));
    let heard = |message: &Value| message["method"] == "notifications/claude/channel";
    assert!(!joint.others.iter().any(heard), "{:?}", joint.others);
}
