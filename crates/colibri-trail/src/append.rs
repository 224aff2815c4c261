//! Appending: the part on every call's way.
//!
//! One lock, one buffer, one write(2) for a batch. Nothing of the state moves before the kernel has taken the bytes and
//! the file was seen to be where and as long as it should be; so a failed write leaves nothing half counted, and the
//! next append tries again by itself.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tracing::{error, info};

use super::file::replace;
use super::merkle::{Frontier, Hash, leaf_hash};
use super::note::{NoteError, Signer, Verifier};
use super::record::{self, Clock, Record};
use super::recover::SegmentEnd;
use super::segment::{GENESIS, SegmentName, Torn, from_hex, push_line, push_opening, push_tree};
use super::witness::{Head, Witness};

/// How long written records may wait for fsync(2) where `sync` is off. Half of the 200 ms that the design allows, so
/// that the fsync itself has the other half.
const SYNC_AFTER: Duration = Duration::from_millis(100);

/// Capacity that the buffers keep after an unusually large batch, bytes.
const KEEP_BUFFER: usize = 1 << 20;

/// Heads that may wait for their fsync. A newer one stands for all before it.
const MAX_HEADS: usize = 1024;

/// Why the trail cannot be opened or a record cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TrailError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}; {advice}", advice = advice(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what was written to it, or not where it was.
    #[error(
        "trail segment {path} {what}; what was written last may be lost. Find out who touched it, put the directory \
         back if it was moved; calls go on with a new segment as soon as one can be made"
    )]
    Disturbed {
        /// The segment.
        path: PathBuf,
        /// What was seen.
        what: &'static str,
    },
    /// Another process appends to this trail.
    #[error("the trail in {0} is in use by another process; only one colibri-mcpd may run on a state directory")]
    Locked(PathBuf),
    /// The records that tell the state of the trail cannot be read.
    #[error(
        "cannot go on from trail segment {path}: {what}; run `colibri-mcp trail verify`; to begin a new trail, move the \
         directory and `trail.head` beside it aside, and keep them"
    )]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The trail is shorter than it was, or another one.
    #[error(
        "the trail in {dir} {what}, by the note in {note}: records were removed or changed. Run `colibri-mcp trail verify`, \
         and put back what is missing; to begin a new trail, move {dir} and {note} aside, and keep them",
        dir = dir.display(), note = note.display()
    )]
    Cut {
        /// The directory of the segments.
        dir: PathBuf,
        /// The note that knows better.
        note: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The installation's key cannot be used.
    #[error(transparent)]
    Key(#[from] NoteError),
    /// The trail was closed.
    #[error("the trail is closed: the daemon is stopping")]
    Closed,
}

/// What to do about a system error, for people.
fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "free space on that file system, or drop old segments (colibri-mcp trail drop, as the daemon's user); until \
             then calls are refused"
        }
        Some(libc::EROFS) => "mount that file system read-write again; until then calls are refused",
        Some(libc::ENOENT | libc::ENOTDIR) => {
            "make the directory again, owned by the daemon's user (mode 0750); until then calls are refused"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "give the directory back to the daemon's user and look for append-only or immutable flags; until then calls \
             are refused"
        }
        Some(libc::EIO) => "the disk or its controller fails: see dmesg; until it works calls are refused",
        _ => "until this works calls are refused",
    }
}

/// When segments end and seals and heads are made. The defaults are the design's; tests make them smaller.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A segment is ended when it has this many bytes.
    pub segment_bytes: u64,
    /// A seal follows at the latest after this many records.
    pub seal_records: u64,
    /// A head goes to the witness at the latest after this many records.
    pub witness_records: u64,
    /// A head goes to the witness at the latest after this time, if there are new records.
    pub witness_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            seal_records: 4096,
            witness_records: 1000,
            witness_after: Duration::from_secs(10),
        }
    }
}

