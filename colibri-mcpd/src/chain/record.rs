//! The fifth stage: what entered and what leaves is recorded; what cannot be recorded does not happen.

use std::time::SystemTime;

use serde_json::value::RawValue;

use super::exit::{Answer, Message};
use super::{Call, Failure};
use colibri_protocol::{Code, Era};
use colibri_trail::{Attempt, Digest, Enter, Event, Exit, Record, Trail, TrailError};

/// Where records go.
pub enum Recorder {
    /// To the trail.
    Trail(Trail),
    /// Nowhere: for benchmarks and simulations alone. No flag of the daemon leads here.
    Off,
}

impl Recorder {
    /// Records something that is not a call.
    pub fn event(&self, event: &str, details: &[(&str, colibri_trail::Detail<'_>)]) -> Result<(), TrailError> {
        match self {
            Recorder::Off => Ok(()),
            Recorder::Trail(trail) => trail
                .append([Record::Event(Event {
                    time: SystemTime::now(),
                    event,
                    details,
                })])
                .map(drop),
        }
    }
}

fn unavailable(error: &TrailError) -> Failure {
    Failure::new(Code::TrailUnavailable, error.to_string())
}

/// Records that calls entered, before the first byte of any of them goes to a server. Each call learns its number.
pub fn entered(recorder: &Recorder, calls: &mut [(Call, Option<Failure>)]) -> Result<(), Failure> {
    let Recorder::Trail(trail) = recorder else {
        return Ok(());
    };
    if calls.is_empty() {
        return Ok(());
    }
    let full: Vec<_> = calls
        .iter()
        .map(|(call, _)| call.target.in_full(call.arguments()))
        .collect();
    let records: Vec<Record<'_>> = calls
        .iter()
        .zip(&full)
        .map(|((call, _), full)| {
            let to = call.target.describe();
            Record::Enter(Enter {
                time: call.time,
                uid: call.client.caller.uid,
                gid: call.client.caller.gid,
                pid: call.client.caller.pid.and_then(|pid| pid.try_into().ok()),
                connection: call.client.connection,
                continues: (call.number > 0).then_some(call.number),
                method: call.method.map_or(to.operation, |method| method.as_str()),
                server: (!to.is_ours()).then_some(to.server),
                tool: call.method.map(|_| to.operation),
                name: call.name.as_deref(),
                era: match call.version.era() {
                    Era::Legacy => "legacy",
                    Era::Modern => "modern",
                },
                version: call.version.as_str(),
                args: Digest::of(call.arguments()),
                args_full: full.as_deref(),
                traceparent: call.trace.as_ref().map(|trace| &*trace.parent),
                tracestate: call.trace.as_ref().and_then(|trace| trace.state.as_deref()),
                validated: call.validated,
            })
        })
        .collect();
    let appended = trail.append(&records).map_err(|error| unavailable(&error))?;
    drop(records);
    for ((number, (call, _)), full) in (appended.first..).zip(calls).zip(&full) {
        call.number = number;
        note_written(call, full.as_deref());
    }
    Ok(())
}

/// Records how calls ended, before their answers leave. A call that was let pass without its `enter` record has no other
/// either.
pub fn left(recorder: &Recorder, calls: &[(Call, Answer)]) -> Result<(), Failure> {
    let Recorder::Trail(trail) = recorder else {
        return Ok(());
    };
    let calls: Vec<_> = calls.iter().filter(|(call, _)| call.number > 0).collect();
    if calls.is_empty() {
        return Ok(());
    }
    let time = SystemTime::now();
    let output = |answer: &Answer| match &answer.message {
        Message::Own(message) => Some(Digest::of(message)),
        Message::Page(_, page) => Some(page.digest()),
        Message::Edited(frame, _, span) => Some(Digest::of(&frame[span.clone()])),
        Message::None => None,
    };
    let full: Vec<_> = calls
        .iter()
        .map(|(call, answer)| match &answer.message {
            Message::Edited(frame, _, span) => call.target.in_full(&frame[span.clone()]),
            Message::Own(_) | Message::Page(..) | Message::None => None,
        })
        .collect();
    let records: Vec<Record<'_>> = calls
        .iter()
        .zip(&full)
        .map(|((call, answer), full)| {
            Record::Exit(Exit {
                attempt: attempt(call, time, answer.code.as_deref()),
                success: answer.success,
                output: output(answer),
                output_full: full.as_deref(),
            })
        })
        .collect();
    for ((call, _), full) in calls.iter().zip(&full) {
        note_written(call, full.as_deref());
    }
    trail.append(&records).map_err(|error| {
        let failure = unavailable(&error);
        let message = format!(
            "the call was made, but its end cannot be recorded, so its answer is held back: {}",
            failure.message
        );
        Failure { message, ..failure }
    })?;
    Ok(())
}

/// What a record has at the least, in bytes, or about that: names and traces, which are bounded, make it longer.
const RECORD: usize = 512;

/// Takes the bytes of a call's record from its user's share.
fn note_written(call: &Call, full: Option<&RawValue>) {
    if let Some(share) = call.client.share() {
        share.wrote_trail(RECORD + full.map_or(0, |full| full.get().len()));
    }
}

/// Records that an attempt failed and that another follows.
pub fn retried(recorder: &Recorder, call: &Call, failure: &Failure) {
    if let Recorder::Trail(trail) = recorder {
        let record = Record::Retry(attempt(call, SystemTime::now(), Some(failure.code.name())));
        if let Err(error) = trail.append([record]) {
            // The next attempt sends nothing that has no `enter` record, and its end is recorded or held back.
            tracing::error!("a retry was not recorded: {error}");
        }
    }
}

fn attempt<'a>(call: &'a Call, time: SystemTime, error_code: Option<&'a str>) -> Attempt<'a> {
    let to = call.target.describe();
    Attempt {
        time,
        enter: call.number,
        integration_id: to.server,
        operation: to.operation,
        attempt_number: call.attempt,
        error_code,
        latency: call.entered.elapsed(),
    }
}
