//! The names that cross the helper's boundary, as types: once one of these exists, its characters
//! are known.

use std::fmt;

/// A server's id: `[a-z][a-z0-9-]{0,31}`. It is the helper's whole input, so nothing of a path, a
/// shell, a jail parameter or a terminal can be said with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(String);

impl ServerId {
    /// Reads an id; `None` for anything outside the alphabet or longer than 32 bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        colibri_registry::is_server_id(text).then(|| Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An instance's id, made by the daemon: `[0-9a-f]{16}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(String);

impl SessionId {
    /// Reads an id; `None` for anything but sixteen lower-case hexadecimal digits.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        lower_hex(bytes, 16).map(Self)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `colibri-<session>`: what an ephemeral jail is called, and the login class of every process
    /// of the instance.
    pub fn mark(&self) -> String {
        format!("{MARK_PREFIX}{}", self.0)
    }

    /// The session of a name made by [`SessionId::mark`].
    pub fn from_mark(mark: &str) -> Option<Self> {
        Self::parse(mark.strip_prefix(MARK_PREFIX)?.as_bytes())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The prefix of every name that the helper gives.
pub const MARK_PREFIX: &str = "colibri-";

/// The SHA-256 of an entry's bytes, as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDigest(String);

impl EntryDigest {
    /// Reads a digest; `None` for anything but 64 lower-case hexadecimal digits.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        lower_hex(bytes, 64).map(Self)
    }

    /// The digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a persistent jail: `[A-Za-z][A-Za-z0-9_-]{0,62}`, parts joined by dots for a jail
/// within a jail.
///
/// libjail takes whatever strtoul(3) accepts (`-1`, `+3`, ` 3`, `0`) for a jail id, and the kernel
/// forbids little more than all-numeric names, so the alphabet is ours.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JailName(String);

impl JailName {
    /// Reads a name; `None` for anything outside the alphabet or longer than 63 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        colibri_registry::is_jail_name(text).then(|| Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JailName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True if a path is absolute and says one thing only: no empty, `.` or `..` component, no trailing
/// slash, no control character, not `/` itself, and short enough for a mount table (1,024 bytes
/// with what is put before it).
pub(crate) fn is_plain_path(path: &str) -> bool {
    path.len() <= 800
        && !path.chars().any(char::is_control)
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// True if `inner` is `outer` or lies below it. Both must be plain paths (`is_plain_path`).
pub fn is_at_or_below(inner: &str, outer: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn lower_hex(bytes: &[u8], length: usize) -> Option<String> {
    let good =
        bytes.len() == length && bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !good {
        return None;
    }
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn server_ids_of_the_hostile_list_are_refused() {
        let long = "a".repeat(33);
        for bad in [
            "",
            "0",
            "-1",
            "+3",
            " 3",
            "007",
            "*",
            "a.*",
            "a.b",
            "../x",
            "a/b",
            "a=b",
            "a\n",
            "a\tb",
            "a\u{202e}b",
            "a\u{301}",
            "A",
            "a_b",
            "a\0",
            long.as_str(),
        ] {
            assert_eq!(ServerId::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert!(ServerId::parse("a".repeat(32).as_bytes()).is_some());
        assert!(ServerId::parse(b"mcp-0").is_some());
    }

    #[test]
    fn jail_names_that_strtoul_takes_for_a_jid_are_refused() {
        for bad in [
            "", "0", "-1", "+3", " 3", "3", "a.", ".a", "a..b", "a/b", "*", "a=b", "a b", "a.3",
            "a\n",
        ] {
            assert_eq!(JailName::parse(bad), None, "{bad:?}");
        }
        assert!(JailName::parse("build0").is_some());
        assert!(JailName::parse("outer.inner").is_some());
        assert!(JailName::parse(&"a".repeat(64)).is_none());
    }

    #[test]
    fn marks_lead_back_to_their_session() {
        let session = SessionId::parse(b"0123456789abcdef").unwrap();
        assert_eq!(session.mark(), "colibri-0123456789abcdef");
        assert_eq!(SessionId::from_mark(&session.mark()), Some(session));
        assert_eq!(SessionId::from_mark("colibri-0123456789abcdeF"), None);
        assert_eq!(SessionId::from_mark("0123456789abcdef"), None);
    }

    #[test]
    fn plain_paths() {
        for bad in [
            "", "/", "a", "a/b", "//a", "/a/", "/a//b", "/a/./b", "/a/../b", "/..", "/a\nb", "/a\0",
        ] {
            assert!(!is_plain_path(bad), "{bad:?}");
        }
        for good in [
            "/a",
            "/usr/local/libexec/colibri/roots/mcp0",
            "/a/..b",
            "/a b",
        ] {
            assert!(is_plain_path(good), "{good:?}");
        }
        assert!(is_at_or_below("/a/b", "/a"));
        assert!(is_at_or_below("/a", "/a"));
        assert!(!is_at_or_below("/ab", "/a"));
    }

    proptest! {
        #[test]
        fn an_accepted_id_is_made_of_its_alphabet(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(id) = ServerId::parse(&bytes) {
                prop_assert_eq!(id.as_str().as_bytes(), &bytes[..]);
                prop_assert!(id.as_str().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            }
        }

        #[test]
        fn an_accepted_path_has_no_way_up(path in "[/.a\\n]{0,12}") {
            if is_plain_path(&path) {
                prop_assert!(path.starts_with('/') && !path.contains("//") && !path.ends_with('/'));
                prop_assert!(!path.split('/').any(|p| p == "." || p == ".."));
            }
        }
    }
}
