//! The segment that is being written, and all that moves with an append.
//!
//! Nothing of the state moves before the kernel has taken the bytes; so a failed write leaves
//! nothing half counted, and the next append tries again by itself.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::error::{TrailError, failed_to};
use crate::file::{ReleasableFiles, with_room};
use crate::line::push_line;
use crate::merkle::{Hash, HexHash, from_hex};
use crate::record::TrailRecord;
use crate::recover::SegmentEnd;
use crate::segment::SegmentName;
use crate::signed_note::{Signer, Verifier};
use crate::state::{Torn, TrailState, push_opening, push_seal};
use crate::witness::TrailHead;

/// The interval at which a segment that is written without a pause is checked for its place and
/// length. After a pause of that length each write is followed by a look.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Capacity that the buffer keeps after an unusually large batch, bytes.
const KEEP_BUFFER: usize = 1 << 20;

/// Heads that may wait for their fsync. A newer one stands for all before it.
const MAX_HEADS: usize = 1024;

/// The severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeSeverity {
    /// Records are refused or lost.
    Error,
    /// Somebody should look.
    Warning,
    /// An earlier fault is mended.
    Info,
}

/// Takes what a trail has to say to its operator: the daemon's log.
pub type Notify = fn(NoticeSeverity, &str);

/// The limits at which segments end and seals and heads are made. The defaults are the design's;
/// tests make them smaller.
#[derive(Clone, Copy, Debug)]
pub struct SegmentLimits {
    /// A segment is ended when it has this many bytes.
    pub segment_bytes: u64,
    /// A seal follows at the latest after this many records.
    pub seal_records: u64,
    /// A head goes to the witness at the latest after this many records.
    pub witness_records: u64,
    /// A head goes to the witness at the latest after this time, if there are new records.
    pub witness_after: Duration,
}

impl Default for SegmentLimits {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            seal_records: 4096,
            witness_records: 1000,
            witness_after: Duration::from_secs(10),
        }
    }
}

/// A number of records, the hash of the last of them, and the root over them: what a head says.
pub(crate) type HeadFacts = (u64, Hash, Hash);

/// The segment being written.
#[derive(Debug)]
struct OpenSegment {
    name: SegmentName,
    path: PathBuf,
    file: Arc<File>,
    /// The end of its counted records, bytes.
    offset: u64,
    looked: Instant,
}

/// Lines that are not written yet.
#[derive(Debug)]
struct PendingLines {
    bytes: Vec<u8>,
    leaves: Vec<Hash>,
    head: HexHash,
}

impl PendingLines {
    fn push(&mut self, rec: impl FnOnce(&mut Vec<u8>)) {
        let leaf = push_line(&mut self.bytes, &mut self.head, rec);
        self.leaves.push(leaf);
    }
}

/// All that moves with an append.
#[derive(Debug)]
pub(crate) struct TrailWriter {
    dir: PathBuf,
    limits: SegmentLimits,
    signer: Arc<Signer>,
    notify: Notify,
    cache: Arc<dyn ReleasableFiles>,
    state: TrailState,
    batch: PendingLines,
    segment: Option<OpenSegment>,
    /// The name of the last segment that has a counted record.
    previous: Option<SegmentName>,
    /// The ordinal of the newest file.
    ordinal: u64,
    /// The bytes that the next segment's `recovered` record must name.
    torn: Vec<Torn>,
    /// The fault of the segment that was seen since the last append, which the next one must
    /// report.
    disturbed: Option<TrailError>,
    closed: bool,
    since_seal: u64,
    /// Records until the last seal that this writer wrote.
    sealed: Option<u64>,
    last_head: u64,
    /// Heads for the witness, oldest first.
    heads: VecDeque<HeadFacts>,
    /// Written and not synced yet.
    unsynced: Vec<Arc<File>>,
    new_file: bool,
}

/// The written lines that are not synced yet.
#[derive(Debug)]
pub(crate) struct Unsynced {
    pub(crate) files: Vec<Arc<File>>,
    /// True if there is a new file among them, and the directory must be synced too.
    pub(crate) new_file: bool,
    /// The number of records when these are on disk.
    pub(crate) covers: u64,
}

