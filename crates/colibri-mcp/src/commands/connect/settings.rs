//! The settings files of editors as they are: those that start the bridge, and what was kept of
//! them.

use std::path::PathBuf;

use clap::ValueEnum as _;

use super::Editor;
use crate::owned_file::OwnedFile;

/// An editor's own file.
#[derive(Debug)]
pub(crate) struct EditorSettings {
    /// The editor.
    pub editor: Editor,
    /// The word for it on the command line.
    pub word: String,
    /// The file.
    pub path: PathBuf,
    /// True if it starts the bridge, or cannot be read.
    pub starts_bridge: bool,
    /// The backups of it.
    pub backups: Vec<PathBuf>,
}

/// The user's own files of all editors that have one, or of which something was kept.
pub(crate) fn editor_settings() -> Vec<EditorSettings> {
    let one = |editor: &Editor| {
        let path = editor.user_file();
        let (starts_bridge, backups) = match OwnedFile::read(&path) {
            Ok(file) => {
                let entry = editor.kind().get(file.text(), &editor.keys());
                (file.exists() && !matches!(entry, Ok(None)), file.kept())
            }
            // What it says is not known.
            Err(_) => (true, Vec::new()),
        };
        let word = editor.to_possible_value()?.get_name().to_owned();
        let is_there = starts_bridge || !backups.is_empty();
        is_there.then_some(EditorSettings {
            editor: *editor,
            word,
            path,
            starts_bridge,
            backups,
        })
    };
    Editor::value_variants().iter().filter_map(one).collect()
}
