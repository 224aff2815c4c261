//! The message of a POST: whose it is, what becomes of it, and what it is answered with.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Response, StatusCode};
use tokio::time::timeout;

use super::checks::{Narrow, text};
use super::refusal::HttpRefusal;
use super::reply::{Reply, Source, TakenEvents, events, spaced};
use super::session::{HttpSession, Sessions};
use super::stream::StreamReader;
use super::wire::HttpExchange;
use crate::daemon::Daemon;
use crate::daemon::connections::ConnectionKind as Entered;
use crate::inbound::messages::{ClientMessages, split_batch};
use crate::ops::own_target::Own;
use crate::relay::{BatchAnswers, Call, CallArguments, Client, ClientSession};
use colibri_peer::{OutboxBatch, Tenant, aside};
use colibri_policy::{Caller, Road};
use colibri_protocol::rpc_error::{
    HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
};
use colibri_protocol::{self as protocol, AnswerBody, ClientNotification, RpcError, Version};
use colibri_wire::envelope::{EnvelopeRefusal as Unreadable, INVALID_REQUEST, PARSE_ERROR};
use colibri_wire::{Envelope, EnvelopeKind, Json, RequestId, Tape};

/// The field that names the session.
pub(super) const SESSION: &str = "mcp-session-id";
/// The field that names the version.
pub(super) const VERSION: &str = "mcp-protocol-version";
/// The time after which a waiting request gets a stream, from which a client can read on when it
/// breaks.
const RESUMABLE_AFTER: Duration = Duration::from_secs(1);
/// The same where it cannot: so long nobody between gives up.
const STREAM_AFTER: Duration = Duration::from_secs(15);
/// A message from this size on is read while others use the thread.
const MUCH: usize = 1024 * 1024;

/// A POST whose body was read.
pub(super) struct Post<'p> {
    pub(super) daemon: &'p Arc<Daemon>,
    pub(super) sessions: &'p Arc<Sessions>,
    pub(super) caller: Caller,
    pub(super) turn: &'p HttpExchange,
    pub(super) headers: &'p HeaderMap,
    /// The one server that it sees.
    pub(super) only: Option<&'p str>,
}

/// The client and session for which a request is answered.
enum PostCaller {
    /// A request without a session, which is cancelled when its response is given up.
    Alone(Alone),
    /// One of a session, which is not.
    InSession(Arc<HttpSession>, StreamReader),
}

impl PostCaller {
    fn client(&self) -> &Arc<Client> {
        match self {
            PostCaller::Alone(alone) => &alone.client,
            PostCaller::InSession(_, reader) => &reader.stream().client,
        }
    }

    /// The road by which its request comes.
    fn road(&self) -> Road {
        match self {
            PostCaller::Alone(_) => Road::HttpRequest,
            PostCaller::InSession(..) => Road::HttpSession,
        }
    }

    fn poll_taken(&mut self, context: &mut Context<'_>) -> Poll<Option<OutboxBatch>> {
        match self {
            PostCaller::Alone(alone) => alone.client.outbox.poll_taken(context),
            PostCaller::InSession(_, reader) => reader.poll_taken(context),
        }
    }
}

/// A request without a session.
struct Alone {
    daemon: Arc<Daemon>,
    client: Arc<Client>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.client.disconnect();
        self.client.outbox.close();
        self.daemon.connections.leave(&self.client);
    }
}

impl Source for Alone {
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<TakenEvents>> {
        let taken = ready!(self.client.outbox.poll_taken(context));
        Poll::Ready(taken.map(|taken| events(taken, |_| {})))
    }

    fn is_cut_off(&self) -> bool {
        self.client.outbox.is_discarded()
    }
}

/// The last reader of a request's stream: it is forgotten with it.
struct LastReaderGuard(Arc<HttpSession>, StreamReader);

impl Drop for LastReaderGuard {
    fn drop(&mut self) {
        self.0.forget(self.1.stream());
    }
}

