//! Finding the end of a segment that an earlier process wrote.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::file::open_regular;
use super::merkle::{Frontier, leaf_hash};
use super::segment::{Line, TreeRecord};

/// How much of a segment's end is read first, bytes. A segment that was ended properly has its seal there.
const FIRST_WINDOW: u64 = 64 << 10;

/// Where a segment's records end, and the state of the trail there.
#[derive(Debug)]
pub(super) struct SegmentEnd {
    /// Where the last whole record ends, bytes.
    pub(super) offset: u64,
    /// The length of the file, bytes.
    pub(super) length: u64,
    /// Head and tree after the last whole record; `None` where there is none.
    pub(super) state: Option<([u8; 64], Frontier)>,
    /// Whether the last whole record is a seal and nothing follows it.
    pub(super) sealed: bool,
}

impl SegmentEnd {
    /// Reads backwards as far as needed to meet a record that carries the state of the trail, and from there forward to
    /// the last record that is whole and chained.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let mut file = open_regular(path)?;
        let length = file.metadata()?.len();
        let mut window = FIRST_WINDOW;
        loop {
            let start = length.saturating_sub(window);
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(start))?;
            (&mut file).take(length - start).read_to_end(&mut bytes)?;
            // The window may begin within a line.
            let skipped = if start == 0 {
                0
            } else {
                bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |at| at + 1)
            };
            if let Some(end) = Self::in_window(&bytes[skipped..], start + skipped as u64, length) {
                return Ok(end);
            }
            if start == 0 {
                return Ok(Self {
                    offset: 0,
                    length,
                    state: None,
                    sealed: false,
                });
            }
            window *= 8;
        }
    }

    fn in_window(bytes: &[u8], start: u64, length: u64) -> Option<Self> {
        let mut candidates = Vec::new();
        let mut at = 0;
        for line in whole_lines(bytes) {
            if Line::parse(line).is_some_and(|line| matches!(line.kind, "seal" | "open" | "recovered")) {
                candidates.push(at);
            }
            at += line.len() + 1;
        }
        candidates.into_iter().rev().find_map(|from| {
            let mut state: Option<([u8; 64], Frontier)> = None;
            let mut sealed = false;
            let mut at = from;
            for bytes in whole_lines(&bytes[from..]) {
                let Some(line) = Line::parse(bytes).filter(Line::is_intact) else {
                    break;
                };
                let (head, frontier) = match &mut state {
                    Some(state) => state,
                    None => {
                        let frontier = TreeRecord::parse(&line)?.frontier()?;
                        state.insert((*line.prev, frontier))
                    }
                };
                if line.prev != head || line.n != frontier.size() {
                    break;
                }
                frontier.push(leaf_hash(line.rec));
                *head = *line.hash;
                sealed = line.kind == "seal";
                at += bytes.len() + 1;
            }
            let offset = start + at as u64;
            (at > from).then_some(Self {
                offset,
                length,
                state,
                sealed: sealed && offset == length,
            })
        })
    }
}

/// The lines of `bytes` that end with a newline, without it.
fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split_inclusive(|b| *b == b'\n')
        .filter_map(|line| line.strip_suffix(b"\n"))
}
