//! One script from its start to its end: what its process writes is checked, and its calls are
//! made.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::error;

use super::connection::ScriptConnection;
use super::process::ScriptProcess;
use super::requests::{CallMessage, ScriptCallMeta};
use super::running::ScriptGuard;
use crate::relay::{Call, Client, Recorder};
use colibri_api::json_depth;
use colibri_api::script::{
    ScriptCall, ScriptDone, ScriptFailure, ScriptLimit, ScriptLimits, ScriptMessage, ScriptOrder,
};
use colibri_confine::{ServerExit, Spawner};
use colibri_peer::{Frame, FrameReader};
use colibri_protocol::{Code, Failure};
use colibri_text::{brief, visible};
use colibri_trail::TrailEvent;

/// The longest name of a server or a tool.
const MAX_NAME: usize = 1024;
/// The most characters of what a script says of its end.
const MAX_MESSAGE: usize = 4096;
/// The most characters that a failure repeats of what was printed, from its end.
const MAX_PRINTED: usize = 2000;
/// The most bytes of an answer to a call.
const MAX_ANSWER: usize = 32 << 20;
/// The time that a script has beyond its own for saying that it is over.
const GRACE: Duration = Duration::from_secs(1);
/// The longest time for the records of calls that are cancelled.
const LANDING: Duration = Duration::from_secs(5);
/// The exit status of a process that used up its processor time (SIGXCPU).
const OUT_OF_CPU: u8 = 128 + 24;

/// A script that runs.
pub(super) struct ScriptSession {
    client: Arc<Client>,
    /// The progress token of its call, as its client wrote it.
    token: Option<String>,
    /// The `enter` record of its call.
    record: u64,
    limits: ScriptLimits,
    meta: ScriptCallMeta,
    connection: Option<Box<dyn ScriptConnection>>,
    answers: FrameReader<DuplexStream>,
    process: Option<(ScriptProcess, ScriptGuard)>,
    /// The calls in flight.
    in_flight: BTreeMap<u32, String>,
    /// The last call that was sent.
    last: Option<String>,
    counts: ScriptCounts,
    printed: String,
}

#[derive(Debug, Default, Clone, Copy)]
struct ScriptCounts {
    calls: u32,
    failed: u32,
    /// Calls of the script that were never sent.
    unsent: u32,
    /// Bytes of the calls' answers.
    bytes: u64,
    /// Progress notifications to its client.
    progress: u64,
}

impl ScriptSession {
    pub(super) fn new(
        call: &Call,
        order: &ScriptOrder,
        connection: Box<dyn ScriptConnection>,
        answers: DuplexStream,
    ) -> ScriptSession {
        let token = call.parts.progress_token.clone();
        let token =
            token.and_then(|span| Some(str::from_utf8(call.frame.get(span)?).ok()?.to_owned()));
        ScriptSession {
            client: call.client.clone(),
            token,
            record: call.entry.number,
            limits: order.limits,
            meta: ScriptCallMeta::of(call),
            connection: Some(connection),
            answers: FrameReader::new(answers, MAX_ANSWER),
            process: None,
            in_flight: BTreeMap::new(),
            last: None,
            counts: ScriptCounts::default(),
            printed: String::new(),
        }
    }

