//! A call on its way, who may answer it, and how it ends.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::call_target::{CallTarget, TargetCatalog};
use super::client::{BatchAnswers, Client};
use super::counters::CallMetrics;
use super::deferred_call::Defers;
use super::flow_slot::FlowTable;
use super::pending_work::{PendingWork, Tickets};
use super::recorder::Recorder;
use super::request_state::{RequestStates, ResumedCall};
use super::rules::CallRules;
use super::target::Upstream;
use crate::results::Results;
use colibri_peer::{Outbox, SharedBytes};
use colibri_policy::{ApprovalQueue, ReportedFailure, SuspensionReasons, Terms};
use colibri_protocol::logging::Level;
use colibri_protocol::request::META_CLIENT_CAPABILITIES;
use colibri_protocol::{
    AnswerBody as OwnAnswer, Askable, ClientInfo, Code, DeferredTask, Failure, MetaRecord, Method,
    RpcError, Version,
};
use colibri_store::cost_ledger::{CostLedger, ListedToolCost};
use colibri_text::brief;
use colibri_trail::{ContentDigest, Validation};
use colibri_wire::{Edits, Json, RequestId};

/// A call on its way: the request, which stays as it came, its target, and what each stage adds.
pub struct Call {
    /// The request.
    pub request: CallRequest,
    /// The target that answers.
    pub target: Arc<CallTarget>,
    /// What was decided and recorded as it entered.
    pub entry: CallEntry,
    /// The attempt that its server makes.
    pub attempt: CallAttempt,
    /// The deferred task, where the work is left to the board at its end.
    pub deferred: Option<Box<DeferredTask>>,
}

/// A request as a session has read it.
pub struct CallRequest {
    /// The caller, to which the answer goes.
    pub client: Arc<Client>,
    /// The client's id, to find the call again.
    pub id: RequestId,
    /// The batch it came in.
    pub batch: Option<Arc<BatchAnswers>>,
    /// The name and version that the client declares of itself.
    pub client_info: Option<Arc<ClientInfo>>,
    /// The version that the client speaks in this request.
    pub version: Version,
    /// The method; `None` for one that no version of MCP has.
    pub method: Option<Method>,
    /// The request as it came.
    pub frame: Bytes,
    /// Bytes that it has of the daemon's budget while it is in flight.
    pub held: usize,
    /// The places in it that the relay changes.
    pub parts: RequestParts,
    /// Its W3C trace context.
    pub trace: Option<Box<Trace>>,
    /// The time at which it was read.
    pub entered: Instant,
    /// The same, by the clock on the wall.
    pub time: SystemTime,
}

/// What the first two stages note of a call.
#[derive(Default)]
pub struct CallEntry {
    /// The number of its last `enter` record; 0, which is never one, before it has entered.
    pub number: u64,
    /// The outcome of the check of its arguments against the tool's schema.
    pub validated: Validation,
    /// The cost mode under which it was decided last.
    pub terms: Terms,
    /// The retry that it is of a call that asked for input.
    pub resumes: Option<Box<ResumedCall>>,
    /// What a person has allowed of it.
    pub allowed: Option<Box<SuspensionReasons>>,
}

/// An attempt at a call, and those before it.
pub struct CallAttempt {
    /// Attempts made so far, the current one included.
    pub number: u32,
    /// The time at which the current attempt began, or will.
    pub began: Instant,
    /// The codes with which those before failed.
    pub failed: Vec<Cow<'static, str>>,
    /// The last one failed in a way that could pass, and no other follows.
    pub given_up: bool,
    /// The value that is released when the call is over.
    pub place: Option<Box<dyn Send + Sync>>,
}

/// A request's W3C trace context, as its `_meta` has it (<https://www.w3.org/TR/trace-context/>).
#[derive(Debug, Clone)]
pub struct Trace {
    /// `traceparent`.
    pub parent: Box<str>,
    /// `tracestate`.
    pub state: Option<Box<str>>,
}

/// Places in a request.
#[derive(Debug, Clone, Default)]
pub struct RequestParts {
    /// The value of `id`.
    pub id: Range<usize>,
    /// The value of `params`.
    pub params: Option<Range<usize>>,
    /// The name of the tool or prompt, or the URI, that is asked for, with its quotes.
    pub name: Option<Range<usize>>,
    /// The value of `progressToken` in `_meta`.
    pub progress_token: Option<Range<usize>>,
    /// The arguments of a tool call.
    pub arguments: CallArguments,
    /// True if a tool call is to become a task, whose result is asked for later.
    pub task: bool,
    /// The log messages that a modern request wants.
    pub log_level: Option<Level>,
    /// True if its client, a modern one, declares capabilities in it.
    pub declares: bool,
    /// The name that `colibri_call_tool` was given, if that is how it was called.
    pub called: Option<Box<str>>,
    /// The task for which its client, who has claimed it, says that it is made.
    pub for_task: Option<u64>,
    /// The record of another host's trail that its client, a daemon there, says it has.
    pub caller_record: Option<Box<MetaRecord>>,
}

