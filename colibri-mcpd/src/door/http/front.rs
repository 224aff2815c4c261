//! One request over HTTP: what is checked before its body is read, and who answers it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::checks::{check_accept, check_content_type, check_origin, text};
use super::post::{Post, VERSION, find, no_session};
use super::refusal::Refusal;
use super::reply::{Events, Reply};
use super::session::Sessions;
use super::wire::Turn;
use crate::daemon::Daemon;
use crate::door::visitor::Visitor;
use crate::peer::Outbox;
use colibri_protocol::Version;

/// How long a body may say nothing before it ends.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where everything is; behind it, `/` and the id of a server, is that server alone.
const PATH: &str = "/mcp";
/// What can be asked for there.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// What all connections that speak HTTP share.
pub(in crate::door) struct Front {
    daemon: Arc<Daemon>,
    sessions: Arc<Sessions>,
}

impl Front {
    /// That of a daemon.
    pub(in crate::door) fn new(daemon: Arc<Daemon>) -> Arc<Front> {
        Arc::new(Front {
            sessions: Sessions::new(daemon.clone()),
            daemon,
        })
    }

    /// Answers a request.
    pub(super) async fn answer(&self, visitor: &Visitor, turn: &Turn, request: Request<Incoming>) -> Response<Reply> {
        let (parts, body) = request.into_parts();
        let mut response = match self.serve(visitor, turn, &parts, body).await {
            Ok(response) => response,
            Err(refusal) => Reply::refusal(&refusal),
        };
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, METHODS);
        }
        // Nobody looked at what comes after chunks.
        if parts.headers.contains_key(TRANSFER_ENCODING) {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn serve(
        &self,
        visitor: &Visitor,
        turn: &Turn,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Reply>, Refusal> {
        check_origin(&parts.uri, &parts.headers, &self.daemon.config.http_hosts)?;
        let below = parts.uri.path().strip_prefix(PATH);
        let only = match below.map(|below| below.strip_prefix('/').ok_or(below)) {
            Some(Err("")) => None,
            Some(Ok(server)) if !server.is_empty() => Some(server),
            _ => {
                return Err(Refusal::new(
                    StatusCode::NOT_FOUND,
                    format!("there is nothing here: the paths are {PATH} and, for one server alone, {PATH}/SERVER"),
                ));
            }
        };
        match parts.method {
            Method::POST => self.post(visitor, turn, (parts, only), body).await,
            Method::GET => self.listen(visitor, turn, (parts, only)),
            Method::DELETE => self.end_session(visitor, (parts, only)),
            _ => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "send a message with POST, read a session's stream with GET, end it with DELETE",
            )),
        }
    }

    async fn post(
        &self,
        visitor: &Visitor,
        turn: &Turn,
        (parts, only): (&Parts, Option<&str>),
        body: Incoming,
    ) -> Result<Response<Reply>, Refusal> {
        check_content_type(&parts.headers)?;
        check_accept(&parts.headers, &[JSON, EVENTS])?;
        let body = read(body, self.daemon.limits.frame, &visitor.client.outbox).await?;
        let post = Post {
            daemon: &self.daemon,
            sessions: &self.sessions,
            caller: visitor.client.caller,
            turn,
            headers: &parts.headers,
            only,
        };
        Ok(post.answer(body).await)
    }

    /// The stream of a session, or one of its requests read on.
    fn listen(
        &self,
        visitor: &Visitor,
        turn: &Turn,
        (parts, only): (&Parts, Option<&str>),
    ) -> Result<Response<Reply>, Refusal> {
        refuse_modern(parts)?;
        check_accept(&parts.headers, &[EVENTS])?;
        let session = find(&self.sessions, &parts.headers, visitor.client.caller.uid, only)?.ok_or_else(no_session)?;
        let reader = match text(&parts.headers, "last-event-id") {
            None if parts.headers.contains_key("last-event-id") => return Err(unknown_event()),
            None => session.read(),
            Some(event) => {
                let (stream, event) = event.split_once('-').ok_or_else(unknown_event)?;
                let (stream, event) = (stream.parse().ok(), event.parse().ok());
                let (stream, event) = stream.zip(event).ok_or_else(unknown_event)?;
                let stream = session.stream(stream).ok_or_else(unknown_event)?;
                stream.read_after(event).ok_or_else(unknown_event)?
            }
        };
        turn.answers_from(&reader.stream().client.outbox);
        Ok(Reply::stream(Events::default(), reader))
    }

    fn end_session(
        &self,
        visitor: &Visitor,
        (parts, only): (&Parts, Option<&str>),
    ) -> Result<Response<Reply>, Refusal> {
        refuse_modern(parts)?;
        let session = find(&self.sessions, &parts.headers, visitor.client.caller.uid, only)?.ok_or_else(no_session)?;
        self.sessions.end(&session);
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

/// The modern era has no sessions.
fn refuse_modern(parts: &Parts) -> Result<(), Refusal> {
    let version = text(&parts.headers, VERSION).and_then(Version::parse);
    match version.is_some_and(Version::is_modern) {
        true => Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("MCP {} has no sessions: every message is a POST", Version::LATEST),
        )),
        false => Ok(()),
    }
}

fn unknown_event() -> Refusal {
    Refusal::new(
        StatusCode::BAD_REQUEST,
        "the events after this Last-Event-ID are not kept: what was to come on that stream is lost; GET without it reads the \
         session's own stream",
    )
}

/// Reads a body whole.
async fn read(mut body: Incoming, limit: usize, outbox: &Outbox) -> Result<Bytes, Refusal> {
    let too_long = |length: u64| {
        Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has {length} bytes or more, the limit is {limit} (--max-frame)"),
        )
    };
    if let Some(length) = body.size_hint().exact().filter(|length| *length > limit as u64) {
        return Err(too_long(length));
    }
    let mut kept = Kept { outbox, bytes: 0 };
    let mut whole = BytesMut::new();
    loop {
        let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = match timeout(PATIENCE, next).await {
            Ok(None) => return Ok(whole.freeze()),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    format!("the body cannot be read: {error}"),
                ));
            }
            Err(_) => {
                return Err(Refusal::new(
                    StatusCode::REQUEST_TIMEOUT,
                    format!("the body says nothing for {} s", PATIENCE.as_secs()),
                ));
            }
        };
        let Some(data) = frame.data_ref() else { continue };
        if whole.len() + data.len() > limit {
            return Err(too_long((whole.len() + data.len()) as u64));
        }
        whole.extend_from_slice(data);
        if !kept.grow(whole.capacity()) {
            return Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the daemon has no room for the request now",
            ));
        }
    }
}

/// The bytes of a body that has not ended, as part of what its connection has of the daemon's budget.
struct Kept<'o> {
    outbox: &'o Outbox,
    bytes: usize,
}

impl Kept<'_> {
    fn grow(&mut self, to: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, to);
        self.outbox.keep(before, to)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.outbox.keep(self.bytes, 0);
    }
}
