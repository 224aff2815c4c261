//! A person's file: read, compared, backed up, replaced whole.
//!
//! A change is made in three steps: read ([`Owned::read`]), change the text ([`Kind::set`], [`Kind::remove`]), show it,
//! ask and write (`Change::diff`, [`agree`], `Change::write`).

#[cfg(test)]
mod tests;

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::unistd::Uid;
use similar::TextDiff;

use crate::failure::CommandError;
use crate::interrupt;
use colibri_mcp::edit::{FileFormat, TextError, Value};
use colibri_text::visible_lines;
use colibri_trail::utc;

/// Files and directories that are made are the person's alone: keys may come to stand in them.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The suffix of a backup's name, before the time.
const BACKUP: &str = ".colibri-backup-";
/// No settings file is longer.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Flags that open neither what a symbolic link leads to nor, waiting for its writer, a named pipe.
const NO_LINKS: i32 = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;

/// A file of the person who runs this program, as it was read.
#[derive(Debug)]
pub(crate) struct OwnedFile {
    /// As it was named.
    path: PathBuf,
    /// Its real path: behind symbolic links.
    real: PathBuf,
    /// The directory below which no symbolic link is followed.
    project: Option<PathBuf>,
    /// `None`: it is not there yet.
    text: Option<String>,
}

impl OwnedFile {
    /// Reads the file, or notes that there is none.
    ///
    /// # Errors
    /// It cannot be read, is not a regular file of UTF-8, or belongs to somebody else.
    pub(crate) fn read(path: &Path) -> Result<OwnedFile, CommandError> {
        OwnedFile::read_below(None, path)
    }

    /// Reads a file of the project in this directory, or notes that there is none. Whoever made the project also made its
    /// symbolic links: none is followed, now or when the file is written.
    ///
    /// # Errors
    /// As of [`Owned::read`], or there is a symbolic link on the way.
    pub(crate) fn read_in_project(directory: &Path, name: &Path) -> Result<OwnedFile, CommandError> {
        OwnedFile::read_below(Some(directory), &directory.join(name))
    }

