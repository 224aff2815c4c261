//! The five stages every call passes: it enters (`client`), is validated (`validate`) and dispatched, leaves
//! (`exit`), and is recorded twice on the way (`record`); `stages` has them follow one another.
//!
//! There is no way around them: a session only makes `Call`s and hands them to [`Chain::accept`]; a target only
//! ends them with [`Chain::finish`]. Both take what arrived together in one go, so that a busy connection pays for one
//! record write per batch instead of one per call.

mod agent_door;
mod asked;
mod asking;
mod call;
pub mod charge;
mod client;
mod client_session;
mod confirmed;
pub mod cost;
mod counters;
pub mod exit;
mod held_call;
pub mod keeping;
mod lasting;
pub mod record;
mod recorder;
pub mod request_state;
mod rules;
mod settled;
mod stages;
pub mod tickets;
mod undone;
pub mod validate;

pub use agent_door::{AgentSocket, AgentUsage};
pub use asked::{AnswerParts, ClientProgress, ClientRequests, ClientResponse, MAX_ASKED, NoResponse, PATIENCE};
pub use asking::ClientRequest;
pub use call::{
    COLIBRI, Call, CallArguments, CallOutcome, CallTarget, Chain, RequestParts, ServerAnswer, SharedPage,
    TargetDescription, Trace, Upstream, Waits, no_such_tool,
};
pub use client::{AdmissionLimit, BatchAnswers, CancelReason, Client};
pub use client_session::ClientSession;
pub use counters::{CallMetrics, CounterSnapshot};
pub use held_call::SuspendedCall;
pub use lasting::SubscriptionGuard;
pub use recorder::Recorder;
pub use rules::CallRules;
pub use stages::refused;
pub use undone::{DeferredCall, Defers};
