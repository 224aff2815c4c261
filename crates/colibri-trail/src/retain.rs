//! Retention: whole sealed segments go, their seals stay.
//!
//! Runs as the daemon's own user, from the periodic script: no tool with root's rights ever acts in
//! a directory that this user owns (docs/trail.md).

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::line::SegmentLine;
use crate::read::{LineReader, Read, TrailListing};
use crate::segment::SegmentName;
use crate::state::carries_state;

/// The outcome of retention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// The segments that went.
    pub segments: Vec<SegmentName>,
    /// The number of bytes that it freed.
    pub bytes: u64,
}

/// The segments that nothing will be appended to any more, oldest first: all before the last one
/// that has a record.
///
/// # Errors
/// Where the directory cannot be read.
pub fn sealed_segments(dir: &Path) -> io::Result<Vec<SegmentName>> {
    let mut listing = TrailListing::read(dir)?;
    listing
        .segments
        .retain(|name| listing.last.is_some_and(|last| *name < last));
    Ok(listing.segments)
}

/// Drops the segments whose records are all older than `keep`, counted from `now`: a segment's
/// records end on the day that the first segment after it was begun, whatever the clock did in
/// between. Of each its last seal is kept beside it, written and synced before the segment goes.
/// The last segment with a record always stays, and a segment without a record to keep ends the
/// dropping.
///
/// # Errors
/// Where a segment cannot be read, its seal not written, or the segment not removed; those before
/// it are gone then.
pub fn drop_segments(dir: &Path, keep: Duration, now: SystemTime) -> io::Result<RetentionReport> {
    let day = |time| SegmentName::new(0, time).day;
    let (today, oldest) = (
        day(now),
        day(now.checked_sub(keep).unwrap_or(SystemTime::UNIX_EPOCH)),
    );
    let listing = TrailListing::read(dir)?;
    let mut dropped = RetentionReport::default();
    for (at, name) in listing.segments.iter().enumerate() {
        // A clock that went ahead names a segment for the future, one that was set back names later
        // ones for the past: neither may keep the others here, nor let them go early.
        let begun = if name.day <= today { name.day } else { 0 };
        let Some(next) = listing.segments[at + 1..]
            .iter()
            .map(|later| later.day)
            .min()
        else {
            break;
        };
        if next.max(begun) >= oldest || listing.last.is_none_or(|last| *name >= last) {
            break;
        }
        let path = name.path(dir);
        let Some(seal) = last_state(&path, listing.torn.get(name).map(|torn| torn.offset))? else {
            break;
        };
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(name.seal_path(dir))?;
        file.write_all(&seal)?;
        file.sync_all()?;
        let bytes = fs::metadata(&path)?.len();
        fs::remove_file(&path)?;
        dropped.segments.push(*name);
        dropped.bytes += bytes;
    }
    if !dropped.segments.is_empty() {
        fs::File::open(dir)?.sync_all()?;
    }
    Ok(dropped)
}

/// The part of a segment that stays: its last line that has the state of the trail, which is its
/// seal, or, where the daemon was killed, the line nearest to it. `None` where it has no record.
///
/// # Errors
/// Where the segment cannot be read.
pub fn last_seal(dir: &Path, name: SegmentName) -> io::Result<Option<Vec<u8>>> {
    let listing = TrailListing::read(dir)?;
    last_state(
        &name.path(dir),
        listing.torn.get(&name).map(|torn| torn.offset),
    )
}

fn last_state(path: &Path, limit: Option<u64>) -> io::Result<Option<Vec<u8>>> {
    let mut reader = LineReader::open(path, limit)?;
    let (mut buffer, mut last) = (Vec::new(), None);
    while reader.next(&mut buffer)? == Read::Line {
        if SegmentLine::parse(&buffer).is_some_and(|line| carries_state(line.kind)) {
            let mut line = buffer.clone();
            line.push(b'\n');
            last = Some(line);
        }
    }
    Ok(last)
}
