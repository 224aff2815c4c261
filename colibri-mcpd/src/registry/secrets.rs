//! The secrets of host and url servers: read when a server starts, wiped when no longer used, and
//! taken out of all text that the daemon shows or keeps.
//!
//! A secret is a file in `daemon-secrets/` beside the registry, `root:colibri 0440`. The secrets of
//! jailed servers are others, in another directory: the helper alone reads them, and the daemon
//! never holds them.

use arc_swap::ArcSwap;
use colibri_registry::{EntryValue, is_secret_name};
use memchr::memmem::Finder;
use nix::dir::Dir;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

use colibri_outbound::oauth::Vault;

/// The most bytes of a secret.
pub const MAX_BYTES: usize = 64 * 1024;

/// Shorter values are not redacted: they stand in ordinary text by chance, and taking them out
/// would give them away.
pub(crate) const MIN_REDACTED: usize = 6;

/// The text in place of a secret.
pub(crate) const REDACTED: &str = "[redacted]";

/// The number of nested JSON strings in which a secret is found.
const LEVELS: usize = 3;

/// The reason for which a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file or its directory could not be opened or read.
    #[error("cannot read the secret {path}: {error}", path = .path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Others could read or change it.
    #[error("refusing the secret {path}: {why}", path = .path.display())]
    Unsafe {
        /// The file or directory.
        path: PathBuf,
        /// The fault, and the remedy.
        why: String,
    },
}

/// The directory of secrets, and every value that was read from it so far.
pub struct SecretStore {
    directory: PathBuf,
    known: Mutex<KnownValues>,
    redactor: ArcSwap<Redactor>,
}

/// The values that no text may show.
#[derive(Default)]
struct KnownValues {
    /// Those of files. A value that a server no longer uses may still turn up in its last words, so
    /// none is ever forgotten.
    read: Vec<SecretString>,
    /// Tokens, of which there are ever new ones: the latest.
    issued: VecDeque<SecretString>,
}

/// The most tokens that are redacted.
const MAX_ISSUED: usize = 256;

impl SecretStore {
    /// The secrets that belong to the registry at this path.
    pub fn beside(registry: &Path) -> Self {
        Self {
            directory: registry.with_file_name("daemon-secrets"),
            known: Mutex::default(),
            redactor: ArcSwap::default(),
        }
    }

    /// Environment or headers with the secrets filled in, read anew each time so that a changed
    /// secret holds from the next start on. What was read is redacted from now on.
    ///
    /// # Errors
    /// A secret that is missing, empty, too long, not UTF-8, not a regular file (a symbolic link is
    /// none), owned by somebody other than root and this user, or open to others.
    pub fn resolve(
        &self,
        values: &BTreeMap<String, EntryValue>,
    ) -> Result<BTreeMap<String, SecretString>, SecretError> {
        let mut resolved = BTreeMap::new();
        let mut read = Vec::new();
        for (name, value) in values {
            let value = match value {
                EntryValue::Plain(text) => SecretString::from(text.clone()),
                EntryValue::Secret(secret) => {
                    let value = self.file(secret)?;
                    read.push(value.clone());
                    value
                }
            };
            resolved.insert(name.clone(), value);
        }
        self.know(|known| {
            for value in read {
                if !has(&known.read, &value) {
                    known.read.push(value);
                }
            }
        });
        Ok(resolved)
    }

    fn know(&self, more: impl FnOnce(&mut KnownValues)) {
        let mut known = self.known.lock();
        more(&mut known);
        let redactor = Redactor::new(known.read.iter().chain(&known.issued));
        self.redactor.store(Arc::new(redactor));
    }

