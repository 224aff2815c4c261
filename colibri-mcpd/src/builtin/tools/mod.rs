//! The built-in tools, a file each.

mod cancel_task;
mod create_task;
mod external_call;
mod external_list_tools;
mod external_servers;
mod fail_task;
mod find_tools;
mod finish_task;
mod get_task;
mod intake_task;
mod list_skills;
mod list_tasks;
mod named_call;
mod next_task;
mod prelude;
mod read_result;
mod release_task;
mod run_script;
mod schedule_task;
mod set_cost_mode;
mod snapshot;
mod start_task;
mod status;
mod tool_schema;

use std::sync::LazyLock;

use super::tool::BuiltinDefinition;

pub(crate) use create_task::create_task;
pub(crate) use external_call::{EXTERNAL_CALL_TOOL, parse_external_call};
pub(crate) use find_tools::FIND_TOOLS;
#[cfg(test)]
pub(super) use named_call::CALL_TOOL;
pub(crate) use named_call::parse_named_call;
pub(crate) use run_script::parse_run_script;

/// Our tools, in the order of `tools/list`.
static DEFINITIONS: LazyLock<Vec<BuiltinDefinition>> = LazyLock::new(|| {
    vec![
        BuiltinDefinition::of::<status::StatusArguments>(),
        BuiltinDefinition::of::<snapshot::SnapshotArguments>(),
        BuiltinDefinition::of::<list_tasks::ListTasks>(),
        BuiltinDefinition::of::<list_skills::ListSkills>(),
        BuiltinDefinition::of::<create_task::CreateTask>(),
        BuiltinDefinition::of::<intake_task::IntakeTask>(),
        BuiltinDefinition::of::<get_task::GetTask>(),
        BuiltinDefinition::of::<next_task::NextTaskArguments>(),
        BuiltinDefinition::of::<start_task::StartTask>(),
        BuiltinDefinition::of::<finish_task::FinishTask>(),
        BuiltinDefinition::of::<fail_task::FailTask>(),
        BuiltinDefinition::of::<release_task::ReleaseTask>(),
        BuiltinDefinition::of::<cancel_task::CancelTask>(),
        BuiltinDefinition::of::<schedule_task::ScheduleTask>(),
        BuiltinDefinition::of::<set_cost_mode::SetCostMode>(),
        BuiltinDefinition::of::<read_result::ReadResult>(),
        BuiltinDefinition::of::<external_servers::ExternalServers>(),
        BuiltinDefinition::of::<external_list_tools::ListTools>(),
        external_call::definition(),
        BuiltinDefinition::of::<find_tools::FindTools>(),
        BuiltinDefinition::of::<tool_schema::ToolSchema>(),
        named_call::definition(),
        run_script::definition(),
    ]
});

/// Our tools, in the order of `tools/list`.
pub fn definitions() -> &'static [BuiltinDefinition] {
    &DEFINITIONS
}

/// The definition of the tool of this name.
pub fn definition(name: &str) -> Option<&'static BuiltinDefinition> {
    definitions()
        .iter()
        .find(|definition| definition.name == name)
}
