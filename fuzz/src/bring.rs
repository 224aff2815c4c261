//! What `colibri-mcp add` and `import` read of others: editors' files, `mcp-bridge.toml`,
//! `server.json`, bundles and command lines. Whatever stands in them, each server is a proposal or
//! a reason, under an id that a server may have; what a runner would fetch is never a command; no
//! value of an environment or of headers is in what is told; and no file of a bundle leads out of
//! it.
//!
//! Input: a source, by its place among all (1 byte), and its file. Beyond them: a file that is to
//! be known by its looks, 0x7F a manifest, from 0x80 on a command line. What begins with `PK` is a
//! bundle.

use std::io::{Cursor, Write as _};
use std::path::Path;

use colibri_mcp::importers::{
    ImportSource, Proposal, ProposedProgram, Runs, bundle, command, map_names, read,
};
use colibri_registry::is_server_id;
use serde_json::Value;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// What seeds have in their secrets.
const MARK: &str = "S3CRET";

/// How often the mark stands in what is an environment, or headers.
fn marks(value: &Value, is_field: bool) -> usize {
    match value {
        Value::String(text) if is_field => text.matches(MARK).count(),
        Value::Array(items) => items.iter().map(|item| marks(item, is_field)).sum(),
        Value::Object(members) => {
            let fields = ["env", "environment", "headers", "http_headers"];
            let marks = |(key, value): (&String, _)| {
                marks(value, is_field || fields.contains(&key.as_str()))
            };
            members.iter().map(marks).sum()
        }
        _ => 0,
    }
}

/// No value of an environment or of headers is in what a person is told.
fn check_told(text: &str, proposals: &[Proposal]) {
    let in_fields = serde_json::from_str(text).map_or(0, |file| marks(&file, false));
    for proposal in proposals {
        let told = proposal.notes.iter().chain(proposal.runs.as_ref().err());
        for line in told {
            assert!(
                line.len() < 4096 && !line.contains(|c: char| c.is_control()),
                "{line:?}"
            );
            assert!(
                text.matches(MARK).count() != in_fields || !line.contains(MARK),
                "a secret is told: {line}"
            );
        }
    }
}

/// A bundle with this manifest.
fn bundled(manifest: &str) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in [
        ("manifest.json", manifest),
        ("i.js", "//"),
        ("requirements.txt", "p==1\n"),
    ] {
        let options =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        zip.start_file(name, options).expect("a file in memory");
        zip.write_all(content.as_bytes()).expect("a file in memory");
    }
    zip.finish().expect("a file in memory").into_inner()
}

fn check(proposals: &[Proposal]) {
    let ids = map_names(proposals.iter().map(|one| one.name.as_str()));
    assert_eq!(ids.len(), proposals.len());
    assert!(ids.iter().all(|one| is_server_id(&one.id)));
    for proposal in proposals {
        let Ok(runs) = &proposal.runs else { continue };
        let missing = proposal.missing(&Default::default());
        assert!(missing.iter().all(|key| proposal.wants.contains_key(*key)));
        let Runs::Process(process) = runs else {
            continue;
        };
        match &process.program {
            ProposedProgram::Command(word) => {
                let name = word.plain().unwrap_or_default().rsplit(['/', '\\']).next();
                assert!(
                    !matches!(name, Some("npx" | "uvx" | "bunx" | "mcp-remote")),
                    "a runner is a command"
                );
            }
            ProposedProgram::Package(package) => {
                let words = [&package.name]
                    .into_iter()
                    .chain(&package.with)
                    .chain(&package.version);
                for word in words {
                    assert!(
                        !word.starts_with('-') && !word.contains("://"),
                        "an option or an address is a package"
                    );
                }
            }
            ProposedProgram::Bundled { .. } => {}
        }
    }
}

/// A bundle is what it was, however often it is read, and nothing of it leads out of it.
fn check_bundle(bytes: &[u8], manifest: &str) {
    for platform in ["linux", "darwin"] {
        let Ok(mut found) = bundle(bytes, platform) else {
            continue;
        };
        check(std::slice::from_ref(&found.proposal));
        check_told(manifest, std::slice::from_ref(&found.proposal));
        assert!(bundle(bytes, platform).is_ok_and(|again| again.proposal == found.proposal));
        let paths: Vec<String> = found
            .archive
            .files()
            .map(|(path, _)| path.to_owned())
            .collect();
        for path in paths {
            assert!(
                !path.starts_with('/')
                    && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
            );
            let _ = found.archive.read(&path);
        }
    }
}

/// A file means the same each time, whether its source is told or found out.
fn check_file(source: Option<ImportSource>, name: &str, text: &str) {
    let path = Path::new(name);
    match read(source, path, text) {
        Ok((found, proposals)) => {
            check(&proposals);
            check_told(text, &proposals);
            assert!(source.is_none_or(|source| source == found));
            assert!(read(Some(found), path, text).is_ok_and(|again| again == (found, proposals)));
        }
        Err(error) => {
            let why = format!("{error:#}");
            assert!(
                why.len() < 1024 && !why.contains(|c: char| c.is_control()),
                "{why:?}"
            );
        }
    }
}

/// What the fuzzer calls.
pub fn run(data: &[u8]) {
    let Some((&which, rest)) = data.split_first() else {
        return;
    };
    if rest.starts_with(b"PK") {
        return check_bundle(rest, "");
    }
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    match ImportSource::ALL.get(usize::from(which)) {
        Some(source) => check_file(Some(*source), "file", text),
        None if which == 0x7f => check_bundle(&bundled(text), text),
        None if which < 0x80 => {
            let name = if which & 1 == 0 {
                "file.json"
            } else {
                "file.toml"
            };
            check_file(None, name, text);
        }
        None => {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            check(&[command("x", &words, Default::default(), None)]);
        }
    }
}
