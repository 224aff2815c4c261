//! Files that are replaced in one step, and are on the disk afterwards.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Puts a file with this text and mode in the place of the one at `path`. Its temporary name is
/// fixed, so that the half- written file of a process that was ended gives way: of several writers
/// the callers let one in.
///
/// # Errors
/// It cannot be written, and the one at `path` is as it was.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    replace_prepared(path, text, |file| {
        file.set_permissions(Permissions::from_mode(mode))
    })
}

/// The same with what `prepare` does to the file, of mode 0600, before it has its name.
///
/// # Errors
/// As above, or those of `prepare`.
pub(crate) fn replace_prepared(
    path: &Path,
    text: &str,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let new = path.with_file_name(name);
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let written = file.write_all(text.as_bytes());
    let whole = written
        .and_then(|()| prepare(&file))
        .and_then(|()| file.sync_all());
    whole
        .and_then(|()| fs::rename(&new, path))
        .inspect_err(|_| {
            // What is half written is of no use.
            let _ = fs::remove_file(&new);
        })?;
    // Of a bare name the parent is empty, which is no directory.
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.json");
        // Of a process that was ended.
        fs::write(place.path().join(".a.json.new"), "hal").unwrap();
        replace(&path, "one", 0o640).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
        let failing =
            replace_prepared(
                &path,
                "two",
                |_| Err(io::ErrorKind::PermissionDenied.into()),
            );
        assert_eq!(failing.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