    /// Takes every value read so far out of text.
    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        self.redactor.load_full()
    }

    fn file(&self, name: &str) -> Result<SecretString, SecretError> {
        let path = self.directory.join(name);
        let failed = |path: &Path, error| SecretError::Read {
            path: path.to_owned(),
            error,
        };
        let refused = |path: &Path, why: &str| SecretError::Unsafe {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        if !is_secret_name(name) {
            return Err(refused(
                &self.directory,
                "a secret's name must be 1 to 32 characters of a-z, 0-9 and -",
            ));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let directory = Dir::open(&self.directory, flags | OFlag::O_DIRECTORY, Mode::empty())
            .map_err(|error| failed(&self.directory, error.into()))?;
        let facts = nix::sys::stat::fstat(&directory)
            .map_err(|error| failed(&self.directory, error.into()))?;
        if !owner_is_right(facts.st_uid) {
            return Err(refused(
                &self.directory,
                "its owner must be root or the daemon's user",
            ));
        }
        if facts.st_mode & 0o022 != 0 {
            return Err(refused(
                &self.directory,
                "group or others may write in it: chmod 0750",
            ));
        }
        let file = openat(&directory, name, flags, Mode::empty())
            .map_err(|error| failed(&path, io::Error::from(error)))?;
        let file = std::fs::File::from(file);
        let facts = file.metadata().map_err(|error| failed(&path, error))?;
        if !facts.is_file() {
            return Err(refused(&path, "it is not a regular file"));
        }
        if !owner_is_right(facts.uid()) {
            return Err(refused(
                &path,
                "its owner must be root or the daemon's user",
            ));
        }
        if facts.mode() & 0o037 != 0 {
            return Err(refused(
                &path,
                "others may read it, or others than its owner write it: chmod 0440",
            ));
        }
        // Room for all of it at once: a growing buffer would leave copies behind in freed memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 2));
        file.take(MAX_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| failed(&path, error))?;
        if bytes.len() > MAX_BYTES {
            return Err(refused(&path, "it is longer than 64 KiB"));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| refused(&path, "it is not UTF-8"))?;
        // Editors and echo(1) end a file with a newline that does not belong to the secret.
        let text = text
            .strip_suffix('\n')
            .map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
        if text.is_empty() {
            return Err(refused(&path, "it is empty"));
        }
        if text.contains('\0') {
            return Err(refused(
                &path,
                "it holds a NUL byte, which no variable and no header can carry",
            ));
        }
        Ok(SecretString::from(text.to_owned()))
    }
}

fn owner_is_right(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

impl Vault for SecretStore {
    fn read(&self, value: &EntryValue) -> anyhow::Result<SecretString> {
        let values = BTreeMap::from([(String::new(), value.clone())]);
        let mut resolved = self.resolve(&values)?;
        Ok(resolved.remove("").unwrap_or_default())
    }

    fn issued(&self, token: &SecretString) {
        self.know(|known| {
            if !has(&known.issued, token) {
                known.issued.push_back(token.clone());
            }
            while known.issued.len() > MAX_ISSUED {
                known.issued.pop_front();
            }
        });
    }
}

fn has<'a>(known: impl IntoIterator<Item = &'a SecretString>, value: &SecretString) -> bool {
    let mut known = known.into_iter();
    known.any(|known| known.expose_secret() == value.expose_secret())
}

/// Takes secrets out of text for logs, status, errors and the trail: as they are, and inside JSON
/// strings however escaped, up to JSON in JSON in JSON. Relayed results are never edited.
///
/// Redact before cutting: of a secret that was cut in two, neither half is found.
#[derive(Default)]
pub struct Redactor {
    values: Vec<SecretString>,
}

impl Redactor {
    /// A redactor of these values. Of one with several lines each line counts too, since logs have
    /// lines.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a SecretString>) -> Self {
        let mut parts: Vec<SecretString> = Vec::new();
        for value in values {
            let value = value.expose_secret();
            for part in std::iter::once(value).chain(value.lines().map(str::trim)) {
                if part.len() >= MIN_REDACTED
                    && !parts.iter().any(|known| known.expose_secret() == part)
                {
                    parts.push(SecretString::from(part.to_owned()));
                }
            }
        }
        Self { values: parts }
    }

    /// `text` with `REDACTED` in place of every secret; where secrets overlap, of all of them
    /// together.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut ranges = self.find(text.as_bytes());
        let mut decoded: Vec<DecodedText> = Vec::new();
        while decoded.len() < LEVELS && !self.values.is_empty() {
            let Some(next) =
                DecodedText::of(decoded.last().map_or(text.as_bytes(), |last| &last.bytes))
            else {
                break;
            };
            decoded.push(next);
            for found in decoded
                .last()
                .map(|last| self.find(&last.bytes))
                .unwrap_or_default()
            {
                ranges.push(
                    decoded
                        .iter()
                        .rev()
                        .fold(found, |(start, end), level| level.source(start, end)),
                );
            }
        }
        if ranges.is_empty() {
            return Cow::Borrowed(text);
        }
        ranges.sort_unstable();
        let mut redacted = String::with_capacity(text.len());
        let mut done = 0;
        for (start, end) in ranges {
            if start > done || redacted.is_empty() {
                redacted.push_str(&text[done..start]);
                redacted.push_str(REDACTED);
            }
            done = done.max(end);
        }
        redacted.push_str(&text[done..]);
        Cow::Owned(redacted)
    }

    /// Every place where a value stands, overlapping ones too.
    fn find(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for value in &self.values {
            let value = value.expose_secret().as_bytes();
            let finder = Finder::new(value);
            let mut from = 0;
            while let Some(at) = finder.find(&text[from..]) {
                found.push((from + at, from + at + value.len()));
                from += at + 1;
            }
        }
        found
    }
}

