//! Hosts that witness each other's trails: one requests, another answers, over a board that neither
//! of them trusts.
//!
//! A request is a proof of growth, signed as a whole by the host whose trail it is. The board can
//! hold requests back, replay and change them, and cannot make one. So a signed request that
//! contradicts what the witness signed is that host's own word that its trail was cut off or
//! rewritten.

use std::fs::{self, DirBuilder};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use colibri_files::replace_file;

use crate::cosign::{CosignError, cosign, stored_checkpoint};
use crate::cosignature::{CosignedCheckpoint, WitnessKey};
use crate::error::ProofError;
use crate::file::{directory, key_path, open_regular, verifier_path};
use crate::merkle::Hash;
use crate::prove::{GrowthProof, prove_growth};
use crate::report::WitnessedHost;
use crate::signed_note::{NoteError, Signer, Verifier};

/// The first line of what the signature of a request is over.
const PURPOSE: &str = "colibri-mcp witness request\n";
/// Longest request, checkpoint or key that is read, bytes.
const MAX_TEXT: u64 = 1 << 16;
/// The most hosts whose keys are pinned: a board could make up any number.
const MAX_HOSTS: usize = 256;

/// The reason for which a host is not witnessed, or a cosignature does not count.
#[derive(Debug, thiserror::Error)]
pub enum HostWitnessError {
    /// A file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The witness does not sign.
    #[error(transparent)]
    Cosign(#[from] CosignError),
    /// Not a request, or none can be made.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// A key or a checkpoint is no good.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The name could not be that of a host.
    #[error("{0:?} is no name of a host")]
    Name(String),
    /// Too many hosts.
    #[error("{} has the keys of {MAX_HOSTS} hosts: remove those of hosts that are gone", .0.display())]
    Crowded(PathBuf),
    /// The key of the host is another than the one that was seen first.
    #[error(
        "the host {host} has another key than the one in {}: somebody else has its name, or it began a new trail; in that \
         case remove this file", .pinned.display()
    )]
    OtherKey {
        /// The host.
        host: String,
        /// The file with the key that was seen first.
        pinned: PathBuf,
    },
    /// The key of the host is another than the operator says.
    #[error(
        "the host {0} has another key on the board than in hosts.json: somebody else has its name, or the file is old"
    )]
    NotCounted(String),
    /// Somebody else made or changed it.
    #[error(
        "the {what} of the host {host} on the board is not signed by its key: somebody else made or changed it"
    )]
    Unsigned {
        /// What should be signed.
        what: &'static str,
        /// The host.
        host: String,
    },
    /// The host has signed what contradicts.
    #[error(
        "the trail of the host {host} was cut off or rewritten below the {signed} records that this host signed: compare \
         a copy of it (trail verify --cosigned), and keep {} as evidence", .evidence.display()
    )]
    Rewritten {
        /// The host.
        host: String,
        /// Records of the last checkpoint signed.
        signed: u64,
        /// The request that contradicts it.
        evidence: PathBuf,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> HostWitnessError {
    let path = path.to_owned();
    move |error| HostWitnessError::File { path, error }
}

/// The text of a file; `None` where there is none.
fn read(path: &Path) -> Result<Option<String>, HostWitnessError> {
    let mut text = String::new();
    let done = open_regular(path).and_then(|file| file.take(MAX_TEXT).read_to_string(&mut text));
    match done {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

/// The directory, in a state directory, of this host as a witness of others.
#[must_use]
pub fn witness_directory(state_dir: &Path) -> PathBuf {
    state_dir.join("witness")
}

/// The directory, in a state directory, of this host's checkpoints that others cosigned.
pub(crate) fn cosigned_directory(state_dir: &Path) -> PathBuf {
    state_dir.join("cosigned")
}

/// The files with checkpoints of the trail in a state directory that other hosts cosigned.
///
/// # Errors
/// Where their directory cannot be read.
pub fn cosigned_by_hosts(state_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let files = match fs::read_dir(cosigned_directory(state_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?,
    };
    let paths: io::Result<Vec<PathBuf>> = files.map(|file| Ok(file?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|ending| ending == "checkpoint")
    });
    Ok(paths)
}

/// Pins the key of a host in `dir`: the first that is seen is the only one that counts.
fn pin(dir: &Path, host: &str, ending: &str, key: &str) -> Result<(), HostWitnessError> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if host.len() > 64
        || !host.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !host.chars().all(is_name)
    {
        return Err(HostWitnessError::Name(host.to_owned()));
    }
    let pinned = dir.join(format!("{host}.{ending}"));
    match read(&pinned)? {
        Some(text) if text.trim() == key.trim() => return Ok(()),
        Some(_) => {
            let host = host.to_owned();
            return Err(HostWitnessError::OtherKey { host, pinned });
        }
        None => {}
    }
    let made = DirBuilder::new().mode(0o700).recursive(true).create(dir);
    made.map_err(at(dir))?;
    let there = fs::read_dir(dir).map_err(at(dir))?.flatten();
    if there
        .filter(|file| file.path().extension().is_some_and(|end| end == ending))
        .count()
        >= MAX_HOSTS
    {
        return Err(HostWitnessError::Crowded(dir.to_owned()));
    }
    replace_file(&pinned, format!("{}\n", key.trim()).as_bytes(), 0o644).map_err(at(&pinned))
}

/// The request to a witness that signed `known` last: that it signs the last sealed tree of the
/// trail in `state_dir`. `None`: it has signed that. A trail that is shorter than `known` is
/// requested all the same: the witness is to know.
///
/// # Errors
/// [`ProofError::NotSealed`] where nothing is sealed; where records behind `known` were dropped, or
/// the trail or its key cannot be read.
pub fn request_cosignature(
    state_dir: &Path,
    known: Option<(u64, Hash)>,
) -> Result<Option<String>, ProofError> {
    let dir = directory(state_dir);
    let old = known.map_or(0, |(records, _)| records);
    let proof = match prove_growth(&dir, old) {
        Err(ProofError::NotSealed(_)) if old > 0 => GrowthProof {
            old,
            ..prove_growth(&dir, 0)?
        },
        proof => proof?,
    };
    let signer = Signer::load(&key_path(state_dir))?;
    if known == Some(signer.verifier().open(&proof.checkpoint)?) {
        return Ok(None);
    }
    let proof = proof.to_string();
    let signature = signer.sign(&format!("{PURPOSE}{proof}"));
    Ok(Some(format!("{signature}\n{proof}")))
}

/// Reads a request that `log` signed.
fn open_request(
    log: &Verifier,
    host: &str,
    request: &str,
) -> Result<GrowthProof, HostWitnessError> {
    let proof = request.split_once('\n').filter(|(signature, proof)| {
        request.len() as u64 <= MAX_TEXT && log.verify(&format!("{PURPOSE}{proof}"), signature)
    });
    let Some((_, proof)) = proof else {
        let host = host.to_owned();
        return Err(HostWitnessError::Unsigned {
            what: "request",
            host,
        });
    };
    Ok(proof.parse()?)
}

/// True if a request contradicts a checkpoint of the same trail, and knows of it.
fn contradicts(
    log: &Verifier,
    request: &GrowthProof,
    note: &str,
) -> Result<bool, HostWitnessError> {
    let ((signed, signed_root), (size, root)) = (log.open(note)?, log.open(&request.checkpoint)?);
    Ok(request.old == signed && (size < signed || !request.holds(&signed_root, size, &root)))
}

/// Answers, as the witness in `dir`, the request of a host whose trail's key is `key`, with the
/// last checkpoint of that trail that this witness signed: the requested one, where it continues
/// the one before. The answer is empty where this witness signed none, and the request is not for
/// its first.
///
/// # Errors
/// [`HostWitnessError::Rewritten`], of which the evidence is stored; where the request is not that
/// host's, or a file cannot be read or written. Then nothing is signed.
pub fn answer_request(
    dir: &Path,
    (host, key): (&str, &str),
    request: &str,
    now: SystemTime,
) -> Result<String, HostWitnessError> {
    let log: Verifier = key.parse()?;
    pin(dir, host, "host", key)?;
    let proof = open_request(&log, host, request)?;
    let refusal = match cosign(dir, &log, &proof.to_string(), now) {
        Ok(cosigned) => return Ok(cosigned),
        Err(refusal) => refusal,
    };
    let (CosignError::Older { signed, .. }
    | CosignError::OldSize { signed }
    | CosignError::Inconsistent { signed, .. }) = refusal
    else {
        return Err(refusal.into());
    };
    let Some(note) = read(&stored_checkpoint(dir, &log))? else {
        return Ok(String::new());
    };
    if !contradicts(&log, &proof, &note)? {
        return Ok(note);
    }
    let (evidence, kept) = evidence(dir, host);
    replace_file(&kept, note.as_bytes(), 0o600).map_err(at(&kept))?;
    replace_file(&evidence, request.as_bytes(), 0o600).map_err(at(&evidence))?;
    let host = host.to_owned();
    Err(HostWitnessError::Rewritten {
        host,
        signed,
        evidence,
    })
}

/// The files with the request of a host that contradicts a checkpoint, and with that checkpoint.
fn evidence(dir: &Path, host: &str) -> (PathBuf, PathBuf) {
    (
        dir.join(format!("{host}.rewritten")),
        dir.join(format!("{host}.signed")),
    )
}

/// Stores a checkpoint of the trail in `state_dir` that another host cosigned with `key`, unless
/// one of more records is there. Returns its records and root.
///
/// # Errors
/// Where it is no checkpoint of this trail, or not signed by that host; where a file cannot be read
/// or written.
pub fn store_cosignature(
    state_dir: &Path,
    (host, key): (&str, &str),
    note: &str,
) -> Result<(u64, Hash), HostWitnessError> {
    let dir = cosigned_directory(state_dir);
    let public = verifier_path(state_dir);
    let log: Verifier = read(&public)?.unwrap_or_default().parse()?;
    let witness: WitnessKey = key.parse()?;
    pin(&dir, host, "pub", key)?;
    let opened = CosignedCheckpoint::open(note, &log, &[witness])?;
    if opened.by.is_empty() || note.len() as u64 > MAX_TEXT {
        let host = host.to_owned();
        return Err(HostWitnessError::Unsigned {
            what: "cosignature",
            host,
        });
    }
    let path = dir.join(format!("{host}.checkpoint"));
    let before = read(&path)?.and_then(|before| log.open(&before).ok());
    if before.is_none_or(|(records, _)| records < opened.records) {
        replace_file(&path, note.as_bytes(), 0o600).map_err(at(&path))?;
    }
    Ok((opened.records, opened.root))
}

/// The hosts that the witness in `dir` has signed for or has evidence against, by name.
///
/// # Errors
/// Where a file cannot be read, or is not what a witness stores.
pub fn witnessed_hosts(dir: &Path) -> Result<Vec<WitnessedHost>, HostWitnessError> {
    let files = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files.map_err(at(dir))?,
    };
    let own = read(&dir.join("witness.pub"))?;
    let own: Vec<WitnessKey> = own
        .map(|key| key.parse())
        .transpose()?
        .into_iter()
        .collect();
    let mut found = Vec::new();
    for file in files {
        let path = file.map_err(at(dir))?.path();
        let Some(host) = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".host"))
        else {
            continue;
        };
        let log: Verifier = read(&path)?.unwrap_or_default().parse()?;
        let Some(note) = read(&stored_checkpoint(dir, &log))? else {
            continue;
        };
        let signed = CosignedCheckpoint::open(&note, &log, &own)?;
        let (evidence, kept) = evidence(dir, host);
        let rewritten = match (read(&evidence)?, read(&kept)?) {
            (Some(request), Some(kept))
                if contradicts(&log, &open_request(&log, host, &request)?, &kept)? =>
            {
                Some(evidence)
            }
            _ => None,
        };
        found.push(WitnessedHost {
            host: host.to_owned(),
            records: signed.records,
            time: signed.by.first().map_or(0, |(_, time)| *time),
            rewritten,
        });
    }
    found.sort_by(|one, other| one.host.cmp(&other.host));
    Ok(found)
}
