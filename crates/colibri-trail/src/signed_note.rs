//! Signed notes and checkpoints, as C2SP writes them (c2sp.org/signed-note,
//! c2sp.org/tlog-checkpoint), so that other people's tools can check a seal.
//!
//! The installation has one ed25519 key. Its name is the log's origin: `colibri-mcp/trail/` and
//! sixteen random hex digits, made with the key, since host names change and repeat.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use colibri_files::replace_file;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::file::open_regular;
use crate::line::decimal;
use crate::merkle::Hash;

/// Signature type 0x01 of c2sp.org/signed-note: ed25519.
pub(crate) const ED25519: u8 = 1;

/// The reason for which a key or a note cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    /// The key file could not be read or made.
    #[error(
        "cannot {action} the trail's key {path}: {error}; the state directory must exist and belong to the daemon"
    )]
    KeyFile {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The key file is cut off, or holds something else.
    #[error(
        "the trail's key {path} is damaged ({why}): put it back from a backup; to begin a new trail, move `trail`, \
         `trail.key`, `trail.pub` and `trail.head` in its directory aside, and keep them"
    )]
    KeyContent {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: &'static str,
    },
    /// Others may read the key.
    #[error(
        "the trail's key {path} is open to others (mode {mode:04o}); make it 0600, and make a new one if it was read"
    )]
    KeyMode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A key is not in the form of a signed-note key.
    #[error(
        "not a signed-note ed25519 key ({0}); expected the line that `colibri-mcp trail verify` prints"
    )]
    Key(&'static str),
    /// A note is not in the form of a checkpoint.
    #[error("not a signed checkpoint: {0}")]
    Form(&'static str),
    /// No signature by this key, or a wrong one.
    #[error("the checkpoint is not signed by {0}")]
    Signature(String),
}

/// The installation's signing key and its name.
pub struct Signer {
    key: SigningKey,
    verifier: Verifier,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({})", self.verifier)
    }
}

