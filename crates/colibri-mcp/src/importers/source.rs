//! The sources of server descriptions, and their content.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::CstRootNode;
use serde_json::{Map, Value};

use super::editors::{self, CLAUDE_DESKTOP, CURSOR, GEMINI, WINDSURF, mcp_servers};
use super::entry::at;
use super::proposal::{EntryKeys, Proposal};
use super::{bridge_toml, codex, mcp_remote, opencode, server_json, vscode, zed};

/// The most bytes of a file: Claude Code's grows with its history.
const MAX_BYTES: usize = 32 << 20;

/// The depth to which a TOML file may be nested when it becomes JSON.
const MAX_DEPTH: usize = 64;

/// The directories of the files of a user's editors, as the editors themselves find them: by the
/// environment first.
pub struct Homes {
    /// `$HOME`
    pub home: PathBuf,
    /// `$XDG_CONFIG_HOME`
    pub config: PathBuf,
    /// `$CLAUDE_CONFIG_DIR`
    pub claude_code: PathBuf,
    /// `$CODEX_HOME`
    pub codex: PathBuf,
}

impl Homes {
    /// Of this user, whose home directory is `home` unless the environment has another.
    pub fn find(home: PathBuf) -> Homes {
        Homes::of(home, |variable| {
            std::env::var_os(variable).map(PathBuf::from)
        })
    }

    /// By these variables.
    pub fn of(home: PathBuf, variable: impl Fn(&str) -> Option<PathBuf>) -> Homes {
        let set = |name| variable(name).filter(|path| path.is_absolute());
        let home = set("HOME").unwrap_or(home);
        Homes {
            config: set("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
            claude_code: set("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.clone()),
            codex: set("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
            home,
        }
    }
}

/// The program whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportSource {
    /// `claude_desktop_config.json`
    ClaudeDesktop,
    /// `~/.claude.json`, `.mcp.json`
    ClaudeCode,
    /// `~/.cursor/mcp.json`
    Cursor,
    /// `~/.codeium/windsurf/mcp_config.json`
    Windsurf,
    /// Zed's `settings.json`
    Zed,
    /// VS Code's `mcp.json`
    VsCode,
    /// `~/.codex/config.toml`
    Codex,
    /// `~/.gemini/settings.json`
    GeminiCli,
    /// `opencode.json`
    OpenCode,
    /// `mcp-bridge.toml`
    McpBridge,
    /// A registry's `server.json`
    ServerJson,
}

impl ImportSource {
    /// All of them.
    pub const ALL: [ImportSource; 11] = [
        ImportSource::ClaudeDesktop,
        ImportSource::ClaudeCode,
        ImportSource::Cursor,
        ImportSource::Windsurf,
        ImportSource::Zed,
        ImportSource::VsCode,
        ImportSource::Codex,
        ImportSource::GeminiCli,
        ImportSource::OpenCode,
        ImportSource::McpBridge,
        ImportSource::ServerJson,
    ];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            ImportSource::ClaudeDesktop => "claude-desktop",
            ImportSource::ClaudeCode => "claude-code",
            ImportSource::Cursor => "cursor",
            ImportSource::Windsurf => "windsurf",
            ImportSource::Zed => "zed",
            ImportSource::VsCode => "vscode",
            ImportSource::Codex => "codex",
            ImportSource::GeminiCli => "gemini",
            ImportSource::OpenCode => "opencode",
            ImportSource::McpBridge => "mcp-bridge",
            ImportSource::ServerJson => "server.json",
        }
    }

    /// The possible paths of its file.
    pub fn files(self, homes: &Homes) -> Vec<PathBuf> {
        let Homes { home, config, .. } = homes;
        match self {
            ImportSource::ClaudeDesktop => vec![
                config.join("Claude/claude_desktop_config.json"),
                home.join("Library/Application Support/Claude/claude_desktop_config.json"),
            ],
            ImportSource::ClaudeCode => vec![homes.claude_code.join(".claude.json")],
            ImportSource::Cursor => vec![home.join(".cursor/mcp.json")],
            ImportSource::Windsurf => vec![home.join(".codeium/windsurf/mcp_config.json")],
            ImportSource::Zed => vec![config.join("zed/settings.json")],
            ImportSource::VsCode => vec![
                config.join("Code/User/mcp.json"),
                config.join("Code - OSS/User/mcp.json"),
                config.join("VSCodium/User/mcp.json"),
                config.join("Code - Insiders/User/mcp.json"),
                home.join("Library/Application Support/Code/User/mcp.json"),
            ],
            ImportSource::Codex => vec![homes.codex.join("config.toml")],
            ImportSource::GeminiCli => vec![home.join(".gemini/settings.json")],
            ImportSource::OpenCode => vec![
                config.join("opencode/opencode.json"),
                config.join("opencode/opencode.jsonc"),
            ],
            ImportSource::McpBridge => vec![home.join(".chibi/mcp-bridge.toml")],
            ImportSource::ServerJson => Vec::new(),
        }
    }

