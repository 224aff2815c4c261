//! `--try`: the recorded calls, once more, with the locked server.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use colibri_api::{ServerFacts, Servers};
use colibri_text::{Pattern, brief, counted, visible};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::learned_server::LearnedServer;
use super::observation::Observation;
use super::permission;
use super::proposal::JailProposal;
use super::session::observe;
use crate::commands::call;
use crate::commands::context::CommandContext;
use crate::connection::{DaemonAddress, DaemonConnection};
use crate::failure::CommandError;
use crate::install::{self, InstallScope};
use crate::interrupt;

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most recorded calls that are repeated.
const MAX_CALLS: usize = 1_000;

/// A recorded call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct RecordedCall {
    tool: String,
    /// Its arguments, as JSON.
    #[serde(deserialize_with = "text_of")]
    arguments: String,
}

fn text_of<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Value::deserialize(from)?.to_string())
}

/// Something that answers calls of tools.
trait TrialServer {
    /// Calls a tool; the error that it answers with, if it does.
    fn call(&mut self, call: &RecordedCall) -> Result<Option<String>, CommandError>;
}

/// Repeats the recorded calls, and says what fails.
///
/// # Errors
/// No call was recorded, or the server does not start.
pub(super) fn run(
    seen: &Observation,
    proposal: &JailProposal,
    yes: bool,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    interrupt::hold_back()?;
    let calls = recorded(&seen.server)?;
    let entry = entry(&seen.server, &context.place)?;
    let reads: Vec<Pattern> = patterns(entry.as_ref());
    let is_reading = |call: &RecordedCall| {
        let says = seen
            .tools
            .get(&call.tool)
            .is_some_and(|tool| tool.read_only);
        says || reads.iter().any(|pattern| pattern.matches(&call.tool))
    };
    let (reading, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_reading);
    if cfg!(target_os = "freebsd") {
        let mut connection = context.connect()?;
        // A service's registry is root's to read; the daemon says to everybody which servers have a
        // jail.
        let (answer, _) =
            connection.own_tool::<Servers>("colibri_external_mcp_servers", &json!({}))?;
        let is_jailed = |server: &ServerFacts| server.id == seen.server && server.jail.is_some();
        if !answer.servers.iter().any(is_jailed) {
            return Err(CommandError::Data(format!(
                "the daemon has no server {} in a jail yet: write the proposal into external-mcp.json and jail-policy.json, \
                 then try it",
                seen.server
            )));
        }
        let id = &seen.server;
        let failures = repeat(
            &mut DaemonTrial { connection, id },
            reading,
            others,
            yes,
            context,
        )?;
        return finish(failures, Vec::new(), context);
    }
    context.tell(
        "Nothing confines a server on Linux. It is started once more as it is, below strace: what it does is not prevented, \
         and each access is held against the proposal. Whether it does without what a jail lacks shows on FreeBSD alone.",
    )?;
    let mut server = ObservedTrial::start(seen, entry.as_ref(), &context.place)?;
    let failures = repeat(&mut server, reading, others, yes, context);
    let again = server.end();
    let (failures, again) = (failures?, again?);
    let mut refused = permission::check(proposal, &again).refused;
    refused.extend(again.escapes.iter().cloned());
    finish(failures, refused, context)
}

fn finish(
    failures: Vec<String>,
    refused: Vec<String>,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    let facts = json!({ "failed": failures, "refused": refused });
    let mut text = match failures.is_empty() && refused.is_empty() {
        true => "Everything that was repeated works with this proposal.".to_owned(),
        false => format!(
            "{} failed, {} refused by the proposal:",
            counted(failures.len() as u64, "call"),
            counted(refused.len() as u64, "access")
        ),
    };
    for line in failures.iter().chain(&refused) {
        text.push_str(&format!("\n  {}", visible(line)));
    }
    context.answer(&facts, &text)?;
    Ok(match failures.is_empty() && refused.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Repeats calls; those that failed, with what they said.
fn repeat(
    server: &mut impl TrialServer,
    reading: Vec<RecordedCall>,
    others: Vec<RecordedCall>,
    yes: bool,
    context: &CommandContext,
) -> Result<Vec<String>, CommandError> {
    let mut failures = Vec::new();
    let all = reading.into_iter().map(|call| (call, true));
    for (call, is_reading) in all.chain(others.into_iter().map(|call| (call, false))) {
        interrupt::check()?;
        let said = format!("{} {}", visible(&call.tool), brief(&call.arguments, 200));
        if !is_reading && !yes && !agrees(&said)? {
            context.tell(&format!("not repeated: {said}"))?;
            continue;
        }
        if let Some(why) = server.call(&call)? {
            failures.push(format!("{said}: {}", brief(&why, 300)));
        }
    }
    Ok(failures)
}

/// A person's answer to whether a call that may change something is repeated.
fn agrees(call: &str) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("Call {call}? [y/N] ");
    let answer = interrupt::read_line()?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

/// The recorded calls, each once.
fn recorded(id: &str) -> Result<Vec<RecordedCall>, CommandError> {
    let (_, path) = Observation::paths(id);
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => CommandError::Data(format!(
            "the arguments of calls were not recorded: colibri-mcp learn {id} --record -- COMMAND does, for its user alone"
        )),
        _ => CommandError::File {
            path: path.clone(),
            source,
        },
    };
    let mut calls = Vec::new();
    for line in BufReader::new(File::open(&path).map_err(failed)?).lines() {
        let line = line.map_err(failed)?;
        let call: RecordedCall = serde_json::from_str(&line).map_err(|error| {
            CommandError::Data(format!(
                "{}: {error}; remove the file, and record anew",
                path.display()
            ))
        })?;
        calls.push(call);
    }
    let mut known = BTreeSet::new();
    calls.retain(|call| known.insert(call.clone()));
    calls.truncate(MAX_CALLS);
    Ok(calls)
}

/// The entry of the registry, if there is one.
fn entry(id: &str, place: &DaemonAddress) -> Result<Option<Value>, CommandError> {
    // The service's registry is root's.
    let Ok(scope) = InstallScope::find(place.is_service(), place) else {
        return Ok(None);
    };
    Ok(install::registered(&scope)?
        .entries
        .get(id)
        .map(|(_, entry)| entry.clone()))
}

/// The entry's patterns of tools that only read.
fn patterns(entry: Option<&Value>) -> Vec<Pattern> {
    let reads = entry
        .and_then(|entry| entry.get("reads"))
        .and_then(Value::as_array);
    reads
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(Pattern::new)
        .collect()
}

/// The locked server, behind the daemon.
struct DaemonTrial<'i> {
    connection: DaemonConnection,
    id: &'i str,
}

