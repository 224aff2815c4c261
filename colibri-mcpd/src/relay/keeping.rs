//! Results over their limit: they are kept on the disk, and answered with how to read them.

use std::ops::Range;
use std::sync::Arc;

use super::call::{Call, Chain, Outcome, Relayed};
use super::cost::{self, Limit};
use super::exit;
use super::record;
use crate::results::{Kept, NotKept};
use colibri_protocol::{Code, Failure, Method};

/// The most bytes of a result that are told with its size.
const HEAD: usize = 2048;
/// A server's result over its limit.
pub struct Over {
    relayed: Relayed,
    span: Range<usize>,
    limit: Limit,
}

/// What a call ends with, unless that is a result over its limit.
///
/// # Errors
/// It is one, and has to be kept.
pub fn within_limit(call: &Call, outcome: Outcome) -> Result<Outcome, Box<Over>> {
    let Outcome::Relayed(relayed) = outcome else {
        return Ok(outcome);
    };
    let Some(limit) = cost::limit(call) else {
        return Ok(Outcome::Relayed(relayed));
    };
    let (Ok(span) | Err(span)) = relayed.outcome.clone();
    let is_result = relayed.outcome.is_ok() && !relayed.is_interim;
    let most = if is_result { limit.result } else { limit.unkept };
    if span.len() as u64 <= most {
        return Ok(Outcome::Relayed(relayed));
    }
    let over = Over { relayed, span, limit };
    match is_result {
        true => Err(Box::new(over)),
        false => Ok(Outcome::Failed(over.refused(call))),
    }
}

impl Over {
    fn result(&self) -> &[u8] {
        &self.relayed.frame[self.span.clone()]
    }

    /// What is answered in place of what is no result.
    fn refused(&self, call: &Call) -> Failure {
        let (length, most, number) = (self.result().len(), self.limit.unkept, call.number);
        let failure = match self.relayed.is_interim {
            true => {
                let message = format!("what the server asks has {length} bytes, the limit is {most}");
                Failure::new(Code::ServerAnswerInvalid, message)
            }
            false => {
                let head = head(self.result());
                let message = format!(
                    "the server answered with an error of {length} bytes, the limit is {most}; trail record {number}; \
                     it begins: {head}"
                );
                Failure::new(Code::ResultTooLarge, message)
            }
        };
        failure.of_server(call.target.describe().server)
    }

    /// What is answered in place of the result.
    fn told(&self, call: &Call, kept: Result<&Kept, &NotKept>) -> Failure {
        let done = match (call.method, self.relayed.says_error) {
            (Some(Method::ToolsCall), false) => "the tool succeeded",
            (Some(Method::ToolsCall), true) => "the tool says that it failed",
            _ => "the server answered",
        };
        let failure = told(call, (self.result(), done), self.limit, kept);
        match &call.deferred {
            Some(deferred) => failure.deferring((**deferred).clone()),
            None => failure,
        }
    }
}

/// How a result begins.
fn head(result: &[u8]) -> &str {
    let head = &result[..result.len().min(HEAD)];
    // It was valid before it was cut, perhaps within a character.
    match std::str::from_utf8(head) {
        Ok(head) => head,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// What is answered in place of a result over its limit, and of what was done.
fn told(call: &Call, (whole, done): (&[u8], &str), limit: Limit, kept: Result<&Kept, &NotKept>) -> Failure {
    let (length, head, number) = (whole.len(), head(whole), call.number);
    let Limit { result, of, .. } = limit;
    let size = format!("{done}; its result has {length} bytes, the limit is {result} ({of})");
    match kept {
        Ok(kept) => Failure::new(
            Code::ResultTooLarge,
            format!(
                "{size}; all of it is kept for a day under the handle {}; trail record {number}; it begins: {head}",
                kept.handle
            ),
        )
        .keeping(kept.handle.to_string(), kept.bytes)
        .advising(format!(
            "read on with colibri_read_result {{\"handle\":\"{}\",\"offset\":{}}}, or what you need of it by lines, \
                 json_pointer or pattern",
            kept.handle,
            head.len()
        )),
        Err(why) => Failure::new(
            Code::ResultTooLarge,
            format!("{size}, and it is not kept: {why}; trail record {number}; it begins: {head}"),
        ),
    }
}

impl Chain {
    /// Keeps the result of a call, away from the threads that serve clients, and ends the call when that is done.
    pub(super) fn keep(self: &Arc<Chain>, mut call: Box<Call>, over: Box<Over>) {
        // Whatever becomes of it, it did what it did.
        if let Some(facts) = record::facts(&call, &over.relayed)
            && let Err(failure) = record::held_back(&self.recorder, &call, &facts)
        {
            return self.finish(vec![(call, Outcome::Failed(failure))]);
        }
        // As long as it waits for the disk, it is its client's like all that is queued.
        let length = over.relayed.frame.len();
        if !call.client.outbox.hold(length) {
            let outcome = Outcome::Failed(over.told(&call, Err(&NotKept::Busy)));
            return self.finish(vec![(call, outcome)]);
        }
        call.held += length;
        let chain = self.clone();
        tokio::spawn(async move {
            let turn = chain.results.turn(call.client.owner()).await;
            tokio::task::spawn_blocking(move || {
                let outcome = match call.client.is_cancelled(&call.id) {
                    true => Outcome::Cancelled,
                    false => Outcome::Failed(chain.kept(&call, &over)),
                };
                drop(turn);
                chain.finish(vec![(call, outcome)]);
            });
        });
    }

    /// What is answered to a call whose result is kept now, or is not.
    fn kept(&self, call: &Call, over: &Over) -> Failure {
        match exit::result_for(call, &over.relayed, &over.span) {
            Ok(result) => self.put(call, &result, |kept| over.told(call, kept)),
            Err(failure) => failure.of_server(call.target.describe().server),
        }
    }

    /// A tool's result of ours that is made of what servers wrote, and kept like theirs where the client's cost mode does
    /// not let it pass. Waits for the disk.
    pub fn own_result(&self, call: &Call, result: Vec<u8>) -> Outcome {
        match cost::limit(call).filter(|limit| result.len() as u64 > limit.result) {
            None => Outcome::result(result),
            Some(limit) => {
                let what = (&result[..], "the tool succeeded");
                Outcome::Failed(self.put(call, &result, |kept| told(call, what, limit, kept)))
            }
        }
    }

    fn put(&self, call: &Call, result: &[u8], told: impl Fn(Result<&Kept, &NotKept>) -> Failure) -> Failure {
        let owner = call.client.owner();
        match self.results.keep(&owner, result) {
            Err(why) => told(Err(&why)),
            Ok(kept) => {
                // What nobody is told of is nobody's: who has cancelled, or an agent whose results were just forgotten.
                let is_told = match call.client.is_cancelled(&call.id) {
                    true => Err(told(Err(&NotKept::Cancelled))),
                    false => record::kept(&self.recorder, call, &kept),
                };
                if is_told.is_err() {
                    self.results.remove(&owner, &kept);
                }
                is_told.map_or_else(|failure| failure, |()| told(Ok(&kept)))
            }
        }
    }
}
