//! `colibri_snapshot`.

use super::super::summary::{counts, daemon_summary, server_lines};
use super::prelude::*;
use colibri_api::Snapshot;

/// The arguments of `colibri_snapshot`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotArguments {}

impl BuiltinTool for SnapshotArguments {
    const NAME: &'static str = "colibri_snapshot";
    const TITLE: &'static str = "Colibri snapshot";
    const DESCRIPTION: &'static str = "Everything to know of the Colibri daemon in one call: version, uptime, the gates as they are \
    for you, every external MCP server with its state and reason, tasks by status, cost mode and budgets.";
    const ACCESS: Access = Access::Read;
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<Snapshot>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let (view, tasks) = (
            (context.look)(),
            context
                .board
                .task_counts(Some(context.who))
                .map_err(store_failure)?,
        );
        let snapshot = Snapshot {
            daemon: view.daemon,
            servers: view.servers,
            tasks_by_status: tasks.iter().copied().collect(),
        };
        let summary = format!(
            "{}Tasks: {}{}\n{}",
            daemon_summary(&snapshot.daemon),
            tasks.iter().map(|(_, count)| count).sum::<u64>(),
            counts(tasks.iter().map(|(status, count)| (status.name(), *count))),
            server_lines(&snapshot.servers)
        );
        outcome(&summary, &snapshot)
    }
}
