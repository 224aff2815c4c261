//! The body of a response: one message, or a stream of events, as it comes out of a client's queue.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};

use super::refusal::HttpRefusal;
use super::wire::Busy;
use colibri_peer::{Charge, OutboxBatch};

/// The silence after which a stream sends a comment: it makes intermediaries keep the stream open
/// (2026-07-28, basic/transports/streamable-http, "Receiving Messages").
const QUIET: Duration = Duration::from_secs(15);
/// Pieces of an event from this size on are handed over by reference.
const BY_REFERENCE: usize = 8 * 1024;

/// A piece of a body, until it is written.
pub(super) struct BodyPiece {
    bytes: Bytes,
    /// It counts as queued for its client.
    _charge: Option<Arc<Charge>>,
    /// Its response is not over.
    _open: Arc<OpenResponseGuard>,
}

impl Buf for BodyPiece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// A source of events.
pub(super) trait Source: Send {
    /// The next events, each in its pieces; none when the stream is over.
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<TakenEvents>>;

    /// True if it ended since its client was cut off, rather than with its last event.
    fn is_cut_off(&self) -> bool;
}

/// Events that were taken out of a queue together.
#[derive(Default)]
pub(super) struct TakenEvents {
    pub(super) events: VecDeque<Vec<Bytes>>,
    pub(super) charge: Option<Arc<Charge>>,
}

impl TakenEvents {
    /// These, and others after them.
    pub(super) fn and(mut self, others: TakenEvents) -> TakenEvents {
        self.events.extend(others.events);
        self.charge = self.charge.or(others.charge);
        self
    }

    fn pieces(self) -> impl Iterator<Item = (Bytes, Option<Arc<Charge>>)> {
        let charge = self.charge;
        self.events
            .into_iter()
            .flatten()
            .map(move |bytes| (bytes, charge.clone()))
    }
}

/// The content of a response.
pub(super) struct Reply {
    pieces: VecDeque<(Bytes, Option<Arc<Charge>>)>,
    source: Option<Box<dyn Source>>,
    /// The value that is held until the response is written.
    holds: Option<Box<dyn Send>>,
}

/// A response that is not over. It is when everything is written: hyper lets go of a body before
/// that.
struct OpenResponseGuard {
    source: Mutex<Option<Box<dyn Source>>>,
    _holds: Mutex<Option<Box<dyn Send>>>,
    _busy: Busy,
}

/// A response as hyper writes it.
pub(super) struct HttpResponse {
    pieces: VecDeque<(Bytes, Option<Arc<Charge>>)>,
    left: u64,
    is_stream: bool,
    quiet: Option<Pin<Box<Sleep>>>,
    open: Arc<OpenResponseGuard>,
}

/// A stream was not read, and is cut off.
#[derive(Debug)]
pub(super) struct CutOff;

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client is cut off")
    }
}

impl std::error::Error for CutOff {}

impl Reply {
    fn of(bytes: Vec<u8>) -> Reply {
        Reply {
            pieces: VecDeque::from([(bytes.into(), None)]),
            source: None,
            holds: None,
        }
    }

    /// A response without a body.
    pub(super) fn empty(status: StatusCode) -> Response<Reply> {
        let mut response = Response::new(Reply::of(Vec::new()));
        *response.status_mut() = status;
        response
    }

    /// A response whose body is one message of ours.
    pub(super) fn own(status: StatusCode, message: Vec<u8>) -> Response<Reply> {
        json(status, Reply::of(message))
    }

    /// A response that refuses.
    pub(super) fn refusal(refusal: &HttpRefusal) -> Response<Reply> {
        Reply::own(refusal.status, refusal.to_body())
    }

    /// A response whose body is the one message that was taken; `holds` is kept until it is
    /// written.
    pub(super) fn message(
        status: StatusCode,
        taken: OutboxBatch,
        holds: impl Send + 'static,
    ) -> Response<Reply> {
        let charge = Arc::new(taken.charge);
        let mut pieces = taken.pieces;
        if let Some(last) = pieces.last_mut() {
            // Its line end.
            last.truncate(last.len() - 1);
        }
        let pieces = pieces
            .into_iter()
            .map(|piece| (piece, Some(charge.clone())));
        let reply = Reply {
            pieces: pieces.collect(),
            source: None,
            holds: Some(Box::new(holds)),
        };
        json(status, reply)
    }

    /// A response whose body is a stream of events, beginning with these.
    pub(super) fn stream(first: TakenEvents, source: impl Source + 'static) -> Response<Reply> {
        let mut response = Response::new(Reply {
            pieces: first.pieces().collect(),
            source: Some(Box::new(source)),
            holds: None,
        });
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }

    /// The response for hyper; the turn is over with it.
    pub(super) fn written(self, busy: Busy) -> HttpResponse {
        HttpResponse {
            left: self
                .pieces
                .iter()
                .map(|(bytes, _)| bytes.len() as u64)
                .sum(),
            pieces: self.pieces,
            is_stream: self.source.is_some(),
            quiet: None,
            open: Arc::new(OpenResponseGuard {
                source: Mutex::new(self.source),
                _holds: Mutex::new(self.holds),
                _busy: busy,
            }),
        }
    }
}

