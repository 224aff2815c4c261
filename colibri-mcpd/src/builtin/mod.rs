//! The built-in tools: `colibri_*`.
//!
//! [`definitions()`] is what `tools/list` shows of them. A call goes to [`call`], except that of
//! `EXTERNAL_CALL_TOOL` and `CALL_TOOL`, which `parse_external_call` and `parse_named_call` read and the relay
//! answers. A tool answers with two texts, a
//! summary for people and the whole as JSON for clients that know no structured content (MCP asks for the latter,
//! "Tools: Structured Content"), and with `structuredContent`.

mod answer;
mod arguments;
mod cost_summary;
mod definitions;
mod facts;
mod inputs;
mod skills;

pub use answer::ToolOutcome;
pub use arguments::ArgumentError;
pub(crate) use definitions::CALL_TOOL;
pub(crate) use definitions::EXTERNAL_CALL_TOOL;
pub use definitions::{BuiltinDefinition, BuiltinRoute, BuiltinTool, definition, definitions};
pub use facts::{AdvertisedTools, DaemonView, ExternalTool};
pub use skills::SkillDirectories;

use crate::board::{Board, BoardActor};
use crate::relay;
use crate::results::{NotRead, PieceRequest, PieceSelector, ResultOwner, Results};
use crate::store::{MAX_PRIORITY, MAX_TITLE, PRIORITY_DEFAULT, StoreError, TaskFilter};
use answer::refused;
use arguments::{quoted, read};
use bytes::Bytes;
use colibri_api::{
    CostMode, FoundTools, NewTask, Schedule, ScheduledCall, ScheduledWork, Task, TaskShare, TaskStatus, Timing,
};
use colibri_protocol::{Code, Failure};
use inputs::{
    CallNamed, CallTool, CancelTask, CreateTask, FailTask, FindTools, FinishTask, GetTask, IntakeTask, ListTasks,
    ListTools, NextTaskArguments, Nothing, ReadResult, ReleaseTask, ScheduleAction, ScheduleTask, SetCostMode,
    StartTask, ToolSchema,
};
use serde_json::value::RawValue;

/// Everything that a call needs.
#[derive(Clone, Copy)]
pub struct BuiltinContext<'a> {
    /// The daemon and its servers, as this caller sees them.
    pub look: &'a dyn Fn() -> DaemonView,
    /// The tools advertised to this caller.
    pub offered: &'a dyn Fn() -> AdvertisedTools,
    /// Sets the caller's cost mode; `None`: takes back what they set.
    pub set_cost_mode: &'a dyn Fn(Option<CostMode>) -> Result<(), Failure>,
    /// The tools that fit a query best, of all servers or of one, and not more than so many.
    pub find: &'a Find<'a>,
    /// The definition of a tool that this caller may see, as its client's version of MCP is listed it.
    pub definition: &'a dyn Fn(&str) -> Option<Bytes>,
    /// Tasks.
    pub board: &'a Board,
    /// With whom a task can be shared under a name.
    pub share: &'a ParseShare<'a>,
    /// The skill directories.
    pub skills: &'a SkillDirectories,
    /// Results over their limit, and the most bytes that an answer with a piece of one may have, if there is a limit.
    pub results: (&'a Results, Option<relay::cost::AnswerLimit>),
    /// The owner of the results that may be read.
    pub owner: &'a ResultOwner,
    /// The caller, from the kernel; for an agent's instance the person for whom it runs.
    pub who: BoardActor<'a>,
}

/// Finds tools that fit a query, of all servers or of one, and not more than so many.
pub type Find<'a> = dyn Fn(&str, Option<&str>, usize) -> Result<FoundTools, Failure> + 'a;

/// With whom a caller can share a task: `all`, or the name of one of their groups.
pub type ParseShare<'a> = dyn Fn(&str) -> Result<TaskShare, Failure> + 'a;

/// Creates the task that the arguments of `colibri_create_task` describe.
///
/// # Errors
/// They are wrong, or it cannot be stored.
pub fn create_task(
    board: &Board,
    who: BoardActor<'_>,
    arguments: Option<&[u8]>,
    share: &ParseShare<'_>,
) -> Result<Task, Failure> {
    let given: CreateTask = read(arguments, &BuiltinTool::CreateTask.arguments())?;
    let new = NewTask {
        title: given.title,
        description: given.description,
        source: given.source,
        status: TaskStatus::Queued,
        required_capabilities: given.required_capabilities,
        priority: u8::try_from(given.priority).unwrap_or(MAX_PRIORITY),
        created_by: who.uid,
        share: given.share.as_deref().map(share).transpose()?,
    };
    Ok(board.create(who, new, None)?)
}

