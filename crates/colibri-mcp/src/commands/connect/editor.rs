//! The editors and agents: where each keeps its MCP servers, and in which shape.
//!
//! The facts are those of each program's own documentation; those of Claude Code, Codex, Gemini CLI
//! and OpenCode were seen in the files that the programs write themselves.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use jsonc_parser::json;

use super::bridge_command::BridgeCommand;
use crate::failure::CommandError;
use colibri_api::paths;
use colibri_mcp::edit::{FileFormat, Value};
use colibri_mcp::importers::{Homes, ImportSource};

/// An editor or agent that speaks MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Editor {
    /// Zed
    Zed,
    /// Cursor
    Cursor,
    /// Windsurf
    Windsurf,
    /// Visual Studio Code
    Vscode,
    /// Claude Code
    ClaudeCode,
    /// Claude Desktop
    ClaudeDesktop,
    /// Codex
    Codex,
    /// Gemini CLI
    #[value(alias = "gemini-cli")]
    Gemini,
    /// OpenCode
    Opencode,
}

impl Editor {
    /// The name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Editor::Zed => "Zed",
            Editor::Cursor => "Cursor",
            Editor::Windsurf => "Windsurf",
            Editor::Vscode => "VS Code",
            Editor::ClaudeCode => "Claude Code",
            Editor::ClaudeDesktop => "Claude Desktop",
            Editor::Codex => "Codex",
            Editor::Gemini => "Gemini CLI",
            Editor::Opencode => "OpenCode",
        }
    }

    /// The editor whose file this source is; `None`: it is no editor's.
    pub(crate) fn of(source: ImportSource) -> Option<Editor> {
        Editor::value_variants()
            .iter()
            .copied()
            .find(|editor| editor.source() == Some(source))
    }

    /// Its file as a source of servers.
    pub(super) fn source(self) -> Option<ImportSource> {
        let name = self.to_possible_value()?;
        ImportSource::ALL
            .into_iter()
            .find(|source| source.name() == name.get_name())
    }

    /// The step for the person once the entry is written.
    pub(super) fn afterwards(self) -> &'static str {
        match self {
            Editor::Zed => "Zed takes it over at once (command \"zed: open settings\" shows it).",
            Editor::Cursor => "Cursor takes it over when its window is loaded again.",
            Editor::Windsurf => "Press refresh in its list of MCP servers.",
            Editor::Vscode => "The command \"MCP: List Servers\" shows and starts it.",
            Editor::ClaudeDesktop => "Restart Claude Desktop.",
            Editor::ClaudeCode | Editor::Codex | Editor::Gemini | Editor::Opencode => {
                "A session that is started now has it: /mcp shows it."
            }
        }
    }

    /// The place of its settings, for people.
    pub(super) fn place(self) -> &'static str {
        match self {
            Editor::Zed => "~/.config/zed/settings.json, or to .zed/settings.json in a project",
            Editor::Cursor => "~/.cursor/mcp.json, or to .cursor/mcp.json in a project",
            Editor::Windsurf => "~/.codeium/windsurf/mcp_config.json",
            Editor::Vscode => "~/.config/Code/User/mcp.json, or to .vscode/mcp.json in a project",
            Editor::ClaudeCode => "~/.claude.json, or to .mcp.json in a project",
            Editor::ClaudeDesktop => "~/.config/Claude/claude_desktop_config.json",
            Editor::Codex => "~/.codex/config.toml, or to .codex/config.toml in a project",
            Editor::Gemini => "~/.gemini/settings.json, or to .gemini/settings.json in a project",
            Editor::Opencode => {
                "~/.config/opencode/opencode.json, or to opencode.json in a project"
            }
        }
    }

    /// The user's own file.
    pub(super) fn user_file(self) -> PathBuf {
        self.user_file_in(&Homes::find(paths::home()))
    }

    fn user_file_in(self, homes: &Homes) -> PathBuf {
        let Homes { home, config, .. } = homes;
        match self {
            Editor::Zed => config.join("zed/settings.json"),
            Editor::Cursor => home.join(".cursor/mcp.json"),
            Editor::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
            Editor::Vscode => {
                let editions = ["Code", "Code - OSS", "VSCodium", "Code - Insiders"];
                let mut known = editions.iter().map(|edition| config.join(edition));
                let found = known.find(|edition| edition.is_dir());
                found
                    .unwrap_or_else(|| config.join("Code"))
                    .join("User/mcp.json")
            }
            Editor::ClaudeCode => homes.claude_code.join(".claude.json"),
            Editor::ClaudeDesktop => config.join("Claude/claude_desktop_config.json"),
            Editor::Codex => homes.codex.join("config.toml"),
            Editor::Gemini => home.join(".gemini/settings.json"),
            Editor::Opencode => existing(&config.join("opencode")),
        }
    }

    /// The file of the project in the current directory.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn project_file(self) -> Result<PathBuf, CommandError> {
        let name = match self {
            Editor::Zed => ".zed/settings.json",
            Editor::Cursor => ".cursor/mcp.json",
            Editor::Vscode => ".vscode/mcp.json",
            Editor::ClaudeCode => ".mcp.json",
            Editor::Codex => ".codex/config.toml",
            Editor::Gemini => ".gemini/settings.json",
            Editor::Opencode => return Ok(existing(Path::new(""))),
            Editor::Windsurf | Editor::ClaudeDesktop => {
                let name = self.name();
                return Err(CommandError::Usage(format!(
                    "{name} has one file for all projects: leave --project out"
                )));
            }
        };
        Ok(PathBuf::from(name))
    }

    /// The format of that file.
    pub(super) fn kind(self) -> FileFormat {
        match self {
            Editor::Codex => FileFormat::Toml,
            _ => FileFormat::Json,
        }
    }

    /// The place of the entry in it.
    pub(super) fn keys(self) -> [&'static str; 2] {
        let servers = match self {
            Editor::Zed => "context_servers",
            Editor::Vscode => "servers",
            Editor::Codex => "mcp_servers",
            Editor::Opencode => "mcp",
            _ => "mcpServers",
        };
        [servers, "colibri"]
    }

    /// The entry, in the order in which people write it.
    pub(super) fn entry(self, bridge: &BridgeCommand) -> Value {
        let command = Value::from(bridge.command.as_str());
        let arguments = bridge
            .arguments
            .iter()
            .map(|argument| argument.as_str().into())
            .collect();
        let environment = bridge
            .environment
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()));
        let environment = Value::Object(environment.collect());
        let mut members = match self {
            Editor::Opencode => {
                let mut words = vec![command];
                words.extend::<Vec<Value>>(arguments);
                vec![
                    ("type", json!("local")),
                    ("command", Value::Array(words)),
                    ("enabled", json!(true)),
                ]
            }
            Editor::ClaudeCode | Editor::Vscode => {
                vec![
                    ("type", json!("stdio")),
                    ("command", command),
                    ("args", Value::Array(arguments)),
                ]
            }
            _ => vec![("command", command), ("args", Value::Array(arguments))],
        };
        if !bridge.environment.is_empty() || self == Editor::Zed {
            let name = if self == Editor::Opencode {
                "environment"
            } else {
                "env"
            };
            members.push((name, environment));
        }
        Value::Object(
            members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }
}

