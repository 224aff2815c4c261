//! Records: append, hash chain, seal, prove, verify.
//!
//! Nothing enters or leaves without a record. The trail is a hash chain over all records, cut into segments, and at the
//! same time one Merkle tree (RFC 6962) over the same records, whose roots are signed as checkpoints. `docs/trail.md`
//! has the format for people who want to read it without this program.

mod append;
mod file;
pub mod merkle;
pub mod note;
mod prove;
mod record;
mod recover;
mod retain;
pub mod segment;
mod show;
mod stats;
mod verify;
mod witness;

#[cfg(test)]
mod campaign;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod testing;

pub use append::{Appended, Limits, Options, Status, Trail, TrailError};
pub use file::open_regular;
pub use prove::{Proof, ProofError, check_proof, prove};
pub use record::{Attempt, Detail, Digest, Enter, Event, Exit, Record};
pub use retain::{Dropped, drop_segments, last_seal, sealed_segments};
pub use show::{Fields, Filter, Shown, show, tail};
pub use stats::{Row, Stats, stats};
pub use verify::{Extent, Fault, FaultKind, Report, Vouched, Voucher, verify};
pub use witness::{Head, SyslogWitness, Witness, WitnessedHeads};

use std::path::{Path, PathBuf};

/// The directory of the segments in a state directory.
#[must_use]
pub fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join("trail")
}

/// The installation's private key in a state directory.
#[must_use]
pub fn key_path(state_dir: &Path) -> PathBuf {
    state_dir.join("trail.key")
}

/// The daemon's own note of the trail's last head in a state directory.
#[must_use]
pub fn note_path(state_dir: &Path) -> PathBuf {
    state_dir.join("trail.head")
}

/// The public half of the key in a state directory, for `verify` and for others.
#[must_use]
pub fn verifier_path(state_dir: &Path) -> PathBuf {
    state_dir.join("trail.pub")
}
