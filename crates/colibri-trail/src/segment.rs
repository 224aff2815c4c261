//! Segments: their names, their lines, and how they are read.
//!
//! A trail is a directory of segments, `0000000042-20261121.jsonl`: an ordinal that only grows, so that names sort in
//! the order of writing even if the clock goes back, and the day it was begun. Each line is
//! `{"hash":"…","prev":"…","rec":{…}}` with nothing else in it, so that the bytes of `rec` are found by position.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use colibri_text::{hex_into, push_hex, unhex_into};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::file::open_regular;
use super::merkle::{Frontier, Hash};
use super::record::{self, Clock, Date};

/// The hash before the first record.
pub const GENESIS: [u8; 64] = [b'0'; 64];

/// Longest line that a reader accepts, bytes: a record holds at most arguments or a result, and frames end at 16 MiB
/// unless configured otherwise.
pub const MAX_LINE: u64 = 256 << 20;

const BEFORE_HASH: &[u8] = b"{\"hash\":\"";
const BEFORE_PREV: &[u8] = b"\",\"prev\":\"";
const BEFORE_REC: &[u8] = b"\",\"rec\":";
const HASH_AT: usize = BEFORE_HASH.len();
const PREV_AT: usize = HASH_AT + 64 + BEFORE_PREV.len();
const REC_AT: usize = PREV_AT + 64 + BEFORE_REC.len();

/// A hash as 64 lower-case hex digits.
#[must_use]
pub fn to_hex(hash: &Hash) -> [u8; 64] {
    let mut hex = [0; 64];
    hex_into(hash, &mut hex);
    hex
}

/// The hash of 64 lower-case hex digits; `None` for anything else.
#[must_use]
pub fn from_hex(hex: &[u8]) -> Option<Hash> {
    let mut hash = [0; 32];
    unhex_into(hex, &mut hash).then_some(hash)
}

pub(super) fn push_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The hash of a record in the chain: SHA-256(prev ‖ "\n" ‖ rec), prev as its 64 hex digits.
#[must_use]
pub fn chain_hash(prev: &[u8], rec: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(prev);
    hasher.update(b"\n");
    hasher.update(rec);
    hasher.finalize().into()
}

/// Appends one line to `out`: what `rec` writes, chained to `head`, which becomes its hash. Returns the range of the
/// record's bytes.
pub(super) fn push_line(
    out: &mut Vec<u8>,
    head: &mut [u8; 64],
    rec: impl FnOnce(&mut Vec<u8>),
) -> std::ops::Range<usize> {
    let start = out.len();
    out.extend_from_slice(BEFORE_HASH);
    out.extend_from_slice(&GENESIS);
    out.extend_from_slice(BEFORE_PREV);
    out.extend_from_slice(head);
    out.extend_from_slice(BEFORE_REC);
    rec(out);
    let span = start + REC_AT..out.len();
    *head = to_hex(&chain_hash(head, &out[span.clone()]));
    out[start + HASH_AT..start + HASH_AT + 64].copy_from_slice(head);
    out.extend_from_slice(b"}\n");
    span
}

/// One line of a segment, split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The hash it claims, 64 hex digits.
    pub hash: &'a [u8; 64],
    /// The hash before it, 64 hex digits.
    pub prev: &'a [u8; 64],
    /// The record's bytes as written.
    pub rec: &'a [u8],
    /// The record's number.
    pub n: u64,
    /// The record's kind.
    pub kind: &'a str,
}

impl<'a> Line<'a> {
    /// Splits a line, given without its newline. `None` where it is not exactly of the trail's form. Whether its hash
    /// is right is another question: [`Line::is_intact`].
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let rest = line.strip_prefix(BEFORE_HASH)?;
        let (hash, rest) = rest.split_first_chunk::<64>()?;
        let (prev, rest) = rest.strip_prefix(BEFORE_PREV)?.split_first_chunk::<64>()?;
        let rec = rest.strip_prefix(BEFORE_REC)?.strip_suffix(b"}")?;
        from_hex(hash)?;
        from_hex(prev)?;
        let after = rec.strip_prefix(b"{\"n\":")?;
        let digits = after.iter().position(|b| !b.is_ascii_digit())?;
        let n = std::str::from_utf8(&after[..digits]).ok()?.parse().ok()?;
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

