//! `colibri-mcp import EDITOR --replace`: servers and secrets move out of an editor's file, and
//! `connect EDITOR --remove` gives it back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use colibri_tests::Place;
use serde_json::{Value, json};

use super::bring::{client, files, good, json_of, run, users_own};

const SECRETS: [&str; 3] = ["ghp_0123456789abcdef", "tell-nobody-this", "nor-this-one"];

/// An editor, its file, and what stands in it: with the three secrets, and with an entry that
/// cannot become one of ours where `stays` names it.
struct EditorFile {
    editor: &'static str,
    path: &'static str,
    text: &'static str,
    stays: Option<&'static str>,
}

const EDITORS: &[EditorFile] = &[
    EditorFile {
        editor: "zed",
        path: "zed/settings.json",
        text: "// mine\n{\n  \"theme\": \"One\", // dark\n  \"context_servers\": {\n    // the shell\n    \"sh-one\": { \
               \"command\": \"sh\", \"args\": [\"-c\", \"x\"],\n      \"env\": { \"A_TOKEN\": \"ghp_0123456789abcdef\", \
               \"B_KEY\": \"tell-nobody-this\" }, },\n    \"ext\": { \"source\": \"extension\", \"settings\": {} },\n    \
               \"far\": { \"url\": \"https://h.example/mcp\", \"headers\": { \"Authorization\": \"nor-this-one\" } },\n  \
               },\n}\n",
        stays: Some("ext"),
    },
    EditorFile {
        editor: "cursor",
        path: ".cursor/mcp.json",
        text: "{\"mcpServers\":{\"sh-one\":{\"command\":\"sh\",\"env\":{\"A_TOKEN\":\"ghp_0123456789abcdef\",\
               \"B_KEY\":\"tell-nobody-this\"}},\"far\":{\"url\":\"https://h.example/mcp\",\"headers\":{\
               \"Authorization\":\"nor-this-one\"}}}}",
        stays: None,
    },
    EditorFile {
        editor: "windsurf",
        path: ".codeium/windsurf/mcp_config.json",
        text: "{\n\t\"mcpServers\": {\n\t\t\"sh-one\": {\n\t\t\t\"command\": \"sh\",\n\t\t\t\"env\": { \"A_TOKEN\": \
               \"ghp_0123456789abcdef\", \"B_KEY\": \"tell-nobody-this\" }\n\t\t},\n\t\t\"far\": { \"serverUrl\": \
               \"https://h.example/mcp\", \"headers\": { \"Authorization\": \"nor-this-one\" } }\n\t}\n}",
        stays: None,
    },
    EditorFile {
        editor: "vscode",
        path: "Code/User/mcp.json",
        text: "{\n    \"inputs\": [ { \"type\": \"promptString\", \"id\": \"k\", \"default\": \"nor-this-one\", \
               \"password\": true } ],\n    // two\n    \"servers\": {\n        \"sh-one\": { \"type\": \"stdio\", \
               \"command\": \"sh\", \"env\": { \"A_TOKEN\": \"ghp_0123456789abcdef\", \"B_KEY\": \"tell-nobody-this\" } \
               },\n        \"far\": { \"type\": \"http\", \"url\": \"https://h.example/mcp\", \"headers\": { \
               \"Authorization\": \"${input:k}\" } },\n    },\n}\n",
        stays: None,
    },
    EditorFile {
        editor: "claude-code",
        path: ".claude.json",
        text: "{\n  \"numStartups\": 3,\n  \"mcpServers\": {\n    \"sh-one\": {\n      \"command\": \"sh\",\n      \"env\": \
               { \"A_TOKEN\": \"ghp_0123456789abcdef\" }\n    }\n  },\n  \"projects\": {\n    \"/home/u/p\": {\n      \
               \"allowedTools\": [],\n      \"mcpServers\": {\n        \"sh-one\": { \"command\": \"sh\", \"env\": { \
               \"B_KEY\": \"tell-nobody-this\" } },\n        \"far\": { \"type\": \"http\", \"url\": \
               \"https://h.example/mcp\", \"headers\": { \"Authorization\": \"nor-this-one\" } }\n      }\n    }\n  }\n}",
        stays: None,
    },
    EditorFile {
        editor: "claude-desktop",
        path: "Claude/claude_desktop_config.json",
        text: "{\"mcpServers\": {\"sh-one\": {\"command\": \"sh\", \"env\": {\"A_TOKEN\": \"ghp_0123456789abcdef\", \
               \"B_KEY\": \"tell-nobody-this\"}}, \"far\": {\"url\": \"https://h.example/mcp\", \"headers\": {\
               \"Authorization\": \"nor-this-one\"}}}, \"globalShortcut\": \"\"}",
        stays: None,
    },
    EditorFile {
        editor: "codex",
        path: ".codex/config.toml",
        text: "# mine\nmodel = \"m\" # this\n\n[mcp_servers.sh-one]\ncommand = \"sh\" # shell\n\n[mcp_servers.sh-one.env]\n\
               A_TOKEN = \"ghp_0123456789abcdef\"\nB_KEY = \"tell-nobody-this\"\n\n[mcp_servers.far]\nurl = \
               \"https://h.example/mcp\"\nhttp_headers = { \"Authorization\" = \"nor-this-one\" }\n\n[tui]\na = 1\n",
        stays: None,
    },
    EditorFile {
        editor: "gemini",
        path: ".gemini/settings.json",
        text: "{ \"ui\": { \"theme\": \"x\" },\n  \"mcpServers\": { \"sh-one\": { \"command\": \"sh\", \"env\": { \
               \"A_TOKEN\": \"ghp_0123456789abcdef\", \"B_KEY\": \"tell-nobody-this\" } },\n    \"far\": { \"httpUrl\": \
               \"https://h.example/mcp\", \"headers\": { \"Authorization\": \"nor-this-one\" } } } }\n",
        stays: None,
    },
    EditorFile {
        editor: "opencode",
        path: "opencode/opencode.json",
        text: "{ \"$schema\": \"s\", /* s */\n  \"mcp\": { \"sh-one\": { \"type\": \"local\", \"command\": [\"sh\"], \
               \"environment\": { \"A_TOKEN\": \"ghp_0123456789abcdef\", \"B_KEY\": \"tell-nobody-this\" } },\n    \
               \"far\": { \"type\": \"remote\", \"url\": \"https://h.example/mcp\", \"headers\": { \"Authorization\": \
               \"nor-this-one\" } } } }\n",
        stays: None,
    },
];

