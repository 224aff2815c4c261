//! `colibri-mcp demo agent`: an agent in front of a scripted model, a task from its creation to its
//! result.

mod model;
pub(crate) mod program;

use std::ops::ControlFlow;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::connect::own_path;
use super::super::glasspane;
use super::daemon_program::daemon_program;
use super::stage::{
    DemoPlace, JAIL, SERVER, Stage, indented, lock, not_as_shown, play, say, verify,
    wait_for_daemon,
};
use crate::connection::{DaemonConnection, read};
use crate::failure::CommandError;
use colibri_api::{
    AgentEvent, AgentEventsRequest, AgentInstance, AgentState, AgentsResponse, CreatedTask,
    OneAgent, OneTask, SpawnAgentRequest, TaskStatus,
};
use colibri_registry::PATH as REGISTRY;
use colibri_text::{brief, visible};
use model::{DemoModel, NOTE};

/// The agent's id in the demo's registry.
const AGENT: &str = "demo-agent";
/// The most characters of an event that are shown.
const BRIEF: usize = 100;

/// Runs the command.
pub(super) fn run() -> Result<(), CommandError> {
    let daemon = daemon_program()?;
    let began = Instant::now();
    play(daemon, &[SERVER, AGENT], |stage| {
        show(stage)?;
        say!("7. All of it was recorded; the daemon ends, and its trail is verified");
        verify(stage)
    })?;
    say!("8. Everything has ended");
    say!("   No process and no file of it is left.\n");
    say!(
        "That was an agent behind one door, in {:.1} s. Next: docs/agents.md, etc/agents.",
        began.elapsed().as_secs_f32()
    );
    Ok(())
}

fn show(stage: &Mutex<Stage>) -> Result<(), CommandError> {
    say!(
        "An agent: a program that asks a model and calls tools. Here it has one door, and no other way out.\n"
    );

    say!("1. A model that follows a script, and a daemon of its own, for this demo");
    let model = DemoModel::start(port(&lock(stage).place)?)?;
    let entry = entry(&model)?;
    let context = lock(stage).start(&json!({ AGENT: entry }))?;
    let mut connection = wait_for_daemon(stage, &context)?;
    say!(
        "   The model listens on {}; the daemon adds its key, which the agent never has.",
        model.address
    );
    match &lock(stage).place {
        DemoPlace::Jail => say!("   The agent runs {JAIL}, as {REGISTRY} says.\n"),
        DemoPlace::Host { why } => {
            say!("   The agent runs as a process of this host, not in a jail:");
            say!("{}", indented(why));
            say!("   Its entry:");
            for (key, value) in entry.as_object().into_iter().flatten() {
                say!("     \"{key}\": {}", visible(&value.to_string()));
            }
            say!("");
        }
    }

    say!("2. A task");
    let new =
        json!({ "title": "Write a note about agents", "description": "Call it from-the-agent." });
    say!(
        "   $ colibri-mcp call colibri colibri_create_task title=\"Write a note about agents\" ..."
    );
    let (CreatedTask { task }, _) = connection.own_tool("colibri_create_task", &new)?;
    say!("   Task {} is {}.\n", task.id, task.said.status);

    say!("3. The agent is started for it; what it writes, as it writes it");
    say!(
        "   $ colibri-mcp agent run {AGENT} --task {} --follow",
        task.id
    );
    let asked = SpawnAgentRequest {
        agent: AGENT.to_owned(),
        task: Some(task.id),
        prompt: None,
    };
    let (OneAgent { instance }, _) = connection.ask("colibri/spawn-agent", &asked)?;
    follow(&mut connection, &instance.id)?;
    let ended = instance_of(&mut connection, &instance.id)?;
    if ended.state != AgentState::Done {
        let why = ended.reason.or(ended.exit).unwrap_or_default();
        return Err(not_as_shown(&format!(
            "the agent ended as {}: {why}",
            ended.state
        )));
    }
    say!("");

    say!("4. The task's result, as the one who created it reads it");
    say!(
        "   $ colibri-mcp call colibri colibri_get_task task={}",
        task.id
    );
    let (done, _) =
        connection.own_tool::<OneTask>("colibri_get_task", &json!({ "task": task.id }))?;
    say!(
        "   Task {} is {}; its result: {}\n",
        task.id,
        done.task.said.status,
        brief(result_of(&done), BRIEF)
    );
    if done.task.said.status != TaskStatus::Done || !result_of(&done).contains(NOTE) {
        return Err(not_as_shown("the task has no result"));
    }

    say!("5. What it has spent: the relay counted what the model itself says");
    let seen = model.seen();
    say!(
        "   {} requests, {} of them with the key; tokens: {} in, {} out by the relay, {} in, {} out by the model",
        seen.requests,
        seen.with_key,
        ended.tokens_in,
        ended.tokens_out,
        seen.tokens_in,
        seen.tokens_out
    );
    say!("   {} calls through its door\n", ended.calls);
    if (ended.tokens_in, ended.tokens_out) != (seen.tokens_in, seen.tokens_out) {
        return Err(not_as_shown("relay and model do not agree on the tokens"));
    }
    if seen.with_key != seen.requests {
        return Err(not_as_shown("a request reached the model without its key"));
    }

    say!("6. All agents at a glance");
    say!("   $ colibri-mcp glasspane");
    say!("{}\n", indented(&glasspane::picture(&context)?));
    Ok(())
}

