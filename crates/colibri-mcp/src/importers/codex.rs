//! Codex's `config.toml`: `[mcp_servers.NAME]`.

use serde_json::Value;

use super::editors::CLAUDE_DESKTOP;
use super::entry::{Dialect, ask_for_gaps, at, server};
use super::proposal::{Field, Proposal, Runs};
use super::template::{Template, TemplatePart};

const CODEX: Dialect = Dialect {
    headers: "http_headers",
    tools: ("enabled_tools", "disabled_tools"),
    timeout: Some(("tool_timeout_sec", 1000)),
    silent: &[
        "env_vars",
        "bearer_token_env_var",
        "env_http_headers",
        "startup_timeout_sec",
        "startup_timeout_ms",
        "required",
    ],
    ..CLAUDE_DESKTOP
};

pub(super) fn read(file: &Value) -> Vec<Proposal> {
    let entries = at(file, &["mcp_servers"]).into_iter().flatten();
    entries
        .map(|(name, entry)| {
            let mut proposal = server(name, entry, &CODEX);
            from_environment(entry, &mut proposal);
            ask_for_gaps(&mut proposal);
            proposal
        })
        .collect()
}

/// The variables that Codex takes out of its own environment when it starts the server.
fn from_environment(entry: &Value, proposal: &mut Proposal) {
    let given = |text: Template, secret| Field {
        text,
        secret,
        optional: false,
    };
    match &mut proposal.runs {
        Ok(Runs::Process(process)) => {
            let names = entry
                .get("env_vars")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let name = |item: &Value| {
                item.as_str()
                    .or_else(|| item.get("name")?.as_str())
                    .map(str::to_owned)
            };
            for name in names.filter_map(name) {
                let field = given(Template::gap(&name), false);
                process.env.entry(name).or_insert(field);
            }
        }
        Ok(Runs::Remote(remote)) => {
            if let Some(name) = entry.get("bearer_token_env_var").and_then(Value::as_str) {
                let gap = Template::gap(name).0;
                let text = Template([vec![TemplatePart::Text("Bearer ".to_owned())], gap].concat());
                remote
                    .headers
                    .insert("Authorization".to_owned(), given(text, true));
            }
            for (header, name) in at(entry, &["env_http_headers"]).into_iter().flatten() {
                if let Some(name) = name.as_str() {
                    remote
                        .headers
                        .insert(header.clone(), given(Template::gap(name), false));
                }
            }
        }
        Ok(Runs::Published(_)) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::toml;
    use super::*;

    #[test]
    fn tables_of_codex() {
        let file = toml(
            r#"
            model = "x"
            [mcp_servers.docs]
            command = "npx"
            args = ["-y", "docs-server"]
            env_vars = ["DOCS_KEY"]
            startup_timeout_sec = 20
            tool_timeout_sec = 60.5
            enabled_tools = ["a"]
            [mcp_servers.docs.env]
            LOG = "info"
            [mcp_servers.remote]
            url = "https://r.example.org/mcp"
            bearer_token_env_var = "R_BEARER"
            http_headers = { "X-Region" = "eu" }
            env_http_headers = { "X-Org" = "ORG" }
            enabled = false
            [mcp_servers.broken]
            args = []
            "#,
        )
        .unwrap();
        let found = read(&file);
        assert_eq!(found.len(), 3);
        assert!(found[0].runs.is_err());
        assert_eq!(found[1].missing(&Default::default()), ["DOCS_KEY"]);
        assert_eq!(
            (found[1].timeout_ms, found[1].tools.0.len()),
            (Some(60_500), 1)
        );
        assert_eq!(found[2].missing(&Default::default()), ["ORG", "R_BEARER"]);
        assert!(
            found[2].disabled && found[2].notes.is_empty(),
            "{:?}",
            found[2].notes
        );
        match found[2].runs.as_ref().unwrap() {
            Runs::Remote(remote) => assert_eq!(remote.headers.len(), 3),
            _ => panic!("no address"),
        }
    }
}
