//! `hosts.json`: the hosts whose rows count on a board that many hosts share, by the keys of their
//! trails, and for which persons.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use colibri_api::is_host_name;
use colibri_json::{Document, DocumentError, ValueCursor};
use colibri_trail::Verifier;

use super::file::{self, FileError};
use super::persons;

/// A host: its key, and the persons for whom it counts, or `*`.
type BoardHost = (Verifier, BTreeSet<String>);

/// The keys of a host's object.
const HOST_KEYS: &[&str] = &["key", "persons"];

/// The hosts of the file, by name.
#[derive(Debug, Default)]
pub struct BoardHosts {
    /// The hosts.
    pub hosts: BTreeMap<String, BoardHost>,
    /// True if there is no file: no other host counts.
    pub is_absent: bool,
}

impl BoardHosts {
    /// Reads the file at `path`. Without one no other host counts.
    ///
    /// # Errors
    /// An unsafe or unreadable file, or wrong contents.
    pub fn read(path: &Path) -> Result<BoardHosts, FileError> {
        match file::read(path, colibri_json::MAX_BYTES, false)? {
            Some(found) => Ok(BoardHosts::parse(&found.content, &path.to_string_lossy())?),
            None => Ok(BoardHosts {
                is_absent: true,
                ..BoardHosts::default()
            }),
        }
    }

    /// Reads the contents of a file; `file` is the name that errors give.
    ///
    /// # Errors
    /// The first thing that is wrong: whatever [`Document::parse`] refuses, an unknown key, a name
    /// that no host has, two hosts with one key.
    pub fn parse(bytes: &[u8], file: &str) -> Result<BoardHosts, DocumentError> {
        let document = Document::parse(bytes, file)?;
        let root = document.root().object(&["hosts"])?;
        let mut hosts: BTreeMap<String, BoardHost> = BTreeMap::new();
        for member in root.need("hosts")?.members()? {
            if !is_host_name(member.key) {
                return Err(member.key_error(
                    "must be a host's name: 1 to 64 letters, digits, dots and hyphens, with a letter or digit first",
                ));
            }
            let object = member.value.object(HOST_KEYS)?;
            let key = verifier(object.need("key")?)?;
            if let Some((other, _)) = hosts.iter().find(|(_, (known, _))| *known == key) {
                return Err(
                    member.key_error(format!("has the key of {other}: each host has its own"))
                );
            }
            let persons = object.need("persons")?.array()?;
            let persons = persons.iter().map(person).collect::<Result<_, _>>()?;
            hosts.insert(member.key.to_owned(), (key, persons));
        }
        Ok(BoardHosts {
            hosts,
            is_absent: false,
        })
    }
}

fn verifier(cursor: &ValueCursor<'_>) -> Result<Verifier, DocumentError> {
    cursor.text()?.parse().map_err(|error| {
        cursor.error(format!(
            "{error}; it also stands in trail.pub in that host's state directory"
        ))
    })
}

/// A person's name, an account `user@host`, or `*`.
fn person(cursor: &ValueCursor<'_>) -> Result<String, DocumentError> {
    let text = cursor.text()?;
    let is_account = || {
        text.split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && is_host_name(host))
    };
    match text == "*" || is_account() {
        true => Ok(text.to_owned()),
        false => persons::name(cursor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";

    fn parse(text: &str) -> Result<BoardHosts, String> {
        let text = text.replace("KEY", KEY);
        BoardHosts::parse(text.as_bytes(), "hosts.json").map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_says_which_keys_count_for_whom() {
        let text = r#"{"hosts":{"build1":{"key":"KEY","persons":["ana","root@build1","*"]}}}"#;
        let hosts = parse(text).unwrap().hosts;
        let (key, persons) = &hosts["build1"];
        assert_eq!((key.to_string().as_str(), persons.len()), (KEY, 3));
        assert!(parse(r#"{"hosts":{}}"#).unwrap().hosts.is_empty());
    }

    #[test]
    fn mistakes_are_named_in_their_place() {
        for (text, message) in [
            ("{}", "hosts"),
            (r#"{"host":{}}"#, "did you mean \"hosts\"?"),
            (r#"{"hosts":[]}"#, "must be an object"),
            (
                r#"{"hosts":{"a_b":{"key":"KEY","persons":[]}}}"#,
                "must be a host's name",
            ),
            (r#"{"hosts":{"a":{"persons":[]}}}"#, "key"),
            (r#"{"hosts":{"a":{"key":"KEY"}}}"#, "persons"),
            (
                r#"{"hosts":{"a":{"key":"KEY","person":[]}}}"#,
                "did you mean \"persons\"?",
            ),
            (
                r#"{"hosts":{"a":{"key":"7f","persons":[]}}}"#,
                "trail.pub in that host's",
            ),
            (
                r#"{"hosts":{"a":{"key":"KEY","persons":"*"}}}"#,
                "must be an array",
            ),
            (
                r#"{"hosts":{"a":{"key":"KEY","persons":["a b"]}}}"#,
                "must be 1 to 64 letters",
            ),
            (
                r#"{"hosts":{"a":{"key":"KEY","persons":["@a"]}}}"#,
                "must be 1 to 64 letters",
            ),
            (
                r#"{"hosts":{"a":{"key":"KEY","persons":[]},"b":{"key":"KEY","persons":[]}}}"#,
                "has the key of a",
            ),
            (
                r#"{"hosts":{"a":{"key":"KEY","persons":[]},"a":{"key":"KEY","persons":[]}}}"#,
                "stands twice",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains(message) && error.starts_with("hosts.json:1:"),
                "{error}"
            );
        }
        assert!(
            BoardHosts::read(Path::new("/nowhere/hosts.json"))
                .unwrap()
                .is_absent
        );
    }
}
