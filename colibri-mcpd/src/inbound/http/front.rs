//! One request over HTTP: what is checked before its body is read, and who answers it.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::checks::{check_accept, check_content_type, check_origin, text};
use super::post::{Post, VERSION, find, no_session};
use super::refusal::HttpRefusal;
use super::reply::{Reply, TakenEvents};
use super::session::Sessions;
use super::wire::HttpExchange;
use crate::daemon::Daemon;
use crate::inbound::connection::InboundConnection;
use colibri_peer::{Outbox, PartialMessage};
use colibri_protocol::Version;

/// The longest silence of a body before its end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time for a whole body.
const BODY: Duration = Duration::from_secs(60);
/// So much room for a body is had at once, where it is to be so long: it takes no memory before it
/// is written to, and what grows step by step leaves pieces behind that others cannot use.
const ROOM: usize = 1 << 20;
/// The path of the endpoint; followed by `/` and the id of a server, it is that server alone.
const PATH: &str = "/mcp";
/// The methods that are allowed there.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// The parts that all HTTP connections share.
pub(in crate::inbound) struct Front {
    daemon: Arc<Daemon>,
    sessions: Arc<Sessions>,
}

impl Front {
    /// The front of a daemon.
    pub(in crate::inbound) fn new(daemon: Arc<Daemon>) -> Arc<Front> {
        Arc::new(Front {
            sessions: Sessions::new(daemon.clone()),
            daemon,
        })
    }

    /// Answers a request.
    pub(super) async fn answer(
        &self,
        visitor: &InboundConnection,
        turn: &HttpExchange,
        request: Request<Incoming>,
    ) -> Response<Reply> {
        let (parts, body) = request.into_parts();
        let mut response = match self.serve(visitor, turn, &parts, body).await {
            Ok(response) => response,
            Err(refusal) => Reply::refusal(&refusal),
        };
        // One that was cut off has no room for another request.
        let is_last = visitor.client.outbox.was_cut_off();
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, METHODS);
        }
        // Nobody looked at what comes after chunks.
        if is_last || parts.headers.contains_key(TRANSFER_ENCODING) {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn serve(
        &self,
        visitor: &InboundConnection,
        turn: &HttpExchange,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Reply>, HttpRefusal> {
        check_origin(&parts.uri, &parts.headers, &self.daemon.config.http_hosts)?;
        let below = parts.uri.path().strip_prefix(PATH);
        let only = match below.map(|below| below.strip_prefix('/').ok_or(below)) {
            Some(Err("")) => None,
            Some(Ok(server)) if !server.is_empty() => Some(server),
            _ => {
                return Err(HttpRefusal::new(
                    StatusCode::NOT_FOUND,
                    format!(
                        "there is nothing here: the paths are {PATH} and, for one server alone, {PATH}/SERVER"
                    ),
                ));
            }
        };
        let rights = self.daemon.chain.rules.rights(&visitor.client);
        let only = only.map(|only| self.daemon.host.only_meant(only, &rights));
        let only = only.as_deref();
        match parts.method {
            Method::POST => self.post(visitor, turn, (parts, only), body).await,
            Method::GET => self.listen(visitor, turn, (parts, only)),
            Method::DELETE => self.end_session(visitor, (parts, only)),
            _ => Err(HttpRefusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "send a message with POST, read a session's stream with GET, end it with DELETE",
            )),
        }
    }

    async fn post(
        &self,
        visitor: &InboundConnection,
        turn: &HttpExchange,
        (parts, only): (&Parts, Option<&str>),
        body: Incoming,
    ) -> Result<Response<Reply>, HttpRefusal> {
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
        visitor: &InboundConnection,
        turn: &HttpExchange,
        (parts, only): (&Parts, Option<&str>),
    ) -> Result<Response<Reply>, HttpRefusal> {
        refuse_modern(parts)?;
        check_accept(&parts.headers, &[EVENTS])?;
        let session = find(
            &self.sessions,
            &parts.headers,
            visitor.client.caller.uid,
            only,
        )?
        .ok_or_else(no_session)?;
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
        Ok(Reply::stream(TakenEvents::default(), reader))
    }

    fn end_session(
        &self,
        visitor: &InboundConnection,
        (parts, only): (&Parts, Option<&str>),
    ) -> Result<Response<Reply>, HttpRefusal> {
        refuse_modern(parts)?;
        let session = find(
            &self.sessions,
            &parts.headers,
            visitor.client.caller.uid,
            only,
        )?
        .ok_or_else(no_session)?;
        self.sessions.end(&session);
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }
}

