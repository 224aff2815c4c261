//! A worktree of an agent's: where it is, that it is what it should be, and how it is made.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};

use super::names::Slug;
use super::session::{GitSession, is_directory, machine, refused};
use crate::integration::tool_call_error::ToolCallError;

/// The directory of worktrees in the repository.
const PLACE: [&str; 2] = [".worktrees", "claude"];
/// The base of new branches, and its name for people.
pub(super) const BASE: &str = "refs/remotes/origin/main";
pub(super) const BASE_NAME: &str = "origin/main";

/// A worktree that is there.
pub(super) struct Worktree {
    path: PathBuf,
    index: PathBuf,
}

impl Worktree {
    /// Has a command work in it.
    pub(super) fn of<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("GIT_WORK_TREE", &self.path).current_dir(&self.path)
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

    /// Copies its index, which is then read and written without a lock.
    ///
    /// # Errors
    /// It is no regular file.
    pub(super) fn copy_index(&self, to: &Path) -> Result<(), ToolCallError> {
        let copied = open_file(&self.index).and_then(|from| copy(from, &mut File::create(to)?));
        copied.map_err(|error| machine("the worktree's index", &error))
    }
}

/// The lock of a worktree's index, as git itself takes it; nobody else's git changes the index meanwhile.
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
        match OpenOptions::new().write(true).create_new(true).mode(0o644).open(path) {
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
    let head = read_small(&known.join("HEAD")).map_err(|error| machine("the worktree's HEAD", &error))?;
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
pub(super) fn tip(session: &GitSession<'_>, reference: &str) -> Result<Option<String>, ToolCallError> {
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

/// Makes a worktree on a new branch at origin/main, as `git worktree add` would, without ever writing where an agent can:
/// files are checked out inside `.git`, and the whole is moved to its place at the end. Returns the commit.
///
/// # Errors
/// There is such a branch, or something at the place, or a link on the way to it.
pub(super) fn add(session: &GitSession<'_>, slug: &Slug) -> Result<String, ToolCallError> {
    let Some(base) = tip(session, BASE)? else {
        return Err(refused(format!(
            "{BASE_NAME} is not known here yet: call git_fetch first"
        )));
    };
    if tip(session, &slug.reference())?.is_some() {
        return Err(refused(format!(
            "the branch {} is there already: take another slug",
            slug.branch()
        )));
    }
    let root = &session.repository.path;
    if root.join(place(slug)).symlink_metadata().is_ok() {
        return Err(refused(format!("there is something at {} already", place(slug))));
    }
    let odd = |errno: Errno| refused(format!("{} cannot hold worktrees: {errno}", PLACE.join("/")));
    let top = open(AT_FDCWD, root).map_err(odd)?;
    let mut shelf = top;
    for part in PLACE {
        shelf = descend(&shelf, part).map_err(odd)?;
    }
    let theirs = open(AT_FDCWD, &root.join(".git")).map_err(odd)?;
    let all = descend(&theirs, "worktrees").map_err(odd)?;
    let made = mkdirat(&all, slug.as_str(), Mode::from_bits_truncate(0o755));
    made.map_err(|errno| refused(format!("git cannot know the worktree {}: {errno}", slug.as_str())))?;
    let known = GitDirectoryGuard(Some(root.join(".git/worktrees").join(slug.as_str())));
    known.fill(session, slug, &base)?;
    let nothing = "0".repeat(base.len());
    session.say(&mut session.git(["update-ref", "--no-deref", &slug.reference(), &base, &nothing]))?;
    let own = descend(&all, slug.as_str()).map_err(odd)?;
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
        _ => Err(refused(format!("{} has moved while it was made", slug.branch()))),
    }
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
        let mut command = session.git(["read-tree", "--reset", "-u", "--no-recurse-submodules", base]);
        let (path, index) = (tree, known.join("index"));
        command.env("GIT_INDEX_FILE", &index);
        session.say(Worktree { path, index }.of(&mut command)).map(drop)
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

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

fn open(from: impl std::os::fd::AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    openat(from, path, DIRECTORY, Mode::empty())
}

/// Opens a directory in another, made if it is not there; never through a link.
fn descend(from: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match mkdirat(from, name, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => openat(from, name, DIRECTORY, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// Writes a new file of git's own, which no agent of the group may change.
fn note(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())
}

/// Copies an index with its time, by which git knows what may have changed since within the same second.
fn copy(mut from: File, to: &mut File) -> io::Result<()> {
    io::copy(&mut from, to)?;
    to.set_modified(from.metadata()?.modified()?)
}

/// Opens a regular file, and no link.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
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
