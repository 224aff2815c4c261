//! Proofs for somebody who has nothing but a published checkpoint, root or key: that a record is in
//! the trail (c2sp.org/tlog-proof), and that a trail only grew (the request of
//! c2sp.org/tlog-witness).

use std::fmt::{self, Display, Formatter};
use std::ops::ControlFlow;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::error::ProofError;
use crate::line::{SegmentLine, decimal};
use crate::merkle::{Hash, Suffix, from_hex, grows_into, leaf_hash, root_from_path};
use crate::signed_note::{Checkpoint, Verifier};
use crate::walk::walk_records;

/// The first line of an inclusion proof.
const FORMAT: &str = "c2sp.org/tlog-proof@v1";

/// The data of a record's leaf, RFC 6962 §2.1: the hash of the record before it in hex, a newline,
/// and its own bytes.
pub(crate) fn entry_of(line: &SegmentLine<'_>) -> Vec<u8> {
    [line.prev, &b"\n"[..], line.rec].concat()
}

/// An inclusion proof, RFC 6962 §2.1.1, with all that is needed to check it elsewhere. Its text is
/// the form of c2sp.org/tlog-proof, with the leaf's data as `extra`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InclusionProof {
    /// The hash of the record before it in hex, a newline, and the record's bytes as written.
    pub entry: String,
    /// The record's number.
    pub index: u64,
    /// The audit path from the leaf upwards.
    path: Vec<Hash>,
    /// The signed checkpoint.
    pub checkpoint: String,
}

impl Display for InclusionProof {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let entry = BASE64.encode(&self.entry);
        write!(f, "{FORMAT}\nextra {entry}\nindex {}\n", self.index)?;
        write_hashes(f, &self.path)?;
        write!(f, "\n{}", self.checkpoint)
    }
}

impl InclusionProof {
    /// Reads the text of a proof.
    fn parse(text: &str) -> Result<Self, ProofError> {
        let form = |what: &str| ProofError::Form(what.to_owned());
        let (head, checkpoint) = text
            .split_once("\n\n")
            .ok_or_else(|| form("no empty line"))?;
        let mut lines = head.split('\n');
        if lines.next() != Some(FORMAT) {
            return Err(ProofError::Form(format!("its first line is not {FORMAT}")));
        }
        let entry = lines.next().and_then(|line| line.strip_prefix("extra "));
        let entry = entry.and_then(|extra| String::from_utf8(BASE64.decode(extra).ok()?).ok());
        let index = lines
            .next()
            .and_then(|line| decimal(line.strip_prefix("index ")?));
        Ok(Self {
            entry: entry
                .filter(|entry| {
                    entry.get(64..65) == Some("\n") && from_hex(&entry.as_bytes()[..64]).is_some()
                })
                .ok_or_else(|| form("its extra line does not hold a record"))?,
            index: index.ok_or_else(|| form("no index"))?,
            path: read_hashes(lines)?,
            checkpoint: checkpoint.to_owned(),
        })
    }

    /// The record's bytes as written.
    #[must_use]
    pub fn record(&self) -> &str {
        self.entry.get(65..).unwrap_or_default()
    }

    /// Size and root of the checkpoint, if entry and path lead to it.
    ///
    /// # Errors
    /// Where they do not, or it is no checkpoint.
    pub fn tree(&self) -> Result<(u64, Hash), ProofError> {
        let checkpoint = Checkpoint::parse(&self.checkpoint)?;
        checkpoint.check_signatures()?;
        let leaf = leaf_hash(self.entry.as_bytes());
        let root = root_from_path(leaf, self.index, checkpoint.size, &self.path);
        let root = root.ok_or_else(|| ProofError::Form("the path has the wrong length".into()))?;
        if root != checkpoint.root {
            return Err(ProofError::Root("the one in the checkpoint"));
        }
        Ok((checkpoint.size, root))
    }
}

fn write_hashes(f: &mut Formatter<'_>, hashes: &[Hash]) -> fmt::Result {
    hashes
        .iter()
        .try_for_each(|hash| writeln!(f, "{}", BASE64.encode(hash)))
}

fn read_hashes<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<Hash>, ProofError> {
    let hashes = lines.map(|line| BASE64.decode(line).ok()?.try_into().ok());
    let hashes = hashes.collect::<Option<_>>();
    hashes.ok_or_else(|| ProofError::Form("the path is not made of hashes".into()))
}