/// The modern era has no sessions.
fn refuse_modern(parts: &Parts) -> Result<(), HttpRefusal> {
    let version = text(&parts.headers, VERSION).and_then(Version::parse);
    match version.is_some_and(Version::is_modern) {
        true => Err(HttpRefusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!(
                "MCP {} has no sessions: every message is a POST",
                Version::LATEST
            ),
        )),
        false => Ok(()),
    }
}

fn unknown_event() -> HttpRefusal {
    HttpRefusal::new(
        StatusCode::BAD_REQUEST,
        "the events after this Last-Event-ID are not kept: what was to come on that stream is lost; GET without it reads the \
         session's own stream",
    )
}

/// Reads a body whole.
async fn read<B>(mut body: B, limit: usize, outbox: &Arc<Outbox>) -> Result<Bytes, HttpRefusal>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let too_long = |length: u64| {
        HttpRefusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!(
                "the body has {length} bytes or more, the limit is {limit} (limits.message_bytes)"
            ),
        )
    };
    let known = body.size_hint().exact();
    if let Some(length) = known.filter(|length| *length > limit as u64) {
        return Err(too_long(length));
    }
    let mut unfinished = PartialMessage::new(outbox);
    let room = known.unwrap_or_default().min(ROOM as u64) as usize;
    let mut whole = BytesMut::with_capacity(room);
    let until = Instant::now() + BODY;
    loop {
        let next = std::future::poll_fn(|context| match unfinished.poll_cut_off(context) {
            Poll::Ready(()) => Poll::Ready(Err(no_room())),
            Poll::Pending => Pin::new(&mut body).poll_frame(context).map(Ok),
        });
        let silent = Instant::now() + PATIENCE;
        let frame = match timeout_at(silent.min(until), next).await {
            Ok(Err(refusal)) => return Err(refusal),
            Ok(Ok(None)) => return Ok(whole.freeze()),
            Ok(Ok(Some(Ok(frame)))) => frame,
            Ok(Ok(Some(Err(error)))) => {
                return Err(HttpRefusal::new(
                    StatusCode::BAD_REQUEST,
                    format!("the body cannot be read: {error}"),
                ));
            }
            Err(_) => {
                let why = match until < silent {
                    true => format!("the body has not come within {} s", BODY.as_secs()),
                    false => format!("nothing of the body came for {} s", PATIENCE.as_secs()),
                };
                return Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, why));
            }
        };
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if whole.len() + data.len() > limit {
            return Err(too_long((whole.len() + data.len()) as u64));
        }
        whole.extend_from_slice(data);
        let is_longer = whole.capacity() > ROOM;
        if !unfinished.grow(if is_longer {
            whole.capacity()
        } else {
            whole.len()
        }) {
            return Err(no_room());
        }
    }
}

/// The reason for which the body of a client that was cut off is not read.
fn no_room() -> HttpRefusal {
    HttpRefusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the daemon has no room for the request now: what this user's clients have begun, and have not read, fills it",
    )
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::Context;

    use hyper::body::Frame;
    use tokio::time::{Interval, interval};

    use super::*;
    use colibri_peer::{ByteBudget, Tenant};

    /// A body of which a byte comes now and then, without an end.
    struct Dripping(Interval);

    impl Body for Dripping {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let came = |_| Some(Ok(Frame::data(Bytes::from_static(b"x"))));
            self.0.poll_tick(context).map(came)
        }
    }

    fn dripping(seconds: u64) -> Dripping {
        Dripping(interval(Duration::from_secs(seconds)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_a_time_in_all_and_one_for_each_part() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let outbox = Outbox::charged(1 << 20, &budget, Tenant::Person(1));
        for (between, took, why) in [(5, BODY, "within 60 s"), (20, PATIENCE, "came for 10 s")] {
            let begun = Instant::now();
            let refused = read(dripping(between), 1 << 20, &outbox).await.unwrap_err();
            assert_eq!(
                (refused.status, begun.elapsed()),
                (StatusCode::REQUEST_TIMEOUT, took)
            );
            assert!(
                refused.error.message.contains(why),
                "{}",
                refused.error.message
            );
        }
        assert_eq!(budget.queued(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_ends_when_its_client_is_cut_off_for_another_user() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let greedy = Outbox::charged(1 << 20, &budget, Tenant::Person(1));
        assert!(greedy.keep(0, 900 << 10));
        let other = Outbox::charged(1 << 20, &budget, Tenant::Person(2));
        let take = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(other.hold(200 << 10));
        };
        let (refused, ()) = tokio::join!(read(dripping(5), 1 << 20, &greedy), take);
        assert_eq!(refused.unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(budget.queued(), 200 << 10);
    }
}
