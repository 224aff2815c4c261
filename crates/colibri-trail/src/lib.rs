//! Records: append, hash chain, seal, prove, verify.
//!
//! Nothing enters or leaves without a record. The trail is a hash chain over all records, cut into segments, and at the
//! same time one Merkle tree (RFC 6962) over the same records, whose roots are signed as checkpoints. `docs/trail.md`
//! has the format for people who want to read it without this program.
//!
//! The daemon appends ([`Trail::append`]); the rest reads files and needs no daemon.

mod append;
mod error;
mod event_name;
mod file;
mod line;
mod merkle;
mod prove;
mod read;
mod record;
mod recover;
mod report;
pub mod reserve;
mod retain;
mod segment;
mod show;
mod signed_note;
mod state;
mod stats;
mod time;
mod verify;
mod witness;
mod writer;

#[cfg(test)]
mod tests;

pub use append::{Appended, Lock, Options, Status, Trail};
pub use error::TrailError;
pub use event_name::EventName;
pub use file::{Cache, directory, key_path, note_path, open_regular, verifier_path};
pub use prove::{Proof, ProofError, check_proof, prove};
pub use record::{Attempt, Detail, Digest, Enter, Event, Exit, Record, Through, Validation};
pub use report::{Extent, Fault, FaultKind, Report, Vouched, Voucher};
pub use retain::{Dropped, drop_segments, last_seal, sealed_segments};
pub use segment::SegmentName;
pub use show::{Fields, Filter, Shown, show, show_last, tail};
pub use signed_note::{NoteError, Verifier};
pub use stats::{Row, Stats, stats};
pub use time::Date;
pub use verify::verify;
pub use witness::{Head, Witness, WitnessedHeads};
pub use writer::{Limits, Notify, Severity};
