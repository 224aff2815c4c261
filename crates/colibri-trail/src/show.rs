//! Reading records back, filtered, in order, and as they are written.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;

use crate::event::TrailEvent;
use crate::file::open_regular;
use crate::line::SegmentLine;
use crate::read::{LineReader, Read, TrailListing, read_piece, whole_lines};
use crate::segment::SegmentName;

/// Calls that are remembered until their exit, to tell its user: as many as a daemon has in flight
/// at most, and some.
const MAX_REMEMBERED: usize = 100_000;

/// The part of a segment's end that is read first, bytes, and all that [`tail`] reads.
const LAST_PIECE: u64 = 256 * 1024;

/// The interval at which a followed trail is read.
const FOLLOW: Duration = Duration::from_millis(200);

/// The filter of records. What is `None` does not matter.
#[derive(Clone, Debug, Default)]
pub struct RecordFilter {
    /// Not before this time, `2026-11-21` or `2026-11-21T22:30:00Z` and anything between, UTC.
    pub since: Option<String>,
    /// Before this time, in the same form.
    pub until: Option<String>,
    /// By this user, or by an agent that runs for this user. Matches a call's enter, retry and exit
    /// records.
    pub uid: Option<u32>,
    /// By this agent, or by this instance of one: a call's records, and events that name it.
    pub agent: Option<String>,
    /// For this server.
    pub server: Option<String>,
    /// For this tool or operation.
    pub tool: Option<String>,
    /// With this result: `SUCCESS`, `RETRY` or `FAIL`.
    pub result: Option<String>,
    /// For this task: calls made for it, and events about it.
    pub task: Option<u64>,
    /// By a client that declares this name.
    pub client: Option<String>,
}

/// The fields that people look for, of whatever kind of record. Empty where a record has no such
/// field.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RecordFields {
    /// The time, RFC 3339 in UTC.
    pub timestamp: String,
    /// Of an enter record: the user.
    pub uid: Option<u32>,
    /// Of an enter record: the method.
    pub method: String,
    /// Of an enter record: the server.
    pub server: String,
    /// Of an enter record: the tool.
    pub tool: String,
    /// Of an enter record: the agent through whose agent socket the call came.
    pub agent: Option<String>,
    /// Of an enter record: that agent's instance.
    pub session: Option<String>,
    /// Of an enter record: for whom that instance runs.
    #[serde(rename = "for")]
    pub for_uid: Option<u32>,
    /// Of an enter record: the task for which the call was made.
    pub task: Option<u64>,
    /// Of an enter record: the number of the call whose script made it.
    pub within: Option<u64>,
    /// Of an enter record: the client, by its own account.
    pub client: Option<RecordedClient>,
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
    /// Of an exit or retry record: whether another attempt could help.
    pub error_class: Option<String>,
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
pub struct RecordView<'a> {
    /// Its number.
    pub n: u64,
    /// Its kind: `enter`, `exit`, `retry`, `event`, `seal`, `open`, `recovered`.
    pub kind: String,
    /// The record's bytes as written: one line of JSON.
    pub rec: &'a str,
    /// Its fields.
    pub fields: RecordFields,
    /// The user of the call it belongs to, where known.
    pub uid: Option<u32>,
    /// The agent that made the call it belongs to, if one did.
    pub through: Option<Arc<RecordedAgent>>,
    /// The task for which the call it belongs to was made, if it was for one.
    pub task: Option<u64>,
    /// The client that made the call it belongs to, by its own account.
    pub client: Option<Arc<RecordedClient>>,
}

/// The name and version that a client declared of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RecordedClient {
    /// The name.
    pub name: String,
    /// The version; empty: it declared none.
    pub version: String,
}

/// The agent that made a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAgent {
    /// Its id in the registry.
    pub agent: String,
    /// Its instance.
    pub session: String,
    /// For whom it runs.
    pub for_uid: Option<u32>,
}

/// The caller of a call.
#[derive(Clone, Debug, Default)]
struct RecordedCaller {
    uid: Option<u32>,
    through: Option<Arc<RecordedAgent>>,
    task: Option<u64>,
    client: Option<Arc<RecordedClient>>,
}

