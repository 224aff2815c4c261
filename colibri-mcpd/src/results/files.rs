//! The files of kept results: `results/` in the state directory, 0700, and in it a file each, 0600,
//! under its handle.
//!
//! A file begins with a line that says whose it is, since when, how long and what its SHA-256 is;
//! the result follows. It is written under another name and renamed when it is whole. Nothing waits
//! for the disk to have it: after a restart the digest says whether it still is what was written,
//! before the first byte of it is read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use colibri_files::{LineRead, StagedFile, read_line};
use colibri_text::{hex, unhex};
use nix::unistd::Uid;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::stored_result::{Handle, ResultOwner};
use colibri_trail::reserve::{Reserve, Use, is_same};

/// The beginning of the first line.
const FORMAT: &str = "colibri-result 1";
/// The most bytes of the first line.
const MAX_HEAD: usize = 256;
/// The owner's session where it is a person.
const PERSON: &str = "-";

/// The directory; none by default.
#[derive(Debug, Default)]
pub(super) struct ResultFiles {
    directory: PathBuf,
    reserve: Reserve,
}

/// A result that an earlier daemon kept for a person.
#[derive(Debug)]
pub(super) struct EarlierResult {
    pub(super) handle: Handle,
    pub(super) uid: u32,
    pub(super) created: SystemTime,
    pub(super) length: u64,
}

/// The content of the first line.
struct ResultFileHead {
    uid: u32,
    session: String,
    created: SystemTime,
    length: u64,
    sha256: Vec<u8>,
    /// The offset of the result.
    bytes: u64,
}

/// A result that is open to be read.
#[derive(Debug)]
pub(super) struct OpenResult {
    file: File,
    begins: u64,
    /// Bytes of the result.
    pub(super) length: u64,
}

impl OpenResult {
    /// The bytes from `from` on, at most so many.
    ///
    /// # Errors
    /// The system's, or there are fewer than there were.
    pub(super) fn bytes(&self, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let from = from.min(self.length);
        let count = most.min(self.length - from);
        let mut bytes = vec![0; usize::try_from(count).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, self.begins + from)?;
        Ok(bytes)
    }

    /// All of it.
    ///
    /// # Errors
    /// As [`OpenResult::bytes`]; it is no text.
    pub(super) fn whole(&self) -> io::Result<String> {
        String::from_utf8(self.bytes(0, self.length)?).map_err(|_| damaged())
    }
}

/// The file is not what was written.
pub(super) fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the file is damaged")
}

impl ResultFiles {
    pub(super) fn open(state_dir: &Path) -> io::Result<ResultFiles> {
        let files = ResultFiles {
            directory: state_dir.join("results"),
            reserve: Reserve::of(state_dir),
        };
        files.make_directory()?;
        Ok(files)
    }

