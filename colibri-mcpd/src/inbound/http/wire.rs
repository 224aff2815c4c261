//! The bytes of a connection that speaks HTTP, handed to hyper one request at a time: its head once
//! it is whole and was looked at, its body as far as it goes, and nothing of the next one before
//! the response is over.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use hyper::StatusCode;
use hyper::rt::{Read, ReadBufCursor, Write};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::head::{self, BodyLength, MAX_HEAD};
use super::refusal::HttpRefusal;
use colibri_peer::Outbox;

/// The number of bytes of a long body that are read at once.
const READ: usize = 64 * 1024;
/// A buffer of at most so many bytes is kept for the next request.
const KEPT: usize = 4 * 1024;

/// The exchange on a connection: the client sends a request, or the daemon answers it.
#[derive(Debug, Default)]
pub(super) struct HttpExchange(Mutex<HttpExchangeState>);

#[derive(Debug, Default)]
struct HttpExchangeState {
    /// A request was handed over, and its response is not over.
    busy: bool,
    /// Since when there is a part of a head.
    begun: Option<Instant>,
    /// The reason for which the input is no request.
    refusal: Option<HttpRefusal>,
    /// The task that waits for the end of the response.
    reader: Option<Waker>,
    /// The source of the response.
    source: Option<Arc<Outbox>>,
}

impl HttpExchange {
    /// True if somebody has to look at the connection from time to time.
    pub(super) fn is_watched(&self) -> bool {
        let state = self.0.lock();
        state.busy || state.begun.is_some()
    }

    /// Since when a head has been coming.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.0.lock().begun
    }

    /// True if what the response comes from was cut off.
    pub(super) fn is_cut_off(&self) -> bool {
        let source = self.0.lock().source.clone();
        source.is_some_and(|source| source.is_discarded())
    }

    /// Answers input that is no request with the reason.
    pub(super) fn refuse(&self, refusal: HttpRefusal) {
        self.0.lock().refusal = Some(refusal);
    }

    /// The reason for which the input is no request, if it is none.
    pub(super) fn refusal(&self) -> Option<HttpRefusal> {
        self.0.lock().refusal.take()
    }

    /// True if what came is no request.
    pub(super) fn is_refused(&self) -> bool {
        self.0.lock().refusal.is_some()
    }

    /// The response comes from here.
    pub(super) fn answers_from(&self, source: &Arc<Outbox>) {
        self.0.lock().source = Some(source.clone());
    }
}

/// A request is being answered; its response is over when this is dropped.
pub(super) struct Busy(pub(super) Arc<HttpExchange>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.busy = false;
        state.source = None;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }
}

/// The part of a request to which the next bytes belong.
#[derive(Debug)]
enum RequestPart {
    /// In its head, of which so many bytes were searched for its end.
    Head(usize),
    /// So many bytes of it are to be handed over.
    Within(u64),
    /// In a body of chunks: whatever comes is handed over, and no other request is read.
    Chunks,
}

/// The connection, as hyper reads and writes it.
pub(super) struct HttpWire {
    stream: Arc<UnixStream>,
    turn: Arc<HttpExchange>,
    place: RequestPart,
    /// The bytes that were read and not handed over.
    buffer: BytesMut,
    ended: bool,
}

impl HttpWire {
    pub(super) fn new(stream: Arc<UnixStream>, turn: Arc<HttpExchange>) -> HttpWire {
        HttpWire {
            stream,
            turn,
            place: RequestPart::Head(0),
            buffer: BytesMut::new(),
            ended: false,
        }
    }

