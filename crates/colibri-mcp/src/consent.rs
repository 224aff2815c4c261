//! `consent.json`: what the one user of a private daemon agreed to.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use colibri_files::replace_file;
use serde::{Deserialize, Serialize};

use crate::failure::CommandError;
use crate::owned_file::OwnedFile;

/// The gate of tasks and agents, as the file names it.
const WRITE: &str = "write";

/// The file's content.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConsentFile {
    /// The entries of the registry as they were agreed to: by id, the SHA-256 of each.
    #[serde(default)]
    pub servers: BTreeMap<String, String>,
    /// Those of entries that the registry is about to have, while `update` writes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next: BTreeMap<String, String>,
    /// The gates that the user opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gates: Vec<String>,
}

impl ConsentFile {
    /// Reads the text of the file; an empty one says nothing.
    ///
    /// # Errors
    /// It is not what this program writes.
    pub(crate) fn parse(text: &str) -> serde_json::Result<ConsentFile> {
        match text {
            "" => Ok(ConsentFile::default()),
            text => serde_json::from_str(text),
        }
    }

    /// Reads the file; one that is not there says nothing.
    ///
    /// # Errors
    /// It cannot be read, or is not what this program writes.
    pub(crate) fn read(path: &Path) -> Result<ConsentFile, CommandError> {
        ConsentFile::parse(OwnedFile::read(path)?.text()).map_err(|error| {
            CommandError::Data(format!(
                "{}: {error}; take the file away, then agree to your servers again: colibri-mcp server enable NAME",
                path.display()
            ))
        })
    }

    /// True if the user turned tasks and agents on.
    pub(crate) fn opens_write(&self) -> bool {
        self.gates.iter().any(|gate| gate == WRITE)
    }

    /// Switches tasks and agents on, or off.
    pub(crate) fn set_write(&mut self, open: bool) {
        self.gates.retain(|gate| gate != WRITE);
        if open {
            self.gates.push(WRITE.to_owned());
        }
    }

    /// Puts this in the place of the file at `path`, for its user alone, in one step; where it says
    /// nothing, the file goes.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        if *self == ConsentFile::default() {
            return match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let text = format!("{}\n", serde_json::to_string_pretty(self)?);
        replace_file(path, text.as_bytes(), 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_write_gate_stands_beside_the_entries_and_goes_with_them() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state/consent.json");
        let read = || ConsentFile::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut consent = ConsentFile::default();
        consent.write(&path).unwrap();
        assert!(!path.exists());
        consent.set_write(true);
        consent.set_write(true);
        consent.write(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(read().opens_write() && read() == consent);
        consent.servers.insert("git".to_owned(), "00".to_owned());
        consent.set_write(false);
        consent.write(&path).unwrap();
        assert!(!read().opens_write() && read().servers.len() == 1);
        assert_eq!(ConsentFile::parse("").unwrap(), ConsentFile::default());
        assert!(ConsentFile::parse(r#"{"servers":7}"#).is_err());
        ConsentFile::default().write(&path).unwrap();
        assert!(!path.exists());
    }
}
