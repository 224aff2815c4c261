//! `colibri-mcp connect EDITOR`: what to put into an editor's settings.
//!
//! The shapes are those of each editor's own documentation: Zed's `context_servers`, and the `mcpServers` that Cursor,
//! Windsurf and Claude Code share (the latter with the transport named).

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Serialize;

use super::context::Context;
use crate::failure::Failure;
use crate::terminal;

/// Which editor, and from where.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The editor
    editor: Editor,
    /// Prints nothing but the JSON
    #[arg(long)]
    print: bool,
    /// For an editor on another machine: reaches this one as HOST through ssh(1)
    #[arg(long, value_name = "HOST")]
    ssh: Option<String>,
}

/// An editor or agent that speaks MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Editor {
    /// Zed
    Zed,
    /// Cursor
    Cursor,
    /// Windsurf
    Windsurf,
    /// Claude Code
    ClaudeCode,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let program = own_path()?;
    let snippet = snippet(arguments.editor, &program, &context.flags()?, arguments.ssh.as_deref())?;
    terminal::print(&if arguments.print || context.json {
        snippet
    } else {
        explained(arguments.editor, &snippet)
    })
}

/// The absolute path of this program, as it will be started.
pub(crate) fn own_path() -> Result<String, Failure> {
    let path = std::env::current_exe()
        .map_err(|error| Failure::Machine(format!("cannot find out where this program is: {error}")))?;
    path.into_os_string().into_string().map_err(|path| {
        Failure::Machine(format!(
            "the path {path:?} is not UTF-8, so no settings file can name it"
        ))
    })
}

/// The JSON that makes an editor start the bridge with these flags.
pub(crate) fn snippet(editor: Editor, program: &str, flags: &[String], ssh: Option<&str>) -> Result<String, Failure> {
    let (command, arguments) = match ssh {
        None => (program, flags.to_vec()),
        // ssh joins its arguments with spaces and the other side's shell splits them again.
        Some(host) if host.starts_with('-') || host.is_empty() => {
            return Err(Failure::Usage(format!("--ssh {host:?}: this is no host name")));
        }
        Some(host) => {
            let words = [program]
                .into_iter()
                .chain(flags.iter().map(String::as_str))
                .map(shell_word);
            (
                "ssh",
                ["-T".to_owned(), host.to_owned()].into_iter().chain(words).collect(),
            )
        }
    };
    let entry = Entry {
        kind: (editor == Editor::ClaudeCode).then_some("stdio"),
        command,
        args: arguments,
        env: (editor == Editor::Zed).then(BTreeMap::new),
    };
    let list = if editor == Editor::Zed {
        "context_servers"
    } else {
        "mcpServers"
    };
    let settings = BTreeMap::from([(list, BTreeMap::from([("colibri", entry)]))]);
    serde_json::to_string_pretty(&settings).map_err(|error| Failure::Machine(error.to_string()))
}

/// A server in an editor's settings, in the order in which people write it.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    command: &'a str,
    args: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<BTreeMap<String, String>>,
}

/// The snippet with a word on where it goes.
pub(crate) fn explained(editor: Editor, snippet: &str) -> String {
    let place = match editor {
        Editor::Zed => "Zed: add this to ~/.config/zed/settings.json (command \"zed: open settings\")",
        Editor::Cursor => "Cursor: add this to ~/.cursor/mcp.json, or to .cursor/mcp.json in a project",
        Editor::Windsurf => "Windsurf: add this to ~/.codeium/windsurf/mcp_config.json, then press refresh",
        Editor::ClaudeCode => "Claude Code: add this to .mcp.json in a project, or to ~/.claude.json for all of them",
    };
    format!("{place}\n\n{snippet}")
}

/// A word as a POSIX shell reads it back unchanged.
fn shell_word(word: &str) -> String {
    if word
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@%".contains(&byte))
    {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn value(editor: Editor, ssh: Option<&str>) -> Value {
        serde_json::from_str(&snippet(editor, "/usr/local/bin/colibri-mcp", &[], ssh).unwrap()).unwrap()
    }

    #[test]
    fn each_editor_gets_its_own_shape() {
        let program = "/usr/local/bin/colibri-mcp";
        assert_eq!(
            value(Editor::Zed, None)["context_servers"]["colibri"]["command"],
            program
        );
        assert_eq!(value(Editor::Cursor, None)["mcpServers"]["colibri"]["command"], program);
        assert_eq!(
            value(Editor::Windsurf, None)["mcpServers"]["colibri"]["args"],
            json!([])
        );
        assert_eq!(
            value(Editor::ClaudeCode, None)["mcpServers"]["colibri"]["type"],
            "stdio"
        );
    }

    #[test]
    fn over_ssh_the_path_is_one_word_and_the_host_no_option() {
        let entry = value(Editor::Cursor, Some("devbox"))["mcpServers"]["colibri"].clone();
        assert_eq!(
            entry,
            json!({"command": "ssh", "args": ["-T", "devbox", "/usr/local/bin/colibri-mcp"]})
        );
        assert_eq!(shell_word("/opt/my tools/it's"), r"'/opt/my tools/it'\''s'");
        assert!(snippet(Editor::Zed, "/x", &[], Some("-oProxyCommand=x")).is_err());
    }

    #[test]
    fn the_flags_that_choose_daemon_and_gates_are_kept() {
        let flags = [
            "--socket".to_owned(),
            "/run/my socket".to_owned(),
            "--read-only".to_owned(),
        ];
        let entry = |ssh| {
            let text = snippet(Editor::Cursor, "/x", &flags, ssh).unwrap();
            serde_json::from_str::<Value>(&text).unwrap()["mcpServers"]["colibri"].clone()
        };
        assert_eq!(entry(None)["args"], json!(flags));
        assert_eq!(
            entry(Some("devbox"))["args"],
            json!(["-T", "devbox", "/x", "--socket", "'/run/my socket'", "--read-only"])
        );
    }
}
