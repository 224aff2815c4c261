//! The fourth stage: the answer takes the shape that its client can read, and leaves.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::call::Call;
use super::call_outcome::{CallOutcome, ServerAnswer, SharedPage, no_such_tool};
use super::target::Upstream;
use crate::results::MediaBytes;
use colibri_policy::ReportedFailure;
use colibri_protocol::{
    self as protocol, AnswerBody as OwnAnswer, AnswerShape, AttemptFailure, Code, Failure,
    FailureCause, FailureClass, MetaRecord, Method,
};
use colibri_wire::{Edits, Json};

/// The outgoing answer, and its record.
pub struct ExitAnswer {
    /// The message to the client.
    pub message: ClientMessage,
    /// True if the call did what was asked.
    pub success: bool,
    /// The failure: with a code of ours, of an integration, or a server's number.
    pub failed: Option<AttemptFailure>,
    /// True if it is no result yet.
    pub is_interim: bool,
    /// The record of the call in the trail of the host that answered it.
    pub remote: Option<MetaRecord>,
}

/// The message that a client is sent.
pub enum ClientMessage {
    /// A message of our own.
    Own(Vec<u8>),
    /// A result of our own that many get, and the head of this message.
    Page(Vec<u8>, Arc<SharedPage>),
    /// A server's message, edited; the range is what the server answered (`result` or `error`) in
    /// it.
    Edited(Bytes, Edits, Range<usize>),
    /// Nothing.
    None,
}

impl ClientMessage {
    /// Its bytes.
    pub(super) fn length(&self) -> usize {
        match self {
            ClientMessage::Own(message) => message.len(),
            ClientMessage::Page(head, page) => head.len() + page.length() + 1,
            ClientMessage::Edited(frame, edits, _) => edits.edited_length(frame.len()),
            ClientMessage::None => 0,
        }
    }

    /// The message as it is sent; `None`: there is none.
    fn whole(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            ClientMessage::Own(message) => Some(Cow::Borrowed(message)),
            ClientMessage::Page(head, page) => {
                Some(Cow::Owned([head, &page.result.bytes()[..], b"}"].concat()))
            }
            ClientMessage::Edited(frame, edits, _) => Some(Cow::Owned(edits.apply(frame))),
            ClientMessage::None => None,
        }
    }

    /// The bytes of it that do not count against a budget: of what images and the like have.
    pub(super) fn uncounted(&self) -> usize {
        let of = |result: Json<'_>| MediaBytes::of(result.text().as_bytes()).uncounted;
        match self {
            ClientMessage::Own(message) => {
                let message = Json::part(message, 0..message.len());
                message
                    .and_then(|message| message.get("result"))
                    .map_or(0, of)
            }
            ClientMessage::Edited(frame, _, span) => {
                // What is left out for an old client is not sent.
                let left_out = frame.len().saturating_sub(self.length());
                let uncounted = Json::part(frame, span.clone()).map_or(0, of);
                uncounted.saturating_sub(left_out)
            }
            ClientMessage::Page(..) | ClientMessage::None => 0,
        }
    }
}

impl ExitAnswer {
    /// A message that ends its call, or that says how it failed.
    fn new(message: ClientMessage, failed: Option<AttemptFailure>) -> ExitAnswer {
        ExitAnswer {
            message,
            success: failed.is_none(),
            failed,
            is_interim: false,
            remote: None,
        }
    }

    /// The code of its failure.
    pub fn code(&self) -> Option<&str> {
        self.failed.as_ref().map(|failed| &*failed.code)
    }
}

