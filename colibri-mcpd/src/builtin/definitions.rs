//! The tools' definitions, in the newest form of the protocol; what older versions do not know is for the protocol
//! layer to leave out.

use super::inputs::{CallTool, CreateTask, IntakeTask, ListTasks, ListTools, Nothing, SetCostMode};
use crate::policy::Gate;
use colibri_api::schema::{of_answer, of_arguments};
use colibri_api::{CostModeSet, CreatedTask, ServerTools, Servers, Skills, Snapshot, Status, Tasks};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// A tool of Colibri itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
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
    /// `colibri_set_cost_mode`
    SetCostMode,
    /// `colibri_external_mcp_servers`
    ExternalServers,
    /// `colibri_external_mcp_list_tools`
    ExternalListTools,
}

/// The tool that relays: its call is not answered here.
pub const EXTERNAL_CALL_TOOL: &str = "colibri_external_mcp_call_tool";

/// Who answers the call of a tool of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// [`super::call`].
    Here(Tool),
    /// The relay, after [`super::parse_external_call`].
    Relay,
}

/// One entry of `tools/list`.
#[derive(Debug)]
pub struct Definition {
    /// The tool's name.
    pub name: &'static str,
    /// Which gate its calls need. It is listed while the gate is closed, too.
    pub gate: Gate,
    /// Who answers its calls.
    pub route: Route,
    /// The entry's raw JSON, on one line.
    pub json: Box<[u8]>,
    /// The names of its arguments.
    arguments: Vec<String>,
}

impl Definition {
    /// The names of its arguments.
    pub(super) fn arguments(&self) -> Vec<&str> {
        self.arguments.iter().map(String::as_str).collect()
    }
}

impl Tool {
    /// Its definition.
    pub(super) fn definition(self) -> Option<&'static Definition> {
        let mut all = definitions().iter();
        all.find(|definition| definition.route == Route::Here(self))
    }
}

/// Our tools, in the order of `tools/list`.
pub fn definitions() -> &'static [Definition] {
    static ALL: LazyLock<Vec<Definition>> = LazyLock::new(all);
    &ALL
}

/// The definition of the tool of this name.
pub fn definition(name: &str) -> Option<&'static Definition> {
    definitions().iter().find(|definition| definition.name == name)
}

fn all() -> Vec<Definition> {
    use Route::{Here, Relay};
    vec![
        tool(
            "colibri_status",
            "Colibri status",
            Here(Tool::Status),
            Access::Read,
            STATUS,
            of_arguments::<Nothing>(),
            of_answer::<Status>(),
        ),
        tool(
            "colibri_snapshot",
            "Colibri snapshot",
            Here(Tool::Snapshot),
            Access::Read,
            SNAPSHOT,
            of_arguments::<Nothing>(),
            of_answer::<Snapshot>(),
        ),
        tool(
            "colibri_list_tasks",
            "List tasks",
            Here(Tool::ListTasks),
            Access::Read,
            LIST_TASKS,
            of_arguments::<ListTasks>(),
            of_answer::<Tasks>(),
        ),
        tool(
            "colibri_list_skills",
            "List skills",
            Here(Tool::ListSkills),
            Access::Read,
            LIST_SKILLS,
            of_arguments::<Nothing>(),
            of_answer::<Skills>(),
        ),
        tool(
            "colibri_create_task",
            "Create a task",
            Here(Tool::CreateTask),
            Access::Add,
            CREATE_TASK,
            of_arguments::<CreateTask>(),
            of_answer::<CreatedTask>(),
        ),
        tool(
            "colibri_intake_task",
            "Take in a request",
            Here(Tool::IntakeTask),
            Access::Add,
            INTAKE_TASK,
            of_arguments::<IntakeTask>(),
            of_answer::<CreatedTask>(),
        ),
        tool(
            "colibri_set_cost_mode",
            "Set the cost mode",
            Here(Tool::SetCostMode),
            Access::Set,
            SET_COST_MODE,
            of_arguments::<SetCostMode>(),
            of_answer::<CostModeSet>(),
        ),
        tool(
            "colibri_external_mcp_servers",
            "External MCP servers",
            Here(Tool::ExternalServers),
            Access::Read,
            EXTERNAL_SERVERS,
            of_arguments::<Nothing>(),
            of_answer::<Servers>(),
        ),
        tool(
            "colibri_external_mcp_list_tools",
            "External MCP tools",
            Here(Tool::ExternalListTools),
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
    ]
}

const STATUS: &str = "How the Colibri daemon is: version, uptime, gates, clients, cost mode and its budgets, how many \
    external MCP servers are in which state, and what is wrong with the registry.";
const SNAPSHOT: &str = "Everything to know of the Colibri daemon in one call: version, uptime, the gates as they are \
    for you, every external MCP server with its state and reason, tasks by status, cost mode and budgets.";
const LIST_TASKS: &str = "Lists tasks, newest first, a page at a time. Tasks are shared by all users of this daemon.";
const LIST_SKILLS: &str = "Lists the skills installed for this daemon: directories with a SKILL.md, to be read when \
    their description fits the work. Also lists those that cannot be used, and why.";
const CREATE_TASK: &str = "Creates a queued task. Needs the write gate.";
const INTAKE_TASK: &str = "Takes a request in free text in as a task for later triage. Needs the write gate.";
const SET_COST_MODE: &str = "Sets the cost mode for all users of this daemon: fast, smart or max, from small to large \
    budgets. It persists. Needs the write gate.";
const EXTERNAL_SERVERS: &str = "Lists the external MCP servers behind this daemon: state, reason, isolation, jail, \
    processes.";
const EXTERNAL_LIST_TOOLS: &str = "Lists the tools of the external MCP servers, of all or of one, with their input \
    schemas. Starts no server that has been seen before.";
const EXTERNAL_CALL: &str = "Calls a tool of an external MCP server and returns its result unchanged. Needs the \
    external-call gate.";

/// What a tool does to the world; decides gate and annotations.
enum Access {
    /// Looks only.
    Read,
    /// Adds something.
    Add,
    /// Replaces a setting; twice is the same as once.
    Set,
    /// Does whatever an external tool does.
    External,
}

fn tool(
    name: &'static str,
    title: &str,
    route: Route,
    access: Access,
    description: &str,
    mut input: Value,
    output: Value,
) -> Definition {
    let (gate, annotations) = match access {
        Access::Read => (Gate::None, json!({"readOnlyHint": true, "openWorldHint": false})),
        Access::Add => (
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
    if !output.is_null() {
        json["outputSchema"] = output;
    }
    Definition {
        name,
        gate,
        route,
        json: json.to_string().into_bytes().into_boxed_slice(),
        arguments,
    }
}
