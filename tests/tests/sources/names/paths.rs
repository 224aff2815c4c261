//! Paths: of files that packages install, of files that programs make, of files of this repository,
//! and links.

use super::commands::is_placeholder;
use super::documents::{Document, Form, Kind};
use super::facts::Facts;
use super::{Finding, Findings};

/// Directories of our own on the two systems, and whether a program makes what is in them.
const PLACES: [(&str, bool); 16] = [
    ("/usr/local/etc/colibri", true),
    ("/usr/local/etc/rc.d/colibri", false),
    ("/usr/local/libexec/colibri", false),
    ("/usr/local/bin/colibri", false),
    ("/usr/local/bin/chibi", false),
    ("/usr/local/sbin/colibri", false),
    ("/usr/local/share/examples/colibri", false),
    ("/usr/local/share/doc/colibri", false),
    ("/usr/bin/colibri", false),
    ("/usr/sbin/colibri", false),
    ("/usr/libexec/colibri", false),
    ("/usr/share/doc/colibri-mcp", false),
    ("/etc/colibri", true),
    ("/var/db/colibri", true),
    ("/var/run/colibri", true),
    ("/run/colibri", true),
];
/// Folders of this repository that quoted paths begin with.
const FOLDERS: [&str; 9] = [
    ".ci/",
    "colibri-jail-helper/",
    "colibri-mcpd/",
    "crates/",
    "deb/",
    "docs/",
    "etc/",
    "port/",
    "tests/",
];
/// Endings of names that are files of this repository, if they have a folder.
const ENDINGS: [&str; 7] = [".rs", ".md", ".sh", ".py", ".in", ".toml", ".sample"];

pub(super) fn check(document: &Document, facts: &Facts, findings: &mut Findings) {
    let mut find = |line: usize, name: &str, what: &str| {
        findings.push(Finding {
            file: document.path.clone(),
            line,
            name: name.to_owned(),
            what: what.to_owned(),
        });
    };
    for (at, line) in document.text.lines().enumerate() {
        for path in absolute_paths(line) {
            if !is_installed(path, facts) {
                find(
                    at + 1 + document.offset,
                    path,
                    "nothing installs or makes this path",
                );
            }
        }
    }
    if document.form != Form::Markdown {
        return;
    }
    for quote in document.quotes() {
        match quote.kind {
            Kind::Span => {
                if let Some(path) = repository_path(&quote.text)
                    && !exists(path, facts)
                {
                    find(quote.line, path, "no such file in the repository");
                }
            }
            Kind::Link => {
                if let Err(what) = follow(document, &quote.text, facts) {
                    find(quote.line, &quote.text, what);
                }
            }
            _ => {}
        }
    }
}

/// The absolute paths of a line that lead to our own places.
fn absolute_paths(line: &str) -> Vec<&str> {
    let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || "/._-<>*%$…".contains(letter);
    line.split(|letter| !is_of_path(letter))
        .map(|path| path.trim_end_matches(['.', '…', '/']))
        .filter(|path| {
            path.starts_with('/') && PLACES.iter().any(|(place, _)| path.starts_with(place))
        })
        .collect()
}

fn is_installed(path: &str, facts: &Facts) -> bool {
    if facts.installed.contains(path) || facts.literals.contains(path) {
        return true;
    }
    let directory = format!("{path}/");
    // A directory that is installed, or above what is.
    if facts
        .installed
        .iter()
        .any(|installed| installed.starts_with(&directory))
    {
        return true;
    }
    let Some((above, name)) = path.rsplit_once('/') else {
        return false;
    };
    // What the operator puts into a directory that is there for it.
    let is_operators = |directory: &str| {
        let directory = format!("{directory}/");
        facts.installed.contains(&directory)
            && !facts
                .installed
                .iter()
                .any(|path| path.starts_with(&directory) && *path != directory)
            && !PLACES
                .iter()
                .any(|(place, _)| directory.trim_end_matches('/') == *place)
    };
    let mut parent = above;
    while let Some((next, _)) = parent.rsplit_once('/') {
        if is_operators(parent) {
            return true;
        }
        parent = next;
    }
    // What a program makes or reads: its name is in the sources.
    let place = PLACES
        .iter()
        .find(|(place, makes)| *makes && path.starts_with(place));
    let Some((place, _)) = place else {
        return false;
    };
    if path == *place || is_placeholder(name) {
        return true;
    }
    let rest = path[place.len()..].trim_start_matches('/');
    rest.split('/').all(|name| {
        is_placeholder(name)
            || name.starts_with(|letter: char| letter.is_ascii_digit())
            || facts.literals.iter().any(|text| {
                text == name
                    || text.ends_with(&format!("/{name}"))
                    || text.contains(&format!("/{name}/"))
            })
    })
}

/// The part of a quoted text that is a path of this repository.
fn repository_path(text: &str) -> Option<&str> {
    let path = text.split([' ', ':']).next()?;
    let is_path = path
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
    let is_ours = FOLDERS.iter().any(|folder| path.starts_with(folder))
        || path.contains('/') && ENDINGS.iter().any(|ending| path.ends_with(ending));
    let is_elsewhere = path.starts_with(['/', '~']) || path.starts_with("target/");
    let is_hidden = path.starts_with('.') && !path.starts_with(".ci/");
    (is_path && is_ours && !is_elsewhere && !is_hidden).then_some(path)
}

fn exists(path: &str, facts: &Facts) -> bool {
    let path = path.trim_end_matches('/');
    let is_there = |path: &str| {
        let below = format!("{path}/");
        facts.files.contains(path)
            || facts
                .files
                .range(below.clone()..)
                .next()
                .is_some_and(|file| file.starts_with(&below))
    };
    if is_there(path) {
        return true;
    }
    if FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.ends_with(".rs") {
        return false;
    }
    // From a crate or one of its rooms, as the page says which.
    let end = format!("/{path}");
    let below = format!("/{path}/");
    facts
        .files
        .iter()
        .any(|file| file.ends_with(&end) || file.contains(&below))
}

/// Follows a link of a page.
fn follow(document: &Document, target: &str, facts: &Facts) -> Result<(), &'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() {
        document.path.clone()
    } else {
        join(&document.path, path)
    };
    let below = format!("{}/", file.trim_end_matches('/'));
    if !facts.files.contains(&file) && !facts.files.iter().any(|path| path.starts_with(&below)) {
        return Err("the link leads nowhere");
    }
    let text = if path.is_empty() {
        document.text.as_str()
    } else {
        facts.text(&file)
    };
    if anchor.is_empty()
        || !file.ends_with(".md")
        || headings(text).iter().any(|heading| heading == anchor)
    {
        return Ok(());
    }
    Err("the page has no such heading")
}

fn join(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => _ = parts.pop(),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a page's headings.
fn headings(text: &str) -> Vec<String> {
    let mut is_fenced = false;
    let lines = text.lines().filter(|line| {
        is_fenced ^= line.trim_start().starts_with("```");
        !is_fenced && line.starts_with('#')
    });
    lines
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
            kept.map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}
