//! `colibri-mcp connect EDITOR`: the entry in an editor's own settings that makes it start the
//! bridge.

mod bridge_command;
mod editor;
mod replacement;
mod settings;

pub(crate) use bridge_command::{BridgeCommand, own_path};
pub(crate) use editor::Editor;
pub(crate) use replacement::Replacement;
pub(crate) use settings::{EditorSettings, editor_settings};

use super::context::CommandContext;
use crate::failure::CommandError;
use crate::owned_file::{OwnedFile, agree};
use crate::terminal;
use colibri_text::visible;
use serde_json::json;

/// The editor, and the project directory.
#[derive(Debug, clap::Args)]
pub(crate) struct ConnectArguments {
    /// The editor
    editor: Editor,
    /// Prints nothing but the entry, and writes nothing
    #[arg(long)]
    print: bool,
    /// Takes the entry out again
    #[arg(long, conflicts_with = "print")]
    remove: bool,
    /// Uses the file of the project in the current directory, not the user's own
    #[arg(long)]
    project: bool,
    /// Writes without asking
    #[arg(long)]
    yes: bool,
    /// For an editor on another machine, which reaches this one as HOST through ssh(1): shows the
    /// entry for it
    #[arg(long, value_name = "HOST", conflicts_with_all = ["remove", "project", "yes"])]
    ssh: Option<String>,
}

/// Runs the command.
pub(crate) fn run(
    arguments: &ConnectArguments,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let editor = arguments.editor;
    let bridge = BridgeCommand::of(context, arguments.ssh.as_deref())?;
    let snippet = snippet(editor, &bridge)?;
    if arguments.print {
        return terminal::print(&snippet);
    }
    if arguments.ssh.is_some() {
        return terminal::print(&explained(editor, &snippet));
    }
    let (path, file) = if arguments.project {
        let path = editor.project_file()?;
        let directory = std::env::current_dir()
            .and_then(|directory| directory.canonicalize())
            .map_err(|error| {
                CommandError::Machine(format!("cannot find out which directory this is: {error}"))
            })?;
        let file = OwnedFile::read_in_project(&directory, &path)?;
        (path, file)
    } else {
        let path = editor.user_file();
        let file = OwnedFile::read(&path)?;
        (path, file)
    };
    let (kind, keys) = (editor.kind(), editor.keys());
    let change = if arguments.remove {
        match replacement::original_text(editor, &file)? {
            Some(text) => file.changed_to(text).releasing_original(),
            None => file.without(kind, &keys)?,
        }
    } else {
        let text = kind.set(file.text(), &keys, &editor.entry(&bridge));
        let text = text.map_err(|fault| file.fault(fault))?;
        file.changed_to(text)
    };
    let shown = visible(&path.display().to_string()).into_owned();
    if change.is_empty() {
        let how = if arguments.remove {
            "has no entry for Colibri"
        } else {
            "has this entry already"
        };
        let facts = json!({ "file": path, "changed": false });
        return context.answer(&facts, &format!("{shown} {how}: nothing was written."));
    }
    context.tell(change.diff().trim_end())?;
    agree("Write this?", arguments.yes)?;
    let kept = change.write()?;
    let facts = json!({ "file": path, "changed": true, "backup": kept });
    let what = if arguments.remove {
        "no longer starts"
    } else {
        "starts"
    };
    let mut text = format!("{} {what} colibri-mcp: {shown}", editor.name());
    if let Some(kept) = kept {
        text.push_str(&format!(
            "\nAs it was: {}",
            visible(&kept.display().to_string())
        ));
    }
    if !arguments.remove {
        text.push_str(&format!("\n{}", editor.afterwards()));
    }
    context.answer(&facts, &text)
}

/// The settings that make an editor start the bridge, and nothing else.
pub(crate) fn snippet(editor: Editor, bridge: &BridgeCommand) -> Result<String, CommandError> {
    let text = editor.kind().set("", &editor.keys(), &editor.entry(bridge));
    let text = text.map_err(|fault| {
        CommandError::Machine(format!("the entry cannot be written: {fault:?}"))
    })?;
    Ok(text.trim_end().to_owned())
}

