//! Appending: the part on every call's way.
//!
//! One lock, one buffer, one write(2) for a batch; fsync(2) and heads have a thread of their own.

use std::borrow::Borrow;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use colibri_files::{FileLock, LockWait, replace_file_unsynced};

use crate::error::{TrailError, failed_to};
use crate::file::{
    NoCache, ReleasableFiles, directory, key_path, note_path, open_regular, verifier_path,
    with_room,
};
use crate::record::TrailRecord;
use crate::segment::SegmentName;
use crate::signed_note::{Signer, Verifier};
use crate::witness::{TrailHead, Witness};
use crate::writer::{HeadFacts, NoticeSeverity, Notify, SegmentLimits, TrailWriter};
use parking_lot::{Condvar, Mutex};

/// The time for which written records may wait for fsync(2) where `sync` is off. Half of the 200 ms
/// that the design allows, so that the fsync itself has the other half.
const SYNC_AFTER: Duration = Duration::from_millis(100);

/// The options of a trail.
#[derive(Clone)]
pub struct TrailOptions {
    /// The daemon's state directory; segments are in `trail/` below it, the key beside that.
    pub state_dir: PathBuf,
    /// True if an append returns only after fsync(2) (`--trail-sync`).
    pub sync: bool,
    /// The witness of heads.
    pub witness: Arc<dyn Witness>,
    /// The receiver of notices for the operator.
    pub notify: Notify,
    /// Sizes and intervals.
    pub limits: SegmentLimits,
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    /// The number of the first record of the batch; the others follow it one by one.
    pub first: u64,
}

/// The state of a trail, for status and metrics.
#[derive(Clone, Debug)]
pub struct TrailStatus {
    /// Records written.
    pub records: u64,
    /// Records known to be on disk.
    pub synced: u64,
    /// Records covered by the last head that a witness took.
    pub witnessed: u64,
    /// The segment being written, if there is one.
    pub segment: Option<PathBuf>,
    /// The reason for which the last append failed, if it did.
    pub failing: Option<String>,
    /// Records until the last seal that was written since the trail was opened.
    pub sealed: Option<u64>,
    /// True if who wrote it before ended without sealing it.
    pub recovered: bool,
}

/// The trail of this daemon, open for appending. Shared by all tasks.
#[derive(Debug)]
pub struct Trail {
    inner: Arc<TrailInner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The right to append to the trail of a state directory, and to whatever else only one daemon may
/// write there: one process has it.
#[derive(Debug)]
pub struct TrailLock {
    dir: PathBuf,
    lock: FileLock,
}

impl TrailLock {
    /// Takes it. What is missing of the directories is made.
    ///
    /// # Errors
    /// [`TrailError::Locked`] where another process has it; where directory or lock cannot be used.
    pub fn take(state_dir: &Path) -> Result<TrailLock, TrailError> {
        let dir = directory(state_dir);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(&dir)
            .map_err(failed_to("make the trail's directory", &dir))?;
        // Beside the directory, not in it: the lock must outlive a directory that somebody removes.
        let path = state_dir.join("trail.lock");
        match FileLock::of_file(&path, LockWait::Never) {
            Ok(lock) => Ok(TrailLock { dir, lock }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(TrailError::Locked(dir)),
            Err(error) => Err(failed_to("open the trail's lock", &path)(error)),
        }
    }
}

struct TrailInner {
    dir: PathBuf,
    /// The daemon's own note of the last head.
    note: PathBuf,
    sync: bool,
    witness_after: Duration,
    signer: Arc<Signer>,
    witness: Arc<dyn Witness>,
    notify: Notify,
    cache: Arc<dyn ReleasableFiles>,
    writer: Mutex<TrailWriter>,
    /// The figures of the status, so that reading them waits for no write.
    records: AtomicU64,
    shown: Mutex<WriterNotice>,
    recovered: bool,
    /// Set by an append, cleared by the thread that syncs: spares the lock below on all but the
    /// first append.
    dirty: AtomicBool,
    wake: Mutex<Wake>,
    woken: Condvar,
    group: Mutex<FlushGroup>,
    grouped: Condvar,
    /// Keeps other processes out for as long as the trail is open.
    lock: Mutex<Option<FileLock>>,
}

impl std::fmt::Debug for TrailInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("dir", &self.dir)
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

/// The writer's part of the status besides numbers.
#[derive(Debug, Default)]
struct WriterNotice {
    segment: Option<(SegmentName, PathBuf)>,
    failing: Option<String>,
    sealed: Option<u64>,
}

/// The events that the trail's thread waits for.
#[derive(Debug, Default)]
struct Wake {
    dirty: bool,
    stop: bool,
}

/// Group commit: one fsync(2) at a time, for all that was written before it began.
#[derive(Debug, Default)]
struct FlushGroup {
    running: bool,
    /// Records below this number are on disk.
    synced: u64,
    /// Records whose fsync failed, and what the system said.
    failed: Option<(Range<u64>, i32)>,
    /// Records below this number were covered by a head that the witness took.
    witnessed: u64,
}

impl Trail {
    /// Opens the trail of a state directory, or begins one. Reads only the end of the last segment.
    /// Where that does not end with a seal, the daemon was killed or the machine lost power: a new
    /// segment opens with a `recovered` record.
    ///
    /// # Errors
    /// Where directory, lock, key or segment cannot be used, another process appends, or records
    /// are not there any more.
    pub fn open(options: TrailOptions) -> Result<Self, TrailError> {
        let lock = TrailLock::take(&options.state_dir)?;
        Trail::open_beside(Arc::new(NoCache), lock, options)
    }