/// Puts the file down, readable by everybody, as editors do.
fn put(place: &Place, file: &EditorFile) -> PathBuf {
    let path = place.path(file.path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, file.text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

fn cursor() -> &'static EditorFile {
    EDITORS.iter().find(|file| file.editor == "cursor").unwrap()
}

/// The files that somebody else could read, and that hold one of the secrets.
fn open_secrets(place: &Place) -> Vec<PathBuf> {
    let is_open = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o077 != 0)
    };
    let holds = |bytes: &[u8]| {
        SECRETS
            .iter()
            .any(|secret| String::from_utf8_lossy(bytes).contains(secret))
    };
    let all = files(place).into_iter();
    all.filter(|(path, bytes)| holds(bytes) && is_open(path))
        .map(|(path, _)| path)
        .collect()
}

fn original(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.colibri-original", path.display()))
}

/// The names of all secrets' files that entries name.
fn secrets_of(entry: &Value) -> Vec<String> {
    let fields = ["env", "headers"]
        .into_iter()
        .filter_map(|key| entry[key].as_object());
    let names = fields
        .flatten()
        .filter_map(|(_, value)| value["secret"].as_str());
    names.map(str::to_owned).collect()
}

#[test]
fn servers_and_secrets_move_out_of_every_editors_file_and_it_comes_back() {
    for file in EDITORS {
        let place = users_own();
        let path = put(&place, file);
        let (editor, before) = (file.editor, files(&place));
        // A backup of `connect`, from before, has the secrets too.
        good(&place, &["connect", editor, "--yes"]);
        good(&place, &["connect", editor, "--remove", "--yes"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), file.text, "{editor}");

        let said = good(&place, &["import", editor, "--replace", "--yes"]);
        assert!(
            !SECRETS.iter().any(|secret| said.contains(secret)),
            "{editor}: {said}"
        );
        assert!(
            said.contains("out go") && said.contains("starts colibri-mcp in place of "),
            "{said}"
        );
        assert!(
            said.contains(&format!("colibri-mcp connect {editor} --remove")),
            "{said}"
        );
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            !SECRETS.iter().any(|secret| text.contains(secret)),
            "{editor}: {text}"
        );
        assert!(
            text.contains("colibri-mcp") && !text.contains("sh-one") && !text.contains("far"),
            "{editor}: {text}"
        );
        assert_eq!(open_secrets(&place), Vec::<PathBuf>::new(), "{editor}");
        let about = fs::metadata(original(&path)).unwrap();
        assert_eq!(about.permissions().mode() & 0o7777, 0o600, "{editor}");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o644,
            "{editor}"
        );
        if let Some(stays) = file.stays {
            assert!(
                said.contains(&format!("stays     {stays}: an extension")) && text.contains(stays),
                "{said}"
            );
        }
        // What the editor had is Colibri's.
        let registry = json_of(&place.path("external-mcp.json"));
        let mut moved: Vec<String> = Vec::new();
        for name in registry["servers"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(secrets_of)
        {
            moved.push(fs::read_to_string(place.path("daemon-secrets").join(name)).unwrap());
        }
        moved.sort();
        let mut wanted = SECRETS.map(str::to_owned);
        wanted.sort();
        assert_eq!(moved, wanted, "{editor}: {registry}");

        // Once more there is nothing to move, unless something stays.
        assert_eq!(
            run(&place, &["import", editor, "--replace", "--yes"]).0,
            Some(65),
            "{editor}"
        );
        let said = good(&place, &["connect", editor, "--yes"]);
        assert!(said.contains("has this entry already"), "{editor}: {said}");
        good(&place, &["connect", editor, "--remove", "--yes"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), file.text, "{editor}");
        assert!(!original(&path).exists(), "{editor}");
        for id in registry["servers"].as_object().unwrap().keys() {
            good(&place, &["remove", id, "--yes"]);
        }
        let mut after = files(&place);
        after.retain(|path, _| !path.to_string_lossy().contains(".colibri-backup-"));
        let registry = place.path("external-mcp.json");
        after.remove(&registry);
        let mut before = before;
        before.remove(&registry);
        assert_eq!(after, before, "{editor}");
    }
}