/// Shapes the answer.
pub fn shape(call: &Call, outcome: CallOutcome) -> ExitAnswer {
    let own = |answer: OwnAnswer, failed| {
        ExitAnswer::new(
            ClientMessage::Own(answer.to_message(Some(call.id_text()))),
            failed,
        )
    };
    let failed = |failure: Failure, told: Option<Failure>| {
        let attempt = FailureCause::Ours(failure.code).attempt();
        own(
            told.unwrap_or(failure).answer(call.method, call.version),
            Some(attempt),
        )
    };
    match outcome {
        CallOutcome::Own { answer, failed } => {
            let failed = match &answer {
                OwnAnswer::Error(error) => Some(FailureCause::Servers(error.code).attempt()),
                OwnAnswer::Result(_) => failed.then_some(AttemptFailure::TOOL_ERROR),
            };
            own(answer, failed)
        }
        CallOutcome::Page(page) => ExitAnswer::new(
            ClientMessage::Page(OwnAnswer::result_head(call.id_text()), page),
            None,
        ),
        CallOutcome::Failed(failure) => failed(failure, None),
        CallOutcome::Refused(failure) => {
            let told = match &call.parts.called {
                Some(name) if call.target.is_hidden_by(&failure) => Some(no_such_tool(name)),
                _ => None,
            };
            failed(failure, told)
        }
        CallOutcome::Cancelled => {
            ExitAnswer::new(ClientMessage::None, Some(AttemptFailure::CANCELLED))
        }
        CallOutcome::Relayed(relayed) => match shape_relayed(call, &relayed) {
            Ok(answer) => answer,
            Err(failure) => failed(failure.of_server(&*call.target.description().server), None),
        },
    }
}

fn shape_relayed(call: &Call, relayed: &ServerAnswer) -> Result<ExitAnswer, Failure> {
    let mut edits = Edits::new();
    edits.replace(relayed.id.clone(), &call.frame[call.parts.id.clone()]);
    let shape = shape_of(call, relayed);
    let (span, failed, reported) = match &relayed.outcome {
        Ok(span) => {
            edit_result(&mut edits, &shape, relayed, span)?;
            match call.method == Some(Method::ToolsCall) && relayed.says_error {
                true => (
                    span,
                    Some(AttemptFailure::TOOL_ERROR),
                    call.reported_failure(part(&relayed.frame, span)?),
                ),
                false => (span, None, None),
            }
        }
        Err(span) => {
            let error = part(&relayed.frame, span)?;
            edits.append_at(span.start, protocol::error_edits(&shape, error)?);
            let code = error
                .get("code")
                .map(|code| code.text())
                .unwrap_or_default();
            let class = code.parse().map_or(FailureClass::Unknown, |code| {
                FailureCause::Servers(code).class()
            });
            let failed = AttemptFailure {
                code: Cow::Owned(code.chars().take(20).collect()),
                class: Some(class),
            };
            (span, Some(failed), None)
        }
    };
    if let Some(own) = &relayed.edits {
        edits.append_at(0, (**own).clone());
    }
    let answer = ExitAnswer::new(
        ClientMessage::Edited(relayed.frame.clone(), edits, span.clone()),
        failed,
    );
    let has_trail = call
        .target
        .description()
        .upstream()
        .is_some_and(Upstream::has_trail);
    let outcome = Json::part(&relayed.frame, span.clone()).filter(|_| has_trail);
    Ok(ExitAnswer {
        remote: outcome.and_then(MetaRecord::of_answer),
        failed: reported.map(ReportedFailure::attempt).or(answer.failed),
        is_interim: relayed.is_interim,
        ..answer
    })
}

fn shape_of<'a>(call: &'a Call, relayed: &ServerAnswer) -> AnswerShape<'a> {
    AnswerShape {
        method: call.method,
        server: relayed.version,
        client: call.version,
        // Who sees one server alone sees its own URIs.
        prefix: (call.target.description().upstream())
            .and_then(Upstream::prefix)
            .filter(|_| call.client.session.only().is_none()),
    }
}

fn edit_result(
    edits: &mut Edits,
    shape: &AnswerShape<'_>,
    relayed: &ServerAnswer,
    span: &Range<usize>,
) -> Result<(), Failure> {
    if shape.may_edit(&relayed.frame[span.clone()]) {
        let result = part(&relayed.frame, span)?;
        edits.append_at(span.start, protocol::result_edits(shape, result)?);
    }
    Ok(())
}

