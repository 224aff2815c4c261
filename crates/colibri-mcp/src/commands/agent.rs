//! `colibri-mcp agent`: agents are run, seen and ended.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use colibri_api::{
    AgentEvent, AgentEventsRequest, AgentFacts, AgentInstance, AgentState, AgentsResponse,
    OneAgent, SpawnAgentRequest, StopAgentRequest, TaskStatus, UNBOUNDED_MOUNT,
};
use colibri_text::{brief, counted, visible};
use nix::sys::signal::Signal;
use serde_json::json;
use serde_json::value::RawValue;

use super::agent_event::describe_event;
use super::agent_setup;
use super::context::CommandContext;
use super::signals::on_signals;
use super::write_gate;
use crate::connection::{DaemonConnection, RequestError, read};
use crate::failure::CommandError;
use crate::terminal::{self, Style, TextTable, clock, duration, since, user};

/// Digits of an instance's id.
const WHOLE_ID: usize = 16;
/// The most characters of ids in a message.
const MAX_IDS: usize = 200;
/// The longest time for the writing of a line once a signal says to end.
const LAST_LINES: Duration = Duration::from_secs(2);
/// The action.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum AgentCommand {
    /// Sets an agent up on your own machine, and asks for the key of its model
    Add(agent_setup::AddAgentArguments),
    /// Starts an instance of an agent, for you
    Run(RunArguments),
    /// Shows the agents that you may run, and their instances
    List,
    /// Ends an instance, and waits until it has
    Stop(Stop),
    /// Shows what an instance wrote
    Log(AgentLogArguments),
}

/// The agent, and its work.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// The agent's name in the registry
    name: String,
    /// The work: becomes a task, which the agent takes.
    #[arg(conflicts_with = "task")]
    prompt: Option<String>,
    /// The queued task of yours that it is to take, by its number
    #[arg(long, value_name = "N")]
    task: Option<u64>,
    /// Shows what it does until it ends; exits with 0 only if it was done, and its task with it
    #[arg(long)]
    follow: bool,
}

/// The instance.
#[derive(Debug, clap::Args)]
pub(crate) struct Stop {
    /// The instance, as `colibri-mcp agent list` shows it; its first digits do
    id: String,
}

/// The instance, and the time to follow it.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentLogArguments {
    /// The instance, as `colibri-mcp agent list` shows it; its first digits do
    id: String,
    /// Goes on until it ends; exits with 0 only if it was done, and its task with it
    #[arg(long)]
    follow: bool,
}

/// Runs the command.
pub(crate) fn run(
    command: &AgentCommand,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    match command {
        AgentCommand::Add(arguments) => agent_setup::run(arguments, context),
        AgentCommand::Run(arguments) => {
            agent_setup::check_there(&arguments.name, context)?;
            write_gate::ensure_open(context)?;
            start(arguments, context)
        }
        AgentCommand::List => {
            let (agents, raw): (AgentsResponse, _) = context.ask("colibri/agents", &json!({}))?;
            context.print(&raw, || list(&agents))?;
            Ok(ExitCode::SUCCESS)
        }
        AgentCommand::Stop(Stop { id }) => stop(id, context),
        AgentCommand::Log(AgentLogArguments { id, follow }) => {
            let mut connection = context.connect()?;
            let id = whole_id(&mut connection, id)?;
            let seen = watch(connection, &id, *follow, context)?;
            Ok(if *follow {
                status(&seen)
            } else {
                ExitCode::SUCCESS
            })
        }
    }
}

/// 0 only if it was done, and its task with it.
fn status(seen: &AgentInstance) -> ExitCode {
    let has_task_done = seen.task.is_none() || seen.task_status == Some(TaskStatus::Done);
    ExitCode::from(u8::from(seen.state != AgentState::Done || !has_task_done))
}