#[test]
fn without_it_an_import_says_that_both_have_them_now() {
    let place = users_own();
    let path = put(&place, cursor());
    let said = good(&place, &["import", "cursor", "--yes"]);
    for part in [
        &format!(
            "They are in {} too, with 3 secrets in plain text",
            path.display()
        ),
        "colibri-mcp import cursor --replace",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), cursor().text);
    // As that says: what is here already is only taken out there.
    let said = good(&place, &["import", "cursor", "--replace", "--yes"]);
    assert!(
        said.contains("All of them are in") && !said.contains("is refused"),
        "{said}"
    );
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("sh-one") && !text.contains("far"), "{text}");
    // By its path, and by all editors at once, it is said too.
    good(&place, &["connect", "cursor", "--remove", "--yes"]);
    good(&place, &["remove", "far", "--yes"]);
    let said = good(&place, &["import", "--yes"]);
    assert!(
        said.contains("colibri-mcp import cursor --replace"),
        "{said}"
    );
    good(&place, &["remove", "far", "--yes"]);
    let copy = place.path("copy.json");
    fs::copy(&path, &copy).unwrap();
    let said = good(&place, &["import", copy.to_str().unwrap(), "--yes"]);
    assert!(
        said.contains("take them out of it") && !said.contains("--replace"),
        "{said}"
    );
}

#[test]
fn another_server_of_the_same_name_stays_where_it_is() {
    let place = users_own();
    let path = put(&place, cursor());
    place.registry(&json!({ "sh-one": { "command": "/bin/true" } }));
    let said = good(&place, &["import", "cursor", "--replace", "--yes"]);
    assert!(
        said.contains("stays     sh-one: another one: there is a server sh-one already"),
        "{said}"
    );
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("sh-one") && !text.contains("far"), "{text}");
    assert_eq!(
        json_of(&place.path("external-mcp.json"))["servers"]["sh-one"],
        json!({ "command": "/bin/true" })
    );
    // The same with another secret.
    let place = users_own();
    let path = put(&place, cursor());
    good(&place, &["import", "cursor", "--yes"]);
    fs::write(
        &path,
        cursor().text.replace("tell-nobody-this", "a-newer-one"),
    )
    .unwrap();
    let said = good(&place, &["import", "cursor", "--replace", "--yes"]);
    assert!(said.contains("stays     sh-one: another one"), "{said}");
    assert!(fs::read_to_string(&path).unwrap().contains("a-newer-one"));
}

