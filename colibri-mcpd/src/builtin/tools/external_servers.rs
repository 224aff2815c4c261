//! `colibri_external_mcp_servers`.

use super::super::summary::server_lines;
use super::prelude::*;
use colibri_api::Servers;

/// The arguments of `colibri_external_mcp_servers`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExternalServers {}

impl BuiltinTool for ExternalServers {
    const NAME: &'static str = "colibri_external_mcp_servers";
    const TITLE: &'static str = "External MCP servers";
    const DESCRIPTION: &'static str = "Lists the external MCP servers behind this daemon: state, reason, isolation, jail, \
    processes.";
    const ACCESS: Access = Access::Read;
    const RULES: BuiltinRules = BuiltinRules::STORED.unrecorded();
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<Servers>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let servers = (context.look)().servers;
        outcome(&server_lines(&servers), &Servers { servers })
    }
}