impl RecordFilter {
    /// True if a time is in the form that `since` and `until` take.
    #[must_use]
    pub fn is_time(text: &str) -> bool {
        let shape = b"0000-00-00T00:00:00.000000";
        let text = text.strip_suffix('Z').unwrap_or(text).as_bytes();
        matches!(text.len(), 4 | 7 | 10 | 13 | 16 | 19 | 21..=26)
            && text.iter().zip(shape).all(|(t, s)| {
                if *s == b'0' {
                    t.is_ascii_digit()
                } else {
                    t == s
                }
            })
    }

    /// True if no record of this segment, which another one follows, can be of the time that is
    /// wanted.
    fn is_before(&self, segment: SegmentName, next: SegmentName) -> bool {
        let day = segment.day.max(next.day);
        let day = format!(
            "{:04}-{:02}-{:02}",
            day / 10_000,
            day / 100 % 100,
            day % 100
        );
        self.since
            .as_deref()
            .is_some_and(|since| *day < *since.get(..10).unwrap_or(since))
    }

    fn passes(&self, shown: &RecordView<'_>) -> bool {
        let (fields, through) = (&shown.fields, shown.through.as_deref());
        let is_user = |wanted| {
            shown.uid == Some(wanted) || through.is_some_and(|agent| agent.for_uid == Some(wanted))
        };
        let is_agent = |wanted: &String| {
            let told = ["agent", "session"]
                .map(|key| fields.details.get(key).and_then(|told| told.as_str()));
            through.is_some_and(|of| of.agent == *wanted || of.session == *wanted)
                || told.contains(&Some(wanted))
        };
        let is_for_task = |wanted: u64| {
            let task = match TrailEvent::read(&fields.event, &fields.details) {
                Some(TrailEvent::Task { id, .. }) => Some(id),
                _ => fields
                    .details
                    .get("task")
                    .and_then(serde_json::Value::as_u64),
            };
            shown.task == Some(wanted) || task == Some(wanted)
        };
        let is_client = |wanted: &String| {
            shown
                .client
                .as_ref()
                .is_some_and(|client| client.name == *wanted)
        };
        let bound = |bound: &Option<String>, reached: fn(&str, &str) -> bool| {
            bound
                .as_deref()
                .is_none_or(|b| reached(&fields.timestamp, b.strip_suffix('Z').unwrap_or(b)))
        };
        let either = |wanted: &Option<String>, a: &str, b: &str| {
            wanted.as_deref().is_none_or(|w| w == a || w == b)
        };
        bound(&self.since, |time, since| time >= since)
            && bound(&self.until, |time, until| time < until)
            && self.uid.is_none_or(is_user)
            && self.agent.as_ref().is_none_or(is_agent)
            && self.task.is_none_or(is_for_task)
            && self.client.as_ref().is_none_or(is_client)
            && either(&self.server, &fields.server, &fields.integration_id)
            && either(&self.tool, &fields.tool, &fields.operation)
            && self
                .result
                .as_deref()
                .is_none_or(|wanted| wanted == fields.result)
    }
}

