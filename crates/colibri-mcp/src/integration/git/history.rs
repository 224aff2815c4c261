//! What is committed, and what differs from it: read, never changed.

use serde_json::{Value, json};

use super::names::{CommitName, Slug, WorktreePath};
use super::session::{GitSession, MAX_OUT, refused};
use super::worktree::{self, BASE, BASE_NAME, base_of, tip_of};
use crate::integration::tool_call_error::ToolCallError;

/// The most bytes of a patch or of blamed lines that are told.
const MAX_TEXT: usize = 512 * 1024;
/// The options of every patch: no program of anybody's makes it.
const PATCH: [&str; 5] = [
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=all",
    "--no-color",
    "--no-renames",
];

/// The two sides of a diff.
#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
pub(super) enum Against {
    /// The files of the worktree with the branch.
    #[default]
    #[serde(rename = "branch")]
    Branch,
    /// The branch with where it left origin/main.
    #[serde(rename = "origin/main")]
    Base,
}

/// The lines of a file that are blamed, the first of a file being 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineRange {
    pub(super) from: u32,
    pub(super) count: u32,
}

fn names(paths: &[WorktreePath]) -> impl Iterator<Item = &str> {
    paths.iter().map(WorktreePath::as_str)
}

/// A difference, as text; without paths, all of it.
pub(super) fn diff(
    session: &GitSession<'_>,
    slug: &Slug,
    against: Against,
    paths: &[WorktreePath],
) -> Result<Value, ToolCallError> {
    let worktree = worktree::find(session, slug)?;
    worktree.copy_index(&session.own("index"))?;
    let sha = tip_of(session, slug)?;
    let mut command = session.git(["diff"]);
    command.args(PATCH);
    match against {
        Against::Branch => worktree.of(&mut command).arg(&sha),
        Against::Base => command.arg(format!("{BASE}...{sha}")),
    };
    let ended = session.text(command.arg("--").args(names(paths)), MAX_TEXT)?;
    let text = String::from_utf8_lossy(&ended.out);
    let (slug, branch) = (slug.as_str(), slug.branch());
    Ok(
        json!({ "slug": slug, "branch": branch, "sha": sha, "diff": text, "truncated": ended.is_cut }),
    )
}

/// The last commits of a branch, or of origin/main; without paths, all of them.
pub(super) fn log(
    session: &GitSession<'_>,
    slug: Option<&Slug>,
    count: u8,
    paths: &[WorktreePath],
) -> Result<Value, ToolCallError> {
    let (branch, sha) = match slug {
        Some(slug) => (slug.branch(), tip_of(session, slug)?),
        None => (BASE_NAME.to_owned(), base_of(session)?),
    };
    let format = "--format=%H%x00%an <%ae>%x00%aI%x00%s";
    let mut command = session.git([
        "log",
        "-z",
        "--no-color",
        "--no-show-signature",
        "--no-notes",
        format,
    ]);
    command
        .args([&*format!("--max-count={count}"), &sha, "--"])
        .args(names(paths));
    let said = session.say(&mut command)?;
    let said = String::from_utf8_lossy(&said);
    let parts: Vec<&str> = said.split('\0').collect();
    let commits = parts.chunks_exact(4).map(|commit| {
        let [sha, author, date, subject] = [commit[0], commit[1], commit[2], commit[3]];
        json!({ "sha": sha, "author": author, "date": date, "subject": subject })
    });
    Ok(json!({ "branch": branch, "sha": sha, "commits": commits.collect::<Vec<_>>() }))
}

/// A commit, and what it changed at paths; without paths, all of that. A merge is compared with its
/// first parent.
///
/// # Errors
/// There is no such commit, or more than one.
pub(super) fn show(
    session: &GitSession<'_>,
    commit: &CommitName,
    paths: &[WorktreePath],
) -> Result<Value, ToolCallError> {
    let name = commit.as_str();
    let mut command = session.git([
        "rev-parse",
        "--verify",
        "--quiet",
        &*format!("{name}^{{commit}}"),
    ]);
    let ended = session.run(&mut command, MAX_OUT)?;
    let sha = String::from_utf8_lossy(&ended.out).trim_end().to_owned();
    // A reference may be named as a commit's digits are.
    if !ended.status.success() || !sha.starts_with(name) {
        return Err(refused(format!(
            "there is no commit {name} here, or more than one: name all of its digits"
        )));
    }
    let format = "--format=%an <%ae>%x00%aI%x00%P%x00%B";
    let said = session.line(&mut session.git([
        "log",
        "-1",
        "--no-show-signature",
        "--no-notes",
        format,
        &sha,
        "--",
    ]))?;
    let mut said = said.splitn(4, '\0');
    let [author, date, parents, message] = std::array::from_fn(|_| said.next().unwrap_or_default());
    let mut command = session.git(["show", "--format=", "--diff-merges=first-parent"]);
    command
        .args(["--no-show-signature", "--no-notes"])
        .args(PATCH)
        .args([&*sha, "--"]);
    let ended = session.text(command.args(names(paths)), MAX_TEXT)?;
    let parents: Vec<&str> = parents.split_ascii_whitespace().collect();
    Ok(
        json!({ "sha": sha, "author": author, "date": date, "parents": parents, "message": message,
        "diff": String::from_utf8_lossy(&ended.out), "truncated": ended.is_cut }),
    )
}

/// The commit and author of each of some lines of a file, as the branch has them.
pub(super) fn blame(
    session: &GitSession<'_>,
    slug: &Slug,
    path: &WorktreePath,
    LineRange { from, count }: LineRange,
) -> Result<Value, ToolCallError> {
    let sha = tip_of(session, slug)?;
    let mut command = session.git([
        "blame",
        "--root",
        "--abbrev=11",
        "--date=short",
        "--no-textconv",
    ]);
    command.args([&*format!("-L{from},+{count}"), &sha, "--", path.as_str()]);
    let ended = session.text(&mut command, MAX_TEXT)?;
    let text = String::from_utf8_lossy(&ended.out);
    let (slug, branch) = (slug.as_str(), slug.branch());
    Ok(
        json!({ "slug": slug, "branch": branch, "sha": sha, "blame": text, "truncated": ended.is_cut }),
    )
}
