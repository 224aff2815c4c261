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
mod skills;

pub use answer::ToolOutcome;
pub use arguments::ArgumentError;
pub use definitions::{Definition, EXTERNAL_CALL_TOOL, Route, Tool, definition, definitions};
pub use facts::{
    ExternalTool, Facts, GateState, Gates, JailFacts, ProcessFacts, ServerFacts, ServerState, ServerTransport,
};
pub use skills::{Skill, SkillCatalogue, SkillProblem, Skills};

use crate::policy::Gate;
use crate::store::{
    CAPABILITIES_MAX, CAPABILITY_MAX, CostMode, DESCRIPTION_MAX, Error, LABEL_MAX, NewTask, PAGE_DEFAULT, PAGE_MAX,
    PRIORITY_DEFAULT, PRIORITY_MAX, Store, TITLE_MAX, TaskFilter, TaskStatus,
};
use answer::Refusal;
use arguments::{Arguments, required};

/// The most characters of a server id (DESIGN §5).
const SERVER_ID_MAX: usize = 32;
/// The most characters of an external tool's own name.
const EXTERNAL_TOOL_NAME_MAX: usize = 1024;
/// The source of a task for which none was said.
const SOURCE_DEFAULT: &str = "mcp";

/// What a call needs.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The daemon, as this caller sees it.
    pub facts: &'a dyn Facts,
    /// Tasks and cost mode.
    pub store: &'a Store,
    /// The skill directories.
    pub skills: &'a Skills,
    /// The caller, from the kernel.
    pub uid: u32,
}

/// Answers a call. `arguments` is the raw JSON of `params.arguments`, if there is one. The gate is checked first, then
/// the arguments.
pub fn call(tool: Tool, arguments: Option<&[u8]>, context: Context<'_>) -> ToolOutcome {
    answer(tool, arguments, context).unwrap_or_else(|refusal| refusal.outcome())
}

