//! MCP's versions: handshake, discovery, capabilities, and the translation of messages between
//! versions.
//!
//! Everything here is a function of bytes: no I/O, no clock, no state but a list walk's. Messages
//! are read in place ([`colibri_wire::Json`]) and changed by splices ([`colibri_wire::Edits`]).
//! `docs/rewrites.md` is the closed list of changes, `docs/errors.md` the list of errors.
//!
//! - [`version`], [`method`], [`Feature`]: the tables of the versions' differences, and of the
//!   kinds of things that servers list.
//! - [`request`]: a client's frame, and the reasons for which it is refused.
//! - [`answer`], [`error`]: the daemon's own answers and errors.
//! - [`input`], [`Askable`]: input that a server requests from the client's side, and the kinds
//!   that a client declares.
//! - [`upstream`]: the daemon as the client of a server process.
//! - [`rewrites`]: a message of one version translated for a peer of another.
//! - [`lists`]: definitions as clients see them, and pages of them.
//! - [`links`]: the URIs in servers' answers.
//! - [`FailureClass`]: if another attempt can help.
//! - [`extensions`]: extensions that are served or passed, and those that the daemon does not know.
//! - [`skills`]: the skills extension.
//! - [`tasks`]: the tasks extension.
//! - [`uri`]: server URIs behind the server's prefix.

pub mod answer;
mod client_info;
mod deferred;
mod elicitation;
mod elicitation_kind;
mod elicitation_support;
pub mod error;
pub mod extensions;
mod failure_class;
mod feature;
pub mod input;
pub mod links;
pub mod lists;
pub mod logging;
mod members;
mod meta_record;
pub mod method;
mod mirrored_argument;
pub mod request;
pub mod rewrites;
pub mod rpc_error;
pub mod skills;
pub mod subscription;
pub mod tasks;
mod towards;
pub mod upstream;
pub mod uri;
pub mod version;

pub use answer::{
    AnswerBody, Capability, ServerIdentity, discover_result, empty_result, initialize_result,
};
pub use client_info::ClientInfo;
pub use deferred::DeferredTask;
pub use elicitation::{ClientReply, Wording, elicitations, read_response};
pub use elicitation_kind::ElicitationKind;
pub use elicitation_support::Askable;
pub use error::{Code, Failure, META_KEPT};
pub use failure_class::{AttemptFailure, FailureCause, FailureClass};
pub use feature::{Feature, Features};
pub use meta_record::MetaRecord;
pub use method::{Method, Route};
pub use mirrored_argument::{MirroredArgument, compare_request, declared_version, request_fields};
pub use request::{
    ClientNotification, Request, SessionPhase, classify, read_initialize, read_notification,
};
pub use rewrites::{AnswerShape, ResultFindings, error_edits, inspect_result, result_edits};
pub use rpc_error::RpcError;
pub use towards::{
    Towards, cancelled_edits, mute_edits, params_edits, progress_edits, quoted, rename_edit,
    required_params,
};
pub use version::{Era, Version};

/// At most the first `longest` bytes of a text, without cutting a character.
fn prefix(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Helpers that the tests of several files use to read and edit messages.
#[cfg(test)]
mod read_in_tests {
    use colibri_wire::{Edits, Json};

    pub(crate) fn json(text: &str) -> Json<'_> {
        Json::parse(text.as_bytes()).unwrap()
    }

    pub(crate) fn apply(text: &str, edits: &Edits) -> String {
        String::from_utf8(edits.apply(text.as_bytes())).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    const REWRITES: &str = include_str!("../../../docs/rewrites.md");

    #[test]
    fn prefixes_end_between_characters() {
        for (longest, expected) in [
            (0, ""),
            (1, "a"),
            (2, "a"),
            (3, "aé"),
            (4, "aéb"),
            (9, "aéb"),
        ] {
            assert_eq!(super::prefix("aéb", longest), expected);
        }
    }

    fn sources(directory: &Path, into: &mut String) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                into.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }

    /// Each row of `docs/rewrites.md` has five cells. The function in the last cell is a test of
    /// this crate, of the daemon, or of its built programs.
    #[test]
    fn every_rewrite_names_a_test_that_exists() {
        let mut source = String::new();
        for directory in [
            "src",
            "../../colibri-mcpd/src",
            "../../colibri-mcpd/tests",
            "../../tests/tests",
        ] {
            sources(
                &Path::new(env!("CARGO_MANIFEST_DIR")).join(directory),
                &mut source,
            );
        }
        let mut rows = 0;
        for line in REWRITES.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(
                cells.len(),
                5,
                "path, direction, condition, edit, test: {line}"
            );
            let test = cells[4].trim_matches('`');
            let declared = format!("fn {test}(");
            let at = source
                .find(&declared)
                .unwrap_or_else(|| panic!("no function {test}, named by: {line}"));
            let before = source[..at].trim_end().trim_end_matches("async").trim_end();
            let is_test = before.ends_with("#[test]") || before.ends_with("#[tokio::test]");
            assert!(is_test, "{test} is no test: {line}");
            rows += 1;
        }
        assert!(rows >= 20, "the table was not found: {rows} rows");
    }
}
