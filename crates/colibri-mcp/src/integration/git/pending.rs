//! An update that is going on in a worktree: its file, and the conflicts that are not resolved yet.

use std::fs;
use std::io::{self, Read as _};

use colibri_files::replace_file_unsynced;
use serde_json::{Value, json};

use super::session::machine;
use super::worktree::{self, Worktree};
use crate::integration::tool_call_error::ToolCallError;

/// The name of the file that says what is going on, and its most bytes.
const PENDING: &str = "colibri-update";
const MAX_PENDING: u64 = 4 << 20;
/// The most bytes of a file that are searched for markers.
const MAX_SEARCHED: u64 = 64 << 20;
/// The sides' names in markers.
pub(super) const BRANCH: &str = "BRANCH";
pub(super) const ORIGIN: &str = "ORIGIN";

/// An update that is going on.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingUpdate {
    pub(super) rebase: bool,
    /// The commit of origin/main that is taken in.
    pub(super) onto: String,
    /// The branch's commit before it.
    pub(super) original: String,
    /// The commit that what has been rebased has come to.
    pub(super) tip: String,
    /// The commits that are still to be rebased; the first is the one with conflicts.
    pub(super) commits: Vec<String>,
    /// The tree that the worktree is to have.
    pub(super) tree: String,
    /// True if the worktree has it.
    pub(super) is_placed: bool,
    pub(super) conflicts: Vec<Conflict>,
}

/// A path that could not be merged.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Conflict {
    pub(super) path: String,
    /// The kind as git names it, like `contents` or `modify/delete`.
    pub(super) kind: String,
}

impl PendingUpdate {
    /// The update of a worktree, if one is going on.
    ///
    /// # Errors
    /// The file that says so is not one of ours.
    pub(super) fn read(worktree: &Worktree) -> Result<Option<PendingUpdate>, ToolCallError> {
        let path = worktree.known(PENDING);
        let odd = |error: io::Error| machine(&format!(".git/worktrees/…/{PENDING}"), &error);
        let mut text = String::new();
        match worktree::open_file(&path) {
            Ok(file) => file
                .take(MAX_PENDING)
                .read_to_string(&mut text)
                .map_err(odd)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(odd(error)),
        };
        let pending: PendingUpdate =
            serde_json::from_str(&text).map_err(|error| odd(error.into()))?;
        let is_sha =
            |text: &String| text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let named = [
            &pending.onto,
            &pending.original,
            &pending.tip,
            &pending.tree,
        ];
        let is_ours = named.into_iter().chain(&pending.commits).all(is_sha);
        match is_ours {
            true => Ok(Some(pending)),
            false => Err(odd(io::Error::other("it names no commits"))),
        }
    }

    /// Writes it to its file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, worktree: &Worktree) -> Result<(), ToolCallError> {
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let written =
            text.and_then(|text| replace_file_unsynced(&worktree.known(PENDING), &text, 0o600));
        written.map_err(|error| machine("the file of an update", &error))
    }

    /// `merge` or `rebase`, and the conflicts; those with markers are not resolved.
    pub(super) fn told(&self, worktree: &Worktree) -> (&'static str, Vec<Value>) {
        let conflicts = self.conflicts.iter().map(
            |Conflict { path, kind }| json!({ "path": path, "kind": kind, "markers": worktree.has_markers(path) }),
        );
        (
            if self.rebase { "rebase" } else { "merge" },
            conflicts.collect(),
        )
    }

    /// Nothing is going on any more.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(super) fn end(worktree: &Worktree) -> Result<(), ToolCallError> {
        fs::remove_file(worktree.known(PENDING))
            .map_err(|error| machine("the file of an update", &error))
    }
}

impl Worktree {
    /// True if a file in it has markers of a conflict, as an update makes them.
    pub(super) fn has_markers(&self, path: &str) -> bool {
        let mut text = Vec::new();
        let file = worktree::open_file(&self.at(path));
        let read = file.and_then(|file| file.take(MAX_SEARCHED).read_to_end(&mut text));
        read.is_ok() && text.split(|byte| *byte == b'\n').any(is_marker)
    }
}

/// True for `<<<<<<< BRANCH`, and what else begins or ends a conflict.
fn is_marker(line: &[u8]) -> bool {
    [b'<', b'>'].iter().any(|mark| {
        let length = line.iter().take_while(|byte| *byte == mark).count();
        let side = line[length..].strip_prefix(b" ").unwrap_or_default();
        length >= 7
            && [BRANCH, ORIGIN]
                .iter()
                .any(|name| side.starts_with(name.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_ours_alone() {
        for (line, expected) in [
            ("<<<<<<< BRANCH", true),
            (">>>>>>> ORIGIN:old/name", true),
            ("<<<<<<<<< ORIGIN", true),
            ("<<<<<< BRANCH", false),
            ("=======", false),
            ("<<<<<<< HEAD", false),
            ("  <<<<<<< BRANCH", false),
            ("", false),
        ] {
            assert_eq!(is_marker(line.as_bytes()), expected, "{line}");
        }
    }
}