/// The result of a tool of ours, which is written as 2025-11-25 has it, in the client's version.
pub(crate) fn fit(outcome: CallOutcome, call: &Call) -> CallOutcome {
    let (
        Some(Method::ToolsCall),
        CallOutcome::Own {
            answer: OwnAnswer::Result(result),
            failed,
        },
    ) = (call.method, &outcome)
    else {
        return outcome;
    };
    let Some(json) = Json::part(result, 0..result.len()) else {
        return outcome;
    };
    let shape = AnswerShape {
        method: call.method,
        server: protocol::Version::LATEST_LEGACY,
        client: call.version,
        prefix: None,
    };
    let answer = match protocol::result_edits(&shape, json) {
        Ok(edits) => OwnAnswer::Result(edits.apply(result)),
        Err(failure) => failure.answer(call.method, call.version),
    };
    CallOutcome::Own {
        answer,
        failed: *failed,
    }
}

/// A server's result, which stands at `span`, as its client would have it.
///
/// # Errors
/// As it cannot be brought into the shape that its client can read.
pub(super) fn result_for(
    call: &Call,
    relayed: &ServerAnswer,
    span: &Range<usize>,
) -> Result<Vec<u8>, Failure> {
    let mut edits = Edits::new();
    edit_result(&mut edits, &shape_of(call, relayed), relayed, span)?;
    Ok(edited_result(relayed, span, edits))
}

/// A server's result, which stands at `span`, with the edits that it needs whoever gets it, and
/// these, all of which are within it.
pub(super) fn edited_result(
    relayed: &ServerAnswer,
    span: &Range<usize>,
    mut edits: Edits,
) -> Vec<u8> {
    if let Some(own) = &relayed.edits {
        edits.append_at(0, (**own).clone());
    }
    let mut frame = edits.apply(&relayed.frame);
    frame.truncate(frame.len() - (relayed.frame.len() - span.end));
    frame.split_off(span.start)
}

/// A part of a message that was parsed before.
fn part<'a>(frame: &'a Bytes, span: &Range<usize>) -> Result<Json<'a>, Failure> {
    Json::part(frame, span.clone()).ok_or_else(|| {
        Failure::new(
            Code::ServerAnswerInvalid,
            "the server's answer holds no value",
        )
    })
}

/// Sends the answer to the client, if it still waits for one. Returns the bytes of the answer that
/// were queued for it. A client that named its own record of the call learns ours, `own`.
pub fn deliver(
    call: &Call,
    answer: &ExitAnswer,
    own: impl FnOnce() -> Option<MetaRecord>,
) -> usize {
    if call.method == Some(Method::SubscriptionsListen) {
        call.client.end_subscription(&call.id);
    }
    if let Some(code) = answer.code().and_then(|code| code.parse().ok()) {
        call.client.note_error(code);
    }
    let own = call.parts.caller_record.as_ref().and_then(|_| own());
    let named = own.and_then(|own| {
        Some(ClientMessage::Own(
            own.put_in_answer(&answer.message.whole()?),
        ))
    });
    let message = named.as_ref().unwrap_or(&answer.message);
    let (batch, length) = (call.batch.as_ref(), message.length());
    let mut is_queued = false;
    call.client.land(&call.id, |waited_for| {
        is_queued = match message {
            ClientMessage::Own(message) if waited_for => match batch {
                None => call.client.outbox.push(message),
                Some(batch) => batch.answer(Some(message)),
            },
            ClientMessage::Page(head, page) if waited_for => match batch {
                None => call.client.outbox.push_shared(head, &page.result, b"}"),
                Some(batch) => batch.answer(Some(&[head, &page.result.bytes()[..], b"}"].concat())),
            },
            ClientMessage::Edited(frame, edits, _) if waited_for => match batch {
                None => call.client.outbox.push_edited(frame, edits),
                Some(batch) => batch.answer(Some(&edits.apply(frame))),
            },
            _ => batch.is_some_and(|batch| batch.answer(None)),
        }
    });
    if is_queued { length } else { 0 }
}