impl Signer {
    /// Reads the key at `path`, or makes one there (mode 0600) if there is none. `purpose` stands
    /// in its name.
    ///
    /// # Errors
    /// Where the file cannot be read or made, is open to others, or holds something else.
    pub(crate) fn load_or_create(path: &Path, purpose: &str) -> Result<Self, NoteError> {
        match Self::load(path) {
            Err(NoteError::KeyFile { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Self::create(path, purpose)
            }
            other => other,
        }
    }

    /// Reads the key at `path`.
    ///
    /// # Errors
    /// Where the file is not there, cannot be read, is open to others, or holds something else.
    pub(crate) fn load(path: &Path) -> Result<Self, NoteError> {
        let failed = |error| NoteError::KeyFile {
            action: "read",
            path: path.into(),
            error,
        };
        let file = open_regular(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(NoteError::KeyMode {
                path: path.into(),
                mode,
            });
        }
        let mut text = Zeroizing::new(String::new());
        file.take(4096).read_to_string(&mut text).map_err(failed)?;
        Self::parse(text.trim_end()).map_err(|error| match error {
            NoteError::Key(why) => NoteError::KeyContent {
                path: path.into(),
                why,
            },
            error => error,
        })
    }

    fn create(path: &Path, purpose: &str) -> Result<Self, NoteError> {
        let failed = |error| NoteError::KeyFile {
            action: "make",
            path: path.into(),
            error,
        };
        let mut seed = Zeroizing::new([0; 32]);
        let mut id = [0; 8];
        let random =
            |bytes: &mut [u8]| getrandom::fill(bytes).map_err(|e| failed(io::Error::other(e)));
        random(&mut *seed)?;
        random(&mut id)?;
        let name = format!("colibri-mcp/{purpose}/{:016x}", u64::from_be_bytes(id));
        let signer = Self::from_seed(name, &seed);
        replace_file(path, signer.to_text(&seed).as_bytes(), 0o600).map_err(failed)?;
        Ok(signer)
    }

    /// A key from its 32-byte seed.
    pub(crate) fn from_seed(name: String, seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        let verifier = Verifier {
            id: key_id(&name, ED25519, key.verifying_key().as_bytes()),
            name,
            key: key.verifying_key(),
        };
        Self { key, verifier }
    }

    fn to_text(&self, seed: &[u8; 32]) -> Zeroizing<String> {
        let mut body = Zeroizing::new([ED25519; 33]);
        body[1..].copy_from_slice(seed);
        let encoded = Zeroizing::new(BASE64.encode(*body));
        Zeroizing::new(format!(
            "PRIVATE+KEY+{}+{:08x}+{}\n",
            self.verifier.name, self.verifier.id, *encoded
        ))
    }

    fn parse(text: &str) -> Result<Self, NoteError> {
        let rest = text
            .strip_prefix("PRIVATE+KEY+")
            .ok_or(NoteError::Key("no PRIVATE+KEY+ at its start"))?;
        let (name, id, seed) = key_fields(rest, ED25519)?;
        let signer = Self::from_seed(name, &seed);
        if signer.verifier.id == id {
            Ok(signer)
        } else {
            Err(NoteError::Key("its id does not fit its key"))
        }
    }

    /// The key that checks what this one signs: public.
    #[must_use]
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Signs `text`, which ends in a newline, and returns the signature as a note carries it:
    /// base64 of key id and ed25519 signature.
    #[must_use]
    pub fn sign(&self, text: &str) -> String {
        let mut bytes = [0; 68];
        bytes[..4].copy_from_slice(&self.verifier.id.to_be_bytes());
        bytes[4..].copy_from_slice(&self.sign_bytes(text));
        BASE64.encode(bytes)
    }

    /// The ed25519 signature of `text`.
    pub(crate) fn sign_bytes(&self, text: &str) -> [u8; 64] {
        self.key.sign(text.as_bytes()).to_bytes()
    }

    /// The signed checkpoint of a tree of `size` leaves with that root.
    #[must_use]
    pub fn checkpoint(&self, size: u64, root: &Hash) -> String {
        let text = format!("{}\n{size}\n{}\n", self.verifier.name, BASE64.encode(root));
        let signature = self.sign(&text);
        format!("{text}\n— {} {signature}\n", self.verifier.name)
    }
}

/// The public half of a key, with its name: what others need to check checkpoints. Its text form is
/// that of c2sp.org/signed-note and Go's `note` package: `name+id+base64(0x01 ‖ key)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    name: String,
    id: u32,
    key: VerifyingKey,
}

impl std::fmt::Display for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut body = [ED25519; 33];
        body[1..].copy_from_slice(self.key.as_bytes());
        write!(f, "{}+{:08x}+{}", self.name, self.id, BASE64.encode(body))
    }
}

impl std::str::FromStr for Verifier {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let (name, id, key) = key_fields(text.trim(), ED25519)?;
        let key = VerifyingKey::from_bytes(&key)
            .map_err(|_| NoteError::Key("not a point on the curve"))?;
        if key_id(&name, ED25519, key.as_bytes()) != id {
            return Err(NoteError::Key("its id does not fit its key"));
        }
        Ok(Self { name, id, key })
    }
}

impl Verifier {
    /// The name of the key, which is the origin line of its checkpoints.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks a signature, as the signer of the daemon writes it, over `text`.
    #[must_use]
    pub fn verify(&self, text: &str, signature: &str) -> bool {
        let Ok(bytes) = BASE64.decode(signature) else {
            return false;
        };
        let Some((id, signature)) = bytes.split_first_chunk::<4>() else {
            return false;
        };
        let Ok(signature) = Signature::from_slice(signature) else {
            return false;
        };
        u32::from_be_bytes(*id) == self.id
            && self.key.verify_strict(text.as_bytes(), &signature).is_ok()
    }

    /// The key itself.
    pub(crate) fn key(&self) -> &VerifyingKey {
        &self.key
    }

