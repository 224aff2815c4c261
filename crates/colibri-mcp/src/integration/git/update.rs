//! A newer origin taken into a branch, by a merge or a rebase.
//!
//! Trees are merged among objects alone (`git merge-tree`), where neither hooks nor drivers of a
//! repository are known. The branch moves once, at the end. Until then a file in git's own
//! directory of the worktree says what is going on, so that it can go on after conflicts, and be
//! given up even if it was cut short.

use std::fs;

use serde_json::{Value, json};

use super::names::Slug;
use super::pending::{BRANCH, Conflict, ORIGIN, PendingUpdate};
use super::placing;
use super::session::{GitSession, MAX_OUT, machine, refused, unconnected};
use super::work::{PathChange, changes, file, refuse_submodules, tree_with};
use super::worktree::{self, BASE_NAME, IndexLock, Worktree, base_of, tip_of};
use crate::integration::tool_call_error::ToolCallError;

/// The most commits of a rebase, conflicts, and bytes of a list of changes.
const MAX_COMMITS: usize = 200;
const MAX_CONFLICTS: usize = 200;
const MAX_CHANGES: usize = 64 << 20;

/// The step of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum UpdateAction {
    Merge,
    Rebase,
    Continue,
    Abort,
}

/// Two sides merged.
struct MergedTree {
    tree: String,
    /// Entries of an index for what conflicts, each ended by NUL.
    entries: Vec<u8>,
    conflicts: Vec<Conflict>,
}

/// Makes a step of an update.
///
/// # Errors
/// There is none to go on with, or one already; something is not committed, or has markers still;
/// git fails.
pub(super) fn update(
    session: &GitSession<'_>,
    slug: &Slug,
    action: UpdateAction,
) -> Result<Value, ToolCallError> {
    if session.repository.person.is_none() {
        return Err(unconnected("the entry's command names no --author"));
    }
    let worktree = worktree::find(session, slug)?;
    let lock = IndexLock::take(&worktree)?;
    let sha = tip_of(session, slug)?;
    let pending = PendingUpdate::read(&worktree)?;
    let of = UpdateStep {
        session,
        slug,
        worktree,
        lock,
    };
    match (action, pending) {
        (UpdateAction::Abort, Some(pending)) => of.give_up(&pending, &sha),
        (UpdateAction::Continue, Some(pending)) => of.go_on(pending, &sha),
        (UpdateAction::Abort | UpdateAction::Continue, None) => Err(refused(format!(
            "no update of {} is going on",
            slug.branch()
        ))),
        (_, Some(_)) => Err(refused(format!(
            "an update of {} is going on: repeat this with continue or abort",
            slug.branch()
        ))),
        (begun, None) => of.begin(begun == UpdateAction::Rebase, sha),
    }
}

/// A step in a worktree whose index is locked.
struct UpdateStep<'a> {
    session: &'a GitSession<'a>,
    slug: &'a Slug,
    worktree: Worktree,
    lock: IndexLock,
}

