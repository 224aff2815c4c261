//! Finding the end of a segment that an earlier process wrote.

use std::io;
use std::path::Path;

use crate::file::open_regular;
use crate::line::SegmentLine;
use crate::read::{read_piece, whole_lines};
use crate::state::{StateRecord, TrailState, carries_state};

/// The part of a segment's end that is read first, bytes. A segment that was ended properly has its
/// seal there.
const FIRST_WINDOW: u64 = 64 << 10;

/// The end of a segment's records, and the state of the trail there.
#[derive(Debug)]
pub(crate) struct SegmentEnd {
    /// The end of the last whole record, bytes.
    pub(crate) offset: u64,
    /// The length of the file, bytes.
    pub(crate) length: u64,
    /// The state after the last whole record; `None` where there is none.
    pub(crate) state: Option<TrailState>,
    /// True if the last whole record is a seal and nothing follows it.
    pub(crate) sealed: bool,
}

impl SegmentEnd {
    /// Reads backwards as far as needed to meet a record that carries the state of the trail, and
    /// from there forward to the last record that is whole and chained.
    pub(crate) fn find(path: &Path) -> io::Result<Self> {
        let mut file = open_regular(path)?;
        let length = file.metadata()?.len();
        let mut window = FIRST_WINDOW;
        loop {
            let start = length.saturating_sub(window);
            let (from, bytes) = read_piece(&mut file, start, length)?;
            if let Some(end) = Self::in_window(&bytes, from, length) {
                return Ok(end);
            }
            if start == 0 {
                if let Some(first) = whole_lines(&bytes).next().and_then(SegmentLine::parse) {
                    first.check_format(&path.file_stem().unwrap_or_default().to_string_lossy())?;
                }
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
            if SegmentLine::parse(line).is_some_and(|line| carries_state(line.kind)) {
                candidates.push(at);
            }
            at += line.len() + 1;
        }
        candidates.into_iter().rev().find_map(|from| {
            let mut state: Option<TrailState> = None;
            let mut sealed = false;
            let mut at = from;
            for bytes in whole_lines(&bytes[from..]) {
                let Some((line, leaf)) =
                    SegmentLine::parse(bytes).and_then(|line| Some((line, line.leaf()?)))
                else {
                    break;
                };
                let state = match &mut state {
                    Some(state) => state,
                    None => state.insert(TrailState {
                        head: *line.prev,
                        tree: StateRecord::parse(&line)?.tree()?,
                    }),
                };
                if *line.prev != state.head || line.n != state.records() {
                    break;
                }
                state.push(leaf);
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