    /// Opens a signed checkpoint: its tree size and root, if this key signed it.
    ///
    /// # Errors
    /// Where it has another form, another origin, or no good signature by this key.
    pub fn open(&self, note: &str) -> Result<(u64, Hash), NoteError> {
        let checkpoint = Checkpoint::parse(note)?;
        let signed = checkpoint
            .signatures_of(&self.name)
            .any(|signature| self.verify(checkpoint.text, signature));
        if checkpoint.origin != self.name || !signed {
            return Err(NoteError::Signature(self.name.clone()));
        }
        Ok((checkpoint.size, checkpoint.root))
    }
}

/// A checkpoint as written, its signatures not looked at.
#[derive(Debug)]
pub(crate) struct Checkpoint<'a> {
    /// The signed lines.
    pub(crate) text: &'a str,
    signatures: &'a str,
    /// The log it speaks of.
    pub origin: &'a str,
    /// The number of leaves of the tree.
    pub size: u64,
    /// The root of the tree.
    pub root: Hash,
}

impl<'a> Checkpoint<'a> {
    /// Refuses lines below the text that are no signatures: other readers take such a note for
    /// malformed.
    ///
    /// # Errors
    /// Where there is one, or the last line has no end.
    pub(crate) fn check_signatures(&self) -> Result<(), NoteError> {
        let is_signature = |line: &str| {
            let named = line
                .strip_prefix("— ")
                .and_then(|line| line.split_once(' '));
            named.is_some_and(|(name, signature)| {
                !name.is_empty()
                    && !name.contains(|c: char| c.is_whitespace() || c == '+')
                    && BASE64.decode(signature).is_ok_and(|bytes| bytes.len() > 4)
            })
        };
        let lines = self.signatures.strip_suffix('\n');
        match lines.is_some_and(|lines| lines.split('\n').all(is_signature)) {
            true => Ok(()),
            false => Err(NoteError::Form("a line below the text is no signature")),
        }
    }

    /// The signatures that stand under a key's name, base64.
    pub(crate) fn signatures_of(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let lines = self.signatures.lines();
        lines.filter_map(move |line| {
            line.strip_prefix("— ")?
                .strip_prefix(name)?
                .strip_prefix(' ')
        })
    }

    /// Reads the three lines of a checkpoint.
    ///
    /// # Errors
    /// Where they are not there or something follows them that is not a signature.
    pub(crate) fn parse(note: &'a str) -> Result<Self, NoteError> {
        let at = note
            .rfind("\n\n")
            .ok_or(NoteError::Form("no empty line before the signatures"))?;
        let (text, signatures) = (&note[..=at], &note[at + 2..]);
        let mut lines = text.lines();
        let origin = lines
            .next()
            .filter(|o| !o.is_empty())
            .ok_or(NoteError::Form("no origin line"))?;
        let size = lines.next().ok_or(NoteError::Form("no tree size"))?;
        let size = decimal(size).ok_or(NoteError::Form(
            "the tree size is not a number in its shortest form",
        ))?;
        let root = lines
            .next()
            .and_then(|r| BASE64.decode(r).ok())
            .and_then(|r| r.try_into().ok());
        let root = root.ok_or(NoteError::Form("the root is not 32 bytes of base64"))?;
        if lines.next().is_some() {
            return Err(NoteError::Form("lines after the root"));
        }
        Ok(Self {
            text,
            signatures,
            origin,
            size,
            root,
        })
    }
}