    /// True if its file is TOML.
    fn is_toml(self) -> bool {
        matches!(self, ImportSource::Codex | ImportSource::McpBridge)
    }

    /// The keys that lead to each entry of its file, in the order in which they are read.
    fn entries_of(self, file: &Value) -> Vec<EntryKeys> {
        let own: &[&str] = match self {
            ImportSource::Zed => &["context_servers"],
            ImportSource::VsCode if file.get("servers").is_none() => &["mcp", "servers"],
            ImportSource::VsCode => &["servers"],
            ImportSource::Codex => &["mcp_servers"],
            ImportSource::OpenCode => &["mcp"],
            ImportSource::McpBridge | ImportSource::ServerJson => return Vec::new(),
            _ => &["mcpServers"],
        };
        let mut lists = vec![own.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>()];
        if self == ImportSource::ClaudeCode {
            let projects = at(file, &["projects"]).into_iter().flatten();
            lists.extend(projects.map(|(project, _)| {
                let keys = ["projects", project, "mcpServers"];
                keys.map(str::to_owned).to_vec()
            }));
        }
        let mut entries = Vec::new();
        for list in lists {
            let keys: Vec<&str> = list.iter().map(String::as_str).collect();
            for name in at(file, &keys).into_iter().flatten().map(|(name, _)| name) {
                entries.push([list.clone(), vec![name.clone()]].concat());
            }
        }
        entries
    }

    /// The source of this file, by its name and content.
    fn of(path: &Path, file: &Value) -> Option<ImportSource> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_toml = path
            .extension()
            .is_some_and(|extension| extension == "toml");
        let below = |directory: &str| path.components().any(|part| part.as_os_str() == directory);
        let has = |key: &str| file.get(key).is_some_and(Value::is_object);
        let lists = |key: &str| file.get(key).is_some_and(Value::is_array);
        if is_toml {
            return match (has("mcp_servers"), &*name) {
                (true, _) | (_, "config.toml") => Some(ImportSource::Codex),
                (false, _) => Some(ImportSource::McpBridge),
            };
        }
        if lists("packages") || lists("remotes") {
            return Some(ImportSource::ServerJson);
        }
        if has("context_servers") {
            return Some(ImportSource::Zed);
        }
        if has("mcpServers") {
            return Some(match &*name {
                "claude_desktop_config.json" => ImportSource::ClaudeDesktop,
                "mcp_config.json" => ImportSource::Windsurf,
                "settings.json" => ImportSource::GeminiCli,
                _ if below(".gemini") => ImportSource::GeminiCli,
                _ if below(".cursor") => ImportSource::Cursor,
                _ => ImportSource::ClaudeCode,
            });
        }
        if has("servers") || file.pointer("/mcp/servers").is_some_and(Value::is_object) {
            return Some(ImportSource::VsCode);
        }
        has("mcp").then_some(ImportSource::OpenCode)
    }
}

/// The servers in a file, each read by itself. `source`: whose it is; `None`: it is found out.
/// `path` tells that, and what is a TOML file.
///
/// # Errors
/// The file cannot be read as what it is to be, or it is nobody's that is known here.
pub fn read(
    source: Option<ImportSource>,
    path: &Path,
    text: &str,
) -> anyhow::Result<(ImportSource, Vec<Proposal>)> {
    if text.len() > MAX_BYTES {
        bail!("it has more than 32 MiB");
    }
    let is_toml = match source {
        Some(source) => source.is_toml(),
        None => path
            .extension()
            .is_some_and(|extension| extension == "toml"),
    };
    let file = if is_toml { toml(text)? } else { json(text)? };
    if !file.is_object() {
        bail!("it holds no object");
    }
    let is_named = source.is_some();
    let source = source.or_else(|| ImportSource::of(path, &file)).context(
        "it has no servers in any form that is known here (mcpServers, context_servers, servers, mcp, mcp_servers, packages)",
    )?;
    let mut found = match source {
        ImportSource::ClaudeDesktop => mcp_servers(&file, &CLAUDE_DESKTOP),
        ImportSource::ClaudeCode => editors::claude_code(&file),
        ImportSource::Cursor => mcp_servers(&file, &CURSOR),
        ImportSource::Windsurf => mcp_servers(&file, &WINDSURF),
        ImportSource::GeminiCli => mcp_servers(&file, &GEMINI),
        ImportSource::Zed => zed::read(&file),
        ImportSource::VsCode => vscode::read(&file),
        ImportSource::Codex => codex::read(&file),
        ImportSource::OpenCode => opencode::read(&file),
        ImportSource::McpBridge => bridge_toml::read(&file),
        ImportSource::ServerJson => server_json::read(&file),
    };
    let is_foreign = source == ImportSource::ServerJson || (!is_named && is_of_project(path));
    found
        .iter_mut()
        .for_each(|proposal| proposal.is_foreign = is_foreign);
    for (proposal, keys) in found.iter_mut().zip(source.entries_of(&file)) {
        proposal.keys = keys;
    }
    found.iter_mut().for_each(mcp_remote::replace);
    Ok((source, found))
}