/// Proves that record `n` of the trail in `dir` is under a checkpoint of its own: the one that is
/// given, a cosigned one for example, or that of the first seal that follows the record.
///
/// # Errors
/// Where there is no such record, no seal after it, the checkpoint is of no seal of this trail, or
/// the trail cannot be read there.
pub fn prove(dir: &Path, n: u64, checkpoint: Option<&str>) -> Result<InclusionProof, ProofError> {
    let wanted = checkpoint.map(Checkpoint::parse).transpose()?;
    let mut suffix: Option<Suffix> = None;
    let mut entry = None;
    let mut proof = None;
    walk_records(dir, Some(n), |record| {
        let suffix = suffix.get_or_insert_with(|| Suffix::new(record.tree));
        let is_wanted = wanted
            .as_ref()
            .is_none_or(|wanted| wanted.size == record.tree.size());
        if let (Some(entry), Some(sealed), true) = (&entry, &record.checkpoint, is_wanted) {
            let path = suffix.path(n).ok_or(ProofError::NoRecord(n))?;
            let found = InclusionProof {
                entry: String::clone(entry),
                index: n,
                path,
                checkpoint: checkpoint.unwrap_or(sealed).to_owned(),
            };
            // A checkpoint that its own records do not lead to must not leave the house.
            found.tree()?;
            proof = Some(found);
            return Ok(ControlFlow::Break(()));
        }
        if record.line.n == n {
            let text = String::from_utf8(entry_of(&record.line));
            entry = Some(text.map_err(|_| ProofError::Form(format!("record {n} is not UTF-8")))?);
        }
        suffix.push(record.leaf);
        Ok::<_, ProofError>(ControlFlow::Continue(()))
    })?;
    match (proof, entry, wanted) {
        (Some(proof), _, _) => Ok(proof),
        (None, Some(_), Some(wanted)) => Err(ProofError::Form(format!(
            "the trail has no seal of {} records behind record {n}",
            wanted.size
        ))),
        (None, Some(_), None) => Err(ProofError::NotSealed(n)),
        (None, None, _) => Err(ProofError::NoRecord(n)),
    }
}

/// Checks a proof against what was published: a root in hex, a key that signs checkpoints, or both.
/// Needs nothing else, so it runs on any machine.
///
/// # Errors
/// Where it is no proof, does not hold, or nothing was given to check it against.
pub fn check_proof(
    text: &str,
    root: Option<&str>,
    verifier: Option<&Verifier>,
) -> Result<InclusionProof, ProofError> {
    let proof = InclusionProof::parse(text)?;
    let tree = proof.tree()?;
    if root.is_none() && verifier.is_none() {
        return Err(ProofError::NoAnchor);
    }
    if let Some(root) = root
        && from_hex(root.trim().as_bytes()) != Some(tree.1)
    {
        return Err(ProofError::Root("the published one"));
    }
    if let Some(verifier) = verifier
        && verifier.open(&proof.checkpoint)? != tree
    {
        return Err(ProofError::Root("the one in the signed checkpoint"));
    }
    Ok(proof)
}

/// A consistency proof, RFC 6962 §2.1.2: the trail of a checkpoint continues the one of `old`
/// records. Its text is the request of c2sp.org/tlog-witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowthProof {
    /// The number of records of the tree that somebody knows already.
    pub old: u64,
    pub(crate) path: Vec<Hash>,
    /// The signed checkpoint of the tree that continues it.
    pub checkpoint: String,
}

impl Display for GrowthProof {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "old {}", self.old)?;
        write_hashes(f, &self.path)?;
        write!(f, "\n{}", self.checkpoint)
    }
}

impl std::str::FromStr for GrowthProof {
    type Err = ProofError;

    fn from_str(text: &str) -> Result<Self, ProofError> {
        let form = |what: &str| ProofError::Form(what.to_owned());
        let (head, checkpoint) = text
            .split_once("\n\n")
            .ok_or_else(|| form("no empty line"))?;
        let mut lines = head.split('\n');
        let old = lines
            .next()
            .and_then(|line| decimal(line.strip_prefix("old ")?));
        Ok(Self {
            old: old.ok_or_else(|| form("its first line is not \"old\" and a number"))?,
            path: read_hashes(lines)?,
            checkpoint: checkpoint.to_owned(),
        })
    }
}

impl GrowthProof {
    /// True if a tree of `old` records with this root is a beginning of the tree of that size and
    /// root.
    pub(crate) fn holds(&self, old_root: &Hash, size: u64, root: &Hash) -> bool {
        grows_into(self.old, old_root, size, root, &self.path)
    }
}

/// Proves that the last sealed tree of the trail in `dir` continues the one of its first `old`
/// records.
///
/// # Errors
/// Where fewer are sealed, record `old` was dropped, or the trail cannot be read there.
pub fn prove_growth(dir: &Path, old: u64) -> Result<GrowthProof, ProofError> {
    let mut suffix = None;
    let mut last = None;
    // Nothing need be proved of an empty tree.
    walk_records(dir, (old > 0).then_some(old), |record| {
        let size = record.tree.size();
        if size == old {
            suffix = Some(Suffix::new(record.tree));
        }
        if let Some(checkpoint) = record.checkpoint {
            last = Some((size, checkpoint));
        }
        if let Some(suffix) = &mut suffix {
            suffix.push(record.leaf);
        }
        Ok::<_, ProofError>(ControlFlow::Continue(()))
    })?;
    let (size, checkpoint) = last
        .filter(|(size, _)| *size >= old)
        .ok_or(ProofError::NotSealed(old))?;
    let path = match suffix {
        Some(suffix) if old > 0 => suffix.growth(size),
        _ => Some(Vec::new()),
    };
    Ok(GrowthProof {
        old,
        path: path.ok_or(ProofError::NoRecord(old))?,
        checkpoint,
    })
}
