//! A file that is written beside another and takes its place.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The mode of a staged file until its writer gives it another.
const STAGED_MODE: u32 = 0o600;

/// Replaces the file at `path` with one of this content and mode. Content and name are on the disk
/// when this returns.
///
/// # Errors
/// The system's. The old file is as it was, except where only the last step failed: the new name
/// is not known to be on the disk then.
pub fn replace_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    stage(path, content, mode)?.commit_synced()
}

/// Replaces the file at `path` with one of this content and mode, without waiting for the disk.
/// After a power failure the file may be the old one, the new one, or empty.
///
/// # Errors
/// The system's. The old file is as it was.
pub fn replace_file_unsynced(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    stage(path, content, mode)?.commit()
}

fn stage(path: &Path, content: &[u8], mode: u32) -> io::Result<StagedFile> {
    let mut staged = StagedFile::create(path)?;
    staged.file().write_all(content)?;
    staged
        .file()
        .set_permissions(Permissions::from_mode(mode))?;
    Ok(staged)
}

/// Waits until the names in a path's directory are on the disk.
///
/// # Errors
/// The directory cannot be opened or written.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    open_parent(path)?.sync_all()
}

fn open_parent(path: &Path) -> io::Result<File> {
    match path.parent() {
        // A bare name has an empty parent, which cannot be opened.
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent),
        _ => File::open("."),
    }
}

/// A file that is being written for `path`, under the temporary name `.NAME.new` beside it. It is
/// removed when it is dropped before it is committed.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    identity: InodeIdentity,
    path: PathBuf,
    staged_path: PathBuf,
    is_committed: bool,
}

/// The device and the inode number of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InodeIdentity {
    device: u64,
    inode: u64,
}