    /// Whether the line's hash is that of what stands in it.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        to_hex(&chain_hash(self.prev, self.rec)) == *self.hash
    }
}

/// The name of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// Counts from 1, without gaps.
    pub ordinal: u64,
    /// The day it was begun, as the number 20261121.
    pub day: u64,
}

impl SegmentName {
    pub(super) fn new(ordinal: u64, time: SystemTime) -> Self {
        let date = Date::of(time);
        Self {
            ordinal,
            day: date.year * 10_000 + date.month * 100 + date.day,
        }
    }

    /// Whether a record of this time belongs in a later segment. The day before is taken too: records of midnight may be
    /// out of order. One further back tells that the clock had gone ahead when the segment was named.
    pub(super) fn is_of_another_day(&self, time: SystemTime) -> bool {
        let day = |time| Self::new(self.ordinal, time).day;
        day(time) > self.day || day(time + Duration::from_secs(86_400)) < self.day
    }

    /// Reads a file name with the given extension, `jsonl` for a segment, `seal` for what is left of a dropped one.
    #[must_use]
    pub fn parse(name: &str, extension: &str) -> Option<Self> {
        let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
        let (ordinal, day) = stem.split_once('-')?;
        if ordinal.len() < 10 || day.len() < 8 || !stem.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
            return None;
        }
        let parsed = Self {
            ordinal: ordinal.parse().ok()?,
            day: day.parse().ok()?,
        };
        (parsed.to_string() == stem).then_some(parsed)
    }

    /// Its file in `dir`.
    #[must_use]
    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}.jsonl"))
    }

    /// The file in `dir` that keeps its last seal after it was dropped.
    #[must_use]
    pub fn seal_path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}.seal"))
    }
}

impl std::fmt::Display for SegmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:010}-{:08}", self.ordinal, self.day)
    }
}

/// What stands behind the last counted record of a segment that was not ended by a seal. It stays in the file; the
/// `recovered` record that opens the next segment names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Torn {
    /// The segment's name.
    pub segment: String,
    /// Where its counted records end, bytes.
    pub offset: u64,
    /// How many bytes follow that do not count.
    pub length: u64,
}

/// The records that carry the state of the whole trail: `open` and `recovered` as the first of a segment, `seal`.
/// All of them speak of the records before them.
#[derive(Debug, Deserialize)]
pub struct TreeRecord {
    /// How many records there were: the leaves of the tree.
    pub tree_size: u64,
    /// The Merkle root over them, hex.
    pub root: String,
    /// The hash of the last of them, hex.
    pub head: String,
    /// The frontier of the tree, hex, largest first.
    pub peaks: Vec<String>,
    /// Of a seal: why it was written: `count`, `rotation`, `shutdown`.
    pub reason: Option<String>,
    /// Of a seal: the signed checkpoint of root and size.
    pub checkpoint: Option<String>,
    /// Of the first record of a segment: the name of the segment before it.
    pub previous: Option<String>,
    /// Of a `recovered` record: what does not count.
    #[serde(default)]
    pub torn: Vec<Torn>,
}

impl TreeRecord {
    /// Reads one of these records from its bytes. `None` where it is another kind of record.
    #[must_use]
    pub fn parse(line: &Line<'_>) -> Option<Self> {
        if matches!(line.kind, "open" | "recovered" | "seal") {
            serde_json::from_slice(line.rec).ok()
        } else {
            None
        }
    }

