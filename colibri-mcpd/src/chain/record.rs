//! The fifth stage: what entered and what leaves is recorded; what cannot be recorded does not happen.

use tracing::info;

use super::exit::{Answer, Message};
use super::{Call, Failure};

/// Where records go.
pub enum Recorder {
    /// A line of the log for each record.
    Log,
    /// Nowhere: for benchmarks and simulations alone.
    Off,
}

/// Records that calls entered, before the first byte of any of them goes to a server. Each call learns its number.
pub fn entered(recorder: &Recorder, calls: &mut [(Call, Option<Failure>)]) -> Result<(), Failure> {
    match recorder {
        Recorder::Off => {}
        Recorder::Log => {
            for (call, _) in calls {
                let to = call.target.describe();
                info!(
                    connection = call.client.connection,
                    uid = call.client.caller.uid,
                    server = to.server,
                    operation = to.operation,
                    "enter"
                );
            }
        }
    }
    Ok(())
}

/// Records how calls ended, before their answers leave.
pub fn left(recorder: &Recorder, calls: &[(Call, Answer)]) -> Result<(), Failure> {
    match recorder {
        Recorder::Off => {}
        Recorder::Log => {
            for (call, answer) in calls {
                let to = call.target.describe();
                let length = match &answer.message {
                    Message::Own(message) => message.len(),
                    Message::Edited(_, _, span) => span.len(),
                    Message::None => 0,
                };
                info!(
                    connection = call.client.connection,
                    server = to.server,
                    operation = to.operation,
                    success = answer.success,
                    code = answer.code.as_deref(),
                    attempt = call.attempt,
                    latency_us = call.entered.elapsed().as_micros() as u64,
                    length,
                    "exit"
                );
            }
        }
    }
    Ok(())
}

/// Records that an attempt failed and that another follows. A record that cannot be written stops the next attempt's
/// answer, not the attempt: the call has its `enter` record.
pub fn retried(recorder: &Recorder, call: &Call, failure: &Failure) {
    match recorder {
        Recorder::Off => {}
        Recorder::Log => {
            let to = call.target.describe();
            info!(
                server = to.server,
                operation = to.operation,
                attempt = call.attempt,
                code = failure.code.name(),
                "retry"
            );
        }
    }
}
