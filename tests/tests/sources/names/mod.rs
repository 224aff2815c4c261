//! Everything that pages, manuals, scripts and our own messages name exists: commands and flags,
//! services, environment and rc variables, installed paths, files and links, keys, types, tests,
//! and messages that a page quotes.
//!
//! Each kind is checked against what there is: the programs' own help, the sources, the package
//! lists. What a name does is shown elsewhere. `COLIBRI_TEST_SOURCES` names another checkout to
//! look at.

mod commands;
mod documents;
mod exceptions;
mod facts;
mod identifiers;
mod messages;
mod mutations;
mod paths;
mod shell;
mod systems;

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::product::repository;
use commands::Programs;
use documents::{Document, Form};
use facts::Facts;

/// The variable that names another checkout whose pages and scripts are looked at.
const SOURCES: &str = "COLIBRI_TEST_SOURCES";

/// A name that is nothing.
struct Finding {
    file: String,
    line: usize,
    name: String,
    what: String,
}

type Findings = Vec<Finding>;

static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    let root = std::env::var_os(SOURCES).map_or_else(repository, PathBuf::from);
    Facts::read(&root)
});

/// The documents of the repository, with the product's messages.
fn documents(facts: &Facts) -> Vec<Document> {
    let is_history = |path: &str| path == "CHANGELOG.md" || path == "docs/notices.md.old";
    let pages = facts.texts.iter().filter(|(path, _)| !is_history(path));
    let mut documents: Vec<Document> = pages
        .filter_map(|(path, text)| Document::new(path, text))
        .collect();
    documents.extend(facts.messages.iter().map(|message| Document {
        path: message.file.clone(),
        form: Form::Message,
        text: message.text.clone(),
        offset: message.line - 1,
    }));
    documents
}

/// All that is named in a document and is not there.
fn check(document: &Document, facts: &Facts, programs: &Programs) -> Findings {
    let mut findings = Vec::new();
    commands::check(document, facts, programs, &mut findings);
    identifiers::check(document, facts, &mut findings);
    paths::check(document, facts, &mut findings);
    messages::check(document, facts, &mut findings);
    findings
}

#[test]
fn everything_that_is_named_exists() {
    let programs = Programs::default();
    let mut findings = Vec::new();
    for document in documents(&FACTS) {
        findings.extend(check(&document, &FACTS, &programs));
    }
    identifiers::check_front_pages(&FACTS, &mut findings);
    identifiers::check_variables(&FACTS, &mut findings);
    systems::check(&FACTS, &mut findings);
    let left = exceptions::without(findings);
    assert!(left.is_empty(), "{} names\n{}", left.len(), left.join("\n"));
}
