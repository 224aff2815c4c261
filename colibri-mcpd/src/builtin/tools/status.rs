//! `colibri_status`.

use super::super::context::DaemonView;
use super::super::summary::{blocked, counts, daemon_summary, push_line};
use super::prelude::*;
use colibri_api::{ServerCounts, ServerState, Status};

/// The arguments of `colibri_status`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusArguments {}

impl BuiltinTool for StatusArguments {
    const NAME: &'static str = "colibri_status";
    const TITLE: &'static str = "Colibri status";
    const DESCRIPTION: &'static str = "Status of the Colibri daemon: version, uptime, gates, clients, cost mode and its budgets, how many \
    external MCP servers are in which state, and what is wrong with the registry.";
    const ACCESS: Access = Access::Read;
    const RULES: BuiltinRules = BuiltinRules::STORED.free_for_agents().unrecorded();
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<Status>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let DaemonView { daemon, servers } = (context.look)();
        let count = |state| {
            servers
                .iter()
                .filter(|server| server.state == state)
                .count() as u64
        };
        let status = Status {
            daemon,
            servers: ServerCounts {
                total: servers.len() as u64,
                by_state: ServerState::ALL.map(|state| (state, count(state))).into(),
                tools_blocked: servers.iter().map(|server| server.tools_blocked).sum(),
                others_blocked: servers.iter().map(|server| server.others_blocked).sum(),
                instructions_blocked: servers
                    .iter()
                    .filter(|server| server.instructions_blocked)
                    .count() as u64,
                unbounded: servers
                    .iter()
                    .filter(|server| server.is_unbounded())
                    .count() as u64,
            },
        };
        let by_state = status.servers.by_state.iter();
        let mut summary = format!(
            "{}Servers: {}{}\n",
            daemon_summary(&status.daemon),
            servers.len(),
            counts(by_state.map(|(state, count)| (state.name(), *count)))
        );
        for server in &servers {
            if let Some(blocked) = blocked(server) {
                push_line(&mut summary, &format!("- {}: {blocked}", server.id));
            }
        }
        outcome(&summary, &status)
    }
}