/// The id of a key, c2sp.org/signed-note: the first four bytes of SHA-256(name ‖ "\n" ‖ type ‖
/// key).
pub(crate) fn key_id(name: &str, kind: u8, key: &[u8; 32]) -> u32 {
    let mut hasher = Sha256::new();
    hasher.update(name);
    hasher.update([b'\n', kind]);
    hasher.update(key);
    let hash = hasher.finalize();
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

/// Name, id and key of a key's text, if it is of that signature type.
pub(crate) fn key_fields(
    text: &str,
    kind: u8,
) -> Result<(String, u32, Zeroizing<[u8; 32]>), NoteError> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(NoteError::Key("not three parts joined by +"));
    };
    if name.is_empty() || name.chars().any(char::is_whitespace) {
        return Err(NoteError::Key("no name"));
    }
    let id = u32::from_str_radix(id, 16)
        .map_err(|_| NoteError::Key("its id is not eight hex digits"))?;
    let bytes = Zeroizing::new(
        BASE64
            .decode(key)
            .map_err(|_| NoteError::Key("not base64"))?,
    );
    match bytes.split_first() {
        Some((found, body)) if *found == kind => {
            let body = <[u8; 32]>::try_from(body).map_err(|_| NoteError::Key("not 32 bytes"))?;
            Ok((name.to_owned(), id, Zeroizing::new(body)))
        }
        _ => Err(NoteError::Key("of another type")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    // The example key and note in the documentation of Go's golang.org/x/mod/sumdb/note, the
    // format's origin.
    const GO_PRIVATE: &str =
        "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    const GO_PUBLIC: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const GO_TEXT: &str = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
    const GO_SIGNATURE: &str = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=";

    #[test]
    fn agrees_with_the_reference_implementation() {
        let signer = Signer::parse(GO_PRIVATE).unwrap();
        assert_eq!(signer.verifier().to_string(), GO_PUBLIC);
        assert_eq!(signer.sign(GO_TEXT), GO_SIGNATURE);
        let verifier: Verifier = GO_PUBLIC.parse().unwrap();
        assert!(verifier.verify(GO_TEXT, GO_SIGNATURE));
        assert!(!verifier.verify("another text\n", GO_SIGNATURE));
    }

    #[test]
    fn a_key_is_made_once_private_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trail.key");
        let first = Signer::load_or_create(&path, "trail").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(
            Signer::load_or_create(&path, "trail").unwrap().verifier(),
            first.verifier()
        );
        assert_eq!(
            first.verifier().to_string().parse::<Verifier>().unwrap(),
            *first.verifier()
        );
        assert!(!format!("{first:?}").contains("PRIVATE"));
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(
            Signer::load_or_create(&path, "trail"),
            Err(NoteError::KeyMode { mode: 0o640, .. })
        ));
    }

    #[test]
    fn a_key_behind_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("elsewhere"), GO_PRIVATE).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), dir.path().join("trail.key"))
            .unwrap();
        assert!(Signer::load_or_create(&dir.path().join("trail.key"), "trail").is_err());
    }

    #[test]
    fn a_checkpoint_opens_only_unchanged_and_by_its_own_key() {
        let signer = Signer::from_seed("example.org/log".into(), &[7; 32]);
        let note = signer.checkpoint(42, &[9; 32]);
        assert_eq!(signer.verifier().open(&note).unwrap(), (42, [9; 32]));
        let cosigned = format!("{note}— other.example/witness AAAAAAAA\n");
        assert_eq!(signer.verifier().open(&cosigned).unwrap(), (42, [9; 32]));
        let other = Signer::from_seed("example.org/log".into(), &[8; 32]);
        assert!(matches!(
            other.verifier().open(&note),
            Err(NoteError::Signature(_))
        ));
        for (at, _) in note.char_indices().filter(|(_, c)| c.is_ascii()) {
            let mut bytes = note.clone().into_bytes();
            bytes[at] ^= 1;
            // The last base64 digit before the padding and the final newline carry no signed bits
            // in every decoder; ours is strict, so nothing may change but the end of the last line.
            let Ok(changed) = String::from_utf8(bytes) else {
                continue;
            };
            if at + 1 < note.len() {
                assert!(
                    signer.verifier().open(&changed).is_err(),
                    "byte {at} changed: {changed:?}"
                );
            }
        }
    }

    #[test]
    fn malformed_keys_and_notes_are_named() {
        for bad in [
            "",
            "a+b",
            "a b+c74f20a3+AR==",
            "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        ] {
            assert!(
                matches!(bad.parse::<Verifier>(), Err(NoteError::Key(_))),
                "{bad}"
            );
        }
        for bad in [
            "",
            "a\n1\n",
            "a\n01\nAAAA\n\n— a b\n",
            "a\n1\nAAAA\n\n— a b\n",
            "\n1\nAAAA\n\n— a b\n",
        ] {
            assert!(
                matches!(Checkpoint::parse(bad), Err(NoteError::Form(_))),
                "{bad:?}"
            );
        }
    }
}
