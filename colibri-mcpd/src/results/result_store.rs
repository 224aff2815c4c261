//! All that are kept, in their files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use colibri_text::counted;
use colibri_trail::ReleasableFiles;
use colibri_wire::Json;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::blocks;
use super::files::{OpenResult, ResultFiles, damaged};
use super::index::Index;
use super::pieces::{PieceRequest, ResultPiece};
use super::stored_result::{Handle, NotRead, NotStored, ResultLimits, ResultOwner, StoredResult};
use colibri_policy::{UserSlot, UserSlots};

/// The number of users who have results written or read at once. Each may hold a few times the
/// bytes of a result.
const AT_ONCE: usize = 4;
/// The interval at which expired results are removed.
const SWEPT_EVERY: Duration = Duration::from_secs(60);

/// All that are kept.
#[derive(Debug)]
pub struct Results {
    files: ResultFiles,
    index: Mutex<Index>,
    turns: UserSlots,
    /// The last one could not be written.
    failing: AtomicBool,
}

/// Some that keep nothing.
impl Default for Results {
    fn default() -> Results {
        let nothing = ResultLimits {
            per_user: 0,
            total: 0,
        };
        Results {
            files: ResultFiles::default(),
            index: Mutex::new(Index::new(nothing)),
            turns: UserSlots::new(AT_ONCE),
            failing: AtomicBool::default(),
        }
    }
}

impl Results {
    /// Those below `state_dir`. What people had there is theirs again, as far as it is whole and
    /// the trail does not need its space; the rest is removed: what was not written to its end, and
    /// what belonged to agents, who are gone.
    ///
    /// # Errors
    /// The directory cannot be made or read, or is not ours alone.
    pub fn open(state_dir: &Path, limits: impl Into<ResultLimits>) -> io::Result<Results> {
        let files = ResultFiles::open(state_dir)?;
        let mut index = Index::new(limits.into());
        for found in files.scan()? {
            for gone in index.adopt(found) {
                files.remove(&gone);
            }
        }
        let results = Results {
            files,
            index: Mutex::new(index),
            turns: UserSlots::new(AT_ONCE),
            failing: AtomicBool::default(),
        };
        results.tidy(SystemTime::now());
        Ok(results)
    }

    /// This owner's turn to have something written or read here. It is over when it is dropped.
    pub async fn turn(&self, owner: ResultOwner) -> UserSlot {
        self.turns.of(owner.uid, owner.session).await
    }

    /// Keeps a result, for which older ones may have to go. It is there whole once this has
    /// returned.
    ///
    /// # Errors
    /// Why it is not kept. Nothing of it is left then.
    pub fn keep(&self, owner: &ResultOwner, result: &[u8]) -> Result<StoredResult, NotStored> {
        self.keep_at(owner, result, SystemTime::now())
    }

