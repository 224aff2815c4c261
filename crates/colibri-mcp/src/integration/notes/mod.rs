//! The mirror of a repository's `docs/` in a vault of notes: one way, the repository always wins.
//!
//! Whoever writes to the repository or to the vault is a stranger here. What is read or written is
//! reached from the descriptor of one directory to the next (openat(2), `O_NOFOLLOW`), never by a
//! path, so that no link and no swapped directory leads anywhere else. What the mirror's directory
//! holds is never opened for writing: a file is written beside, and renamed.

mod entries;
mod mirror_error;
mod places;
mod sync;
mod tool;
mod tree;

pub(super) use tool::{Notes, NotesArguments};