    /// Starts the process and serves it to the script's end.
    ///
    /// # Errors
    /// The failure of the script, or of its process.
    pub(super) async fn serve(
        &mut self,
        order: &ScriptOrder,
        spawner: &dyn Spawner,
        program: PathBuf,
        guard: ScriptGuard,
    ) -> Result<ScriptDone, Failure> {
        let until = Instant::now() + Duration::from_millis(self.limits.time_ms) + GRACE;
        let order = serde_json::to_vec(order).map_err(|error| {
            Failure::new(
                Code::Internal,
                format!("the order cannot be written: {error}"),
            )
        })?;
        let mut process = ScriptProcess::start(spawner, program, &self.limits).await?;
        process.push(&order);
        let (process, _) = self.process.insert((process, guard));
        loop {
            let is_open = tokio::select! {
                biased;
                () = sleep_until(until) => return Err(self.reached(ScriptLimit::Time)),
                more = self.answers.fill() => {
                    if !more.unwrap_or(false) {
                        return Err(Failure::new(Code::DaemonStopping, "the calls of the script were ended"));
                    }
                    true
                }
                more = process.exchange() => more,
            };
            while let Some(frame) = self.answers.pop() {
                if let Frame::Line(line) = frame {
                    answer(
                        process,
                        &line,
                        &mut self.in_flight,
                        &mut self.counts,
                        (&self.client, self.token.as_deref()),
                    );
                }
            }
            while let Some(frame) = process.messages.pop() {
                let Frame::Line(line) = frame else {
                    return Err(breach("a message is too long"));
                };
                let message =
                    serde_json::from_slice(&line).map_err(|error| breach(&error.to_string()))?;
                match message {
                    ScriptMessage::Log(text) => {
                        if self.printed.len() as u64 > self.limits.printed + MAX_PRINTED as u64 {
                            return Err(breach("it prints more than it may"));
                        }
                        self.printed.push_str(&text);
                        self.printed.push('\n');
                    }
                    ScriptMessage::Call(call) => {
                        check_call(&call, self.counts.calls, self.in_flight.len(), &self.limits)?;
                        let name =
                            format!("{}.{}", brief(&call.server, 64), brief(&call.tool, 128));
                        self.counts.calls += 1;
                        if let Some(connection) = &self.connection {
                            connection.send(self.meta.request(&call));
                        }
                        let shown = format!("call {}: {name}", call.id);
                        report(
                            &self.client,
                            self.token.as_deref(),
                            &mut self.counts.progress,
                            &shown,
                        );
                        self.last = Some(name.clone());
                        self.in_flight.insert(call.id, name);
                    }
                    ScriptMessage::Done(done) => {
                        let value = done.value.get();
                        if value.len() as u64 > self.limits.output
                            || json_depth(value.as_bytes()) > self.limits.depth
                        {
                            return Err(breach("it returns more than it may"));
                        }
                        self.counts.unsent =
                            done.unawaited.saturating_sub(self.in_flight.len() as u32);
                        return Ok(done);
                    }
                    ScriptMessage::Failed(failure) => return Err(self.failed(failure)),
                }
            }
            if !is_open {
                let exit = process.exit().await;
                return Err(self.died(exit));
            }
        }
    }

    /// Records the end of the script.
    pub(super) fn record_end(&self, recorder: &Recorder, returned: usize) {
        let counts = self.counts;
        let event = TrailEvent::Script {
            call: self.record,
            uid: self.client.caller.uid,
            calls: counts.calls.into(),
            failed: counts.failed.into(),
            unsent: counts.unsent.into(),
            cancelled: self.in_flight.len() as u64,
            bytes: counts.bytes,
            returned: returned as u64,
        };
        if let Err(why) = recorder.event(event) {
            error!("the end of a script was not recorded: {why}");
        }
    }

    /// Ends the process and cancels the calls in flight. Returns what the script printed.
    pub(super) async fn end(mut self) -> ScriptOutput {
        drop(self.connection.take());
        // Until all that was in flight has its record.
        let landed = async {
            while self.answers.fill().await.unwrap_or(false) {
                while self.answers.pop().is_some() {}
            }
        };
        let _ = timeout(LANDING, landed).await;
        if let Some((process, guard)) = self.process.take() {
            process.end(guard);
        }
        ScriptOutput {
            printed: self.printed,
            cancelled: self.in_flight.into_values().collect(),
            calls: self.counts.calls,
            failed: self.counts.failed,
            bytes: self.counts.bytes,
        }
    }

    /// The failure that the script itself reports.
    fn failed(&self, failure: ScriptFailure) -> Failure {
        let place = match (failure.line, failure.column) {
            (Some(line), Some(column)) => format!("line {line}, column {column}: "),
            _ => String::new(),
        };
        let code = match failure.limit {
            Some(_) => Code::ScriptLimit,
            None => Code::ScriptFailed,
        };
        let message = brief(&failure.message, MAX_MESSAGE);
        let told = Failure::new(code, self.with_state(format!("{place}{message}")));
        match failure.advice {
            Some(advice) => told.advising(brief(&advice, MAX_MESSAGE)),
            None => told,
        }
    }

    fn reached(&self, limit: ScriptLimit) -> Failure {
        let message = format!(
            "the script reached the limit {}",
            limit.describe(&self.limits)
        );
        Failure::new(Code::ScriptLimit, self.with_state(message))
    }

