//! `requestState` towards clients, which is always ours: what a retry is about, sealed so that
//! nobody else can say it.
//!
//! A retry is taken only from the user whose call it continues, for the same server, method, name
//! and arguments, and in time (2026-07-28, basic/patterns/mrtr, "Server Requirements"). What a
//! server wants to be told again stands inside, and goes to that server alone. Where the daemon
//! itself waits for the retry, what stands inside is a ticket, which is good for one retry.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use tracing::warn;
use zeroize::Zeroizing;

use super::pending_work::TICKET;
use colibri_files::replace_file;
use colibri_policy::{canonical, file};
use colibri_protocol::RpcError;
use colibri_wire::Json;

/// The time in which a retry must come for which no call is suspended.
pub(crate) const TTL: Duration = Duration::from_secs(3600);

/// The bytes of the key: a block of SHA-256, which HMAC takes as it is.
const KEY: usize = 64;
/// The bytes of an HMAC-SHA-256.
const MAC: usize = 32;
/// The bytes before the server's id: format, kind, uid, expiry, record, digest, length of the id.
const HEAD: usize = 1 + 1 + 4 + 8 + 8 + 32 + 1;
/// The first byte: the format of the rest.
const FORMAT: u8 = 1;

/// The purpose of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPurpose {
    /// The server's own state, as JSON, or nothing: the server starts again with it.
    Server,
    /// A ticket: a call that is held goes on.
    Held,
    /// A ticket: the call may be made, if the person says so.
    Confirm,
    /// A ticket, then what [`RetryPurpose::Server`] says: a person allowed the call, once.
    Confirmed,
    /// Nothing: the call is made again.
    Again,
}

impl RetryPurpose {
    const ALL: [RetryPurpose; 5] = [
        RetryPurpose::Server,
        RetryPurpose::Held,
        RetryPurpose::Confirm,
        RetryPurpose::Again,
        RetryPurpose::Confirmed,
    ];

    fn number(self) -> u8 {
        match self {
            RetryPurpose::Server => 1,
            RetryPurpose::Held => 2,
            RetryPurpose::Confirm => 3,
            RetryPurpose::Again => 4,
            RetryPurpose::Confirmed => 5,
        }
    }
}

/// The facts of a call that must be the same in its retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBinding<'a> {
    /// The user of the call.
    pub uid: u32,
    /// The server that answers it.
    pub server: &'a str,
    /// [`digest`] of what is called.
    pub digest: [u8; 32],
}

/// The content of a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumedCall {
    /// Its purpose.
    pub kind: RetryPurpose,
    /// The number of the record of the call that it continues.
    pub record: u64,
    /// The content of its kind.
    pub inner: Vec<u8>,
    /// `inputResponses` as JSON, where they do not stand in the request itself.
    pub responses: Option<Box<str>>,
    /// The number of requests that the server made of a client that does not make its retries
    /// itself.
    pub rounds: u32,
}

impl ResumedCall {
    /// The ticket, where it says one.
    pub(crate) fn ticket(&self) -> Option<[u8; TICKET]> {
        match self.kind {
            RetryPurpose::Held | RetryPurpose::Confirm | RetryPurpose::Confirmed => {
                self.inner.first_chunk().copied()
            }
            RetryPurpose::Server | RetryPurpose::Again => None,
        }
    }

    /// The state that the server wants back: JSON, or nothing.
    pub fn state(&self) -> Option<&str> {
        let state = match self.kind {
            RetryPurpose::Server => &self.inner[..],
            RetryPurpose::Confirmed => self.inner.get(TICKET..)?,
            RetryPurpose::Held | RetryPurpose::Confirm | RetryPurpose::Again => return None,
        };
        str::from_utf8(state).ok().filter(|state| !state.is_empty())
    }

    /// True if it is the server that asked, and gets the answers.
    pub(crate) fn is_servers(&self) -> bool {
        matches!(self.kind, RetryPurpose::Server | RetryPurpose::Confirmed)
    }
}

/// The reason for which a retry is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RetryRefusal {
    /// Not as it was sent, or not from here.
    #[error("it is not one that this daemon sent, or it was changed on the way")]
    Forged,
    /// Too late.
    #[error("it has expired")]
    Expired,
    /// Another user's.
    #[error("it was given to another user")]
    OtherUser,
    /// Another server's.
    #[error("it was given for a call of another server")]
    OtherServer,
    /// Another call's.
    #[error(
        "it was given for another call: method, name and arguments of a retry must be those of the call"
    )]
    OtherCall,
    /// The work that waited for it does not wait any more.
    #[error("it was used already, or what waited for it has ended: each is good for one retry")]
    Used,
}

