//! Witnesses: where the head of the trail goes that its owner cannot take back.
//!
//! The chain has no key: who can write the files can compute all later hashes anew. So heads are
//! handed out as the trail grows, to syslog in production, whose files belong to root and may be on
//! another machine. What `verify` promises ends at the last head that a witness saw.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _};
use std::path::Path;

use colibri_files::{LineRead, read_line};
use colibri_text::hex;

use crate::cosignature::CosignedCheckpoint;
use crate::file::open_regular;
use crate::line::decimal;
use crate::merkle::{Hash, from_hex};
use crate::signed_note::{Signer, Verifier};

const MARK: &str = "trail-head ";
/// The most bytes of a line of a log in which a head is looked for.
const MAX_LOG_LINE: usize = 64 * 1024;

/// The state of the trail at one record, as handed to a witness. Its text is one line:
/// `trail-head records=N hash=… root=… origin=… sig=…`. It is signed, so that a line that another
/// user writes to the same log is not taken for one of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailHead {
    /// The number of records: the size of the tree.
    pub records: u64,
    /// The chain's hash of the last of them.
    pub hash: Hash,
    /// The Merkle root over them.
    pub root: Hash,
    /// The name of the installation's key.
    pub origin: String,
    /// Signature over all of it, as signed notes write theirs.
    pub signature: String,
}

impl TrailHead {
    /// A head, signed.
    #[must_use]
    pub fn sign(signer: &Signer, records: u64, hash: Hash, root: Hash) -> Self {
        let mut head = Self {
            records,
            hash,
            root,
            origin: signer.verifier().name().to_owned(),
            signature: String::new(),
        };
        head.signature = signer.sign(&head.text());
        head
    }

    /// The signed text. Its first line is no origin, so that it can never be taken for a
    /// checkpoint.
    fn text(&self) -> String {
        let (hash, root) = (hex(&self.hash), hex(&self.root));
        format!(
            "colibri-mcp trail head\n{}\n{}\n{hash}\n{root}\n",
            self.origin, self.records
        )
    }

    /// True if the signature is by that key.
    #[must_use]
    pub(crate) fn is_signed_by(&self, verifier: &Verifier) -> bool {
        self.origin == verifier.name() && verifier.verify(&self.text(), &self.signature)
    }

    /// Reads the daemon's own note of the last head: `None` where there is none, or it is empty
    /// after a power failure.
    ///
    /// # Errors
    /// Where the note cannot be read.
    pub fn noted(path: &Path) -> io::Result<Option<Self>> {
        let mut text = Vec::new();
        match open_regular(path) {
            Ok(file) => file.take(4096).read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Self::find(&String::from_utf8_lossy(&text)))
    }

    /// Finds a head in a line of a log, wherever in the line it stands.
    #[must_use]
    pub fn find(line: &str) -> Option<Self> {
        let mut fields = line[line.find(MARK)? + MARK.len()..].split_ascii_whitespace();
        let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        Some(Self {
            records: decimal(field("records")?)?,
            hash: from_hex(field("hash")?.as_bytes())?,
            root: from_hex(field("root")?.as_bytes())?,
            origin: field("origin")?.to_owned(),
            signature: field("sig")?.to_owned(),
        })
    }
}

impl std::fmt::Display for TrailHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (hash, root) = (hex(&self.hash), hex(&self.root));
        let Self {
            records,
            origin,
            signature,
            ..
        } = self;
        write!(
            f,
            "{MARK}records={records} hash={hash} root={root} origin={origin} sig={signature}"
        )
    }
}

/// Takes heads of the trail and keeps them out of the daemon's reach.
pub trait Witness: Send + Sync {
    /// Takes one head. Called from the trail's own thread, never on a call's way.
    ///
    /// # Errors
    /// Where it could not be handed on; the trail logs it and tries again with the next head.
    fn witness(&self, head: &TrailHead) -> io::Result<()>;
}