/// The place of a tool call's arguments.
#[derive(Debug, Clone, Default)]
pub enum CallArguments {
    /// There are none.
    #[default]
    Missing,
    /// The place where the server reads them too.
    At(Range<usize>),
    /// In the arguments of `colibri_external_mcp_call_tool` or `colibri_call_tool`, which stand at
    /// `outer`.
    Within {
        /// The place that the server is to read instead of.
        outer: Range<usize>,
        /// The arguments, if there are any.
        inner: Option<Range<usize>>,
    },
}

impl Drop for CallRequest {
    fn drop(&mut self) {
        self.client.outbox.let_go(self.held);
    }
}

/// A call is asked for what its request says, which no stage changes.
impl std::ops::Deref for Call {
    type Target = CallRequest;

    fn deref(&self) -> &CallRequest {
        &self.request
    }
}

impl Call {
    /// A request that goes to this target.
    pub fn new(request: CallRequest, target: Arc<CallTarget>) -> Call {
        let attempt = CallAttempt {
            number: 1,
            began: request.entered,
            failed: Vec::new(),
            given_up: false,
            place: None,
        };
        Call {
            request,
            target,
            entry: CallEntry::default(),
            attempt,
            deferred: None,
        }
    }

    /// The failure that a tool's result reports. Any server can write one into a result: it is
    /// taken from an integration of ours, and where the contract names its code.
    pub(crate) fn reported_failure(&self, result: Json<'_>) -> Option<ReportedFailure> {
        let reported = ReportedFailure::read(result)?;
        let description = self.target.description();
        let is_ours = description.upstream().is_some_and(Upstream::is_integration);
        let is_named = || {
            let answers = description.answers.as_ref();
            answers.is_some_and(|answers| answers.names(&reported.code))
        };
        (is_ours || is_named()).then_some(reported)
    }

    /// Arguments or a result as they are recorded; see [`Upstream::in_full`].
    pub fn in_full(&self, json: &[u8]) -> Option<Box<RawValue>> {
        self.target.description().upstream()?.in_full(json)
    }
}

impl CallRequest {
    /// The id as the client wrote it.
    pub fn id_text(&self) -> &str {
        self.text(&self.parts.id)
    }

    /// The name or URI that the client used, as far as a record holds it.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        let name = Json::part(&self.frame, self.parts.name.clone()?)?.as_str()?;
        match name.char_indices().nth(200) {
            Some((end, _)) => Some(Cow::Owned(name[..end].to_owned())),
            None => Some(name),
        }
    }

    /// The task for which it is made: the one that its agent has claimed, or that its client, who
    /// has claimed it, names.
    pub fn task(&self) -> Option<u64> {
        match &self.client.door {
            Some(door) => door.task(),
            None => self.parts.for_task,
        }
    }

    /// The kinds of requests that its client accepts: as its handshake says, or as this request
    /// does. An agent has no person.
    pub fn askable(&self) -> Askable {
        if self.client.door.is_some() {
            return Askable::NOTHING;
        }
        if !self.version.is_modern() {
            return self.client.session.askable();
        }
        let params = self.parts.params.clone();
        let params = params.and_then(|params| Json::part(&self.frame, params));
        let declared = params.and_then(|params| params.get("_meta")?.get(META_CLIENT_CAPABILITIES));
        Askable::read(self.version, declared)
    }

    fn text(&self, span: &Range<usize>) -> &str {
        let bytes = self.frame.get(span.clone()).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The answer of a retry under a key.
    pub fn response(&self, key: &str) -> Option<Json<'_>> {
        let params = Json::part(&self.frame, self.parts.params.clone()?)?;
        params.get("inputResponses")?.get(key)
    }

    /// The least level of the log messages that its client wants of it; `None`: it did not say.
    pub fn log_level(&self) -> Option<Level> {
        match self.version.is_modern() {
            true => self.parts.log_level,
            false => self.client.session.log_level(),
        }
    }

    /// True if its client wants a log message of this level. A modern one that does not say so
    /// wants none, a legacy one any that the server sends (2026-07-28 and 2025-11-25,
    /// server/utilities/logging).
    pub(crate) fn wants_log(&self, level: Level) -> bool {
        let is_legacy = !self.version.is_modern();
        self.log_level().map_or(is_legacy, |least| level >= least)
    }

    /// The arguments of a tool call as the client wrote them.
    pub fn arguments(&self) -> &[u8] {
        let span = match &self.parts.arguments {
            CallArguments::At(span)
            | CallArguments::Within {
                inner: Some(span), ..
            } => Some(span.clone()),
            CallArguments::Missing | CallArguments::Within { inner: None, .. } => None,
        };
        span.and_then(|span| self.frame.get(span)).unwrap_or(b"{}")
    }
}