impl UpdateStep<'_> {
    fn begin(self, rebase: bool, sha: String) -> Result<Value, ToolCallError> {
        let session = self.session;
        let onto = base_of(session)?;
        if !self.worktree.is_clean(session, false)? {
            return Err(refused(format!(
                "the worktree {} has changes that are not committed: commit them first",
                worktree::place(self.slug)
            )));
        }
        if is_ancestor(session, &onto, &sha)? {
            return Ok(self.answer("current", &sha, &[]));
        }
        let mut commits = Vec::new();
        if rebase {
            let range = format!("{onto}..{sha}");
            let said = session.line(&mut session.git([
                "rev-list",
                "--reverse",
                "--topo-order",
                "--no-merges",
                &*range,
                "--",
            ]))?;
            commits.extend(said.lines().map(str::to_owned));
            if commits.len() > MAX_COMMITS {
                let why = format!(
                    "{} has more than {MAX_COMMITS} commits to rebase: merge instead",
                    self.slug.branch()
                );
                return Err(refused(why));
            }
        }
        let pending = PendingUpdate {
            rebase,
            tip: if rebase { onto.clone() } else { sha.clone() },
            onto,
            original: sha.clone(),
            commits,
            tree: sha.clone(),
            is_placed: true,
            conflicts: Vec::new(),
        };
        self.advance(pending, &sha)
    }

    fn go_on(self, mut pending: PendingUpdate, sha: &str) -> Result<Value, ToolCallError> {
        let session = self.session;
        if *sha != pending.original || !pending.is_placed {
            let why = format!(
                "the update of {} was cut short: repeat this with abort",
                self.slug.branch()
            );
            return Err(refused(why));
        }
        let open = pending
            .conflicts
            .iter()
            .find(|conflict| self.worktree.has_markers(&conflict.path));
        if let Some(Conflict { path, .. }) = open {
            let path = colibri_text::brief(path, 200);
            return Err(refused(format!(
                "{path} has markers of its conflict still: resolve it first"
            )));
        }
        let listing = ["--modified", "--deleted"];
        let tree = tree_with(session, &self.worktree, &pending.tree, &listing, &["."])?;
        refuse_submodules(&changes(&difference(session, &pending.tree, &tree)?))?;
        if pending.rebase {
            if !pending.commits.is_empty() {
                let commit = RebasedCommit::read(session, &pending.commits.remove(0))?;
                pending.tip = commit.repeat(session, &tree, &pending.tip)?;
            }
        } else {
            pending.tip = merge_commit(session, self.slug, &tree, &pending)?;
        }
        self.advance(pending, &tree)
    }

    /// Has the worktree as its branch is, whatever was done in it.
    fn give_up(self, pending: &PendingUpdate, sha: &str) -> Result<Value, ToolCallError> {
        let session = self.session;
        session.say(&mut session.git(["read-tree", sha]))?;
        let mut command =
            session.git(["ls-files", "-z", "--modified", "--deleted", "--deduplicate"]);
        let said = session
            .succeed(self.worktree.of(&mut command), MAX_CHANGES)?
            .out;
        let put: Vec<&[u8]> = said
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .collect();
        let raw = difference(session, &pending.tree, sha)?;
        let changes = changes(&raw);
        let take: Vec<&[u8]> = changes
            .iter()
            .filter(|change| change.is_removal())
            .map(|change| change.path)
            .collect();
        self.place(&put, &take, sha)?;
        self.finish("aborted", sha, None)
    }

    /// Goes on from a worktree that is as `from`, until the end or the next conflict.
    fn advance(mut self, mut pending: PendingUpdate, from: &str) -> Result<Value, ToolCallError> {
        let session = self.session;
        let merged = match pending.rebase {
            true => pending.rebase(session)?,
            false => pending.merge(session, self.slug)?,
        };
        let (tree, entries) = match merged {
            Some(MergedTree {
                tree,
                entries,
                conflicts,
            }) => {
                pending.conflicts = conflicts;
                (tree, entries)
            }
            None => {
                pending.conflicts = Vec::new();
                (pending.tip.clone(), Vec::new())
            }
        };
        pending.tree.clone_from(&tree);
        let raw = difference(session, from, &tree)?;
        let changes = changes(&raw);
        for change in changes.iter().filter(|change| change.is_new()) {
            let is_there = self.worktree.has_file(change.path);
            if is_there.unwrap_or(true) {
                let path = colibri_text::brief(&String::from_utf8_lossy(change.path), 200);
                return Err(refused(format!(
                    "{path} comes from origin, and something stands there: move it away"
                )));
            }
        }
        let is_put = |change: &&PathChange<'_>| !change.is_removal() && !change.stays_submodule();
        let put: Vec<&[u8]> = changes
            .iter()
            .filter(is_put)
            .map(|change| change.path)
            .collect();
        let take: Vec<&[u8]> = changes
            .iter()
            .filter(|change| change.is_removal())
            .map(|change| change.path)
            .collect();
        pending.is_placed = false;
        pending.write(&self.worktree)?;
        self.place(&put, &take, &tree)?;
        if pending.conflicts.is_empty() {
            let (tip, original) = (pending.tip, pending.original);
            return self.finish("done", &tip, Some(&original));
        }
        self.index(&tree, &entries)?;
        let answer = self.answer("conflicts", &pending.original, &pending.conflicts);
        pending.is_placed = true;
        let UpdateStep { worktree, lock, .. } = self;
        lock.put()?;
        pending.write(&worktree)?;
        Ok(answer)
    }

    /// Puts files of a tree into the worktree, and takes others away.
    fn place(&self, put: &[&[u8]], take: &[&[u8]], tree: &str) -> Result<(), ToolCallError> {
        let (session, own) = (self.session, self.session.own("placed"));
        let stage = tempfile::Builder::new()
            .prefix("update-")
            .tempdir_in(self.worktree.known(""));
        let stage = stage.map_err(|error| machine("a directory of its own", &error))?;
        session.say(session.git(["read-tree", tree]).env("GIT_INDEX_FILE", &own))?;
        let list: Vec<u8> = put
            .iter()
            .flat_map(|path| [*path, b"\0"].concat())
            .collect();
        let mut command = session.git(["checkout-index", "-z", "--stdin"]);
        command
            .env("GIT_INDEX_FILE", &own)
            .env("GIT_WORK_TREE", stage.path())
            .current_dir(stage.path());
        session.say(command.stdin(file(session, "put", &list)?))?;
        let odd = |path: &[u8], errno| {
            let path = colibri_text::brief(&String::from_utf8_lossy(path), 200);
            refused(format!(
                "{path} cannot be replaced: {errno}; move away what stands there, and call git_update with abort"
            ))
        };
        let root = Worktree::root(session, self.slug).map_err(|errno| odd(b".", errno))?;
        for path in take.iter().rev() {
            placing::take(&root, path).map_err(|errno| odd(path, errno))?;
        }
        for path in put {
            placing::put(&root, stage.path(), path).map_err(|errno| odd(path, errno))?;
        }
        Ok(())
    }

    /// Writes what the worktree's index will be: a tree, and what conflicts.
    fn index(&mut self, tree: &str, entries: &[u8]) -> Result<(), ToolCallError> {
        let (session, own) = (self.session, self.session.own("theirs"));
        self.worktree.copy_index(&own)?;
        let order = |arguments: &[&str]| {
            let mut command = session.git(arguments);
            self.worktree.of(&mut command).env("GIT_INDEX_FILE", &own);
            command
        };
        session.say(&mut order(&["read-tree", "--reset", tree]))?;
        let entries = file(session, "entries", entries)?;
        session.say(order(&["update-index", "-z", "--index-info"]).stdin(entries))?;
        // It fails for what conflicts, and what it finds changed is left to be seen.
        session.run(&mut order(&["update-index", "-q", "--refresh"]), MAX_OUT)?;
        self.lock.write(&own)
    }

    /// Nothing is going on any more; the branch comes from `original` to `sha`.
    fn finish(
        mut self,
        state: &str,
        sha: &str,
        original: Option<&str>,
    ) -> Result<Value, ToolCallError> {
        let session = self.session;
        self.index(sha, b"")?;
        if let Some(original) = original {
            session.say(&mut session.git([
                "update-ref",
                "--no-deref",
                &self.slug.reference(),
                sha,
                original,
            ]))?;
        }
        let answer = self.answer(state, sha, &[]);
        let UpdateStep { worktree, lock, .. } = self;
        lock.put()?;
        PendingUpdate::end(&worktree)?;
        Ok(answer)
    }

    fn answer(&self, state: &str, sha: &str, conflicts: &[Conflict]) -> Value {
        let conflicts: Vec<Value> = conflicts
            .iter()
            .map(|conflict| json!({ "path": conflict.path, "kind": conflict.kind }))
            .collect();
        json!({ "slug": self.slug.as_str(), "branch": self.slug.branch(), "sha": sha, "update": state, "conflicts": conflicts })
    }
}

