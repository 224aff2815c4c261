//! Records: append, hash chain, seal, prove, verify.
//!
//! Nothing enters or leaves without a record. The trail is a hash chain over all records, cut into
//! segments, and at the same time one Merkle tree (RFC 6962) over the same records, whose roots are
//! signed as checkpoints. `docs/trail.md` has the format for people who want to read it without
//! this program.
//!
//! The daemon appends ([`Trail::append`]); the rest reads files and needs no daemon.

mod append;
mod cosign;
mod cosignature;
mod error;
mod event;
mod file;
mod gap;
mod host_witness;
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
mod tiles;
mod time;
mod verify;
mod walk;
mod witness;
mod writer;

#[cfg(test)]
mod tests;

pub use append::{AppendOutcome, Trail, TrailLock, TrailOptions, TrailStatus};
pub use cosign::{CosignError, cosign};
pub use cosignature::{CosignedCheckpoint, WitnessKey};
pub use error::{ProofError, TrailError};
pub use event::{DEFERRED_EVENT, TrailEvent};
pub use file::{ReleasableFiles, directory, note_path, open_regular, verifier_path};
pub use host_witness::{
    HostWitnessError, answer_request, cosigned_by_hosts, request_cosignature, store_cosignature,
    witness_directory, witnessed_hosts,
};
pub use prove::{GrowthProof, InclusionProof, check_proof, prove, prove_growth};
pub use record::{
    Attempt, ContentDigest, DeclaredClient, Detail, DigestAlgorithm, Enter, EventRecord,
    ExitRecord, RecordReference, Through, TrailRecord, Validation,
};
pub use report::{
    Extent, Report, TrailCosignature, TrailFault, TrailFaultKind, TrailWitness, Voucher,
    WitnessedHost,
};
pub use retain::{RetentionReport, drop_segments, last_seal, sealed_segments};
pub use segment::SegmentName;
pub use show::show_last;
pub use show::{RecordFields, RecordFilter, RecordReader, RecordView, RecordedClient, show, tail};
pub use signed_note::{NoteError, Signer, Verifier};
pub use stats::{Stats, StatsRow, stats};
pub use tiles::{TilesError, TilesReport, write_tiles};
pub use time::utc;
pub use verify::verify;
pub use witness::{TrailHead, Witness, WitnessedHeads};
pub use writer::{NoticeSeverity, Notify, SegmentLimits};
