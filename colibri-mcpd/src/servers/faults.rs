//! What becomes of what was asked of a server behind a URL that has no answer.

use std::sync::Arc;
use std::time::Duration;

use super::instance::{Keeper, Pending, Session};
use crate::outbound::{Fault, FaultKind};
use crate::relay::Outcome;
use colibri_protocol::{Code, FailureCause};

/// How long a server is left alone that refuses a call unprocessed and does not say when to come back.
const BUSY: Duration = Duration::from_secs(30);

impl Session {
    /// A request has no answer that could be relayed.
    pub(super) fn fault(self: &Arc<Self>, fault: Fault, keeper: &Arc<dyn Keeper>) {
        if fault.kind == FaultKind::Forgotten {
            // What comes next opens a session of its own.
            self.drain();
        }
        let Some(number) = fault.id else { return };
        let text = self.redact(&fault.message);
        let failure = match fault.kind {
            FaultKind::Unsent | FaultKind::Forgotten | FaultKind::Busy(_) => {
                self.failure(Code::IntegrationUnavailable, text)
            }
            FaultKind::Impossible => self.failure(Code::ServerUnstartable, text),
            FaultKind::Denied => self.failure(Code::ServerDenied, text),
            FaultKind::Failed => self.failure(Code::ServerFailed, text),
            FaultKind::Status | FaultKind::Mismatched | FaultKind::Invalid => {
                self.failure(Code::ServerAnswerInvalid, text)
            }
            FaultKind::Lost => self.failure(Code::ServerDied, format!("the call was lost: {text}")),
            FaultKind::TooLong => self.failure(Code::FrameTooLong, text),
        };
        let mut state = self.state();
        let Some(pending) = state.pending.remove(number) else {
            let is_over = state.watching.is_over(number, None);
            drop(state);
            return if is_over {
                keeper.unheard(self)
            };
        };
        self.rest(&mut state);
        drop(state);
        match pending {
            Pending::Internal { answer, .. } => drop(answer.send(Err(failure))),
            Pending::Held(held) => self.end_held(*held, "the server gave no answer", Some(&failure)),
            Pending::Call { call, .. } => match fault.kind {
                FaultKind::Unsent => keeper.unsent(call, failure, None),
                FaultKind::Forgotten => keeper.unsent(call, failure, Some(Duration::ZERO)),
                FaultKind::Busy(after) => keeper.unsent(call, failure, Some(after.unwrap_or(BUSY))),
                FaultKind::Mismatched => keeper.mismatched(self, call, failure),
                FaultKind::Lost | FaultKind::Invalid | FaultKind::Failed => {
                    if let Err(call) = keeper.spoiled(call, FailureCause::Ours(failure.code)) {
                        self.chain.finish(vec![(call, Outcome::Failed(failure))]);
                    }
                }
                _ => self.chain.finish(vec![(call, Outcome::Failed(failure))]),
            },
        }
    }
}
