//! The bridge in place of the servers in an editor's own file, and the way back.

use std::path::{Path, PathBuf};

use super::bridge_command::BridgeCommand;
use super::editor::Editor;
use crate::commands::context::CommandContext;
use crate::failure::CommandError;
use crate::owned_file::OwnedFile;
use colibri_mcp::edit::{FileFormat, Value, writable};
use colibri_mcp::importers::{self, EntryKeys, ImportSource, Proposal};
use colibri_text::visible;

/// An editor's file whose servers are to be moved out of it.
#[derive(Debug)]
pub(crate) struct Replacement {
    editor: Editor,
    source: ImportSource,
    path: PathBuf,
    file: OwnedFile,
    bridge: Value,
}

/// The outcome of a replacement.
#[derive(Debug)]
pub(crate) struct ReplacementOutcome {
    /// The editor's file.
    pub path: PathBuf,
    /// The stored original.
    pub original: Option<PathBuf>,
    /// The outcome in words.
    pub text: String,
}

impl Replacement {
    /// Reads the file of an editor.
    ///
    /// # Errors
    /// The source is no editor's, or the file cannot be read.
    pub(crate) fn open(
        source: ImportSource,
        context: &CommandContext,
    ) -> Result<Replacement, CommandError> {
        let editor = Editor::of(source).ok_or_else(|| {
            CommandError::Usage(format!(
                "--replace puts the bridge into an editor's own file, and {} is no editor",
                source.name()
            ))
        })?;
        let path = editor.user_file();
        Ok(Replacement {
            editor,
            source,
            file: OwnedFile::read(&path)?,
            bridge: editor.entry(&BridgeCommand::of(context, None)?),
            path,
        })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The servers in the file.
    ///
    /// # Errors
    /// It cannot be read as the editor's, or another program stands where the bridge would.
    pub(crate) fn proposals(&self) -> Result<Vec<Proposal>, CommandError> {
        if !self.file.exists() {
            return Err(CommandError::Data(format!(
                "{} has no settings here: there is no {}; nothing was written",
                self.editor.name(),
                self.shown_path()
            )));
        }
        let found = importers::read(Some(self.source), &self.path, self.file.text());
        let (_, found) = found.map_err(|why| {
            CommandError::Data(format!(
                "{}: {why:#}; nothing was written",
                self.shown_path()
            ))
        })?;
        let bridge = self.editor.keys();
        if let Some(other) = found
            .iter()
            .find(|one| one.keys == bridge && !one.is_colibri())
        {
            return Err(CommandError::Data(format!(
                "{} has another program as its server {}, where the bridge would be: give it another name there first; \
                 nothing was written",
                self.shown_path(),
                visible(&other.name)
            )));
        }
        Ok(found)
    }

    /// The part of the question that is about the file: the entries that go, those that stay, each
    /// with the reason, and the lines that hold one of these secrets nevertheless.
    ///
    /// # Errors
    /// The file could not be written so.
    pub(crate) fn announcement(
        &self,
        moved: &[EntryKeys],
        refused: &[(String, String)],
        secrets: &[&str],
    ) -> Result<String, CommandError> {
        let mut lines = vec![
            format!("{}: {}", self.editor.name(), self.shown_path()),
            format!("  out go    {}", entry_names(moved)),
            "  in comes  colibri, the bridge to all of them".to_owned(),
        ];
        let (entries, _) = keys_in(self.source, self.file.text())?;
        for keys in entries {
            if moved.contains(&keys) || keys == self.editor.keys() {
                continue;
            }
            let reason = refused.iter().find(|(name, _)| Some(name) == keys.last());
            let reason = reason.map_or("it was not named, or is a bridge itself", |(_, why)| why);
            lines.push(format!(
                "  stays     {}: {}",
                entry_name(&keys),
                visible(reason)
            ));
        }
        let text = self.text_without(moved)?;
        for (number, line) in text.lines().enumerate() {
            if secrets.iter().any(|secret| line.contains(secret)) {
                lines.push(format!(
                    "  note      line {} of the new file still has one of their secrets: a comment, or an entry that stays",
                    number + 1
                ));
            }
        }
        lines.push(format!(
            "  undo      colibri-mcp connect {} --remove gives the file back with its entries",
            self.source.name()
        ));
        Ok(lines.join("\n"))
    }

    /// Says that these entries stay in the file.
    pub(crate) fn staying(&self, entries: &[EntryKeys]) -> String {
        let names = entry_names(entries);
        format!(
            "Still in {}, since it does not start here: {names}",
            self.shown_path()
        )
    }

    /// Takes these entries out and puts the bridge in. The registry and all it names must have been
    /// written.
    ///
    /// # Errors
    /// The file cannot be written, or another program changed it meanwhile. Then it is as it was.
    pub(crate) fn write(self, moved: &[EntryKeys]) -> Result<ReplacementOutcome, CommandError> {
        let text = self.text_without(moved)?;
        let original = match original_text(self.editor, &self.file)? {
            Some(original) => original,
            None => {
                let keys = self.editor.keys();
                let original = self.file.text_without(self.editor.kind(), &keys)?;
                original.unwrap_or_default()
            }
        };
        // The editor may depend on what was installed from here on: first all of it is on the disk.
        nix::unistd::sync();
        let shown = self.shown_path();
        let Replacement {
            editor,
            source,
            path,
            file,
            ..
        } = self;
        let original = file.changed_to(text).storing_original(original).write()?;
        let (editors, names) = (editor.name(), entry_names(moved));
        let mut text = format!("{editors} starts colibri-mcp in place of {names}: {shown}");
        if let Some(original) = &original {
            text.push_str(&format!(
                "\nAs it was, with the secrets, for you alone (0600): {}\n`colibri-mcp connect {} --remove` gives it back.",
                visible(&original.display().to_string()),
                source.name()
            ));
        }
        text.push_str(&format!("\n{}", editor.afterwards()));
        Ok(ReplacementOutcome {
            path,
            original,
            text,
        })
    }

    /// The file with the bridge and without these entries.
    fn text_without(&self, moved: &[EntryKeys]) -> Result<String, CommandError> {
        let fault = |fault| self.file.fault(fault);
        let kind = self.editor.kind();
        let mut text = kind
            .set(self.file.text(), &self.editor.keys(), &self.bridge)
            .map_err(fault)?;
        for keys in moved {
            text = remove(kind, &text, keys).map_err(fault)?;
        }
        let (left, inputs) = keys_in(self.source, &text)?;
        // Inputs serve servers alone, and their defaults may be secrets.
        if let Some(inputs) = inputs.filter(|_| left == [self.editor.keys()]) {
            text = remove(kind, &text, &inputs).map_err(fault)?;
        }
        Ok(text)
    }

    fn shown_path(&self) -> String {
        visible(&self.path.display().to_string()).into_owned()
    }
}

/// The text that takes back a replacement: the original, byte for byte where nothing else changed
/// since; else the file as it is, without the bridge and with the entries that are missing in it.
/// `None`: no original is stored.
///
/// # Errors
/// One of the texts cannot be read as the editor's.
pub(super) fn original_text(
    editor: Editor,
    file: &OwnedFile,
) -> Result<Option<String>, CommandError> {
    let (Some(original), Some(source)) = (file.original(), editor.source()) else {
        return Ok(None);
    };
    let fault = |fault| file.fault(fault);
    let (kind, bridge) = (editor.kind(), editor.keys());
    let now = file.text();
    let (entries, inputs) = keys_in(source, &original)?;
    // What a replacement would make of the original now.
    let entry = kind.get(now, &bridge).map_err(fault)?.unwrap_or_default();
    let mut expected = kind
        .set(&original, &bridge, &writable(&entry))
        .map_err(fault)?;
    let mut missing = Vec::new();
    for keys in entries.into_iter().chain(inputs) {
        let path: Vec<&str> = keys.iter().map(String::as_str).collect();
        if kind.get(now, &path).map_err(fault)?.is_none() {
            expected = remove(kind, &expected, &keys).map_err(fault)?;
            missing.push(keys);
        }
    }
    if original == now || kind.differ_only_at(&expected, now, &bridge) {
        return Ok(Some(original));
    }
    let mut text = kind.remove(now, &bridge).map_err(fault)?;
    for keys in missing {
        let path: Vec<&str> = keys.iter().map(String::as_str).collect();
        if let Some(entry) = kind.get(&original, &path).map_err(fault)? {
            text = kind.set(&text, &path, &writable(&entry)).map_err(fault)?;
        }
    }
    Ok(Some(text))
}

fn keys_in(
    source: ImportSource,
    text: &str,
) -> Result<(Vec<EntryKeys>, Option<EntryKeys>), CommandError> {
    importers::entry_keys(source, text).map_err(|why| {
        CommandError::Data(format!(
            "the file of {}: {why:#}; nothing was written",
            source.name()
        ))
    })
}

fn remove(
    kind: FileFormat,
    text: &str,
    keys: &[String],
) -> Result<String, colibri_mcp::edit::TextError> {
    let path: Vec<&str> = keys.iter().map(String::as_str).collect();
    kind.remove(text, &path)
}

fn entry_names(entries: &[EntryKeys]) -> String {
    let names: Vec<String> = entries.iter().map(|keys| entry_name(keys)).collect();
    names.join(", ")
}

/// The name of an entry, for people: with the project that it is of.
fn entry_name(keys: &[String]) -> String {
    let name = keys
        .last()
        .map(|name| visible(name).into_owned())
        .unwrap_or_default();
    match keys {
        [first, project, ..] if first == "projects" => format!("{name} (of {})", visible(project)),
        _ => name,
    }
}
