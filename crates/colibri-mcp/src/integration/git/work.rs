//! Operations on a repository: each a call, with its structured result.

use serde_json::{Value, json};

use super::names::{CommitMessage, Slug, WorktreePath};
use super::pending::PendingUpdate;
use super::session::{Credential, GitSession, MAX_OUT, input, machine, refused, unconnected};
use super::worktree::{self, BASE, BASE_NAME, IndexLock, Worktree, tip_of};
use crate::integration::tool_call_error::ToolCallError;

/// The most changes of a status that are told.
const MAX_CHANGES: usize = 1_000;
/// A commit of another repository in a tree.
const SUBMODULE: &str = "160000";
/// The mode of what is not there.
const NOTHING: &str = "000000";

/// Has what origin has.
pub(super) fn fetch(session: &GitSession<'_>) -> Result<Value, ToolCallError> {
    let Some(origin) = &session.repository.origin else {
        return Err(unconnected("the entry's command names no --origin"));
    };
    let mut command = session.git([
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-prune",
        "--no-recurse-submodules",
    ]);
    command.args([
        "--no-write-fetch-head",
        "--no-auto-maintenance",
        "--",
        &origin.url,
    ]);
    command.arg("+refs/heads/*:refs/remotes/origin/*");
    if let Some(Credential { pair, .. }) = &session.repository.credential {
        command
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "http.extraHeader");
        command.env("GIT_CONFIG_VALUE_0", format!("Authorization: Basic {pair}"));
    }
    session.say(&mut command)?;
    match worktree::tip(session, BASE)? {
        Some(sha) => Ok(json!({ "branch": BASE_NAME, "sha": sha })),
        None => Err(refused("origin has no branch main")),
    }
}

/// Makes a worktree on a branch of its own.
pub(super) fn worktree_add(session: &GitSession<'_>, slug: &Slug) -> Result<Value, ToolCallError> {
    let sha = worktree::add(session, slug)?;
    let place = worktree::place(slug);
    Ok(json!({ "slug": slug.as_str(), "branch": slug.branch(), "sha": sha, "worktree": place }))
}

/// Commits what the worktree has at these paths, and nothing else, on its branch. No command that
/// looks at HEAD or has hooks is used: the tree is made in an index of our own, and the branch is
/// moved only from where it was found.
pub(super) fn commit(
    session: &GitSession<'_>,
    slug: &Slug,
    message: &CommitMessage,
    paths: &[WorktreePath],
) -> Result<Value, ToolCallError> {
    if session.repository.person.is_none() {
        return Err(unconnected("the entry's command names no --author"));
    }
    let worktree = worktree::find(session, slug)?;
    let mut lock = IndexLock::take(&worktree)?;
    if PendingUpdate::read(&worktree)?.is_some() {
        return Err(refused(format!(
            "an update of {} is going on: call git_update with continue or abort first",
            slug.branch()
        )));
    }
    let parent = tip_of(session, slug)?;
    let listing = ["--modified", "--deleted", "--others", "--exclude-standard"];
    let paths: Vec<&str> = paths.iter().map(WorktreePath::as_str).collect();
    let tree = tree_with(session, &worktree, &parent, &listing, &paths)?;
    let raw = session.say(&mut session.git([
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--no-renames",
        &parent,
        &tree,
    ]))?;
    let changes = changes(&raw);
    if changes.is_empty() {
        return Err(refused("there is nothing to commit at these paths"));
    }
    refuse_submodules(&changes)?;
    worktree.copy_index(&session.own("theirs"))?;
    let entries: Vec<u8> = changes.iter().flat_map(PathChange::entry).collect();
    let mut command = session.git(["update-index", "-z", "--index-info"]);
    command.env("GIT_INDEX_FILE", session.own("theirs"));
    session.say(worktree.of(command.stdin(file(session, "entries", &entries)?)))?;
    lock.write(&session.own("theirs"))?;
    let mut command = session.git(["commit-tree", &tree, "-p", &parent]);
    let sha = session.line(command.stdin(file(session, "message", message.text().as_bytes())?))?;
    session.say(&mut session.git([
        "update-ref",
        "--no-deref",
        &slug.reference(),
        &sha,
        &parent,
    ]))?;
    lock.put()?;
    match worktree::tip(session, &slug.reference())? {
        Some(at) if at == sha => {}
        _ => {
            return Err(refused(format!(
                "{} has moved since {sha} was committed to it",
                slug.branch()
            )));
        }
    }
    let (slug, branch) = (slug.as_str(), slug.branch());
    Ok(
        json!({ "slug": slug, "branch": branch, "sha": sha, "parent": parent, "files": changes.len() }),
    )
}