    /// Hands over what may be; `false`: nothing.
    fn hand_over(&mut self, into: &mut ReadBufCursor<'_>) -> bool {
        if matches!(self.place, RequestPart::Within(0)) {
            self.place = RequestPart::Head(0);
        }
        if let RequestPart::Head(searched) = self.place
            && !self.read_head(searched)
        {
            return false;
        }
        let most = match self.place {
            RequestPart::Within(left) => usize::try_from(left).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let length = most.min(self.buffer.len()).min(into.remaining());
        into.put_slice(&self.buffer[..length]);
        self.buffer.advance(length);
        if let RequestPart::Within(left) = &mut self.place {
            *left -= length as u64;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT {
            self.buffer = BytesMut::new();
        }
        length > 0
    }

    /// Looks at the head of the next request, if it is its turn and all of it is there.
    fn read_head(&mut self, searched: usize) -> bool {
        let mut state = self.turn.0.lock();
        if state.busy || self.buffer.is_empty() {
            return false;
        }
        // Empty lines before a request are passed over (RFC 9112, section 2.2).
        while searched == 0 && self.buffer.starts_with(b"\r\n") {
            self.buffer.advance(2);
        }
        let refusal = match head::end(&self.buffer, searched) {
            Some(end) if end <= MAX_HEAD => match head::read(&self.buffer[..end]) {
                Ok(length) => {
                    state.busy = true;
                    state.begun = None;
                    self.place = match length {
                        BodyLength::Known(body) => RequestPart::Within(end as u64 + body),
                        BodyLength::Chunked => RequestPart::Chunks,
                    };
                    return true;
                }
                Err(refusal) => refusal,
            },
            // One that begins like no request does not become one.
            None if self
                .buffer
                .first()
                .is_some_and(|first| !first.is_ascii_alphabetic() && *first != b'\r') =>
            {
                HttpRefusal::new(
                    StatusCode::BAD_REQUEST,
                    "what comes after a request is no other one",
                )
            }
            None if self.buffer.len() <= MAX_HEAD => {
                state.begun =
                    (!self.buffer.is_empty()).then(|| state.begun.unwrap_or_else(Instant::now));
                self.place = RequestPart::Head(self.buffer.len());
                return false;
            }
            _ => HttpRefusal::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                format!("the head of the request has over {MAX_HEAD} bytes"),
            ),
        };
        state.refusal = Some(refusal);
        false
    }
}

impl Read for HttpWire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.hand_over(&mut into) {
                return Poll::Ready(Ok(()));
            }
            let waits = {
                let mut state = self.turn.0.lock();
                if state.refusal.is_some() {
                    // Whoever drives the connection looks for that next.
                    return Poll::Pending;
                }
                let waits = state.busy && matches!(self.place, RequestPart::Head(_));
                if waits {
                    state.reader = Some(context.waker().clone());
                }
                waits
            };
            // A client that closed its side alone still reads.
            if self.ended {
                return if waits && !is_gone(&self.stream) {
                    Poll::Pending
                } else {
                    Poll::Ready(Ok(()))
                };
            }
            if waits && self.buffer.len() >= MAX_HEAD {
                return Poll::Pending;
            }
            ready!(self.stream.poll_read_ready(context))?;
            let much = matches!(self.place, RequestPart::Chunks)
                || matches!(self.place, RequestPart::Within(left) if left > KEPT as u64);
            self.buffer.reserve(if much { READ } else { KEPT });
            let HttpWire { stream, buffer, .. } = &mut *self;
            // What fills less than there is room for is all that there is, and need not be asked
            // for once more.
            let (mut came, room) = (None, buffer.capacity() - buffer.len());
            let read = stream.try_io(Interest::READABLE, || {
                match stream.try_read_buf(buffer)? {
                    read if (1..room).contains(&read) => {
                        came = Some(read);
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    read => Ok(read),
                }
            });
            match came.map_or(read, Ok) {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Write for HttpWire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // One that is gone already cannot be shut down.
        let _ = shutdown(self.stream.as_raw_fd(), Shutdown::Write);
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write_vectored(pieces) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

/// True if the client has closed both directions.
pub(super) fn is_gone(stream: &UnixStream) -> bool {
    let mut look = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let looked = poll(&mut look, PollTimeout::ZERO);
    let closed = |flags: PollFlags| flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR);
    looked.is_ok() && look[0].revents().is_some_and(closed)
}