impl TrialServer for DaemonTrial<'_> {
    fn call(&mut self, recorded: &RecordedCall) -> Result<Option<String>, CommandError> {
        let arguments = RawValue::from_string(recorded.arguments.clone())
            .map_err(|error| CommandError::Data(format!("{}: {error}", recorded.tool)))?;
        let result = call::call(
            &mut self.connection,
            self.id,
            &recorded.tool,
            &arguments,
            &mut |_| {},
        )?;
        Ok(result.is_error.then(|| result.readable()))
    }
}

/// A server that is started once more below the tracer.
struct ObservedTrial {
    to: io::PipeWriter,
    answers: Receiver<Value>,
    session: std::thread::JoinHandle<Result<Observation, CommandError>>,
    number: u64,
}

impl ObservedTrial {
    fn start(
        seen: &Observation,
        entry: Option<&Value>,
        place: &DaemonAddress,
    ) -> Result<ObservedTrial, CommandError> {
        let failed =
            |error: io::Error| CommandError::Machine(format!("cannot make a pipe: {error}"));
        let (input, to) = io::pipe().map_err(failed)?;
        let (from, output) = io::pipe().map_err(failed)?;
        let server = match entry {
            Some(_) => LearnedServer::of_entry(&seen.server, place)?,
            None => LearnedServer::of_observation(seen)?,
        };
        let session = std::thread::spawn(move || observe(&server, input, output, None));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str::<Value>(&line)
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        let mut tried = ObservedTrial {
            to,
            answers,
            session,
            number: 0,
        };
        let client = json!({ "name": "colibri-mcp", "version": env!("CARGO_PKG_VERSION") });
        let hello =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        tried.request("initialize", &hello)?;
        tried.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(tried)
    }

    fn send(&mut self, message: &Value) -> Result<(), CommandError> {
        let line = format!("{message}\n");
        let sent = self.to.write_all(line.as_bytes());
        sent.map_err(|_| CommandError::DeadServer("the server has ended".to_owned()))
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value, CommandError> {
        self.number += 1;
        let id = json!(self.number);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        let until = Instant::now() + PATIENCE;
        loop {
            interrupt::check()?;
            let message = match self.answers.recv_timeout(Duration::from_millis(100)) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => continue,
                Err(_) => {
                    return Err(CommandError::DeadServer(format!(
                        "the server does not answer {method}"
                    )));
                }
            };
            if let (Some(_), Some(request)) = (message.get("method"), message.get("id")) {
                let error = json!({ "code": -32601, "message": "nobody is there to answer" });
                self.send(&json!({ "jsonrpc": "2.0", "id": request, "error": error }))?;
            } else if message.get("id") == Some(&id) {
                return Ok(message);
            }
        }
    }

    /// Ends the session; what was seen in it.
    fn end(self) -> Result<Observation, CommandError> {
        drop((self.to, self.answers));
        let ended = self.session.join();
        ended.map_err(|_| CommandError::Machine("the session cannot be read".to_owned()))?
    }
}

impl TrialServer for ObservedTrial {
    fn call(&mut self, call: &RecordedCall) -> Result<Option<String>, CommandError> {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        let answer = self.request(
            "tools/call",
            &json!({ "name": call.tool, "arguments": arguments }),
        )?;
        if let Some(error) = answer.get("error") {
            return Ok(Some(error.to_string()));
        }
        let is_error = answer.pointer("/result/isError") == Some(&Value::Bool(true));
        Ok(is_error.then(|| answer["result"]["content"].to_string()))
    }
}