/// The stages, with what they need.
pub struct Chain {
    /// Writes records.
    pub recorder: Arc<Recorder>,
    /// The rules that are checked before a call goes on.
    pub rules: Arc<CallRules>,
    /// The counts of calls that the daemon answers itself.
    pub metrics: CallMetrics,
    /// The ledger of every call's cost.
    pub ledger: Arc<CostLedger>,
    /// The calls that wait for a person.
    pub approvals: ApprovalQueue,
    /// Seals the `requestState` that clients are given.
    pub states: RequestStates,
    /// The work that waits for a retry.
    pub tickets: Tickets<dyn Waits>,
    /// Results that were over their limit.
    pub results: Arc<Results>,
    /// The board for deferred calls.
    pub board: Arc<dyn Defers>,
    /// The flow limits of connections that ended.
    pub flows: Arc<FlowTable>,
    /// The catalog of targets; set once the servers are there.
    pub catalog: OnceLock<Weak<dyn TargetCatalog>>,
}

/// A call that waits for its retry.
pub trait Waits: PendingWork {
    /// Its retry is here, and passed what every call has to pass. Whatever happens to it, it ends
    /// in [`Chain::finish`], once.
    fn resume(self: Arc<Self>, chain: &Arc<Chain>, retry: Box<Call>);
}

/// The end of a call.
pub enum CallOutcome {
    /// With an answer of our own.
    Own {
        /// The answer.
        answer: OwnAnswer,
        /// True if it is a tool's result that says `isError`.
        failed: bool,
    },
    /// With a result of our own that many get.
    Page(Arc<SharedPage>),
    /// With something that stands against it.
    Failed(Failure),
    /// With something that stood against it before it was sent.
    Refused(Failure),
    /// With a server's answer.
    Relayed(ServerAnswer),
    /// By its client, who wants no answer any more.
    Cancelled,
}

/// The answer to who calls by `colibri_call_tool` what is not there, or what policy denies: nobody
/// is told which.
pub fn no_such_tool(name: &str) -> Failure {
    Failure::new(
        Code::NoSuchTool,
        format!("there is no tool \"{}\"", brief(name, 40)),
    )
    .advising("find a tool with colibri_find_tools")
}

impl CallOutcome {
    /// A result of our own that did what was asked.
    pub fn result(result: Vec<u8>) -> CallOutcome {
        CallOutcome::Own {
            answer: OwnAnswer::Result(result),
            failed: false,
        }
    }

    /// A JSON-RPC error of our own.
    pub fn error(error: RpcError) -> CallOutcome {
        CallOutcome::Own {
            answer: OwnAnswer::Error(error),
            failed: true,
        }
    }
}

/// A result that many get: made, hashed and held once.
pub struct SharedPage {
    pub(super) result: SharedBytes,
    digest: ContentDigest,
    listed: Arc<[ListedToolCost]>,
}

impl SharedPage {
    /// A result whose bytes come out of the budget, for the client of this queue. `None`: there is
    /// no room.
    pub fn new(result: Vec<u8>, whom: &Outbox) -> Option<SharedPage> {
        let digest = ContentDigest::of(&result);
        let result = whom.share(result)?;
        let listed = Arc::default();
        Some(SharedPage {
            result,
            digest,
            listed,
        })
    }

    /// The same as a list of these tools.
    pub fn listing(self, tools: Vec<ListedToolCost>) -> SharedPage {
        let listed = tools.into();
        SharedPage { listed, ..self }
    }

    /// The tools that it lists.
    pub fn listed(&self) -> &Arc<[ListedToolCost]> {
        &self.listed
    }

    /// Its bytes.
    pub fn length(&self) -> usize {
        self.result.bytes().len()
    }

    /// The recorded digest.
    pub fn digest(&self) -> ContentDigest {
        self.digest
    }
}

/// A server's answer.
pub struct ServerAnswer {
    /// The message as it came.
    pub frame: Bytes,
    /// The place of its id.
    pub id: Range<usize>,
    /// The place of its `result`, or of its `error`.
    pub outcome: Result<Range<usize>, Range<usize>>,
    /// True if the result says of itself that it is an error.
    pub says_error: bool,
    /// The edits that it needs whoever gets it: what no server has to say goes, and tasks get our
    /// ids.
    pub edits: Option<Box<Edits>>,
    /// The version that the server speaks.
    pub version: Version,
    /// True if it is no result yet, but asks for something or names a task: it is not kept.
    pub is_interim: bool,
}
