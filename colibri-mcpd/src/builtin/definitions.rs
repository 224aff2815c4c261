//! The tools' definitions, in the newest form of the protocol; what older versions do not know is for the protocol
//! layer to leave out.

use super::inputs::{
    CallNamed, CallTool, CancelTask, CreateTask, FailTask, FindTools, FinishTask, GetTask, IntakeTask, ListTasks,
    ListTools, NextTaskArguments, Nothing, ReadResult, ReleaseTask, ScheduleTask, SetCostMode, StartTask, ToolSchema,
};
use crate::policy::Gate;
use bytes::Bytes;
use colibri_api::schema::{of_answer, of_arguments};
use colibri_api::{
    CostModeSet, CreatedTask, FoundTools, OneTask, Schedules, ServerTools, Servers, Skills, Snapshot, Status, Tasks,
};
use colibri_protocol::lists::definition_edits;
use colibri_protocol::{Feature, Version};
use colibri_wire::Json;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A tool of Colibri itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinTool {
    /// `colibri_status`
    Status,
    /// `colibri_snapshot`
    Snapshot,
    /// `colibri_list_tasks`
    ListTasks,
    /// `colibri_list_skills`
    ListSkills,
    /// `colibri_create_task`
    CreateTask,
    /// `colibri_intake_task`
    IntakeTask,
    /// `colibri_get_task`
    GetTask,
    /// `colibri_next_task`
    NextTask,
    /// `colibri_start_task`
    StartTask,
    /// `colibri_finish_task`
    FinishTask,
    /// `colibri_fail_task`
    FailTask,
    /// `colibri_release_task`
    ReleaseTask,
    /// `colibri_cancel_task`
    CancelTask,
    /// `colibri_schedule_task`
    ScheduleTask,
    /// `colibri_set_cost_mode`
    SetCostMode,
    /// `colibri_read_result`
    ReadResult,
    /// `colibri_external_mcp_servers`
    ExternalServers,
    /// `colibri_external_mcp_list_tools`
    ExternalListTools,
    /// `colibri_find_tools`
    FindTools,
    /// `colibri_tool_schema`
    ToolSchema,
}

/// The tool that relays to a server's own name of a tool: its call is not answered here.
pub(crate) const EXTERNAL_CALL_TOOL: &str = "colibri_external_mcp_call_tool";
/// The tool that calls another by its name in lists: its call is not answered here either.
pub(crate) const CALL_TOOL: &str = "colibri_call_tool";

/// The room that answers the call of a built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinRoute {
    /// [`super::call`].
    Here(BuiltinTool),
    /// The relay, after `parse_external_call`.
    Relay,
    /// Whoever answers for the tool that it names, after `parse_named_call`.
    Named,
}

/// One entry of `tools/list`.
#[derive(Debug)]
pub struct BuiltinDefinition {
    /// The tool's name.
    pub name: &'static str,
    /// The gate that its calls need. It is listed while the gate is closed, too.
    pub gate: Gate,
    /// The gate that its calls need at an agent socket; `None`: no agent has it.
    pub at_door: Option<Gate>,
    /// The room that answers its calls.
    pub route: BuiltinRoute,
    /// The entry's raw JSON, on one line.
    pub json: Box<[u8]>,
    /// The same without what is said of the answer.
    brief: Box<[u8]>,
    /// The names of its arguments.
    arguments: Vec<String>,
}

impl BuiltinDefinition {
    /// The entry for a client of this version, `whole` or without what is said of the answer: that is most of it.
    pub fn listed(&self, version: Version, whole: bool) -> Bytes {
        let raw = if whole { &self.json } else { &self.brief };
        let json = Json::part(raw, 0..raw.len());
        let edits = json.map(|json| definition_edits(Feature::Tool, json, (Version::LATEST, version), None));
        Bytes::from(edits.unwrap_or_default().apply(raw))
    }

    /// The names of its arguments.
    pub(super) fn arguments(&self) -> Vec<&str> {
        self.arguments.iter().map(String::as_str).collect()
    }
}

