//! Files that are replaced in one step, lines that are read up to a limit, and locks.
//!
//! [`replace_file`] puts a file in the place of another, with its content and its name on the disk
//! when it returns. [`replace_file_unsynced`] does the same without waiting for the disk.
//! [`StagedFile`] is for a caller that writes in parts, changes the owner, or has a last look
//! before the exchange. [`read_line`] reads one line. [`LineBuffer`] reads many lines at once and
//! hands them out where they lie. [`FileLock`] is flock(2), held for as long as it lives.
//!
//! Its promises:
//! - of one writer at a time a reader of the path sees the old file or the new one, never a part of
//!   one;
//! - an error before the exchange leaves the old file as it was, and no other file beside it;
//! - a symbolic or hard link at the path or at the temporary name is itself replaced, never
//!   written through, and a FIFO there is not waited for;
//! - the mode is the one that was given: the umask does not count;
//! - a line is handed out whole, or its reader is told that it was not: too long, or without its
//!   end;
//! - a line over the limit takes no more memory than one at the limit;
//! - a lock is one process's alone until it is dropped, or its process ends.
//!
//! A writer takes no lock: of two that write one path at the same moment one fails, as a rule, and
//! what is there may be the other's, unfinished. Whoever can meet another writer takes a
//! [`FileLock`]. It is not for directories in which others may write, since the temporary name is
//! known beforehand. It blocks: the frames of an asynchronous peer are read by `FrameReader` of
//! `colibri-peer`.

mod file_lock;
mod line;
mod line_buffer;
mod staged_file;

pub use file_lock::{FileLock, LockWait};
pub use line::{LineRead, read_line};
pub use line_buffer::{LineBuffer, LinePiece, each_line};
pub use staged_file::{StagedFile, replace_file, replace_file_unsynced, sync_parent};