/// How a trail is opened.
#[derive(Clone)]
pub struct Options {
    /// The daemon's state directory; segments are in `trail/` below it, the key beside that.
    pub state_dir: PathBuf,
    /// Whether an append returns only after fsync(2) (`--trail-sync`).
    pub sync: bool,
    /// Where heads go.
    pub witness: Arc<dyn Witness>,
    /// Sizes and intervals.
    pub limits: Limits,
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The number of the first record of the batch; the others follow it one by one.
    pub first: u64,
}

/// The state of a trail, for status and metrics.
#[derive(Clone, Debug)]
pub struct Status {
    /// Records written.
    pub records: u64,
    /// Records known to be on disk.
    pub synced: u64,
    /// Records covered by the last head that a witness took.
    pub witnessed: u64,
    /// The segment being written, if there is one.
    pub segment: Option<PathBuf>,
    /// Why the last append failed, if it did.
    pub failing: Option<String>,
}

/// The trail of this daemon, open for appending. Shared by all tasks.
#[derive(Debug)]
pub struct Trail {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    dir: PathBuf,
    /// The daemon's own note of the last head.
    note: PathBuf,
    sync: bool,
    limits: Limits,
    signer: Signer,
    witness: Arc<dyn Witness>,
    writer: Mutex<Writer>,
    /// Set by an append, cleared by the thread that syncs: spares the lock below on all but the first append.
    dirty: AtomicBool,
    wake: Mutex<Wake>,
    woken: Condvar,
    group: Mutex<Group>,
    grouped: Condvar,
    /// Held for as long as the trail is open: flock(2) keeps other processes out.
    lock: File,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("dir", &self.dir)
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

/// What the trail's thread waits for.
#[derive(Debug, Default)]
struct Wake {
    dirty: bool,
    stop: bool,
}

/// Group commit: one fsync(2) at a time, for all that was written before it began.
#[derive(Debug, Default)]
struct Group {
    running: bool,
    /// Records below this number are on disk.
    synced: u64,
    /// Records whose fsync failed, and what the system said.
    failed: Option<(Range<u64>, i32)>,
    /// Records below this number were covered by a head that the witness took.
    witnessed: u64,
}

/// The segment being written.
#[derive(Debug)]
struct Segment {
    name: SegmentName,
    path: PathBuf,
    file: Arc<File>,
    /// Where its counted records end, bytes.
    offset: u64,
}

/// All that moves with an append.
#[derive(Debug)]
struct Writer {
    closed: bool,
    segment: Option<Segment>,
    /// The name of the last segment that has a counted record.
    previous: Option<SegmentName>,
    /// The ordinal of the newest file.
    ordinal: u64,
    /// What the next segment's `recovered` record must name.
    torn: Vec<Torn>,
    head: [u8; 64],
    frontier: Frontier,
    since_seal: u64,
    last_head: u64,
    clock: Clock,
    batch: Batch,
    /// Written and not synced yet.
    unsynced: Vec<Arc<File>>,
    new_file: bool,
    heads: VecDeque<State>,
    failing: Option<String>,
}

/// A number of records, the hash of the last of them, and the root over them.
type State = (u64, Hash, Hash);

/// Lines that are not written yet.
#[derive(Debug)]
struct Batch {
    bytes: Vec<u8>,
    records: Vec<Range<usize>>,
    head: [u8; 64],
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trail {
    /// Opens the trail of a state directory, or begins one. Reads only the end of the last segment. Where that does not
    /// end with a seal, the daemon was killed or the machine lost power: a new segment opens with a `recovered` record.
    ///
    /// # Errors
    /// Where directory, lock, key or segment cannot be used, or another process appends.
    pub fn open(options: Options) -> Result<Self, TrailError> {
        let dir = super::directory(&options.state_dir);
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |source| TrailError::Io { action, path, source }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(&dir)
            .map_err(io("make the trail's directory", &dir))?;
        // Beside the directory, not in it: the lock must outlive a directory that somebody removes.
        let lock_path = options.state_dir.join("trail.lock");
        let lock = open_lock(&lock_path).map_err(io("open the trail's lock", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(TrailError::Locked(dir)),
            Err(fs::TryLockError::Error(source)) => return Err(io("lock", &lock_path)(source)),
        }
        let signer = Signer::load_or_create(&super::key_path(&options.state_dir))?;
        publish_verifier(&super::verifier_path(&options.state_dir), signer.verifier())?;
        let writer = Writer::recover(&dir)?;
        let note = super::note_path(&options.state_dir);
        writer.hold_against(&dir, &note, signer.verifier())?;
        let synced = writer.frontier.size();
        let inner = Arc::new(Inner {
            dir,
            note,
            sync: options.sync,
            limits: options.limits,
            signer,
            witness: options.witness,
            writer: Mutex::new(writer),
            dirty: AtomicBool::new(false),
            wake: Mutex::default(),
            woken: Condvar::new(),
            group: Mutex::new(Group {
                synced,
                witnessed: synced,
                ..Group::default()
            }),
            grouped: Condvar::new(),
            lock,
        });
        let state = locked(&inner.writer).state();
        inner.note(state).map_err(io("write the trail's note", &inner.note))?;
        let background = Arc::clone(&inner);
        let thread = std::thread::Builder::new()
            .name("trail".into())
            .spawn(move || background.keep_up())
            .map_err(io("start the thread that syncs", &inner.dir))?;
        Ok(Self {
            inner,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Appends records, in this order and with nothing between them. Returns after write(2) has returned, with `sync`
    /// after fsync(2). Blocks for as long as these take: microseconds without `sync`; with it, call from a thread that
    /// may wait.
    ///
    /// # Errors
    /// Where they could not be written, with the reason and what to do. Then none of them is part of the trail, unless
    /// only the fsync failed. The next append tries again by itself.
    pub fn append(&self, records: &[Record<'_>]) -> Result<Appended, TrailError> {
        let inner = &*self.inner;
        let (first, end) = {
            let mut writer = locked(&inner.writer);
            let result = writer.append(inner, records);
            let failing = result.as_ref().err().map(ToString::to_string);
            match (&writer.failing, &failing) {
                (None, Some(why)) => error!("calls are refused from now on: {why}"),
                (Some(_), None) => info!("the trail can be written again: calls are taken"),
                _ => {}
            }
            writer.failing = failing;
            (result?, writer.frontier.size())
        };
        inner.written();
        if inner.sync {
            inner.sync_until(end)?;
        }
        Ok(Appended { first })
    }

    /// Seals the trail, syncs it, hands the last head to the witness and ends the thread. Later appends fail.
    ///
    /// # Errors
    /// Where the seal could not be written or synced; the trail is closed all the same.
    pub fn close(&self) -> Result<(), TrailError> {
        let inner = &*self.inner;
        let result = {
            let mut writer = locked(&inner.writer);
            if writer.closed {
                return Ok(());
            }
            let result = writer.seal(inner, "shutdown");
            writer.closed = true;
            result
        };
        {
            locked(&inner.wake).stop = true;
            inner.woken.notify_all();
        }
        if let Some(thread) = locked(&self.thread).take() {
            // A panic of the thread was reported when it happened; nothing more can be done about it here.
            let _ = thread.join();
        }
        let synced = inner.sync_until(locked(&inner.writer).frontier.size());
        // Said aloud, since a child process that was forked and has not executed yet still has the descriptor.
        let unlocked = inner.lock.unlock();
        let unlocked = unlocked.map_err(|source| TrailError::Io {
            action: "unlock the trail in",
            path: inner.dir.clone(),
            source,
        });
        result.and(synced).and(unlocked)
    }

    /// The state of the trail.
    #[must_use]
    pub fn status(&self) -> Status {
        let group = locked(&self.inner.group);
        let (synced, witnessed) = (group.synced, group.witnessed);
        drop(group);
        let writer = locked(&self.inner.writer);
        Status {
            records: writer.frontier.size(),
            synced,
            witnessed,
            segment: writer.segment.as_ref().map(|s| s.path.clone()),
            failing: writer.failing.clone(),
        }
    }

    /// The key that checks this trail's checkpoints.
    #[must_use]
    pub fn verifier(&self) -> &Verifier {
        self.inner.signer.verifier()
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the trail could not be sealed");
        }
    }
}

/// Writes the public key beside the private one, for everyone to read, where it is not there already.
fn publish_verifier(path: &Path, verifier: &Verifier) -> Result<(), TrailError> {
    let text = format!("{verifier}\n");
    if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    let io = |source| TrailError::Io {
        action: "write the trail's public key",
        path: path.into(),
        source,
    };
    replace(path, 0o644, text.as_bytes(), false).map_err(io)
}

impl Inner {
    /// Tells the thread that there is something to sync.
    fn written(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            locked(&self.wake).dirty = true;
            self.woken.notify_all();
        }
    }

    /// The trail's thread: syncs what was written, hands out heads, sees that the file is still where it was.
    fn keep_up(&self) {
        let mut last_head = Instant::now();
        let (mut deaf, mut unnoted) = (false, false);
        loop {
            let waiting = locked(&self.writer).frontier.size() > locked(&self.group).witnessed;
            let mut wake = locked(&self.wake);
            if !wake.dirty && !wake.stop {
                wake = if waiting {
                    let left = self.limits.witness_after.saturating_sub(last_head.elapsed());
                    self.woken
                        .wait_timeout(wake, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                } else {
                    self.woken.wait(wake).unwrap_or_else(PoisonError::into_inner)
                };
            }
            if wake.dirty && !wake.stop {
                let going = |wake: &mut Wake| !wake.stop;
                wake = self
                    .woken
                    .wait_timeout_while(wake, SYNC_AFTER, going)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
            wake.dirty = false;
            let stop = wake.stop;
            drop(wake);
            self.dirty.store(false, Ordering::Release);
            let due = stop || last_head.elapsed() >= self.limits.witness_after;
            let state = {
                let mut writer = locked(&self.writer);
                if due {
                    writer.queue_head();
                }
                writer.check_place();
                writer.state()
            };
            if due {
                last_head = Instant::now();
            }
            if self.sync_until(state.0).is_ok() {
                match self.note(state) {
                    Ok(()) => unnoted = false,
                    Err(error) if !unnoted => {
                        let note = self.note.display();
                        tracing::warn!(%error, %note, "cannot note the trail's head; `trail verify` will know an older one");
                        unnoted = true;
                    }
                    Err(_) => {}
                }
                match self.hand_out_heads() {
                    Ok(()) => deaf = false,
                    Err(error) if !deaf => {
                        tracing::warn!(%error, "no witness takes the trail's heads; is syslogd running?");
                        deaf = true;
                    }
                    Err(_) => {}
                }
            }
            if stop {
                return;
            }
        }
    }

    /// Notes the head beside the trail, so that `verify` and the next start miss records that somebody removed. Only what
    /// is on disk is noted; no fsync(2) is needed, since an older note is as true.
    fn note(&self, (records, hash, root): State) -> io::Result<()> {
        let head = Head::sign(&self.signer, records, hash, root);
        replace(&self.note, 0o640, format!("{head}\n").as_bytes(), false)
    }

    /// Hands the heads that are on disk to the witness: only those, so that a power failure can never make a head
    /// outlive its records. One that is not taken stays and is tried again.
    fn hand_out_heads(&self) -> io::Result<()> {
        let synced = locked(&self.group).synced;
        loop {
            let next = {
                let heads = &mut locked(&self.writer).heads;
                if heads.front().is_some_and(|(records, ..)| *records <= synced) {
                    heads.pop_front()
                } else {
                    None
                }
            };
            let Some((records, hash, root)) = next else {
                return Ok(());
            };
            let taken = self.witness.witness(&Head::sign(&self.signer, records, hash, root));
            if taken.is_err() {
                locked(&self.writer).heads.push_front((records, hash, root));
                return taken;
            }
            locked(&self.group).witnessed = records;
        }
    }

    /// Waits until all records below `end` are on disk; syncs them itself if nobody does.
    fn sync_until(&self, end: u64) -> Result<(), TrailError> {
        let mut group = locked(&self.group);
        loop {
            if let Some((range, code)) = &group.failed
                && range.contains(&end.saturating_sub(1))
            {
                let source = io::Error::from_raw_os_error(*code);
                return Err(TrailError::Io {
                    action: "sync the trail in",
                    path: self.dir.clone(),
                    source,
                });
            }
            if group.synced >= end {
                return Ok(());
            }
            if group.running {
                group = self.grouped.wait(group).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            group.running = true;
            let from = group.synced;
            drop(group);
            let (covered, result) = self.sync_files();
            group = locked(&self.group);
            group.running = false;
            group.synced = covered;
            if let Err(source) = result {
                group.failed = Some((from..covered, source.raw_os_error().unwrap_or(libc::EIO)));
            }
            self.grouped.notify_all();
        }
    }

    /// Syncs all that was written until now. Returns how many records that covers. After a failure the segment is left:
    /// what of it is on disk is unknown, and a second fsync(2) could say yes without having done it.
    fn sync_files(&self) -> (u64, io::Result<()>) {
        let (covered, files, new_file) = {
            let mut writer = locked(&self.writer);
            let files = std::mem::take(&mut writer.unsynced);
            (writer.frontier.size(), files, std::mem::take(&mut writer.new_file))
        };
        let mut result = files.iter().try_for_each(|file| file.sync_data());
        if result.is_ok() && new_file {
            result = File::open(&self.dir).and_then(|dir| dir.sync_all());
        }
        if let Err(error) = &result {
            tracing::error!(%error, dir = %self.dir.display(), "cannot sync the trail; going on with a new segment");
            locked(&self.writer).leave_segment();
        }
        (covered, result)
    }
}

impl Writer {
    /// Finds the end of the trail in `dir`.
    fn recover(dir: &Path) -> Result<Self, TrailError> {
        let mut writer = Self {
            closed: false,
            segment: None,
            previous: None,
            ordinal: 0,
            torn: Vec::new(),
            head: GENESIS,
            frontier: Frontier::default(),
            since_seal: 0,
            last_head: 0,
            clock: Clock::default(),
            batch: Batch {
                bytes: Vec::new(),
                records: Vec::new(),
                head: GENESIS,
            },
            unsynced: Vec::new(),
            new_file: false,
            heads: VecDeque::new(),
            failing: None,
        };
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| TrailError::Io {
                action: "read the trail's",
                path,
                source,
            }
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(failed(dir))? {
            let name = entry.map_err(failed(dir))?.file_name();
            let Some(name) = name.to_str() else { continue };
            names.extend(SegmentName::parse(name, "jsonl"));
            // Ordinals of dropped segments are not used again.
            writer.ordinal = writer
                .ordinal
                .max(SegmentName::parse(name, "seal").map_or(0, |n| n.ordinal));
        }
        names.sort_unstable();
        writer.ordinal = writer.ordinal.max(names.last().map_or(0, |n| n.ordinal));
        for name in names.iter().rev() {
            let path = name.path(dir);
            let end = SegmentEnd::find(&path).map_err(failed(&path))?;
            let Some((head, frontier)) = end.state else {
                // Not one whole record: what the segment before it says still holds.
                writer.torn.insert(
                    0,
                    Torn {
                        segment: name.to_string(),
                        offset: 0,
                        length: end.length,
                    },
                );
                continue;
            };
            writer.head = head;
            writer.frontier = frontier;
            writer.last_head = writer.frontier.size();
            writer.previous = Some(*name);
            if end.sealed && writer.torn.is_empty() {
                let file = open_segment(&path, false).map_err(failed(&path))?;
                writer.segment = Some(Segment {
                    name: *name,
                    path,
                    file,
                    offset: end.offset,
                });
            } else {
                let length = end.length - end.offset;
                writer.torn.insert(
                    0,
                    Torn {
                        segment: name.to_string(),
                        offset: end.offset,
                        length,
                    },
                );
            }
            return Ok(writer);
        }
        if names.first().map_or(writer.ordinal, |first| first.ordinal - 1) > 0 {
            let what = "no segment has a whole record, but older ones were dropped";
            return Err(TrailError::Damaged {
                path: dir.to_owned(),
                what,
            });
        }
        Ok(writer)
    }

    /// How many records there are, the hash of the last of them, and the root over them.
    fn state(&self) -> State {
        (
            self.frontier.size(),
            from_hex(&self.head).unwrap_or_default(),
            self.frontier.root(),
        )
    }

    /// Compares what was found with what was noted: a trail that lost its end must not go on as if it had not.
    fn hold_against(&self, dir: &Path, note: &Path, verifier: &Verifier) -> Result<(), TrailError> {
        let noted = match Head::noted(note) {
            Ok(noted) => noted.filter(|head| head.is_signed_by(verifier)),
            Err(source) => {
                return Err(TrailError::Io {
                    action: "read the trail's note",
                    path: note.to_owned(),
                    source,
                });
            }
        };
        let (records, hash, _) = self.state();
        let what = match noted {
            Some(head) if head.records > records => {
                format!("ends after {records} records, but {} were written", head.records)
            }
            Some(head) if head.records == records && head.hash != hash => {
                format!("has another record {}", records.saturating_sub(1))
            }
            Some(_) => return Ok(()),
            None => {
                if records > 0 {
                    tracing::warn!(note = %note.display(), "there is no note of the trail's head: nobody knows whether records were removed");
                }
                return Ok(());
            }
        };
        Err(TrailError::Cut {
            dir: dir.to_owned(),
            note: note.to_owned(),
            what,
        })
    }

    fn append(&mut self, inner: &Inner, records: &[Record<'_>]) -> Result<u64, TrailError> {
        if self.closed {
            return Err(TrailError::Closed);
        }
        let Some(time) = records.first().map(Record::time) else {
            return Ok(self.frontier.size());
        };
        if let Some(segment) = &self.segment
            && (segment.offset >= inner.limits.segment_bytes || segment.name.is_of_another_day(time))
        {
            self.seal(inner, "rotation")?;
            self.segment = None;
        }
        self.begin();
        self.ready(inner, time)?;
        let first = self.frontier.size() + self.batch.records.len() as u64;
        for (n, record) in (first..).zip(records) {
            let Self { batch, clock, .. } = self;
            batch.push(|out| record.write(out, n, clock));
        }
        self.commit()?;
        if self.since_seal >= inner.limits.seal_records {
            // The batch stands, whatever comes of the seal: where it cannot be written now, the next append will say.
            if let Err(error) = self.seal(inner, "count") {
                tracing::warn!(%error, "the trail could not be sealed now");
            }
        } else if self.frontier.size() - self.last_head >= inner.limits.witness_records {
            self.queue_head();
        }
        Ok(first)
    }

    fn begin(&mut self) {
        self.batch.bytes.clear();
        self.batch.bytes.shrink_to(KEEP_BUFFER);
        self.batch.records.clear();
        self.batch.head = self.head;
    }

    /// Sees to it that there is a segment; a new one gets its first record into the batch.
    fn ready(&mut self, inner: &Inner, time: SystemTime) -> Result<(), TrailError> {
        if self.segment.is_some() {
            return Ok(());
        }
        let name = SegmentName::new(self.ordinal + 1, time);
        let path = name.path(&inner.dir);
        let file = open_segment(&path, true).map_err(|source| TrailError::Io {
            action: "make trail segment",
            path: path.clone(),
            source,
        })?;
        self.ordinal += 1;
        self.segment = Some(Segment {
            name,
            path,
            file,
            offset: 0,
        });
        let Self {
            batch,
            clock,
            frontier,
            head,
            previous,
            torn,
            ..
        } = self;
        batch.push(|out| push_opening(out, clock, frontier, head, *previous, torn));
        Ok(())
    }

    /// Writes a seal over all records until now. A trail without records, or whose last record is a seal, stays as it
    /// is.
    fn seal(&mut self, inner: &Inner, reason: &str) -> Result<(), TrailError> {
        if self.since_seal == 0 && self.segment.is_some() || self.frontier.size() == 0 {
            return Ok(());
        }
        self.begin();
        self.ready(inner, SystemTime::now())?;
        if !self.batch.records.is_empty() {
            self.commit()?;
            self.begin();
        }
        let Self {
            batch,
            clock,
            frontier,
            head,
            ..
        } = self;
        batch.push(|out| {
            record::open(out, frontier.size(), "seal");
            clock.write(out, SystemTime::now());
            record::text(out, "reason", reason);
            push_tree(out, frontier, head);
            record::text(
                out,
                "checkpoint",
                &inner.signer.checkpoint(frontier.size(), &frontier.root()),
            );
            out.push(b'}');
        });
        self.commit()?;
        self.since_seal = 0;
        self.queue_head();
        Ok(())
    }

    /// Writes the batch, looks whether the file is as it must be then, and only then counts its records.
    fn commit(&mut self) -> Result<(), TrailError> {
        let Some(segment) = &mut self.segment else {
            return Err(TrailError::Closed);
        };
        let bytes = &self.batch.bytes;
        let mut written = 0;
        let mut failed = None;
        // One write(2) takes all of it; a second one is only made after a short one, to learn the reason.
        while written < bytes.len() && failed.is_none() {
            match (&*segment.file).write(&bytes[written..]) {
                Ok(0) => failed = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => failed = Some(error),
            }
        }
        let expected = segment.offset + written as u64;
        let state = segment.file.metadata();
        let what = match &state {
            Ok(state) if state.nlink() == 0 => Some("was removed"),
            Ok(state) if state.len() > expected => Some("was written to by somebody else"),
            Ok(state) if state.len() < expected => Some("was cut by somebody else"),
            _ => None,
        };
        let disturbed = what.map(|what| TrailError::Disturbed {
            path: segment.path.clone(),
            what,
        });
        let refused = failed.or(state.err()).map(|source| TrailError::Io {
            action: "write to trail segment",
            path: segment.path.clone(),
            source,
        });
        if let Some(error) = refused.or(disturbed) {
            if written > 0 || what.is_some() || segment.offset == 0 {
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
        for range in &self.batch.records {
            self.frontier.push(leaf_hash(&self.batch.bytes[range.clone()]));
        }
        self.since_seal += self.batch.records.len() as u64;
        self.head = self.batch.head;
        if !self
            .unsynced
            .last()
            .is_some_and(|file| Arc::ptr_eq(file, &segment.file))
        {
            self.unsynced.push(Arc::clone(&segment.file));
        }
        Ok(())
    }

    /// Gives up the segment: the next append begins a new one, whose `recovered` record names what of this one does not
    /// count.
    fn leave_segment(&mut self) {
        let Some(segment) = self.segment.take() else {
            return;
        };
        if segment.offset == 0 {
            // It never had a record. Were it left, a full disk would fill with attempts.
            let gone = fs::remove_file(&segment.path);
            if gone.is_ok() || gone.is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
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

    /// Gives up the segment if its name does not lead to it any more: a directory that was moved away takes writes
    /// silently.
    fn check_place(&mut self) {
        let Some(segment) = &self.segment else { return };
        let same = match (segment.file.metadata(), fs::symlink_metadata(&segment.path)) {
            (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
            _ => false,
        };
        if !same {
            tracing::error!(segment = %segment.path.display(), "the trail's segment is not where it was");
            self.leave_segment();
        }
    }

    /// Notes the head for the witness.
    fn queue_head(&mut self) {
        let size = self.frontier.size();
        if size == self.last_head {
            return;
        }
        if self.heads.len() == MAX_HEADS {
            self.heads.pop_front();
        }
        self.heads.push_back(self.state());
        self.last_head = size;
    }
}

impl Batch {
    fn push(&mut self, rec: impl FnOnce(&mut Vec<u8>)) {
        let range = push_line(&mut self.bytes, &mut self.head, rec);
        self.records.push(range);
    }
}

/// Opens the lock for reading: a file that is open for writing would keep its file system from being made read-only.
fn open_lock(path: &Path) -> io::Result<File> {
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
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
