//! Tools as embedding programs name them.

use serde_json::Value;

/// The prefix of a tool's path.
const SCHEME: &str = "mcp://";

/// A tool that the bridge offers.
#[derive(Debug, Clone, PartialEq)]
pub struct McpTool {
    /// `server_tool`: what a model is told.
    pub name: String,
    /// `mcp://server/tool`: by which it is called.
    pub path: String,
    /// Its purpose, for a model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// Server and tool of `mcp://server/tool`, split at the first `/`; `None` for anything else.
///
/// ```
/// # use colibri_client::parse_mcp_path;
/// assert_eq!(parse_mcp_path("mcp://git/log"), Some(("git", "log")));
/// assert_eq!(parse_mcp_path("/usr/bin/git"), None);
/// ```
pub fn parse_mcp_path(path: &str) -> Option<(&str, &str)> {
    let (server, tool) = path.strip_prefix(SCHEME)?.split_once('/')?;
    (!server.is_empty() && !tool.is_empty()).then_some((server, tool))
}

/// True if a tool is called through the bridge, by its path.
pub fn is_mcp_tool(tool: &McpTool) -> bool {
    parse_mcp_path(&tool.path).is_some()
}

/// The tool of what the bridge lists: its name is `server_tool`, its path `mcp://server/tool`.
pub fn mcp_tool_from_info(
    server: &str,
    name: &str,
    description: &str,
    parameters: Value,
) -> McpTool {
    McpTool {
        name: format!("{server}_{name}"),
        path: format!("{SCHEME}{server}/{name}"),
        description: description.to_owned(),
        parameters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_at_the_first_slash() {
        for (path, parts) in [
            ("mcp://serena/find_symbol", Some(("serena", "find_symbol"))),
            ("mcp://a/b/c", Some(("a", "b/c"))),
            ("mcp://a/", None),
            ("mcp:///b", None),
            ("mcp://a", None),
            ("mcp:/a/b", None),
            ("MCP://a/b", None),
            ("/usr/bin/tool", None),
            ("", None),
        ] {
            assert_eq!(parse_mcp_path(path), parts, "{path}");
        }
    }

    #[test]
    fn a_tool_has_the_names_that_programs_know() {
        let parameters = serde_json::json!({ "type": "object" });
        let mut tool = mcp_tool_from_info("serena", "find_symbol", "Finds it.", parameters.clone());
        assert_eq!(
            (tool.name.as_str(), tool.path.as_str()),
            ("serena_find_symbol", "mcp://serena/find_symbol")
        );
        assert_eq!(
            (tool.description.as_str(), &tool.parameters),
            ("Finds it.", &parameters)
        );
        assert!(is_mcp_tool(&tool));
        tool.path = "/home/op/.chibi/plugins/x".to_owned();
        assert!(!is_mcp_tool(&tool));
    }
}