/// Text with the escapes of JSON strings resolved, and the way back.
struct DecodedText {
    bytes: Zeroizing<Vec<u8>>,
    escapes: Vec<Escape>,
}

/// An escape: where its character stands in the decoded text, and where it stands in the source.
struct Escape {
    decoded: (usize, usize),
    source: (usize, usize),
}

impl DecodedText {
    /// `None`: the text has no escapes.
    fn of(source: &[u8]) -> Option<Self> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(source.len()));
        let mut escapes = Vec::new();
        let mut at = 0;
        while let Some(next) = memchr::memchr(b'\\', &source[at..]) {
            bytes.extend_from_slice(&source[at..at + next]);
            at += next;
            match escape(&source[at..]) {
                Some((c, length)) => {
                    let start = bytes.len();
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    escapes.push(Escape {
                        decoded: (start, bytes.len()),
                        source: (at, at + length),
                    });
                    at += length;
                }
                None => {
                    bytes.push(b'\\');
                    at += 1;
                }
            }
        }
        bytes.extend_from_slice(&source[at..]);
        (!escapes.is_empty()).then_some(Self { bytes, escapes })
    }

    /// The range of the source that a range of the decoded text comes from, escapes whole.
    fn source(&self, start: usize, end: usize) -> (usize, usize) {
        let place = |at: usize, is_end: bool| {
            let before = self
                .escapes
                .partition_point(|escape| escape.decoded.0 < at + usize::from(!is_end));
            let Some(escape) = before.checked_sub(1).map(|last| &self.escapes[last]) else {
                return at;
            };
            if at < escape.decoded.1 {
                // Inside the character, or at its beginning.
                if is_end {
                    escape.source.1
                } else {
                    escape.source.0
                }
            } else {
                escape.source.1 + (at - escape.decoded.1)
            }
        };
        (place(start, false), place(end, true))
    }
}

