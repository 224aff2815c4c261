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
use tokio::time::{Sleep, sleep};

use super::refusal::Refusal;
use super::wire::Busy;
use crate::peer::{Charge, Taken};

/// How long a stream says nothing before it says so, in a comment: who is between keeps it open then (2026-07-28,
/// basic/transports/streamable-http, "Receiving Messages").
const QUIET: Duration = Duration::from_secs(15);
/// Pieces of an event from this size on are handed over by reference.
const BY_REFERENCE: usize = 8 * 1024;

/// A piece of a body. It counts as queued for its client until it is written.
pub(super) struct Piece {
    bytes: Bytes,
    _charge: Option<Arc<Charge>>,
}

impl Buf for Piece {
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

/// What events come from.
pub(super) trait Source: Send + Unpin {
    /// The next events, each in its pieces; none when the stream is over.
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<Events>>;

    /// Whether it ended since its client was cut off, rather than with its last event.
    fn is_cut_off(&self) -> bool;
}

/// Events that were taken out of a queue together.
#[derive(Default)]
pub(super) struct Events {
    pub(super) events: VecDeque<Vec<Bytes>>,
    pub(super) charge: Option<Arc<Charge>>,
}

impl Events {
    /// These, and others after them.
    pub(super) fn and(mut self, others: Events) -> Events {
        self.events.extend(others.events);
        self.charge = self.charge.or(others.charge);
        self
    }
}

/// The body of a response.
pub(super) struct Reply {
    pieces: VecDeque<Piece>,
    left: u64,
    source: Option<Box<dyn Source>>,
    quiet: Option<Pin<Box<Sleep>>>,
    /// Its end is the end of the response.
    _busy: Option<Busy>,
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
            left: bytes.len() as u64,
            pieces: VecDeque::from([Piece {
                bytes: bytes.into(),
                _charge: None,
            }]),
            source: None,
            quiet: None,
            _busy: None,
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
    pub(super) fn refusal(refusal: &Refusal) -> Response<Reply> {
        Reply::own(refusal.status, refusal.to_body())
    }

    /// A response whose body is the one message that was taken.
    pub(super) fn message(status: StatusCode, taken: Taken) -> Response<Reply> {
        let charge = Arc::new(taken.charge);
        let mut pieces = taken.pieces;
        if let Some(last) = pieces.last_mut() {
            // Its line end.
            last.truncate(last.len() - 1);
        }
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        let piece = |bytes| Piece {
            bytes,
            _charge: Some(charge.clone()),
        };
        let pieces = pieces
            .into_iter()
            .filter(|piece| !piece.is_empty())
            .map(piece)
            .collect();
        let reply = Reply {
            pieces,
            left,
            source: None,
            quiet: None,
            _busy: None,
        };
        json(status, reply)
    }

    /// A response whose body is a stream of events, beginning with these.
    pub(super) fn stream(first: Events, source: impl Source + 'static) -> Response<Reply> {
        let mut reply = Reply {
            pieces: VecDeque::new(),
            left: 0,
            source: Some(Box::new(source)),
            quiet: None,
            _busy: None,
        };
        reply.take(first);
        let mut response = Response::new(reply);
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }

    /// The same, with which the response is over.
    pub(super) fn ends(mut self, busy: Busy) -> Reply {
        self._busy = Some(busy);
        self
    }

    fn take(&mut self, events: Events) {
        for bytes in events.events.into_iter().flatten() {
            self.pieces.push_back(Piece {
                bytes,
                _charge: events.charge.clone(),
            });
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

impl Body for Reply {
    type Data = Piece;
    type Error = CutOff;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, CutOff>>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                self.left = self.left.saturating_sub(piece.remaining() as u64);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(source) = &mut self.source else {
                return Poll::Ready(None);
            };
            match source.poll_events(context) {
                Poll::Ready(Some(events)) => {
                    self.quiet = None;
                    self.take(events);
                }
                Poll::Ready(None) => {
                    let cut_off = source.is_cut_off();
                    self.source = None;
                    return Poll::Ready(cut_off.then_some(Err(CutOff)));
                }
                Poll::Pending => {
                    let quiet = self.quiet.get_or_insert_with(|| Box::pin(sleep(QUIET)));
                    ready!(quiet.as_mut().poll(context));
                    self.quiet = None;
                    self.pieces.push_back(Piece {
                        bytes: Bytes::from_static(b":\n\n"),
                        _charge: None,
                    });
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_none() && self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        match self.source {
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(self.left),
        }
    }
}

/// What was taken as events, each of which begins with what `head` writes.
pub(super) fn events(taken: Taken, mut head: impl FnMut(&mut BytesMut)) -> Events {
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
    Events {
        events,
        charge: Some(Arc::new(taken.charge)),
    }
}