    /// The same beside files that can be given up where there is no space for the trail.
    ///
    /// # Errors
    /// As [`Trail::open`].
    pub fn open_beside(
        cache: Arc<dyn ReleasableFiles>,
        lock: TrailLock,
        options: TrailOptions,
    ) -> Result<Self, TrailError> {
        let TrailLock { dir, lock } = lock;
        let signer = Arc::new(Signer::load_or_create(
            &key_path(&options.state_dir),
            "trail",
        )?);
        publish_verifier(&verifier_path(&options.state_dir), signer.verifier())?;
        let (limits, cached) = (options.limits, Arc::clone(&cache));
        let writer =
            TrailWriter::recover(&dir, limits, Arc::clone(&signer), options.notify, cached)?;
        let note = note_path(&options.state_dir);
        writer.hold_against(&note, signer.verifier())?;
        let reached = writer.reached();
        let synced = reached.0;
        let inner = Arc::new(TrailInner {
            dir,
            note,
            sync: options.sync,
            witness_after: options.limits.witness_after,
            signer,
            witness: options.witness,
            notify: options.notify,
            cache,
            records: AtomicU64::new(synced),
            shown: Mutex::default(),
            recovered: writer.is_recovering(),
            writer: Mutex::new(writer),
            dirty: AtomicBool::new(false),
            wake: Mutex::default(),
            woken: Condvar::new(),
            group: Mutex::new(FlushGroup {
                synced,
                witnessed: synced,
                ..FlushGroup::default()
            }),
            grouped: Condvar::new(),
            lock: Mutex::new(Some(lock)),
        });
        inner.show(&inner.writer.lock(), None);
        inner
            .note(reached)
            .map_err(failed_to("write the trail's note", &inner.note))?;
        let background = Arc::clone(&inner);
        let thread = std::thread::Builder::new()
            .name("trail".into())
            .spawn(move || background.keep_up())
            .map_err(failed_to("start the thread that syncs", &inner.dir))?;
        Ok(Self {
            inner,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Appends records, in this order and with nothing between them. They are taken one by one and
    /// written in place, so that an iterator may make each of what it borrows; it runs while others
    /// wait, and should do no more than that. Nothing is allocated.
    ///
    /// Returns after write(2) has returned, with `sync` after fsync(2). Blocks for as long as these
    /// take: microseconds without `sync`; with it, call from a thread that may wait.
    ///
    /// # Errors
    /// Where they could not be written, with the reason and what to do. Then none of them is part
    /// of the trail, unless only the fsync failed. The next append tries again by itself.
    pub fn append<'a, R: Borrow<TrailRecord<'a>>>(
        &self,
        records: impl IntoIterator<Item = R>,
    ) -> Result<AppendOutcome, TrailError> {
        let inner = &*self.inner;
        let (first, end) = {
            let mut writer = inner.writer.lock();
            let result = writer.append(records);
            inner.show(&writer, Some(result.as_ref().err()));
            (result?, writer.records())
        };
        inner.written();
        if inner.sync {
            inner.sync_until(end)?;
        }
        Ok(AppendOutcome { first })
    }

    /// Seals the trail, syncs it, hands the last head to the witness and ends the thread. Later
    /// appends fail.
    ///
    /// # Errors
    /// Where the seal could not be written or synced; the trail is closed all the same.
    pub fn close(&self) -> Result<(), TrailError> {
        let inner = &*self.inner;
        let (sealed, end) = {
            let mut writer = inner.writer.lock();
            if writer.is_closed() {
                return Ok(());
            }
            let sealed = writer.close();
            inner.show(&writer, None);
            (sealed, writer.records())
        };
        {
            inner.wake.lock().stop = true;
            inner.woken.notify_all();
        }
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread was reported when it happened; nothing more can be done about
            // it here.
            let _ = thread.join();
        }
        let synced = inner.sync_until(end);
        drop(inner.lock.lock().take());
        sealed.and(synced)
    }

    /// The state of the trail. Neither writes nor waits for a write: it can be asked while the disk
    /// is full or hangs.
    #[must_use]
    pub fn status(&self) -> TrailStatus {
        let (synced, witnessed) = {
            let group = self.inner.group.lock();
            (group.synced, group.witnessed)
        };
        let shown = self.inner.shown.lock();
        TrailStatus {
            records: self.inner.records.load(Ordering::Acquire),
            synced,
            witnessed,
            segment: shown.segment.as_ref().map(|(_, path)| path.clone()),
            failing: shown.failing.clone(),
            sealed: shown.sealed,
            recovered: self.inner.recovered,
        }
    }

    /// The key that signs this trail's checkpoints. Whatever else it signs begins with a line of
    /// its own kind.
    #[must_use]
    pub fn signer(&self) -> &Arc<Signer> {
        &self.inner.signer
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
            (self.inner.notify)(
                NoticeSeverity::Error,
                &format!("the trail could not be sealed: {error}"),
            );
        }
    }
}

/// Writes the public key beside the private one, for everyone to read, where it is not there
/// already.
fn publish_verifier(path: &Path, verifier: &Verifier) -> Result<(), TrailError> {
    let text = format!("{verifier}\n");
    let mut there = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(4096).read_to_end(&mut there));
    if read.is_ok() && there == text.as_bytes() {
        return Ok(());
    }
    replace_file_unsynced(path, text.as_bytes(), 0o644)
        .map_err(failed_to("write the trail's public key", path))
}

impl TrailInner {
    /// Shows what status tells, and notes when appends begin to fail, and when they work again.
    fn show(&self, writer: &TrailWriter, appended: Option<Option<&TrailError>>) {
        self.records.store(writer.records(), Ordering::Release);
        let mut shown = self.shown.lock();
        if let Some(error) = appended {
            match (&shown.failing, error) {
                (None, Some(why)) => (self.notify)(
                    NoticeSeverity::Error,
                    &format!("calls are refused from now on: {why}"),
                ),
                (Some(_), None) => (self.notify)(
                    NoticeSeverity::Info,
                    "the trail can be written again: calls are taken",
                ),
                _ => {}
            }
            shown.failing = error.map(ToString::to_string);
        }
        shown.sealed = writer.sealed();
        let segment = writer.segment();
        if shown.segment.as_ref().map(|(name, _)| *name) != segment.map(|(name, _)| name) {
            shown.segment = segment.map(|(name, path)| (name, path.to_owned()));
        }
    }

