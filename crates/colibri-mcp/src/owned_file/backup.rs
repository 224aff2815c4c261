//! The files beside a person's file: the last backups of it, and the original that a replacement
//! stored.

use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use colibri_files::{replace_file, sync_parent};
use nix::unistd::Uid;

use super::new_file::{FILE_MODE, beside, create};
use colibri_trail::utc;

/// The suffix of a backup's name, before the time.
const BACKUP: &str = ".colibri-backup-";
/// The suffix of the name of the original that a replacement stored.
pub(super) const ORIGINAL: &str = ".colibri-original";
/// The number of backups that stay.
const LAST: usize = 5;
/// The number of names that are tried for a backup, while others take them.
const MAX_TRIES: u32 = 100;
/// Flags that open neither a symbolic link nor, waiting for its writer, a named pipe.
pub(super) const NO_LINKS: i32 = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;

/// The files beside one file. Each is the person's alone, since secrets may stand in it.
pub(super) struct BackupFiles<'f> {
    /// The file behind symbolic links.
    real: &'f Path,
}

/// The time of a backup, YYYYMMDDHHMMSS, and its number among those of this second.
type BackupTime = (String, u32);

impl BackupFiles<'_> {
    /// Those beside this file.
    pub(super) fn of(real: &Path) -> BackupFiles<'_> {
        BackupFiles { real }
    }

    /// The paths of all backups, newest first.
    pub(super) fn newest_first(&self) -> Vec<PathBuf> {
        let times = self.times().into_iter().rev();
        times.map(|time| self.path(&time)).collect()
    }

    /// Makes a backup of this text. Its owner is that of the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&self, text: &str, about: &Metadata) -> io::Result<PathBuf> {
        let mut tries = 0;
        loop {
            let path = self.path(&self.next_time());
            tries += 1;
            match create(&path, text, Some(about), FILE_MODE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < MAX_TRIES => {
                }
                made => return made.and_then(|()| sync_parent(&path)).map(|()| path),
            }
        }
    }

    /// Stores the original, in place of an earlier one.
    ///
    /// # Errors
    /// It cannot be written, and the earlier one is as it was.
    pub(super) fn store_original(&self, text: &str) -> io::Result<PathBuf> {
        let path = beside(self.real, ORIGINAL);
        replace_file(&path, text.as_bytes(), FILE_MODE)?;
        Ok(path)
    }

    /// Makes a backup of the original.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub(super) fn release_original(&self) -> io::Result<()> {
        fs::rename(beside(self.real, ORIGINAL), self.path(&self.next_time()))
    }

    /// Removes all backups but the last, and takes from others what they may read of these. One
    /// that cannot be removed or changed stays as it is.
    pub(super) fn prune(&self) {
        let backups = self.newest_first();
        let (last, older) = backups.split_at(backups.len().min(LAST));
        for path in older {
            let _ = fs::remove_file(path);
        }
        for path in last {
            let _ = make_private(path);
        }
    }

    /// The times of all backups, oldest first.
    fn times(&self) -> Vec<BackupTime> {
        let time = |name: String| {
            let (stamp, number) = match name.split_once('-') {
                Some((stamp, number)) => (stamp, number.parse().ok()?),
                None => (name.as_str(), 0),
            };
            let is_stamp = stamp.len() == 14 && stamp.bytes().all(|byte| byte.is_ascii_digit());
            is_stamp.then(|| (stamp.to_owned(), number))
        };
        let mut times: Vec<BackupTime> = self.suffixes().into_iter().filter_map(time).collect();
        times.sort();
        times
    }

    /// A time after that of every backup: also where the clock was set back.
    fn next_time(&self) -> BackupTime {
        let now = stamp(SystemTime::now());
        match self.times().pop() {
            Some((last, number)) if last >= now => (last, number.saturating_add(1)),
            _ => (now, 0),
        }
    }

    fn path(&self, (stamp, number): &BackupTime) -> PathBuf {
        match number {
            0 => beside(self.real, &format!("{BACKUP}{stamp}")),
            number => beside(self.real, &format!("{BACKUP}{stamp}-{number}")),
        }
    }

    /// The ends of the names of all backups: the time, as a rule.
    fn suffixes(&self) -> Vec<String> {
        let entries = self
            .real
            .parent()
            .and_then(|directory| fs::read_dir(directory).ok());
        let begins = beside(self.real, BACKUP)
            .into_os_string()
            .into_encoded_bytes();
        let paths = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let end = |path: PathBuf| {
            let end = path
                .as_os_str()
                .as_encoded_bytes()
                .strip_prefix(begins.as_slice())?;
            String::from_utf8(end.to_vec()).ok()
        };
        paths.filter_map(end).collect()
    }
}

/// Takes away what others may do with a file of this user.
fn make_private(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(NO_LINKS)
        .open(path)?;
    let about = file.metadata()?;
    let is_open =
        about.is_file() && about.uid() == Uid::effective().as_raw() && about.mode() & 0o077 != 0;
    match is_open {
        true => file.set_permissions(Permissions::from_mode(FILE_MODE)),
        false => Ok(()),
    }
}

/// A time as YYYYMMDDHHMMSS, UTC.
pub(super) fn stamp(time: SystemTime) -> String {
    utc(time).strftime("%Y%m%d%H%M%S").to_string()
}
