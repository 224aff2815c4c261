//! Failures of requests to a server behind a URL.

use std::sync::Arc;
use std::time::Duration;

use super::session::{CallFailure, PendingReply, ServerSession, SessionEvent};
use crate::relay::{Call, CallOutcome};
use colibri_outbound::{SendError, SendErrorKind};
use colibri_protocol::{Code, Failure, FailureCause};

/// The time for which a server is left alone that refuses a call unprocessed and does not say when
/// to come back.
const BUSY: Duration = Duration::from_secs(30);

impl ServerSession {
    /// A request has no answer that could be relayed.
    pub(super) fn fault(self: &Arc<Self>, fault: SendError) {
        if fault.kind == SendErrorKind::Forgotten {
            // What comes next opens a session of its own.
            self.drain();
        }
        let Some(number) = fault.id else { return };
        let text = self.redact(&fault.message);
        let failure = match fault.kind {
            SendErrorKind::Unsent | SendErrorKind::Forgotten | SendErrorKind::Busy(_) => {
                self.spec.failure(Code::IntegrationUnavailable, text)
            }
            SendErrorKind::Impossible => self.spec.failure(Code::ServerUnstartable, text),
            SendErrorKind::Denied => self.spec.failure(Code::ServerDenied, text),
            SendErrorKind::Failed => self.spec.failure(Code::ServerFailed, text),
            SendErrorKind::Status | SendErrorKind::Mismatched | SendErrorKind::Invalid => {
                self.spec.failure(Code::ServerAnswerInvalid, text)
            }
            SendErrorKind::Lost => self
                .spec
                .failure(Code::ServerDied, format!("the call was lost: {text}")),
            SendErrorKind::TooLong => self.spec.failure(Code::FrameTooLong, text),
        };
        let mut state = self.state();
        let Some(pending) = state.pending.remove(number) else {
            let is_over = state.watching.is_over(number, None);
            drop(state);
            if is_over {
                self.notify(SessionEvent::SubscriptionEnded);
            }
            return;
        };
        self.rest(&mut state);
        drop(state);
        match pending {
            PendingReply::Internal { answer, .. } => drop(answer.send(Err(failure))),
            PendingReply::Held(held) => {
                self.end_held(*held, "the server gave no answer", Some(&failure))
            }
            PendingReply::Call { call, .. } => self.fault_of_call(call, failure, &fault.kind),
        }
    }

    /// Makes another attempt at a call that failed so, or answers it.
    fn fault_of_call(self: &Arc<Self>, call: Box<Call>, failure: Failure, kind: &SendErrorKind) {
        let cause = FailureCause::Ours(failure.code);
        let after = match kind {
            SendErrorKind::Forgotten => Some(Duration::ZERO),
            SendErrorKind::Busy(after) => Some(after.unwrap_or(BUSY)),
            _ => None,
        };
        let retried = match kind {
            SendErrorKind::Unsent | SendErrorKind::Forgotten | SendErrorKind::Busy(_) => {
                self.retry(call, CallFailure::Unsent { cause, after })
            }
            SendErrorKind::Mismatched => self.retry(call, CallFailure::Mismatched(cause)),
            SendErrorKind::Lost | SendErrorKind::Invalid | SendErrorKind::Failed => {
                self.retry(call, cause)
            }
            _ => Err(call),
        };
        if let Err(call) = retried {
            let failure = match after.filter(|after| !after.is_zero()) {
                Some(after) => {
                    failure.advising(format!("call it again in {} s", after.as_secs().max(1)))
                }
                None => failure,
            };
            self.spec
                .chain()
                .finish(vec![(call, CallOutcome::Failed(failure))]);
        }
    }
}