impl PendingUpdate {
    /// Merges both, unless that is done; `None`: `tip` is the end.
    fn merge(
        &mut self,
        session: &GitSession<'_>,
        slug: &Slug,
    ) -> Result<Option<MergedTree>, ToolCallError> {
        if self.tip != self.original {
            return Ok(None);
        }
        if is_ancestor(session, &self.original, &self.onto)? {
            self.tip.clone_from(&self.onto);
            return Ok(None);
        }
        let merged = MergedTree::of(session, (BRANCH, &self.original), (ORIGIN, &self.onto))?;
        if merged.conflicts.is_empty() {
            self.tip = merge_commit(session, slug, &merged.tree, self)?;
            return Ok(None);
        }
        Ok(Some(merged))
    }

    /// Rebases commits up to the first that conflicts; `None`: `tip` is the end.
    fn rebase(&mut self, session: &GitSession<'_>) -> Result<Option<MergedTree>, ToolCallError> {
        while let Some(first) = self.commits.first() {
            let commit = RebasedCommit::read(session, first)?;
            // Commits of nobody's that have left each other where this one's parent is: git knows
            // no such option before 2.40.
            let base = snapshot(session, &commit.parent, None)?;
            let ours = snapshot(session, &self.tip, Some(&base))?;
            let theirs = snapshot(session, first, Some(&base))?;
            let merged = MergedTree::of(session, (ORIGIN, &ours), (BRANCH, &theirs))?;
            if !merged.conflicts.is_empty() {
                return Ok(Some(merged));
            }
            self.tip = commit.repeat(session, &merged.tree, &self.tip)?;
            self.commits.remove(0);
        }
        Ok(None)
    }
}

