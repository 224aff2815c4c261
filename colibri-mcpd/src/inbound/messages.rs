//! The handling of one message of a client: a call, a cancellation, an answer, or a refusal.

use std::cell::Cell;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use crate::daemon::Daemon;
use crate::ops::methods;
use crate::ops::own_target::Own;
use crate::ops::route;
use crate::relay::request_state::{self, ResumedCall, RetryBinding};
use crate::relay::{
    AdmissionLimit, AnswerParts, BatchAnswers, Call, CallArguments, CallRequest, CallTarget,
    Client, RequestParts, Trace,
};
use colibri_policy::Road;
use colibri_protocol::request::META_CLIENT_INFO;
use colibri_protocol::{
    self as protocol, AnswerBody, Askable, ClientNotification, Code, Failure, MetaRecord, Method,
    Request, Route, RpcError, Version,
};
use colibri_text::brief;
use colibri_wire::envelope::{EnvelopeRefusal, INVALID_REQUEST, PARSE_ERROR};
use colibri_wire::{Envelope, EnvelopeKind, Json, RequestId, Tape};

/// The most requests of one batch.
const MAX_IN_BATCH: usize = 1000;

/// The messages of one client.
pub(super) struct ClientMessages {
    pub(super) daemon: Arc<Daemon>,
    pub(super) client: Arc<Client>,
    /// The road by which they come.
    pub(super) road: Road,
    /// The time at which they were read.
    pub(super) now: (Instant, SystemTime),
    /// A request was refused for what it is, whoever would have answered it.
    pub(super) malformed: Cell<bool>,
}

impl ClientMessages {
    /// Those of a client that was not read yet.
    pub(super) fn of(daemon: Arc<Daemon>, client: Arc<Client>, road: Road) -> ClientMessages {
        ClientMessages {
            daemon,
            client,
            road,
            now: (Instant::now(), SystemTime::now()),
            malformed: Cell::new(false),
        }
    }

    /// The version to word errors in while no request says otherwise.
    pub(super) fn version(&self) -> Version {
        match self.client.session.agreed() {
            protocol::SessionPhase::Fresh => Version::LATEST_LEGACY,
            protocol::SessionPhase::Legacy(version) => version,
        }
    }

    pub(super) fn message(
        &self,
        frame: Bytes,
        batch: Option<&Arc<BatchAnswers>>,
        calls: &mut Vec<Box<Call>>,
    ) {
        let mut tape = Tape::default();
        let envelope = match Envelope::read(&frame, &mut tape) {
            Ok(envelope) => envelope,
            Err(refusal) => return self.refuse(refusal, batch),
        };
        match envelope.kind {
            EnvelopeKind::Request { id, method, params } => {
                if let Some(mut call) = self.call_of((id, method, params), frame.len(), batch, None)
                {
                    call.request.frame = frame;
                    calls.push(call);
                }
            }
            EnvelopeKind::Notification { method, params } => {
                let method = method.as_str().unwrap_or_default();
                match protocol::read_notification(&method, params) {
                    Some(ClientNotification::Cancelled { request }) => {
                        // Calls of the same read come first: a cancellation never overtakes its
                        // request.
                        self.daemon.chain.accept(calls);
                        let params = params.map(|params| params.span()).unwrap_or_default();
                        self.client
                            .cancel(&RequestId::of(request), (&frame, params));
                    }
                    Some(ClientNotification::Initialized) => {
                        self.daemon.connections.initialized(&self.client)
                    }
                    Some(ClientNotification::RootsListChanged)
                        if self.client.session.askable().tells_roots() =>
                    {
                        for server in self.daemon.host.servers().values() {
                            server.roots_changed(&self.client, &frame);
                        }
                    }
                    Some(ClientNotification::Progress { token }) => {
                        let params = params.map(|params| params.span()).unwrap_or_default();
                        self.client.session.asked.progress(token, &frame, params);
                    }
                    _ => debug!(
                        connection = self.client.connection,
                        "notification passed over"
                    ),
                }
            }
            EnvelopeKind::Answer { id, outcome } => {
                let outcome = outcome
                    .map(|result| result.span())
                    .map_err(|error| error.span());
                let at = id.map(|id| id.span()).unwrap_or_default();
                self.answered(id.map(|id| id.text()), Ok((&frame, (at, outcome))));
            }
        }
    }

