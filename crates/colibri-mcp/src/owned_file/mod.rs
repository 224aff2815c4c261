//! A person's file: read, compared, backed up, replaced whole.
//!
//! A change is made in three steps: read ([`OwnedFile::read`]), change the text
//! ([`FileFormat::set`], [`FileFormat::remove`]), show it, ask and write ([`FileChange::diff`],
//! [`agree`], [`FileChange::write`]).

mod backup;
mod new_file;

#[cfg(test)]
mod tests;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use colibri_files::{StagedFile, sync_parent};
use nix::unistd::Uid;
use similar::TextDiff;

use crate::failure::CommandError;
use crate::interrupt;
use backup::{BackupFiles, NO_LINKS, ORIGINAL};
use colibri_mcp::edit::{FileFormat, TextError};
use colibri_text::visible_lines;
use new_file::{FILE_MODE, beside, fill};

/// The mode of directories that are made: the person's alone, as the files in them.
const DIRECTORY_MODE: u32 = 0o700;
/// No settings file is longer.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

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

    /// Reads a file of the project in this directory, or notes that there is none. Whoever made the
    /// project also made its symbolic links: none is followed, now or when the file is written.
    ///
    /// # Errors
    /// As of [`OwnedFile::read`], or there is a symbolic link on the way.
    pub(crate) fn read_in_project(
        directory: &Path,
        name: &Path,
    ) -> Result<OwnedFile, CommandError> {
        OwnedFile::read_below(Some(directory), &directory.join(name))
    }

    fn read_below(project: Option<&Path>, path: &Path) -> Result<OwnedFile, CommandError> {
        let path = std::path::absolute(path).map_err(|source| failed(path, source))?;
        let project = project.map(|project| {
            project
                .canonicalize()
                .map_err(|source| failed(project, source))
        });
        let project = project.transpose()?;
        let (real, flags) = match &project {
            Some(project) => (path_without_links(project, &path)?, NO_LINKS),
            None => (real_path(&path)?, 0),
        };
        let text = match OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&real)
        {
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

    /// The change that makes it say `text`, or takes it away.
    pub(crate) fn changed_to(self, text: impl Into<Option<String>>) -> FileChange {
        FileChange {
            file: self,
            after: text.into(),
            original: OriginalStep::Leave,
        }
    }

    /// The change that takes out what is at the end of `keys`. Where a kept file differs from this
    /// one in nothing else, it says again what that says; where nothing is left, it is gone.
    ///
    /// # Errors
    /// It is not of this kind.
    pub(crate) fn without(
        self,
        kind: FileFormat,
        keys: &[&str],
    ) -> Result<FileChange, CommandError> {
        let after = self.text_without(kind, keys)?;
        Ok(self.changed_to(after))
    }

    /// The text of the same; `None`: nothing is left.
    ///
    /// # Errors
    /// It is not of this kind.
    pub(crate) fn text_without(
        &self,
        kind: FileFormat,
        keys: &[&str],
    ) -> Result<Option<String>, CommandError> {
        let rest = kind
            .remove(self.text(), keys)
            .map_err(|fault| self.fault(fault))?;
        let is_old = |old: &String| {
            kind.get(old, keys) == Ok(None) && kind.differ_only_at(old, self.text(), keys)
        };
        let backups = BackupFiles::of(&self.real).newest_first();
        let old = backups
            .iter()
            .filter_map(|path| read_stored(path))
            .find(is_old);
        Ok(old.or((!matches!(rest.trim(), "" | "{}")).then_some(rest)))
    }

    /// The original that a replacement stored beside it. In a project there is none: whoever made
    /// the project could have put one there.
    pub(crate) fn original(&self) -> Option<String> {
        self.project
            .is_none()
            .then(|| read_stored(&beside(&self.real, ORIGINAL)))?
    }

    /// The backups of it, newest first, and the original that a replacement stored.
    pub(crate) fn kept(&self) -> Vec<PathBuf> {
        let original = beside(&self.real, ORIGINAL);
        let mut kept = BackupFiles::of(&self.real).newest_first();
        kept.extend(original.symlink_metadata().is_ok().then_some(original));
        kept
    }
}

/// The text of a file that was stored here: a regular one, since a link is somebody else's.
fn read_stored(path: &Path) -> Option<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NO_LINKS)
        .open(path)
        .ok()?;
    read_owned(path, file).ok()
}