/// The snippet with a word on where it goes.
pub(crate) fn explained(editor: Editor, snippet: &str) -> String {
    format!(
        "{}: add this to {}\n\n{snippet}",
        editor.name(),
        editor.place()
    )
}

#[cfg(test)]
mod tests {
    use super::bridge_command::{own_directories, shell_word};
    use super::*;
    use serde_json::{Value, json};

    const PROGRAM: &str = "/usr/local/bin/colibri-mcp";

    fn bridge(arguments: &[&str]) -> BridgeCommand {
        BridgeCommand {
            command: PROGRAM.to_owned(),
            arguments: arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
            environment: Vec::new(),
        }
    }

    fn value(editor: Editor, bridge: &BridgeCommand) -> Value {
        let text = snippet(editor, bridge).unwrap();
        editor.kind().get(&text, &editor.keys()).unwrap().unwrap()
    }

    #[test]
    fn each_editor_gets_its_own_shape() {
        let plain = bridge(&["--read-only"]);
        let usual = json!({ "command": PROGRAM, "args": ["--read-only"] });
        for editor in [
            Editor::Cursor,
            Editor::Windsurf,
            Editor::ClaudeDesktop,
            Editor::Codex,
            Editor::Gemini,
        ] {
            assert_eq!(value(editor, &plain), usual, "{editor:?}");
        }
        for editor in [Editor::ClaudeCode, Editor::Vscode] {
            assert_eq!(value(editor, &plain)["type"], "stdio", "{editor:?}");
        }
        assert_eq!(value(Editor::Zed, &plain)["env"], json!({}));
        assert_eq!(
            value(Editor::Opencode, &plain),
            json!({ "type": "local", "command": [PROGRAM, "--read-only"], "enabled": true })
        );
        let text = snippet(Editor::Codex, &plain).unwrap();
        assert_eq!(
            text,
            format!("[mcp_servers.colibri]\ncommand = \"{PROGRAM}\"\nargs = [\"--read-only\"]")
        );
        let text = snippet(Editor::Vscode, &plain).unwrap();
        assert!(
            text.starts_with(
                "{\n  \"servers\": {\n    \"colibri\": {\n      \"type\": \"stdio\",\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn where_ones_own_daemon_is_goes_with_the_entry() {
        let set = |name: &str| match name {
            "XDG_STATE_HOME" => Some("/home/u/state".to_owned()),
            "XDG_CONFIG_HOME" => Some("relative".to_owned()),
            _ => None,
        };
        let mut own = bridge(&[]);
        own.environment = own_directories(set);
        let environment = json!({ "XDG_STATE_HOME": "/home/u/state" });
        assert_eq!(value(Editor::Codex, &own)["env"], environment);
        assert_eq!(value(Editor::Opencode, &own)["environment"], environment);
        assert_eq!(value(Editor::ClaudeCode, &own)["env"], environment);
    }

    #[test]
    fn over_ssh_the_path_is_one_word_and_the_host_no_option() {
        let through = |arguments: &[&str]| {
            value(
                Editor::Cursor,
                &bridge(arguments).through("devbox").unwrap(),
            )
        };
        assert_eq!(
            through(&[]),
            json!({ "command": "ssh", "args": ["-T", "devbox", PROGRAM] })
        );
        assert_eq!(
            through(&["--socket", "/run/my socket", "--read-only"])["args"],
            json!([
                "-T",
                "devbox",
                PROGRAM,
                "--socket",
                "'/run/my socket'",
                "--read-only"
            ])
        );
        assert_eq!(shell_word("/opt/my tools/it's"), r"'/opt/my tools/it'\''s'");
        assert!(bridge(&[]).through("-oProxyCommand=x").is_err());
    }
}