/// True if the arguments of `colibri_create_task` share the task with others.
pub(crate) fn shares_task(arguments: &[u8]) -> bool {
    let given = read::<CreateTask>(Some(arguments), &BuiltinTool::CreateTask.arguments());
    given.is_ok_and(|given| given.share.is_some())
}

/// Answers a call. `arguments` is the raw JSON of `params.arguments`, if there is one. The gate was
/// checked before.
pub fn call(tool: BuiltinTool, arguments: Option<&[u8]>, context: BuiltinContext<'_>) -> ToolOutcome {
    answer(tool, arguments, context).unwrap_or_else(refused)
}

fn answer(tool: BuiltinTool, arguments: Option<&[u8]>, context: BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
    let BuiltinContext { look, board, who, .. } = context;
    let known = tool.arguments();
    match tool {
        BuiltinTool::Status => {
            let Nothing {} = read(arguments, &known)?;
            answer::status(look())
        }
        BuiltinTool::Snapshot => {
            let Nothing {} = read(arguments, &known)?;
            answer::snapshot(look(), &board.task_counts(Some(who))?)
        }
        BuiltinTool::ListTasks => {
            let asked: ListTasks = read(arguments, &known)?;
            let filter = TaskFilter {
                status: asked.status,
                source: asked.source,
            };
            answer::tasks(
                &board.tasks(who, &filter, asked.limit, asked.cursor.as_deref())?,
                who.uid,
            )
        }
        BuiltinTool::ListSkills => {
            let Nothing {} = read(arguments, &known)?;
            answer::skills(&context.skills.scan())
        }
        BuiltinTool::CreateTask => answer::task(create_task(board, who, arguments, context.share)?, who.uid),
        BuiltinTool::IntakeTask => {
            let IntakeTask {
                text,
                source,
                capabilities,
            } = read(arguments, &known)?;
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
                required_capabilities: capabilities,
                priority: PRIORITY_DEFAULT,
                created_by: who.uid,
                share: None,
            };
            answer::task(board.create(who, new, None)?, who.uid)
        }
        BuiltinTool::GetTask => {
            let GetTask { task } = read(arguments, &known)?;
            let (task, result) = board.task(who, task)?;
            answer::one_task(task, result, who.uid)
        }
        BuiltinTool::NextTask => {
            let NextTaskArguments {
                task,
                capabilities,
                shared,
            } = read(arguments, &known)?;
            if who.agent.is_some() && (task.is_some() || capabilities.is_some() || shared) {
                let why = "an agent is given the task that is next for it: leave task, capabilities and shared out";
                return Err(ArgumentError(why.to_owned()).into());
            }
            answer::next_task(
                board.next(who, task.map(u64::from), capabilities.as_deref(), shared)?,
                who.uid,
            )
        }
        BuiltinTool::StartTask => {
            let StartTask { task, claim } = read(arguments, &known)?;
            answer::one_task(board.start(who, task, claim)?, None, who.uid)
        }
        BuiltinTool::FinishTask => {
            let FinishTask { task, claim, result } = read(arguments, &known)?;
            // In valid JSON a line end is never part of a string; an answer is one line.
            let result = result.get().replace(['\n', '\r'], " ");
            answer::one_task(board.finish(who, task, claim, &result)?, None, who.uid)
        }
        BuiltinTool::FailTask => {
            let FailTask { task, claim, reason } = read(arguments, &known)?;
            answer::one_task(board.fail(who, task, claim, &reason)?, None, who.uid)
        }
        BuiltinTool::ReleaseTask => {
            let ReleaseTask { task, claim, reason } = read(arguments, &known)?;
            if who.agent.is_some() && claim.is_none() {
                return Err(ArgumentError("argument claim is missing".to_owned()).into());
            }
            answer::one_task(board.release(who, task, claim.map(u64::from), &reason)?, None, who.uid)
        }
        BuiltinTool::CancelTask => {
            let CancelTask { task, reason } = read(arguments, &known)?;
            answer::one_task(board.cancel(who, task, &reason)?, None, who.uid)
        }
        BuiltinTool::ScheduleTask => {
            let asked: ScheduleTask<'_> = read(arguments, &known)?;
            answer::schedules(scheduled(board, who, asked)?)
        }
        BuiltinTool::SetCostMode => {
            let SetCostMode { mode } = read(arguments, &known)?;
            (context.set_cost_mode)(mode.chosen())?;
            answer::cost_mode(&look().daemon)
        }
        BuiltinTool::ReadResult => {
            let asked: ReadResult = read(arguments, &known)?;
            let (results, limit) = context.results;
            if let Some(place) = asked.block {
                let most = limit.and_then(|limit| limit.whole).unwrap_or(u64::MAX);
                if (asked.lines, asked.length, &asked.json_pointer, &asked.pattern) != (None, None, &None, &None) {
                    return Err(ArgumentError("block can only be given alone".to_owned()).into());
                }
                return answer::block(&results.block(context.owner, &asked.handle, place as usize, most)?);
            }
            let (handle, request) = piece(asked, limit.map(|limit| limit.result))?;
            answer::piece(&results.read(context.owner, &handle, &request)?)
        }
        BuiltinTool::ExternalServers => {
            let Nothing {} = read(arguments, &known)?;
            answer::servers(look().servers)
        }
        BuiltinTool::ExternalListTools => {
            let ListTools { server } = read(arguments, &known)?;
            answer::external_tools((context.offered)(), server.as_deref())
        }
        BuiltinTool::FindTools => {
            let FindTools { query, limit, server } = read(arguments, &known)?;
            answer::found((context.find)(&query, server.as_deref(), limit as usize)?)
        }
        BuiltinTool::ToolSchema => {
            let ToolSchema { tool } = read(arguments, &known)?;
            let found = (context.definition)(&tool);
            answer::definition(&found.ok_or_else(|| relay::no_such_tool(&tool))?)
        }
    }
}