fn start(arguments: &RunArguments, context: &CommandContext) -> Result<ExitCode, CommandError> {
    let asked = SpawnAgentRequest {
        agent: arguments.name.clone(),
        task: arguments.task,
        prompt: arguments.prompt.clone(),
    };
    let mut connection = context.connect()?;
    let (OneAgent { instance }, raw) = connection.ask::<OneAgent>("colibri/spawn-agent", &asked)?;
    if !arguments.follow {
        context.print(&raw, || {
            let task = instance
                .task
                .map(|task| format!(" on task {task}"))
                .unwrap_or_default();
            format!(
                "{} runs{task} as {id}; colibri-mcp agent log {id} --follow shows what it does",
                visible(&instance.agent),
                id = visible(&instance.id)
            )
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let seen = watch(connection, &instance.id, true, context)?;
    Ok(status(&seen))
}

/// The id of the instance that a person means by its first digits. The daemon knows whole ids
/// alone.
///
/// # Errors
/// Several instances begin so.
fn whole_id(connection: &mut DaemonConnection, digits: &str) -> Result<String, CommandError> {
    if digits.is_empty() || digits.len() >= WHOLE_ID {
        return Ok(digits.to_owned());
    }
    let (AgentsResponse { instances, .. }, _) = connection.ask("colibri/agents", &json!({}))?;
    resolve_id(&instances, digits)
}

fn resolve_id(instances: &[AgentInstance], digits: &str) -> Result<String, CommandError> {
    let ids = instances.iter().map(|instance| instance.id.as_str());
    let begun: Vec<&str> = ids.filter(|id| id.starts_with(digits)).collect();
    match begun[..] {
        // The daemon refuses what is none.
        [] => Ok(digits.to_owned()),
        [id] => Ok(id.to_owned()),
        _ => Err(CommandError::Data(format!(
            "{} instances begin with {}: {}; give more digits",
            begun.len(),
            visible(digits),
            brief(&begun.join(", "), MAX_IDS)
        ))),
    }
}

fn stop(id: &str, context: &CommandContext) -> Result<ExitCode, CommandError> {
    let mut connection = context.connect()?;
    let id = whole_id(&mut connection, id)?;
    let stopping: OneAgent = connection
        .ask("colibri/stop-agent", &StopAgentRequest { id: id.clone() })?
        .0;
    let had_ended = stopping.instance.ended_at.is_some();
    let asked = AgentEventsRequest {
        id,
        from: u64::MAX,
        follow: true,
    };
    let (OneAgent { instance }, raw): (OneAgent, _) =
        connection.ask("colibri/agent-events", &asked)?;
    context.print(&raw, || {
        let what = if had_ended {
            "had ended already"
        } else {
            "has ended"
        };
        format!("{} {what}: {}", visible(&instance.id), ending(&instance))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Shows what an instance wrote and, with `follow`, writes. Returns it as it was at the end.
fn watch(
    mut connection: DaemonConnection,
    id: &str,
    follow: bool,
    context: &CommandContext,
) -> Result<AgentInstance, CommandError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    if follow {
        let (canceller, told) = (connection.canceller()?, interrupted.clone());
        on_signals(&[Signal::SIGINT, Signal::SIGTERM], move |_| {
            told.store(true, Ordering::SeqCst);
            canceller.hang_up();
            std::thread::sleep(LAST_LINES);
            std::process::exit(130);
        })?;
    }
    let asked = AgentEventsRequest {
        id: id.to_owned(),
        from: 0,
        follow,
    };
    let mut shown = DisplayMode {
        json: context.json,
        follow,
        state: None,
        reason: None,
    };
    let outcome = connection.listen("colibri/agent-events", &asked, |_, name, params| {
        shown.tell(name, params).map(ControlFlow::Continue)
    });
    let result = match outcome {
        Err(CommandError::Request(RequestError::Lost { .. }))
            if interrupted.load(Ordering::SeqCst) =>
        {
            let id = visible(id);
            return Err(CommandError::Left(format!(
                "{id} goes on: colibri-mcp agent log {id} --follow shows it, colibri-mcp agent stop {id} ends it"
            )));
        }
        other => other?,
    };
    let result =
        result.ok_or_else(|| CommandError::Machine("the daemon's answer is missing".to_owned()))?;
    // Where the stream was ended for another reason, that is said instead.
    let OneAgent { instance } = read("colibri/agent-events", &result)?;
    if instance.ended_at.is_some() || !follow {
        eprintln!(
            "colibri-mcp: {} {}: {}",
            visible(&instance.agent),
            visible(&instance.id),
            ending(&instance)
        );
    }
    Ok(instance)
}

/// The form in which an instance is shown.
struct DisplayMode {
    json: bool,
    follow: bool,
    state: Option<AgentState>,
    reason: Option<String>,
}

impl DisplayMode {
    fn tell(&mut self, name: &str, params: &RawValue) -> Result<(), CommandError> {
        let is_known = matches!(name, "colibri/agent-event" | "colibri/agent-state");
        match name {
            _ if is_known && self.json => terminal::print(&colibri_text::json(params.get())),
            "colibri/agent-event" => {
                let event: AgentEvent = read(name, params)?;
                self.state(event.at, event.state, None)?;
                terminal::print(&describe_event(&event))
            }
            "colibri/agent-state" if self.follow => {
                let OneAgent { instance } = read(name, params)?;
                let at = instance.last_event_at.unwrap_or(instance.started_at);
                // What its own lines say comes with them.
                match instance.attention || instance.reason.is_some() {
                    true => self.state(at, instance.state, Some(&attention(&instance))),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Says that the state is another one, or another reason for it.
    fn state(
        &mut self,
        at: u64,
        state: AgentState,
        reason: Option<&str>,
    ) -> Result<(), CommandError> {
        if self.state == Some(state) && (reason.is_none() || self.reason.as_deref() == reason) {
            return Ok(());
        }
        self.state = Some(state);
        self.reason = reason.map(str::to_owned);
        let why = reason
            .map(|reason| format!(": {}", visible(reason)))
            .unwrap_or_default();
        terminal::print(&format!("{} -- {state}{why}", clock(at)))
    }
}

fn attention(instance: &AgentInstance) -> String {
    let stalled = instance
        .stalled
        .then_some("it is stalled: no event for long");
    let reasons = [stalled, instance.reason.as_deref()];
    let reasons: Vec<_> = reasons.into_iter().flatten().collect();
    reasons.join("; ")
}

/// The end of an instance, or its state, and its usage.
fn ending(instance: &AgentInstance) -> String {
    let mut text = instance.state.to_string();
    if let Some(exit) = &instance.exit {
        text.push_str(&format!(" ({})", visible(exit)));
    }
    text.push_str(&format!(
        ", {}, {}",
        counted(instance.events, "event"),
        counted(instance.calls, "call")
    ));
    if instance.skipped_lines > 0 {
        text.push_str(&format!(
            ", {} skipped",
            counted(instance.skipped_lines, "line")
        ));
    }
    if instance.tokens_in + instance.tokens_out > 0 {
        text.push_str(&format!(
            ", {} tokens in and {} out",
            instance.tokens_in, instance.tokens_out
        ));
    }
    if let Some(task) = instance.task {
        text.push_str(&match instance.task_status {
            None => format!(", task {task}"),
            Some(TaskStatus::Queued) => {
                format!("; task {task} is queued again: its agent ended without finishing it")
            }
            Some(TaskStatus::Failed) => format!("; task {task} has failed"),
            Some(status) => format!("; task {task} is {status}"),
        });
    }
    if let Some(reason) = &instance.reason {
        text.push_str(&format!("; {}", visible(reason)));
    }
    text
}

fn list(answer: &AgentsResponse) -> String {
    if answer.agents.is_empty() && answer.instances.is_empty() {
        return "No agents that you may run: an entry under \"agents\" in the registry names its users; see \
                external-mcp.json(5)."
            .to_owned();
    }
    let mut text = agents(&answer.agents);
    if !answer.instances.is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&instances(&answer.instances));
    }
    text
}

fn agents(agents: &[AgentFacts]) -> String {
    if agents.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&["agent", "running", "runs", "model", "can"]);
    let mut reasons = String::new();
    for agent in agents {
        let style = if agent.refusal.is_some() {
            Style::Bad
        } else {
            Style::Plain
        };
        let running = format!("{} of {}", agent.running, agent.max);
        let by_itself = if agent.autospawn {
            ", by itself too"
        } else {
            ""
        };
        let place = format!(
            "{}{by_itself}",
            if agent.jailed {
                "in a jail"
            } else {
                "on the host"
            }
        );
        let model = if agent.model { "relayed" } else { "none" };
        table.row(&[
            (&agent.agent, style),
            (&running, Style::Plain),
            (&place, Style::Plain),
            (model, Style::Plain),
            (&agent.capabilities.join(", "), Style::Plain),
        ]);
        if let Some(why) = &agent.refusal {
            reasons.push_str(&format!(
                "\n{}: not started: {}",
                visible(&agent.agent),
                visible(why)
            ));
        }
    }
    match reasons.is_empty() {
        true => table.text(),
        false => format!("{}\n{reasons}", table.text()),
    }
}

fn instances(instances: &[AgentInstance]) -> String {
    let mut reasons = String::new();
    for instance in instances {
        let unbounded =
            (instance.unbounded && instance.ended_at.is_none()).then_some(UNBOUNDED_MOUNT);
        for reason in instance.reason.as_deref().into_iter().chain(unbounded) {
            reasons.push_str(&format!("\n{}: {}", visible(&instance.id), visible(reason)));
        }
    }
    let text = instance_table(instances).text();
    match reasons.is_empty() {
        true => text,
        false => format!("{text}\n{reasons}"),
    }
}

fn instance_table(instances: &[AgentInstance]) -> TextTable {
    // Where several hosts share the board.
    let has_hosts = instances.iter().any(|instance| instance.host.is_some());
    let host: &[&str] = if has_hosts { &["host"] } else { &[] };
    let titles = ["agent", "state", "for", "task", "events", "calls", "tokens"];
    let mut table = TextTable::new(&[&["instance"], host, &titles].concat());
    table.keep_first_whole();
    for instance in instances {
        let style = match instance.state {
            AgentState::Error => Style::Bad,
            _ if instance.attention => Style::Odd,
            AgentState::Done => Style::Good,
            _ => Style::Plain,
        };
        let mut state = match instance.ended_at {
            None => format!(
                "{} {}",
                instance.state,
                since(instance.last_event_at.unwrap_or(instance.started_at))
            ),
            Some(at) => format!(
                "{}, ended {} ago after {}",
                instance.state,
                since(at),
                duration(at.saturating_sub(instance.started_at) / 1000)
            ),
        };
        if instance.stalled {
            state.push_str(", stalled");
        }
        let tokens = instance.tokens_in + instance.tokens_out;
        let person = instance
            .person
            .clone()
            .unwrap_or_else(|| user(instance.uid));
        let task = instance
            .task
            .map_or("-".to_owned(), |task| task.to_string());
        let numbers = [instance.events, instance.calls, tokens].map(|number| number.to_string());
        let mut cells = vec![(instance.id.as_str(), Style::Plain)];
        if has_hosts {
            cells.push((instance.host.as_deref().unwrap_or("-"), Style::Plain));
        }
        cells.extend([(instance.agent.as_str(), Style::Plain), (&state, style)]);
        let rest = [&person, &task].into_iter().chain(&numbers);
        cells.extend(rest.map(|text| (text.as_str(), Style::Plain)));
        table.row(&cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn instance(more: Value) -> AgentInstance {
        let mut all = json!({
            "id": "0123456789abcdef", "agent": "coder", "uid": 4_000_000_000_u32, "task": 7, "state": "error",
            "stalled": false, "attention": true, "reason": "stopped by uid 0\u{1b}", "session_id": null,
            "started_at": 1000, "ended_at": 61_000, "exit": "exit status 143 (signal 15)", "last_event_at": 2000,
            "events": 3, "skipped_lines": 1, "calls": 2, "approvals": 0, "bytes": 9, "tokens_in": 5, "tokens_out": 6,
            "jail": null, "cwd": "/",
        });
        for (key, value) in more.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn the_end_of_an_instance_says_what_an_operator_needs() {
        assert_eq!(
            ending(&instance(json!({}))),
            "error (exit status 143 (signal 15)), 3 events, 2 calls, 1 line skipped, 5 tokens in and 6 out, \
             task 7; stopped by uid 0\\u{1b}"
        );
    }

    #[test]
    fn an_end_without_its_task_done_is_no_success() {
        for (state, task, status, fate, is_success) in [
            ("done", Some(7), Some("done"), "; task 7 is done", true),
            (
                "done",
                Some(7),
                Some("queued"),
                "; task 7 is queued again: its agent ended without finishing it",
                false,
            ),
            (
                "done",
                Some(7),
                Some("failed"),
                "; task 7 has failed",
                false,
            ),
            ("done", Some(7), None, ", task 7", false),
            ("error", Some(7), Some("done"), "; task 7 is done", false),
            ("done", None, None, "6 out", true),
        ] {
            let seen =
                json!({ "state": state, "task": task, "task_status": status, "reason": null });
            let seen = instance(seen);
            assert!(ending(&seen).ends_with(fate), "{}", ending(&seen));
            assert_eq!(
                self::status(&seen) == ExitCode::SUCCESS,
                is_success,
                "{fate}"
            );
        }
    }

    #[test]
    fn the_first_digits_name_an_instance_if_no_other_begins_so() {
        let known = ["0123456789abcdef", "0123fedcba987654", "fedcba9876543210"];
        let known = known.map(|id| instance(json!({ "id": id })));
        let resolve = |digits: &str| resolve_id(&known, digits);
        assert_eq!(resolve("f").unwrap(), "fedcba9876543210");
        assert_eq!(resolve("01234").unwrap(), "0123456789abcdef");
        assert_eq!(resolve("0123f").unwrap(), "0123fedcba987654");
        assert_eq!(resolve("7").unwrap(), "7");
        let several = resolve("0123").unwrap_err();
        assert_eq!(several.exit_code(), 65);
        for part in ["begin with 0123: ", "0123456789abcdef", "0123fedcba987654"] {
            assert!(several.to_string().contains(part), "{several}");
        }
    }

    #[test]
    fn the_id_of_an_instance_stands_on_one_line_at_80_columns() {
        let state = json!({ "agent": "one-with-as-long-a-name-as-can-be", "task": 12345, "events": 100_000 });
        let table = instance_table(&[instance(state)]).text_in(80);
        assert!(table.contains("0123456789abcdef"), "{table}");
        assert!(
            table.lines().all(|line| line.chars().count() <= 80),
            "{table}"
        );
    }

    #[test]
    fn the_list_shows_agents_instances_and_reasons() {
        let answer: AgentsResponse = serde_json::from_value(json!({
            "agents": [{"agent": "coder", "capabilities": ["rust"], "max": 2, "running": 1, "jailed": true, "model": true,
                "autospawn": true, "refusal": "it is disabled"}],
            "instances": [
                instance(json!({"state": "blocked", "ended_at": null, "exit": null, "reason": "waits",
                    "unbounded": true})),
                instance(json!({"id": "fedcba9876543210"})),
            ],
        }))
        .unwrap();
        let text = list(&answer).replace('\n', " ");
        for part in [
            "1 of 2",
            "in a jail, by",
            "relayed",
            "rust",
            "coder: not started: it is disabled",
            "blocked",
            "0123456789abcdef: unbounded mount",
            "ended",
            "fedcba9876543210: stopped by uid 0\\u{1b}",
            "4000000000",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(list(&AgentsResponse::default()).contains("No agents"));
    }
}