impl MergedTree {
    /// Merges two commits, each with the name of its side.
    fn of(
        session: &GitSession<'_>,
        ours: (&str, &str),
        theirs: (&str, &str),
    ) -> Result<MergedTree, ToolCallError> {
        for (name, sha) in [ours, theirs] {
            // A reference of our own directory, found before any of the repository's.
            fs::write(session.own(name), format!("{sha}\n"))
                .map_err(|error| machine("a file of its own", &error))?;
        }
        let mut command = session.git([
            "merge-tree",
            "--write-tree",
            "-z",
            "--messages",
            ours.0,
            theirs.0,
        ]);
        let ended = session.run(&mut command, MAX_OUT)?;
        if ended.is_cut {
            return Err(refused(
                "there are too many conflicts: this merge is for a person",
            ));
        }
        if !matches!(ended.status.code(), Some(0 | 1)) {
            return Err(session.failed(&command, &ended));
        }
        let said = MergedTree::read(&ended.out)
            .ok_or_else(|| refused("git merge-tree says what is not known here"))?;
        match ended.status.success() == said.conflicts.is_empty() {
            true => Ok(said),
            false => Err(refused(
                "there are conflicts that are for a person: in submodules, names that are not UTF-8, or more than 200",
            )),
        }
    }

    /// Reads the output of `git merge-tree -z`. What is not for callers to resolve gives no
    /// conflicts.
    fn read(out: &[u8]) -> Option<MergedTree> {
        let mut parts = out.split(|byte| *byte == 0);
        let tree = String::from_utf8(parts.next()?.to_vec()).ok()?;
        let (mut paths, mut stages): (Vec<&[u8]>, Vec<u8>) = (Vec::new(), Vec::new());
        let mut is_ours = true;
        for entry in parts.by_ref().take_while(|entry| !entry.is_empty()) {
            let at = entry.iter().position(|byte| *byte == b'\t')?;
            let path = &entry[at + 1..];
            is_ours &= !entry.starts_with(b"160000 ") && std::str::from_utf8(path).is_ok();
            if paths.last() != Some(&path) {
                paths.push(path);
                stages.extend([format!("0 {}\t", "0".repeat(40)).as_bytes(), path, b"\0"].concat());
            }
            stages.extend([entry, b"\0"].concat());
        }
        let mut kinds: Vec<(&[u8], &[u8])> = Vec::new();
        while let Some(count) = parts
            .next()
            .and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok())
        {
            let named: Vec<&[u8]> = parts.by_ref().take(count).collect();
            let (kind, _) = (parts.next()?, parts.next()?);
            if let (Some(path), Some(kind)) = (named.first(), kind.strip_prefix(b"CONFLICT (")) {
                kinds.push((path, kind.strip_suffix(b")").unwrap_or(kind)));
            }
        }
        is_ours &= paths.len() <= MAX_CONFLICTS;
        let conflicts = paths.iter().filter(|_| is_ours).map(|path| {
            let kind = kinds
                .iter()
                .find(|(of, _)| of == path)
                .map_or(&b"moved"[..], |(_, kind)| kind);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Conflict {
                path: text(path),
                kind: text(kind),
            }
        });
        Some(MergedTree {
            tree,
            conflicts: conflicts.collect(),
            entries: stages,
        })
    }
}

/// A commit that is made again on another.
struct RebasedCommit {
    parent: String,
    author: [String; 3],
    message: String,
}

impl RebasedCommit {
    fn read(session: &GitSession<'_>, sha: &str) -> Result<RebasedCommit, ToolCallError> {
        let format = "--format=%P%x00%an%x00%ae%x00%ad%x00%B";
        let command = [
            "log",
            "-1",
            "--no-show-signature",
            "--no-notes",
            "--date=raw",
            format,
            sha,
            "--",
        ];
        let said = session.line(&mut session.git(command))?;
        let parts: Vec<&str> = said.splitn(5, '\0').collect();
        match parts[..] {
            [parent, name, address, date, message] if parent.len() == 40 => Ok(RebasedCommit {
                parent: parent.to_owned(),
                author: [name, address, date].map(str::to_owned),
                message: format!("{}\n", message.trim_end()),
            }),
            _ => Err(refused(format!("{sha} cannot be rebased: merge instead"))),
        }
    }