/// The keys that lead to each entry of a source's file, and to what serves entries alone: inputs of
/// VS Code.
///
/// # Errors
/// The file cannot be read as what it is to be.
pub fn entry_keys(
    source: ImportSource,
    text: &str,
) -> anyhow::Result<(Vec<EntryKeys>, Option<EntryKeys>)> {
    let file = if source.is_toml() {
        toml(text)?
    } else {
        json(text)?
    };
    let inputs = (source == ImportSource::VsCode && file.get("inputs").is_some())
        .then(|| vec!["inputs".to_owned()]);
    Ok((source.entries_of(&file), inputs))
}

/// True if editors look for a file of this path in a project, to which others write. A user's own
/// may have the same path.
fn is_of_project(path: &Path) -> bool {
    let is_below = |directory| path.components().any(|part| part.as_os_str() == directory);
    path.ends_with(".mcp.json") || [".cursor", ".gemini", ".vscode"].into_iter().any(is_below)
}

/// JSON as editors read it: with comments and trailing commas.
pub(super) fn json(text: &str) -> anyhow::Result<Value> {
    let options = ParseOptions {
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        ..ParseOptions::default()
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match CstRootNode::parse(text, &options) {
        Ok(root) => Ok(root.to_serde_value().unwrap_or_default()),
        Err(error) => Err(anyhow!(
            "line {}, column {}: {}",
            error.line_display(),
            error.column_display(),
            error.kind()
        )),
    }
}

/// TOML as JSON: what of it is a date is text.
pub(super) fn toml(text: &str) -> anyhow::Result<Value> {
    let document: toml_edit::DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| {
            let place = error.span().map(|span| {
                let before = text.get(..span.start).unwrap_or(text);
                let line = before.matches('\n').count() + 1;
                let column = before
                    .rsplit('\n')
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .count()
                    + 1;
                format!("line {line}, column {column}: ")
            });
            anyhow!("{}{}", place.unwrap_or_default(), error.message())
        })?;
    table(document.as_table(), MAX_DEPTH).context("nested deeper than 64 levels")
}

fn table(table: &dyn toml_edit::TableLike, depth: usize) -> Option<Value> {
    let mut members = Map::new();
    for (key, item) in table.iter() {
        members.insert(key.to_owned(), of_item(item, depth.checked_sub(1)?)?);
    }
    Some(Value::Object(members))
}

fn of_item(item: &toml_edit::Item, depth: usize) -> Option<Value> {
    if let Some(one) = item.as_table_like() {
        return table(one, depth);
    }
    if let Some(tables) = item.as_array_of_tables() {
        let depth = depth.checked_sub(1)?;
        return tables
            .iter()
            .map(|one| table(one, depth))
            .collect::<Option<_>>()
            .map(Value::Array);
    }
    item.as_value()
        .map_or(Some(Value::Null), |value| of_value(value, depth))
}

