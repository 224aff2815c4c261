//! Reading records back, filtered, in order, and as they are written.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;

use super::file::open_regular;
use super::segment::{Line, LineReader, Listing, Read, SegmentName};

/// Calls that are remembered until their exit, to tell its user: as many as a daemon has in flight at most, and some.
const REMEMBERED: usize = 100_000;

/// How much of a segment's end [`tail`] reads, bytes.
const LAST_PIECE: u64 = 256 * 1024;

/// How often a followed trail is looked at.
const FOLLOW: Duration = Duration::from_millis(200);

/// Which records are wanted. What is `None` does not matter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Not before this time, `2026-11-21` or `2026-11-21T22:30:00Z` and anything between, UTC.
    pub since: Option<String>,
    /// Before this time, in the same form.
    pub until: Option<String>,
    /// By this user. Matches a call's enter, retry and exit records.
    pub uid: Option<u32>,
    /// For this server.
    pub server: Option<String>,
    /// For this tool or operation.
    pub tool: Option<String>,
    /// With this result: `SUCCESS`, `RETRY` or `FAIL`.
    pub result: Option<String>,
}

/// The fields that people look for, of whatever kind of record. Empty where a record has no such field.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fields {
    /// When, RFC 3339 in UTC.
    pub timestamp: String,
    /// Of an enter record: the user.
    pub uid: Option<u32>,
    /// Of an enter record: the method.
    pub method: String,
    /// Of an enter record: the server.
    pub server: String,
    /// Of an enter record: the tool.
    pub tool: String,
    /// Of an exit or retry record: the number of the enter record.
    pub enter: Option<u64>,
    /// Of an exit or retry record: the server.
    pub integration_id: String,
    /// Of an exit or retry record: the tool or method.
    pub operation: String,
    /// Of an exit or retry record: `SUCCESS`, `RETRY`, `FAIL`.
    pub result: String,
    /// Of an exit or retry record: which attempt.
    pub attempt_number: u32,
    /// Of an exit or retry record: the error.
    pub error_code: Option<String>,
    /// Of an exit or retry record: how long it took, milliseconds.
    pub latency_ms: f64,
    /// Of an event record: what happened.
    pub event: String,
    /// Of an event record: the particulars.
    pub details: BTreeMap<String, serde_json::Value>,
    /// Of a seal: how many records it covers.
    pub tree_size: u64,
    /// Of a seal: the root.
    pub root: String,
}

/// One record that passed the filter.
#[derive(Debug)]
pub struct Shown<'a> {
    /// Its number.
    pub n: u64,
    /// Its kind: `enter`, `exit`, `retry`, `event`, `seal`, `open`, `recovered`.
    pub kind: String,
    /// The record's bytes as written: one line of JSON.
    pub rec: &'a str,
    /// What it says.
    pub fields: Fields,
    /// The user of the call it belongs to, where known.
    pub uid: Option<u32>,
}

impl Filter {
    /// Whether a time is in the form that `since` and `until` take.
    #[must_use]
    pub fn is_time(text: &str) -> bool {
        let shape = b"0000-00-00T00:00:00.000000";
        let text = text.strip_suffix('Z').unwrap_or(text).as_bytes();
        matches!(text.len(), 4 | 7 | 10 | 13 | 16 | 19 | 21..=26)
            && text
                .iter()
                .zip(shape)
                .all(|(t, s)| if *s == b'0' { t.is_ascii_digit() } else { t == s })
    }

    fn passes(&self, fields: &Fields, uid: Option<u32>) -> bool {
        let bound = |bound: &Option<String>, reached: fn(&str, &str) -> bool| {
            bound
                .as_deref()
                .is_none_or(|b| reached(&fields.timestamp, b.strip_suffix('Z').unwrap_or(b)))
        };
        let either = |wanted: &Option<String>, a: &str, b: &str| wanted.as_deref().is_none_or(|w| w == a || w == b);
        bound(&self.since, |time, since| time >= since)
            && bound(&self.until, |time, until| time < until)
            && self.uid.is_none_or(|wanted| uid == Some(wanted))
            && either(&self.server, &fields.server, &fields.integration_id)
            && either(&self.tool, &fields.tool, &fields.operation)
            && self.result.as_deref().is_none_or(|wanted| wanted == fields.result)
    }
}