    /// Makes it with this tree; where nothing is left of it, `parent` is what comes of it.
    fn repeat(
        &self,
        session: &GitSession<'_>,
        tree: &str,
        parent: &str,
    ) -> Result<String, ToolCallError> {
        if difference(session, parent, tree)?.is_empty() {
            return Ok(parent.to_owned());
        }
        let mut command = session.git(["commit-tree", tree, "-p", parent]);
        for (name, value) in ["NAME", "EMAIL", "DATE"].iter().zip(&self.author) {
            command.env(format!("GIT_AUTHOR_{name}"), value);
        }
        session.line(command.stdin(file(session, "message", self.message.as_bytes())?))
    }
}

fn merge_commit(
    session: &GitSession<'_>,
    slug: &Slug,
    tree: &str,
    of: &PendingUpdate,
) -> Result<String, ToolCallError> {
    let message = format!("Merge {BASE_NAME} into {}\n", slug.branch());
    let mut command = session.git(["commit-tree", tree, "-p", &of.original, "-p", &of.onto]);
    session.line(command.stdin(file(session, "message", message.as_bytes())?))
}

/// A commit that has another's tree, and nothing else of it.
fn snapshot(
    session: &GitSession<'_>,
    of: &str,
    parent: Option<&str>,
) -> Result<String, ToolCallError> {
    let mut command = session.git(["commit-tree", &*format!("{of}^{{tree}}"), "-m", "-"]);
    command.args(parent.into_iter().flat_map(|parent| ["-p", parent]));
    for role in ["AUTHOR", "COMMITTER"] {
        // The same each time, so that there is one of it.
        command.env(format!("GIT_{role}_DATE"), "@0 +0000");
    }
    session.line(&mut command)
}

fn is_ancestor(session: &GitSession<'_>, older: &str, newer: &str) -> Result<bool, ToolCallError> {
    let mut command = session.git(["merge-base", "--is-ancestor", older, newer]);
    let ended = session.run(&mut command, MAX_OUT)?;
    match ended.status.code() {
        Some(code @ (0 | 1)) => Ok(code == 0),
        _ => Err(session.failed(&command, &ended)),
    }
}

fn difference(session: &GitSession<'_>, from: &str, to: &str) -> Result<Vec<u8>, ToolCallError> {
    let mut command = session.git(["diff-tree", "-r", "-z", "--raw", "--no-renames", from, to]);
    session
        .succeed(&mut command, MAX_CHANGES)
        .map(|ended| ended.out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[&str], messages: &str) -> Option<MergedTree> {
        let sha = "a".repeat(40);
        let entries: String = entries
            .iter()
            .map(|entry| format!("{}\0", entry.replace('@', &sha)))
            .collect();
        MergedTree::read(format!("{sha}\0{entries}\0{messages}").as_bytes())
    }

    #[test]
    fn conflicts_are_read_with_their_kinds() {
        let entries = ["100644 @ 2\ta\tb\n", "100644 @ 3\ta\tb\n", "100755 @ 1\tc"];
        let messages = "1\0a\tb\n\0Auto-merging\0x\0\
                        2\0a\tb\n\0c\0CONFLICT (contents)\0x\0";
        let merged = read(&entries, messages).unwrap();
        let told: Vec<(&str, &str)> = merged
            .conflicts
            .iter()
            .map(|of| (&*of.path, &*of.kind))
            .collect();
        assert_eq!(told, [("a\tb\n", "contents"), ("c", "moved")]);
        let sha = "a".repeat(40);
        let zeros = "0".repeat(40);
        let expected = format!(
            "0 {zeros}\ta\tb\n\0100644 {sha} 2\ta\tb\n\0100644 {sha} 3\ta\tb\n\00 {zeros}\tc\0100755 {sha} 1\tc\0"
        );
        assert_eq!(String::from_utf8(merged.entries).unwrap(), expected);
        assert!(read(&[], "").unwrap().conflicts.is_empty());
        // What is not for callers.
        assert!(read(&["160000 @ 2\tsub"], "").unwrap().conflicts.is_empty());
        let many: Vec<String> = (0..=MAX_CONFLICTS)
            .map(|n| format!("100644 @ 1\t{n}"))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(read(&many, "").unwrap().conflicts.is_empty());
        for odd in ["x", "100644 @ 2 no-tab"] {
            assert!(read(&[odd], "").is_none());
        }
        assert!(MergedTree::read(b"\xff").is_none());
    }
}
