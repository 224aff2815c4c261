//! Hosts that witness each other's trails over the board: requests and cosigned checkpoints are its
//! rows. What they are worth is checked by `colibri_trail`; the board itself is trusted with
//! nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use colibri_trail::{
    HostWitnessError, ProofError, answer_request, request_cosignature, store_cosignature,
    witness_directory,
};
use tracing::warn;

use super::Fleet;
use super::statements::TransactionState;
use crate::error::StoreError;

/// The interval of looks at what others request and have signed.
const EVERY: Duration = Duration::from_secs(5);
/// The most hosts that are looked at, and the most bytes of a text of theirs: the board's role may
/// write what it likes.
const LOOK: &str = "SELECT name, key,
        (SELECT left(request, 65537) FROM witness_requests WHERE host = name AND witness = ?1),
        (SELECT left(note, 65537) FROM cosignatures WHERE host = name AND witness = ?1),
        (SELECT left(request, 65537) FROM witness_requests WHERE host = ?1 AND witness = name),
        (SELECT left(cosignatures.key, 1024) FROM cosignatures WHERE host = ?1 AND witness = name),
        (SELECT left(note, 65537) FROM cosignatures WHERE host = ?1 AND witness = name)
    FROM hosts WHERE name <> ?1 AND length(name) <= 64 AND length(hosts.key) <= 1024 ORDER BY enrolled_at, name LIMIT 64";

/// Another host's row, and what it and this host have requested and signed.
struct HostRow {
    name: String,
    key: String,
    /// Its request to this host, and the last answer to it.
    request: Option<String>,
    answer: Option<String>,
    /// This host's request to it, the key with which it signs, and its last answer.
    own_request: Option<String>,
    signer: Option<String>,
    signed: Option<String>,
}

/// What was done at the last look, so that nothing is done twice.
#[derive(Default)]
struct HostNotes {
    /// The request that was answered last, and the answer; `None`: it is evidence against the host.
    answered: Option<(String, Option<String>)>,
    /// The number of sealed records, the answer, and the request that was made of them.
    requested: Option<(u64, Option<String>, Option<String>)>,
    /// The last fault that was said.
    said: String,
}

/// This host as a witness of others, and its trail as one that others witness.
struct HostWitness<F> {
    state_dir: PathBuf,
    /// The number of records of this host's trail up to the last seal, if that is on the disk.
    sealed: F,
    notes: HashMap<String, HostNotes>,
}

impl Fleet {
    /// From now on this host, whose trail is in `state_dir`, and the others witness each other.
    /// `sealed` is the number of records of its trail up to the last seal, if that is on the disk.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn witness_each_other(
        self: &Arc<Self>,
        state_dir: &Path,
        sealed: impl Fn() -> Option<u64> + Send + 'static,
    ) -> std::io::Result<()> {
        let mut witness = HostWitness {
            state_dir: state_dir.to_owned(),
            sealed,
            notes: HashMap::new(),
        };
        let fleet = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("colibri-witness".to_owned());
        thread.spawn(move || {
            while let Some(fleet) = Weak::upgrade(&fleet) {
                if fleet.away().is_none()
                    && let Err(error) = witness.look(&fleet)
                {
                    warn!("the hosts' checkpoints on the board are not looked at: {error}");
                }
                drop(fleet);
                std::thread::sleep(EVERY);
            }
        })?;
        Ok(())
    }
}

