//! Single names: environment variables, variables of the rc script, identifiers, types, keys,
//! manuals and tests.

use std::collections::{BTreeMap, BTreeSet};

use super::commands::is_placeholder;
use super::documents::{Document, Form, Kind};
use super::facts::{Facts, words};
use super::{Finding, Findings};

/// Pages that name types, and the package whose they are, if it is one alone.
const PAGES_OF_TYPES: [(&str, &str); 2] = [
    ("docs/jail-helper.md", "colibri-jail-helper"),
    ("docs/architecture.md", ""),
];
/// Keys of JSON objects whose members have names of the operator's own.
const MAPS: [&str; 13] = [
    "servers",
    "mcpServers",
    "agents",
    "users",
    "groups",
    "accounts",
    "hosts",
    "env",
    "headers",
    "tools",
    "sinks",
    "fields",
    "same",
];
/// The page whose paragraphs name a test each.
const MISSING: &str = "docs/later.md";

pub(super) fn check(document: &Document, facts: &Facts, findings: &mut Findings) {
    let mut find = |line: usize, name: &str, what: &str| {
        findings.push(Finding {
            file: document.path.clone(),
            line: line + document.offset,
            name: name.to_owned(),
            what: what.to_owned(),
        });
    };
    for (at, line) in document.text.lines().enumerate() {
        for word in words(line) {
            let is_variable = word.starts_with("COLIBRI_") && word.len() > "COLIBRI_".len();
            if is_variable && !word.ends_with('_') && !facts.words.contains(&word) {
                find(at + 1, &word, "nothing reads this environment variable");
            }
            let is_rc = word
                .strip_prefix("colibri_mcp_")
                .is_some_and(|rest| !rest.is_empty());
            if is_rc && !is_rc_name(facts, &word) {
                find(at + 1, &word, "the rc script knows no such variable");
            }
        }
        for (name, section) in manuals(line) {
            let is_ours =
                name.contains("colibri") || name.contains("chibi") || name.ends_with(".json");
            if is_ours && !facts.files.contains(&format!("docs/man/{name}.{section}")) {
                find(at + 1, &format!("{name}({section})"), "no such manual");
            }
        }
        if let Some(arguments) = line
            .strip_prefix(".Xr ")
            .or_else(|| line.strip_prefix(".It Xr "))
        {
            let mut words = arguments.split_whitespace();
            let (name, section) = (
                words.next().unwrap_or_default(),
                words.next().unwrap_or_default(),
            );
            let is_ours =
                name.contains("colibri") || name.contains("chibi") || name.ends_with(".json");
            if is_ours && !facts.files.contains(&format!("docs/man/{name}.{section}")) {
                find(at + 1, &format!("{name}({section})"), "no such manual");
            }
        }
    }
    if document.form != Form::Markdown && document.form != Form::Manual {
        return;
    }
    let package = PAGES_OF_TYPES
        .iter()
        .find(|(page, _)| *page == document.path)
        .map(|(_, package)| *package);
    let is_of = |names: &BTreeMap<String, BTreeSet<String>>, name: &str| {
        names.get(name).is_some_and(|packages| {
            package.is_none_or(|package| package.is_empty() || packages.contains(package))
        })
    };
    for quote in document.quotes() {
        let line = quote.line - document.offset;
        match &quote.kind {
            Kind::Span => {
                if is_identifier(&quote.text)
                    && !facts.words.contains(&quote.text)
                    && !is_composed(facts, &quote.text)
                {
                    find(line, &quote.text, "no such name in the sources");
                }
                if package.is_some() {
                    for name in type_names(&quote.text) {
                        if !is_of(&facts.items, name) {
                            find(line, name, "no such type");
                        }
                    }
                }
            }
            Kind::Block(word) if word.is_empty() && package.is_some() => {
                for (at, text) in quote.text.lines().enumerate() {
                    // The map of files: a name of each line, and what it is for.
                    let Some((file, rest)) = text.trim().split_once("  ") else {
                        continue;
                    };
                    if !file.ends_with(".rs") {
                        continue;
                    }
                    for name in words(rest).filter(|word| is_type_name(word)) {
                        if !is_of(&facts.types, &name) {
                            find(line + at, &name, "no such type");
                        }
                    }
                }
            }
            Kind::Block(word) if word == "json" => check_keys(&quote.text, line, facts, &mut find),
            _ => {}
        }
    }
    if document.path == MISSING {
        check_missing(document, facts, &mut find);
    }
}