impl BuiltinTool {
    /// The names of its arguments.
    pub(super) fn arguments(self) -> Vec<&'static str> {
        let mut all = definitions().iter();
        let definition = all.find(|definition| definition.route == BuiltinRoute::Here(self));
        definition.map(BuiltinDefinition::arguments).unwrap_or_default()
    }
}

/// Our tools, in the order of `tools/list`.
pub fn definitions() -> &'static [BuiltinDefinition] {
    static ALL: LazyLock<Vec<BuiltinDefinition>> = LazyLock::new(all);
    &ALL
}

/// The definition of the tool of this name.
pub fn definition(name: &str) -> Option<&'static BuiltinDefinition> {
    definitions().iter().find(|definition| definition.name == name)
}

fn all() -> Vec<BuiltinDefinition> {
    use BuiltinRoute::{Here, Named, Relay};
    vec![
        tool(
            "colibri_status",
            "Colibri status",
            Here(BuiltinTool::Status),
            Access::Read,
            STATUS,
            of_arguments::<Nothing>(),
            of_answer::<Status>(),
        ),
        tool(
            "colibri_snapshot",
            "Colibri snapshot",
            Here(BuiltinTool::Snapshot),
            Access::Read,
            SNAPSHOT,
            of_arguments::<Nothing>(),
            of_answer::<Snapshot>(),
        ),
        tool(
            "colibri_list_tasks",
            "List tasks",
            Here(BuiltinTool::ListTasks),
            Access::Read,
            LIST_TASKS,
            of_arguments::<ListTasks>(),
            of_answer::<Tasks>(),
        ),
        tool(
            "colibri_list_skills",
            "List skills",
            Here(BuiltinTool::ListSkills),
            Access::Read,
            LIST_SKILLS,
            of_arguments::<Nothing>(),
            of_answer::<Skills>(),
        ),
        tool(
            "colibri_create_task",
            "Create a task",
            Here(BuiltinTool::CreateTask),
            Access::Add,
            CREATE_TASK,
            of_arguments::<CreateTask>(),
            of_answer::<CreatedTask>(),
        ),
        tool(
            "colibri_intake_task",
            "Take in a request",
            Here(BuiltinTool::IntakeTask),
            Access::Add,
            INTAKE_TASK,
            of_arguments::<IntakeTask>(),
            of_answer::<CreatedTask>(),
        ),
        tool(
            "colibri_get_task",
            "Get a task",
            Here(BuiltinTool::GetTask),
            Access::Read,
            GET_TASK,
            of_arguments::<GetTask>(),
            of_answer::<OneTask>(),
        ),
        tool(
            "colibri_next_task",
            "Claim the next task",
            Here(BuiltinTool::NextTask),
            Access::Work,
            NEXT_TASK,
            of_arguments::<NextTaskArguments>(),
            of_answer::<colibri_api::NextTask>(),
        ),
        tool(
            "colibri_start_task",
            "Start a task",
            Here(BuiltinTool::StartTask),
            Access::Work,
            START_TASK,
            of_arguments::<StartTask>(),
            of_answer::<OneTask>(),
        ),
        tool(
            "colibri_finish_task",
            "Finish a task",
            Here(BuiltinTool::FinishTask),
            Access::Work,
            FINISH_TASK,
            of_arguments::<FinishTask<'static>>(),
            of_answer::<OneTask>(),
        ),
        tool(
            "colibri_fail_task",
            "Fail a task",
            Here(BuiltinTool::FailTask),
            Access::Work,
            FAIL_TASK,
            of_arguments::<FailTask>(),
            of_answer::<OneTask>(),
        ),
        tool(
            "colibri_release_task",
            "Release a task",
            Here(BuiltinTool::ReleaseTask),
            Access::Work,
            RELEASE_TASK,
            of_arguments::<ReleaseTask>(),
            of_answer::<OneTask>(),
        ),
        tool(
            "colibri_cancel_task",
            "Cancel a task",
            Here(BuiltinTool::CancelTask),
            Access::Set,
            CANCEL_TASK,
            of_arguments::<CancelTask>(),
            of_answer::<OneTask>(),
        ),
        tool(
            "colibri_schedule_task",
            "Schedule a task",
            Here(BuiltinTool::ScheduleTask),
            Access::Add,
            SCHEDULE_TASK,
            of_arguments::<ScheduleTask<'static>>(),
            of_answer::<Schedules>(),
        ),
        tool(
            "colibri_set_cost_mode",
            "Set the cost mode",
            Here(BuiltinTool::SetCostMode),
            Access::Set,
            SET_COST_MODE,
            of_arguments::<SetCostMode>(),
            of_answer::<CostModeSet>(),
        ),
        tool(
            "colibri_read_result",
            "Read a kept result",
            Here(BuiltinTool::ReadResult),
            Access::Read,
            READ_RESULT,
            of_arguments::<ReadResult>(),
            Value::Null,
        ),
        tool(
            "colibri_external_mcp_servers",
            "External MCP servers",
            Here(BuiltinTool::ExternalServers),
            Access::Read,
            EXTERNAL_SERVERS,
            of_arguments::<Nothing>(),
            of_answer::<Servers>(),
        ),
        tool(
            "colibri_external_mcp_list_tools",
            "External MCP tools",
            Here(BuiltinTool::ExternalListTools),
            Access::Read,
            EXTERNAL_LIST_TOOLS,
            of_arguments::<ListTools>(),
            of_answer::<ServerTools>(),
        ),
        tool(
            EXTERNAL_CALL_TOOL,
            "Call an external MCP tool",
            Relay,
            Access::External,
            EXTERNAL_CALL,
            of_arguments::<CallTool<'static>>(),
            Value::Null,
        ),
        tool(
            "colibri_find_tools",
            "Find tools",
            Here(BuiltinTool::FindTools),
            Access::Read,
            FIND_TOOLS,
            of_arguments::<FindTools>(),
            of_answer::<FoundTools>(),
        ),
        tool(
            "colibri_tool_schema",
            "Show a tool's arguments",
            Here(BuiltinTool::ToolSchema),
            Access::Read,
            TOOL_SCHEMA,
            of_arguments::<ToolSchema>(),
            Value::Null,
        ),
        tool(
            CALL_TOOL,
            "Call a tool",
            Named,
            Access::External,
            CALL,
            of_arguments::<CallNamed<'static>>(),
            Value::Null,
        ),
    ]
}

