//! The trail as a directory of tiles that any web server can serve (c2sp.org/tlog-tiles): the last
//! checkpoint, hashes, and on request the records.
//!
//! A tile is written once and never changed; the checkpoint is replaced after all that it covers is
//! on the disk. So readers never see half of anything, and what was killed goes on at the last
//! checkpoint.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use colibri_files::{FileLock, LockWait, replace_file, replace_file_unsynced};

use crate::error::ProofError;
use crate::file::open_regular;
use crate::merkle::{Frontier, Hash};
use crate::prove::entry_of;
use crate::signed_note::{NoteError, Verifier};
use crate::walk::walk_records;

/// Hashes of a full tile.
const WIDTH: usize = 256;

/// Longest record in a bundle of entries, bytes; of a longer one its hash stands there, which is 32
/// bytes long.
const MAX_ENTRY: usize = 65_535;

/// Longest checkpoint that is read, bytes.
const MAX_CHECKPOINT: u64 = 1 << 16;

/// Records after which the directory gets a checkpoint on the way to the last.
const PUBLISHED_EVERY: u64 = 1 << 16;

/// Records between two seals that are kept in memory. The daemon seals every 4,096.
const MAX_UNSEALED: usize = 1 << 20;

/// The reason for which tiles cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TilesError {
    /// The trail cannot be read, or is damaged.
    #[error(transparent)]
    Trail(#[from] ProofError),
    /// A file of the directory cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another run writes there.
    #[error("{}: another `trail tiles` writes there now; wait until it has ended", .0.display())]
    Busy(PathBuf),
    /// The checkpoint in the directory is of another log.
    #[error("{} is not of this trail ({error}): name another directory", .path.display())]
    OtherLog {
        /// The checkpoint's file.
        path: PathBuf,
        /// The reason.
        error: NoteError,
    },
    /// The directory has more records than the trail.
    #[error("{} has {there} records, and this trail has {here} sealed ones: it is older, or was cut", .dir.display())]
    Older {
        /// The directory.
        dir: PathBuf,
        /// Records of its checkpoint.
        there: u64,
        /// Sealed records of the trail.
        here: u64,
    },
    /// The directory's checkpoint is of another history.
    #[error(
        "{} has another history: its first {records} records are not those of this trail. One of the two was written \
         anew; keep both and run `colibri-mcp trail verify`", .dir.display()
    )]
    OtherHistory {
        /// The directory.
        dir: PathBuf,
        /// Records of its checkpoint.
        records: u64,
    },
    /// A file that the checkpoint covers is not there, or is another.
    #[error("{} is not what its checkpoint covers: the directory is half written or damaged; write a new one", .0.display())]
    Damaged(PathBuf),
    /// Entries are there and were not asked for, or the other way round.
    #[error("{} {}: go on as it was begun, or write a new one", .dir.display(), if *.there { "has entries, and --entries was not given" } else { "has hashes alone, and --entries was given" })]
    OtherContent {
        /// The directory.
        dir: PathBuf,
        /// True if it has entries.
        there: bool,
    },
    /// The seals of the trail are too far apart, or not signed by its key.
    #[error(
        "the trail is not sealed as it should be before record {0}; run `colibri-mcp trail verify`"
    )]
    BadSeal(u64),
    /// No seal yet.
    #[error(
        "the trail has no seal yet; one follows within 4,096 records and when the daemon stops"
    )]
    NoSeal,
}

/// The content of a directory of tiles after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TilesReport {
    /// Records before the run.
    pub before: u64,
    /// Records now.
    pub records: u64,
}

/// Writes the sealed records of the trail in `trail` as tiles to `dir`, or goes on there. With
/// `entries` the records themselves are written, which name people and tools; else hashes alone.
///
/// # Errors
/// Where the directory is of another log or history, half written, or has more records; where the
/// trail is damaged, or lacks records that the directory lacks too; where a file cannot be read or
/// written.
pub fn write_tiles(
    trail: &Path,
    dir: &Path,
    log: &Verifier,
    entries: bool,
) -> Result<TilesReport, TilesError> {
    let failed = |error| TilesError::File {
        path: dir.to_owned(),
        error,
    };
    fs::create_dir_all(dir).map_err(failed)?;
    let opened = File::open(dir).map_err(failed)?;
    let _lock = match FileLock::of(opened, LockWait::Never) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(TilesError::Busy(dir.to_owned()));
        }
        locked => locked.map_err(failed)?,
    };
    let mut tiles = TileDirectory::open(dir, log, entries)?;
    let before = tiles.size;
    let mut unsealed: Vec<(Hash, Vec<u8>)> = Vec::new();
    let mut last: Option<(u64, String)> = None;
    let mut sealed = 0;
    let mut agrees = before == 0;
    let walked = walk_records(trail, Some(before), |record| {
        let size = record.tree.size();
        if size == before && !agrees {
            if record.tree.root() != tiles.root() {
                return Err(TilesError::OtherHistory {
                    dir: dir.to_owned(),
                    records: before,
                });
            }
            agrees = true;
        }
        if record.checkpoint.is_some() {
            sealed = size;
        }
        if let Some(checkpoint) = record.checkpoint.filter(|_| size > before) {
            if log.open(&checkpoint).ok() != Some((size, record.tree.root())) {
                return Err(TilesError::BadSeal(size));
            }
            for (leaf, entry) in unsealed.drain(..) {
                tiles.push(leaf, entry)?;
            }
            if size >= tiles.published + PUBLISHED_EVERY {
                tiles.publish(&checkpoint)?;
            }
            last = Some((size, checkpoint));
        }
        if size >= before {
            if unsealed.len() == MAX_UNSEALED {
                return Err(TilesError::BadSeal(size));
            }
            let entry = if entries {
                entry_of(&record.line)
            } else {
                Vec::new()
            };
            unsealed.push((record.leaf, entry));
        }
        Ok(ControlFlow::Continue(()))
    });
    // What was whole until there is published all the same.
    if let Some((_, checkpoint)) = last.as_ref().filter(|(size, _)| *size > tiles.published) {
        tiles.publish(checkpoint)?;
    }
    walked?;
    if !agrees {
        return Err(TilesError::Older {
            dir: dir.to_owned(),
            there: before,
            here: sealed,
        });
    }
    if tiles.size == 0 {
        return Err(TilesError::NoSeal);
    }
    Ok(TilesReport {
        before,
        records: tiles.size,
    })
}