/// The agent's entry, where the demo has a registry of its own.
fn entry(model: &DemoModel) -> Result<Value, CommandError> {
    let program = own_path()?;
    Ok(json!({
        "command": program,
        "args": ["door", "--listen", "127.0.0.1:0", "--", program, "demo-agent"],
        "stdin": "null", "events": "claude",
        "model": { "url": format!("http://{}", model.address), "api": "anthropic",
            "headers": { "x-api-key": { "secret": SERVER } }, "allow_addresses": ["loopback"] },
        "tools": { SERVER: { "allow": ["write_note", "read_note"] } },
        "budget": { "session_bytes": 1_000_000, "tokens": 100_000, "events": 100, "minutes": 5 } }))
}

/// The port of the model: any, or, where root's registry has the agent, the port that the entry
/// names.
fn port(place: &DemoPlace) -> Result<u16, CommandError> {
    let DemoPlace::Jail = place else { return Ok(0) };
    let registry: Value = serde_json::from_slice(&std::fs::read(REGISTRY)?)
        .map_err(|error| CommandError::Machine(format!("{REGISTRY}: {error}")))?;
    let url = registry["agents"][AGENT]["model"]["url"]
        .as_str()
        .unwrap_or_default();
    let port = url
        .strip_prefix("http://127.0.0.1:")
        .and_then(|port| port.trim_end_matches('/').parse().ok());
    port.ok_or_else(|| {
        CommandError::Machine(format!(
            "{REGISTRY}: the model of {AGENT} must be at http://127.0.0.1:PORT for the demo"
        ))
    })
}

/// Shows the events of an instance until it has ended.
fn follow(connection: &mut DaemonConnection, id: &str) -> Result<(), CommandError> {
    let asked = AgentEventsRequest {
        id: id.to_owned(),
        from: 1,
        follow: true,
    };
    connection.listen("colibri/agent-events", &asked, |_, name, params| {
        if name == "colibri/agent-event" {
            let event: AgentEvent = read(name, params)?;
            for line in lines(&event) {
                say!("   {:>2} {:<8} {line}", event.n, event.state.name());
            }
        }
        Ok::<_, CommandError>(ControlFlow::Continue(()))
    })?;
    Ok(())
}

/// The lines for an event.
fn lines(event: &AgentEvent) -> Vec<String> {
    let event: Value = serde_json::from_str(event.event.get()).unwrap_or_default();
    let text = |value: &Value| match value.as_str() {
        Some(text) => brief(text, BRIEF),
        None => brief(&value.to_string(), BRIEF),
    };
    match event["type"].as_str() {
        Some("assistant" | "user") => {
            let blocks = event["message"]["content"].as_array().into_iter().flatten();
            let line = |block: &Value| match block["type"].as_str() {
                Some("tool_use") => {
                    format!("calls {} {}", text(&block["name"]), text(&block["input"]))
                }
                Some("tool_result") => format!("is answered {}", text(&block["content"])),
                _ => format!("its model says: {}", text(&block["text"])),
            };
            blocks.map(line).collect()
        }
        Some("result") => vec![format!("ends: {}", text(&event["result"]))],
        _ => {
            let tools = event["tools"].as_array().map_or(0, Vec::len);
            vec![format!("begins; {tools} tools are behind its door")]
        }
    }
}

/// An instance as it is now.
fn instance_of(connection: &mut DaemonConnection, id: &str) -> Result<AgentInstance, CommandError> {
    let (agents, _) = connection.ask::<AgentsResponse>("colibri/agents", &json!({}))?;
    let instance = agents
        .instances
        .into_iter()
        .find(|instance| instance.id == id);
    instance.ok_or_else(|| not_as_shown("the agent's instance is not listed"))
}

fn result_of(task: &OneTask) -> &str {
    task.result.as_ref().map_or("none", |result| result.get())
}