/// Each paragraph that begins with what is missing names a test.
fn check_missing(document: &Document, facts: &Facts, find: &mut impl FnMut(usize, &str, &str)) {
    let mut line = 1;
    for paragraph in document.text.split("\n\n") {
        if let Some(rest) = paragraph.trim_start().strip_prefix("**") {
            let title = rest
                .split("**")
                .next()
                .unwrap_or_default()
                .replace('\n', " ");
            let tests: BTreeSet<String> = words(paragraph)
                .filter(|word| facts.tests.contains(word))
                .collect();
            if tests.is_empty() {
                find(line, &title, "names no test that shows it missing");
            }
        }
        line += paragraph.matches('\n').count() + 2;
    }
}

fn is_rc_name(facts: &Facts, word: &str) -> bool {
    let script = facts.text("port/files/colibri_mcp.in");
    script.contains(&format!("${{{word}:=")) || script.contains(&format!("\n{word}()"))
}

/// The manuals that a line names as `name(8)`.
fn manuals(line: &str) -> Vec<(String, char)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices('(') {
        let mut rest = line[at + 1..].chars();
        let (Some(section), Some(')')) = (rest.next().filter(char::is_ascii_digit), rest.next())
        else {
            continue;
        };
        let is_of_name =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        let start = line[..at]
            .rfind(|letter| !is_of_name(letter))
            .map_or(0, |start| {
                start + line[start..].chars().next().map_or(0, char::len_utf8)
            });
        if start < at {
            found.push((line[start..at].to_owned(), section));
        }
    }
    found
}

/// A counter, to whose name Prometheus' library puts an ending, or a section of the proof on
/// FreeBSD.
fn is_composed(facts: &Facts, name: &str) -> bool {
    name.strip_suffix("_total")
        .is_some_and(|name| facts.words.contains(name))
        || facts.words.contains(&format!("section_{name}"))
}

/// `snake_case`, `UPPER_CASE` or `CamelCase`, of two words at least.
fn is_identifier(text: &str) -> bool {
    let of_words = text
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let humps = text.chars().filter(char::is_ascii_uppercase).count();
    let is_camel =
        humps > 1 && text.chars().any(|letter| letter.is_ascii_lowercase()) && !text.contains('_');
    let is_snake = text.contains('_') && !text.ends_with('_') && !text.starts_with('_');
    of_words && starts && (is_snake || is_camel)
}

fn is_type_name(word: &str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_uppercase())
        && word.chars().any(|letter| letter.is_ascii_lowercase())
        && word.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// The types of a path such as `relay::Tickets` or `Chain::finish`.
fn type_names(text: &str) -> Vec<&str> {
    let is_path = text
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':'));
    if !is_path {
        return Vec::new();
    }
    let is_qualified = text.contains("::");
    let parts = text.split("::").filter(|part| !part.is_empty());
    parts
        .filter(|part| is_type_name(part) || is_qualified)
        .collect()
}