#[test]
fn some_alone_are_moved_and_later_the_others() {
    let place = users_own();
    let path = put(&place, cursor());
    let said = good(
        &place,
        &["import", "cursor", "--server", "far", "--replace", "--yes"],
    );
    assert!(
        said.contains("stays     sh-one: it was not named"),
        "{said}"
    );
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("sh-one") && !text.contains("far"), "{text}");
    good(&place, &["import", "cursor", "--replace", "--yes"]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("sh-one") && text.contains("colibri-mcp"),
        "{text}"
    );
    good(&place, &["connect", "cursor", "--remove", "--yes"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), cursor().text);
}

#[test]
fn what_the_editor_wrote_since_stays_when_entries_come_back() {
    let place = users_own();
    let file = EDITORS
        .iter()
        .find(|file| file.editor == "claude-code")
        .unwrap();
    let path = put(&place, file);
    good(&place, &["import", "claude-code", "--replace", "--yes"]);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(
        &path,
        text.replace("\"numStartups\": 3", "\"numStartups\": 4"),
    )
    .unwrap();
    good(&place, &["connect", "claude-code", "--remove", "--yes"]);
    let mut wanted: Value = serde_json::from_str(file.text).unwrap();
    wanted["numStartups"] = json!(4);
    assert_eq!(json_of(&path), wanted);
    assert!(!original(&path).exists());
    assert_eq!(
        open_secrets(&place),
        [path],
        "its own file is as open as it was"
    );
}

#[test]
fn a_server_that_does_not_start_here_stays_there() {
    let place = users_own();
    let _daemon = place.start(&[]);
    let path = place.path(".cursor/mcp.json");
    fs::create_dir(path.parent().unwrap()).unwrap();
    let dead = json!({ "command": "/bin/sh", "args": ["-c", "echo no such module >&2; exit 1"] });
    let servers = json!({ "dead": dead, "fx": place.fixture("fx", &[], json!({})) });
    fs::write(&path, json!({ "mcpServers": servers }).to_string()).unwrap();
    let (status, said) = run(&place, &["import", "cursor", "--replace", "--yes"]);
    assert_eq!(status, Some(69), "{said}");
    assert!(
        said.contains("dead is there and does not work") && said.contains("no such module"),
        "{said}"
    );
    assert!(
        said.contains("since it does not start here: dead") && said.contains("in place of fx: "),
        "{said}"
    );
    let left = json_of(&path)["mcpServers"].clone();
    let names: Vec<&str> = left
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        (names.as_slice(), &left["dead"]),
        (&["colibri", "dead"][..], &dead)
    );
}