    /// Takes an answer to what the client was asked, or why it is none.
    pub(super) fn answered(&self, id: Option<&str>, answer: Result<(&Bytes, AnswerParts), &str>) {
        if !self
            .client
            .session
            .asked
            .answer(&self.client.outbox, id, answer)
        {
            debug!(
                connection = self.client.connection,
                "answer to nothing that was asked"
            );
            self.daemon.chain.metrics.count_stray();
        }
    }

    /// Makes a call of a request of `length` bytes, all but its frame, against which this stands
    /// already.
    pub(super) fn call_of(
        &self,
        request: (Json<'_>, Json<'_>, Option<Json<'_>>),
        length: usize,
        batch: Option<&Arc<BatchAnswers>>,
        against: Option<RpcError>,
    ) -> Option<Box<Call>> {
        if !self.client.outbox.hold(length) {
            let failure = Failure::new(
                Code::DaemonBusy,
                "the daemon has no room for the request now",
            );
            self.fail(&failure, request.0.text(), batch);
            return None;
        }
        let mut call = self.request(request, batch, against);
        match &mut call {
            Some(call) => call.request.held = length,
            None => self.client.outbox.let_go(length),
        }
        call
    }

    /// Answers what is no message, if its sender can be waiting for an answer.
    pub(super) fn refuse(&self, refusal: EnvelopeRefusal, batch: Option<&Arc<BatchAnswers>>) {
        if refusal.answer && refusal.id.is_some() {
            return self.answered(refusal.id.as_deref(), Err(&refusal.to_string()));
        }
        self.client.note_error(refusal.code);
        let message = AnswerBody::Error(RpcError::new(refusal.code, refusal.message))
            .to_message(refusal.id.as_deref());
        match batch {
            Some(batch) => drop(batch.answer(Some(&message))),
            None => drop(self.client.outbox.push(&message)),
        }
    }

    /// Answers a request that is not taken.
    fn fail(&self, failure: &Failure, id: &str, batch: Option<&Arc<BatchAnswers>>) {
        let message = failure.answer(None, self.version()).to_message(Some(id));
        match batch {
            Some(batch) => drop(batch.answer(Some(&message))),
            None => drop(self.client.outbox.push(&message)),
        }
    }

    /// The limit that keeps the client's user from filling the trail, while it does.
    fn trail_limit(&self) -> Option<AdmissionLimit> {
        let is_spent = self
            .client
            .share()
            .is_some_and(|share| share.trail_is_spent());
        (is_spent && !self.daemon.chain.rules.rights(&self.client).operator)
            .then(|| AdmissionLimit::Trail(self.daemon.host.shares().limits().trail_per_user))
    }

    /// Answers a request that is over a limit.
    pub(super) fn refuse_limit(
        &self,
        limit: AdmissionLimit,
        id_text: &str,
        batch: Option<&Arc<BatchAnswers>>,
    ) {
        let clients = self.daemon.chain.rules.clients.load();
        let failure = match limit {
            AdmissionLimit::Trail(limit) => Failure::new(
                Code::LimitUser,
                format!(
                    "the calls of this {} fill the trail faster than {limit} bytes a second (limits.trail_bytes_per_user)",
                    if self.client.door.is_some() {
                        "agent"
                    } else {
                        "user"
                    }
                ),
            )
            .by_rule(clients.limit_place("trail_bytes_per_user")),
            AdmissionLimit::InFlight(limit) => Failure::new(
                Code::LimitInFlight,
                format!(
                    "{limit} calls of this client are in flight already (limits.calls_per_client)"
                ),
            )
            .by_rule(clients.limit_place("calls_per_client")),
            AdmissionLimit::Closed => Failure::new(
                Code::DaemonStopping,
                "the daemon is ending and takes no new calls",
            ),
            AdmissionLimit::SameId => {
                self.refuse(
                    EnvelopeRefusal {
                        code: INVALID_REQUEST,
                        message: format!("a request with the id {id_text} is still in flight"),
                        id: Some(id_text.to_owned()),
                        answer: false,
                    },
                    batch,
                );
                return;
            }
        };
        self.fail(&failure, id_text, batch);
    }

    /// Makes a call of a request, all but its frame.
    fn request(
        &self,
        (id, method, params): (Json<'_>, Json<'_>, Option<Json<'_>>),
        batch: Option<&Arc<BatchAnswers>>,
        against: Option<RpcError>,
    ) -> Option<Box<Call>> {
        let (key, id_text) = (RequestId::of(id), id.text());
        let admitted = match self.trail_limit() {
            Some(limit) => Err(limit),
            None => self.client.admit(&key),
        };
        if let Err(limit) = admitted {
            self.refuse_limit(limit, id_text, batch);
            return None;
        }
        let name = method.as_str().unwrap_or_default();
        let mut parts = RequestParts {
            id: id.span(),
            params: params.map(|params| params.span()),
            ..RequestParts::default()
        };
        let mut trace = None;
        if let Some(error) = against {
            self.malformed.set(true);
            let target = Own::answer(&name, AnswerBody::Error(error));
            let spoken = (self.version(), Method::parse(&name));
            return Some(self.call((key, batch), spoken, parts, (None, None), target));
        }
        let is_ours = name.starts_with(protocol::method::OPERATORS);
        if is_ours && self.client.door.is_some() {
            // Whoever an agent runs for: it has none of these.
            let target = Own::answer(
                &name,
                RpcError::method_not_found(&name, self.version()).into(),
            );
            return Some(self.call(
                (key, batch),
                (self.version(), None),
                parts,
                (None, None),
                target,
            ));
        }
        if is_ours {
            let declared = params.and_then(|params| params.get("_meta")?.get(META_CLIENT_INFO));
            let daemon = self.daemon.clone();
            let target = methods::prepare(&name, params).map(|method| Own::method(daemon, method));
            let target =
                target.unwrap_or_else(|error| Own::answer(&name, AnswerBody::Error(error)));
            return Some(self.call(
                (key, batch),
                (self.version(), None),
                parts,
                (None, declared),
                target,
            ));
        }
        let (mut resumes, mut declared) = (None, None);
        let (version, known, target) =
            match protocol::classify(self.client.session.agreed(), &OFFERED, &name, params) {
                Ok(request) => {
                    trace = request.meta.object.and_then(read_trace);
                    declared = match request.method {
                        Some(Method::Initialize) => {
                            params.and_then(|params| params.get("clientInfo"))
                        }
                        _ => request.meta.client_info,
                    };
                    parts.for_task = request.meta.object.and_then(|meta| self.read_task(meta));
                    parts.caller_record =
                        (request.meta.object.filter(|_| self.client.door.is_none()))
                            .and_then(MetaRecord::read)
                            .map(Box::new);
                    parts.task = request.task.is_some();
                    let capabilities = request.meta.client_capabilities;
                    parts.declares =
                        capabilities.is_some_and(|capabilities| capabilities.text() != "{}");
                    parts.progress_token = request.meta.progress_token.map(|token| token.span());
                    parts.log_level = request.meta.log_level;
                    let target = self
                        .target((&request, &name), params, &key, &mut parts)
                        .and_then(|target| {
                            resumes = self.resumes(&request, &target, params)?;
                            Ok(target)
                        })
                        .unwrap_or_else(|error| Own::answer(&name, AnswerBody::Error(error)));
                    (request.version, request.method, target)
                }
                Err(error) => {
                    self.malformed.set(true);
                    let (known, used) = (
                        Method::parse(&name),
                        params.and_then(|params| params.get("name")),
                    );
                    parts.name = used
                        .filter(|_| known == Some(Method::ToolsCall))
                        .map(|name| name.span());
                    let target = Own::answer(&name, AnswerBody::Error(error));
                    (self.version(), known, target)
                }
            };
        let mut call = self.call(
            (key, batch),
            (version, known),
            parts,
            (trace, declared),
            target,
        );
        if let Some(resumed) = resumes {
            // Its record says which one it continues.
            call.entry.number = resumed.record;
            call.entry.resumes = Some(Box::new(resumed));
        }
        Some(call)
    }

    /// The task for which a request is made. Only one that its person has claimed counts; an
    /// agent's is known without.
    fn read_task(&self, meta: Json<'_>) -> Option<u64> {
        let task = meta.get(META_TASK)?.as_u64()?;
        let is_own = self.client.door.is_none()
            && self
                .daemon
                .chain
                .board
                .has_claimed(self.client.caller.uid, task);
        is_own.then_some(task)
    }

    /// Reads a request as the retry of a call that a server answered with a question.
    fn resumes(
        &self,
        request: &Request<'_>,
        target: &CallTarget,
        params: Option<Json<'_>>,
    ) -> Result<Option<ResumedCall>, RpcError> {
        let Some(method) = request.method.filter(|method| method.may_ask_back()) else {
            return Ok(None);
        };
        let described = target.description();
        if !request.version.is_modern() {
            return Ok(None);
        }
        let [state, responses] = request.retry;
        if responses.is_some() && self.client.door.is_some() {
            return Err(answers_nothing("inputResponses"));
        }
        let Some(retry) = protocol::input::read_retry(state, responses)? else {
            return Ok(None);
        };
        let bound = RetryBinding {
            uid: self.client.caller.uid,
            server: &described.server,
            digest: request_state::digest(method.as_str(), params, self.client.asker().session),
        };
        Ok(Some(self.daemon.chain.states.unseal(
            &retry.state,
            &bound,
            self.now.1,
        )?))
    }

    fn call(
        &self,
        (id, batch): (RequestId, Option<&Arc<BatchAnswers>>),
        (version, method): (Version, Option<Method>),
        parts: RequestParts,
        (trace, declared): (Option<Box<Trace>>, Option<Json<'_>>),
        target: Arc<CallTarget>,
    ) -> Box<Call> {
        let request = CallRequest {
            client: self.client.clone(),
            id,
            batch: batch.cloned(),
            client_info: self
                .client
                .session
                .client_info(declared.and_then(|info| self.daemon.client_infos.read(info))),
            version,
            method,
            // Comes when nothing looks into it any more.
            frame: Bytes::new(),
            held: 0,
            parts,
            trace,
            entered: self.now.0,
            time: self.now.1,
        };
        Box::new(Call::new(request, target, self.road))
    }

    /// True if the one server that the client wants to see is there and may be seen, if it wants
    /// but one.
    fn sees_its_server(&self) -> bool {
        let rights = self.daemon.chain.rules.rights(&self.client);
        let is_there = |only: &Arc<str>| {
            rights.sees_any(only) && self.daemon.host.servers().contains_key(&**only)
        };
        self.client.session.only().is_none_or(is_there)
    }

    /// The target that answers a request.
    fn target(
        &self,
        (request, name): (&Request<'_>, &str),
        params: Option<Json<'_>>,
        id: &RequestId,
        parts: &mut RequestParts,
    ) -> Result<Arc<CallTarget>, RpcError> {
        let version = request.version;
        let Some(method) = request.method else {
            let target = route::method(&self.daemon, &self.client, name)
                .ok_or_else(|| RpcError::method_not_found(name, version))?;
            if let Some(params) = params {
                parts.arguments = CallArguments::At(params.span());
            }
            return Ok(target);
        };
        match method.route() {
            Route::Own => self.own_target(method, (version, params), id),
            Route::List(feature) => {
                let cursor = protocol::lists::ListCursor::read(params)?;
                Ok(Own::list(self.daemon.clone(), feature, cursor))
            }
            Route::Named(_)
            | Route::Resource
            | Route::Skill
            | Route::Directory
            | Route::Reference => {
                route::find_target(&self.daemon, method, request, params, parts, &self.client)
            }
            Route::Task if !protocol::tasks::is_declared(params) => {
                Err(protocol::tasks::undeclared())
            }
            Route::Task if method == Method::TasksUpdate && self.client.door.is_some() => {
                Err(answers_nothing(method.as_str()))
            }
            Route::Task => {
                let id = params.and_then(|params| params.get("taskId"));
                let id = id.and_then(|id| Some((id.span(), id.as_str()?)));
                let (at, id) =
                    id.ok_or_else(|| RpcError::invalid_params("params.taskId must be a string"))?;
                parts.name = Some(at);
                let rights = self.daemon.chain.rules.rights(&self.client);
                self.daemon.host.task(self.client.caller.uid, &id, &rights)
            }
        }
    }

    /// The target of a method that the daemon answers itself.
    fn own_target(
        &self,
        method: Method,
        (version, params): (Version, Option<Json<'_>>),
        id: &RequestId,
    ) -> Result<Arc<CallTarget>, RpcError> {
        match method {
            Method::Initialize | Method::Discover if !self.sees_its_server() => {
                let only = self.client.session.only().map_or("", |only| &**only);
                // Of a person, as they are without this one server.
                let rights = self
                    .daemon
                    .chain
                    .rules
                    .clients
                    .load()
                    .rights(&self.client.caller);
                let message = match self.daemon.host.server_meant(only, &rights) {
                    Err(failure) if self.client.door.is_none() => failure.message,
                    _ => format!(
                        "there is no server \"{}\" that you may see: colibri-mcp status lists those there are",
                        brief(only, 40)
                    ),
                };
                Err(RpcError::invalid_params(message))
            }
            Method::Initialize => {
                let asked = protocol::read_initialize(params)?;
                let askable = match &self.client.door {
                    None => Askable::read(asked.version, asked.capabilities),
                    // There is no person at an agent socket.
                    Some(_) => Askable::NOTHING,
                };
                self.client.session.agree(asked.version, askable);
                let presented = self.daemon.presented(&self.client, &OFFERED);
                let answer = protocol::initialize_result(asked.version, &presented);
                Ok(Own::answer(method.as_str(), AnswerBody::Result(answer)))
            }
            Method::Discover => {
                let presented = self.daemon.presented(&self.client, &OFFERED);
                let answer = protocol::discover_result(version, &presented);
                Ok(Own::answer(method.as_str(), AnswerBody::Result(answer)))
            }
            Method::Ping => Ok(Own::answer(
                method.as_str(),
                AnswerBody::Result(protocol::empty_result(version)),
            )),
            Method::LoggingSetLevel => {
                let level = protocol::logging::read_set_level(params)?;
                self.client.session.set_log_level(level);
                self.daemon.host.relevel(&self.client.session, level);
                Ok(Own::answer(
                    method.as_str(),
                    AnswerBody::Result(protocol::empty_result(version)),
                ))
            }
            Method::SubscriptionsListen => {
                let listen = protocol::subscription::SubscriptionFilter::read(params)?;
                Ok(Own::listen(self.daemon.clone(), id.clone(), listen))
            }
            _ => Err(RpcError::method_not_found(method.as_str(), version)),
        }
    }
}

/// Refuses what only one could say who was asked.
fn answers_nothing(leave: &str) -> RpcError {
    RpcError::invalid_params(format!(
        "nobody is asked through an agent's door, so there is nothing to answer: leave {leave} out"
    ))
}

/// The trace context of a request. One that is longer than any that the standard allows is left
/// out.
fn read_trace(meta: Json<'_>) -> Option<Box<Trace>> {
    let text = |key, longest| {
        let value = meta.get(key)?.as_str()?;
        (value.len() <= longest).then(|| Box::from(&*value))
    };
    Some(Box::new(Trace {
        parent: text("traceparent", 100)?,
        state: text("tracestate", 512),
    }))
}

/// The key of a request's `_meta` that names the task for which it is made.
const META_TASK: &str = "org.colibri/task";

/// The server capabilities that the daemon declares.
const OFFERED: [protocol::Capability; 6] = [
    protocol::Capability::Tools,
    protocol::Capability::Prompts,
    protocol::Capability::Resources,
    protocol::Capability::Completions,
    protocol::Capability::Logging,
    protocol::Capability::Skills,
];

/// The messages of a batch, and how many of them are answered.
///
/// # Errors
/// Why it is refused whole.
pub(super) fn split_batch(line: &Bytes) -> Result<(Vec<Bytes>, usize), RpcError> {
    let messages: Vec<Bytes> = match Json::parse(line) {
        Ok(batch) => batch
            .elements()
            .map(|element| line.slice(element.span()))
            .collect(),
        Err(error) => return Err(RpcError::new(PARSE_ERROR, format!("the batch is {error}"))),
    };
    if messages.is_empty() || messages.len() > MAX_IN_BATCH {
        let why = format!(
            "a batch holds 1 to {MAX_IN_BATCH} messages, this one holds {}",
            messages.len()
        );
        return Err(RpcError::new(INVALID_REQUEST, why));
    }
    let is_answered = |message: &&Bytes| match Envelope::parse(message) {
        Ok(envelope) => matches!(envelope.kind, EnvelopeKind::Request { .. }),
        Err(refusal) => !refusal.answer || refusal.id.is_none(),
    };
    let expected = messages.iter().filter(is_answered).count();
    Ok((messages, expected))
}
