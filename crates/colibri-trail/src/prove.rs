//! Proving that a record is in the trail, to somebody who has nothing but a published checkpoint or root.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::line::{SegmentLine, link};
use crate::merkle::{Hash, HexHash, Suffix, from_hex, root_from_path};
use crate::read::{LineReader, Read, TrailListing};
use crate::signed_note::{Checkpoint, NoteError, Verifier};
use crate::state::{StateRecord, object};

/// The value of `format` in a proof.
const FORMAT: &str = "colibri-mcp/trail-proof/2";

/// The reason for which a proof cannot be made, or does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The trail cannot be read.
    #[error("cannot read the trail: {0}")]
    Io(#[from] io::Error),
    /// There is no such record.
    #[error("the trail has no record {0}; it may have been dropped by retention, or is not written yet")]
    NoRecord(u64),
    /// The record is newer than the last seal.
    #[error("record {0} is not sealed yet; a seal follows within 4,096 records and when the daemon stops")]
    NotSealed(u64),
    /// The trail is damaged where the proof would come from.
    #[error("the trail is damaged in segment {segment} at line {line}; run `colibri-mcp trail verify`")]
    Damaged {
        /// The segment.
        segment: String,
        /// The line, counted from 1.
        line: u64,
    },
    /// Not a proof.
    #[error("not a trail proof: {0}")]
    Form(String),
    /// Root and path disagree with the record.
    #[error("the proof does not hold: the record and its path lead to another root than {0}")]
    Root(&'static str),
    /// The checkpoint is no good.
    #[error(transparent)]
    Checkpoint(#[from] NoteError),
    /// Nothing to check against.
    #[error("a proof shows nothing by itself: give the published root, or the key that signs the checkpoints")]
    NoAnchor,
}

/// An inclusion proof, RFC 6962 §2.1.1, with all that is needed to check it elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InclusionProof {
    /// `colibri-mcp/trail-proof/2`.
    pub format: String,
    /// The hash of the record before it, hex: part of the leaf.
    pub prev: String,
    /// The record's bytes as written.
    pub record: String,
    /// The record's number.
    pub leaf_index: u64,
    /// The number of records that the root covers.
    pub tree_size: u64,
    /// The root, hex.
    pub root: String,
    /// The audit path from the leaf upwards, hex.
    pub path: Vec<String>,
    /// The signed checkpoint of that root and size.
    pub checkpoint: String,
}

/// Proves that record `n` of the trail in `dir` is under the first seal that follows it.
///
/// # Errors
/// Where there is no such record, no seal after it, or the trail cannot be read there.
pub fn prove(dir: &Path, n: u64) -> Result<InclusionProof, ProofError> {
    let listing = TrailListing::read(dir)?;
    let mut buffer = Vec::new();
    let mut from = None;
    for (at, name) in listing.segments.iter().enumerate() {
        if LineReader::open(&name.path(dir), None)?.next(&mut buffer)? == Read::Line
            && SegmentLine::parse(&buffer).is_some_and(|line| line.n <= n)
        {
            from = Some(at);
        }
    }
    let from = from.ok_or(ProofError::NoRecord(n))?;
    let mut suffix: Option<Suffix> = None;
    let mut record = None;
    for name in &listing.segments[from..] {
        let limit = listing.torn.get(name).map(|torn| torn.offset);
        let mut reader = LineReader::open(&name.path(dir), limit)?;
        let mut number = 0;
        while reader.next(&mut buffer)? == Read::Line {
            number += 1;
            let damaged = || ProofError::Damaged {
                segment: name.to_string(),
                line: number,
            };
            let line = SegmentLine::parse(&buffer).ok_or_else(damaged)?;
            let leaf = line.leaf().ok_or_else(damaged)?;
            let state = StateRecord::parse(&line);
            let suffix = match &mut suffix {
                Some(suffix) => suffix,
                None => {
                    let tree = state.as_ref().and_then(StateRecord::tree).ok_or_else(damaged)?;
                    suffix.insert(Suffix::new(&tree))
                }
            };
            if let (Some((prev, record)), Some(state)) = (&record, state)
                && let Some(checkpoint) = state.checkpoint
            {
                let path = suffix.path(n).ok_or_else(damaged)?;
                let proof = InclusionProof {
                    format: FORMAT.into(),
                    prev: String::clone(prev),
                    record: String::clone(record),
                    leaf_index: n,
                    tree_size: state.tree_size,
                    root: state.root,
                    path: path.iter().map(|hash| colibri_text::hex(hash)).collect(),
                    checkpoint,
                };
                // A seal that its own records do not lead to must not leave the house.
                hold(&proof).map_err(|_| damaged())?;
                return Ok(proof);
            }
            if line.n == n {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| damaged());
                record = Some((text(line.prev)?, text(line.rec)?));
            }
            suffix.push(leaf);
        }
    }
    Err(if record.is_some() {
        ProofError::NotSealed(n)
    } else {
        ProofError::NoRecord(n)
    })
}

/// Checks a proof against what was published: a root in hex, a key that signs checkpoints, or both. Needs nothing else,
/// so it runs on any machine.
///
/// # Errors
/// Where it is no proof, does not hold, or nothing was given to check it against.
pub fn check_proof(text: &str, root: Option<&str>, verifier: Option<&Verifier>) -> Result<InclusionProof, ProofError> {
    let proof: InclusionProof = object(text).map_err(|error| ProofError::Form(error.to_string()))?;
    if proof.format != FORMAT {
        return Err(ProofError::Form(format!("its format is not {FORMAT}")));
    }
    let computed = hold(&proof)?;
    if root.is_none() && verifier.is_none() {
        return Err(ProofError::NoAnchor);
    }
    if let Some(root) = root
        && from_hex(root.trim().as_bytes()) != Some(computed)
    {
        return Err(ProofError::Root("the published one"));
    }
    if let Some(verifier) = verifier
        && verifier.open(&proof.checkpoint)? != (proof.tree_size, computed)
    {
        return Err(ProofError::Root("the one in the signed checkpoint"));
    }
    Ok(proof)
}

/// Checks that record, path, root and checkpoint of a proof agree; returns the root.
fn hold(proof: &InclusionProof) -> Result<Hash, ProofError> {
    let path = proof
        .path
        .iter()
        .map(|hash| from_hex(hash.as_bytes()))
        .collect::<Option<Vec<_>>>();
    let path = path.ok_or_else(|| ProofError::Form("the path is not made of hashes".into()))?;
    let prev = from_hex(proof.prev.as_bytes()).and_then(|_| HexHash::try_from(proof.prev.as_bytes()).ok());
    let prev = prev.ok_or_else(|| ProofError::Form("prev is not a hash".into()))?;
    let root = root_from_path(
        link(&prev, proof.record.as_bytes()),
        proof.leaf_index,
        proof.tree_size,
        &path,
    );
    let root = root.ok_or_else(|| ProofError::Form("the path has the wrong length".into()))?;
    if from_hex(proof.root.as_bytes()) != Some(root) {
        return Err(ProofError::Root("the one in the proof"));
    }
    let checkpoint = Checkpoint::parse(&proof.checkpoint)?;
    if (checkpoint.size, checkpoint.root) != (proof.tree_size, root) {
        return Err(ProofError::Root("the one in the checkpoint"));
    }
    Ok(root)
}