    fn read_below(project: Option<&Path>, path: &Path) -> Result<OwnedFile, CommandError> {
        let path = std::path::absolute(path).map_err(|source| failed(path, source))?;
        let project = project.map(|project| project.canonicalize().map_err(|source| failed(project, source)));
        let project = project.transpose()?;
        let (real, flags) = match &project {
            Some(project) => (path_without_links(project, &path)?, NO_LINKS),
            None => (real_path(&path)?, 0),
        };
        let text = match OpenOptions::new().read(true).custom_flags(flags).open(&real) {
            Ok(file) => Some(read_owned(&path, file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(failed(&path, source)),
        };
        Ok(OwnedFile {
            path,
            real,
            project,
            text,
        })
    }

    /// True if it is there.
    pub(crate) fn exists(&self) -> bool {
        self.text.is_some()
    }

    /// Its text; empty if it is not there.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The fault of its text, as an error that names file, line and column.
    pub(crate) fn fault(&self, fault: TextError) -> CommandError {
        let TextError { line, column, why } = fault;
        let path = self.path.display();
        CommandError::Data(match line {
            0 => format!("{path}: {why}; nothing was written"),
            _ => format!("{path}:{line}:{column}: {why}; nothing was written"),
        })
    }

    /// The change that makes it say `text`.
    pub(crate) fn changed_to(self, text: String) -> FileChange {
        FileChange {
            file: self,
            after: Some(text),
        }
    }

    /// The change that takes out what is at the end of `keys`. Where a kept file differs from this one in nothing else,
    /// it says again what that says; where nothing is left, it is gone.
    ///
    /// # Errors
    /// It is not of this kind.
    pub(crate) fn without(self, kind: FileFormat, keys: &[&str]) -> Result<FileChange, CommandError> {
        let after = self.text_without(kind, keys)?;
        Ok(FileChange { file: self, after })
    }

    /// The text of the same; `None`: nothing is left.
    ///
    /// # Errors
    /// It is not of this kind.
    pub(crate) fn text_without(&self, kind: FileFormat, keys: &[&str]) -> Result<Option<String>, CommandError> {
        let rest = kind.remove(self.text(), keys).map_err(|fault| self.fault(fault))?;
        // Setting and removing takes the layout of both to the same.
        let laid_out = |text: &str| {
            let set = kind.set(text, keys, &Value::Bool(true));
            set.and_then(|text| kind.remove(&text, keys)).ok()
        };
        let same = laid_out(self.text());
        let is_old = |old: &String| kind.get(old, keys) == Ok(None) && laid_out(old) == same;
        // What is kept was written here as a regular file: a link is somebody else's.
        let read = |kept: PathBuf| {
            let file = OpenOptions::new().read(true).custom_flags(NO_LINKS).open(&kept).ok()?;
            read_owned(&kept, file).ok()
        };
        let old = self.kept().into_iter().filter_map(read).find(is_old);
        Ok(old.or((!matches!(rest.trim(), "" | "{}")).then_some(rest)))
    }

    /// The backups of it, newest first.
    fn kept(&self) -> Vec<PathBuf> {
        let begins = beside(&self.real, BACKUP).into_os_string().into_encoded_bytes();
        let entries = self.real.parent().and_then(|directory| fs::read_dir(directory).ok());
        let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut kept: Vec<PathBuf> = paths
            .filter(|path| path.as_os_str().as_encoded_bytes().starts_with(&begins))
            .collect();
        kept.sort();
        kept.reverse();
        kept
    }
}

/// The real path of a file. What is behind a symbolic link is replaced there, and the link stays.
fn real_path(path: &Path) -> Result<PathBuf, CommandError> {
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => Err(CommandError::Data(format!(
            "{} is a symbolic link to nothing: make the file, or take the link away",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(source) => Err(failed(path, source)),
    }
}

/// The path of a file below a directory, none of whose parts is a symbolic link.
fn path_without_links(project: &Path, path: &Path) -> Result<PathBuf, CommandError> {
    let mut at = project.to_owned();
    let below = path.strip_prefix(project).unwrap_or(path);
    for part in below.components() {
        at.push(part);
        if at.is_symlink() {
            return Err(CommandError::Data(format!(
                "{} is a symbolic link, and whoever made the project chose where it leads; nothing was written: put a \
                 file of its own there, or leave --project out",
                at.display()
            )));
        }
    }
    Ok(at)
}

fn read_owned(path: &Path, mut file: File) -> Result<String, CommandError> {
    let about = file.metadata().map_err(|source| failed(path, source))?;
    let refuse = |why: &str| {
        Err(CommandError::Data(format!(
            "{} {why}; nothing was written",
            path.display()
        )))
    };
    if !about.is_file() {
        return refuse("is not a regular file");
    }
    if about.uid() != Uid::effective().as_raw() {
        return refuse("belongs to another user");
    }
    if about.len() > MAX_BYTES {
        return refuse("is over 64 MiB");
    }
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes).map_err(|source| failed(path, source))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => refuse("is not UTF-8"),
    }
}

fn failed(path: &Path, source: io::Error) -> CommandError {
    CommandError::File {
        path: path.to_owned(),
        source,
    }
}

/// A change to a file that has not been made yet.
#[derive(Debug)]
pub(crate) struct FileChange {
    file: OwnedFile,
    /// `None`: the file is to go.
    after: Option<String>,
}

impl FileChange {
    /// True if the file is already as it is to be.
    pub(crate) fn is_empty(&self) -> bool {
        self.file.text == self.after
    }

    /// The change, as diff(1) -u shows it.
    pub(crate) fn diff(&self) -> String {
        let path = self.file.path.display().to_string();
        let name = |is_there: bool| if is_there { path.as_str() } else { "/dev/null" };
        let after = self.after.as_deref().unwrap_or_default();
        let diff = TextDiff::from_lines(self.file.text(), after);
        let mut unified = diff.unified_diff();
        unified.context_radius(2);
        unified.header(name(self.file.exists()), name(self.after.is_some()));
        visible_lines(&unified.to_string()).into_owned()
    }

    /// Makes the change, in one step for whoever reads the file. What was kept of the old file, if there was one.
    ///
    /// # Errors
    /// It cannot be written, and nothing was.
    pub(crate) fn write(&self) -> Result<Option<PathBuf>, CommandError> {
        if self.is_empty() {
            return Ok(None);
        }
        let OwnedFile {
            path,
            real,
            project,
            text,
        } = &self.file;
        let at = |source| failed(path, source);
        if OwnedFile::read_below(project.as_deref(), path)?.text != *text {
            return Err(CommandError::Data(format!(
                "{} was changed meanwhile by another program; nothing was written: try again",
                path.display()
            )));
        }
        let about = match text {
            Some(_) => Some(real.metadata().map_err(at)?),
            None => None,
        };
        let kept = match (text, &about) {
            (Some(text), Some(about)) => Some(keep(real, text, about).map_err(at)?),
            _ => None,
        };
        match &self.after {
            None => fs::remove_file(real).map_err(at)?,
            Some(after) => {
                if let Some(directory) = real.parent() {
                    let mut make = fs::DirBuilder::new();
                    make.recursive(true)
                        .mode(DIRECTORY_MODE)
                        .create(directory)
                        .map_err(at)?;
                }
                let new = beside(real, &format!(".colibri-{}", std::process::id()));
                create(&new, after, about.as_ref()).map_err(at)?;
                if let Err(source) = fs::rename(&new, real) {
                    let _ = fs::remove_file(&new);
                    return Err(at(source));
                }
            }
        }
        // What was renamed is there for every reader; only a power failure now could still undo it.
        let _ = real
            .parent()
            .map(|directory| File::open(directory).and_then(|open| open.sync_all()));
        Ok(kept)
    }
}

/// Prompts a person. Without a terminal nobody can be asked.
///
/// # Errors
/// The answer is no.
pub(crate) fn agree(question: &str, yes: bool) -> Result<(), CommandError> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(CommandError::Declined(
            "nothing was written: there is no terminal to ask at; --yes writes without asking".to_owned(),
        ));
    }
    eprint!("{question} [y/N] ");
    let answer = interrupt::read_line()?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(CommandError::Declined("nothing was written".to_owned()))
    }
}

/// Keeps what a file says beside it.
fn keep(real: &Path, text: &str, about: &Metadata) -> io::Result<PathBuf> {
    let suffix = format!("{BACKUP}{}", stamp(SystemTime::now()));
    let mut kept = beside(real, &suffix);
    let mut more = 0;
    loop {
        match create(&kept, text, Some(about)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                more += 1;
                kept = beside(real, &format!("{suffix}-{more}"));
            }
            made => return made.map(|()| kept),
        }
    }
}

/// A path with something after its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Makes a file, with mode and owner as another has them, and sees that it is on the disk. One that fails leaves none.
fn create(path: &Path, text: &str, like: Option<&Metadata>) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    fill(file, text, like).inspect_err(|_| {
        // What made it fail is said.
        let _ = fs::remove_file(path);
    })
}

fn fill(mut file: File, text: &str, like: Option<&Metadata>) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    if let Some(like) = like {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
    }
    file.sync_all()
}

/// A time as YYYYMMDDHHMMSS, UTC.
fn stamp(time: SystemTime) -> String {
    utc(time).strftime("%Y%m%d%H%M%S").to_string()
}
