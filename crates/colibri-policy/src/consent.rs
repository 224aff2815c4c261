//! `consent.json`: the entries of the registry that the one user of a private daemon agreed to,
//! each by the SHA-256 of its bytes, and the gates that the user opened. An entry that was changed
//! since is another one.

use std::collections::BTreeMap;
use std::path::Path;

use colibri_json::{Document, DocumentError, ValueCursor};

use super::file::{self, FileError};

/// The user's agreements.
#[derive(Debug, Default)]
pub struct UserConsent {
    digests: BTreeMap<String, String>,
    write: bool,
    /// Of entries that the registry is about to have, while `colibri-mcp update` writes them.
    next: BTreeMap<String, String>,
}

impl UserConsent {
    /// Reads the file at `path`. Without one, the user agreed to nothing.
    ///
    /// # Errors
    /// An unsafe or unreadable file, or wrong contents.
    pub fn read(path: &Path) -> Result<UserConsent, FileError> {
        let Some(found) = file::read(path, colibri_json::MAX_BYTES, false)? else {
            return Ok(UserConsent::default());
        };
        let name = path.to_string_lossy();
        let document = Document::parse(&found.content, &name)?;
        let root = document.root().object(&["servers", "gates", "next"])?;
        let mut write = false;
        for gate in root.read("gates", ValueCursor::array)?.unwrap_or_default() {
            match gate.string()? {
                "write" => write = true,
                _ => return Err(gate.error("must be write").into()),
            }
        }
        let read = |key: &str| {
            let members = root.read(key, ValueCursor::members)?.unwrap_or_default();
            let members = members.iter();
            members
                .map(|member| Ok((member.key.to_owned(), member.value.string()?.to_owned())))
                .collect::<Result<_, DocumentError>>()
        };
        Ok(UserConsent {
            digests: read("servers")?,
            next: read("next")?,
            write,
        })
    }

    /// True if the user opened the write gate: tasks and agents.
    pub fn opens_write(&self) -> bool {
        self.write
    }

    /// The reason for which an entry with this digest is not served; `None`: the user agreed to it.
    pub fn refusal(&self, server: &str, digest: &str) -> Option<String> {
        let why = match self.digests.get(server) {
            Some(agreed) if agreed == digest => return None,
            Some(_) if self.next.get(server).is_some_and(|next| next == digest) => return None,
            Some(_) => "its entry was changed since you agreed to it",
            None => "you have not agreed to its entry yet",
        };
        Some(format!(
            "{why}: look at it, then colibri-mcp server enable {server}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn an_entry_is_served_as_it_was_agreed_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("consent.json");
        let none = UserConsent::read(&path).unwrap();
        assert!(
            none.refusal("git", "00")
                .unwrap()
                .contains("colibri-mcp server enable git")
        );
        std::fs::write(&path, r#"{"servers":{"git":"00"}}"#).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let consent = UserConsent::read(&path).unwrap();
        assert_eq!(consent.refusal("git", "00"), None);
        assert!(
            consent
                .refusal("git", "01")
                .unwrap()
                .contains("was changed")
        );
        assert!(
            consent
                .refusal("other", "00")
                .unwrap()
                .contains("have not agreed")
        );
        std::fs::write(&path, r#"{"servers":{"git":"00"},"next":{"git":"01"}}"#).unwrap();
        let consent = UserConsent::read(&path).unwrap();
        for (server, digest, is_agreed) in [
            ("git", "00", true),
            ("git", "01", true),
            ("git", "02", false),
        ] {
            assert_eq!(
                consent.refusal(server, digest).is_none(),
                is_agreed,
                "{server} {digest}"
            );
        }
        for (text, opens) in [
            (r#"{"gates":["write"]}"#, true),
            (r#"{"gates":[],"servers":{}}"#, false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(
                UserConsent::read(&path).unwrap().opens_write(),
                opens,
                "{text}"
            );
        }
        assert!(!consent.opens_write() && !none.opens_write());
        for bad in [
            r#"{"servers":{"git":1}}"#,
            r#"{"server":{}}"#,
            "[]",
            r#"{"gates":"write"}"#,
            r#"{"gates":["external-call"]}"#,
            r#"{"gates":[true]}"#,
        ] {
            std::fs::write(&path, bad).unwrap();
            assert!(UserConsent::read(&path).is_err(), "{bad}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o622)).unwrap();
        assert!(
            UserConsent::read(&path)
                .unwrap_err()
                .to_string()
                .contains("0622")
        );
    }
}