const STATUS: &str = "How the Colibri daemon is: version, uptime, gates, clients, cost mode and its budgets, how many \
    external MCP servers are in which state, and what is wrong with the registry.";
const SNAPSHOT: &str = "Everything to know of the Colibri daemon in one call: version, uptime, the gates as they are \
    for you, every external MCP server with its state and reason, tasks by status, cost mode and budgets.";
const LIST_TASKS: &str = "Lists your tasks, newest first, a page at a time; to operators, everybody's.";
const LIST_SKILLS: &str = "Lists the skills installed for this daemon: directories with a SKILL.md, to be read when \
    their description fits the work. Also lists those that cannot be used, and why.";
const CREATE_TASK: &str = "Creates a queued task, which is yours alone unless you share it. Needs the write gate.";
const INTAKE_TASK: &str = "Takes a request in free text in as a task for later triage. Needs the write gate.";
const GET_TASK: &str = "Shows one task, with its result if it is done. Who has claimed it keeps it longer by asking.";
const NEXT_TASK: &str = "Claims the next of your queued tasks, the oldest of the highest priority, and gives it with the number \
    of the claim; task is null where there is none to be had. An agent gets one at a time, a person's claim lasts 15 \
    minutes from the last call on the task. Needs the write gate.";
const START_TASK: &str = "Says that work on a claimed task begins, or goes on, which keeps a person's claim. Needs the \
    write gate.";
const FINISH_TASK: &str = "Ends a claimed task with its result, once: text or any JSON of at most 64 KiB. Needs the \
    write gate.";