/// Heads found in a log, by number of records.
#[derive(Debug, Default)]
pub struct WitnessedHeads {
    /// The heads. Two different ones for the same number can both be genuine only if the trail was
    /// set back.
    pub heads: BTreeMap<u64, Vec<TrailHead>>,
    /// Lines that looked like heads of this trail but were not signed by its key.
    pub forged: u64,
    /// The daemon's own note of the last head. It stands where the daemon can write, so it promises
    /// nothing against the daemon's user; it misses what others removed.
    pub noted: Option<TrailHead>,
    /// Checkpoints of this trail that witnesses cosigned.
    pub cosigned: Vec<CosignedCheckpoint>,
}

impl WitnessedHeads {
    /// Reads a log, a syslog file for example. Everybody may write to it: a line of more than 64
    /// KiB, which no head is, is passed over. With a key, only heads signed by it count, and those
    /// of other installations are passed over.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn read(mut log: impl BufRead, verifier: Option<&Verifier>) -> io::Result<Self> {
        let mut found = Self::default();
        let mut line = Vec::new();
        loop {
            match read_line(&mut log, MAX_LOG_LINE, &mut line)? {
                LineRead::End => return Ok(found),
                LineRead::TooLong { .. } => continue,
                LineRead::Line | LineRead::Unterminated => {}
            }
            if let Some(head) = TrailHead::find(&String::from_utf8_lossy(&line)) {
                match verifier {
                    Some(key) if head.origin != key.name() => {}
                    Some(key) if !head.is_signed_by(key) => found.forged += 1,
                    _ => found.add(head),
                }
            }
        }
    }

    /// Adds the daemon's own note, unless it is not signed by the key.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn read_note(&mut self, path: &Path, verifier: Option<&Verifier>) -> io::Result<()> {
        match (TrailHead::noted(path)?, verifier) {
            (Some(head), Some(key)) if !head.is_signed_by(key) => self.forged += 1,
            (noted, _) => self.noted = noted,
        }
        Ok(())
    }

    /// Adds one head.
    pub fn add(&mut self, head: TrailHead) {
        let same = self.heads.entry(head.records).or_default();
        if !same.contains(&head) {
            same.push(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_heads_length_hides_no_head() {
        let dir = tempfile::tempdir().unwrap();
        let signer = Signer::load_or_create(&dir.path().join("trail.key"), "trail").unwrap();
        let head = |records| TrailHead::sign(&signer, records, [1; 32], [2; 32]);
        let filler = "x".repeat(MAX_LOG_LINE);
        let log = format!("{}\n{filler}{}\n{}\n{}", head(1), head(2), head(3), head(4));
        let read = |log: &str| WitnessedHeads::read(log.as_bytes(), None).unwrap();
        assert_eq!(read(&log).heads.into_keys().collect::<Vec<_>>(), [1, 3, 4]);
        // Neither is one that has not ended.
        let log = format!("{}\n{}{filler}", head(1), head(2));
        assert_eq!(read(&log).heads.into_keys().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_head_is_found_in_a_log_again() {
        let dir = tempfile::tempdir().unwrap();
        let signer = Signer::load_or_create(&dir.path().join("trail.key"), "trail").unwrap();
        let other = Signer::load_or_create(&dir.path().join("other.key"), "trail").unwrap();
        let head = TrailHead::sign(&signer, 4096, [1; 32], [2; 32]);
        let forged = TrailHead {
            hash: [3; 32],
            ..head.clone()
        };
        let log = format!(
            "Nov 21 22:45:22 host colibri-mcpd[9]: {head}\nNov 21 host x: {forged}\nhost: {}\nhost: trail-head records=x\n\
             host: {head}\n\u{fffd}\n",
            TrailHead::sign(&other, 5, [0; 32], [0; 32])
        );
        let log = format!("{log}{}\n", head.to_string().replace("=4096", "=04096"));
        let mut log = log.into_bytes();
        log.extend_from_slice(b"\xff\xfe trail-head\n");
        let found = WitnessedHeads::read(&log[..], Some(signer.verifier())).unwrap();
        assert_eq!(found.forged, 1);
        assert_eq!(found.heads, BTreeMap::from([(4096, vec![head])]));
        assert_eq!(WitnessedHeads::read(&log[..], None).unwrap().heads.len(), 2);
    }
}
