//! `colibri_schedule_task`.

use super::super::arguments::{
    ArgumentError, LABEL_PATTERN, given, label, labels, name, some_line, text, whole,
};
use super::super::summary::{MAX_SUMMARY_TEXT, push_list};
use super::prelude::*;
use colibri_api::{
    NewTask, Schedule, ScheduledCall, ScheduledWork, Schedules, TaskLimits, TaskStatus, Timing,
};
use colibri_protocol::Code;
use colibri_store::{
    MAX_CAPABILITIES, MAX_CAPABILITY, MAX_DESCRIPTION, MAX_LABEL, MAX_PRIORITY, MAX_TITLE,
};
use colibri_text::{brief, counted};
use serde_json::value::RawValue;

/// The change to schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ScheduleAction {
    Create,
    List,
    Delete,
}

/// The arguments of `colibri_schedule_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleTask {
    /// Create one, list yours, or delete one.
    action: ScheduleAction,
    /// The number of the schedule to delete.
    #[serde(default, deserialize_with = "whole::<_, _, 1, { u32::MAX }>")]
    #[schemars(with = "u64", range(min = 1, max = u32::MAX))]
    schedule: Option<u32>,
    /// When: minute, hour, day, month and weekday as cron has them, in UTC.
    #[serde(default, deserialize_with = "name::<_, _, 9, 200>")]
    #[schemars(with = "String", length(min = 9, max = 200))]
    cron: Option<String>,
    /// When: every so many seconds.
    #[serde(default, deserialize_with = "whole::<_, _, 1, 31_622_400>")]
    #[schemars(with = "u64", range(min = 1, max = 31_622_400))]
    every_s: Option<u32>,
    /// When: once, at this time, for example 2026-11-24T03:00:00Z.
    #[serde(default, deserialize_with = "name::<_, _, 20, 25>")]
    #[schemars(with = "String", length(min = 20, max = 25))]
    at: Option<String>,
    /// The title of the task to create, in one line; either title or tool.
    #[serde(default, deserialize_with = "some_line::<_, 1, MAX_TITLE>")]
    #[schemars(with = "String", length(min = 1, max = MAX_TITLE))]
    title: Option<String>,
    /// All that somebody needs to know to do the task.
    #[serde(default, deserialize_with = "text::<_, 0, MAX_DESCRIPTION>")]
    #[schemars(length(min = 0, max = MAX_DESCRIPTION))]
    description: String,
    /// Where the task comes from.
    #[serde(
        default = "schedule_source",
        deserialize_with = "label::<_, _, MAX_LABEL>"
    )]
    #[schemars(length(min = 1, max = MAX_LABEL), regex(pattern = LABEL_PATTERN))]
    source: String,
    /// 0 is the lowest, 9 the highest.
    #[serde(
        default = "priority",
        deserialize_with = "whole::<_, _, 0, { MAX_PRIORITY as u32 }>"
    )]
    #[schemars(range(min = 0, max = MAX_PRIORITY))]
    priority: u32,
    /// What somebody must be able to do to take the task.
    #[serde(
        default,
        deserialize_with = "labels::<_, MAX_CAPABILITIES, MAX_CAPABILITY>"
    )]
    #[schemars(length(max = MAX_CAPABILITIES), extend("uniqueItems" = true))]
    #[schemars(inner(length(min = 1, max = MAX_CAPABILITY), regex(pattern = LABEL_PATTERN)))]
    required_capabilities: Vec<String>,
    /// The name of a tool to call instead of creating a task. It is called with your rights: gates, policy and approvals hold.
    #[serde(default, deserialize_with = "name::<_, _, 1, 128>")]
    #[schemars(with = "String", length(min = 1, max = 128))]
    tool: Option<String>,
    /// The tool's arguments.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    arguments: Option<Box<RawValue>>,
}

impl BuiltinTool for ScheduleTask {
    const NAME: &'static str = "colibri_schedule_task";
    const TITLE: &'static str = "Schedule a task";
    const DESCRIPTION: &'static str = "Creates, lists or deletes schedules. Each creates a task or calls one tool as you, by cron's \
    five fields (UTC), every so many seconds, or once; not while its last task or call has not ended. Needs the write \
    gate.";
    const ACCESS: Access = Access::Add;
    const ANSWER_SCHEMA: Option<fn() -> Value> = Some(of_answer::<Schedules>);

    fn answer(self, context: &BuiltinContext<'_>) -> Result<ToolOutcome, Failure> {
        let schedules = scheduled(context, self)?;
        let mut text = format!("{}\n", counted(schedules.len() as u64, "schedule"));
        push_list(&mut text, &schedules, |schedule| {
            let Schedule {
                id, timing, work, ..
            } = schedule;
            let when = match (&timing.cron, timing.every_s, &timing.at) {
                (Some(cron), ..) => cron.clone(),
                (_, Some(every), _) => format!("every {every} s"),
                (_, _, at) => at.clone().unwrap_or_default(),
            };
            let what = match (&work.task, &work.call) {
                (Some(task), _) => format!("creates {}", brief(&task.title, MAX_SUMMARY_TEXT)),
                (_, call) => format!(
                    "calls {}",
                    call.as_ref().map_or("nothing", |call| &call.tool)
                ),
            };
            let outcome = schedule
                .last_outcome
                .as_deref()
                .map(|last| format!(" ({})", brief(last, MAX_SUMMARY_TEXT)));
            format!("{id} [{when}] {what}{}", outcome.unwrap_or_default())
        });
        outcome(&text, &Schedules { schedules })
    }
}

fn schedule_source() -> String {
    "schedule".to_owned()
}

/// Does what the arguments say with schedules. Returns those that they are about.
fn scheduled(context: &BuiltinContext<'_>, asked: ScheduleTask) -> Result<Vec<Schedule>, Failure> {
    let BuiltinContext { board, who, .. } = *context;
    let wrong = |why: &str| Failure::from(ArgumentError(why.to_owned()));
    match asked.action {
        ScheduleAction::List => return board.schedules(who).map_err(store_failure),
        ScheduleAction::Delete => {
            let id = asked
                .schedule
                .ok_or_else(|| wrong("argument schedule is missing"))?;
            return Ok(vec![
                board.unschedule(who, id.into()).map_err(store_failure)?,
            ]);
        }
        ScheduleAction::Create => {}
    }
    let limits = context.inherited();
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
                limits: limits.clone(),
            }),
            call: None,
        },
        // A call of a schedule has a session of its own, which knows nothing of this one.
        (None, Some(_)) if limits != TaskLimits::default() => {
            let why = "this session is bound by a task, or has read untrusted or private text: it schedules no call";
            return Err(Failure::new(Code::PolicyDenied, why).advising(
                "schedule a task instead, which takes over the limits; or ask the person to schedule the call",
            ));
        }
        (None, Some(tool)) => {
            let arguments = asked.arguments.as_deref().map_or("{}", RawValue::get);
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
    Ok(vec![
        board
            .schedule_work(who, timing, work)
            .map_err(store_failure)?,
    ])
}
