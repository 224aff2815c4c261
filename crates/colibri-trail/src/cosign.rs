//! A witness of other installations' trails, in a directory of its own: it cosigns a checkpoint
//! that continues the last one that it cosigned, and no other (c2sp.org/tlog-witness, without its
//! HTTP).

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use colibri_files::{FileLock, LockWait, replace_file};
use colibri_text::hex;
use sha2::{Digest as _, Sha256};

use crate::cosignature::{WitnessKey, cosignature_line};
use crate::error::ProofError;
use crate::file::open_regular;
use crate::merkle::Frontier;
use crate::prove::GrowthProof;
use crate::signed_note::{Checkpoint, NoteError, Signer, Verifier};

/// Longest stored checkpoint, bytes.
const MAX_CHECKPOINT: u64 = 1 << 16;

/// The reason for which a witness does not sign.
#[derive(Debug, thiserror::Error)]
pub enum CosignError {
    /// Its directory cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Not a request, or not of that trail.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// The key or the stored checkpoint is no good.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The checkpoint has fewer records than one that was signed.
    #[error(
        "refused: the checkpoint has {offered} records, and this witness signed {signed} of that trail already"
    )]
    Older {
        /// Records of the last checkpoint signed.
        signed: u64,
        /// Records of the one that is offered.
        offered: u64,
    },
    /// The request begins at another checkpoint than the last one signed.
    #[error(
        "this witness signed {signed} records of that trail last: make the request with --old {signed}"
    )]
    OldSize {
        /// Records of the last checkpoint signed.
        signed: u64,
    },
    /// The checkpoint does not continue the last one signed.
    #[error(
        "refused: the checkpoint does not continue the {signed} records that this witness signed; the trail was written \
         anew. Keep the request and {} as evidence", .stored.display()
    )]
    Inconsistent {
        /// Records of the last checkpoint signed.
        signed: u64,
        /// The file that has it.
        stored: PathBuf,
    },
}

/// The file with the last checkpoint of a trail that the witness in `dir` signed.
pub(crate) fn stored_checkpoint(dir: &Path, log: &Verifier) -> PathBuf {
    dir.join(format!(
        "{}.checkpoint",
        &hex(&Sha256::digest(log.name()))[..16]
    ))
}

/// Cosigns the checkpoint of a request (the text of a [`GrowthProof`]) for the trail whose key is
/// `log`. The witness's directory, made if there is none, has its key and the last checkpoint of
/// each trail. Returns the cosigned one.
///
/// # Errors
/// Where the checkpoint is older, does not continue the last one, or is not signed by `log`; where
/// the directory cannot be written. Then nothing is signed.
pub fn cosign(
    dir: &Path,
    log: &Verifier,
    request: &str,
    now: SystemTime,
) -> Result<String, CosignError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| CosignError::File { path, error }
    };
    let made = DirBuilder::new().mode(0o700).recursive(true).create(dir);
    made.map_err(failed(dir))?;
    // Two at once could sign one after the other what contradicts.
    let opened = File::open(dir).map_err(failed(dir))?;
    let _lock = FileLock::of(opened, LockWait::Forever).map_err(failed(dir))?;
    let signer = Signer::load_or_create(&dir.join("witness.key"), "witness")?;
    let public = dir.join("witness.pub");
    let key = format!("{}\n", WitnessKey::of(&signer));
    if fs::read_to_string(&public).ok().as_deref() != Some(&key) {
        replace_file(&public, key.as_bytes(), 0o644).map_err(failed(&public))?;
    }
    let proof: GrowthProof = request.parse()?;
    let (size, root) = log.open(&proof.checkpoint)?;
    let checkpoint = Checkpoint::parse(&proof.checkpoint)?;
    checkpoint.check_signatures()?;
    let stored = stored_checkpoint(dir, log);
    let (signed, signed_root) = match open_regular(&stored) {
        Ok(file) => {
            let mut text = String::new();
            let read = file.take(MAX_CHECKPOINT).read_to_string(&mut text);
            read.map_err(failed(&stored))?;
            log.open(&text)?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (0, Frontier::default().root()),
        Err(error) => return Err(failed(&stored)(error)),
    };
    if size < signed {
        return Err(CosignError::Older {
            signed,
            offered: size,
        });
    }
    if proof.old != signed {
        return Err(CosignError::OldSize { signed });
    }
    if !proof.holds(&signed_root, size, &root) {
        return Err(CosignError::Inconsistent { signed, stored });
    }
    let signatures = checkpoint.signatures_of(log.name());
    let good = signatures.filter(|own| log.verify(checkpoint.text, own));
    let own: String = good
        .map(|own| format!("— {} {own}\n", log.name()))
        .collect();
    let line = cosignature_line(&signer, &checkpoint, now);
    let cosigned = format!("{}\n{own}{line}", checkpoint.text);
    replace_file(&stored, cosigned.as_bytes(), 0o600).map_err(failed(&stored))?;
    Ok(cosigned)
}