/// A directory of tiles, and its right edge: at each level the hashes behind the last full tile.
struct TileDirectory<'a> {
    dir: &'a Path,
    /// Records of the tiles.
    size: u64,
    /// Records of the checkpoint there.
    published: u64,
    levels: Vec<Vec<Hash>>,
    /// The records behind the last full bundle, if they are written at all.
    bundle: Option<Vec<u8>>,
    /// Files that are not known to be on the disk.
    unsynced: Vec<PathBuf>,
    /// Directories of partial tiles, which full ones replace at the next checkpoint.
    outdated: Vec<PathBuf>,
}

impl<'a> TileDirectory<'a> {
    fn open(dir: &'a Path, log: &Verifier, entries: bool) -> Result<Self, TilesError> {
        let mut tiles = Self {
            dir,
            size: 0,
            published: 0,
            levels: Vec::new(),
            bundle: entries.then(Vec::new),
            unsynced: Vec::new(),
            outdated: Vec::new(),
        };
        let path = dir.join("checkpoint");
        let Some(note) = tiles.read(&path, MAX_CHECKPOINT)? else {
            return Ok(tiles);
        };
        let text = String::from_utf8_lossy(&note);
        let opened = log.open(&text);
        let (size, root) = opened.map_err(|error| TilesError::OtherLog { path, error })?;
        (tiles.size, tiles.published) = (size, size);
        tiles.read_edge()?;
        if tiles.root() != root {
            return Err(TilesError::Damaged(tiles.path(
                "0",
                size >> 8,
                (size % 256) as usize,
            )));
        }
        Ok(tiles)
    }

    /// Reads the right edge of the tree from the tiles there.
    fn read_edge(&mut self) -> Result<(), TilesError> {
        let (mut level, mut count) = (0, self.size);
        while count > 0 {
            let width = (count % WIDTH as u64) as usize;
            let mut edge = Vec::new();
            if width > 0 {
                let path = self.path(&level.to_string(), count >> 8, width);
                let bytes = self.read(&path, 32 * WIDTH as u64)?.unwrap_or_default();
                let (hashes, rest) = bytes.as_chunks::<32>();
                if hashes.len() != width || !rest.is_empty() {
                    return Err(TilesError::Damaged(path));
                }
                edge.extend_from_slice(hashes);
            }
            self.levels.push(edge);
            level += 1;
            count >>= 8;
        }
        let there = self.dir.join("tile/entries").exists();
        if there != self.bundle.is_some() {
            let dir = self.dir.to_owned();
            return Err(TilesError::OtherContent { dir, there });
        }
        let width = (self.size % WIDTH as u64) as usize;
        if there && width > 0 {
            let path = self.path("entries", self.size >> 8, width);
            let bytes = self.read(&path, (WIDTH * (MAX_ENTRY + 2)) as u64)?;
            let bytes = bytes.ok_or_else(|| TilesError::Damaged(path.clone()))?;
            if !is_bundle(&bytes, self.levels.first().map_or(&[], Vec::as_slice)) {
                return Err(TilesError::Damaged(path));
            }
            self.bundle = Some(bytes);
        }
        Ok(())
    }

    /// The root of the tree of the tiles.
    fn root(&self) -> Hash {
        let mut peaks = Vec::new();
        for edge in self.levels.iter().rev() {
            peaks.extend_from_slice(frontier_of(edge).peaks());
        }
        Frontier::resume(self.size, &peaks).map_or([0; 32], |tree| tree.root())
    }