    /// The frontier it carries, if its root is the one it names.
    #[must_use]
    pub fn frontier(&self) -> Option<Frontier> {
        let peaks = self
            .peaks
            .iter()
            .map(|p| from_hex(p.as_bytes()))
            .collect::<Option<Vec<_>>>()?;
        let frontier = Frontier::resume(self.tree_size, peaks)?;
        (to_hex(&frontier.root()) == self.root.as_bytes()).then_some(frontier)
    }
}

/// Writes the fields that `open`, `recovered` and `seal` share.
pub(super) fn push_tree(out: &mut Vec<u8>, frontier: &Frontier, head: &[u8; 64]) {
    record::number(out, "tree_size", frontier.size());
    out.extend_from_slice(b",\"root\":\"");
    push_hex(out, &frontier.root());
    out.extend_from_slice(b"\",\"head\":\"");
    out.extend_from_slice(head);
    out.extend_from_slice(b"\",\"peaks\":[");
    for (i, peak) in frontier.peaks().iter().enumerate() {
        out.extend_from_slice(if i == 0 { b"\"" } else { b",\"" });
        push_hex(out, peak);
        out.push(b'"');
    }
    out.push(b']');
}

/// Writes the first record of a segment.
pub(super) fn push_opening(
    out: &mut Vec<u8>,
    clock: &mut Clock,
    frontier: &Frontier,
    head: &[u8; 64],
    previous: Option<SegmentName>,
    torn: &[Torn],
) {
    record::open(out, frontier.size(), if torn.is_empty() { "open" } else { "recovered" });
    clock.write(out, SystemTime::now());
    if let Some(previous) = previous {
        record::text(out, "previous", &previous.to_string());
    }
    if !torn.is_empty() {
        out.extend_from_slice(b",\"torn\":[");
        for (i, torn) in torn.iter().enumerate() {
            out.extend_from_slice(if i == 0 {
                b"{\"segment\":\""
            } else {
                b",{\"segment\":\""
            });
            out.extend_from_slice(torn.segment.as_bytes());
            out.push(b'"');
            record::number(out, "offset", torn.offset);
            record::number(out, "length", torn.length);
            out.push(b'}');
        }
        out.push(b']');
    }
    push_tree(out, frontier, head);
    out.push(b'}');
}

/// What is in a trail's directory.
#[derive(Debug, Default)]
pub struct Listing {
    /// The segments, in order.
    pub segments: Vec<SegmentName>,
    /// Segments of which only the last seal is left, in order.
    pub dropped: Vec<SegmentName>,
    /// What does not count, by segment, as the `recovered` records say.
    pub torn: BTreeMap<SegmentName, Torn>,
    /// The last segment that has a whole line. One after it was made just before its process was killed.
    pub last: Option<SegmentName>,
}

impl Listing {
    /// Reads the directory, and the first line of each segment for the torn tails before it.
    ///
    /// # Errors
    /// Where the directory or a segment cannot be read.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            listing.segments.extend(SegmentName::parse(name, "jsonl"));
            listing.dropped.extend(SegmentName::parse(name, "seal"));
        }
        listing.segments.sort_unstable();
        listing.dropped.sort_unstable();
        // A crash while dropping leaves both; the segment is what counts then.
        let Self {
            segments,
            dropped,
            torn,
            last,
        } = &mut listing;
        dropped.retain(|name| segments.binary_search(name).is_err());
        let mut buffer = Vec::new();
        for (at, name) in segments.iter().enumerate() {
            let mut reader = LineReader::open(&name.path(dir), None)?;
            if reader.next(&mut buffer)? != Read::Line {
                continue;
            }
            *last = Some(*name);
            let Some(first) = Line::parse(&buffer)
                .filter(Line::is_intact)
                .and_then(|l| TreeRecord::parse(&l))
            else {
                continue;
            };
            for entry in first.torn {
                if let Some(earlier) = segments[..at].iter().find(|s| s.to_string() == entry.segment) {
                    torn.insert(*earlier, entry);
                }
            }
        }
        Ok(listing)
    }
}