fn answer(tool: Tool, arguments: Option<&[u8]>, context: Context<'_>) -> Result<ToolOutcome, Refusal> {
    let gate = definitions()
        .iter()
        .find(|d| d.route == Route::Here(tool))
        .map_or(Gate::None, |d| d.gate);
    check_gate(gate, &context.facts.gates())?;
    let Context { facts, store, .. } = context;
    let read = |known: &[&str]| Arguments::read(arguments, known);
    match tool {
        Tool::Status => {
            read(&[])?;
            answer::status(facts, store.cost_mode()?)
        }
        Tool::Snapshot => {
            read(&[])?;
            answer::snapshot(facts, store.cost_mode()?, &store.task_counts()?)
        }
        Tool::ListTasks => {
            let given = read(&["status", "source", "limit", "cursor"])?;
            let filter = TaskFilter {
                status: given.choice("status", &TaskStatus::ALL.map(|s| (s.name(), s)))?,
                source: given.label("source", LABEL_MAX)?,
            };
            let limit = given.integer("limit", 1, PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
            let cursor = given.string("cursor", 1, 64)?;
            answer::tasks(&store.tasks(&filter, limit, cursor.as_deref())?)
        }
        Tool::ListSkills => {
            read(&[])?;
            answer::skills(&context.skills.scan())
        }
        Tool::CreateTask => {
            let given = read(&["title", "description", "source", "priority", "required_capabilities"])?;
            let priority = given.integer("priority", 0, u32::from(PRIORITY_MAX))?;
            let new = NewTask {
                title: required("title", given.line("title", 1, TITLE_MAX)?)?,
                description: given.text("description", 0, DESCRIPTION_MAX)?.unwrap_or_default(),
                source: given
                    .label("source", LABEL_MAX)?
                    .unwrap_or_else(|| SOURCE_DEFAULT.to_owned()),
                status: TaskStatus::Queued,
                required_capabilities: given.labels("required_capabilities", CAPABILITIES_MAX, CAPABILITY_MAX)?,
                priority: priority.and_then(|p| u8::try_from(p).ok()).unwrap_or(PRIORITY_DEFAULT),
                created_by: context.uid,
            };
            answer::task(store.add_task(new)?)
        }
        Tool::IntakeTask => {
            let given = read(&["text", "source"])?;
            let text = required("text", given.text("text", 1, DESCRIPTION_MAX)?)?;
            let first = text.lines().map(str::trim).find(|line| !line.is_empty());
            let first = first.ok_or_else(|| ArgumentError("argument text is blank".to_owned()))?;
            let title = first
                .chars()
                .map(|c| if c == '\t' || c == '\r' { ' ' } else { c })
                .take(TITLE_MAX)
                .collect();
            let new = NewTask {
                title,
                source: given
                    .label("source", LABEL_MAX)?
                    .unwrap_or_else(|| SOURCE_DEFAULT.to_owned()),
                description: text,
                status: TaskStatus::Intake,
                required_capabilities: Vec::new(),
                priority: PRIORITY_DEFAULT,
                created_by: context.uid,
            };
            answer::task(store.add_task(new)?)
        }
        Tool::SetCostMode => {
            let given = read(&["mode"])?;
            let mode = required("mode", given.choice("mode", &CostMode::ALL.map(|m| (m.name(), m)))?)?;
            store.set_cost_mode(mode)?;
            answer::cost_mode(mode)
        }
        Tool::ExternalServers => {
            read(&[])?;
            answer::servers(&facts.servers())
        }
        Tool::ExternalListTools => {
            let given = read(&["server"])?;
            let server = given.string("server", 1, SERVER_ID_MAX)?;
            answer::external_tools(facts, server.as_deref())
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

/// Reads the arguments of [`EXTERNAL_CALL_TOOL`]; the external tool's own are not looked into. The gate is the caller's
/// to check, by [`gate_refusal`].
///
/// # Errors
/// What is wrong with them; [`ArgumentError::outcome`] makes the answer.
pub fn parse_external_call(arguments: Option<&[u8]>) -> Result<ExternalCall<'_>, ArgumentError> {
    let given = Arguments::read(arguments, &["server", "tool", "arguments"])?;
    let server = required("server", given.string("server", 1, SERVER_ID_MAX)?)?;
    let tool = required("tool", given.string("tool", 1, EXTERNAL_TOOL_NAME_MAX)?)?;
    let arguments = given.raw("arguments").map(|raw| raw.get().as_bytes());
    if arguments.is_some_and(|raw| raw.first() != Some(&b'{')) {
        return Err(ArgumentError("argument arguments must be an object".to_owned()));
    }
    Ok(ExternalCall {
        server,
        tool,
        arguments,
    })
}

/// The answer to a call of an external tool that is not there.
pub fn no_such_tool(server: &str, tool: &str, server_is_known: bool) -> ToolOutcome {
    let (why, instruction) = if server_is_known {
        (
            format!("server {server} has no tool called {tool}"),
            "call colibri_external_mcp_list_tools to see its tools",
        )
    } else {
        (
            format!("there is no server called {server}"),
            "call colibri_external_mcp_servers to see the servers",
        )
    };
    Refusal {
        code: "UNKNOWN_TOOL",
        why,
        rule: None,
        instruction: instruction.to_owned(),
    }
    .outcome()
}

/// The answer to a call behind `gate`, if it is not open: what to set. For our own tools [`call`] asks by itself.
pub fn gate_refusal(gate: Gate, gates: &Gates) -> Option<ToolOutcome> {
    check_gate(gate, gates).err().map(|refusal| refusal.outcome())
}

fn check_gate(gate: Gate, gates: &Gates) -> Result<(), Refusal> {
    let (state, name, flag, variable) = match gate {
        Gate::None => return Ok(()),
        Gate::Write => (&gates.write, "write", "--write", "COLIBRI_MCP_WRITE=1"),
        Gate::External => (
            &gates.external_call,
            "external-call",
            "--external-call",
            "COLIBRI_MCP_EXTERNAL_CALL=1",
        ),
    };
    let (why, rule, instruction) = match state {
        GateState::Open => return Ok(()),
        GateState::Closed => (
            format!("the {name} gate of this daemon is closed"),
            format!("gate:{name}"),
            format!("start colibri-mcpd with {flag} or {variable}"),
        ),
        GateState::Narrowed => (
            format!("the {name} gate is closed for this connection, by its own colibri-mcp --read-only"),
            format!("narrow:{name}"),
            "start colibri-mcp without --read-only".to_owned(),
        ),
        GateState::Refused { rule } => (
            format!("policy keeps the {name} gate closed for this user, by {rule}"),
            rule.clone(),
            "ask the operator to open it in that file".to_owned(),
        ),
    };
    Err(Refusal {
        code: "GATE_CLOSED",
        why,
        rule: Some(rule),
        instruction,
    })
}

impl ArgumentError {
    /// The answer to the call: an error result.
    pub fn outcome(self) -> ToolOutcome {
        Refusal::from(self).outcome()
    }
}

impl From<ArgumentError> for Refusal {
    fn from(error: ArgumentError) -> Self {
        Refusal {
            code: "INVALID_ARGUMENTS",
            why: error.to_string(),
            rule: Some("inputSchema".to_owned()),
            instruction: "correct the arguments and call again".to_owned(),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let (code, instruction) = match &error {
            Error::Cursor(cursor) => return ArgumentError(cursor.to_string()).into(),
            Error::Full { .. } => ("STORE_FULL", "ask the operator to delete ended tasks"),
            _ => (
                "STORE_UNAVAILABLE",
                "ask the operator to look after the state directory, then call again",
            ),
        };
        Refusal {
            code,
            why: error.to_string(),
            rule: None,
            instruction: instruction.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