    fn keep_at(
        &self,
        owner: &ResultOwner,
        result: &[u8],
        now: SystemTime,
    ) -> Result<StoredResult, NotStored> {
        let handle = Handle::new()?;
        let length = result.len() as u64;
        let mut gone = Vec::new();
        let reserved = self.index.lock().reserve(owner, length, &mut gone);
        self.remove_all(gone);
        reserved?;
        if !self.make_room(owner.uid) {
            self.index.lock().settle(owner, handle, length, None);
            return Err(NotStored::NoRoom(self.files.directory().to_owned()));
        }
        let written = self.files.write(&handle, owner, now, result);
        self.index
            .lock()
            .settle(owner, handle, length, written.is_ok().then_some(now));
        if written.is_err() {
            self.files.remove(&handle);
        }
        match &written {
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                warn!("results over their limit are not kept any more: {error}");
            }
            Ok(_) if self.failing.swap(false, Ordering::Relaxed) => {
                info!("results over their limit are kept again")
            }
            _ => {}
        }
        Ok(StoredResult {
            handle,
            bytes: length,
            sha256: written?,
        })
    }

    fn remove_all(&self, gone: Vec<Handle>) {
        for gone in gone {
            self.files.remove(&gone);
        }
    }

    /// Gives results up until what is reserved for the trail is free beside all that is being
    /// written, a result of this user included. False if that cannot be.
    fn make_room(&self, uid: u32) -> bool {
        let (mut index, mut gone) = (self.index.lock(), Vec::new());
        let missing = self.files.missing(index.being_written());
        let enough = index.give_way(missing, Some(uid), &mut gone);
        drop(index);
        self.remove_all(gone);
        enough
    }

    /// Gives a result up that was just kept.
    pub fn remove(&self, owner: &ResultOwner, kept: &StoredResult) {
        self.index.lock().remove(owner, kept.handle);
        self.files.remove(&kept.handle);
    }

    /// Reads a piece of a result.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(
        &self,
        owner: &ResultOwner,
        handle: &str,
        request: &PieceRequest,
    ) -> Result<ResultPiece, NotRead> {
        self.read_at(owner, handle, request, SystemTime::now())
    }

    fn read_at(
        &self,
        owner: &ResultOwner,
        handle: &str,
        request: &PieceRequest,
        now: SystemTime,
    ) -> Result<ResultPiece, NotRead> {
        request.answer(&self.open_at(owner, handle, now)?)
    }

    fn open_at(
        &self,
        owner: &ResultOwner,
        handle: &str,
        now: SystemTime,
    ) -> Result<OpenResult, NotRead> {
        // What is no handle at all is looked for like one.
        let handle = Handle::read(handle).unwrap_or(Handle([0; 16]));
        let found = self.index.lock().find(owner, handle, now);
        let found = found.ok_or(NotRead::Unknown)?;
        let opened = self.files.read(&handle, found.length, found.verified);
        // It may have made room for another just now.
        let opened = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                self.index.lock().remove(owner, handle);
                NotRead::Unknown
            }
            _ => NotRead::Disk(error),
        })?;
        if !found.verified {
            self.index.lock().verified(owner, handle);
        }
        Ok(opened)
    }

    /// Reads the block at a place in a result, as a tool's content can have it.
    ///
    /// # Errors
    /// Why there is none; it counts for more than so many bytes.
    pub fn block(
        &self,
        owner: &ResultOwner,
        handle: &str,
        place: usize,
        most: u64,
    ) -> Result<String, NotRead> {
        let opened = self.open_at(owner, handle, SystemTime::now())?;
        let whole = opened.whole()?;
        let result = Json::parse(whole.as_bytes()).map_err(|_| damaged())?;
        let block = blocks::at(&result, place);
        let (block, counted) = block
            .ok_or_else(|| NotRead::Missing(format!("there is no block {place} in its content")))?;
        if counted > most {
            let why = format!(
                "block {place} counts for {counted} bytes, which is more than the {most} that are left"
            );
            return Err(NotRead::Missing(why));
        }
        Ok(block)
    }

    /// Removes those whose time is over, and those whose space the trail needs.
    fn tidy(&self, now: SystemTime) {
        let mut index = self.index.lock();
        let mut gone = index.expire(now);
        let missing = self.files.missing(index.being_written());
        index.give_way(missing, None, &mut gone);
        drop(index);
        self.remove_all(gone);
    }

    /// Removes all that an owner has, who does not come again.
    pub fn forget(&self, owner: &ResultOwner) {
        let gone = self.index.lock().forget(owner);
        self.remove_all(gone);
    }

    /// Removes them for as long as the daemon runs.
    pub async fn sweep(self: Arc<Results>) {
        loop {
            tokio::time::sleep(SWEPT_EVERY).await;
            let results = self.clone();
            // Files are removed: not on a thread that serves clients.
            let _ = tokio::task::spawn_blocking(move || results.tidy(SystemTime::now())).await;
        }
    }
}

impl ReleasableFiles for Results {
    fn give_way(&self, file: &Path) -> bool {
        if !self.files.shares_with(file) {
            return false;
        }
        let (mut index, mut gone) = (self.index.lock(), Vec::new());
        // The system says that nothing is free, whatever is counted as free.
        index.give_way(self.files.missing(0).max(1), None, &mut gone);
        drop(index);
        let freed = !gone.is_empty();
        if freed {
            warn!(
                "{} gave {} up to {}: its file system is full",
                self.files.directory().display(),
                counted(gone.len() as u64, "result"),
                file.display()
            );
        }
        self.remove_all(gone);
        freed
    }
}

#[cfg(test)]
mod tests;
