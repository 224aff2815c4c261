//! The five stages every call passes: it enters (`client`), is validated (`validate`) and
//! dispatched, leaves (`exit`), and is recorded twice on the way (`record`); `stages` has them
//! follow one another.
//!
//! There is no way around them: a session only makes `Call`s and hands them to [`Chain::accept`]; a
//! target only ends them with [`Chain::finish`]. Both take what arrived together in one go, so that
//! a busy connection pays for one record write per batch instead of one per call.

mod agent_socket;
mod call;
mod call_outcome;
mod call_request;
pub mod charge;
mod client;
mod client_request;
mod client_requests;
mod client_session;
mod confirmation;
pub mod cost;
mod counters;
mod deferred_call;
pub mod exit;
mod flow;
mod flow_slot;
mod outcome_check;
pub mod oversized_result;
pub mod pending_work;
pub mod record;
mod recorder;
mod reply_author;
pub mod request_state;
mod road;
mod rules;
mod stages;
mod subscription_guard;
mod suspended_call;
mod target;
mod target_rules;
pub mod validate;

pub use agent_socket::{AgentLease, AgentSocket, AgentUsage, LeaseOver};
pub use call::{
    Call, CallHandler, CallTarget, Chain, Destination, ServerCall, TargetCatalog, Waits,
};
pub use call_outcome::{CallOutcome, ServerAnswer, SharedPage, no_such_tool};
pub use call_request::{CallArguments, CallRequest, RequestParts, Trace};
pub use client::{AdmissionLimit, BatchAnswers, CancelReason, Client, OuterCall};
pub use client_request::ClientRequest;
pub use client_requests::{
    AnswerParts, ClientProgress, ClientRequests, ClientResponse, NoResponse, PATIENCE,
};
pub use client_session::ClientSession;
pub use counters::{CallMetrics, CounterSnapshot};
pub use deferred_call::{DeferredCall, Defers};
pub use flow::ClientFlow;
pub use flow_slot::{FlowSlot, FlowTable, ToolFlow};
pub use record::looked;
pub use recorder::Recorder;
pub use rules::CallRules;
pub use stages::refused;
pub use subscription_guard::SubscriptionGuard;
pub use suspended_call::SuspendedCall;
pub use target::{COLIBRI, FreeUse, TargetDescription, Upstream};
pub use target_rules::{ConfirmRule, ConfirmationRule, SkillFiles, TargetRules};
