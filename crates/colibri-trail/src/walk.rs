//! A walk over the records of a trail in their order, with the tree before each: what proofs and
//! tiles are made from. It ends at the first thing that is wrong.

use std::ops::ControlFlow;
use std::path::Path;

use crate::error::ProofError;
use crate::line::SegmentLine;
use crate::merkle::{Frontier, Hash};
use crate::read::{LineReader, Read, TrailListing};
use crate::state::{StateRecord, carries_state};

/// One record of a walk, and the tree over all records before it.
pub(crate) struct WalkedRecord<'a> {
    /// The record's line.
    pub(crate) line: SegmentLine<'a>,
    /// Its leaf.
    pub(crate) leaf: Hash,
    /// The tree before it.
    pub(crate) tree: &'a Frontier,
    /// The signed checkpoint of that tree, if the record is a seal.
    pub(crate) checkpoint: Option<String>,
}

/// Walks from the beginning of the segment that holds record `from` (of the first one there is,
/// without it), until `visit` breaks off or the records end.
///
/// # Errors
/// Where there is no such segment, it cannot be read, a record does not follow the one before it,
/// or `visit` fails.
pub(crate) fn walk_records<E: From<ProofError>>(
    dir: &Path,
    from: Option<u64>,
    mut visit: impl FnMut(WalkedRecord<'_>) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    let io = |error| E::from(ProofError::Io(error));
    let listing = TrailListing::read(dir).map_err(io)?;
    let mut buffer = Vec::new();
    let mut first = None;
    for (at, name) in listing.segments.iter().enumerate() {
        let mut reader = LineReader::open(&name.path(dir), None).map_err(io)?;
        if reader.next(&mut buffer).map_err(io)? == Read::Line
            && let Some(line) = SegmentLine::parse(&buffer)
            && (first.is_none() && from.is_none() || from.is_some_and(|from| line.n <= from))
        {
            first = Some(at);
        }
    }
    let first = first.ok_or(ProofError::NoRecord(from.unwrap_or(0)))?;
    let mut walked: Option<Frontier> = None;
    for name in &listing.segments[first..] {
        let limit = listing.torn.get(name).map(|torn| torn.offset);
        let mut reader = LineReader::open(&name.path(dir), limit).map_err(io)?;
        let mut number = 0;
        while reader.next(&mut buffer).map_err(io)? == Read::Line {
            number += 1;
            let damaged = || {
                E::from(ProofError::Damaged {
                    segment: name.to_string(),
                    line: number,
                })
            };
            let line = SegmentLine::parse(&buffer).ok_or_else(damaged)?;
            let leaf = line.leaf().ok_or_else(damaged)?;
            let state = StateRecord::parse(&line);
            let stated = state.as_ref().and_then(StateRecord::tree);
            if carries_state(line.kind) && stated.is_none() {
                return Err(damaged());
            }
            let tree = match (&mut walked, stated) {
                (None, stated) => walked.insert(stated.ok_or_else(damaged)?),
                (Some(tree), Some(stated)) if *tree != stated => return Err(damaged()),
                (Some(tree), _) => tree,
            };
            if tree.size() != line.n {
                return Err(damaged());
            }
            let checkpoint = state.and_then(|state| state.checkpoint);
            let record = WalkedRecord {
                line,
                leaf,
                tree,
                checkpoint,
            };
            if visit(record)?.is_break() {
                return Ok(());
            }
            tree.push(leaf);
        }
    }
    Ok(())
}