/// What [`LineReader::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A whole line, in the buffer without its newline.
    Line,
    /// Bytes without a newline at the end, or a line longer than [`MAX_LINE`].
    Partial,
    /// The end.
    End,
}

/// Reads a segment line by line, as far as its records count.
#[derive(Debug)]
pub(super) struct LineReader {
    input: io::Take<BufReader<fs::File>>,
    offset: u64,
}

impl LineReader {
    /// Opens a segment; with `limit`, bytes from there on are not read.
    pub(super) fn open(path: &Path, limit: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            input: BufReader::with_capacity(1 << 16, open_regular(path)?).take(limit.unwrap_or(u64::MAX)),
            offset: 0,
        })
    }

    /// Goes to a byte of the segment; a limit does not apply any more.
    pub(super) fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.input.get_mut().seek(SeekFrom::Start(offset))?;
        self.input.set_limit(u64::MAX);
        self.offset = offset;
        Ok(())
    }

    /// Where the next line starts, bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next line into `line`. After `Partial`, reading goes on behind what was read.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Read> {
        line.clear();
        let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', line)?;
        self.offset += read as u64;
        if line.last() == Some(&b'\n') {
            line.pop();
            return Ok(Read::Line);
        }
        Ok(if read == 0 { Read::End } else { Read::Partial })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_ordinal_and_round_trip() {
        let name = SegmentName {
            ordinal: 42,
            day: 20_261_121,
        };
        assert_eq!(name.to_string(), "0000000042-20261121");
        assert_eq!(SegmentName::parse("0000000042-20261121.jsonl", "jsonl"), Some(name));
        for bad in [
            "42-20261121.jsonl",
            "0000000042-20261121.seal",
            "x",
            "-.jsonl",
            "0000000042-2026-1121.jsonl",
            "+000000042-20261121.jsonl",
            "00000000042-20261121.jsonl",
        ] {
            assert_eq!(SegmentName::parse(bad, "jsonl"), None, "{bad}");
        }
        assert!(
            SegmentName {
                ordinal: 9,
                day: 20_270_101
            } < SegmentName {
                ordinal: 10,
                day: 20_260_101
            }
        );
    }

    #[test]
    fn a_line_is_what_the_design_says() {
        let mut out = Vec::new();
        let mut head = GENESIS;
        let rec = br#"{"n":0,"kind":"event"}"#;
        let span = push_line(&mut out, &mut head, |out| out.extend_from_slice(rec));
        assert_eq!(&out[span], rec);
        let mut input = vec![b'0'; 64];
        input.push(b'\n');
        input.extend_from_slice(rec);
        let hash: Hash = Sha256::digest(&input).into();
        assert_eq!(head, to_hex(&hash));
        let hex = String::from_utf8(head.to_vec()).unwrap();
        let expected = format!(
            r#"{{"hash":"{hex}","prev":"{}","rec":{{"n":0,"kind":"event"}}}}"#,
            "0".repeat(64)
        );
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected + "\n");
        let line = Line::parse(&out[..out.len() - 1]).unwrap();
        assert!(line.is_intact());
        assert_eq!((line.n, line.kind, line.rec), (0, "event", &rec[..]));
    }

    #[test]
    fn other_forms_are_not_lines() {
        let mut out = Vec::new();
        push_line(&mut out, &mut GENESIS.clone(), |out| {
            out.extend_from_slice(br#"{"n":0,"kind":"event"}"#)
        });
        out.pop();
        for cut in 0..out.len() {
            assert_eq!(Line::parse(&out[..cut]), None, "cut at {cut}");
        }
        let text = String::from_utf8(out).unwrap();
        for (from, to) in [
            (":{", ": {"),
            ("0000", "000A"),
            ("\"n\":0", "\"n\":-1"),
            ("\"n\":0", "\"n\":"),
            ("kind", "Kind"),
        ] {
            assert_eq!(Line::parse(text.replacen(from, to, 1).as_bytes()), None, "{to}");
        }
    }
}