/// Reads the trail in `dir` from its beginning and calls `each` for every record that passes, until it breaks. With
/// `follow`, goes on as the daemon writes, until the flag is set. Nothing is verified, and lines that are no records
/// are passed over: that is `verify`'s to tell.
///
/// # Errors
/// Where the directory or a segment cannot be read.
pub fn show(
    dir: &Path,
    filter: &Filter,
    follow: Option<&AtomicBool>,
    each: &mut dyn FnMut(Shown<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut users = BTreeMap::new();
    let mut buffer = Vec::new();
    let mut done: Option<SegmentName> = None;
    let mut at = 0;
    loop {
        let listing = Listing::read(dir)?;
        let newer = listing
            .segments
            .iter()
            .filter(|name| done.is_none_or(|done| **name > done))
            .copied();
        let newer: Vec<SegmentName> = newer.collect();
        for (i, name) in newer.iter().enumerate() {
            let mut reader = LineReader::open(&name.path(dir), None)?;
            reader.seek(at)?;
            let limit = listing.torn.get(name).map_or(u64::MAX, |torn| torn.offset);
            while reader.next(&mut buffer)? == Read::Line && reader.offset() <= limit {
                at = reader.offset();
                if record(&buffer, filter, &mut users, each).is_break() {
                    return Ok(());
                }
            }
            // Only the last segment can still grow.
            if i + 1 < newer.len() {
                done = Some(*name);
                at = 0;
            }
        }
        match follow {
            Some(stop) if !stop.load(Ordering::Relaxed) => std::thread::sleep(FOLLOW),
            _ => return Ok(()),
        }
    }
}

/// Calls `each` for the last records of a segment, at most `most` of them, oldest first. Reads a bounded piece of the
/// segment's end, so that it costs the same whatever the segment's length; records that are longer are not found.
///
/// # Errors
/// Where the segment cannot be read.
pub fn tail(segment: &Path, most: usize, each: &mut dyn FnMut(Shown<'_>)) -> io::Result<()> {
    let mut file = open_regular(segment)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(LAST_PIECE);
    file.seek(SeekFrom::Start(from))?;
    let mut piece = Vec::new();
    file.take(LAST_PIECE).read_to_end(&mut piece)?;
    // Neither a line that began before the piece nor one that is just being written is whole.
    let begin = match from {
        0 => 0,
        _ => piece
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(piece.len(), |at| at + 1),
    };
    let end = piece
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(begin, |at| at.max(begin));
    let lines: Vec<&[u8]> = piece[begin..end].split(|byte| *byte == b'\n').collect();
    let shown = lines.len().saturating_sub(most);
    let mut users = BTreeMap::new();
    for (index, line) in lines.into_iter().enumerate() {
        // Earlier ones are read as well: they say whose the calls are.
        let _ = record(line, &Filter::default(), &mut users, &mut |record| {
            if index >= shown {
                each(record);
            }
            ControlFlow::Continue(())
        });
    }
    Ok(())
}

fn record(
    line: &[u8],
    filter: &Filter,
    users: &mut BTreeMap<u64, u32>,
    each: &mut dyn FnMut(Shown<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(line) = Line::parse(line) else {
        return ControlFlow::Continue(());
    };
    let Ok(rec) = std::str::from_utf8(line.rec) else {
        return ControlFlow::Continue(());
    };
    let Ok(fields) = serde_json::from_str::<Fields>(rec) else {
        return ControlFlow::Continue(());
    };
    let uid = match (line.kind, fields.enter) {
        ("exit", Some(enter)) => users.remove(&enter),
        (_, Some(enter)) => users.get(&enter).copied(),
        _ => fields.uid,
    };
    if let ("enter", Some(uid)) = (line.kind, fields.uid) {
        if users.len() == REMEMBERED {
            users.pop_first();
        }
        users.insert(line.n, uid);
    }
    if filter.passes(&fields, uid) {
        each(Shown {
            n: line.n,
            kind: line.kind.to_owned(),
            rec,
            fields,
            uid,
        })
    } else {
        ControlFlow::Continue(())
    }
}
