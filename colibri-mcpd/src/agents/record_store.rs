//! The events of instances on disk: a file each, one event a line, and beside it what became of the
//! instance.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use colibri_api::AgentInstance;
use colibri_files::{LineRead, read_line, replace_file};
use tracing::warn;

use colibri_trail::reserve::{Reserve, Use};

/// The most bytes of one instance's events.
const MAX_FILE: u64 = 64 << 20;
/// The most bytes of all.
const MAX_ALL: u64 = 512 << 20;
/// For how long they are kept.
const MAX_AGE: Duration = Duration::from_secs(30 * 86_400);
/// The most files of all: two for each instance.
const MAX_FILES: usize = 4096;
/// The number of bytes read at once, beyond one line.
const CHUNK: usize = 256 * 1024;

/// The directory of all that is kept.
#[derive(Debug)]
pub(super) struct AgentRecordStore {
    directory: PathBuf,
    reserve: Reserve,
}

impl AgentRecordStore {
    /// Makes it, below the daemon's state.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(state_dir: &Path) -> io::Result<AgentRecordStore> {
        let directory = state_dir.join("agents");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        let reserve = Reserve::of(state_dir);
        Ok(AgentRecordStore { directory, reserve })
    }

    /// The path of an instance's event file.
    pub(super) fn events(&self, session: &str) -> PathBuf {
        self.directory.join(format!("{session}.jsonl"))
    }

    fn facts(&self, session: &str) -> PathBuf {
        self.directory.join(format!("{session}.json"))
    }

    /// Makes the file of an instance's events, which must not be there.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn writer(&self, session: &str) -> io::Result<EventFileWriter> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        Ok(EventFileWriter {
            file: Some(file.open(self.events(session))?),
            session: session.to_owned(),
            length: 0,
            directory: self.directory.clone(),
            reserve: self.reserve.clone(),
        })
    }

    /// Writes what there is to say of an instance.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn note(&self, instance: &AgentInstance) -> io::Result<()> {
        let facts = serde_json::to_vec(instance)?;
        replace_file(&self.facts(&instance.id), &facts, 0o600)
    }

    /// The last notes of the instances of earlier daemons, the oldest first.
    pub(super) fn recall(&self) -> Vec<AgentInstance> {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return Vec::new();
        };
        let facts = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            (path.extension()? == "json").then_some(path)
        });
        let mut recalled: Vec<AgentInstance> = facts
            .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
            .collect();
        recalled.sort_by_key(|instance| instance.started_at);
        recalled
    }

    /// Deletes what there is of an instance that has not come to run.
    pub(super) fn forget(&self, session: &str) {
        for path in [self.events(session), self.facts(session)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!(
                        "cannot delete a record of agents: {}: {error}",
                        path.display()
                    );
                }
                _ => {}
            }
        }
    }

    /// Deletes what is too old, and the oldest of what is too much, or has what is reserved for the
    /// trail. `spared` says which instances run.
    pub(super) fn tidy(&self, spared: impl Fn(&str) -> bool) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let facts = entry.metadata().ok()?;
                Some((facts.modified().ok()?, facts.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut all: u64 = files.iter().map(|(_, length, _)| length).sum();
        let mut count = files.len();
        let mut missing = self.reserve.missing(&self.directory, 0, Use::Stored);
        let now = SystemTime::now();
        for (modified, length, path) in files {
            let old = now.duration_since(modified).is_ok_and(|age| age > MAX_AGE);
            let session = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
            if !(old || all > MAX_ALL || count > MAX_FILES || missing > 0) || spared(session) {
                continue;
            }
            (all, count) = (all - length, count - 1);
            missing = missing.saturating_sub(length);
            if let Err(error) = fs::remove_file(&path) {
                warn!(
                    "cannot delete a record of agents: {}: {error}",
                    path.display()
                );
            }
        }
    }
}

/// The file of one instance's events, as it is written.
#[derive(Debug)]
pub(super) struct EventFileWriter {
    file: Option<File>,
    session: String,
    length: u64,
    directory: PathBuf,
    reserve: Reserve,
}

impl EventFileWriter {
    /// Appends lines. Returns false if they were not stored: the file would be longer than
    /// [`MAX_FILE`], or what is left on the disk is reserved for the trail. Nothing is stored after
    /// that.
    pub(super) fn add(&mut self, lines: &[u8]) -> bool {
        let more = lines.len() as u64;
        let length = self.length + more;
        let Some(file) = self.file.as_mut() else {
            return false;
        };
        let written = match self.reserve.missing(&self.directory, more, Use::Stored) {
            _ if length > MAX_FILE => Err(io::Error::other(format!(
                "there are {} MiB of them",
                MAX_FILE >> 20
            ))),
            0 => file.write_all(lines),
            _ => Err(io::Error::other(
                "what is left on the disk is reserved for the trail",
            )),
        };
        if let Err(error) = written {
            warn!(
                session = self.session,
                "the events of this instance are not stored any more, and it goes on: {error}"
            );
            self.file = None;
            return false;
        }
        self.length = length;
        true
    }
}

/// The file of one instance's events, as it is read.
#[derive(Debug)]
pub struct EventReader {
    file: File,
    /// The offset of the next line.
    at: u64,
}

impl EventReader {
    /// Opens it.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(path: &Path) -> io::Result<EventReader> {
        Ok(EventReader {
            file: File::open(path)?,
            at: 0,
        })
    }

    /// The next whole lines, without their ends; none: there are no more now.
    ///
    /// # Errors
    /// What the system says.
    pub fn more(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut from = BufReader::with_capacity(CHUNK, &self.file).take(MAX_FILE);
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK {
            let mut line = Vec::new();
            match read_line(&mut from, MAX_FILE as usize, &mut line)? {
                LineRead::Line => {
                    bytes += line.len() + 1;
                    lines.push(line);
                }
                // The end of the last line is not written yet.
                LineRead::Unterminated | LineRead::TooLong { .. } | LineRead::End => break,
            }
        }
        self.at += bytes as u64;
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_files_are_too_much_as_well_and_those_of_one_that_runs_stay() {
        let state = tempfile::tempdir().unwrap();
        let shelf = AgentRecordStore::open(state.path()).unwrap();
        let begin = SystemTime::now() - Duration::from_secs(86_400);
        for n in 0..MAX_FILES + 20 {
            let file = File::create(shelf.events(&format!("{n:016x}"))).unwrap();
            file.set_modified(begin + Duration::from_secs(n as u64))
                .unwrap();
        }
        let running = format!("{:016x}", 3);
        shelf.tidy(|session| session == running);
        let is_there = |n: usize| shelf.events(&format!("{n:016x}")).exists();
        assert_eq!(fs::read_dir(&shelf.directory).unwrap().count(), MAX_FILES);
        assert!(is_there(3) && !is_there(0) && !is_there(20) && is_there(21));
    }
}
