//! Failures of requests to a server behind a URL.

use std::sync::Arc;
use std::time::Duration;

use super::session::{PendingReply, ServerSession, SessionObserver};
use crate::outbound::{SendError, SendErrorKind};
use crate::relay::CallOutcome;
use colibri_protocol::{Code, FailureCause};

/// The time for which a server is left alone that refuses a call unprocessed and does not say when to come back.
const BUSY: Duration = Duration::from_secs(30);

impl ServerSession {
    /// A request has no answer that could be relayed.
    pub(super) fn fault(self: &Arc<Self>, fault: SendError, observer: &Arc<dyn SessionObserver>) {
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
            return if is_over {
                observer.unheard(self)
            };
        };
        self.rest(&mut state);
        drop(state);
        match pending {
            PendingReply::Internal { answer, .. } => drop(answer.send(Err(failure))),
            PendingReply::Held(held) => self.end_held(*held, "the server gave no answer", Some(&failure)),
            PendingReply::Call { call, .. } => match fault.kind {
                SendErrorKind::Unsent => observer.unsent(call, failure, None),
                SendErrorKind::Forgotten => observer.unsent(call, failure, Some(Duration::ZERO)),
                SendErrorKind::Busy(after) => observer.unsent(call, failure, Some(after.unwrap_or(BUSY))),
                SendErrorKind::Mismatched => observer.mismatched(self, call, failure),
                SendErrorKind::Lost | SendErrorKind::Invalid | SendErrorKind::Failed => {
                    if let Err(call) = observer.spoiled(call, FailureCause::Ours(failure.code)) {
                        self.spec.chain().finish(vec![(call, CallOutcome::Failed(failure))]);
                    }
                }
                _ => self.spec.chain().finish(vec![(call, CallOutcome::Failed(failure))]),
            },
        }
    }
}