    /// Makes the directory where it is missing.
    ///
    /// # Errors
    /// It cannot be made, or something else is there than a directory that is ours alone.
    fn make_directory(&self) -> io::Result<()> {
        let directory = &self.directory;
        let told = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
        };
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is = directory.symlink_metadata().map_err(told)?;
                if !is.is_dir() || is.uid() != Uid::effective().as_raw() || is.mode() & 0o077 != 0 {
                    return Err(told(io::Error::other(
                        "is no directory that is ours alone: remove it, or chmod 0700",
                    )));
                }
                Ok(())
            }
            made => made.map_err(told),
        }
    }

    /// Bytes to be freed before a result of so many more can be kept.
    pub(super) fn missing(&self, more: u64) -> u64 {
        self.reserve.missing(&self.directory, more, Use::Cached)
    }

    /// True if space that is given up here is space for this file.
    pub(super) fn shares_with(&self, file: &Path) -> bool {
        file.parent()
            .is_some_and(|parent| is_same(&self.directory, parent))
    }

    /// The directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, handle: &Handle) -> PathBuf {
        self.directory.join(handle.to_string())
    }

    /// The users' results here, the oldest first. Everything else is removed.
    pub(super) fn scan(&self) -> io::Result<Vec<EarlierResult>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            match entry
                .file_name()
                .to_str()
                .and_then(Handle::read)
                .map(|handle| self.look(handle))
            {
                Some(Ok(Some(one))) => found.push(one),
                _ => remove(&entry.path()),
            }
        }
        found.sort_by_key(|one| (one.created, one.handle.to_string()));
        Ok(found)
    }

    /// A file that is whole and a person's.
    fn look(&self, handle: Handle) -> io::Result<Option<EarlierResult>> {
        let file = self.open_file(&handle)?;
        let head = ResultFileHead::read(&file)?;
        let is_whole = file.metadata()?.len() == head.bytes + head.length;
        Ok(
            (is_whole && head.session == PERSON).then_some(EarlierResult {
                handle,
                uid: head.uid,
                created: head.created,
                length: head.length,
            }),
        )
    }

    fn open_file(&self, handle: &Handle) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.path(handle));
        let file = file.map_err(|error| match error.raw_os_error() {
            // A symbolic link, as Linux and FreeBSD say it.
            Some(libc::ELOOP | libc::EMLINK) => damaged(),
            _ => error,
        })?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(damaged()),
        }
    }

    pub(super) fn write(
        &self,
        handle: &Handle,
        owner: &ResultOwner,
        now: SystemTime,
        result: &[u8],
    ) -> io::Result<[u8; 32]> {
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let session = owner.session.as_deref().unwrap_or(PERSON);
        let (uid, length, sha256) = (
            owner.uid,
            result.len(),
            <[u8; 32]>::from(Sha256::digest(result)),
        );
        let head = format!(
            "{FORMAT} {uid} {session} {since} {length} {}\n",
            hex(&sha256)
        );
        let path = self.path(handle);
        let mut staged = match StagedFile::create(&path) {
            // Somebody emptied the state directory while the daemon runs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_directory()?;
                StagedFile::create(&path)?
            }
            created => created?,
        };
        staged.file().write_all(head.as_bytes())?;
        staged.file().write_all(result)?;
        staged.commit()?;
        Ok(sha256)
    }

    /// Opens a result of this length. One that is not known to be as it was written is compared
    /// with its digest first.
    pub(super) fn read(
        &self,
        handle: &Handle,
        length: u64,
        verified: bool,
    ) -> io::Result<OpenResult> {
        let file = self.open_file(handle)?;
        let head = ResultFileHead::read(&file)?;
        let opened = OpenResult {
            begins: head.bytes,
            length,
            file,
        };
        if head.length != length
            || !verified && Sha256::digest(opened.bytes(0, length)?)[..] != head.sha256
        {
            return Err(damaged());
        }
        Ok(opened)
    }

    /// Removes a result, in whatever state it is.
    pub(super) fn remove(&self, handle: &Handle) {
        remove(&self.path(handle));
    }
}

fn remove(path: &Path) {
    let removed = match path.symlink_metadata() {
        Ok(is) if is.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("{} was not removed: {error}", path.display());
    }
}

impl ResultFileHead {
    fn read(file: &File) -> io::Result<ResultFileHead> {
        let mut line = Vec::new();
        // No more is read than the line may have: what follows is read from its place.
        let mut input = BufReader::with_capacity(MAX_HEAD, file.take(MAX_HEAD as u64));
        if read_line(&mut input, MAX_HEAD, &mut line)? != LineRead::Line {
            return Err(damaged());
        }
        let text = std::str::from_utf8(&line).map_err(|_| damaged())?;
        ResultFileHead::of(text, line.len() as u64 + 1).ok_or_else(damaged)
    }

    fn of(line: &str, bytes: u64) -> Option<ResultFileHead> {
        let mut words = line.strip_prefix(FORMAT)?.strip_prefix(' ')?.split(' ');
        let head = ResultFileHead {
            uid: words.next()?.parse().ok()?,
            session: words.next()?.to_owned(),
            created: SystemTime::UNIX_EPOCH
                .checked_add(Duration::from_millis(words.next()?.parse().ok()?))?,
            length: words.next()?.parse().ok()?,
            sha256: unhex(words.next()?.as_bytes()).filter(|sha256| sha256.len() == 32)?,
            bytes,
        };
        words.next().is_none().then_some(head)
    }
}