#[test]
fn a_file_that_changes_while_it_is_asked_about_is_not_overwritten() {
    let place = users_own();
    let _daemon = place.start(&[]);
    let path = place.path(".cursor/mcp.json");
    fs::create_dir(path.parent().unwrap()).unwrap();
    // The editor writes while the server is tried.
    let fixture = place.fixture("fx", &[], json!({}));
    let words: Vec<String> = fixture["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    let script = format!(
        "echo ' ' >>'{}'; exec {} {}",
        path.display(),
        fixture["command"],
        words.join(" ")
    );
    let servers = json!({ "fx": { "command": "/bin/sh", "args": ["-c", script] } });
    let text = json!({ "mcpServers": servers }).to_string();
    fs::write(&path, &text).unwrap();
    let output = client(&place, &["import", "cursor", "--replace", "--yes"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{said}");
    for part in [
        "was changed meanwhile by another program",
        "and where they were too",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(fs::read_to_string(&path).unwrap().starts_with(&text));
    let left: Vec<_> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(
        left.iter()
            .all(|one| *one == path || *one == original(&path)),
        "{left:?}"
    );
    good(&place, &["call", "fx", "echo"]);
}

#[test]
fn what_cannot_be_replaced_is_said_before_anything_is_written() {
    let place = users_own();
    put(&place, cursor());
    let other = place.path("mcp.json");
    fs::copy(place.path(".cursor/mcp.json"), &other).unwrap();
    let bridge = place.path(".chibi/mcp-bridge.toml");
    fs::create_dir(bridge.parent().unwrap()).unwrap();
    fs::write(bridge, "[servers.x]\ncommand = \"sh\"\n").unwrap();
    let own = place.path(".gemini/settings.json");
    fs::create_dir(own.parent().unwrap()).unwrap();
    fs::write(
        own,
        r#"{"mcpServers":{"colibri":{"command":"my-own-colibri"},"x":{"command":"sh"}}}"#,
    )
    .unwrap();
    let twice = place.path("Claude/claude_desktop_config.json");
    fs::create_dir(twice.parent().unwrap()).unwrap();
    fs::write(
        twice,
        r#"{"mcpServers":{"x":{"command":"sh"}},"mcpServers":{"x":{"command":"sh"}}}"#,
    )
    .unwrap();
    let before = files(&place);
    for (from, why, code) in [
        (None, "required", 64),
        (Some(other.to_str().unwrap()), "name the editor", 64),
        (Some("mcp-bridge"), "no editor", 64),
        (Some("zed"), "no settings here", 65),
        (Some("gemini"), "another program as its server colibri", 65),
        (Some("claude-desktop"), "is there twice", 65),
    ] {
        let args: Vec<&str> = ["import"]
            .into_iter()
            .chain(from)
            .chain(["--replace", "--yes"])
            .collect();
        let (status, said) = run(&place, &args);
        assert!(
            status == Some(code) && said.contains(why),
            "{from:?}: {status:?} {said}"
        );
        assert_eq!(files(&place), before, "{from:?}");
    }
    // Without a yes nothing is written, and no secret is shown.
    let (status, said) = run(&place, &["import", "cursor", "--replace"]);
    assert!(
        status == Some(1) && said.contains("out go    far, sh-one"),
        "{said}"
    );
    assert!(
        !SECRETS.iter().any(|secret| said.contains(secret)),
        "{said}"
    );
    assert_eq!(files(&place), before);
}

#[test]
fn a_secret_that_a_comment_repeats_is_named_by_its_line() {
    let place = users_own();
    let path = place.path(".cursor/mcp.json");
    fs::create_dir(path.parent().unwrap()).unwrap();
    let text = "{\n  // old: tell-nobody-this\n  \"a\": 1,\n  \"mcpServers\": { \"x\": { \"command\": \"sh\", \"env\": { \
                \"T_KEY\": \"tell-nobody-this\" } } }\n}\n";
    fs::write(&path, text).unwrap();
    let said = good(&place, &["import", "cursor", "--replace", "--yes"]);
    assert!(
        said.contains("line 2 of the new file still has one of their secrets"),
        "{said}"
    );
}

/// Ends it after each change that it makes to any file.
#[test]
#[cfg(target_os = "linux")]
fn a_power_cut_between_any_two_writes_leaves_all_working() {
    use std::collections::BTreeMap;

    let command = ["import", "cursor", "--replace", "--yes"];
    let finished = users_own();
    let path = put(&finished, cursor());
    good(&finished, &command);
    let replaced = |place: &Place| {
        let own = |place: &Place| place.path("").display().to_string();
        fs::read_to_string(&path)
            .unwrap()
            .replace(&own(&finished), &own(place))
    };
    let mut points = 0;
    for at in 1.. {
        let place = users_own();
        let path = put(&place, cursor());
        if let Some(status) =
            colibri_tests::run_to_change(&client(&place, &command), || files(&place), at)
        {
            assert!(status.success(), "{status:?}");
            break;
        }
        points = at;
        let text = fs::read_to_string(&path).unwrap();
        let registry = colibri_registry::Registry::parse(
            &fs::read(place.path("external-mcp.json")).unwrap(),
            "r",
        )
        .unwrap();
        if text == cursor().text {
            // It is as it was; once more does all of it.
            good(&place, &command);
        } else {
            assert_eq!(text, replaced(&place), "{at}");
            assert_eq!(registry.servers.len(), 2, "{at}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), replaced(&place), "{at}");
        assert_eq!(open_secrets(&place), Vec::<PathBuf>::new(), "{at}");
        let names = |place: &Place| -> BTreeMap<PathBuf, Vec<u8>> {
            let all = files(place).into_iter();
            let own = |path: PathBuf| path.strip_prefix(place.path("")).unwrap().to_owned();
            let all = all.map(|(path, bytes)| (own(path), bytes));
            all.filter(|(path, _)| !path.to_string_lossy().contains(".colibri-backup-"))
                .collect()
        };
        let (ours, theirs) = (names(&place), names(&finished));
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>(),
            "{at}"
        );
        for name in [
            "external-mcp.json",
            "consent.json",
            ".cursor/mcp.json.colibri-original",
        ] {
            assert_eq!(
                ours.get(Path::new(name)),
                theirs.get(Path::new(name)),
                "{at}: {name}"
            );
        }
        good(&place, &["connect", "cursor", "--remove", "--yes"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), cursor().text, "{at}");
    }
    assert!(points > 10, "{points}");
}