/// The real path of a file. What is behind a symbolic link is replaced there, and the link stays.
fn real_path(path: &Path) -> Result<PathBuf, CommandError> {
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            Err(CommandError::Data(format!(
                "{} is a symbolic link to nothing: make the file, or take the link away",
                path.display()
            )))
        }
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

/// The fate of the original that a replacement stores, in a change.
#[derive(Debug)]
enum OriginalStep {
    /// It stays as it is.
    Leave,
    /// This text is stored as the original, in place of a backup.
    Store(String),
    /// It was given back, and becomes a backup.
    Release,
}

/// A change to a file that has not been made yet.
#[derive(Debug)]
pub(crate) struct FileChange {
    file: OwnedFile,
    /// `None`: the file is to go.
    after: Option<String>,
    original: OriginalStep,
}

impl FileChange {
    /// The same, and this text is stored as the original before it is made.
    pub(crate) fn storing_original(self, original: String) -> FileChange {
        let original = OriginalStep::Store(original);
        FileChange { original, ..self }
    }

    /// The same, and the original is one no longer once it is made.
    pub(crate) fn releasing_original(self) -> FileChange {
        let original = OriginalStep::Release;
        FileChange { original, ..self }
    }

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

    /// Makes the change, in one step for whoever reads the file. The path of the old text, if the
    /// file was there. Each step is on the disk before the next: first the old text, then the new
    /// one beside it, then the exchange.
    ///
    /// # Errors
    /// It cannot be written, or another program changed the file meanwhile. Then the file is as it
    /// was.
    pub(crate) fn write(&self) -> Result<Option<PathBuf>, CommandError> {
        if self.is_empty() {
            return Ok(None);
        }
        let OwnedFile {
            path, real, text, ..
        } = &self.file;
        let at = |source| failed(path, source);
        self.check_unchanged()?;
        let about = match text {
            Some(_) => Some(real.metadata().map_err(at)?),
            None => None,
        };
        let backups = BackupFiles::of(real);
        let kept = match (&self.original, text, &about) {
            (OriginalStep::Store(original), ..) => {
                Some(backups.store_original(original).map_err(at)?)
            }
            (_, Some(text), Some(about)) => Some(backups.add(text, about).map_err(at)?),
            _ => None,
        };
        self.exchange(about.as_ref()).inspect_err(|_| {
            // An original may be an earlier one, which is still needed.
            if let (Some(kept), OriginalStep::Leave | OriginalStep::Release) =
                (&kept, &self.original)
            {
                let _ = fs::remove_file(kept);
            }
        })?;
        // What was renamed is there for every reader; only a power failure now could still undo it.
        let _ = sync_parent(real);
        if matches!(self.original, OriginalStep::Release) {
            backups.release_original().map_err(at)?;
        }
        backups.prune();
        Ok(kept)
    }

    /// Puts the new text in the old one's place, if that is still the one that was read.
    fn exchange(&self, about: Option<&Metadata>) -> Result<(), CommandError> {
        let OwnedFile { path, real, .. } = &self.file;
        let at = |source| failed(path, source);
        let Some(after) = &self.after else {
            self.check_unchanged()?;
            return fs::remove_file(real).map_err(at);
        };
        if let Some(directory) = real.parent() {
            let mut make = fs::DirBuilder::new();
            make.recursive(true)
                .mode(DIRECTORY_MODE)
                .create(directory)
                .map_err(at)?;
        }
        let mut staged = StagedFile::create(real).map_err(at)?;
        let mode = about.map_or(FILE_MODE, |about| about.mode() & 0o7777);
        fill(staged.file(), after, about, mode).map_err(at)?;
        // As late as possible: what another program writes after this look is lost.
        self.check_unchanged()?;
        staged.commit().map_err(at)
    }

    /// # Errors
    /// The file is another than the one that was read.
    fn check_unchanged(&self) -> Result<(), CommandError> {
        let OwnedFile {
            path,
            project,
            text,
            ..
        } = &self.file;
        match OwnedFile::read_below(project.as_deref(), path)?.text == *text {
            true => Ok(()),
            false => Err(CommandError::Data(format!(
                "{} was changed meanwhile by another program, and stays as that program left it: try again",
                path.display()
            ))),
        }
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
            "nothing was written: there is no terminal to ask at; --yes writes without asking"
                .to_owned(),
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
