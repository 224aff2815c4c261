//! Reading a trail's directory and its segments, as far as their records count.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use colibri_files::{LineRead, read_line};

use crate::file::open_regular;
use crate::line::SegmentLine;
use crate::segment::SegmentName;
use crate::state::{StateRecord, Torn};

/// Longest line that a reader accepts, bytes with its end: a record holds at most arguments or a
/// result, and frames end at 16 MiB unless configured otherwise.
pub(crate) const MAX_LINE: u64 = 256 << 20;

/// The content of a trail's directory.
#[derive(Debug, Default)]
pub(crate) struct TrailListing {
    /// The segments, in order.
    pub(crate) segments: Vec<SegmentName>,
    /// Segments of which only the last seal is left, in order.
    pub(crate) dropped: Vec<SegmentName>,
    /// The bytes that do not count, by segment, as the `recovered` records say.
    pub(crate) torn: BTreeMap<SegmentName, Torn>,
    /// The last segment that has a whole line. One after it was made just before its process was
    /// killed.
    pub(crate) last: Option<SegmentName>,
}

impl TrailListing {
    /// Reads the directory, and the first line of each segment for the torn tails before it.
    ///
    /// # Errors
    /// Where the directory or a segment cannot be read, or a segment is of another format.
    pub(crate) fn read(dir: &Path) -> io::Result<Self> {
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
            let Some(line) = SegmentLine::parse(&buffer) else {
                continue;
            };
            line.check_format(&name.to_string())?;
            let first = line.leaf().and_then(|_| StateRecord::parse(&line));
            let Some(first) = first.filter(|first| first.tree().is_some()) else {
                continue;
            };
            for entry in first.torn {
                if let Some(earlier) = segments[..at]
                    .iter()
                    .find(|s| s.to_string() == entry.segment)
                {
                    torn.insert(*earlier, entry);
                }
            }
        }
        Ok(listing)
    }
}

/// The outcome of [`LineReader::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A whole line, in the buffer without its newline. Of one that is longer than [`MAX_LINE`]
    /// nothing is in it.
    Line,
    /// Bytes without a newline at the end.
    Partial,
    /// The end.
    End,
}

/// Reads a segment line by line, as far as its records count.
#[derive(Debug)]
pub(crate) struct LineReader {
    input: io::Take<BufReader<fs::File>>,
    offset: u64,
}

impl LineReader {
    /// Opens a segment; with `limit`, bytes from there on are not read.
    pub(crate) fn open(path: &Path, limit: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            input: BufReader::with_capacity(1 << 16, open_regular(path)?)
                .take(limit.unwrap_or(u64::MAX)),
            offset: 0,
        })
    }

    /// Goes to a byte of the segment; a limit does not apply any more.
    pub(crate) fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.input.get_mut().seek(SeekFrom::Start(offset))?;
        self.input.set_limit(u64::MAX);
        self.offset = offset;
        Ok(())
    }

    /// The beginning of the next line, bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next line into `line`.
    pub(crate) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Read> {
        let read = read_line(&mut self.input, MAX_LINE as usize - 1, line)?;
        Ok(match read {
            LineRead::Line => {
                self.offset += line.len() as u64 + 1;
                Read::Line
            }
            LineRead::TooLong {
                length,
                is_terminated: true,
            } => {
                line.clear();
                self.offset += length + 1;
                Read::Line
            }
            LineRead::TooLong { length, .. } => {
                self.offset += length;
                Read::Partial
            }
            LineRead::Unterminated => {
                self.offset += line.len() as u64;
                Read::Partial
            }
            LineRead::End => Read::End,
        })
    }
}

/// Reads the bytes `from..end` of a segment, without a line that began before them. Returns where
/// they begin.
pub(crate) fn read_piece(file: &mut fs::File, from: u64, end: u64) -> io::Result<(u64, Vec<u8>)> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(end - from).read_to_end(&mut bytes)?;
    if from > 0 {
        let next = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(bytes.len(), |at| at + 1);
        bytes.drain(..next);
        return Ok((from + next as u64, bytes));
    }
    Ok((0, bytes))
}

/// The lines of `bytes` that have an end, without it.
pub(crate) fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| line.strip_suffix(b"\n"))
}