fn json(status: StatusCode, reply: Reply) -> Response<Reply> {
    let mut response = Response::new(reply);
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl HttpResponse {
    fn poll_events(&self, context: &mut Context<'_>) -> Poll<Option<Result<TakenEvents, CutOff>>> {
        let mut source = self.open.source.lock();
        let Some(source) = &mut *source else {
            return Poll::Ready(None);
        };
        let events = ready!(source.poll_events(context));
        Poll::Ready(match events {
            Some(events) => Some(Ok(events)),
            None => source.is_cut_off().then_some(Err(CutOff)),
        })
    }
}

impl Body for HttpResponse {
    type Data = BodyPiece;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BodyPiece>, CutOff>>> {
        loop {
            if let Some((bytes, charge)) = self.pieces.pop_front() {
                self.left = self.left.saturating_sub(bytes.len() as u64);
                return Poll::Ready(Some(Ok(Frame::data(BodyPiece {
                    bytes,
                    _charge: charge,
                    _open: self.open.clone(),
                }))));
            }
            match self.poll_events(context) {
                Poll::Ready(Some(Ok(events))) => {
                    self.quiet = None;
                    self.pieces.extend(events.pieces());
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    let quiet = self.quiet.get_or_insert_with(|| Box::pin(sleep(QUIET)));
                    ready!(quiet.as_mut().poll(context));
                    self.quiet = None;
                    self.pieces.push_back((Bytes::from_static(b":\n\n"), None));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.is_stream && self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_stream {
            SizeHint::default()
        } else {
            SizeHint::with_exact(self.left)
        }
    }
}

/// JSON with spaces for ends of lines, which stand between tokens alone.
pub(super) fn spaced(json: &[u8]) -> Bytes {
    let space = |byte: &u8| {
        if matches!(byte, b'\n' | b'\r') {
            b' '
        } else {
            *byte
        }
    };
    json.iter().map(space).collect::<Vec<u8>>().into()
}

/// A body of events, each of which begins with the bytes that `head` writes.
pub(super) fn events(taken: OutboxBatch, mut head: impl FnMut(&mut BytesMut)) -> TakenEvents {
    let mut events = VecDeque::with_capacity(taken.frames);
    let (mut event, mut tail, mut begun) = (Vec::new(), BytesMut::new(), false);
    for mut rest in taken.pieces {
        while !rest.is_empty() {
            if !std::mem::replace(&mut begun, true) {
                head(&mut tail);
                tail.extend_from_slice(b"event: message\ndata: ");
            }
            let end = memchr::memchr(b'\n', &rest);
            let part = rest.split_to(end.unwrap_or(rest.len()));
            // There it would end a line of the event.
            let part = match memchr::memchr(b'\r', &part) {
                Some(_) => spaced(&part),
                None => part,
            };
            if part.len() >= BY_REFERENCE {
                event.push(tail.split().freeze());
                event.push(part);
            } else {
                tail.extend_from_slice(&part);
            }
            if end.is_some() {
                rest.advance(1);
                tail.extend_from_slice(b"\n\n");
                event.push(tail.split().freeze());
                events.push_back(std::mem::take(&mut event));
                begun = false;
            }
        }
    }
    TakenEvents {
        events,
        charge: Some(Arc::new(taken.charge)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_peer::{ByteBudget, Outbox};

    #[test]
    fn each_frame_is_an_event_and_a_large_one_is_not_copied() {
        let outbox = Outbox::new(1 << 20, Arc::new(ByteBudget::default()));
        let big = Bytes::from(vec![b'x'; 3 * BY_REFERENCE]);
        outbox.push(b"{}");
        outbox.push_edited(&big, &colibri_wire::Edits::new());
        outbox.push(b"[]");
        outbox.push(b"{\"a\":\r1,\r\r\"b\":2}\r");
        let mut context = Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Some(taken)) = outbox.poll_taken(&mut context) else {
            panic!("nothing taken");
        };
        let mut number = 0;
        let made = events(taken, |head| {
            number += 1;
            head.extend_from_slice(format!("id: {number}\n").as_bytes());
        });
        let texts: Vec<Vec<u8>> = made.events.iter().map(|pieces| pieces.concat()).collect();
        assert_eq!(texts[0], b"id: 1\nevent: message\ndata: {}\n\n");
        assert_eq!(
            texts[1],
            [b"id: 2\nevent: message\ndata: ", &big[..], b"\n\n"].concat()
        );
        assert_eq!(texts[2], b"id: 3\nevent: message\ndata: []\n\n");
        let without_ends = b"id: 4\nevent: message\ndata: {\"a\": 1,  \"b\":2} \n\n";
        assert_eq!(
            texts[3], without_ends,
            "a carriage return ends a line of a stream"
        );
        assert!(
            made.events[1]
                .iter()
                .any(|piece| piece.as_ptr() == big.as_ptr())
        );
    }
}