impl InodeIdentity {
    fn of(metadata: &Metadata) -> InodeIdentity {
        InodeIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

impl StagedFile {
    /// Creates the temporary file, empty and for its user alone (0600). The file of a process that
    /// ended before it was done is removed first.
    ///
    /// # Errors
    /// The path has no file name, or the temporary file cannot be removed or created.
    pub fn create(path: &Path) -> io::Result<StagedFile> {
        let staged_path = staged_path(path)?;
        let file = match create_new(&staged_path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_if_present(&staged_path)?;
                create_new(&staged_path)?
            }
            created => created?,
        };
        let identity = InodeIdentity::of(&file.metadata()?);
        Ok(StagedFile {
            file,
            identity,
            path: path.to_owned(),
            staged_path,
            is_committed: false,
        })
    }

    /// The file, to be written and to be given its mode and owner.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the file in its place, without waiting for the disk.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`]: another writer has put its file under the temporary name.
    /// Else the system's. The old file is as it was.
    pub fn commit(mut self) -> io::Result<()> {
        self.rename()
    }

    /// Puts the file in its place. Its content is on the disk before that, and its name when this
    /// returns.
    ///
    /// # Errors
    /// Those of [`StagedFile::commit`]. Where only the last step failed, the file is in its place,
    /// but not known to be so on the disk.
    pub fn commit_synced(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        // A directory that cannot be opened is found before anything has changed.
        let directory = open_parent(&self.path)?;
        self.rename()?;
        directory.sync_all()
    }

    fn rename(&mut self) -> io::Result<()> {
        if !self.has_name()? {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another process writes this file at the same time",
            ));
        }
        fs::rename(&self.staged_path, &self.path)?;
        self.is_committed = true;
        Ok(())
    }

    /// True if the temporary name is still this file's.
    fn has_name(&self) -> io::Result<bool> {
        match self.staged_path.symlink_metadata() {
            Ok(metadata) => Ok(InodeIdentity::of(&metadata) == self.identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_committed && self.has_name().unwrap_or(false) {
            // The next writer of this path removes a file that cannot be removed now.
            let _ = fs::remove_file(&self.staged_path);
        }
    }
}

/// The temporary name of a path. It is always the same, so that a file that a killed process left
/// is found by the next writer.
fn staged_path(path: &Path) -> io::Result<PathBuf> {
    let Some(file_name) = path.file_name() else {
        let message = format!("{} names no file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    let mut name = OsString::from(".");
    name.push(file_name);
    name.push(".new");
    Ok(path.with_file_name(name))
}

/// Creates a file where nothing is: `O_EXCL` follows no link and opens no FIFO.
fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create_new(true)
        .mode(STAGED_MODE)
        .open(path)
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::{Mode, umask};
    use tempfile::{TempDir, tempdir};

    /// A directory with `a`, which says "old", and a file that nobody may change.
    struct Place {
        directory: TempDir,
    }

    impl Place {
        fn new() -> Place {
            let place = Place {
                directory: tempdir().unwrap(),
            };
            fs::write(place.path("a"), "old").unwrap();
            fs::write(place.path("precious"), "precious").unwrap();
            place
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.directory.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn a_file_is_replaced_with_its_exact_mode() {
        let place = Place::new();
        // No other test of this process depends on the umask.
        let previous = umask(Mode::from_bits_truncate(0o077));
        for (number, mode_bits) in [0o600, 0o640, 0o666, 0o440, 0o4755].into_iter().enumerate() {
            let content = number.to_string();
            match number % 2 {
                0 => replace_file(&place.path("a"), content.as_bytes(), mode_bits).unwrap(),
                _ => {
                    replace_file_unsynced(&place.path("a"), content.as_bytes(), mode_bits).unwrap()
                }
            }
            assert_eq!(
                (place.read("a"), mode(&place.path("a"))),
                (content, mode_bits)
            );
        }
        umask(previous);
        assert_eq!(place.names(), ["a", "precious"]);
    }

    #[test]
    fn a_leftover_at_the_temporary_name_gives_way() {
        type Occupy = fn(&Place, &Path);
        let occupants: [Occupy; 4] = [
            |_, staged| fs::write(staged, "half").unwrap(),
            |place, staged| symlink(place.path("precious"), staged).unwrap(),
            |place, staged| fs::hard_link(place.path("precious"), staged).unwrap(),
            |_, staged| nix::unistd::mkfifo(staged, Mode::S_IRWXU).unwrap(),
        ];
        for occupy in occupants {
            let place = Place::new();
            occupy(&place, &place.path(".a.new"));
            replace_file(&place.path("a"), b"new", 0o600).unwrap();
            assert_eq!(place.read("a"), "new");
            assert_eq!(place.read("precious"), "precious");
            assert_eq!(place.names(), ["a", "precious"]);
        }
    }

    #[test]
    fn a_directory_at_the_temporary_name_is_an_error_and_stays() {
        let place = Place::new();
        fs::create_dir(place.path(".a.new")).unwrap();
        replace_file(&place.path("a"), b"new", 0o600).unwrap_err();
        assert_eq!(place.read("a"), "old");
        assert_eq!(place.names(), [".a.new", "a", "precious"]);
    }

    #[test]
    fn a_link_at_the_path_is_replaced_itself() {
        let place = Place::new();
        for link in [false, true] {
            fs::remove_file(place.path("a")).unwrap();
            match link {
                true => symlink(place.path("precious"), place.path("a")).unwrap(),
                false => fs::hard_link(place.path("precious"), place.path("a")).unwrap(),
            }
            replace_file(&place.path("a"), b"new", 0o600).unwrap();
            assert!(!place.path("a").is_symlink());
            assert_eq!(
                (place.read("a"), place.read("precious")),
                ("new".into(), "precious".into())
            );
        }
    }

    #[test]
    fn an_error_leaves_the_old_file_and_nothing_else() {
        let place = Place::new();
        fs::create_dir(place.path("directory")).unwrap();
        fs::write(place.path("directory/x"), "").unwrap();
        replace_file(&place.path("directory"), b"new", 0o600).unwrap_err();
        replace_file(&place.path("missing/a"), b"new", 0o600).unwrap_err();
        assert_eq!(place.names(), ["a", "directory", "precious"]);
        for nameless in ["/", "..", ""] {
            let error = replace_file(Path::new(nameless), b"new", 0o600).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_file_that_is_not_committed_goes() {
        let place = Place::new();
        let mut staged = StagedFile::create(&place.path("a")).unwrap();
        staged.file().write_all(b"half").unwrap();
        assert_eq!(mode(&place.path(".a.new")) & 0o077, 0);
        assert_eq!(place.read("a"), "old");
        drop(staged);
        assert_eq!(place.read("a"), "old");
        assert_eq!(place.names(), ["a", "precious"]);
    }

    #[test]
    fn another_writers_file_is_neither_renamed_nor_removed() {
        let place = Place::new();
        let first = StagedFile::create(&place.path("a")).unwrap();
        let dropped = StagedFile::create(&place.path("a")).unwrap();
        let mut last = StagedFile::create(&place.path("a")).unwrap();
        last.file().write_all(b"last").unwrap();
        drop(dropped);
        let error = first.commit_synced().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(place.read("a"), "old");
        last.commit().unwrap();
        assert_eq!(place.read("a"), "last");
        assert_eq!(place.names(), ["a", "precious"]);
    }

    #[test]
    fn a_file_whose_temporary_name_is_gone_is_not_committed() {
        let place = Place::new();
        let staged = StagedFile::create(&place.path("a")).unwrap();
        fs::remove_file(place.path(".a.new")).unwrap();
        let error = staged.commit().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(place.read("a"), "old");
    }

    #[test]
    fn a_bare_name_is_a_file_of_the_working_directory() {
        let parent = open_parent(Path::new("bare-name")).unwrap();
        let here = File::open(".").unwrap();
        let identity = |file: &File| InodeIdentity::of(&file.metadata().unwrap());
        assert_eq!(identity(&parent), identity(&here));
        let staged = staged_path(Path::new("bare-name")).unwrap();
        assert_eq!(staged, Path::new(".bare-name.new"));
    }
}