/// The keys of a JSON text: those of our files that their readers take, and others that some source
/// has.
fn check_keys(text: &str, line: usize, facts: &Facts, find: &mut impl FnMut(usize, &str, &str)) {
    let text = text.replace(": …", ": null");
    let candidates = [
        text.clone(),
        format!("{{{text}}}"),
        format!("{{{}}}", text.trim_end().trim_end_matches(',')),
    ];
    let parsed = candidates
        .iter()
        .find_map(|candidate| serde_json::from_str::<serde_json::Value>(candidate).ok());
    let Some(value) = parsed else {
        return find(line, "json", "this block is no JSON");
    };
    let is_ours = [
        "command", "url", "ssh", "servers", "users", "groups", "hosts", "agents", "jail", "tools",
    ]
    .iter()
    .any(|key| text.contains(&format!("\"{key}\":")));
    let mut keys = Vec::new();
    collect_keys(&value, &mut keys);
    // A part of a file begins within one of its maps: its first names are the operator's.
    let is_part = !text.trim_start().starts_with('{');
    for (key, depth) in keys {
        if is_placeholder(&key) || is_part && depth == 0 {
            continue;
        }
        let is_known = match is_ours {
            true => facts.keys.contains(&key),
            false => words(&key).all(|word| facts.words.contains(&word)),
        };
        if !is_known {
            let at = text
                .lines()
                .position(|line| line.contains(&format!("\"{key}\"")))
                .unwrap_or(0);
            find(line + at, &key, "no reader of our files has this key");
        }
    }
}

/// The keys of a value, but for those of maps, with their depth.
fn collect_keys(value: &serde_json::Value, keys: &mut Vec<(String, usize)>) {
    fn walk(
        value: &serde_json::Value,
        is_map: bool,
        depth: usize,
        keys: &mut Vec<(String, usize)>,
    ) {
        match value {
            serde_json::Value::Object(members) => {
                for (key, value) in members {
                    if !is_map {
                        keys.push((key.clone(), depth));
                    }
                    walk(
                        value,
                        !is_map && MAPS.contains(&key.as_str()),
                        depth + 1,
                        keys,
                    );
                }
            }
            serde_json::Value::Array(items) => items
                .iter()
                .for_each(|item| walk(item, false, depth + 1, keys)),
            _ => {}
        }
    }
    walk(value, false, 0, keys);
}

/// The names that the opening comment of a library quotes: its modules and items.
pub(super) fn check_front_pages(facts: &Facts, findings: &mut Findings) {
    for line in &facts.front_pages {
        if line.text.contains("```") {
            continue;
        }
        let mut parts = line.text.split('`');
        parts.next();
        while let Some(name) = parts.next() {
            let is_name = !name.is_empty()
                && name
                    .chars()
                    .all(|letter| letter.is_ascii_lowercase() || letter == '_');
            let folder = line.file.trim_end_matches("lib.rs");
            let is_module = [
                format!("{folder}{name}.rs"),
                format!("{folder}{name}/mod.rs"),
            ]
            .iter()
            .any(|file| facts.files.contains(file));
            let package = folder.trim_end_matches("/src/");
            let is_item = facts
                .items
                .get(name)
                .is_some_and(|packages| packages.contains(package));
            if is_name && !is_module && !is_item {
                findings.push(Finding {
                    file: line.file.clone(),
                    line: line.line,
                    name: name.to_owned(),
                    what: "no such module".to_owned(),
                });
            }
            parts.next();
        }
    }
}

/// Each environment variable that a program of the product reads stands in a manual.
pub(super) fn check_variables(facts: &Facts, findings: &mut Findings) {
    let manuals: BTreeSet<String> = facts
        .texts
        .iter()
        .filter(|(path, _)| path.starts_with("docs/man/"))
        .flat_map(|(_, text)| words(text).collect::<Vec<_>>())
        .collect();
    let read = facts.literals.iter().filter(|text| {
        text.strip_prefix("COLIBRI_").is_some_and(|rest| {
            rest.len() > 1
                && !rest.ends_with('_')
                && rest
                    .chars()
                    .all(|letter| letter.is_ascii_uppercase() || letter == '_')
        })
    });
    for name in read.filter(|name| !manuals.contains(*name)) {
        findings.push(Finding {
            file: "docs/man".to_owned(),
            line: 0,
            name: name.clone(),
            what: "no manual has this environment variable, which the product reads".to_owned(),
        });
    }
}
