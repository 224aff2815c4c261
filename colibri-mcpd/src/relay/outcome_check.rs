//! The contract's check of how a call ended: results that are not as it requires are not relayed,
//! and refused calls or those that failed for good may be left to the board.

use std::borrow::Cow;
use std::sync::Arc;

use super::call::{Call, Chain};
use super::call_outcome::{CallOutcome, ServerAnswer};
use super::deferred_call::DeferredCall;
use super::exit;
use colibri_api::PERSON;
use colibri_policy::{AnswerContract, Left, ReportedFailure};
use colibri_protocol::{Code, DeferredTask, Method};
use colibri_wire::{Edits, Json};

/// The end of a call: a result that is not as its contract requires, or one within a question, is
/// replaced whole.
pub(super) fn checked(call: &Call, outcome: CallOutcome) -> CallOutcome {
    let CallOutcome::Relayed(ServerAnswer {
        frame,
        outcome: Ok(span),
        says_error,
        is_interim,
        ..
    }) = &outcome
    else {
        return outcome;
    };
    let answers = call.target.description().answers();
    let is_read = call.method == Some(Method::ResourcesRead);
    if answers.is_none() && !is_read {
        return outcome;
    }
    let Some(result) = Json::part(frame, span.clone()) else {
        return outcome;
    };
    if is_read && let Err(failure) = call.target.check_content(result) {
        return CallOutcome::Failed(failure);
    }
    let Some(answers) = answers else {
        return outcome;
    };
    let checked = match is_interim {
        true => answers.check_question(result),
        false => answers.check(result, *says_error, call.arguments()),
    };
    match checked {
        Ok(()) => outcome,
        Err(failure) => CallOutcome::Failed(failure.of_server(&*call.target.description().server)),
    }
}

/// The deferred call that a call leaves to the board, and the code with which it ended.
pub(super) fn left(call: &Call, outcome: &CallOutcome) -> Option<(String, Left)> {
    if call.deferred.is_some() {
        return None;
    }
    let answers = call.target.description().answers()?;
    let code = code(outcome)?;
    let left = answers.left(&code, call.arguments(), &|text| redacted(call, text))?;
    Some((code.into_owned(), left))
}

/// A failure of a tool whose calls may be left to the board, which this one was not: it names no
/// task.
pub(super) fn taskless(call: &Call, outcome: CallOutcome) -> CallOutcome {
    let CallOutcome::Relayed(mut relayed) = outcome else {
        return outcome;
    };
    if relayed.says_error
        && call.deferred.is_none()
        && call
            .target
            .description()
            .answers()
            .is_some_and(AnswerContract::leaves_calls)
        && let Ok(span) = relayed.outcome.clone()
        && let Some(result) = Json::part(&relayed.frame, span.clone())
    {
        let edits = DeferredTask::none(result);
        if !edits.is_empty() {
            relayed
                .edits
                .get_or_insert_default()
                .append_at(span.start, edits);
        }
    }
    CallOutcome::Relayed(relayed)
}

/// Text without the values of secrets.
pub(super) fn redacted(call: &Call, text: &str) -> String {
    call.target
        .description()
        .upstream()
        .map_or_else(|| text.to_owned(), |server| server.redact(text))
}

/// The code with which a call ended that its contract let pass, or refused.
fn code(outcome: &CallOutcome) -> Option<Cow<'_, str>> {
    match outcome {
        CallOutcome::Failed(failure) => Some(failure.code.name().into()),
        // Of what is refused: by the contract, or since its server would take no call.
        CallOutcome::Refused(failure)
            if matches!(
                failure.code,
                Code::ContractDenied | Code::IntegrationUnavailable | Code::ServerUnstartable
            ) =>
        {
            Some(failure.code.name().into())
        }
        CallOutcome::Relayed(relayed) if relayed.says_error && !relayed.is_interim => {
            let result = Json::part(&relayed.frame, relayed.outcome.clone().ok()?)?;
            ReportedFailure::read(result).map(|failure| failure.code.into())
        }
        _ => None,
    }
}

impl Chain {
    /// Leaves a call to the board, away from the threads that serve clients, and ends it when that
    /// is done.
    pub(super) fn defer(
        self: &Arc<Chain>,
        mut call: Box<Call>,
        outcome: CallOutcome,
        (code, left): (String, Left),
    ) {
        // As long as it waits for the disk, it is its client's like all that is queued.
        let length = match &outcome {
            CallOutcome::Relayed(relayed) => relayed.frame.len(),
            _ => 0,
        };
        if !call.client.outbox.hold(length) {
            call.deferred = Some(Box::new(not("the daemon has no room for it now")));
            return self.finish(vec![(call, outcome)]);
        }
        call.request.held += length;
        let chain = self.clone();
        tokio::spawn(async move {
            let turn = chain.results.turn(call.client.owner()).await;
            tokio::task::spawn_blocking(move || {
                let deferred = chain.deferred(&call, &code, &left);
                let outcome = match outcome {
                    CallOutcome::Relayed(relayed) => {
                        CallOutcome::Relayed(telling(relayed, &deferred))
                    }
                    CallOutcome::Failed(failure) => {
                        CallOutcome::Failed(failure.deferring(deferred.clone()))
                    }
                    CallOutcome::Refused(failure) => {
                        CallOutcome::Refused(failure.deferring(deferred.clone()))
                    }
                    outcome => outcome,
                };
                drop(turn);
                call.deferred = Some(Box::new(deferred));
                chain.finish(vec![(call, outcome)]);
            });
        });
    }

    fn deferred(&self, call: &Call, code: &str, left: &Left) -> DeferredTask {
        let described = call.target.description();
        let undone = DeferredCall {
            server: &described.server,
            tool: &described.operation,
            call: call.entry.number,
            code,
            left,
        };
        match self.board.defer(&call.client, &undone) {
            Ok(task) => {
                let whom = match &left.capabilities[..] {
                    [person] if person == PERSON => "a person".to_owned(),
                    needed => format!("somebody who can do {}", needed.join(", ")),
                };
                DeferredTask {
                    task: Some(task),
                    told: format!(
                        "Deferred: this is task {task} of the board now, for {whom}. It needs no other call."
                    ),
                }
            }
            Err(why) => {
                let (server, tool, call) = (undone.server, undone.tool, undone.call);
                tracing::warn!(
                    server,
                    tool,
                    call,
                    code,
                    "a call was not left to the board: {why:#}"
                );
                not(&format!("{why:#}"))
            }
        }
    }
}

fn not(why: &str) -> DeferredTask {
    DeferredTask {
        task: None,
        told: format!("Not deferred to the board: {why}."),
    }
}

/// A failed result that says which task its call became.
fn telling(relayed: ServerAnswer, deferred: &DeferredTask) -> ServerAnswer {
    let Ok(span) = relayed.outcome.clone() else {
        return relayed;
    };
    let Some(result) = Json::part(&relayed.frame, span.clone()) else {
        return relayed;
    };
    let mut edits = Edits::new();
    edits.append_at(span.start, deferred.edits(result));
    let result = exit::edited_result(&relayed, &span, edits);
    // A message of its own: edits for its client's version are made of it as of any other.
    let (head, end) = (&br#"{"jsonrpc":"2.0","id":0,"result":"#[..], b"}");
    let id = head.len() - br#"0,"result":"#.len();
    let span = head.len()..head.len() + result.len();
    ServerAnswer {
        frame: [head, &result, end].concat().into(),
        id: id..id + 1,
        outcome: Ok(span),
        edits: None,
        ..relayed
    }
}
