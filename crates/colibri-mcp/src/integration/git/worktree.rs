//! A worktree of an agent's: where it is, that it is what it should be, and how it is made.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, renameat};
use nix::sys::stat::{Mode, mkdirat};
use serde_json::{Value, json};

use super::names::Slug;
use super::placing::{descend, open};
use super::session::{GitSession, MAX_OUT, input, is_directory, machine, refused};
use crate::integration::tool_call_error::ToolCallError;

/// The directory of worktrees in the repository.
const PLACE: [&str; 2] = [".worktrees", "claude"];
/// The base of new branches, and its name for people.
pub(super) const BASE: &str = "refs/remotes/origin/main";
pub(super) const BASE_NAME: &str = "origin/main";

/// The most worktrees of a list.
const MAX_LISTED: usize = 1_000;

/// A worktree that is there.
pub(super) struct Worktree {
    path: PathBuf,
    index: PathBuf,
}

impl Worktree {
    /// Has a command work in it.
    pub(super) fn of<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("GIT_WORK_TREE", &self.path)
            .current_dir(&self.path)
    }

    /// True if a file or a link stands at a path in it, and directories before that.
    ///
    /// # Errors
    /// Nobody can say: a directory on the way cannot be searched.
    pub(super) fn has_file(&self, path: &[u8]) -> io::Result<bool> {
        let (mut at, mut is_directory) = (self.path.clone(), true);
        for part in Path::new(OsStr::from_bytes(path)) {
            if !is_directory {
                return Ok(false);
            }
            at.push(part);
            match at.symlink_metadata() {
                Ok(facts) => is_directory = facts.is_dir(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(!is_directory)
    }

    /// The place of a path in it.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// A file or directory of git's own about it.
    pub(super) fn known(&self, name: &str) -> PathBuf {
        self.index.with_file_name(name)
    }

    /// Its directory, to which no link has led.
    pub(super) fn root(session: &GitSession<'_>, slug: &Slug) -> Result<OwnedFd, Errno> {
        let mut at = open(AT_FDCWD, &session.repository.path)?;
        for part in PLACE.into_iter().chain([slug.as_str()]) {
            at = open(&at, Path::new(part))?;
        }
        Ok(at)
    }

    /// True if nothing differs from its branch; new files count if `untracked`.
    ///
    /// # Errors
    /// git cannot say.
    pub(super) fn is_clean(
        &self,
        session: &GitSession<'_>,
        untracked: bool,
    ) -> Result<bool, ToolCallError> {
        self.copy_index(&session.own("looked"))?;
        let files = if untracked { "all" } else { "no" };
        let mut command = session.git([
            "status",
            "--porcelain",
            "-z",
            "--no-renames",
            "--ignore-submodules=all",
        ]);
        command.arg(format!("--untracked-files={files}"));
        let ended = session.text(
            self.of(command.env("GIT_INDEX_FILE", session.own("looked"))),
            MAX_OUT,
        )?;
        Ok(ended.out.is_empty())
    }

    /// Copies its index, which is then read and written without a lock.
    ///
    /// # Errors
    /// It is no regular file.
    pub(super) fn copy_index(&self, to: &Path) -> Result<(), ToolCallError> {
        let copied = open_file(&self.index).and_then(|from| copy(from, &mut File::create(to)?));
        copied.map_err(|error| machine("the worktree's index", &error))
    }
}

/// The lock of a worktree's index, as git itself takes it; nobody else's git changes the index
/// meanwhile.
pub(super) struct IndexLock {
    index: PathBuf,
    file: File,
    is_held: bool,
}

impl IndexLock {
    /// # Errors
    /// Somebody has it, which passes; or it cannot be had.
    pub(super) fn take(worktree: &Worktree) -> Result<IndexLock, ToolCallError> {
        let index = worktree.index.clone();
        let path = index.with_extension("lock");
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(path)
        {
            Ok(file) => Ok(IndexLock {
                index,
                file,
                is_held: true,
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let why = "another git works in this worktree: its index.lock is there";
                Err(ToolCallError::transient("GIT_BUSY", why))
            }
            Err(error) => Err(machine("the worktree's index.lock", &error)),
        }
    }

    /// Writes what the index will be.
    pub(super) fn write(&mut self, from: &Path) -> Result<(), ToolCallError> {
        let copied = File::open(from).and_then(|from| copy(from, &mut self.file));
        copied.map_err(|error| machine("the worktree's index.lock", &error))
    }

    /// Has what was written be the index.
    pub(super) fn put(mut self) -> Result<(), ToolCallError> {
        self.is_held = false;
        fs::rename(self.index.with_extension("lock"), &self.index)
            .map_err(|error| machine("the worktree's index", &error))
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        if self.is_held {
            let _ = fs::remove_file(self.index.with_extension("lock"));
        }
    }
}

/// The path of a worktree in the repository's own text.
pub(super) fn place(slug: &Slug) -> String {
    format!("{}/{}", PLACE.join("/"), slug.as_str())
}

/// Finds a worktree, on whose branch it must be.
///
/// # Errors
/// It is not there, is a link, or is on another branch.
pub(super) fn find(session: &GitSession<'_>, slug: &Slug) -> Result<Worktree, ToolCallError> {
    let mut path = session.repository.path.clone();
    for part in PLACE.into_iter().chain([slug.as_str()]) {
        path.push(part);
        if !is_directory(&path) {
            return Err(refused(format!(
                "there is no worktree {}: make it with git_worktree_add",
                place(slug)
            )));
        }
    }
    let mut known = session.repository.path.join(".git");
    for part in ["worktrees", slug.as_str()] {
        known.push(part);
        if !is_directory(&known) {
            return Err(refused(format!("git knows of no worktree {}", place(slug))));
        }
    }
    let head =
        read_small(&known.join("HEAD")).map_err(|error| machine("the worktree's HEAD", &error))?;
    if head.trim_end() != format!("ref: {}", slug.reference()) {
        return Err(refused(format!(
            "the worktree {} is not on {}: a person has to look at it",
            place(slug),
            slug.branch()
        )));
    }
    Ok(Worktree {
        path,
        index: known.join("index"),
    })
}

/// The commit that a branch is at; `None` if there is no such branch.
///
/// # Errors
/// It is another name for some other branch, which would be written in its place.
pub(super) fn tip(
    session: &GitSession<'_>,
    reference: &str,
) -> Result<Option<String>, ToolCallError> {
    let format = "--format=%(refname)%00%(objectname)%00%(objecttype)%00%(symref)";
    let said = session.line(&mut session.git(["for-each-ref", format, reference]))?;
    for line in said.lines() {
        let parts: Vec<&str> = line.split('\0').collect();
        match parts[..] {
            [name, id, "commit", ""] if name == reference => return Ok(Some(id.to_owned())),
            [name, ..] if name == reference => {
                return Err(refused(format!(
                    "{reference} is no branch of its own: a person has to look at it"
                )));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The commit that origin/main is at.
///
/// # Errors
/// It was never fetched.
pub(super) fn base_of(session: &GitSession<'_>) -> Result<String, ToolCallError> {
    let base = tip(session, BASE)?;
    base.ok_or_else(|| {
        refused(format!(
            "{BASE_NAME} is not known here yet: call git_fetch first"
        ))
    })
}

/// The commit that the branch of a worktree is at.
pub(super) fn tip_of(session: &GitSession<'_>, slug: &Slug) -> Result<String, ToolCallError> {
    let tip = tip(session, &slug.reference())?;
    tip.ok_or_else(|| {
        refused(format!(
            "there is no branch {}: make it with git_worktree_add",
            slug.branch()
        ))
    })
}

/// Makes a worktree on a new branch at origin/main, as `git worktree add` would, without ever
/// writing where an agent can: files are checked out inside `.git`, and the whole is moved to its
/// place at the end. Returns the commit.
///
/// # Errors
/// There is such a branch, or something at the place, or a link on the way to it.
pub(super) fn add(session: &GitSession<'_>, slug: &Slug) -> Result<String, ToolCallError> {
    let base = base_of(session)?;
    if tip(session, &slug.reference())?.is_some() {
        return Err(refused(format!(
            "the branch {} is there already: take another slug",
            slug.branch()
        )));
    }
    let root = &session.repository.path;
    if root.join(place(slug)).symlink_metadata().is_ok() {
        return Err(refused(format!(
            "there is something at {} already",
            place(slug)
        )));
    }
    let odd = |errno: Errno| {
        refused(format!(
            "{} cannot hold worktrees: {errno}",
            PLACE.join("/")
        ))
    };
    let top = open(AT_FDCWD, root).map_err(odd)?;
    let mut shelf = top;
    for part in PLACE {
        shelf = descend(&shelf, part, Mode::from_bits_truncate(0o755)).map_err(odd)?;
    }
    let theirs = open(AT_FDCWD, &root.join(".git")).map_err(odd)?;
    let all = descend(&theirs, "worktrees", Mode::from_bits_truncate(0o755)).map_err(odd)?;
    let made = mkdirat(&all, slug.as_str(), Mode::from_bits_truncate(0o755));
    made.map_err(|errno| {
        refused(format!(
            "git cannot know the worktree {}: {errno}",
            slug.as_str()
        ))
    })?;
    let known = GitDirectoryGuard(Some(root.join(".git/worktrees").join(slug.as_str())));
    known.fill(session, slug, &base)?;
    let nothing = "0".repeat(base.len());
    session.say(&mut session.git([
        "update-ref",
        "--no-deref",
        &slug.reference(),
        &base,
        &nothing,
    ]))?;
    let own = descend(&all, slug.as_str(), Mode::from_bits_truncate(0o755)).map_err(odd)?;
    renameat(&own, "tree", &shelf, slug.as_str()).map_err(|errno| {
        let why = format!(
            "the branch {} is made, but its worktree cannot stand at {}: {errno}",
            slug.branch(),
            place(slug)
        );
        refused(why)
    })?;
    known.keep();
    match tip(session, &slug.reference())? {
        Some(at) if at == base => Ok(base),
        _ => Err(refused(format!(
            "{} has moved while it was made",
            slug.branch()
        ))),
    }
}

/// Removes a worktree and its branch, after which the slug is free. Commits that origin does not
/// have, and files that are not committed, are lost from sight only if they are to be discarded;
/// such commits stay below `refs/removed`.
///
/// # Errors
/// There is none, something of it would be lost, or it is not what [`find`] takes for one.
pub(super) fn remove(
    session: &GitSession<'_>,
    slug: &Slug,
    discard: bool,
) -> Result<Value, ToolCallError> {
    let root = &session.repository.path;
    let (path, known) = (
        root.join(place(slug)),
        root.join(".git/worktrees").join(slug.as_str()),
    );
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let tip = tip(session, &slug.reference())?;
    if tip.is_none() && !is_there(&path) && !is_there(&known) {
        return Err(refused(format!("there is no worktree {}", place(slug))));
    }
    if is_there(&known.join("locked")) {
        return Err(refused(format!(
            "the worktree {} is locked by a person",
            place(slug)
        )));
    }
    let worktree = is_there(&path).then(|| find(session, slug)).transpose()?;
    let _lock = worktree.as_ref().map(IndexLock::take).transpose()?;
    let again = "or repeat this with discard";
    if let Some(worktree) = worktree.as_ref().filter(|_| !discard)
        && !worktree.is_clean(session, true)?
    {
        return Err(refused(format!(
            "{} has changes that are not committed: commit them, {again}",
            place(slug)
        )));
    }
    let mut orders = String::new();
    if let Some(tip) = &tip {
        let contains = [
            "for-each-ref",
            "--count=1",
            "--contains",
            &**tip,
            "refs/remotes/origin/",
        ];
        if session.line(&mut session.git(contains))?.is_empty() {
            if !discard {
                let why = format!(
                    "{} has commits that origin does not have: have them pushed, {again}",
                    slug.branch()
                );
                return Err(refused(why));
            }
            orders = format!("update refs/removed/{}/{tip} {tip}\n", slug.as_str());
        }
        orders += &format!("option no-deref\ndelete {} {tip}\n", slug.reference());
    }
    let odd = |errno: Errno| refused(format!("{} cannot be removed: {errno}", place(slug)));
    let mut left = String::new();
    if worktree.is_some() {
        let mut shelf = open(AT_FDCWD, root).map_err(odd)?;
        for part in PLACE {
            shelf = open(&shelf, Path::new(part)).map_err(odd)?;
        }
        // A name that is no slug, and that nobody can know before.
        let own = session
            .own("")
            .file_name()
            .map(OsStr::to_owned)
            .unwrap_or_default();
        left = format!(".removed-{}-{}", slug.as_str(), own.to_string_lossy());
        renameat(&shelf, slug.as_str(), &shelf, &*left).map_err(odd)?;
        left = format!("{}/{left}", PLACE.join("/"));
    }
    let file = input(&session.own("orders"), orders.as_bytes())
        .map_err(|error| machine("a file of its own", &error))?;
    let moved = session.say(session.git(["update-ref", "--stdin"]).stdin(file));
    if let Err(failed) = moved {
        if worktree.is_some() {
            let _ = fs::rename(root.join(&left), &path);
        }
        return Err(failed);
    }
    let removed = match is_directory(&root.join(".git/worktrees")) && is_there(&known) {
        true => fs::remove_dir_all(&known),
        false => Ok(()),
    };
    removed.map_err(|error| machine("git's own directory of the worktree", &error))?;
    if worktree.is_some() && fs::remove_dir_all(root.join(&left)).is_ok() {
        left.clear();
    }
    let (slug, branch) = (slug.as_str(), slug.branch());
    Ok(json!({ "slug": slug, "branch": branch, "sha": tip.unwrap_or_default(), "left": left }))
}

/// All worktrees, and branches that are left of some.
///
/// # Errors
/// git cannot say.
pub(super) fn list(session: &GitSession<'_>) -> Result<Value, ToolCallError> {
    let said = session.line(&mut session.git([
        "for-each-ref",
        "--format=%(refname:lstrip=3)",
        "refs/heads/feature/",
    ]))?;
    let known = fs::read_dir(session.repository.path.join(".git/worktrees"));
    let known = known
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let slugs: BTreeSet<String> = said.lines().map(str::to_owned).chain(known).collect();
    let slugs = slugs
        .into_iter()
        .filter_map(|slug| Slug::try_from(slug).ok());
    let mut slugs: Vec<Slug> = slugs.take(MAX_LISTED + 1).collect();
    let is_cut = slugs.len() > MAX_LISTED;
    slugs.truncate(MAX_LISTED);
    let mut worktrees = Vec::new();
    for slug in slugs {
        let tip = tip(session, &slug.reference());
        let problem = find(session, &slug)
            .err()
            .or_else(|| tip.as_ref().err().cloned());
        let problem = problem.map(|problem| problem.message).unwrap_or_default();
        let sha = tip.ok().flatten().unwrap_or_default();
        worktrees.push(json!({ "slug": slug.as_str(), "branch": slug.branch(), "sha": sha, "problem": problem }));
    }
    Ok(json!({ "worktrees": worktrees, "truncated": is_cut }))
}

/// git's own directory of a worktree that is being made; it goes again unless it is kept.
struct GitDirectoryGuard(Option<PathBuf>);

impl GitDirectoryGuard {
    /// Writes what git keeps of a worktree (gitrepository-layout(5)), and the worktree in `tree`.
    fn fill(&self, session: &GitSession<'_>, slug: &Slug, base: &str) -> Result<(), ToolCallError> {
        let Some(known) = &self.0 else { return Ok(()) };
        let place = session.repository.path.join(place(slug)).join(".git");
        let tree = known.join("tree");
        let write = || {
            // So that nobody's git takes it for one that is gone.
            note(&known.join("locked"), "being made\n")?;
            note(&known.join("HEAD"), &format!("ref: {}\n", slug.reference()))?;
            note(&known.join("commondir"), "../..\n")?;
            note(&known.join("gitdir"), &format!("{}\n", place.display()))?;
            fs::create_dir(&tree)?;
            fs::write(tree.join(".git"), format!("gitdir: {}\n", known.display()))
        };
        write().map_err(|error| machine("a new worktree", &error))?;
        let mut command = session.git([
            "read-tree",
            "--reset",
            "-u",
            "--no-recurse-submodules",
            base,
        ]);
        let (path, index) = (tree, known.join("index"));
        command.env("GIT_INDEX_FILE", &index);
        session
            .say(Worktree { path, index }.of(&mut command))
            .map(drop)
    }

    fn keep(mut self) {
        if let Some(known) = self.0.take() {
            let _ = fs::remove_file(known.join("locked"));
        }
    }
}

impl Drop for GitDirectoryGuard {
    fn drop(&mut self) {
        if let Some(known) = &self.0 {
            let _ = fs::remove_dir_all(known);
        }
    }
}

/// Writes a new file of git's own, which no agent of the group may change.
fn note(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// Copies an index with its time, by which git knows what may have changed since within the same
/// second.
fn copy(mut from: File, to: &mut File) -> io::Result<()> {
    io::copy(&mut from, to)?;
    to.set_modified(from.metadata()?.modified()?)
}

/// Opens a regular file, and no link.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_file(path)?.take(1_024).read_to_string(&mut text)?;
    Ok(text)
}
