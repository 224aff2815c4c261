//! HTTP+SSE of 2024-11-05: one stream brings everything, messages go to the endpoint that it names
//! first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Uri};
use tokio::io::DuplexStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use super::endpoint::{Body, EVENTS, Port, body_of, first_of, refused};
use super::send_error::{ExchangeError, SendErrorKind};
use colibri_http::sse::{Parser, SseEvent};
use colibri_http::{ResponseStream, UrlOrigin, resolve_reference};
use colibri_peer::{Frame, FrameReader};
use colibri_wire::{Envelope, envelope::EnvelopeKind};

/// The longest time in which the server must name its endpoint.
const NAMED: Duration = Duration::from_secs(15);
/// The longest time for a message without an answer before others follow it.
const TOLD: Duration = Duration::from_secs(5);
/// The most bytes of an answer to a message, which says nothing.
const MAX_ANSWER: usize = 64 * 1024;

/// The stream of a session.
struct SessionStream {
    response: ResponseStream,
    parser: Parser,
    events: VecDeque<SseEvent>,
}

impl SessionStream {
    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<SseEvent>, ExchangeError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let Some(part) = self.response.chunk().await? else {
                return Ok(None);
            };
            self.parser.feed(&part, &mut self.events).map_err(|_| {
                ExchangeError::new(SendErrorKind::TooLong, "it sent an event over the limit")
            })?;
        }
    }
}

/// Opens the stream, and relays in both directions until it or what is written ends.
pub(super) async fn run(port: Port, mut reader: FrameReader<DuplexStream>) {
    let port = Arc::new(port);
    let opened = timeout(NAMED, open(&port)).await.unwrap_or_else(|_| {
        let why = format!("it named no endpoint within {} s", NAMED.as_secs());
        Err(ExchangeError::new(SendErrorKind::Lost, why))
    });
    let (mut stream, to) = match opened {
        Ok(opened) => opened,
        Err(failed) => return refuse_first(&port, reader, failed).await,
    };
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            more = reader.fill() => {
                if !more.unwrap_or(false) {
                    break;
                }
                while let Some(frame) = reader.pop() {
                    if let Frame::Line(line) = frame {
                        let sent = send(port.clone(), to.clone(), line.clone());
                        if request_id(&line).is_some() {
                            tasks.spawn(sent);
                        } else {
                            // What follows may need it. An answer of 202 comes at once.
                            let _ = timeout(TOLD, sent).await;
                        }
                    }
                }
            }
            event = stream.next() => match event {
                Ok(Some(event)) if matches!(event.name.as_str(), "" | "message") && !event.data.is_empty() => {
                    port.deliver(Bytes::from(event.data)).await;
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(failed) => {
                    debug!("the event stream ended: {}", failed.message);
                    break;
                }
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    tasks.shutdown().await;
}

async fn open(port: &Port) -> Result<(SessionStream, Uri), ExchangeError> {
    let url = &port.endpoint.url;
    let fields = HeaderMap::from_iter([(ACCEPT, EVENTS)]);
    let mut response = port.send(Method::GET, url, &fields, Bytes::new()).await?;
    if !response.status.is_success() {
        let said = first_of(&mut response).await;
        return Err(refused(&response, "", &said));
    }
    if body_of(&response) != Body::Events {
        let why = "it answered with no event stream; is \"type\": \"sse\" right?";
        return Err(ExchangeError::new(SendErrorKind::Invalid, why));
    }
    let mut stream = SessionStream {
        response,
        parser: Parser::new(port.endpoint.max_message),
        events: VecDeque::new(),
    };
    while let Some(event) = stream.next().await? {
        if event.name == "endpoint" {
            let to = resolve_reference(url, String::from_utf8_lossy(&event.data).trim())?;
            if UrlOrigin::of(&to)? != UrlOrigin::of(url)? {
                let why = "it names an endpoint of another origin, which is sent nothing";
                return Err(ExchangeError::new(SendErrorKind::Invalid, why));
            }
            return Ok((stream, to));
        }
    }
    Err(ExchangeError::new(
        SendErrorKind::Lost,
        "its event stream ended before it named an endpoint",
    ))
}

async fn send(port: Arc<Port>, to: Uri, line: Bytes) {
    let id = request_id(&line);
    let fields =
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let failed = match port.send(Method::POST, &to, &fields, line).await {
        Ok(mut response) if response.status.is_success() => {
            let _ = response.whole(MAX_ANSWER).await;
            return;
        }
        Ok(mut response) => {
            let said = first_of(&mut response).await;
            refused(&response, "", &said)
        }
        Err(failed) => failed,
    };
    if id.is_some() {
        port.tell(id, failed);
    }
}

/// Reports the session's end to the first request, and ends it.
async fn refuse_first(port: &Port, mut reader: FrameReader<DuplexStream>, failed: ExchangeError) {
    while reader.fill().await.unwrap_or(false) {
        while let Some(frame) = reader.pop() {
            if let Frame::Line(line) = frame
                && let Some(id) = request_id(&line)
            {
                return port.tell(Some(id), failed);
            }
        }
    }
}

fn request_id(line: &[u8]) -> Option<u64> {
    match Envelope::parse(line).ok()?.kind {
        EnvelopeKind::Request { id, .. } => id.as_u64(),
        _ => None,
    }
}
