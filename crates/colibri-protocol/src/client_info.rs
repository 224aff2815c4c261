//! The name and version that a client declares of itself.

use std::fmt;
use std::sync::Arc;

use colibri_text::label;
use colibri_wire::Json;

/// The most bytes of a name, and of a version.
const MAX: usize = 128;

/// The name and version that a client declares of itself (`Implementation`): its own claim, for
/// records and sums, never for decisions. Both are labels of 128 bytes at most ([`label`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// The name, which is not empty.
    pub name: Arc<str>,
    /// The version; empty: it declares none.
    pub version: Box<str>,
}

impl ClientInfo {
    /// Reads an `Implementation`. `None`: it has no name.
    pub fn read(info: Json<'_>) -> Option<ClientInfo> {
        let text = |key| Some(label(&info.get(key)?.as_str()?, MAX));
        let name = text("name").filter(|name| !name.is_empty())?.into();
        let version = text("version").unwrap_or_default().into();
        Some(ClientInfo { name, version })
    }
}

impl fmt::Display for ClientInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.version {
            "" => f.write_str(&self.name),
            version => write!(f, "{} {version}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_in_tests::json;

    fn read(text: &str) -> Option<String> {
        ClientInfo::read(json(text)).map(|info| info.to_string())
    }

    #[test]
    fn a_client_is_its_name_and_its_version() {
        for (text, expected) in [
            (
                r#"{"name":"claude-code","version":"2.1.0"}"#,
                Some("claude-code 2.1.0"),
            ),
            (
                r#"{"name":"Visual Studio Code","title":"x"}"#,
                Some("Visual Studio Code"),
            ),
            (r#"{"name":"x","version":7}"#, Some("x")),
            (r#"{"name":"","version":"1"}"#, None),
            (r#"{"name":" \t ","version":"1"}"#, None),
            (r#"{"name":["x"]}"#, None),
            (r#"{"version":"1"}"#, None),
            ("{}", None),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_hostile_name_is_bounded() {
        let (name, version) = ("é".repeat(1 << 20), "\\u202e".repeat(99));
        let long = format!(r#"{{"name":"{name}","version":"{version}"}}"#);
        let info = ClientInfo::read(json(&long)).unwrap();
        assert_eq!(
            (&*info.name, &*info.version),
            (&*"é".repeat(64), &*"\\u{202e}".repeat(16))
        );
        let lines = r#"{"name":"a\r\n   7  exit","version":"1"}"#;
        assert_eq!(read(lines).as_deref(), Some("a 7 exit 1"));
    }
}
