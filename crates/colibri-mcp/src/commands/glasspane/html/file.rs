//! The page's file: written beside its place and renamed, readable for its owner alone.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::Uid;

use crate::failure::CommandError;
use colibri_trail::open_regular;

/// Writes the file. What is there already is replaced if it begins with `mark` and is the caller's
/// own, or if it is a regular file and `replace` says so; what it is a link to is never touched.
///
/// # Errors
/// Something else is there, or the file cannot be written. Then nothing has changed.
pub(super) fn write(
    path: &Path,
    page: &str,
    mark: &str,
    replace: bool,
) -> Result<(), CommandError> {
    let failed = |source| CommandError::File {
        path: path.to_owned(),
        source,
    };
    let absolute = std::path::absolute(path).map_err(failed)?;
    let (Some(directory), Some(_)) = (absolute.parent(), absolute.file_name()) else {
        return Err(CommandError::Usage(format!(
            "--html {}: name a file",
            path.display()
        )));
    };
    let is_there = match fs::symlink_metadata(&absolute) {
        Ok(found) if !found.is_file() => {
            return Err(CommandError::Data(format!(
                "{}: a symbolic link, or no regular file; nothing was written: name another file",
                path.display()
            )));
        }
        Ok(_) if !replace && !is_own(&absolute, mark).map_err(failed)? => {
            return Err(CommandError::Data(format!(
                "{}: it is there, and no page of yours that glasspane wrote; nothing was written: name another file, or \
                 add --replace",
                path.display()
            )));
        }
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(source) => return Err(failed(source)),
    };
    // Made with mode 0600, and removed where something fails.
    let mut file = tempfile::Builder::new()
        .prefix(".colibri-glasspane-")
        .tempfile_in(directory)
        .map_err(failed)?;
    file.write_all(page.as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    let renamed = if is_there {
        file.persist(&absolute)
    } else {
        file.persist_noclobber(&absolute)
    };
    renamed.map(|_| ()).map_err(|error| failed(error.error))
}

fn is_own(path: &Path, mark: &str) -> io::Result<bool> {
    let file = open_regular(path)?;
    if file.metadata()?.uid() != Uid::effective().as_raw() {
        return Ok(false);
    }
    let mut begins = Vec::new();
    file.take(mark.len() as u64).read_to_end(&mut begins)?;
    Ok(begins == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const MARK: &str = "<!-- ours -->";

    #[test]
    fn a_page_is_written_for_its_owner_alone_and_again_over_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b.html");
        for page in ["<!-- ours -->1", "<!-- ours -->2"] {
            write(&path, page, MARK, false).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), page);
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing else is left"
        );
    }

    #[test]
    fn what_is_no_page_stays_unless_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.txt");
        for text in ["", "mine", "<!-- ours --"] {
            fs::write(&path, text).unwrap();
            let refused = write(&path, "<!-- ours -->", MARK, false).unwrap_err();
            assert!(refused.to_string().contains("--replace"), "{refused}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        write(&path, "<!-- ours -->", MARK, true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "<!-- ours -->");
    }

    #[test]
    fn nothing_is_written_through_a_link_or_over_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "<!-- ours -->old").unwrap();
        let link = dir.path().join("link");
        symlink(&target, &link).unwrap();
        let dangling = dir.path().join("dangling");
        symlink(dir.path().join("nothing"), &dangling).unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        for place in [&link, &dangling, &fifo, dir.path()] {
            for replace in [false, true] {
                assert!(write(place, "<!-- ours -->new", MARK, replace).is_err());
            }
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "<!-- ours -->old");
        assert!(!dir.path().join("nothing").exists());
        assert!(write(&dir.path().join("no/such/place"), "", MARK, false).is_err());
    }
}