/// The most bytes of a kept result that are read at once.
const MOST_READ: u64 = 64 << 10;
/// The most bytes of an answer with a piece of one that are not the piece's.
const AROUND_PIECE: u64 = 256;

/// The handle, and what is asked for under it. All that can be wrong with it is found before the handle is looked at.
fn piece(asked: ReadResult, limit: Option<u64>) -> Result<(String, PieceRequest), ArgumentError> {
    let wrong = |name: &'static str| move |why: String| ArgumentError(format!("argument {name} {why}"));
    let what = match (asked.lines, asked.json_pointer, asked.pattern) {
        (None, None, None) if asked.length.is_none() => PieceSelector::All,
        (None, None, None) => PieceSelector::Json,
        (Some(lines), None, None) => PieceSelector::Lines(lines.into()),
        (None, Some(pointer), None) => PieceSelector::value(&pointer).map_err(wrong("json_pointer"))?,
        (None, None, Some(pattern)) => PieceSelector::matching(&pattern).map_err(wrong("pattern"))?,
        _ => {
            let why = "only one of lines, json_pointer and pattern can be given";
            return Err(ArgumentError(why.to_owned()));
        }
    };
    let request = PieceRequest {
        offset: asked.offset,
        most: asked.length.map_or(MOST_READ, |length| MOST_READ.min(length.into())),
        room: limit.map_or(u64::MAX, |limit| limit.saturating_sub(AROUND_PIECE)),
        what,
    };
    Ok((asked.handle, request))
}

