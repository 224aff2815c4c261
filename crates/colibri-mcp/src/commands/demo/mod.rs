//! `colibri-mcp demo`: a private daemon, one server, real calls, and nothing left behind.

pub(crate) mod agent;
pub(crate) mod daemon;
pub(crate) mod daemon_program;
pub(crate) mod server;
mod stage;

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::call;
use super::connect::{BridgeCommand, Editor, explained, snippet};
use super::tool_list::{OWN, ToolDefinition, exposed};
use crate::connection::{DaemonConnection, RequestProgress, ToolCallResult};
use crate::failure::CommandError;
use colibri_api::Servers;
use colibri_text::visible;
use daemon_program::daemon_program;
use stage::{
    DemoPlace, JAIL, SERVER, Stage, indented, lock, not_as_shown, play, say, verify,
    wait_for_daemon,
};

/// The demo.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArguments {
    #[command(subcommand)]
    which: Option<DemoKind>,
}

#[derive(Debug, clap::Subcommand)]
enum DemoKind {
    /// Runs an agent in front of a scripted model: a task from its creation to its result
    Agent,
}

/// Runs the command.
pub(crate) fn run(arguments: &DemoArguments) -> Result<(), CommandError> {
    match arguments.which {
        Some(DemoKind::Agent) => agent::run(),
        None => tools(),
    }
}

fn tools() -> Result<(), CommandError> {
    let daemon = daemon_program()?;
    let began = Instant::now();
    play(daemon, &[SERVER], |stage| {
        show(stage)?;
        say!("8. All of it was recorded; the daemon ends, and its trail is verified");
        verify(stage)
    })?;
    say!("9. Everything has ended");
    say!("   No process and no file of it is left.\n");
    say!(
        "That was Colibri MCP, in {:.1} s. Next: docs/guide, or `colibri-mcp --help`.",
        began.elapsed().as_secs_f32()
    );
    Ok(())
}

