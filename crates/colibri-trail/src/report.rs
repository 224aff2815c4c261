//! The faults of a trail, the extent of the promise, and the witnesses.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::time::utc;

/// Faults that a report lists; it counts all.
pub(crate) const MAX_LISTED: usize = 100;

/// The kind of a trail's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrailFaultKind {
    /// A line is not of the trail's form.
    MalformedLine,
    /// A record is not what its hash was made of, or not what the next one follows.
    EditedRecord,
    /// Records are not there.
    MissingRecord,
    /// A record stands where there was none.
    InsertedRecord,
    /// A record stands where it was not written.
    ReorderedRecord,
    /// A segment is not there.
    MissingSegment,
    /// A segment stands where there was none.
    InsertedSegment,
    /// A segment does not begin where the one before it ends.
    BadLink,
    /// A seal, or the first record of a segment, does not fit the records before it.
    BadSeal,
    /// The signed checkpoint in a seal is not for that seal, or not signed by the installation's
    /// key.
    BadCheckpoint,
    /// A segment ends within a line, and no `recovered` record says so.
    TornTail,
    /// The bytes after a segment's last counted record are more than the rest of an interrupted
    /// write.
    DamagedTail,
    /// The trail ends before a head that was witnessed.
    Truncated,
    /// The trail differs from a head that was witnessed: it was written anew.
    Rewritten,
}

impl std::fmt::Display for TrailFaultKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MalformedLine => "malformed line",
            Self::EditedRecord => "edited record",
            Self::MissingRecord => "missing record",
            Self::InsertedRecord => "inserted record",
            Self::ReorderedRecord => "reordered record",
            Self::MissingSegment => "missing segment",
            Self::InsertedSegment => "inserted segment",
            Self::BadLink => "bad link between segments",
            Self::BadSeal => "bad seal",
            Self::BadCheckpoint => "bad checkpoint",
            Self::TornTail => "torn tail",
            Self::DamagedTail => "damaged tail",
            Self::Truncated => "truncated",
            Self::Rewritten => "rewritten",
        })
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, Serialize)]
pub struct TrailFault {
    /// The segment, where it is in one.
    pub segment: Option<String>,
    /// The line in it, counted from 1.
    pub line: Option<u64>,
    /// The fault.
    pub kind: TrailFaultKind,
    /// The same in words.
    pub what: String,
}

/// The findings of `verify`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The faults, the first hundred.
    pub faults: Vec<TrailFault>,
    /// The number of faults.
    pub fault_count: u64,
    /// Notes that are no faults but worth knowing.
    pub notes: Vec<String>,
    /// Segments read.
    pub segments: u64,
    /// The number of the first record that is there; the ones before it were dropped by retention.
    pub first_record: u64,
    /// Records in the whole trail, dropped ones included.
    pub records: u64,
    /// Hash of the last record, hex.
    pub head: String,
    /// Merkle root over all records, hex; `None` where it cannot be told.
    pub root: Option<String>,
    /// Seals whose checkpoint was checked against the installation's key.
    pub checkpoints: u64,
    /// Witnessed heads that agree with the trail.
    pub witnessed_heads: u64,
    /// The extent of the promise: records covered by the last witnessed head that agrees.
    pub promised_records: u64,
    /// The witnesses of the trail, and the extent of each.
    pub vouched_by: Vec<TrailWitness>,
    /// The cosignatures that agree with the trail.
    pub cosigned_by: Vec<TrailCosignature>,
    /// The hosts whose trails this one witnesses.
    pub hosts: Vec<WitnessedHost>,
}

/// A host that this one witnesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WitnessedHost {
    /// Its name.
    pub host: String,
    /// Records of the last checkpoint of its trail that this host signed.
    pub records: u64,
    /// The time at which it was signed, seconds since 1970.
    pub time: u64,
    /// The evidence that its trail was cut off or rewritten.
    pub rewritten: Option<PathBuf>,
}

impl std::fmt::Display for WitnessedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let time = utc(SystemTime::UNIX_EPOCH + Duration::from_secs(self.time));
        write!(
            f,
            "{}: {} records, signed at {time}",
            self.host, self.records
        )
    }
}

/// A witness's cosignature under a checkpoint of a trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrailCosignature {
    /// The name of the witness's key.
    pub witness: String,
    /// The number of records of the checkpoint.
    pub records: u64,
    /// The time at which it was signed, seconds since 1970.
    pub time: u64,
}

/// A witness of a trail: its head agrees with the trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrailWitness {
    /// The witness.
    pub by: Voucher,
    /// For how many records.
    pub records: u64,
}

/// The possible witnesses of a trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Voucher {
    /// A witness: a log of heads that the daemon cannot change, or a cosignature.
    Witness,
    /// The daemon's own note of the last head. It knows what others removed; who can write as the
    /// daemon's user can change it too.
    Note,
}

impl Report {
    /// True if nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.fault_count == 0
    }
}

/// The part of a trail that a directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it: it must reach to the last witnessed head.
    Whole,
    /// Copies of complete segments, which end before the trail does.
    Archive,
}
