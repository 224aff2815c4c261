//! The lock of this bridge: made, renewed, removed. Every look that a change follows from is made
//! under flock(2) of a second file, so that no two bridges take the same lock to be stale.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddrV4;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use colibri_client::lock::{self, LockFile};
use colibri_files::{FileLock, LockWait, replace_file_unsynced};
use parking_lot::{Mutex, MutexGuard};

/// The second file, in the home.
const GUARD: &str = "mcp-bridge.lock.guard";
/// The time for which the second file may be another process's.
const LIMIT: Duration = Duration::from_secs(5);

/// The reason for which the lock is not ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    /// Another bridge runs.
    #[error("another bridge runs for this home: process {}, listening on {}", .0.pid, .0.address)]
    Another(LockFile),
    /// It was ours, and is not any more.
    #[error("{}: another bridge has replaced this bridge's lock", .0.display())]
    Lost(PathBuf),
    /// The system refuses.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The lock, as long as the bridge runs.
#[derive(Debug)]
pub(crate) struct BridgeLock {
    home: PathBuf,
    lock: Mutex<LockFile>,
}

impl BridgeLock {
    /// Makes the lock of a home, of a bridge that answers within `limit`. One of a bridge that is
    /// gone is replaced.
    pub(crate) fn take(
        home: &Path,
        address: SocketAddrV4,
        limit: Duration,
    ) -> Result<BridgeLock, ClaimError> {
        let _alone = guard(home)?;
        let (path, now) = (home.join(lock::FILE), lock::now());
        let own = LockFile {
            pid: std::process::id(),
            address,
            started: now,
            timestamp: Some(now),
            answer_secs: limit.as_secs(),
        };
        loop {
            let mut options = OpenOptions::new();
            match options.write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    file.write_all(own.text().as_bytes())
                        .map_err(failed(&path))?;
                    let (home, lock) = (home.to_owned(), Mutex::new(own));
                    return Ok(BridgeLock { home, lock });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match LockFile::read(home) {
                        Ok(other) if other.is_alive(now) => return Err(ClaimError::Another(other)),
                        Ok(_) | Err(_) => removed(&path)?,
                    }
                }
                Err(error) => return Err(failed(&path)(error)),
            }
        }
    }

    /// Says that this bridge is still there.
    pub(crate) fn renew(&self) -> Result<(), ClaimError> {
        let mut own = self.lock.lock();
        let _alone = guard(&self.home)?;
        let path = self.home.join(lock::FILE);
        if !self.is_ours(&own) {
            return Err(ClaimError::Lost(path));
        }
        own.timestamp = Some(lock::now());
        replace_file_unsynced(&path, own.text().as_bytes(), 0o600).map_err(failed(&path))
    }

    /// Removes the lock if it is ours. As long as what comes back is held, it is not made again.
    pub(crate) fn give_up(&self) -> MutexGuard<'_, LockFile> {
        let own = self.lock.lock();
        // Left behind, it is stale as soon as this process is gone.
        if let Ok(_alone) = guard(&self.home)
            && self.is_ours(&own)
        {
            let _ = removed(&self.home.join(lock::FILE));
        }
        own
    }

    /// A process of another container may have our number, and not our address.
    fn is_ours(&self, own: &LockFile) -> bool {
        LockFile::read(&self.home)
            .is_ok_and(|lock| (lock.pid, lock.address) == (own.pid, own.address))
    }
}

/// The second file, ours until it is dropped.
fn guard(home: &Path) -> Result<FileLock, ClaimError> {
    let path = home.join(GUARD);
    FileLock::of_file(&path, LockWait::Within(LIMIT)).map_err(|error| {
        let error = match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::other(format!(
                "another process has held its lock for {} s",
                LIMIT.as_secs()
            )),
            _ => error,
        };
        failed(&path)(error)
    })
}

fn removed(path: &Path) -> Result<(), ClaimError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ClaimError {
    let path = path.to_owned();
    move |error| ClaimError::File { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER_LIMIT: Duration = Duration::from_secs(27);

    fn address(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, port)
    }

    #[test]
    fn a_lock_is_taken_once_and_given_up_by_who_has_it() {
        let home = tempfile::tempdir().unwrap();
        let claim = BridgeLock::take(home.path(), address(1), ANSWER_LIMIT).unwrap();
        match BridgeLock::take(home.path(), address(2), ANSWER_LIMIT).unwrap_err() {
            ClaimError::Another(lock) => {
                assert_eq!((lock.pid, lock.address), (std::process::id(), address(1)))
            }
            other => panic!("{other}"),
        }
        claim.renew().unwrap();
        assert_eq!(LockFile::read(home.path()).unwrap().address, address(1));
        drop(claim.give_up());
        assert!(!home.path().join(lock::FILE).exists());
        BridgeLock::take(home.path(), address(2), ANSWER_LIMIT).unwrap();
    }

    #[test]
    fn what_a_bridge_left_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(lock::FILE);
        let old = LockFile {
            pid: std::process::id(),
            address: address(1),
            started: 1,
            timestamp: Some(1),
            answer_secs: 27,
        }
        .text();
        for left in ["", "not json", "{}", &old] {
            fs::write(&path, left).unwrap();
            drop(
                BridgeLock::take(home.path(), address(2), ANSWER_LIMIT)
                    .unwrap()
                    .give_up(),
            );
        }
        // What stands in its place is not what it leads to.
        let precious = home.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        let claim = BridgeLock::take(home.path(), address(2), ANSWER_LIMIT).unwrap();
        std::os::unix::fs::symlink(&precious, home.path().join(".mcp-bridge.lock.new")).unwrap();
        claim.renew().unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
        assert!(!path.is_symlink());
    }

    #[test]
    fn a_bridge_whose_lock_has_no_timestamp_is_not_displaced() {
        let home = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, pid) = (listener.local_addr().unwrap(), std::process::id());
        let lock = format!(r#"{{"pid":{pid},"address":"{at}","started":7,"heartbeat_secs":30}}"#);
        fs::write(home.path().join(lock::FILE), lock).unwrap();
        let refused = BridgeLock::take(home.path(), address(2), ANSWER_LIMIT).unwrap_err();
        assert!(matches!(refused, ClaimError::Another(_)), "{refused}");
        drop(listener);
        BridgeLock::take(home.path(), address(2), ANSWER_LIMIT).unwrap();
    }

    #[test]
    fn who_has_lost_the_lock_neither_renews_nor_removes_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(lock::FILE);
        let claim = BridgeLock::take(home.path(), address(1), ANSWER_LIMIT).unwrap();
        let other = LockFile {
            address: address(9),
            ..LockFile::read(home.path()).unwrap()
        };
        fs::write(&path, other.text()).unwrap();
        assert!(matches!(claim.renew(), Err(ClaimError::Lost(_))));
        drop(claim.give_up());
        assert_eq!(LockFile::read(home.path()).unwrap(), other);
        fs::remove_file(&path).unwrap();
        assert!(matches!(claim.renew(), Err(ClaimError::Lost(_))));
        assert!(!path.exists());
    }
}