/// The character of the escape that `source` begins with, and the escape's length (RFC 8259 §7).
fn escape(source: &[u8]) -> Option<(char, usize)> {
    let simple = match source.get(1)? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let unit = |at: usize| {
                let digits = source
                    .get(at..at + 4)
                    .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
                u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
            };
            let first = unit(2)?;
            if let Some(c) = char::from_u32(first) {
                return Some((c, 6));
            }
            let second = source
                .get(6..8)
                .filter(|next| next == b"\\u")
                .and_then(|_| unit(8));
            let pair =
                char::decode_utf16([first as u16, second.unwrap_or_default() as u16]).next()?;
            return pair.ok().map(|c| (c, 12));
        }
        _ => return None,
    };
    Some((simple, 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt as _;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            std::fs::create_dir(place.directory()).unwrap();
            std::fs::set_permissions(place.directory(), std::fs::Permissions::from_mode(0o750))
                .unwrap();
            place
        }

        fn directory(&self) -> PathBuf {
            self.0.path().join("daemon-secrets")
        }

        fn put(&self, name: &str, content: &[u8], mode: u32) {
            let path = self.directory().join(name);
            let _ = std::fs::remove_file(&path);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }

        fn secrets(&self) -> SecretStore {
            SecretStore::beside(&self.0.path().join("external-mcp.json"))
        }
    }

    fn asking(name: &str) -> BTreeMap<String, EntryValue> {
        [
            ("TOKEN".to_owned(), EntryValue::Secret(name.to_owned())),
            ("LOG".to_owned(), EntryValue::Plain("warning".to_owned())),
        ]
        .into()
    }

    #[test]
    fn secrets_are_read_and_then_redacted() {
        let place = Place::new();
        place.put("github", b"ghp_0123456789\n", 0o440);
        let secrets = place.secrets();
        assert_eq!(
            secrets.redactor().redact("ghp_0123456789"),
            "ghp_0123456789"
        );
        let resolved = secrets.resolve(&asking("github")).unwrap();
        assert_eq!(resolved["TOKEN"].expose_secret(), "ghp_0123456789");
        assert_eq!(resolved["LOG"].expose_secret(), "warning");
        assert!(!format!("{resolved:?}").contains("ghp_"));
        assert_eq!(
            secrets.redactor().redact("warning: ghp_0123456789!"),
            "warning: [redacted]!"
        );

        place.put("github", b"ghp_another_one", 0o400);
        secrets.resolve(&asking("github")).unwrap();
        assert_eq!(
            secrets.redactor().redact("ghp_0123456789 ghp_another_one"),
            "[redacted] [redacted]"
        );
    }

    #[test]
    fn one_trailing_newline_is_not_part_of_it() {
        let place = Place::new();
        for (content, wanted) in [
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("a\r", "a\r"),
            (" a ", " a "),
        ] {
            place.put("s", content.as_bytes(), 0o400);
            assert_eq!(place.secrets().file("s").unwrap().expose_secret(), wanted);
        }
    }

    #[test]
    fn unsafe_files_are_refused() {
        let place = Place::new();
        for mode in [0o444, 0o404, 0o460, 0o420, 0o450, 0o401, 0o666] {
            place.put("s", b"value", mode);
            assert!(
                matches!(place.secrets().file("s"), Err(SecretError::Unsafe { .. })),
                "{mode:o}"
            );
        }
        for content in [
            &b""[..],
            b"\n",
            b"a\0b",
            b"\xff\xfe",
            &vec![b'x'; MAX_BYTES + 1],
        ] {
            place.put("s", content, 0o400);
            assert!(matches!(
                place.secrets().file("s"),
                Err(SecretError::Unsafe { .. })
            ));
        }
        place.put("s", &vec![b'x'; MAX_BYTES], 0o400);
        assert!(place.secrets().file("s").is_ok());

        std::os::unix::fs::symlink(place.directory().join("s"), place.directory().join("link"))
            .unwrap();
        assert!(place.secrets().file("link").is_err());
        nix::unistd::mkfifo(&place.directory().join("fifo"), Mode::S_IRUSR).unwrap();
        assert!(matches!(
            place.secrets().file("fifo"),
            Err(SecretError::Unsafe { .. })
        ));
        std::fs::create_dir(place.directory().join("d")).unwrap();
        assert!(matches!(
            place.secrets().file("d"),
            Err(SecretError::Unsafe { .. })
        ));
        assert!(matches!(
            place.secrets().file("missing"),
            Err(SecretError::Read { .. })
        ));
        for name in ["", "..", "../x", "/etc/passwd", "A", "a/b", "a\0"] {
            assert!(
                matches!(place.secrets().file(name), Err(SecretError::Unsafe { .. })),
                "{name:?}"
            );
        }
    }

    #[test]
    fn an_unsafe_directory_is_refused() {
        let place = Place::new();
        place.put("s", b"value", 0o400);
        std::fs::set_permissions(place.directory(), std::fs::Permissions::from_mode(0o770))
            .unwrap();
        assert!(matches!(
            place.secrets().file("s"),
            Err(SecretError::Unsafe { .. })
        ));
        std::fs::set_permissions(place.directory(), std::fs::Permissions::from_mode(0o750))
            .unwrap();
        let elsewhere = place.0.path().join("elsewhere");
        std::fs::rename(place.directory(), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, place.directory()).unwrap();
        assert!(place.secrets().file("s").is_err());
    }

    #[test]
    fn errors_never_show_a_value() {
        let place = Place::new();
        place.put("s", b"SECRETvalue", 0o666);
        let error = place.secrets().resolve(&asking("s")).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("SECRET"));
    }

    fn redactor(values: &[&str]) -> Redactor {
        Redactor::new(
            &values
                .iter()
                .map(|&value| SecretString::from(value.to_owned()))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn overlapping_values_are_taken_out_together() {
        let redactor = redactor(&["abcdef", "defghi", "abcdefghijkl", "aaaaaa"]);
        assert_eq!(redactor.redact("xabcdefghiy"), "x[redacted]y");
        assert_eq!(redactor.redact("abcdefghijkl"), "[redacted]");
        assert_eq!(
            redactor.redact("abcdefabcdef"),
            "[redacted][redacted]".replace("][redacted]", "]")
        );
        assert_eq!(redactor.redact("aaaaaaaaa-"), "[redacted]-");
        assert_eq!(redactor.redact(""), "");
        assert!(matches!(redactor.redact("nothing here"), Cow::Borrowed(_)));
    }

    #[test]
    fn short_values_are_left_alone() {
        let redactor = redactor(&["warn", "a", "", "12345"]);
        assert_eq!(redactor.redact("warn 12345 a"), "warn 12345 a");
    }

    #[test]
    fn escaped_forms_are_found() {
        let secret = "s3cr\"t/\\ü😀\nx";
        let redactor = redactor(&[secret]);
        for form in [
            secret.to_owned(),
            r#"s3cr\"t\/\\ü😀\nx"#.to_owned(),
            r#"s3cr\"t/\\\u00fc\ud83d\ude00\nx"#.to_owned(),
            r#"\u0073\u0033cr\u0022t\u002F\u005C\u00FC\uD83D\uDE00\u000Ax"#.to_owned(),
        ] {
            assert_eq!(
                redactor.redact(&format!("<{form}>")),
                "<[redacted]>",
                "{form}"
            );
        }
        let mut nested = secret.to_owned();
        for _ in 0..LEVELS {
            nested = serde_json::to_string(&nested).unwrap();
            assert!(redactor.redact(&nested).contains("[redacted]"));
            assert!(!redactor.redact(&nested).contains("s3cr"));
        }
    }

    #[test]
    fn each_line_of_a_secret_counts() {
        let redactor = redactor(&["-----BEGIN KEY-----\nMIIabcdefgh\n-----END KEY-----"]);
        assert_eq!(redactor.redact("stderr: MIIabcdefgh"), "stderr: [redacted]");
    }

    #[test]
    fn debris_of_escapes_does_no_harm() {
        let redactor = redactor(&["secret", "\\u00zz-secret"]);
        for text in [
            "\\",
            "\\u",
            "\\u12",
            "\\ud800",
            "\\ud800\\u0041",
            "\\ud800\\ud800",
            "\\x secret \\",
            "ü\\ü",
        ] {
            assert!(!redactor.redact(text).contains("secret"));
        }
    }

    /// `text` as some JSON writer might have written it.
    fn escaped(text: &str, choices: &[u8]) -> String {
        let mut escaped = String::new();
        for (c, choice) in text.chars().zip(choices.iter().cycle()) {
            let json = serde_json::to_string(&c.to_string()).unwrap();
            let units: Vec<u16> = c.encode_utf16(&mut [0; 2]).to_vec();
            match choice % 3 {
                0 => escaped.push_str(&json[1..json.len() - 1]),
                1 => units
                    .iter()
                    .for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}"))),
                _ => units
                    .iter()
                    .for_each(|unit| escaped.push_str(&format!("\\u{unit:04X}"))),
            }
        }
        escaped
    }

    proptest! {
        #[test]
        fn nothing_of_a_secret_is_left(
            secret in "[A-Z\"\\\\/üß😀]{6,12}", before in "[a-z\\\\{}:, ü]{0,8}", after in "[a-z{}:, ü]{0,8}",
            choices in prop::collection::vec(any::<u8>(), 1..8),
        ) {
            let redactor = redactor(&[&secret]);
            for form in [secret.clone(), escaped(&secret, &choices)] {
                // With a backslash directly before it the text would hold something else.
                let text = format!("{before} {form}{after}");
                let redacted = redactor.redact(&text);
                prop_assert!(redacted.contains(REDACTED), "{} in {}", secret, text);
                prop_assert!(redacted.starts_with(&before) && redacted.ends_with(&after), "{}", redacted);
                prop_assert!(!redacted.replace(REDACTED, "").contains(|c: char| c.is_ascii_uppercase() && c != 'E'), "{}", redacted);
            }
        }

        #[test]
        fn any_text_is_taken(text in any::<String>(), values in prop::collection::vec(any::<String>(), 0..4)) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            redactor(&values).redact(&text);
        }

        #[test]
        fn text_without_secrets_stays_as_it_is(text in "[a-z \\\\\"nu0-9]{0,64}") {
            let redactor = redactor(&["SECRET", "TOKEN-1"]);
            prop_assert_eq!(redactor.redact(&text), text.as_str());
        }
    }
}