impl Post<'_> {
    /// Answers it.
    pub(super) async fn answer(&self, body: Bytes) -> Response<Reply> {
        let frame = one_line(body);
        let first = frame.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
        let asked = if first == Some(&b'[') {
            self.batch(frame)
        } else if frame.len() >= MUCH {
            let _turn = self.daemon.long_messages.of(self.caller.uid, None).await;
            aside(|| self.message(frame))
        } else {
            self.message(frame)
        };
        match asked {
            Ok((asking, malformed)) => self.wait(asking, malformed).await,
            Err(response) => *response,
        }
    }

    /// True if the request says that it is of the modern era, or of one that we do not know yet.
    fn is_modern(&self) -> bool {
        let named = text(self.headers, VERSION).map(Version::parse);
        named.is_some_and(|version| version.is_none_or(Version::is_modern))
    }

    /// The session that the client names.
    fn session(&self) -> Result<Option<Arc<HttpSession>>, HttpRefusal> {
        find(self.sessions, self.headers, self.caller.uid, self.only)
    }

    /// The session of what cannot be without one.
    fn needed_session(&self) -> Result<Arc<HttpSession>, Box<Response<Reply>>> {
        let session = self
            .session()
            .map_err(|refusal| Box::new(Reply::refusal(&refusal)))?;
        session.ok_or_else(|| Box::new(Reply::refusal(&no_session())))
    }

    /// One message: a call that is on its way, and whether it was refused for what it is; else the
    /// response.
    fn message(&self, frame: Bytes) -> Result<(PostCaller, bool), Box<Response<Reply>>> {
        let mut tape = Tape::default();
        let envelope = match Envelope::read(&frame, &mut tape) {
            Ok(envelope) => envelope,
            Err(refusal) => return Err(Box::new(unreadable(refusal))),
        };
        let EnvelopeKind::Request { id, method, params } = envelope.kind else {
            return Err(Box::new(self.notified(&frame, envelope)));
        };
        let name = method.as_str().unwrap_or_default();
        let asking = if self.is_modern() {
            self.alone()
        } else {
            match self.session() {
                Err(refusal) => return Err(Box::new(failed(refusal, id.text()))),
                Ok(Some(session)) => in_session(session),
                Ok(None) if name == "initialize" => {
                    let narrow = Narrow::read(self.headers);
                    match self.sessions.prepare(self.caller, narrow, self.only) {
                        Some(session) => in_session(session),
                        None => {
                            let why = "the system has no randomness for the id of a session";
                            let refusal = HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
                            return Err(Box::new(failed(refusal, id.text())));
                        }
                    }
                }
                Ok(None) => self.alone(),
            }
        };
        let against = self.against(&asking, &name, params).err();
        let client = asking.client().clone();
        Narrow::read(self.headers).apply(&client);
        self.turn.answers_from(&client.outbox);
        let messages = ClientMessages::of(self.daemon.clone(), client.clone(), asking.road());
        let admitted = match &asking {
            PostCaller::InSession(session, _) => session.admit(&RequestId::of(id)),
            PostCaller::Alone(_) => Ok(()),
        };
        let call = match admitted {
            Ok(()) => messages.call_of((id, method, params), frame.len(), None, against),
            Err(limit) => {
                messages.refuse_limit(limit, id.text(), None);
                None
            }
        };
        if let Some(mut call) = call {
            call.request.frame = frame.clone();
            if let (PostCaller::Alone(_), Err(error)) = (&asking, self.compare_arguments(&call)) {
                messages.malformed.set(true);
                call.target = Own::answer(&name, AnswerBody::Error(error));
            }
            self.daemon.chain.accept(&mut vec![call]);
        }
        client.end_with_its_calls();
        Ok((asking, messages.malformed.get()))
    }

    /// The refusal of a request before its message is looked at.
    fn against(
        &self,
        asking: &PostCaller,
        method: &str,
        params: Option<Json<'_>>,
    ) -> Result<(), RpcError> {
        if method.starts_with(protocol::method::OPERATORS) {
            return Err(RpcError::new(
                METHOD_NOT_FOUND,
                "operators' methods are not served over HTTP: use colibri-mcp, or write lines to the socket",
            ));
        }
        let meta = params.and_then(|params| params.get("_meta"));
        let declared =
            meta.and_then(|meta| meta.get(protocol::request::META_PROTOCOL_VERSION)?.as_str());
        let declares_modern =
            declared.is_some_and(|version| Version::parse(&version).is_none_or(Version::is_modern));
        match asking {
            PostCaller::Alone(_) if self.is_modern() || declares_modern => {
                protocol::compare_request(method, params, |name| {
                    Some(self.headers.get(name)?.as_bytes())
                })
            }
            PostCaller::Alone(_) => Err(no_session().error),
            PostCaller::InSession(..) if declares_modern => {
                protocol::compare_request(method, params, |name| {
                    Some(self.headers.get(name)?.as_bytes())
                })
            }
            PostCaller::InSession(..) => Ok(()),
        }
    }

    /// Compares the arguments with the header fields that repeat them.
    fn compare_arguments(&self, call: &Call) -> Result<(), RpcError> {
        let mirrored = &call.target.description().mirrored;
        // Who calls a tool through another one knows the other one's fields.
        if mirrored.is_empty() || matches!(call.parts.arguments, CallArguments::Within { .. }) {
            return Ok(());
        }
        let arguments = Json::parse(call.arguments()).ok();
        let field = |name: &str| Some(self.headers.get(name)?.as_bytes());
        mirrored
            .iter()
            .try_for_each(|one| one.compare(arguments, field))
    }

    fn alone(&self) -> PostCaller {
        let daemon = self.daemon.clone();
        let number = daemon.connections.next_number();
        let outbox = daemon.queue_for(Tenant::Person(self.caller.uid));
        let client = Client::new(number, self.caller, outbox, daemon.limits.in_flight);
        let share = daemon.host.shares().of(self.caller.uid);
        let session = ClientSession::of_request(number);
        if let Some(only) = self.only {
            session.show_only(only);
        }
        let client = Arc::new(client.sharing(share).within(Arc::new(session)));
        daemon.connections.enter(client.clone(), Entered::Request);
        PostCaller::Alone(Alone { daemon, client })
    }

    /// A notification or an answer: there is nothing to wait for.
    fn notified(&self, frame: &Bytes, envelope: Envelope<'_>) -> Response<Reply> {
        // The modern era has no notification over HTTP, and its answers come with a retry: they are
        // passed over.
        if self.is_modern() {
            return match envelope.kind {
                EnvelopeKind::Answer { .. } => Reply::refusal(&HttpRefusal::new(
                    StatusCode::BAD_REQUEST,
                    "an answer is no message of a modern client: what was asked is answered with the retry",
                )),
                _ => Reply::empty(StatusCode::ACCEPTED),
            };
        }
        match self.needed_session() {
            Ok(session) => {
                self.take_notified(&session, frame, &envelope, &mut Vec::new());
                Reply::empty(StatusCode::ACCEPTED)
            }
            Err(response) => *response,
        }
    }

    fn take_notified(
        &self,
        session: &HttpSession,
        frame: &Bytes,
        envelope: &Envelope<'_>,
        calls: &mut Vec<Box<Call>>,
    ) {
        if let EnvelopeKind::Notification { method, params } = &envelope.kind
            && let Some(ClientNotification::Cancelled { request }) =
                protocol::read_notification(&method.as_str().unwrap_or_default(), *params)
        {
            self.daemon.chain.accept(calls);
            let params = params.map(|params| params.span()).unwrap_or_default();
            return session.cancel(&RequestId::of(request), (frame, params));
        }
        let client = session.own.client.clone();
        ClientMessages::of(self.daemon.clone(), client, Road::HttpSession).message(
            frame.clone(),
            None,
            calls,
        );
    }

    /// A batch, of a session that agreed on the one version that has them.
    fn batch(&self, frame: Bytes) -> Result<(PostCaller, bool), Box<Response<Reply>>> {
        let refuse = |error| {
            Box::new(Reply::refusal(&HttpRefusal {
                status: StatusCode::BAD_REQUEST,
                error,
            }))
        };
        let session = self.needed_session()?;
        if !session.shared.agreed().takes_batches() {
            let why =
                "batches are for sessions that negotiated 2025-03-26; send one message in a POST";
            return Err(refuse(RpcError::new(INVALID_REQUEST, why)));
        }
        let (parts, expected) = split_batch(&frame).map_err(refuse)?;
        let asking = in_session(session.clone());
        let client = asking.client().clone();
        Narrow::read(self.headers).apply(&client);
        self.turn.answers_from(&client.outbox);
        let messages = ClientMessages::of(self.daemon.clone(), client.clone(), asking.road());
        let batch = Arc::new(BatchAnswers::new(client.outbox.clone(), expected));
        let mut calls = Vec::new();
        for part in parts {
            match Envelope::parse(&part) {
                Ok(envelope) if !matches!(envelope.kind, EnvelopeKind::Request { .. }) => {
                    self.take_notified(&session, &part, &envelope, &mut calls);
                }
                _ => messages.message(part.clone(), Some(&batch), &mut calls),
            }
        }
        self.daemon.chain.accept(&mut calls);
        client.end_with_its_calls();
        Ok((asking, false))
    }

    /// Waits for what comes out first, which decides: an answer alone is the response, all else
    /// begins a stream.
    async fn wait(&self, mut asking: PostCaller, malformed: bool) -> Response<Reply> {
        let client = asking.client().clone();
        let primes = match client.session.agreed() {
            protocol::SessionPhase::Legacy(version) => version >= Version::V2025_11_25,
            protocol::SessionPhase::Fresh => false,
        };
        let patience = if primes {
            RESUMABLE_AFTER
        } else {
            STREAM_AFTER
        };
        let first = timeout(
            patience,
            std::future::poll_fn(|context| asking.poll_taken(context)),
        )
        .await;
        // Whoever lands a call does so with its answer queued and the queue closed.
        let is_alone = |taken: &OutboxBatch| {
            taken.frames == 1 && client.in_flight() == 0 && client.outbox.is_over()
        };
        match (first, asking) {
            (Ok(None), _) if client.outbox.is_discarded() => Reply::refusal(&HttpRefusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the daemon has no room for the answer now",
            )),
            // It was cancelled, and gets no answer.
            (Ok(None), PostCaller::InSession(session, reader)) => {
                drop(LastReaderGuard(session, reader));
                Reply::empty(StatusCode::ACCEPTED)
            }
            (Ok(None), PostCaller::Alone(_)) => Reply::empty(StatusCode::ACCEPTED),
            (Ok(Some(taken)), PostCaller::Alone(alone)) if is_alone(&taken) => {
                Reply::message(status(client.error(), malformed), taken, alone)
            }
            (Ok(Some(taken)), PostCaller::InSession(session, reader)) if is_alone(&taken) => {
                let status = legacy_status(client.error());
                let response =
                    Reply::message(status, taken, LastReaderGuard(session.clone(), reader));
                self.begin(&session, response)
            }
            (first, PostCaller::Alone(alone)) => {
                let taken = first.ok().flatten().map(|taken| events(taken, |_| {}));
                Reply::stream(taken.unwrap_or_default(), alone)
            }
            (first, PostCaller::InSession(session, reader)) => {
                let stream = reader.stream();
                let mut begun = if primes {
                    stream.prime()
                } else {
                    TakenEvents::default()
                };
                if let Some(taken) = first.ok().flatten() {
                    begun = begun.and(stream.note_taken(taken));
                }
                let response = Reply::stream(begun, reader);
                self.begin(&session, response)
            }
        }
    }

    /// A session that has agreed on a version and is not known yet begins with this response, which
    /// says its id.
    fn begin(&self, session: &Arc<HttpSession>, mut response: Response<Reply>) -> Response<Reply> {
        if session.has_begun() {
            return response;
        }
        if session.shared.agreed() == protocol::SessionPhase::Fresh {
            return response;
        }
        if !self.sessions.begin(session) {
            return Reply::refusal(&HttpRefusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                "this user has as many sessions over HTTP as one user may have, and none of them is idle",
            ));
        }
        if let Ok(id) = session.id.parse() {
            response.headers_mut().insert(SESSION, id);
        }
        response
    }
}

