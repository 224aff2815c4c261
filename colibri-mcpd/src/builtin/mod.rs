//! What Colibri itself offers: the `colibri_*` tools.
//!
//! [`definitions`] is what `tools/list` shows of them. A call goes to [`call`], except that of
//! [`EXTERNAL_CALL_TOOL`], which [`parse_external_call`] reads and the relay answers. A tool answers with two texts, a
//! summary for people and the whole as JSON for clients that know no structured content (MCP asks for the latter,
//! "Tools: Structured Content"), and with `structuredContent`.

mod answer;
mod arguments;
mod definitions;
mod facts;
mod inputs;
mod skills;

pub use answer::ToolOutcome;
pub use arguments::ArgumentError;
pub use definitions::{Definition, EXTERNAL_CALL_TOOL, Route, Tool, definition, definitions};
pub use facts::{ExternalTool, Offered, View};
pub use skills::Skills;

use crate::store::{Error, MAX_PRIORITY, MAX_TITLE, PRIORITY_DEFAULT, Store, TaskFilter};
use answer::refused;
use arguments::{quoted, read};
use colibri_api::{CostMode, NewTask, TaskStatus};
use colibri_protocol::{Code, Failure};
use inputs::{CallTool, CreateTask, IntakeTask, ListTasks, ListTools, Nothing, SetCostMode};

/// What a call needs.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The daemon with this cost mode, and its servers, as this caller sees them.
    pub look: &'a dyn Fn(CostMode) -> View,
    /// What is offered to this caller.
    pub offered: &'a dyn Fn() -> Offered,
    /// Tasks and cost mode.
    pub store: &'a Store,
    /// The skill directories.
    pub skills: &'a Skills,
    /// The caller, from the kernel.
    pub uid: u32,
}

/// Answers a call. `arguments` is the raw JSON of `params.arguments`, if there is one. The gate was
/// checked before.
pub fn call(tool: Tool, arguments: Option<&[u8]>, context: Context<'_>) -> ToolOutcome {
    answer(tool, arguments, context).unwrap_or_else(refused)
}

fn answer(tool: Tool, arguments: Option<&[u8]>, context: Context<'_>) -> Result<ToolOutcome, Failure> {
    let Context { store, .. } = context;
    let look = || Ok::<_, Error>((context.look)(store.cost_mode()?));
    let known = tool.definition().map(Definition::arguments).unwrap_or_default();
    match tool {
        Tool::Status => {
            let Nothing {} = read(arguments, &known)?;
            answer::status(look()?)
        }
        Tool::Snapshot => {
            let Nothing {} = read(arguments, &known)?;
            answer::snapshot(look()?, &store.task_counts()?)
        }
        Tool::ListTasks => {
            let asked: ListTasks = read(arguments, &known)?;
            let filter = TaskFilter {
                status: asked.status,
                source: asked.source,
            };
            answer::tasks(&store.tasks(&filter, asked.limit, asked.cursor.as_deref())?)
        }
        Tool::ListSkills => {
            let Nothing {} = read(arguments, &known)?;
            answer::skills(&context.skills.scan())
        }
        Tool::CreateTask => {
            let asked: CreateTask = read(arguments, &known)?;
            let new = NewTask {
                title: asked.title,
                description: asked.description,
                source: asked.source,
                status: TaskStatus::Queued,
                required_capabilities: asked.required_capabilities,
                priority: u8::try_from(asked.priority).unwrap_or(MAX_PRIORITY),
                created_by: context.uid,
            };
            answer::task(store.add_task(new)?)
        }
        Tool::IntakeTask => {
            let IntakeTask { text, source } = read(arguments, &known)?;
            let first = text.lines().map(str::trim).find(|line| !line.is_empty());
            let first = first.ok_or_else(|| ArgumentError("argument text is blank".to_owned()))?;
            let title = first
                .chars()
                .map(|c| if c == '\t' || c == '\r' { ' ' } else { c })
                .take(MAX_TITLE)
                .collect();
            let new = NewTask {
                title,
                source,
                description: text,
                status: TaskStatus::Intake,
                required_capabilities: Vec::new(),
                priority: PRIORITY_DEFAULT,
                created_by: context.uid,
            };
            answer::task(store.add_task(new)?)
        }
        Tool::SetCostMode => {
            let SetCostMode { mode } = read(arguments, &known)?;
            store.set_cost_mode(mode)?;
            answer::cost_mode(mode)
        }
        Tool::ExternalServers => {
            let Nothing {} = read(arguments, &known)?;
            answer::servers(look()?.servers)
        }
        Tool::ExternalListTools => {
            let ListTools { server } = read(arguments, &known)?;
            answer::external_tools((context.offered)(), server.as_deref())
        }
    }
}

/// A call that [`EXTERNAL_CALL_TOOL`] asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalCall<'a> {
    /// The server's id; it may not exist.
    pub server: String,
    /// The server's own name of the tool; it may not exist.
    pub tool: String,
    /// The raw JSON object of the arguments, a part of the bytes that were parsed; `None` if none were given.
    pub arguments: Option<&'a [u8]>,
}

/// Reads the arguments of [`EXTERNAL_CALL_TOOL`]; the external tool's own are not looked into. The gate was
/// checked before.
///
/// # Errors
/// What is wrong with them; [`ArgumentError::outcome`] makes the answer.
pub fn parse_external_call(arguments: Option<&[u8]>) -> Result<ExternalCall<'_>, ArgumentError> {
    let known = definition(EXTERNAL_CALL_TOOL)
        .map(Definition::arguments)
        .unwrap_or_default();
    let CallTool {
        server,
        tool,
        arguments,
    } = read(arguments, &known)?;
    let arguments = arguments.map(|raw| raw.get().as_bytes());
    if arguments.is_some_and(|raw| raw.first() != Some(&b'{')) {
        return Err(ArgumentError("argument arguments must be an object".to_owned()));
    }
    Ok(ExternalCall {
        server,
        tool,
        arguments,
    })
}

impl ArgumentError {
    /// The answer to the call: an error result.
    pub fn outcome(self) -> ToolOutcome {
        refused(self.into())
    }
}

impl From<ArgumentError> for Failure {
    fn from(error: ArgumentError) -> Self {
        Failure::new(Code::SchemaInvalid, error.to_string()).by_rule("inputSchema")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Cursor(cursor) => ArgumentError(cursor.to_string()).into(),
            Error::Full { .. } => Failure::new(Code::StoreUnavailable, error.to_string())
                .advising("ask the operator to delete ended tasks, then call again"),
            error => Failure::new(Code::StoreUnavailable, error.to_string()),
        }
    }
}

/// Why an external call fails of what is not there. `known`: the server is, and only the tool is not.
pub fn no_such_tool(server: &str, tool: &str, known: bool) -> Failure {
    if known {
        let why = format!("server {} has no tool {}", quoted(server), quoted(tool));
        Failure::new(Code::NoSuchTool, why).of_server(server)
    } else {
        Failure::new(Code::NoSuchTool, format!("there is no server {}", quoted(server)))
    }
}

#[cfg(test)]
mod tests;