impl<F: Fn() -> Option<u64>> HostWitness<F> {
    /// Answers the others' requests, stores what they have signed, and requests what they are to
    /// sign.
    fn look(&mut self, fleet: &Fleet) -> Result<(), StoreError> {
        let own = fleet.state.host.name.clone();
        let rows = fleet.run(TransactionState::None, true, |statements| {
            statements.all(LOOK, &[own.clone().into()], |row| {
                Ok(HostRow {
                    name: row.get(0)?,
                    key: row.get(1)?,
                    request: row.get(2)?,
                    answer: row.get(3)?,
                    own_request: row.get(4)?,
                    signer: row.get(5)?,
                    signed: row.get(6)?,
                })
            })
        })?;
        for row in rows {
            let name = row.name.clone();
            let mut notes = self.notes.remove(&name).unwrap_or_default();
            let answer = match fleet.state.counts_key(&row.name, &row.key) {
                true => self.answer(&row, &mut notes),
                false => Err(HostWitnessError::NotCounted(row.name.clone())),
            };
            let request = self.request(&row, &mut notes);
            let fault = [answer.as_ref().err(), request.as_ref().err()];
            let fault: Vec<String> = fault
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect();
            let fault = fault.join("; ");
            if fault != notes.said && !fault.is_empty() {
                warn!(host = name, "{fault}");
            }
            notes.said = fault;
            self.notes.insert(name.clone(), notes);
            if let Ok(Some(answer)) = answer {
                let key =
                    std::fs::read_to_string(witness_directory(&self.state_dir).join("witness.pub"));
                let values = [name.clone(), own.clone(), key.unwrap_or_default(), answer];
                fleet.put(
                    "INSERT INTO cosignatures (host, witness, key, note) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (host, witness) DO UPDATE SET key = EXCLUDED.key, note = EXCLUDED.note",
                    values.map(Into::into).as_slice(),
                )?;
            }
            if let Ok(Some(request)) = request {
                let values = [own.clone(), name, request];
                fleet.put(
                    "INSERT INTO witness_requests (host, witness, request) VALUES (?1, ?2, ?3)
                     ON CONFLICT (host, witness) DO UPDATE SET request = EXCLUDED.request",
                    values.map(Into::into).as_slice(),
                )?;
            }
        }
        Ok(())
    }

    /// The answer to a host's request, if the board does not have it.
    fn answer(
        &self,
        row: &HostRow,
        notes: &mut HostNotes,
    ) -> Result<Option<String>, HostWitnessError> {
        let Some(request) = &row.request else {
            return Ok(None);
        };
        let answer = match &notes.answered {
            Some((answered, answer)) if answered == request => answer.clone(),
            _ => {
                let dir = witness_directory(&self.state_dir);
                let answer =
                    answer_request(&dir, (&row.name, &row.key), request, SystemTime::now());
                if let Ok(_) | Err(HostWitnessError::Rewritten { .. }) = &answer {
                    notes.answered = Some((request.clone(), answer.as_ref().ok().cloned()));
                }
                Some(answer?)
            }
        };
        Ok(answer.filter(|answer| row.answer.as_ref() != Some(answer)))
    }

    /// The request to a host, if there is something for it to sign that is not requested on the
    /// board.
    fn request(
        &self,
        row: &HostRow,
        notes: &mut HostNotes,
    ) -> Result<Option<String>, HostWitnessError> {
        let Some(sealed) = (self.sealed)() else {
            return Ok(None);
        };
        let is_same = |(then, signed, _): &&(u64, Option<String>, Option<String>)| {
            *then == sealed && *signed == row.signed
        };
        let request = match notes.requested.as_ref().filter(is_same) {
            Some((.., request)) => request.clone(),
            None => {
                let known = match (&row.signer, &row.signed) {
                    (Some(signer), Some(note)) if !note.is_empty() => {
                        store_cosignature(&self.state_dir, (&row.name, signer), note).map(Some)
                    }
                    _ => Ok(None),
                };
                let request = match request_cosignature(
                    &self.state_dir,
                    known.as_ref().ok().copied().flatten(),
                ) {
                    Err(ProofError::NotSealed(_)) => None,
                    request => request?,
                };
                notes.requested = Some((sealed, row.signed.clone(), request.clone()));
                // What is no answer of that host is said, and requested again.
                known?;
                request
            }
        };
        Ok(request.filter(|request| row.own_request.as_ref() != Some(request)))
    }
}