const FAIL_TASK: &str = "Ends a claimed task that cannot be done, with the reason. Needs the write gate.";
const RELEASE_TASK: &str = "Gives a claimed task back to the queue; the third time it fails. Without a claim, queues a \
    request that was taken in. Needs the write gate.";
const CANCEL_TASK: &str = "Ends a task of yours that is not to be done any more, whoever has it. Operators may end \
    everybody's. Needs the write gate.";
const SCHEDULE_TASK: &str = "Creates, lists or deletes schedules. Each creates a task or calls one tool as you, by cron's \
    five fields (UTC), every so many seconds, or once; not while its last task or call has not ended. Needs the write \
    gate.";
const SET_COST_MODE: &str = "Sets your cost mode: fast, smart or max, from small to large budgets of a day (UTC), or \
    default for what the operator gave. From then on a result over the mode's limit is held back, and calls are answered \
    with what to do once the day's budget is spent. None above the operator's. It persists. Needs the write gate.";
const READ_RESULT: &str = "Reads on in a result that was too long to be answered at once, under the handle that its answer \
    names: the lines of its text from line offset on, those that match a pattern, the value at json_pointer, or a block such \
    as an image; with length alone, and where there is no text, a piece of its JSON from byte offset on. Where more \
    follows, the last line says at which offset.";
const EXTERNAL_SERVERS: &str = "Lists the external MCP servers behind this daemon: state, reason, isolation, jail, \
    processes.";
const EXTERNAL_LIST_TOOLS: &str = "Lists the tools of the external MCP servers, of all or of one, with their input \
    schemas. Starts no server that has been seen before.";
const EXTERNAL_CALL: &str = "Calls a tool of an external MCP server and returns its result unchanged. Needs the \
    external-call gate.";

const FIND_TOOLS: &str = "Finds tools of all servers by what is to be done, the best first, listed or not. Say in a few words \
    what the tool does and to what; colibri_tool_schema then shows the arguments of one.";
const TOOL_SCHEMA: &str =
    "Shows the definition of one tool, listed or not: what it does and the schema of its arguments.";
const CALL: &str = "Calls any tool by its name, listed or not, and returns its result unchanged. What it does is what that \
    tool does. Needs the external-call gate.";

/// The effect of a tool on the world; decides gate and annotations.
enum Access {
    /// Looks only.
    Read,
    /// Adds something.
    Add,
    /// Takes or gives up a task; agents may, for tasks of their own.
    Work,
    /// Replaces a setting; twice is the same as once.
    Set,
    /// Does whatever an external tool does.
    External,
}

fn tool(
    name: &'static str,
    title: &str,
    route: BuiltinRoute,
    access: Access,
    description: &str,
    mut input: Value,
    output: Value,
) -> BuiltinDefinition {
    let (gate, annotations) = match access {
        Access::Read => (Gate::None, json!({"readOnlyHint": true, "openWorldHint": false})),
        Access::Add | Access::Work => (
            Gate::Write,
            json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": false, "openWorldHint": false}),
        ),
        Access::Set => (
            Gate::Write,
            json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false}),
        ),
        Access::External => (
            Gate::External,
            json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true}),
        ),
    };
    let at_door = match access {
        Access::Read | Access::External => Some(gate),
        Access::Work => Some(Gate::None),
        Access::Add | Access::Set => None,
    };
    let properties = input.get_mut("properties").and_then(Value::as_object_mut);
    // An argument that may be left out is not null.
    for property in properties.into_iter().flat_map(serde_json::Map::values_mut) {
        if let Some(property) = property.as_object_mut() {
            property.retain(|word, value| word != "default" || !value.is_null());
        }
    }
    let names = input
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(serde_json::Map::keys);
    let arguments = names.cloned().collect();
    let mut json = json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": input,
        "annotations": annotations,
    });
    let brief = json.to_string().into_bytes().into_boxed_slice();
    if !output.is_null() {
        json["outputSchema"] = output;
    }
    BuiltinDefinition {
        name,
        gate,
        at_door,
        route,
        json: json.to_string().into_bytes().into_boxed_slice(),
        brief,
        arguments,
    }
}
