//! All that are kept, in their files.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tracing::{info, warn};

use super::files::Files;
use super::index::Index;
use super::kept::{Handle, Kept, Limits, NotKept, NotRead, Owner};
use super::pieces::{Piece, Request};
use crate::policy::{Turn, Turns};

/// How many users have results written or read at once. Each may hold a few times the bytes of a result.
const AT_ONCE: usize = 4;
/// How often it is seen to that those go whose time is over.
const SWEPT_EVERY: Duration = Duration::from_secs(60);

/// All that are kept.
#[derive(Debug)]
pub struct Results {
    files: Files,
    index: Mutex<Index>,
    turns: Turns,
    /// The last one could not be written.
    failing: AtomicBool,
}

/// Some that keep nothing.
impl Default for Results {
    fn default() -> Results {
        let nothing = Limits { per_user: 0, total: 0 };
        Results {
            files: Files::default(),
            index: Mutex::new(Index::new(nothing)),
            turns: Turns::new(AT_ONCE),
            failing: AtomicBool::default(),
        }
    }
}

impl Results {
    /// Those below `state_dir`. What people had there is theirs again, as far as it is whole; the rest is removed: what
    /// was not written to its end, and what belonged to agents, who are gone.
    ///
    /// # Errors
    /// The directory cannot be made or read, or is not ours alone.
    pub fn open(state_dir: &Path, limits: Limits) -> io::Result<Results> {
        let files = Files::open(state_dir)?;
        let mut index = Index::new(limits);
        for found in files.scan()? {
            for gone in index.adopt(found) {
                files.remove(&gone);
            }
        }
        let results = Results {
            files,
            index: Mutex::new(index),
            turns: Turns::new(AT_ONCE),
            failing: AtomicBool::default(),
        };
        results.expire(SystemTime::now());
        Ok(results)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This owner's turn to have something written or read here. It is over when it is dropped.
    pub async fn turn(&self, owner: Owner) -> Turn {
        self.turns.of(owner.uid, owner.session).await
    }

    /// Keeps a result, for which older ones may have to go. It is there whole once this has returned.
    ///
    /// # Errors
    /// Why it is not kept. Nothing of it is left then.
    pub fn keep(&self, owner: &Owner, result: &[u8]) -> Result<Kept, NotKept> {
        self.keep_at(owner, result, SystemTime::now())
    }

    fn keep_at(&self, owner: &Owner, result: &[u8], now: SystemTime) -> Result<Kept, NotKept> {
        let handle = Handle::new()?;
        let length = result.len() as u64;
        let mut gone = Vec::new();
        let reserved = self.index().reserve(owner, length, &mut gone);
        for gone in gone {
            self.files.remove(&gone);
        }
        reserved?;
        let written = self.files.write(&handle, owner, now, result);
        self.index()
            .settle(owner, handle, length, written.is_ok().then_some(now));
        if written.is_err() {
            self.files.remove(&handle);
        }
        match &written {
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                warn!("results over their limit are not kept any more: {error}");
            }
            Ok(_) if self.failing.swap(false, Ordering::Relaxed) => info!("results over their limit are kept again"),
            _ => {}
        }
        Ok(Kept {
            handle,
            bytes: length,
            sha256: written?,
        })
    }

    /// Gives a result up that was just kept.
    pub fn remove(&self, owner: &Owner, kept: &Kept) {
        self.index().remove(owner, kept.handle);
        self.files.remove(&kept.handle);
    }

    /// Reads a piece of a result.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(&self, owner: &Owner, handle: &str, request: &Request) -> Result<Piece, NotRead> {
        self.read_at(owner, handle, request, SystemTime::now())
    }

    fn read_at(&self, owner: &Owner, handle: &str, request: &Request, now: SystemTime) -> Result<Piece, NotRead> {
        // What is no handle at all is looked for like one.
        let handle = Handle::read(handle).unwrap_or(Handle([0; 16]));
        let found = self.index().find(owner, handle, now);
        let found = found.ok_or(NotRead::Unknown)?;
        let opened = self.files.read(&handle, found.length, found.verified);
        // It may have made room for another just now.
        let opened = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NotRead::Unknown,
            _ => NotRead::Disk(error),
        })?;
        if !found.verified {
            self.index().verified(owner, handle);
        }
        request.answer(&opened)
    }

    /// Removes those whose time is over.
    fn expire(&self, now: SystemTime) {
        let gone = self.index().expire(now);
        for handle in gone {
            self.files.remove(&handle);
        }
    }

    /// Removes all that an owner has, who does not come again.
    pub fn forget(&self, owner: &Owner) {
        let gone = self.index().forget(owner);
        for handle in gone {
            self.files.remove(&handle);
        }
    }

    /// Removes them for as long as the daemon runs.
    pub async fn sweep(self: Arc<Results>) {
        loop {
            tokio::time::sleep(SWEPT_EVERY).await;
            let results = self.clone();
            // Files are removed: not on a thread that serves clients.
            let _ = tokio::task::spawn_blocking(move || results.expire(SystemTime::now())).await;
        }
    }
}

#[cfg(test)]
mod tests;
