//! Cosignatures (c2sp.org/tlog-cosignature, ed25519): a witness's word, at a time, that a
//! checkpoint continues all that it saw of that log.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, VerifyingKey};

use crate::merkle::Hash;
use crate::report::TrailCosignature;
use crate::signed_note::{Checkpoint, NoteError, Signer, Verifier, key_fields, key_id};

/// Signature type 0x04 of c2sp.org/signed-note: ed25519 cosignature.
const COSIGNATURE: u8 = 4;

/// The public key of a witness, with its name. Its text form is `name+id+base64(0x04 ‖ key)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessKey {
    name: String,
    id: u32,
    key: VerifyingKey,
}

impl std::fmt::Display for WitnessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut body = [COSIGNATURE; 33];
        body[1..].copy_from_slice(self.key.as_bytes());
        write!(f, "{}+{:08x}+{}", self.name, self.id, BASE64.encode(body))
    }
}

impl std::str::FromStr for WitnessKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let (name, id, key) = key_fields(text.trim(), COSIGNATURE)?;
        let key = VerifyingKey::from_bytes(&key)
            .map_err(|_| NoteError::Key("not a point on the curve"))?;
        if key_id(&name, COSIGNATURE, key.as_bytes()) != id {
            return Err(NoteError::Key("its id does not fit its key"));
        }
        Ok(Self { name, id, key })
    }
}

impl WitnessKey {
    /// The public key of a witness that signs with `signer`.
    pub(crate) fn of(signer: &Signer) -> Self {
        let (name, key) = (
            signer.verifier().name().to_owned(),
            *signer.verifier().key(),
        );
        let id = key_id(&name, COSIGNATURE, key.as_bytes());
        Self { name, id, key }
    }

    /// The name of the witness.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time at which this witness cosigned a checkpoint, seconds since 1970; `None` if it did
    /// not.
    fn cosigned_at(&self, checkpoint: &Checkpoint<'_>) -> Option<u64> {
        checkpoint.signatures_of(&self.name).find_map(|signature| {
            let bytes = BASE64.decode(signature).ok()?;
            let (id, rest) = bytes.split_first_chunk::<4>()?;
            let (time, signature) = rest.split_first_chunk::<8>()?;
            let time = u64::from_be_bytes(*time);
            let signature = Signature::from_slice(signature).ok()?;
            let text = signed_text(time, checkpoint.text);
            let is_good = u32::from_be_bytes(*id) == self.id
                && i64::try_from(time).is_ok()
                && self.key.verify_strict(text.as_bytes(), &signature).is_ok();
            is_good.then_some(time)
        })
    }
}

fn signed_text(time: u64, checkpoint: &str) -> String {
    format!("cosignature/v1\ntime {time}\n{checkpoint}")
}

/// The signature line of a witness under a checkpoint.
pub(crate) fn cosignature_line(
    signer: &Signer,
    checkpoint: &Checkpoint<'_>,
    now: SystemTime,
) -> String {
    let time = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let (key, text) = (
        WitnessKey::of(signer),
        signed_text(time.as_secs(), checkpoint.text),
    );
    let signature = signer.sign_bytes(&text);
    let bytes = [
        &key.id.to_be_bytes()[..],
        &time.as_secs().to_be_bytes(),
        &signature,
    ]
    .concat();
    format!("— {} {}\n", key.name, BASE64.encode(bytes))
}

/// A checkpoint of the trail that witnesses signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CosignedCheckpoint {
    /// The number of records.
    pub records: u64,
    /// The root over them.
    pub root: Hash,
    /// The witnesses that signed it, of those whose keys were given, and when (seconds since 1970).
    pub by: Vec<(String, u64)>,
}

impl CosignedCheckpoint {
    /// Reads a checkpoint that the trail's key signed, and finds the witnesses that signed it too.
    ///
    /// # Errors
    /// Where it is no checkpoint of that trail.
    pub fn open(note: &str, log: &Verifier, witnesses: &[WitnessKey]) -> Result<Self, NoteError> {
        let (records, root) = log.open(note)?;
        let checkpoint = Checkpoint::parse(note)?;
        let signed = |key: &WitnessKey| Some((key.name.clone(), key.cosigned_at(&checkpoint)?));
        Ok(Self {
            records,
            root,
            by: witnesses.iter().filter_map(signed).collect(),
        })
    }

    /// The signatures, as a report has them.
    pub(crate) fn signatures(&self) -> impl Iterator<Item = TrailCosignature> {
        self.by.iter().map(|(witness, time)| TrailCosignature {
            witness: witness.clone(),
            records: self.records,
            time: *time,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cosignature_is_of_its_witness_time_and_checkpoint() {
        let log = Signer::from_seed("example.org/log".into(), &[7; 32]);
        let witness = Signer::from_seed("example.org/witness".into(), &[8; 32]);
        let key = WitnessKey::of(&witness);
        assert_eq!(key.to_string().parse::<WitnessKey>().unwrap(), key);
        assert!(
            witness
                .verifier()
                .to_string()
                .parse::<WitnessKey>()
                .is_err()
        );
        assert!(key.to_string().parse::<Verifier>().is_err());
        let note = log.checkpoint(42, &[9; 32]);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_679_315_147);
        let line = cosignature_line(&witness, &Checkpoint::parse(&note).unwrap(), now);
        let cosigned = format!("{note}{line}");
        let open =
            |note: &str| CosignedCheckpoint::open(note, log.verifier(), std::slice::from_ref(&key));
        let found = open(&cosigned).unwrap();
        assert_eq!((found.records, found.root), (42, [9; 32]));
        assert_eq!(
            found.by,
            [("example.org/witness".to_owned(), 1_679_315_147)]
        );
        assert!(open(&note).unwrap().by.is_empty());
        // Another checkpoint, time, signature or name.
        let other = format!("{}{line}", log.checkpoint(43, &[9; 32]));
        assert!(open(&other).unwrap().by.is_empty());
        let at = note.len() + "— example.org/witness ".len();
        for index in at..cosigned.len() - 1 {
            let mut bytes = cosigned.clone().into_bytes();
            bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
            assert!(
                open(&String::from_utf8(bytes).unwrap())
                    .unwrap()
                    .by
                    .is_empty(),
                "{index}"
            );
        }
        assert!(
            open(&cosigned.replace("org/witness", "org/other"))
                .unwrap()
                .by
                .is_empty()
        );
    }
}