/// The tree of a commit or tree with what a worktree has at these paths now, as far as `git
/// ls-files` lists it.
///
/// # Errors
/// Something there cannot be read, or is a repository of its own.
pub(super) fn tree_with(
    session: &GitSession<'_>,
    worktree: &Worktree,
    base: &str,
    listing: &[&str],
    paths: &[&str],
) -> Result<String, ToolCallError> {
    session.say(&mut session.git(["read-tree", base]))?;
    let mut command = session.git(["ls-files", "-z"]);
    command
        .args(listing)
        .args(["--deduplicate", "--"])
        .args(paths);
    let listed = session.succeed(worktree.of(&mut command), MAX_OUT)?;
    if let Some(place) = unread(&listed.err) {
        return Err(unreadable(&place));
    }
    let changed = listed.out;
    if let Some(nested) = changed
        .split(|byte| *byte == 0)
        .find(|path| path.ends_with(b"/"))
    {
        let nested = colibri_text::brief(&String::from_utf8_lossy(nested), 200);
        return Err(refused(format!(
            "{nested} is a repository of its own: name other paths"
        )));
    }
    let (mut there, mut gone) = (Vec::new(), Vec::new());
    for path in changed.split_inclusive(|byte| *byte == 0) {
        let name = &path[..path.len() - 1];
        let is_there = worktree.has_file(name);
        match is_there.map_err(|_| unreadable(&String::from_utf8_lossy(name)))? {
            true => there.push(path),
            false => gone.push(path),
        }
    }
    for (list, flag) in [(gone, "--force-remove"), (there, "--add")] {
        let mut command = session.git(["update-index", "-z", "--replace", flag, "--stdin"]);
        command.stdin(file(session, flag, &list.concat())?);
        session.say(worktree.of(&mut command))?;
    }
    session.line(&mut session.git(["write-tree"]))
}

/// The uncommitted changes of a worktree.
pub(super) fn status(session: &GitSession<'_>, slug: &Slug) -> Result<Value, ToolCallError> {
    let worktree = worktree::find(session, slug)?;
    worktree.copy_index(&session.own("index"))?;
    let sha = tip_of(session, slug)?;
    let mut command = session.git([
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=all",
        "--no-renames",
    ]);
    command.args(["--ignore-submodules=all", "--no-ahead-behind"]);
    let ended = session.text(worktree.of(&mut command), MAX_OUT)?;
    // The last of what was cut is not whole.
    let whole = ended
        .out
        .iter()
        .rposition(|byte| *byte == 0)
        .unwrap_or_default();
    let mut lines = ended.out[..whole]
        .split(|byte| *byte == 0)
        .filter(|line| line.len() > 3);
    let change = |line: &[u8]| {
        let (state, path) = (
            String::from_utf8_lossy(&line[..2]),
            String::from_utf8_lossy(&line[3..]),
        );
        json!({ "state": state, "path": path })
    };
    let changes: Vec<Value> = lines.by_ref().take(MAX_CHANGES).map(change).collect();
    let is_cut = ended.is_cut || lines.next().is_some();
    let pending = PendingUpdate::read(&worktree)?;
    let (update, conflicts) =
        pending.map_or(("none", Vec::new()), |pending| pending.told(&worktree));
    let (slug, branch) = (slug.as_str(), slug.branch());
    Ok(
        json!({ "slug": slug, "branch": branch, "sha": sha, "changes": changes, "truncated": is_cut,
        "update": update, "conflicts": conflicts }),
    )
}

/// The paths that git could not list, which it reports beside a success.
fn unread(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let place = said.split_once("could not open directory '")?.1;
    Some(place.split('\'').next().unwrap_or_default().to_owned())
}

/// The refusal where existing files cannot be told from missing ones.
fn unreadable(place: &str) -> ToolCallError {
    let place = colibri_text::brief(place, 200);
    refused(format!(
        "{place} cannot be read: make it readable, or name other paths"
    ))
}

pub(super) fn file(
    session: &GitSession<'_>,
    name: &str,
    contents: &[u8],
) -> Result<std::fs::File, ToolCallError> {
    input(&session.own(name), contents).map_err(|error| machine("a file of its own", &error))
}

/// Refuses what would commit another repository.
pub(super) fn refuse_submodules(changes: &[PathChange<'_>]) -> Result<(), ToolCallError> {
    if let Some(change) = changes.iter().find(|change| change.is_submodule()) {
        let path = colibri_text::brief(&String::from_utf8_lossy(change.path), 200);
        return Err(refused(format!(
            "{path} is a submodule, which is for people: name other paths"
        )));
    }
    Ok(())
}

/// The difference between two trees at a path.
pub(super) struct PathChange<'a> {
    /// Modes before and after, object before and after, and a letter.
    facts: Vec<&'a str>,
    pub(super) path: &'a [u8],
}

impl PathChange<'_> {
    fn is_submodule(&self) -> bool {
        self.facts[..2].contains(&SUBMODULE)
    }

    /// True if another repository stands there before and after.
    pub(super) fn stays_submodule(&self) -> bool {
        self.facts[..2] == [SUBMODULE; 2]
    }

    pub(super) fn is_new(&self) -> bool {
        self.facts[0] == NOTHING
    }

    pub(super) fn is_removal(&self) -> bool {
        self.facts[1] == NOTHING
    }

    /// The same as an index is told; a mode of zeros takes it out.
    fn entry(&self) -> Vec<u8> {
        let mode = self.facts[1].trim_start_matches('0');
        let mode = if mode.is_empty() { "0" } else { mode };
        [
            format!("{mode} {}\t", self.facts[3]).as_bytes(),
            self.path,
            b"\0",
        ]
        .concat()
    }
}

/// Reads the output of `git diff-tree --raw -z`.
pub(super) fn changes(raw: &[u8]) -> Vec<PathChange<'_>> {
    let mut parts = raw.split(|byte| *byte == 0);
    let mut changes = Vec::new();
    while let (Some(facts), Some(path)) = (parts.next(), parts.next()) {
        let facts: Vec<&str> = std::str::from_utf8(facts)
            .unwrap_or_default()
            .trim_start_matches(':')
            .split(' ')
            .collect();
        if facts.len() == 5 {
            changes.push(PathChange { facts, path });
        }
    }
    changes
}
