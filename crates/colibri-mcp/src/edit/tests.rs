use jsonc_parser::json;

use super::{FileFormat, Value, writable};

const SETTINGS: &str = "// Mine.\n{\n\t\"theme\": \"One\", // dark\n\t\"context_servers\": {\n\t\t/* kept */\n\t\t\"other\": { \
                        \"command\": \"x\", },\n\t},\n\t\"last\": [1, 2,],\n}\n";

fn entry() -> Value {
    json!({ "command": "/bin/colibri-mcp", "args": ["--read-only"], "env": {} })
}

#[test]
fn an_entry_is_added_and_the_rest_stays_byte_for_byte() {
    let keys = ["context_servers", "colibri"];
    let text = FileFormat::Json.set(SETTINGS, &keys, &entry()).unwrap();
    let (before, after) = SETTINGS.split_once("\n\t},\n\t\"last\"").unwrap();
    let added = text.strip_prefix(before).unwrap();
    assert!(
        added.ends_with(&format!("\n\t}},\n\t\"last\"{after}")),
        "{text}"
    );
    assert!(
        added.starts_with(
            "\n\t\t\"colibri\": {\n\t\t\t\"command\": \"/bin/colibri-mcp\",\n\t\t\t\"args\": "
        ),
        "{text}"
    );
    assert_eq!(FileFormat::Json.set(&text, &keys, &entry()).unwrap(), text);
    assert_eq!(FileFormat::Json.remove(&text, &keys).unwrap(), SETTINGS);
}

#[test]
fn adding_and_removing_leaves_no_trace() {
    let keys = ["mcpServers", "colibri"];
    for text in [
        "{}\n",
        "{}",
        "{\n  \"a\": 1\n}\n",
        "{\r\n    \"a\": 1\r\n}\r\n",
        "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}",
        "{\n  \"a\": 1 // one\n}",
        "{\n  // nothing yet\n}\n",
        "{\n  \"mcpServers\": {\n    // none yet\n  }\n}\n",
    ] {
        let set = FileFormat::Json.set(text, &keys, &entry()).unwrap();
        assert_ne!(set, text);
        assert_eq!(
            FileFormat::Json.remove(&set, &keys).unwrap(),
            text,
            "after {set}"
        );
    }
    let keys = ["mcp_servers", "colibri"];
    for text in [
        "",
        "model = \"m\"\n",
        "# mine\nmodel = \"m\"\n\n[mcp_servers.a]\ncommand = \"x\" # x\n\n[tui]\na = 1\n",
        "model = \"m\"\r\n",
        "\u{feff}model = \"m\"\n",
        "# mine\n[mcp_servers]\n",
        "[mcp_servers]\na = { command = \"x\" }\n",
    ] {
        let set = FileFormat::Toml.set(text, &keys, &entry()).unwrap();
        assert!(set.contains("[mcp_servers.colibri]"), "{set}");
        assert_eq!(
            FileFormat::Toml
                .get(&set, &["mcp_servers", "colibri", "args"])
                .unwrap(),
            Some(serde_json::json!(["--read-only"]))
        );
        assert_eq!(FileFormat::Toml.set(&set, &keys, &entry()).unwrap(), set);
        assert_eq!(
            FileFormat::Toml.remove(&set, &keys).unwrap(),
            text,
            "after {set}"
        );
    }
}

#[test]
fn what_is_called_as_what_it_stands_in_is_taken_out_alone() {
    let text = "{\n  \"servers\": {\n    \"servers\": {},\n    \"other\": {}\n  }\n}\n";
    let removed = FileFormat::Json
        .remove(text, &["servers", "servers"])
        .unwrap();
    assert_eq!(removed, text.replace("    \"servers\": {},\n", ""));
}

#[test]
fn another_value_is_replaced_where_it_stands() {
    let text = "{\n  \"a\": {\n    \"x\": [1] // one\n  },\n  \"b\": 2\n}\n";
    let set = FileFormat::Json
        .set(text, &["a", "x"], &json!(true))
        .unwrap();
    assert_eq!(set, text.replace("[1]", "true"));
    let text = "# first\n[a]\nx = [1] # one\n\n[b]\ny = 2\n";
    let set = FileFormat::Toml
        .set(text, &["a", "x"], &json!(true))
        .unwrap();
    assert_eq!(set, text.replace("[1]", "true"));
}

#[test]
fn an_empty_or_missing_file_becomes_what_is_set() {
    let set = FileFormat::Json
        .set("", &["mcpServers", "colibri"], &json!({ "command": "x" }))
        .unwrap();
    assert_eq!(
        set,
        "{\n  \"mcpServers\": {\n    \"colibri\": {\n      \"command\": \"x\"\n    }\n  }\n}\n"
    );
}

#[test]
fn a_text_that_cannot_be_read_is_named_with_its_place() {
    for (kind, text, line, column) in [
        (FileFormat::Json, "{\n  \"a\": 1\n  \"b\": 2\n}", 2, 9),
        (FileFormat::Json, "{\n  \"a\": tru\n}", 2, 8),
        (FileFormat::Json, "{", 1, 1),
        (FileFormat::Toml, "a = 1\nb = = 2\n", 2, 5),
    ] {
        let fault = kind.set(text, &["x"], &json!(1)).unwrap_err();
        assert_eq!((fault.line, fault.column), (line, column), "{fault:?}");
        assert!(
            !fault.why.is_empty() && !fault.why.contains('\n'),
            "{fault:?}"
        );
    }
    for (kind, text, keys) in [
        (FileFormat::Json, "[1]", ["a", "b"]),
        (FileFormat::Json, "{\"a\": 1}", ["a", "b"]),
        (FileFormat::Json, "{\"a\": {}, \"a\": {}}", ["a", "b"]),
        (FileFormat::Toml, "a = 1\n", ["a", "b"]),
    ] {
        assert_eq!(
            kind.set(text, &keys, &json!(1)).unwrap_err().line,
            0,
            "{text}"
        );
    }
}

#[test]
fn texts_that_differ_in_one_place_alone_are_told_from_others() {
    let keys = ["s", "x"];
    for (kind, one, other) in [
        (FileFormat::Json, "{ \"a\": 1 }", "{ \"a\": 2 }"),
        (FileFormat::Toml, "a = 1\n", "a = 2\n"),
    ] {
        let with = |text: &str| kind.set(text, &keys, &json!({ "b": 1 })).unwrap();
        assert!(kind.differ_only_at(one, &with(one), &keys), "{kind:?}");
        assert!(!kind.differ_only_at(one, &with(other), &keys), "{kind:?}");
        assert!(!kind.differ_only_at("[", "[", &keys));
    }
}

#[test]
fn a_value_that_was_read_is_written_as_it_was() {
    let value = serde_json::json!({ "a": [1, -2.5, true, null, "x\n"], "b": { "c": {} } });
    let text = FileFormat::Json.set("", &["k"], &writable(&value)).unwrap();
    assert_eq!(FileFormat::Json.get(&text, &["k"]), Ok(Some(value)));
}