    fn died(&self, exit: ServerExit) -> Failure {
        match exit {
            ServerExit::Status(OUT_OF_CPU) => self.reached(ScriptLimit::Cpu),
            exit => {
                let message = format!("the script's process ended before the script: {exit}");
                Failure::new(Code::ScriptFailed, self.with_state(message))
            }
        }
    }

    /// A message with the calls that were made, and the end of what was printed.
    fn with_state(&self, mut message: String) -> String {
        if let Some(last) = &self.last {
            let (calls, open) = (self.counts.calls, self.in_flight.len());
            message.push_str(&format!("; its last call of {calls}: {last}"));
            if open > 0 {
                let open: Vec<_> = self
                    .in_flight
                    .values()
                    .take(8)
                    .map(String::as_str)
                    .collect();
                message.push_str(&format!(" (in flight and cancelled: {})", open.join(", ")));
            }
        }
        let printed = self.printed.trim_end();
        if !printed.is_empty() {
            let from = printed
                .char_indices()
                .rev()
                .nth(MAX_PRINTED)
                .map_or(0, |(at, _)| at);
            message.push_str(&format!("; it printed: {}", visible(&printed[from..])));
        }
        message
    }
}

/// The parts of a script that is over which its client is told.
pub(super) struct ScriptOutput {
    pub(super) printed: String,
    /// The calls that were in flight, and cancelled.
    pub(super) cancelled: Vec<String>,
    pub(super) calls: u32,
    pub(super) failed: u32,
    pub(super) bytes: u64,
}

/// Takes a message on the connection of the calls.
fn answer(
    process: &mut ScriptProcess,
    line: &[u8],
    in_flight: &mut BTreeMap<u32, String>,
    counts: &mut ScriptCounts,
    (client, token): (&Arc<Client>, Option<&str>),
) {
    let Ok(message) = serde_json::from_slice::<CallMessage<'_>>(line) else {
        return;
    };
    if let Some(progress) = message.progress() {
        if let Some(name) = in_flight.get(&progress.call) {
            let said = progress.message.unwrap_or_default();
            let shown = format!("call {}: {name}: {}", progress.call, brief(&said, MAX_NAME));
            report(client, token, &mut counts.progress, &shown);
        }
        return;
    }
    let Some(id) = message.id.filter(|id| in_flight.remove(id).is_some()) else {
        return;
    };
    counts.bytes += line.len() as u64;
    counts.failed += u32::from(message.is_failed());
    let reply = match (message.result, message.error) {
        (Some(result), _) => format!("{{\"id\":{id},\"result\":{}}}", result.get()),
        (None, Some(error)) => format!("{{\"id\":{id},\"error\":{}}}", error.get()),
        (None, None) => format!(
            "{{\"id\":{id},\"error\":{}}}",
            json!({ "message": "no answer" })
        ),
    };
    process.push(reply.as_bytes());
}

/// Reports to the client which call runs.
fn report(client: &Arc<Client>, token: Option<&str>, count: &mut u64, message: &str) {
    let Some(token) = token else { return };
    *count += 1;
    let message = Value::from(&*visible(message));
    let notification = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token},\
         \"progress\":{count},\"message\":{message}}}}}"
    );
    client.outbox.push(notification.as_bytes());
}

/// Checks a call that the process wants: after `made` ones, with so many in flight.
fn check_call(
    call: &ScriptCall,
    made: u32,
    in_flight: usize,
    limits: &ScriptLimits,
) -> Result<(), Failure> {
    let arguments = call.arguments.get();
    let why = if call.id != made + 1 {
        "a call has not the next number"
    } else if made >= limits.calls {
        "it makes more calls than it may"
    } else if in_flight >= limits.parallel as usize {
        "it makes more calls at once than it may"
    } else if call.server.len() > MAX_NAME || call.tool.len() > MAX_NAME {
        return Ok(());
    } else if !arguments.starts_with('{') {
        "the arguments of a call are no object"
    } else if arguments.len() as u64 > limits.output
        || json_depth(arguments.as_bytes()) > limits.depth
    {
        "the arguments of a call are too long or too deep"
    } else {
        return Ok(());
    };
    Err(breach(why))
}

/// The failure of a process that does not keep to the protocol: something else than our program
/// writes there.
fn breach(why: &str) -> Failure {
    let message = format!(
        "the script's process wrote what it must not: {}",
        brief(why, 200)
    );
    Failure::new(Code::ScriptFailed, message)
        .advising("report it: the script has taken its process over")
}
