//! The lines of a segment: `{"hash":"…","prev":"…","rec":{…}}` with nothing else in them, so that
//! the bytes of `rec` are found by position.
//!
//! `hash` is the link of the chain, and the same hash is the record's leaf in the Merkle tree: each
//! record is hashed once.

use std::io;

use sha2::{Digest as _, Sha256};

use crate::merkle::{Hash, HexHash, from_hex, to_hex};

/// The `prev` of the first record.
pub(crate) const GENESIS: HexHash = [b'0'; 64];

/// The trail's format, as the first record of each segment names it.
pub(crate) const FORMAT: u64 = 2;

const BEFORE_HASH: &[u8] = b"{\"hash\":\"";
const BEFORE_PREV: &[u8] = b"\",\"prev\":\"";
const BEFORE_REC: &[u8] = b"\",\"rec\":";
const HASH_AT: usize = BEFORE_HASH.len();

/// The hash of a record: SHA-256(0x00 ‖ prev ‖ "\n" ‖ rec), prev as its 64 hex digits. That is the
/// leaf hash of RFC 6962 §2.1 over prev and record together.
pub(crate) fn link(prev: &HexHash, rec: &[u8]) -> Hash {
    let mut before = [0; 66];
    before[1..65].copy_from_slice(prev);
    before[65] = b'\n';
    Sha256::new()
        .chain_update(before)
        .chain_update(rec)
        .finalize()
        .into()
}

/// Appends one line to `out`: what `rec` writes, chained to `head`, which becomes its hash. Returns
/// that hash.
pub(crate) fn push_line(
    out: &mut Vec<u8>,
    head: &mut HexHash,
    rec: impl FnOnce(&mut Vec<u8>),
) -> Hash {
    let start = out.len();
    out.extend_from_slice(BEFORE_HASH);
    out.extend_from_slice(&GENESIS);
    out.extend_from_slice(BEFORE_PREV);
    out.extend_from_slice(head);
    out.extend_from_slice(BEFORE_REC);
    let from = out.len();
    rec(out);
    let hash = link(head, &out[from..]);
    *head = to_hex(&hash);
    out[start + HASH_AT..start + HASH_AT + 64].copy_from_slice(head);
    out.extend_from_slice(b"}\n");
    hash
}

/// A number as the trail writes them: decimal digits in their shortest form.
pub(crate) fn decimal(digits: &str) -> Option<u64> {
    let shortest = digits.bytes().all(|digit| digit.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'));
    shortest.then(|| digits.parse().ok())?
}

/// One line of a segment, split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentLine<'a> {
    /// The hash it claims.
    pub(crate) hash: &'a HexHash,
    /// The hash before it.
    pub(crate) prev: &'a HexHash,
    /// The record's bytes as written.
    pub(crate) rec: &'a [u8],
    /// The record's number.
    pub(crate) n: u64,
    /// The record's kind.
    pub(crate) kind: &'a str,
}

impl<'a> SegmentLine<'a> {
    /// Splits a line, given without its newline. `None` where it is not exactly of the trail's
    /// form. Whether its hash is right is another question: [`SegmentLine::leaf`].
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_prefix(BEFORE_HASH)?;
        let (hash, rest) = rest.split_first_chunk::<64>()?;
        let (prev, rest) = rest.strip_prefix(BEFORE_PREV)?.split_first_chunk::<64>()?;
        let rec = rest.strip_prefix(BEFORE_REC)?.strip_suffix(b"}")?;
        from_hex(hash)?;
        from_hex(prev)?;
        let after = rec.strip_prefix(b"{\"n\":")?;
        let digits = after.iter().position(|b| !b.is_ascii_digit())?;
        let n = decimal(std::str::from_utf8(&after[..digits]).ok()?)?;
        let kind = after[digits..].strip_prefix(b",\"kind\":\"")?;
        let kind = std::str::from_utf8(&kind[..kind.iter().position(|b| *b == b'"')?]).ok()?;
        rec.ends_with(b"}").then_some(Self {
            hash,
            prev,
            rec,
            n,
            kind,
        })
    }

    /// The record's leaf in the tree: the line's hash, if it is the one of what stands in it.
    pub(crate) fn leaf(&self) -> Option<Hash> {
        let hash = link(self.prev, self.rec);
        (to_hex(&hash) == *self.hash).then_some(hash)
    }

    /// Refuses the first line of a segment of format 1, which no release wrote: its hashes had no
    /// 0x00 before them.
    ///
    /// # Errors
    /// Where it is one.
    pub(crate) fn check_format(&self, segment: &str) -> io::Result<()> {
        let hasher = Sha256::new().chain_update(self.prev).chain_update(b"\n");
        if to_hex(&hasher.chain_update(self.rec).finalize().into()) != *self.hash {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "segment {segment} is of format 1, and this program reads format {FORMAT}: move the trail's directory and \
                 `trail.head` aside to begin a new trail"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_the_design_says() {
        let mut out = Vec::new();
        let mut head = GENESIS;
        let rec = br#"{"n":0,"kind":"event"}"#;
        let hash = push_line(&mut out, &mut head, |out| out.extend_from_slice(rec));
        let mut input = vec![0];
        input.extend_from_slice(&[b'0'; 64]);
        input.push(b'\n');
        input.extend_from_slice(rec);
        assert_eq!(hash, <Hash>::from(Sha256::digest(&input)));
        assert_eq!(head, to_hex(&hash));
        let hex = String::from_utf8(head.to_vec()).unwrap();
        let expected = format!(
            r#"{{"hash":"{hex}","prev":"{}","rec":{{"n":0,"kind":"event"}}}}"#,
            "0".repeat(64)
        );
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected + "\n");
        let line = SegmentLine::parse(&out[..out.len() - 1]).unwrap();
        assert_eq!(line.leaf(), Some(hash));
        line.check_format("x").unwrap();
        assert_eq!((line.n, line.kind, line.rec), (0, "event", &rec[..]));
    }

    #[test]
    fn a_line_of_format_1_is_named_as_such() {
        let (prev, rec) = ("0".repeat(64), r#"{"n":0,"kind":"open"}"#);
        let hash = colibri_text::hex(&Sha256::digest(format!("{prev}\n{rec}")));
        let line = format!(r#"{{"hash":"{hash}","prev":"{prev}","rec":{rec}}}"#);
        let line = SegmentLine::parse(line.as_bytes()).unwrap();
        assert_eq!(line.leaf(), None);
        let error = line
            .check_format("0000000001-20261121")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("segment 0000000001-20261121 is of format 1"),
            "{error}"
        );
    }

    #[test]
    fn other_forms_are_not_lines() {
        let mut out = Vec::new();
        push_line(&mut out, &mut GENESIS.clone(), |out| {
            out.extend_from_slice(br#"{"n":0,"kind":"event"}"#)
        });
        out.pop();
        for cut in 0..out.len() {
            assert_eq!(SegmentLine::parse(&out[..cut]), None, "cut at {cut}");
        }
        let text = String::from_utf8(out).unwrap();
        for (from, to) in [
            (":{", ": {"),
            ("0000", "000A"),
            ("\"n\":0", "\"n\":-1"),
            ("\"n\":0", "\"n\":"),
            ("\"n\":0", "\"n\":00"),
            ("\"n\":0", "\"n\":18446744073709551616"),
            ("kind", "Kind"),
        ] {
            assert_eq!(
                SegmentLine::parse(text.replacen(from, to, 1).as_bytes()),
                None,
                "{to}"
            );
        }
    }
}