impl TrailWriter {
    /// Finds the end of the trail in `dir`.
    pub(crate) fn recover(
        dir: &Path,
        limits: SegmentLimits,
        signer: Arc<Signer>,
        notify: Notify,
        cache: Arc<dyn ReleasableFiles>,
    ) -> Result<Self, TrailError> {
        let state = TrailState::default();
        let mut writer = Self {
            dir: dir.to_owned(),
            limits,
            signer,
            notify,
            cache,
            batch: PendingLines {
                bytes: Vec::new(),
                leaves: Vec::new(),
                head: state.head,
            },
            state,
            segment: None,
            previous: None,
            ordinal: 0,
            torn: Vec::new(),
            disturbed: None,
            closed: false,
            since_seal: 0,
            sealed: None,
            last_head: 0,
            heads: VecDeque::new(),
            unsynced: Vec::new(),
            new_file: false,
        };
        const READ: &str = "read the trail's";
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed_to(READ, dir))? {
            let name = entry.map_err(failed_to(READ, dir))?.file_name();
            let Some(name) = name.to_str() else { continue };
            names.extend(SegmentName::parse(name, "jsonl"));
            // Ordinals of dropped segments are not used again.
            let dropped = SegmentName::parse(name, "seal").map_or(0, |name| name.ordinal);
            writer.ordinal = writer.ordinal.max(dropped);
        }
        names.sort_unstable();
        writer.ordinal = writer
            .ordinal
            .max(names.last().map_or(0, |name| name.ordinal));
        for name in names.iter().rev() {
            let path = name.path(dir);
            let end = SegmentEnd::find(&path).map_err(failed_to(READ, &path))?;
            let is_the_last = end.state.is_some();
            if end.sealed && writer.torn.is_empty() {
                let file = open_segment(&path, false).map_err(failed_to(READ, &path))?;
                writer.segment = Some(OpenSegment {
                    name: *name,
                    path,
                    file,
                    offset: end.offset,
                    looked: Instant::now(),
                });
            } else {
                // Where there is not one whole record, what the segment before it says still holds.
                let torn = Torn {
                    segment: name.to_string(),
                    offset: end.offset,
                    length: end.length - end.offset,
                };
                writer.torn.insert(0, torn);
            }
            if let Some(state) = end.state {
                writer.last_head = state.records();
                writer.state = state;
                writer.previous = Some(*name);
            }
            if is_the_last {
                return Ok(writer);
            }
        }
        if names
            .first()
            .map_or(writer.ordinal, |first| first.ordinal.saturating_sub(1))
            > 0
        {
            let what = "no segment has a whole record, but older ones were dropped";
            return Err(TrailError::Damaged {
                path: dir.to_owned(),
                what,
            });
        }
        Ok(writer)
    }

    /// Compares what was found with what was noted: a trail that lost its end must not go on as if
    /// it had not.
    pub(crate) fn hold_against(&self, note: &Path, verifier: &Verifier) -> Result<(), TrailError> {
        let noted = TrailHead::noted(note).map_err(failed_to("read the trail's note", note))?;
        let noted = noted.filter(|head| head.is_signed_by(verifier));
        let (records, hash, _) = self.reached();
        let what = match noted {
            Some(head) if head.records > records => {
                format!(
                    "ends after {records} records, but {} were written",
                    head.records
                )
            }
            Some(head) if head.records == records && head.hash != hash => {
                format!("has another record {}", records.saturating_sub(1))
            }
            Some(_) => return Ok(()),
            None => {
                if records > 0 {
                    let what = format!(
                        "there is no note of the trail's head in {}: nobody knows whether records were removed",
                        note.display()
                    );
                    (self.notify)(NoticeSeverity::Warning, &what);
                }
                return Ok(());
            }
        };
        Err(TrailError::Cut {
            dir: self.dir.clone(),
            note: note.to_owned(),
            what,
        })
    }

    /// The number of records.
    pub(crate) fn records(&self) -> u64 {
        self.state.records()
    }

    /// The content of a head made now.
    pub(crate) fn reached(&self) -> HeadFacts {
        let hash = from_hex(&self.state.head).unwrap_or_default();
        (self.state.records(), hash, self.state.tree.root())
    }

    /// The segment being written, if there is one.
    pub(crate) fn segment(&self) -> Option<(SegmentName, &Path)> {
        self.segment
            .as_ref()
            .map(|segment| (segment.name, &*segment.path))
    }

    /// Appends records and returns the number of the first.
    pub(crate) fn append<'a, R: Borrow<TrailRecord<'a>>>(
        &mut self,
        records: impl IntoIterator<Item = R>,
    ) -> Result<u64, TrailError> {
        if self.closed {
            return Err(TrailError::Closed);
        }
        let mut records = records.into_iter();
        let Some(record) = records.next() else {
            return Ok(self.state.records());
        };
        self.make_ready(record.borrow().time())?;
        let first = self.next_number();
        self.push(record.borrow());
        for record in records {
            self.push(record.borrow());
        }
        self.commit()?;
        if self.since_seal >= self.limits.seal_records {
            // The batch stands, whatever comes of the seal: where it cannot be written now, the
            // next append will say.
            if let Err(error) = self.seal("count") {
                (self.notify)(
                    NoticeSeverity::Warning,
                    &format!("the trail could not be sealed now: {error}"),
                );
            }
        } else if self.state.records() - self.last_head >= self.limits.witness_records {
            self.queue_head();
        }
        Ok(first)
    }

    /// The number that the next record of the batch gets.
    fn next_number(&self) -> u64 {
        self.state.records() + self.batch.leaves.len() as u64
    }

    fn push(&mut self, record: &TrailRecord<'_>) {
        let n = self.next_number();
        let Self { batch, .. } = self;
        batch.push(|out| record.write(out, n));
    }

    /// Sees to it that a record of this time can be put into the batch.
    fn make_ready(&mut self, time: SystemTime) -> Result<(), TrailError> {
        if let Some(error) = self.disturbed.take() {
            return Err(error);
        }
        if let Some(segment) = &self.segment
            && (segment.offset >= self.limits.segment_bytes || segment.name.is_of_another_day(time))
        {
            self.seal("rotation")?;
            self.segment = None;
        }
        self.begin(time)
    }

    /// Begins a batch. Where there is no segment one is made, and its first record put into the
    /// batch.
    fn begin(&mut self, time: SystemTime) -> Result<(), TrailError> {
        self.batch.bytes.clear();
        self.batch.bytes.shrink_to(KEEP_BUFFER);
        self.batch.leaves.clear();
        self.batch.head = self.state.head;
        if self.segment.is_some() {
            return Ok(());
        }
        let name = SegmentName::new(self.ordinal + 1, time);
        let path = name.path(&self.dir);
        let file = with_room(&*self.cache, &path, || open_segment(&path, true));
        let file = file.map_err(failed_to("make trail segment", &path))?;
        self.ordinal += 1;
        self.segment = Some(OpenSegment {
            name,
            path,
            file,
            offset: 0,
            looked: Instant::now(),
        });
        let Self {
            batch,
            state,
            previous,
            torn,
            ..
        } = self;
        batch.push(|out| push_opening(out, SystemTime::now(), state, *previous, torn));
        Ok(())
    }

    /// Seals what there is, and takes no more.
    pub(crate) fn close(&mut self) -> Result<(), TrailError> {
        if self.closed {
            return Ok(());
        }
        let sealed = self.seal("shutdown");
        self.closed = true;
        sealed
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes a seal over all records until now. A trail without records, or whose last record is a
    /// seal, stays as it is.
    fn seal(&mut self, reason: &str) -> Result<(), TrailError> {
        if self.since_seal == 0 && self.segment.is_some() || self.state.records() == 0 {
            return Ok(());
        }
        self.begin(SystemTime::now())?;
        if !self.batch.leaves.is_empty() {
            self.commit()?;
            self.begin(SystemTime::now())?;
        }
        let Self {
            batch,
            state,
            signer,
            ..
        } = self;
        batch.push(|out| push_seal(out, SystemTime::now(), state, reason, signer));
        self.commit()?;
        self.since_seal = 0;
        self.sealed = Some(self.state.records());
        self.queue_head();
        Ok(())
    }

    /// Writes the batch, and counts its records if the kernel took all of it.
    fn commit(&mut self) -> Result<(), TrailError> {
        let Some(segment) = &mut self.segment else {
            return Err(TrailError::Closed);
        };
        let (mut written, bytes) = (0, &self.batch.bytes);
        let refused = with_room(&*self.cache, &segment.path, || {
            write_all(&segment.file, bytes, &mut written)
        });
        let refused = refused.err();
        let written = written as u64;
        let expected = segment.offset + written;
        let now = Instant::now();
        let mut disturbed = None;
        if refused.is_some()
            || segment.offset == 0
            || now.duration_since(segment.looked) >= LOOK_EVERY
        {
            segment.looked = now;
            disturbed = segment.look(expected);
        }
        let touched = written > 0 || disturbed.is_some() || segment.offset == 0;
        let refused = refused.map(failed_to("write to trail segment", &segment.path));
        if let Some(error) = refused.or(disturbed) {
            if touched {
                self.leave_segment();
            }
            return Err(error);
        }
        if segment.offset == 0 {
            self.torn.clear();
            self.previous = Some(segment.name);
            self.new_file = true;
        }
        segment.offset = expected;
        if !self
            .unsynced
            .last()
            .is_some_and(|file| Arc::ptr_eq(file, &segment.file))
        {
            self.unsynced.push(Arc::clone(&segment.file));
        }
        self.since_seal += self.batch.leaves.len() as u64;
        for leaf in &self.batch.leaves {
            self.state.tree.push(*leaf);
        }
        self.state.head = self.batch.head;
        Ok(())
    }

    /// Gives up the segment: the next append begins a new one, whose `recovered` record names what
    /// of this one does not count.
    pub(crate) fn leave_segment(&mut self) {
        let Some(segment) = self.segment.take() else {
            return;
        };
        if segment.offset == 0 {
            // It never had a record. Were it left, a full disk would fill with attempts.
            let gone = fs::remove_file(&segment.path);
            if gone.is_ok() || gone.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                self.ordinal -= 1;
                return;
            }
        }
        let length = segment
            .file
            .metadata()
            .map_or(0, |state| state.len().saturating_sub(segment.offset));
        self.torn.push(Torn {
            segment: segment.name.to_string(),
            offset: segment.offset,
            length,
        });
    }

    /// Gives up the segment if it is not as it must be.
    pub(crate) fn look(&mut self) {
        let Some(segment) = &self.segment else { return };
        if let Some(error) = segment.look(segment.offset) {
            (self.notify)(NoticeSeverity::Error, &error.to_string());
            self.disturbed = Some(error);
            self.leave_segment();
        }
    }

    /// Notes the head for the witness.
    pub(crate) fn queue_head(&mut self) {
        let records = self.state.records();
        if records == self.last_head {
            return;
        }
        if self.heads.len() == MAX_HEADS {
            self.heads.pop_front();
        }
        self.heads.push_back(self.reached());
        self.last_head = records;
    }

    /// Records until the last seal that this writer wrote.
    pub(crate) fn sealed(&self) -> Option<u64> {
        self.sealed
    }

    /// True if the next segment tells of one that was not sealed.
    pub(crate) fn is_recovering(&self) -> bool {
        !self.torn.is_empty()
    }

    /// The oldest head that waits for the witness, if its records are on disk.
    pub(crate) fn take_head(&mut self, synced: u64) -> Option<HeadFacts> {
        let due = self
            .heads
            .front()
            .is_some_and(|(records, ..)| *records <= synced);
        if due { self.heads.pop_front() } else { None }
    }

    /// Puts a head back that the witness did not take.
    pub(crate) fn put_back(&mut self, head: HeadFacts) {
        self.heads.push_front(head);
    }

    /// Hands over what must be synced.
    pub(crate) fn take_unsynced(&mut self) -> Unsynced {
        Unsynced {
            files: std::mem::take(&mut self.unsynced),
            new_file: std::mem::take(&mut self.new_file),
            covers: self.state.records(),
        }
    }
}

