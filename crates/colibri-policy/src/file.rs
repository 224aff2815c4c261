//! Reading the files that decide what is allowed: only such as nobody but root or the daemon's user
//! could have written.

use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The reason for which a policy file was not read. What was in force before stays.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be opened or read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It is not a file that only its owner decides about.
    #[error("refusing {path}: {why}", path = .path.display())]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// The fault, and the remedy.
        why: String,
    },
    /// Its contents are wrong.
    #[error(transparent)]
    Content(#[from] colibri_json::DocumentError),
}

/// A file that was read.
#[derive(Debug)]
pub struct File {
    /// Its content.
    pub content: Vec<u8>,
    /// Its mode.
    pub mode: u32,
}

/// The contents of a file, at most `most` bytes and one more (so that its reader can tell that it
/// is too large); `None` where there is none.
///
/// # Errors
/// Not a regular file (a symbolic link is none), owned by neither root nor, unless `only_root`,
/// this process's user, or writable by group or others.
pub fn read(path: &Path, most: usize, only_root: bool) -> Result<Option<File>, FileError> {
    let failed = |error| FileError::Read {
        path: path.to_owned(),
        error,
    };
    let refuse = |why: String| {
        Err(FileError::Unsafe {
            path: path.to_owned(),
            why,
        })
    };
    // Opening a FIFO must not wait for a writer, and a link must not lead elsewhere.
    let opened = std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // FreeBSD says EMLINK where others say ELOOP (open(2)).
        Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EMLINK)) => {
            return refuse("it is a symbolic link; name the file itself".to_owned());
        }
        Err(error) => return Err(failed(error)),
    };
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return refuse("it is not a regular file".to_owned());
    }
    let own = !only_root && facts.uid() == nix::unistd::geteuid().as_raw();
    if facts.uid() != 0 && !own {
        let wanted = if only_root {
            "root"
        } else {
            "root or the daemon's user"
        };
        return refuse(format!(
            "its owner is uid {}; it must be {wanted}",
            facts.uid()
        ));
    }
    if facts.mode() & 0o022 != 0 {
        return refuse(format!(
            "its mode is {:04o}: group or others could change what is allowed; chmod 0640",
            facts.mode() & 0o7777
        ));
    }
    let mut content = Vec::new();
    file.take(most as u64 + 1)
        .read_to_end(&mut content)
        .map_err(failed)?;
    Ok(Some(File {
        content,
        mode: facts.mode(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_files_that_others_cannot_change_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        assert!(read(&path, 10, false).unwrap().is_none());
        std::fs::write(&path, "0123456789abcdef").unwrap();
        for (mode, good) in [
            (0o600, true),
            (0o640, true),
            (0o644, true),
            (0o660, false),
            (0o602, false),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path, 10, false).is_ok(), good, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path, 10, false).unwrap().unwrap().content.len(), 11);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(
            read(&link, 10, false)
                .unwrap_err()
                .to_string()
                .contains("symbolic link")
        );
        assert!(
            read(directory.path(), 10, false)
                .unwrap_err()
                .to_string()
                .contains("regular file")
        );
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(
            read(&fifo, 10, false)
                .unwrap_err()
                .to_string()
                .contains("regular file")
        );
    }
}