    /// Notifies the thread that there is something to sync.
    fn written(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.wake.lock().dirty = true;
            self.woken.notify_all();
        }
    }

    /// The trail's thread: syncs what was written, hands out heads, sees that the file is still
    /// where it was.
    fn keep_up(&self) {
        let mut last_head = Instant::now();
        let (mut deaf, mut unnoted) = (false, false);
        loop {
            let waiting = self.writer.lock().records() > self.group.lock().witnessed;
            let mut wake = self.wake.lock();
            if !wake.dirty && !wake.stop {
                if waiting {
                    let left = self.witness_after.saturating_sub(last_head.elapsed());
                    self.woken.wait_for(&mut wake, left);
                } else {
                    self.woken.wait(&mut wake);
                }
            }
            if wake.dirty && !wake.stop {
                let going = |wake: &mut Wake| !wake.stop;
                self.woken.wait_while_for(&mut wake, going, SYNC_AFTER);
            }
            wake.dirty = false;
            let stop = wake.stop;
            drop(wake);
            self.dirty.store(false, Ordering::Release);
            let due = stop || last_head.elapsed() >= self.witness_after;
            let reached = {
                let mut writer = self.writer.lock();
                if due {
                    writer.queue_head();
                }
                writer.look();
                self.show(&writer, None);
                writer.reached()
            };
            if due {
                last_head = Instant::now();
            }
            if self.sync_until(reached.0).is_ok() {
                match self.note(reached) {
                    Ok(()) => unnoted = false,
                    Err(error) if !unnoted => {
                        let note = self.note.display();
                        let what = format!(
                            "cannot note the trail's head in {note}: {error}; an older one stays"
                        );
                        (self.notify)(NoticeSeverity::Warning, &what);
                        unnoted = true;
                    }
                    Err(_) => {}
                }
                match self.hand_out_heads() {
                    Ok(()) => deaf = false,
                    Err(error) if !deaf => {
                        let what = format!(
                            "no witness takes the trail's heads; is syslogd running? error={error}"
                        );
                        (self.notify)(NoticeSeverity::Warning, &what);
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

    /// Notes the head beside the trail, so that `verify` and the next start miss records that
    /// somebody removed. Only what is on disk is noted; no fsync(2) is needed, since an older note
    /// is as true.
    fn note(&self, (records, hash, root): HeadFacts) -> io::Result<()> {
        let head = TrailHead::sign(&self.signer, records, hash, root);
        with_room(&*self.cache, &self.note, || {
            replace_file_unsynced(&self.note, format!("{head}\n").as_bytes(), 0o640)
        })
    }

    /// Hands the heads that are on disk to the witness: only those, so that a power failure can
    /// never make a head outlive its records. One that is not taken stays and is tried again.
    fn hand_out_heads(&self) -> io::Result<()> {
        let synced = self.group.lock().synced;
        loop {
            let Some(head) = self.writer.lock().take_head(synced) else {
                return Ok(());
            };
            let (records, hash, root) = head;
            let taken = self
                .witness
                .witness(&TrailHead::sign(&self.signer, records, hash, root));
            if taken.is_err() {
                self.writer.lock().put_back(head);
                return taken;
            }
            self.group.lock().witnessed = records;
        }
    }

    /// Waits until all records below `end` are on disk; syncs them itself if nobody does.
    fn sync_until(&self, end: u64) -> Result<(), TrailError> {
        let mut group = self.group.lock();
        loop {
            if let Some((range, code)) = &group.failed
                && range.contains(&end.saturating_sub(1))
            {
                let error = io::Error::from_raw_os_error(*code);
                return Err(TrailError::Io {
                    action: "sync the trail in",
                    path: self.dir.clone(),
                    error,
                });
            }
            if group.synced >= end {
                return Ok(());
            }
            if group.running {
                self.grouped.wait(&mut group);
                continue;
            }
            group.running = true;
            let from = group.synced;
            drop(group);
            let (covered, result) = self.sync_files();
            group = self.group.lock();
            group.running = false;
            group.synced = covered;
            if let Err(source) = result {
                group.failed = Some((from..covered, source.raw_os_error().unwrap_or(libc::EIO)));
            }
            self.grouped.notify_all();
        }
    }

    /// Syncs all that was written until now. Returns how many records that covers. After a failure
    /// the segment is left: what of it is on disk is unknown, and a second fsync(2) could say yes
    /// without having done it.
    fn sync_files(&self) -> (u64, io::Result<()>) {
        let unsynced = self.writer.lock().take_unsynced();
        let mut result = unsynced.files.iter().try_for_each(|file| file.sync_data());
        if result.is_ok() && unsynced.new_file {
            result = File::open(&self.dir).and_then(|dir| dir.sync_all());
        }
        if let Err(error) = &result {
            let dir = self.dir.display();
            let what =
                format!("cannot sync the trail in {dir}: {error}; going on with a new segment");
            (self.notify)(NoticeSeverity::Error, &what);
            self.writer.lock().leave_segment();
        }
        (unsynced.covers, result)
    }
}