fn of_value(value: &toml_edit::Value, depth: usize) -> Option<Value> {
    use toml_edit::Value as Toml;
    Some(match value {
        Toml::String(text) => Value::String(text.value().clone()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Float(number) => Value::from(*number.value()),
        Toml::Boolean(value) => Value::Bool(*value.value()),
        Toml::Datetime(time) => Value::String(time.value().to_string()),
        Toml::Array(items) => {
            let depth = depth.checked_sub(1)?;
            let items = items.iter().map(|item| of_value(item, depth));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Toml::InlineTable(one) => return table(one, depth),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> ImportSource {
        read(None, Path::new(path), text).unwrap().0
    }

    #[test]
    fn a_file_tells_whose_it_is() {
        let shared = r#"{"mcpServers":{}}"#;
        for (path, text, source) in [
            (
                "/x/claude_desktop_config.json",
                shared,
                ImportSource::ClaudeDesktop,
            ),
            ("/h/.claude.json", shared, ImportSource::ClaudeCode),
            ("/p/.mcp.json", shared, ImportSource::ClaudeCode),
            ("/h/.cursor/mcp.json", shared, ImportSource::Cursor),
            ("/h/mcp_config.json", shared, ImportSource::Windsurf),
            ("/h/.gemini/settings.json", shared, ImportSource::GeminiCli),
            (
                "/h/zed/settings.json",
                "{\"context_servers\":{},}//",
                ImportSource::Zed,
            ),
            ("/h/mcp.json", "{\"servers\":{}}", ImportSource::VsCode),
            (
                "/h/settings.json",
                "{\"mcp\":{\"servers\":{}}}",
                ImportSource::VsCode,
            ),
            ("/h/opencode.json", "{\"mcp\":{}}", ImportSource::OpenCode),
            ("/h/config.toml", "[mcp_servers.x]", ImportSource::Codex),
            ("/h/mcp-bridge.toml", "", ImportSource::McpBridge),
            (
                "/h/server.json",
                "{\"name\":\"a/b\",\"packages\":[]}",
                ImportSource::ServerJson,
            ),
        ] {
            assert_eq!(of(path, text), source, "{path}");
        }
        assert!(
            ImportSource::ALL
                .iter()
                .all(|source| !source.name().is_empty())
        );
    }

    #[test]
    fn what_comes_with_a_project_is_a_strangers() {
        let is_foreign = |source, path: &str| {
            let text = r#"{"mcpServers":{"x":{"command":"x"}}}"#;
            read(source, Path::new(path), text).unwrap().1[0].is_foreign
        };
        for path in [
            "/p/.mcp.json",
            "/p/.cursor/mcp.json",
            "/p/.gemini/settings.json",
            ".vscode/x",
        ] {
            assert!(is_foreign(None, path), "{path}");
        }
        assert!(!is_foreign(None, "/h/claude_desktop_config.json"));
        assert!(!is_foreign(
            Some(ImportSource::Cursor),
            "/h/.cursor/mcp.json"
        ));
        let published = r#"{"name":"a/b","remotes":[{"type":"sse","url":"https://h/"}]}"#;
        assert!(
            read(None, Path::new("/h/server.json"), published)
                .unwrap()
                .1[0]
                .is_foreign
        );
    }

    #[test]
    fn each_server_knows_where_its_entry_is() {
        let entry = r#"{"command":"x"}"#;
        for (source, text, wanted) in [
            (
                ImportSource::Cursor,
                format!(r#"{{"mcpServers":{{"b":{entry},"a":{entry}}}}}"#),
                vec!["mcpServers/a", "mcpServers/b"],
            ),
            (
                ImportSource::Zed,
                format!(r#"{{"context_servers":{{"a":{entry}}}}}"#),
                vec!["context_servers/a"],
            ),
            (
                ImportSource::VsCode,
                format!(r#"{{"mcp":{{"servers":{{"a":{entry}}}}}}}"#),
                vec!["mcp/servers/a"],
            ),
            (
                ImportSource::OpenCode,
                format!(r#"{{"mcp":{{"a":{entry}}}}}"#),
                vec!["mcp/a"],
            ),
            (
                ImportSource::Codex,
                "[mcp_servers.a]\ncommand = \"x\"".to_owned(),
                vec!["mcp_servers/a"],
            ),
            (
                ImportSource::ClaudeCode,
                format!(
                    r#"{{"projects":{{"p":{{"mcpServers":{{"a":{entry}}}}},"q":{{}}}},"mcpServers":{{"a":{entry}}}}}"#
                ),
                vec!["mcpServers/a", "projects/p/mcpServers/a"],
            ),
            (
                ImportSource::McpBridge,
                "[servers.a]\ncommand = \"x\"".to_owned(),
                vec![""],
            ),
        ] {
            let (_, found) = read(Some(source), Path::new("x"), &text).unwrap();
            let keys: Vec<String> = found
                .iter()
                .map(|proposal| proposal.keys.join("/"))
                .collect();
            assert_eq!(keys, wanted, "{source:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        let error = |path: &str, text: &str| read(None, Path::new(path), text).unwrap_err();
        let error = |path: &str, text: &str| format!("{:#}", error(path, text));
        assert!(
            error("x.json", "{\n \"a\" 1}").contains("line 2"),
            "{}",
            error("x.json", "{\n \"a\" 1}")
        );
        assert!(error("x.toml", "a = 1\nb = ").contains("line 2"));
        assert!(error("x.json", "{}").contains("no servers"));
        assert!(error("x.json", "[]").contains("no object"));
        assert!(error("x.json", &"[".repeat(100_000)).len() < 200);
        assert!(error("x.toml", &format!("a = {}", "[".repeat(100_000))).len() < 200);
    }
}