impl OpenSegment {
    /// Looks whether the file is linked, as long as it must be, and what its name leads to: a
    /// directory that was moved away takes writes silently.
    fn look(&self, expected: u64) -> Option<TrailError> {
        let state = match self.file.metadata() {
            Ok(state) => state,
            Err(error) => return Some(failed_to("look at trail segment", &self.path)(error)),
        };
        let is_there = || {
            fs::symlink_metadata(&self.path)
                .is_ok_and(|named| (named.dev(), named.ino()) == (state.dev(), state.ino()))
        };
        let what = match state.len().cmp(&expected) {
            _ if state.nlink() == 0 => "was removed",
            Ordering::Greater => "was written to by somebody else",
            Ordering::Less => "was cut by somebody else",
            Ordering::Equal if is_there() => return None,
            Ordering::Equal => "is not where it was",
        };
        Some(TrailError::Disturbed {
            path: self.path.clone(),
            what,
        })
    }
}

/// Writes the bytes of a batch from `written` on, which then says how many are. One write(2) takes
/// all of it; a second one is only made after a short one, to learn the reason.
fn write_all(mut file: &File, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match file.write(&bytes[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn open_segment(path: &Path, new: bool) -> io::Result<Arc<File>> {
    fs::OpenOptions::new()
        .append(true)
        .create_new(new)
        .mode(0o640)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map(Arc::new)
}