fn scheduled(board: &Board, who: BoardActor<'_>, asked: ScheduleTask<'_>) -> Result<Vec<Schedule>, Failure> {
    let wrong = |why: &str| Failure::from(ArgumentError(why.to_owned()));
    match asked.action {
        ScheduleAction::List => return Ok(board.schedules(who)?),
        ScheduleAction::Delete => {
            let id = asked.schedule.ok_or_else(|| wrong("argument schedule is missing"))?;
            return Ok(vec![board.unschedule(who, id.into())?]);
        }
        ScheduleAction::Create => {}
    }
    let work = match (asked.title, asked.tool) {
        (Some(title), None) => ScheduledWork {
            task: Some(NewTask {
                title,
                description: asked.description,
                source: asked.source,
                status: TaskStatus::Queued,
                required_capabilities: asked.required_capabilities,
                priority: u8::try_from(asked.priority).unwrap_or(MAX_PRIORITY),
                created_by: who.uid,
                share: None,
            }),
            call: None,
        },
        (None, Some(tool)) => {
            let arguments = asked.arguments.map_or("{}", RawValue::get);
            if !arguments.starts_with('{') {
                return Err(wrong("argument arguments must be an object"));
            }
            // In valid JSON a line end is never part of a string; a message is one line.
            let arguments = RawValue::from_string(arguments.replace(['\n', '\r'], " "));
            let arguments = arguments.map_err(|error| wrong(&error.to_string()))?;
            ScheduledWork {
                task: None,
                call: Some(ScheduledCall { tool, arguments }),
            }
        }
        _ => return Err(wrong("either title or tool must be given")),
    };
    let timing = Timing {
        cron: asked.cron,
        every_s: asked.every_s.map(u64::from),
        at: asked.at,
    };
    Ok(vec![board.schedule_work(who, timing, work)?])
}

/// A call that `EXTERNAL_CALL_TOOL` asks for.
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
pub(crate) fn parse_external_call(arguments: Option<&[u8]>) -> Result<ExternalCall<'_>, ArgumentError> {
    let known = definition(EXTERNAL_CALL_TOOL)
        .map(BuiltinDefinition::arguments)
        .unwrap_or_default();
    let CallTool {
        server,
        tool,
        arguments,
    } = read(arguments, &known)?;
    Ok(ExternalCall {
        server,
        tool,
        arguments: inner(arguments)?,
    })
}

/// A call that `CALL_TOOL` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCall<'a> {
    /// The tool's name in lists; it may not exist.
    pub tool: String,
    /// As [`ExternalCall::arguments`].
    pub arguments: Option<&'a [u8]>,
}

/// Reads the arguments of [`CALL_TOOL`], as [`parse_external_call`] those of the other.
///
/// # Errors
/// What is wrong with them, or that the tool it names calls others, as this one does.
pub(crate) fn parse_named_call(arguments: Option<&[u8]>) -> Result<NamedCall<'_>, ArgumentError> {
    let known = definition(CALL_TOOL)
        .map(BuiltinDefinition::arguments)
        .unwrap_or_default();
    let CallNamed { tool, arguments } = read(arguments, &known)?;
    if let Some(named) =
        definition(&tool).filter(|named| matches!(named.route, BuiltinRoute::Relay | BuiltinRoute::Named))
    {
        let why = format!("argument tool: {} cannot be called through {CALL_TOOL}", named.name);
        return Err(ArgumentError(why));
    }
    Ok(NamedCall {
        tool,
        arguments: inner(arguments)?,
    })
}

/// The arguments of a tool that is called through another.
fn inner(arguments: Option<&RawValue>) -> Result<Option<&[u8]>, ArgumentError> {
    let arguments = arguments.map(|raw| raw.get().as_bytes());
    if arguments.is_some_and(|raw| raw.first() != Some(&b'{')) {
        return Err(ArgumentError("argument arguments must be an object".to_owned()));
    }
    Ok(arguments)
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

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cursor(cursor) => ArgumentError(cursor.to_string()).into(),
            StoreError::Task(refusal) => Failure::new(Code::TaskRefused, refusal.to_string()),
            StoreError::Timing(why) => ArgumentError(why).into(),
            StoreError::Schedules => {
                Failure::new(Code::TaskRefused, error.to_string()).advising("delete schedules first")
            }
            StoreError::Unrecorded(why) => Failure::new(Code::TrailUnavailable, why),
            StoreError::Full | StoreError::OpenTasks(_) => {
                Failure::new(Code::TaskRefused, error.to_string()).advising("finish or cancel tasks first")
            }
            error => Failure::new(Code::StoreUnavailable, error.to_string()),
        }
    }
}

impl From<NotRead> for Failure {
    fn from(error: NotRead) -> Self {
        match error {
            NotRead::Unknown => Failure::new(Code::NoSuchResult, error.to_string()),
            NotRead::Missing(why) => ArgumentError(why).into(),
            NotRead::Disk(_) => Failure::new(Code::StoreUnavailable, format!("the result {error}")),
        }
    }
}

/// The failure of an external call to a tool that does not exist. `known`: the server is, and only the tool is not.
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
