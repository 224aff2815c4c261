//! Files that are made beside another: whole and on the disk, or not at all.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// The mode of a file that is made: the person's alone, since keys may come to stand in it.
pub(super) const FILE_MODE: u32 = 0o600;

/// A path with something after its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Makes a file with this mode, and the owner of another, and sees that it is on the disk. One that
/// fails leaves none.
///
/// # Errors
/// It is there already, or cannot be written.
pub(super) fn create(
    path: &Path,
    text: &str,
    owned_like: Option<&Metadata>,
    mode: u32,
) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    fill(&mut file, text, owned_like, mode).inspect_err(|_| {
        // What made it fail is said.
        let _ = fs::remove_file(path);
    })
}

/// Writes a file's text, gives it its mode and the owner of another, and waits for the disk.
///
/// # Errors
/// The system's.
pub(super) fn fill(
    file: &mut File,
    text: &str,
    owned_like: Option<&Metadata>,
    mode: u32,
) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    if let Some(like) = owned_like {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            fchown(&*file, Some(like.uid()), Some(like.gid()))?;
        }
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}
