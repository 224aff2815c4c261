//! Editors whose files have `mcpServers`: Claude Desktop, Claude Code, Cursor, Windsurf, Gemini
//! CLI.

use serde_json::Value;

use super::entry::{Dialect, at, dollar_gaps, gap, no_gaps, servers};
use super::proposal::Proposal;
use super::template::Template;

/// `claude_desktop_config.json`.
pub(super) const CLAUDE_DESKTOP: Dialect = Dialect {
    urls: &[("url", false)],
    env: "env",
    headers: "headers",
    tools: ("", ""),
    timeout: None,
    gaps: no_gaps,
    silent: &[],
};

/// `~/.claude.json` and `.mcp.json`.
pub(super) const CLAUDE_CODE: Dialect = Dialect {
    gaps: dollar_gaps,
    timeout: Some(("timeout", 1)),
    ..CLAUDE_DESKTOP
};

/// `mcp.json` of Cursor.
pub(super) const CURSOR: Dialect = Dialect {
    gaps: dollar_gaps,
    ..CLAUDE_DESKTOP
};

/// `mcp_config.json` of Windsurf.
pub(super) const WINDSURF: Dialect = Dialect {
    urls: &[("serverUrl", false), ("url", false)],
    tools: ("", "disabledTools"),
    gaps: dollar_gaps,
    ..CLAUDE_DESKTOP
};

/// `settings.json` of Gemini CLI: `url` is HTTP+SSE unless `type` says otherwise, `httpUrl` is not.
pub(super) const GEMINI: Dialect = Dialect {
    urls: &[("httpUrl", false), ("url", true)],
    tools: ("includeTools", "excludeTools"),
    timeout: Some(("timeout", 1)),
    gaps: shell_gaps,
    silent: &["trust"],
    ..CLAUDE_DESKTOP
};

/// The servers of a file with `mcpServers`.
pub(super) fn mcp_servers(file: &Value, dialect: &Dialect) -> Vec<Proposal> {
    at(file, &["mcpServers"])
        .map(|entries| servers(entries, dialect))
        .unwrap_or_default()
}

/// Those of the user, and those that hold in one project each.
pub(super) fn claude_code(file: &Value) -> Vec<Proposal> {
    let mut found = mcp_servers(file, &CLAUDE_CODE);
    for (project, entry) in at(file, &["projects"]).into_iter().flatten() {
        let off = entry.get("disabledMcpServers").and_then(Value::as_array);
        for mut proposal in mcp_servers(entry, &CLAUDE_CODE) {
            let name = Value::String(proposal.name.clone());
            proposal.disabled |= off.is_some_and(|off| off.contains(&name));
            let project = colibri_text::brief(project, 100);
            proposal.notes.push(format!(
                "Claude Code has it in the project {project} alone; here it is for all of yours"
            ));
            found.push(proposal);
        }
    }
    found
}

/// `$NAME` and `${NAME}`, as Gemini CLI reads them.
fn shell_gaps(text: &str) -> Template {
    match text.strip_prefix('$') {
        Some(name)
            if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') =>
        {
            Template(vec![gap(name, None)])
        }
        _ => dollar_gaps(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::proposal::{PackageRegistry, ProposedProgram, Runs};
    use super::*;
    use serde_json::json;

    fn process(proposal: &Proposal) -> &super::super::proposal::ProposedProcess {
        match proposal.runs.as_ref().unwrap() {
            Runs::Process(process) => process,
            _ => panic!("no process"),
        }
    }

    #[test]
    fn claude_desktop_has_commands_alone() {
        let file = json!({ "mcpServers": {
            "memory": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"],
                "env": { "MEMORY_FILE_PATH": "/home/u/memory.json", "PORT": 8080 } },
            "odd": { "args": [] }, "worse": 7 }, "globalShortcut": "" });
        let found = mcp_servers(&file, &CLAUDE_DESKTOP);
        assert_eq!(found.len(), 3);
        let memory = process(&found[0]);
        assert!(
            matches!(&memory.program, ProposedProgram::Package(package) if package.registry == PackageRegistry::Npm)
        );
        assert_eq!(memory.env["PORT"].text.plain(), Some("8080"));
        assert!(
            found[1]
                .runs
                .as_ref()
                .unwrap_err()
                .contains("neither a command")
        );
        assert!(found[2].runs.is_err());
    }

    #[test]
    fn claude_code_has_user_and_project_servers_and_variables() {
        let file = json!({ "numStartups": 3,
            "mcpServers": { "docs": { "type": "http", "url": "https://docs.example.org/mcp",
                "headers": { "Authorization": "Bearer ${DOCS_TOKEN}" } } },
            "projects": { "/home/u/p": { "mcpServers": {
                "db": { "type": "stdio", "command": "/usr/bin/db", "args": ["${DB:-main}"], "env": {} },
                "off": { "command": "/usr/bin/off" },
                "old": { "type": "sse", "url": "https://old.example.org/sse" } }, "disabledMcpServers": ["off"] } } });
        let found = claude_code(&file);
        assert_eq!(
            found
                .iter()
                .map(|one| one.name.as_str())
                .collect::<Vec<_>>(),
            ["docs", "db", "off", "old"]
        );
        let want = &found[0].wants["DOCS_TOKEN"];
        assert!(want.secret && want.required);
        assert_eq!(
            process(&found[1]).args[0]
                .fill(&Default::default())
                .unwrap(),
            "main"
        );
        assert!(
            found[1].notes[0].contains("/home/u/p"),
            "{:?}",
            found[1].notes
        );
        assert!(found[2].disabled && !found[1].disabled);
        assert!(matches!(&found[3].runs, Ok(Runs::Remote(remote)) if remote.sse));
    }

    #[test]
    fn cursor_and_windsurf_have_variables_and_addresses_of_their_own() {
        let file = json!({ "mcpServers": {
            "a": { "command": "${userHome}/bin/a", "env": { "KEY": "${env:A_KEY}" } },
            "b": { "command": "x", "envFile": ".env" } } });
        let found = mcp_servers(&file, &CURSOR);
        assert_eq!(found[0].wants.keys().collect::<Vec<_>>(), ["A_KEY", "HOME"]);
        assert!(found[1].runs.as_ref().unwrap_err().contains("--env"));
        let file = json!({ "mcpServers": { "w": { "serverUrl": "https://w.example.org/mcp", "disabled": true,
            "disabledTools": ["rm"] } } });
        let found = mcp_servers(&file, &WINDSURF);
        assert!(found[0].disabled && found[0].tools.1 == ["rm"] && found[0].runs.is_ok());
    }

    #[test]
    fn gemini_tells_its_two_transports_apart_by_the_key() {
        let file = json!({ "mcpServers": {
            "s": { "url": "https://h.example.org/sse" }, "h": { "httpUrl": "https://h.example.org/mcp", "timeout": 5000 },
            "p": { "command": "p", "env": { "T": "$P_TOKEN" }, "trust": true, "includeTools": ["a"], "oauth": {} } } });
        let found = mcp_servers(&file, &GEMINI);
        let sse: Vec<bool> = found
            .iter()
            .filter_map(|one| match &one.runs {
                Ok(Runs::Remote(remote)) => Some(remote.sse),
                _ => None,
            })
            .collect();
        assert_eq!((sse, found[0].timeout_ms), (vec![false, true], Some(5000)));
        assert!(found[1].wants.contains_key("P_TOKEN") && found[1].tools.0 == ["a"]);
        assert_eq!(
            found[1].notes,
            ["left out, since an entry has nothing like it: oauth"]
        );
    }
}