/// OpenCode's file in a directory: the one that is there, with comments or without.
fn existing(directory: &Path) -> PathBuf {
    let with_comments = directory.join("opencode.jsonc");
    if with_comments.exists() {
        with_comments
    } else {
        directory.join("opencode.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_where_its_program_looks() {
        let directory = tempfile::tempdir().unwrap();
        let homes = Homes::of(directory.path().join("home"), |_| None);
        let file = |editor: Editor| editor.user_file_in(&homes);
        for editor in Editor::value_variants() {
            let path = file(*editor);
            assert!(path.is_absolute(), "{editor:?}");
            // The place that people are told ends in the same name.
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(editor.place().contains(name), "{editor:?}");
            assert_eq!(editor.source().and_then(Editor::of), Some(*editor));
        }
        let open = homes.config.join("opencode");
        std::fs::create_dir_all(&open).unwrap();
        std::fs::write(open.join("opencode.jsonc"), "{}").unwrap();
        assert_eq!(file(Editor::Opencode), open.join("opencode.jsonc"));
        std::fs::create_dir_all(homes.config.join("VSCodium")).unwrap();
        assert_eq!(
            file(Editor::Vscode),
            homes.config.join("VSCodium/User/mcp.json")
        );
        let chosen = Homes::of("/h".into(), |name| {
            Some(PathBuf::from(format!("/x/{name}")))
        });
        for (editor, path) in [
            (Editor::Codex, "/x/CODEX_HOME/config.toml"),
            (Editor::ClaudeCode, "/x/CLAUDE_CONFIG_DIR/.claude.json"),
            (Editor::Cursor, "/x/HOME/.cursor/mcp.json"),
            (Editor::Zed, "/x/XDG_CONFIG_HOME/zed/settings.json"),
        ] {
            assert_eq!(editor.user_file_in(&chosen), Path::new(path));
        }
        assert_eq!(
            Homes::of("/h".into(), |_| Some("relative".into())).home,
            Path::new("/h")
        );
        assert!(Editor::Windsurf.project_file().is_err());
    }
}