/// Reads the trail in `dir`, from its beginning or from the day that the filter names, and calls
/// `each` for every record that passes, until it breaks. With `follow`, goes on as the daemon
/// writes, until the flag is set. Nothing is verified, and lines that are no records are passed
/// over: that is `verify`'s to tell.
///
/// # Errors
/// Where the directory or a segment cannot be read.
pub fn show(
    dir: &Path,
    filter: &RecordFilter,
    follow: Option<&AtomicBool>,
    each: &mut dyn FnMut(RecordView<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    read_on(dir, filter, None, 0, follow, each)
}

/// Like [`show`], but only for the last `count` records that pass, and with `follow` what comes
/// after them. Reads the trail from its end, as far back as it must.
///
/// # Errors
/// Where the directory or a segment cannot be read.
pub fn show_last(
    dir: &Path,
    filter: &RecordFilter,
    count: usize,
    follow: Option<&AtomicBool>,
    each: &mut dyn FnMut(RecordView<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let listing = TrailListing::read(dir)?;
    let mut pieces = Vec::new();
    let (mut left, mut next, mut end) = (count, None, 0);
    for (at, name) in listing.segments.iter().enumerate().rev() {
        if left == 0 || next.is_some_and(|next| filter.is_before(*name, next)) {
            break;
        }
        let limit = listing.torn.get(name).map_or(u64::MAX, |torn| torn.offset);
        let before = at
            .checked_sub(1)
            .map(|before| listing.segments[before].path(dir));
        let last = last_in(
            &name.path(dir),
            before.as_deref(),
            limit,
            left,
            filter,
            u64::MAX,
        )?;
        if next.is_none() {
            end = last.end;
        }
        left -= last.lines.len();
        pieces.push(last.lines);
        next = Some(*name);
    }
    for (line, who) in pieces.iter().rev().flatten() {
        if let Some(shown) = read(line, &mut BTreeMap::new())
            && each(shown.by(who)).is_break()
        {
            return Ok(());
        }
    }
    match follow {
        Some(_) => read_on(
            dir,
            filter,
            listing.segments.last().copied(),
            end,
            follow,
            each,
        ),
        None => Ok(()),
    }
}

/// Reads on from byte `at` of segment `from`.
fn read_on(
    dir: &Path,
    filter: &RecordFilter,
    from: Option<SegmentName>,
    at: u64,
    follow: Option<&AtomicBool>,
    each: &mut dyn FnMut(RecordView<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut reader = RecordReader {
        from,
        at,
        ..RecordReader::new(dir, filter.clone())
    };
    loop {
        let read = reader.read(each)?;
        match follow {
            Some(stop) if read.is_continue() && !stop.load(Ordering::Relaxed) => {
                std::thread::sleep(FOLLOW)
            }
            _ => return Ok(()),
        }
    }
}

/// A reader of a trail that grows. Each [`RecordReader::read`] goes on where the one before it
/// ended.
#[derive(Debug)]
pub struct RecordReader {
    dir: PathBuf,
    filter: RecordFilter,
    /// The segment that is read, and the place in it. `None`: nothing was read yet.
    from: Option<SegmentName>,
    at: u64,
    callers: BTreeMap<u64, RecordedCaller>,
    buffer: Vec<u8>,
}

impl RecordReader {
    /// The reader of the trail in `dir`, from its beginning or from the day that the filter names.
    #[must_use]
    pub fn new(dir: &Path, filter: RecordFilter) -> RecordReader {
        RecordReader {
            dir: dir.to_owned(),
            filter,
            from: None,
            at: 0,
            callers: BTreeMap::new(),
            buffer: Vec::new(),
        }
    }

    /// Calls `each` for every record that passes and was not read yet, until it breaks or the
    /// trail's present end.
    ///
    /// # Errors
    /// Where the directory or a segment cannot be read.
    pub fn read(
        &mut self,
        each: &mut dyn FnMut(RecordView<'_>) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        let listing = TrailListing::read(&self.dir)?;
        let mut names = listing.segments.iter().copied().peekable();
        while let Some(name) = names.next() {
            let next = names.peek().copied();
            if self.from.is_some_and(|from| name < from)
                || next.is_some_and(|next| self.filter.is_before(name, next))
            {
                continue;
            }
            if self.from != Some(name) {
                self.from = Some(name);
                self.at = 0;
            }
            let mut reader = LineReader::open(&name.path(&self.dir), None)?;
            reader.seek(self.at)?;
            let limit = listing.torn.get(&name).map_or(u64::MAX, |torn| torn.offset);
            while reader.next(&mut self.buffer)? == Read::Line && reader.offset() <= limit {
                self.at = reader.offset();
                if let Some(shown) = read(&self.buffer, &mut self.callers)
                    && self.filter.passes(&shown)
                    && each(shown).is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Calls `each` for the last records of a segment, at most `count` of them, oldest first. Reads a
/// bounded piece of the segment's end, so that it costs the same whatever the segment's length;
/// records that are longer are not found.
///
/// # Errors
/// Where the segment cannot be read.
pub fn tail(segment: &Path, count: usize, each: &mut dyn FnMut(RecordView<'_>)) -> io::Result<()> {
    let last = last_in(
        segment,
        None,
        u64::MAX,
        count,
        &RecordFilter::default(),
        LAST_PIECE,
    )?;
    for (line, who) in &last.lines {
        if let Some(shown) = read(line, &mut BTreeMap::new()) {
            each(shown.by(who));
        }
    }
    Ok(())
}

/// The last records of a segment.
struct LastRecords {
    /// Their lines, oldest first, each with whose call it is of where that is known.
    lines: Vec<(Vec<u8>, RecordedCaller)>,
    /// The end of the last whole line of the segment, bytes.
    end: u64,
}

/// Finds the last `count` records that pass in the first `limit` bytes of a segment, `before` being
/// the one before it. Reads a piece of its end, and more where that has too few, up to `most`
/// bytes.
fn last_in(
    segment: &Path,
    before: Option<&Path>,
    limit: u64,
    count: usize,
    filter: &RecordFilter,
    most: u64,
) -> io::Result<LastRecords> {
    let mut file = open_regular(segment)?;
    let length = file.metadata()?.len().min(limit);
    let mut window = LAST_PIECE;
    loop {
        let start = length.saturating_sub(window);
        let (mut users, mut found, mut at) = (BTreeMap::new(), VecDeque::new(), 0);
        // What comes before the piece says whose the calls are that end in it.
        let earlier = match before {
            _ if start > 0 => read_piece(&mut file, start.saturating_sub(LAST_PIECE), start)?.1,
            Some(before) => {
                let mut before = open_regular(before)?;
                let length = before.metadata()?.len();
                read_piece(&mut before, length.saturating_sub(LAST_PIECE), length)?.1
            }
            None => Vec::new(),
        };
        for line in whole_lines(&earlier) {
            read(line, &mut users);
        }
        let (from, piece) = read_piece(&mut file, start, length)?;
        for line in whole_lines(&piece) {
            if let Some(shown) = read(line, &mut users)
                && filter.passes(&shown)
            {
                let who = RecordedCaller {
                    uid: shown.uid,
                    through: shown.through,
                    task: shown.task,
                    client: shown.client,
                };
                found.push_back((at..at + line.len(), who));
                if found.len() > count {
                    found.pop_front();
                }
            }
            at += line.len() + 1;
        }
        if found.len() == count || start == 0 || window >= most {
            let lines = found
                .into_iter()
                .map(|(line, who)| (piece[line].to_vec(), who));
            return Ok(LastRecords {
                lines: lines.collect(),
                end: from + at as u64,
            });
        }
        window = window.saturating_mul(8);
    }
}

impl RecordView<'_> {
    fn by(self, who: &RecordedCaller) -> Self {
        RecordView {
            uid: who.uid,
            through: who.through.clone(),
            task: who.task,
            client: who.client.clone(),
            ..self
        }
    }
}

/// Reads a line. `users` are those of the calls before it that have not ended.
fn read<'a>(line: &'a [u8], users: &mut BTreeMap<u64, RecordedCaller>) -> Option<RecordView<'a>> {
    let line = SegmentLine::parse(line)?;
    let rec = std::str::from_utf8(line.rec).ok()?;
    let fields: RecordFields = serde_json::from_str(rec).ok()?;
    let who =
        match (line.kind, fields.enter) {
            ("exit", Some(enter)) => users.remove(&enter).unwrap_or_default(),
            (_, Some(enter)) => users.get(&enter).cloned().unwrap_or_default(),
            _ => RecordedCaller {
                uid: fields.uid,
                task: fields.task,
                client: fields.client.clone().map(Arc::new),
                through: fields.agent.clone().zip(fields.session.clone()).map(
                    |(agent, session)| {
                        Arc::new(RecordedAgent {
                            agent,
                            session,
                            for_uid: fields.for_uid,
                        })
                    },
                ),
            },
        };
    if line.kind == "enter" && who.uid.is_some() {
        if users.len() == MAX_REMEMBERED {
            users.pop_first();
        }
        users.insert(line.n, who.clone());
    }
    Some(RecordView {
        n: line.n,
        kind: line.kind.to_owned(),
        rec,
        fields,
        uid: who.uid,
        through: who.through,
        task: who.task,
        client: who.client,
    })
}