    /// Appends one record, and writes the tiles that it fills.
    fn push(&mut self, leaf: Hash, entry: Vec<u8>) -> Result<(), TilesError> {
        let mut count = self.size;
        self.size += 1;
        if let Some(bundle) = &mut self.bundle {
            match u16::try_from(entry.len()) {
                Ok(length) => {
                    bundle.extend_from_slice(&length.to_be_bytes());
                    bundle.extend_from_slice(&entry);
                }
                Err(_) => {
                    bundle.extend_from_slice(&32_u16.to_be_bytes());
                    bundle.extend_from_slice(&leaf);
                }
            }
            if self.size.is_multiple_of(WIDTH as u64) {
                let full = std::mem::take(bundle);
                self.write_tile("entries", count >> 8, WIDTH, &full)?;
            }
        }
        let mut hash = leaf;
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            let edge = &mut self.levels[level];
            edge.push(hash);
            if edge.len() < WIDTH {
                break;
            }
            let full = std::mem::take(edge);
            hash = frontier_of(&full).root();
            self.write_tile(&level.to_string(), count >> 8, WIDTH, full.as_flattened())?;
            count >>= 8;
        }
        Ok(())
    }

    /// Puts a checkpoint there, after the partial tiles that it needs and all others are on the
    /// disk.
    fn publish(&mut self, checkpoint: &str) -> Result<(), TilesError> {
        for level in 0..self.levels.len() {
            let edge = self.levels[level].clone();
            let count = self.size >> (8 * level);
            if !edge.is_empty() {
                self.write_tile(
                    &level.to_string(),
                    count >> 8,
                    edge.len(),
                    edge.as_flattened(),
                )?;
            }
        }
        let width = (self.size % WIDTH as u64) as usize;
        if let Some(bundle) = self.bundle.clone().filter(|_| width > 0) {
            self.write_tile("entries", self.size >> 8, width, &bundle)?;
        }
        let mut directories = BTreeSet::new();
        for path in std::mem::take(&mut self.unsynced) {
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(failed_at(&path))?;
            let above = path
                .ancestors()
                .skip(1)
                .take_while(|path| path.starts_with(self.dir));
            directories.extend(above.map(Path::to_owned));
        }
        for path in directories {
            let synced = File::open(&path).and_then(|directory| directory.sync_all());
            synced.map_err(failed_at(&path))?;
        }
        let path = self.dir.join("checkpoint");
        replace_file(&path, checkpoint.as_bytes(), 0o644).map_err(failed_at(&path))?;
        self.published = self.size;
        for partial in std::mem::take(&mut self.outdated) {
            match fs::remove_dir_all(&partial) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed_at(&partial)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a tile, unless it is there. Another one in its place is an error.
    fn write_tile(
        &mut self,
        kind: &str,
        index: u64,
        width: usize,
        bytes: &[u8],
    ) -> Result<(), TilesError> {
        let path = self.path(kind, index, width);
        match self.read(&path, bytes.len() as u64 + 1)? {
            Some(there) if there == bytes => return Ok(()),
            Some(_) => return Err(TilesError::Damaged(path)),
            None => {}
        }
        let parent = path.parent().unwrap_or(self.dir);
        fs::create_dir_all(parent).map_err(failed_at(parent))?;
        replace_file_unsynced(&path, bytes, 0o644).map_err(failed_at(&path))?;
        self.unsynced.push(path);
        if width == WIDTH {
            self.outdated
                .extend(self.path(kind, index, 1).parent().map(Path::to_owned));
        }
        Ok(())
    }

    /// A file of the directory; `None` where it is not there.
    fn read(&self, path: &Path, most: u64) -> Result<Option<Vec<u8>>, TilesError> {
        let mut bytes = Vec::new();
        match open_regular(path) {
            Ok(file) => file
                .take(most)
                .read_to_end(&mut bytes)
                .map_err(failed_at(path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed_at(path)(error)),
        };
        Ok(Some(bytes))
    }

    /// The file of a tile: `tile/KIND/x001/x234/067`, and `.p/WIDTH` behind it for a partial one.
    fn path(&self, kind: &str, index: u64, width: usize) -> PathBuf {
        let mut name = format!("{:03}", index % 1000);
        let mut rest = index / 1000;
        while rest > 0 {
            name = format!("x{:03}/{name}", rest % 1000);
            rest /= 1000;
        }
        if width < WIDTH {
            name.push_str(&format!(".p/{width}"));
        }
        self.dir.join("tile").join(kind).join(name)
    }
}

fn failed_at(path: &Path) -> impl FnOnce(io::Error) -> TilesError {
    let path = path.to_owned();
    move |error| TilesError::File { path, error }
}

fn frontier_of(hashes: &[Hash]) -> Frontier {
    let mut tree = Frontier::default();
    hashes.iter().for_each(|hash| tree.push(*hash));
    tree
}

/// True if a bundle has just the entries of these leaves.
fn is_bundle(mut bytes: &[u8], leaves: &[Hash]) -> bool {
    for leaf in leaves {
        let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
            return false;
        };
        let Some((entry, rest)) = rest.split_at_checked(u16::from_be_bytes(*length).into()) else {
            return false;
        };
        if entry != leaf && crate::merkle::leaf_hash(entry) != *leaf {
            return false;
        }
        bytes = rest;
    }
    bytes.is_empty()
}