impl From<RetryRefusal> for RpcError {
    fn from(refused: RetryRefusal) -> RpcError {
        RpcError::invalid_params(format!(
            "params.requestState is refused: {refused}; send the call again without requestState and inputResponses"
        ))
    }
}

/// The reason for which there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is not there, and could not be made.
    #[error("cannot make {path}: {error}", path = .path.display())]
    Make {
        /// Its file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Its file cannot be read, or is not the daemon's alone.
    #[error(transparent)]
    File(#[from] file::FileError),
    /// Its file is not what was written.
    #[error("refusing {path}: {why}; stop the daemon and remove it: calls that wait for a retry are lost, nothing else", path = .path.display())]
    Content {
        /// Its file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
}

/// Seals `requestState`.
pub struct RequestStates {
    key: Zeroizing<[u8; KEY]>,
}

impl RequestStates {
    /// With the key of this state directory, which is made the first time.
    ///
    /// # Errors
    /// There is none and none can be made, or its file could be others' to read.
    pub fn open(state_dir: &Path) -> Result<RequestStates, KeyError> {
        let path = state_dir.join("request-state.key");
        if let Some(states) = RequestStates::read(&path)? {
            return Ok(states);
        }
        let failed = |error| KeyError::Make {
            path: path.clone(),
            error,
        };
        let states = RequestStates::of_this_process().map_err(failed)?;
        replace_file(&path, &*states.key, 0o600).map_err(failed)?;
        Ok(states)
    }

    /// Reads the key. One that is cut off, as a power failure may leave it, is none: with another
    /// the retries that clients still owe are refused, and nothing else depends on it.
    fn read(path: &Path) -> Result<Option<RequestStates>, KeyError> {
        let Some(file) = file::read(path, KEY, false)? else {
            return Ok(None);
        };
        let content = Zeroizing::new(file.content);
        let refuse = |why: String| KeyError::Content {
            path: path.to_owned(),
            why,
        };
        if file.mode & 0o077 != 0 {
            let why = format!(
                "its mode is {:04o}: others could read it",
                file.mode & 0o7777
            );
            return Err(refuse(why));
        }
        if content.len() < KEY {
            warn!(
                "{} is cut off: a new key is made, and retries of earlier calls are refused",
                path.display()
            );
            return Ok(None);
        }
        let key: [u8; KEY] = content
            .as_slice()
            .try_into()
            .map_err(|_| refuse(format!("it has more than {KEY} bytes")))?;
        Ok(Some(RequestStates {
            key: Zeroizing::new(key),
        }))
    }

    /// With a key that ends with this process.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn of_this_process() -> std::io::Result<RequestStates> {
        let mut key = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut *key).map_err(std::io::Error::other)?;
        Ok(RequestStates { key })
    }

    fn mac(&self, sealed: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&(*self.key).into());
        mac.update(b"colibri requestState\n");
        mac.update(sealed);
        mac
    }

    /// The `requestState` for the client of a call that entered under this record.
    pub fn seal(
        &self,
        kind: RetryPurpose,
        bound: &RetryBinding<'_>,
        record: u64,
        inner: &[u8],
        until: SystemTime,
    ) -> String {
        let server = bound.server.as_bytes();
        let mut sealed = Vec::with_capacity(HEAD + server.len() + inner.len() + MAC);
        sealed.extend([FORMAT, kind.number()]);
        sealed.extend(bound.uid.to_be_bytes());
        sealed.extend(seconds(until).to_be_bytes());
        sealed.extend(record.to_be_bytes());
        sealed.extend(bound.digest);
        // Ids of servers have at most 32 bytes.
        sealed.push(server.len() as u8);
        sealed.extend(server);
        sealed.extend(inner);
        let mac = self.mac(&sealed).finalize().into_bytes();
        sealed.extend(mac);
        BASE64.encode(sealed)
    }

    /// The content of a retry, which is for this call.
    ///
    /// # Errors
    /// Why it is not taken. Of what was not sealed here nothing is read.
    pub fn unseal(
        &self,
        state: &str,
        bound: &RetryBinding<'_>,
        now: SystemTime,
    ) -> Result<ResumedCall, RetryRefusal> {
        let sealed = BASE64.decode(state).map_err(|_| RetryRefusal::Forged)?;
        let end = sealed.len().checked_sub(MAC).ok_or(RetryRefusal::Forged)?;
        let (sealed, mac) = sealed.split_at(end);
        // In constant time.
        self.mac(sealed)
            .verify_slice(mac)
            .map_err(|_| RetryRefusal::Forged)?;
        let mut rest = sealed;
        let [format, kind] = take(&mut rest)?;
        let kind = RetryPurpose::ALL
            .into_iter()
            .find(|known| known.number() == kind);
        let kind = kind
            .filter(|_| format == FORMAT)
            .ok_or(RetryRefusal::Forged)?;
        let uid = u32::from_be_bytes(take(&mut rest)?);
        let until = u64::from_be_bytes(take(&mut rest)?);
        let record = u64::from_be_bytes(take(&mut rest)?);
        let digest: [u8; 32] = take(&mut rest)?;
        let [length] = take(&mut rest)?;
        let (server, inner) = rest
            .split_at_checked(usize::from(length))
            .ok_or(RetryRefusal::Forged)?;
        if uid != bound.uid {
            Err(RetryRefusal::OtherUser)
        } else if until <= seconds(now) {
            Err(RetryRefusal::Expired)
        } else if server != bound.server.as_bytes() {
            Err(RetryRefusal::OtherServer)
        } else if digest != bound.digest {
            Err(RetryRefusal::OtherCall)
        } else {
            Ok(ResumedCall {
                kind,
                record,
                inner: inner.to_vec(),
                responses: None,
                rounds: 0,
            })
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], RetryRefusal> {
    let (taken, after) = rest.split_first_chunk::<N>().ok_or(RetryRefusal::Forged)?;
    *rest = after;
    Ok(*taken)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// SHA-256 of what is called: the method, and its `params` but for what a retry says otherwise.
/// Keys in any order are the same, since some clients write them in another each time. What an
/// agent calls in its session is not what the person calls for whom it runs.
pub fn digest(method: &str, params: Option<Json<'_>>, agent: Option<&str>) -> [u8; 32] {
    let same = |key: &Json<'_>| {
        !["_meta", "requestState", "inputResponses"]
            .iter()
            .any(|name| key.is_string(name))
    };
    let members: Vec<_> = params
        .into_iter()
        .flat_map(|params| params.members())
        .filter(|member| same(&member.key))
        .map(|member| format!("{}:{}", member.key.text(), member.value.text()))
        .collect();
    let mut hash = Sha256::new();
    hash.update(method);
    hash.update(b"\n");
    if let Some(session) = agent {
        hash.update(session);
        hash.update(b"\n");
    }
    hash.update(canonical(format!("{{{}}}", members.join(",")).as_bytes()));
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    const CALL: RetryBinding<'static> = RetryBinding {
        uid: 1001,
        server: "notes",
        digest: [7; 32],
    };

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    fn later(seconds: u64) -> SystemTime {
        now() + Duration::from_secs(seconds)
    }

    fn json(text: &str) -> Json<'_> {
        Json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_was_sealed_is_read_by_the_same_call_alone() {
        let states = RequestStates::of_this_process().unwrap();
        let state = states.seal(RetryPurpose::Server, &CALL, 12, b"\"s\"", later(10));
        let resumed = ResumedCall {
            kind: RetryPurpose::Server,
            record: 12,
            inner: b"\"s\"".to_vec(),
            responses: None,
            rounds: 0,
        };
        assert_eq!(states.unseal(&state, &CALL, now()), Ok(resumed));
        for (bound, at, expected) in [
            (
                RetryBinding { uid: 1002, ..CALL },
                now(),
                RetryRefusal::OtherUser,
            ),
            (
                RetryBinding {
                    server: "other",
                    ..CALL
                },
                now(),
                RetryRefusal::OtherServer,
            ),
            (
                RetryBinding {
                    server: "note",
                    ..CALL
                },
                now(),
                RetryRefusal::OtherServer,
            ),
            (
                RetryBinding {
                    digest: [8; 32],
                    ..CALL
                },
                now(),
                RetryRefusal::OtherCall,
            ),
            (CALL, later(10), RetryRefusal::Expired),
        ] {
            assert_eq!(states.unseal(&state, &bound, at), Err(expected));
        }
        // Another daemon's key.
        let other = RequestStates::of_this_process().unwrap();
        assert_eq!(
            other.unseal(&state, &CALL, now()),
            Err(RetryRefusal::Forged)
        );
    }

    #[test]
    fn a_changed_state_is_refused_at_every_byte() {
        let states = RequestStates::of_this_process().unwrap();
        let state = states.seal(RetryPurpose::Held, &CALL, 1, &[3; TICKET], later(10));
        let sealed = BASE64.decode(&state).unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(
                states.unseal(&BASE64.encode(&changed), &CALL, now()),
                Err(RetryRefusal::Forged)
            );
            assert_eq!(
                states.unseal(&BASE64.encode(&sealed[..at]), &CALL, now()),
                Err(RetryRefusal::Forged)
            );
        }
        for text in [
            "",
            "A",
            "====",
            "ü",
            &state[1..],
            &format!("{state}A"),
            &format!("{state}="),
        ] {
            assert_eq!(
                states.unseal(text, &CALL, now()),
                Err(RetryRefusal::Forged),
                "{text}"
            );
        }
    }

    #[test]
    fn the_key_is_made_once_and_is_nobody_elses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("request-state.key");
        let first = RequestStates::open(directory.path()).unwrap();
        let facts = std::fs::metadata(&path).unwrap();
        assert_eq!((facts.mode() & 0o7777, facts.len()), (0o600, KEY as u64));
        let state = first.seal(RetryPurpose::Server, &CALL, 1, b"", later(10));
        let second = RequestStates::open(directory.path()).unwrap();
        assert!(second.unseal(&state, &CALL, now()).is_ok());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            RequestStates::open(directory.path()),
            Err(KeyError::Content { .. })
        ));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, [1; KEY + 1]).unwrap();
        assert!(matches!(
            RequestStates::open(directory.path()),
            Err(KeyError::Content { .. })
        ));
        for content in [&[1; KEY - 1][..], b""] {
            std::fs::write(&path, content).unwrap();
            let anew = RequestStates::open(directory.path()).unwrap();
            assert!(
                anew.unseal(&state, &CALL, now()).is_err(),
                "what was sealed before is refused"
            );
            let facts = std::fs::metadata(&path).unwrap();
            assert_eq!((facts.mode() & 0o7777, facts.len()), (0o600, KEY as u64));
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(matches!(
            RequestStates::open(directory.path()),
            Err(KeyError::File(_))
        ));
    }

    #[test]
    fn a_retry_is_the_same_call_in_other_words() {
        let call =
            r#"{"name":"n","arguments":{"a":1,"b":{"c":2,"d":3}},"_meta":{"progressToken":1}}"#;
        let retry = r#"{"requestState":"s","inputResponses":{"k":{}},"_meta":{"progressToken":2},
            "arguments":{"b":{"d":3,"c":2},"a":1},"name":"n"}"#;
        let is = digest("tools/call", Some(json(call)), None);
        assert_eq!(is, digest("tools/call", Some(json(retry)), None));
        let [one, other] = ["0123456789abcdef", "fedcba9876543210"]
            .map(|of| digest("tools/call", Some(json(call)), Some(of)));
        assert!(
            is != one && is != other && one != other,
            "each agent's calls are its own"
        );
        for (method, other) in [
            ("prompts/get", call),
            (
                "tools/call",
                r#"{"name":"n","arguments":{"a":1,"b":{"c":2,"d":4}}}"#,
            ),
            (
                "tools/call",
                r#"{"name":"m","arguments":{"a":1,"b":{"c":2,"d":3}}}"#,
            ),
            (
                "tools/call",
                r#"{"name":"n","arguments":{"a":1,"b":{"c":2,"d":3}},"task":{}}"#,
            ),
            (
                "tools/call",
                r#"{"name":"n","arguments":{"a":1.0,"b":{"c":2,"d":3}}}"#,
            ),
        ] {
            assert_ne!(is, digest(method, Some(json(other)), None), "{other}");
        }
    }

    proptest! {
        #[test]
        fn every_state_is_read_as_it_was_sealed_or_refused(
            uid: u32, server in "[a-z][a-z0-9-]{0,31}", digest: [u8; 32], record: u64,
            inner in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..5usize,
            other_uid: u32, other_server in "[a-z][a-z0-9-]{0,31}", at in any::<proptest::sample::Index>(), byte: u8,
        ) {
            let states = RequestStates::of_this_process().unwrap();
            let bound = RetryBinding { uid, server: &server, digest };
            let state = states.seal(RetryPurpose::ALL[kind], &bound, record, &inner, later(1));
            let resumed = states.unseal(&state, &bound, now()).unwrap();
            prop_assert_eq!((resumed.kind, resumed.record, &resumed.inner), (RetryPurpose::ALL[kind], record, &inner));
            let other = RetryBinding { uid: other_uid, server: &other_server, digest };
            prop_assert_eq!(states.unseal(&state, &other, now()).is_ok(), other == bound);
            let mut changed = state.clone().into_bytes();
            let at = at.index(changed.len());
            changed[at] = byte;
            if let Ok(changed) = String::from_utf8(changed) {
                prop_assert_eq!(states.unseal(&changed, &bound, now()).is_ok(), changed == state);
            }
        }

        #[test]
        fn whatever_a_client_sends_as_state_is_refused(state in ".{0,400}") {
            let states = RequestStates::of_this_process().unwrap();
            prop_assert_eq!(states.unseal(&state, &CALL, now()), Err(RetryRefusal::Forged));
        }
    }
}