fn in_session(session: Arc<HttpSession>) -> PostCaller {
    let reader = session.open().read();
    PostCaller::InSession(session, reader)
}

/// The session that the header fields name, if they name one.
///
/// # Errors
/// The user has no such session.
pub(super) fn find(
    sessions: &Sessions,
    headers: &HeaderMap,
    uid: u32,
    only: Option<&str>,
) -> Result<Option<Arc<HttpSession>>, HttpRefusal> {
    if !headers.contains_key(SESSION) {
        return Ok(None);
    }
    let found = text(headers, SESSION).and_then(|id| sessions.find(id, uid));
    let found = found.filter(|session| session.only() == only);
    found.map(Some).ok_or_else(|| {
        HttpRefusal::new(
            StatusCode::NOT_FOUND,
            "no such session: it ended, or was idle for long; send initialize without Mcp-Session-Id",
        )
    })
}

/// The refusal of a request that names no session.
pub(super) fn no_session() -> HttpRefusal {
    HttpRefusal::new(
        StatusCode::BAD_REQUEST,
        format!(
            "the request names no session: send \"initialize\" first and then the Mcp-Session-Id of its response ({} and \
             older), or the headers and the _meta of {}",
            Version::LATEST_LEGACY,
            Version::LATEST
        ),
    )
}