/// The tools that are listed, as soon as some have this prefix: on a slow machine a jailed server
/// takes longer to start than a list waits for it. After `MAX_START` those that are listed without.
fn listed_with(
    connection: &mut DaemonConnection,
    prefix: &str,
) -> Result<Vec<ToolDefinition>, CommandError> {
    let deadline = Instant::now() + MAX_START;
    loop {
        let (all, _) = exposed(connection, false)?;
        if all.iter().any(|tool| tool.name.starts_with(prefix)) || Instant::now() > deadline {
            return Ok(all);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Twice the time that the daemon gives a server to start where its entry says nothing.
const MAX_START: Duration = Duration::from_secs(60);

fn show(stage: &Mutex<Stage>) -> Result<(), CommandError> {
    say!("Colibri MCP: one service that gives every editor on a machine the same tools.\n");

    say!("1. A daemon of its own, for this demo");
    let context = lock(stage).start(&json!({}))?;
    let mut connection = wait_for_daemon(stage, &context)?;
    say!("   It listens on {}", context.place.socket.display());
    say!("   Gates: external-call open, write closed (the default).\n");

    match &lock(stage).place {
        DemoPlace::Jail => {
            say!("2. It hosts one MCP server, {JAIL}, and every editor sees these tools")
        }
        DemoPlace::Host { why } => {
            say!("2. It hosts one MCP server, and every editor sees these tools");
            say!("   The server runs as a process of this host, not in a jail:");
            say!("   {}", visible(why));
        }
    }
    let prefix = format!("{SERVER}__");
    let all = listed_with(&mut connection, &prefix)?;
    let hosted: Vec<_> = all
        .iter()
        .filter(|tool| tool.name.starts_with(&prefix))
        .collect();
    for tool in &hosted {
        say!("   {:18} {}", visible(&tool.name), visible(&tool.summary()));
    }
    if hosted.is_empty() {
        return Err(not_as_shown("the demo server's tools are not listed"));
    }
    let own = all.len() - hosted.len();
    say!("   and {own} of Colibri's own: status, tasks, skills, the servers themselves.\n");

    say!("3. A call");
    let hello = json!({ "text": "Hello from a hosted server" });
    demonstrate(&mut connection, "echo", &hello, false)?;
    note_processes(stage, &mut connection)?;

    say!("4. Progress, as it happens");
    demonstrate(
        &mut connection,
        "count",
        &json!({ "to": 20, "ms": 25 }),
        true,
    )?;

    say!("5. Something to keep: a note, written and read back");
    let note = json!({ "name": "today", "text": "met Colibri" });
    demonstrate(&mut connection, "write_note", &note, false)?;
    demonstrate(
        &mut connection,
        "read_note",
        &json!({ "name": "today" }),
        false,
    )?;

    say!("6. A refusal: the write gate is closed");
    let title = json!({ "title": "Try Colibri", "description": "from the demo" });
    let refused = ask(
        &mut connection,
        OWN,
        "colibri_create_task",
        &title,
        &mut |_| {},
    )?;
    say!("{}", command_line(OWN, "colibri_create_task", &title));
    say!("{}\n", indented(&refused.readable()));
    if !refused.is_error {
        return Err(not_as_shown(
            "the write gate is closed, but a task was created",
        ));
    }

    say!("7. Your editor joins by `colibri-mcp connect zed`, which writes a few lines");
    let lines = snippet(Editor::Zed, &BridgeCommand::here()?)?;
    say!("{}", indented(&explained(Editor::Zed, &lines)));
    say!("   (`colibri-mcp connect` knows nine editors and agents.)\n");
    Ok(())
}

/// Makes a call of the demo's server as `colibri-mcp call` would, and shows both.
fn demonstrate(
    connection: &mut DaemonConnection,
    tool: &str,
    arguments: &Value,
    with_progress: bool,
) -> Result<(), CommandError> {
    say!("{}", command_line(SERVER, tool, arguments));
    let mut steps = 0;
    let result = ask(connection, SERVER, tool, arguments, &mut |_| steps += 1)?;
    if with_progress {
        if steps == 0 {
            return Err(not_as_shown("no progress arrived before the answer"));
        }
        say!(
            "   [{}] {steps} progress messages before the answer",
            "#".repeat(steps)
        );
    }
    say!("{}\n", indented(&result.readable()));
    if result.is_error {
        return Err(CommandError::ToolError);
    }
    Ok(())
}

fn ask(
    connection: &mut DaemonConnection,
    server: &str,
    tool: &str,
    arguments: &Value,
    on_progress: &mut dyn FnMut(&RequestProgress),
) -> Result<ToolCallResult, CommandError> {
    let arguments =
        to_raw_value(arguments).map_err(|error| CommandError::Machine(error.to_string()))?;
    Ok(call::call(
        connection,
        server,
        tool,
        &arguments,
        on_progress,
    )?)
}

fn command_line(server: &str, tool: &str, arguments: &Value) -> String {
    let mut text = format!("   $ colibri-mcp call {server} {tool}");
    for (key, value) in arguments.as_object().into_iter().flatten() {
        let word = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let quote = if word.contains(' ') { "\"" } else { "" };
        text.push_str(&format!(" {key}={quote}{word}{quote}"));
    }
    text
}

/// Remembers which processes the daemon runs, to see afterwards that they are gone.
fn note_processes(
    stage: &Mutex<Stage>,
    connection: &mut DaemonConnection,
) -> Result<(), CommandError> {
    let (answer, _) = connection.own_tool::<Servers>("colibri_external_mcp_servers", &json!({}))?;
    let processes = answer
        .servers
        .iter()
        .flat_map(|server| &server.processes)
        .filter_map(|process| process.pid.and_then(|pid| i32::try_from(pid).ok()));
    lock(stage).processes.extend(processes);
    Ok(())
}
