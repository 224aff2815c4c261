//! Exclusive locks, flock(2), held for as long as a value lives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The mode of a lock file that is created.
const LOCK_MODE: u32 = 0o600;
/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// The time to wait for a lock that another holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// None.
    Never,
    /// At most this long.
    Within(Duration),
    /// Until it is free.
    Forever,
}

/// An exclusive lock on a file or directory. It ends when this is dropped, or with the process. It
/// counts among processes that lock the same file, and among the open files of one process.
#[derive(Debug)]
pub struct FileLock {
    /// The open file, to which the lock belongs.
    file: File,
}

impl FileLock {
    /// Locks the lock file at `path`, which is created (0600) where it is missing. A symbolic link
    /// there is not followed. The file is open for reading only: one that is open for writing would
    /// keep its file system from being made read-only.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: another holds it for longer than `wait`. Else the system's.
    pub fn of_file(path: &Path, wait: LockWait) -> io::Result<FileLock> {
        let mut create = OpenOptions::new();
        create.write(true).create_new(true).mode(LOCK_MODE);
        match create.open(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Opening a FIFO must not wait for its writer.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        FileLock::of(file, wait)
    }

    /// Locks an open file or directory.
    ///
    /// # Errors
    /// Those of [`FileLock::of_file`].
    pub fn of(file: File, wait: LockWait) -> io::Result<FileLock> {
        let deadline = match wait {
            LockWait::Never => None,
            LockWait::Within(time) => Some(Instant::now() + time),
            LockWait::Forever => loop {
                match file.lock() {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    locked => return locked.map(|()| FileLock { file }),
                }
            },
        };
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(FileLock { file }),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {
                    if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing alone would not do: a child that was forked and has not executed its program yet
        // still has the descriptor.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::mpsc;

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let refusal = |wait| FileLock::of_file(&path, wait).unwrap_err().kind();
        let held = FileLock::of_file(&path, LockWait::Never).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for wait in [LockWait::Never, LockWait::Within(Duration::from_millis(20))] {
            assert_eq!(refusal(wait), io::ErrorKind::WouldBlock);
        }
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let path = &path;
            for wait in [LockWait::Forever, LockWait::Within(Duration::from_secs(60))] {
                let sender = sender.clone();
                scope.spawn(move || {
                    let lock = FileLock::of_file(path, wait).unwrap();
                    sender.send(()).unwrap();
                    drop(lock);
                });
            }
            assert!(receiver.try_recv().is_err());
            drop(held);
            receiver.recv().unwrap();
            receiver.recv().unwrap();
        });
        FileLock::of_file(&path, LockWait::Never).unwrap();
    }

    #[test]
    fn a_directory_is_locked_as_a_file_is() {
        let directory = tempfile::tempdir().unwrap();
        let open = || File::open(directory.path()).unwrap();
        let held = FileLock::of(open(), LockWait::Never).unwrap();
        let refused = FileLock::of(open(), LockWait::Never).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        // A descriptor that somebody else has of the same open file does not keep it.
        let _inherited = held.file.try_clone().unwrap();
        drop(held);
        FileLock::of(open(), LockWait::Never).unwrap();
    }

    #[test]
    fn no_link_is_followed_and_no_fifo_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        symlink(path("elsewhere"), path("link")).unwrap();
        FileLock::of_file(&path("link"), LockWait::Never).unwrap_err();
        assert!(!path("elsewhere").exists());
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        FileLock::of_file(&path("fifo"), LockWait::Never).unwrap();
    }
}