/// The response to a request that is not taken.
fn failed(refusal: HttpRefusal, id: &str) -> Response<Reply> {
    Reply::own(
        refusal.status,
        AnswerBody::Error(refusal.error).to_message(Some(id)),
    )
}

/// The response to what is no message.
fn unreadable(refusal: Unreadable) -> Response<Reply> {
    let error = RpcError::new(refusal.code, refusal.message);
    let id = refusal.id.filter(|_| !refusal.answer);
    Reply::own(
        StatusCode::BAD_REQUEST,
        AnswerBody::Error(error).to_message(id.as_deref()),
    )
}

/// The status of an answer to a modern request (2026-07-28, basic/transports/streamable-http, and
/// basic, "_meta").
fn status(error: Option<i64>, malformed: bool) -> StatusCode {
    match error {
        Some(METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(
            PARSE_ERROR
            | INVALID_REQUEST
            | HEADER_MISMATCH
            | MISSING_REQUIRED_CLIENT_CAPABILITY
            | UNSUPPORTED_PROTOCOL_VERSION,
        ) => StatusCode::BAD_REQUEST,
        _ if malformed => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The status of an answer to a legacy request. A client takes 404 for the end of its session, so
/// errors have none of their own.
fn legacy_status(error: Option<i64>) -> StatusCode {
    match error {
        Some(PARSE_ERROR | INVALID_REQUEST) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// A body as a line has it: ends of lines, which stand between tokens alone, become spaces.
fn one_line(body: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &body).is_none() || Json::parse(&body).is_err() {
        return body;
    }
    spaced(&body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_protocol::rpc_error::INVALID_PARAMS;

    #[test]
    fn errors_have_the_status_that_the_specification_gives_them() {
        for (error, malformed, modern, legacy) in [
            (None, false, 200, 200),
            (Some(METHOD_NOT_FOUND), false, 404, 200),
            (Some(METHOD_NOT_FOUND), true, 404, 200),
            (Some(INVALID_PARAMS), false, 200, 200),
            (Some(INVALID_PARAMS), true, 400, 200),
            (Some(HEADER_MISMATCH), true, 400, 200),
            (Some(UNSUPPORTED_PROTOCOL_VERSION), true, 400, 200),
            (Some(MISSING_REQUIRED_CLIENT_CAPABILITY), false, 400, 200),
            (Some(INVALID_REQUEST), false, 400, 400),
            (Some(PARSE_ERROR), false, 400, 400),
            (Some(101), false, 200, 200),
        ] {
            assert_eq!(status(error, malformed).as_u16(), modern, "{error:?}");
            assert_eq!(legacy_status(error).as_u16(), legacy, "{error:?}");
        }
    }

    #[test]
    fn a_body_becomes_one_line_and_nothing_else_of_it_changes() {
        let pretty = Bytes::from_static(b"{\r\n  \"a\": \"\\n\",\n\t\"b\": 1\n}");
        let line = one_line(pretty.clone());
        assert_eq!(line, &b"{    \"a\": \"\\n\", \t\"b\": 1 }"[..]);
        assert_eq!(line.len(), pretty.len());
        // What is no JSON stays what it is, and is refused as that.
        let wrong = Bytes::from_static(b"{\"a\": \"\n\"}");
        assert_eq!(one_line(wrong.clone()), wrong);
    }
}
