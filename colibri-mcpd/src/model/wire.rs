//! A connection from inside: one request at a time is read whole, and an answer written as it
//! comes.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::StatusCode;
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use crate::inbound::http::head::{self, BodyLength, MAX_HEAD};
use colibri_model::{ModelApi, ModelRefusal, ModelRequest, error_body};
use colibri_peer::{Outbox, PartialMessage};

/// The most bytes of a body.
pub(crate) const MAX_BODY: usize = 32 << 20;
/// The longest time that a connection may stay without a request.
const IDLE: Duration = Duration::from_secs(300);
/// The longest time for the head of a request, once it has begun.
const HEAD: Duration = Duration::from_secs(10);
/// The longest time for its body.
const BODY: Duration = Duration::from_secs(60);
/// The longest time in which a part of an answer must be taken.
const TAKEN: Duration = Duration::from_secs(120);
/// The time and the bytes for which a refused client is read, so that it comes to read the refusal.
const LINGER: Duration = Duration::from_secs(2);
const MAX_LINGERING: usize = 64 << 20;
/// Of longer bodies one agent has few in memory at a time.
const LARGE: usize = 1 << 20;
/// Room for what is read.
const ROOM: usize = 16 * 1024;

/// A connection from inside.
pub(super) struct ModelWire {
    stream: UnixStream,
    /// The peer to which the bytes read are charged.
    peer: Arc<Outbox>,
    buffer: BytesMut,
    api: ModelApi,
}

/// The room for the body of a request, for as long as it is in memory.
#[derive(Debug)]
pub(super) struct BodyRoom<'s> {
    bytes: PartialMessage,
    /// The place of a long one among those of one agent.
    _place: Option<SemaphorePermit<'s>>,
}

impl BodyRoom<'_> {
    /// Ends when the daemon takes the room back, since others need it, and cuts the connection off.
    pub(super) async fn wait_for_cut_off(&self) {
        poll_fn(|context| self.bytes.poll_cut_off(context)).await;
    }
}

/// The head of an answer.
pub(super) struct ResponseHead<'a> {
    pub(super) status: StatusCode,
    pub(super) fields: Vec<(&'a str, Bytes)>,
    /// `None`: it comes in chunks.
    pub(super) length: Option<u64>,
}

impl ModelWire {
    pub(super) fn new(stream: UnixStream, peer: Arc<Outbox>, api: ModelApi) -> ModelWire {
        ModelWire {
            stream,
            peer,
            buffer: BytesMut::new(),
            api,
        }
    }

    /// The next request, with the room for its body; `None`: there is none. A long one waits for
    /// its place among those that one agent may have in memory.
    ///
    /// # Errors
    /// What came is no request that is read. Nothing more can be read then.
    pub(super) async fn request<'s>(
        &mut self,
        own: &'s Semaphore,
    ) -> Result<Option<(ModelRequest, BodyRoom<'s>)>, ModelRefusal> {
        if self.buffer.is_empty() && !matches!(timeout(IDLE, self.more()).await, Ok(Ok(true))) {
            return Ok(None);
        }
        let Some(end) = self.head().await? else {
            return Ok(None);
        };
        let text = self.buffer.split_to(end);
        let length = head::read(&text)
            .map_err(|refusal| ModelRefusal::new(refusal.status, refusal.error.message))?;
        let (method, target, version, fields) = parts(&text);
        if version != "HTTP/1.1" {
            return Err(bad("the only version of HTTP here is 1.1"));
        }
        let has = |name: &str| fields.iter().any(|(field, _)| field == name);
        if has("upgrade") {
            return Err(bad("this relay changes to no other protocol (Upgrade)"));
        }
        if has("content-encoding") {
            let why = "a body with a Content-Encoding is not read";
            return Err(ModelRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let length = match length {
            BodyLength::Known(length) => length,
            BodyLength::Chunked => {
                let why = "a body in chunks is not read: send a Content-Length";
                return Err(ModelRefusal::new(StatusCode::LENGTH_REQUIRED, why));
            }
        };
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_BODY)
            .ok_or_else(|| {
                let why = format!("the body is over {} MiB", MAX_BODY >> 20);
                ModelRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, why)
            })?;
        if has("expect") && self.buffer.len() < length {
            let go_on = self.write(&b"HTTP/1.1 100 Continue\r\n\r\n"[..]).await;
            if go_on.is_err() {
                return Ok(None);
            }
        }
        let place = if length > LARGE {
            own.acquire().await.ok()
        } else {
            None
        };
        let bytes = self.fill(length).await?;
        let body = self.buffer.split_to(length).freeze();
        if !self.buffer.is_empty() {
            return Err(bad(
                "more follows the request than its Content-Length says: one request at a time is answered",
            ));
        }
        self.buffer = BytesMut::new();
        let request = ModelRequest {
            method,
            target,
            fields,
            body,
        };
        Ok(Some((
            request,
            BodyRoom {
                bytes,
                _place: place,
            },
        )))
    }

    /// The end of the head, once it is there.
    async fn head(&mut self) -> Result<Option<usize>, ModelRefusal> {
        let read = async {
            let mut searched = 0;
            loop {
                // Empty lines before a request are passed over (RFC 9112, section 2.2).
                while searched == 0 && self.buffer.starts_with(b"\r\n") {
                    self.buffer.advance(2);
                }
                if let Some(end) = head::end(&self.buffer, searched).filter(|end| *end <= MAX_HEAD)
                {
                    return Ok(Some(end));
                }
                if self
                    .buffer
                    .first()
                    .is_some_and(|first| !first.is_ascii_alphabetic() && *first != b'\r')
                {
                    return Err(bad("what came is no request"));
                }
                if self.buffer.len() > MAX_HEAD {
                    let why = format!("the head of the request has over {MAX_HEAD} bytes");
                    return Err(ModelRefusal::new(
                        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                        why,
                    ));
                }
                searched = self.buffer.len();
                if !matches!(self.more().await, Ok(true)) {
                    return Ok(None);
                }
            }
        };
        timeout(HEAD, read).await.unwrap_or_else(|_| {
            let why = format!(
                "the head of the request has not ended within {} s",
                HEAD.as_secs()
            );
            Err(ModelRefusal::new(StatusCode::REQUEST_TIMEOUT, why))
        })
    }

    async fn more(&mut self) -> io::Result<bool> {
        self.buffer.reserve(ROOM);
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }

    /// Reads until so many bytes are there. They are the peer's, with all of the buffer in which
    /// they stand, for as long as what comes back is there.
    async fn fill(&mut self, length: usize) -> Result<PartialMessage, ModelRefusal> {
        let until = Instant::now() + BODY;
        let mut unfinished = PartialMessage::new(&self.peer);
        while unfinished.grow(self.buffer.capacity()) {
            if self.buffer.len() >= length {
                return Ok(unfinished);
            }
            let more = timeout_at(until, self.more());
            let came = tokio::select! {
                came = more => matches!(came, Ok(Ok(true))),
                () = poll_fn(|context| unfinished.poll_cut_off(context)) => return Err(no_room()),
            };
            if !came {
                let why = format!("the body has not come within {} s", BODY.as_secs());
                return Err(ModelRefusal::new(StatusCode::REQUEST_TIMEOUT, why));
            }
        }
        Err(no_room())
    }

    /// True if the daemon took back the room of what it holds for this connection: nothing more is
    /// read on it.
    pub(super) fn is_cut_off(&self) -> bool {
        self.peer.was_cut_off()
    }

    /// Ends when the other side is gone; if it writes instead, that it did is noted and this waits
    /// on.
    pub(super) async fn gone(&self) {
        loop {
            if self.stream.readable().await.is_err() {
                return;
            }
            let peeked = self.stream.try_io(Interest::READABLE, || {
                let peeked = recv(self.stream.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK);
                peeked.map_err(io::Error::from)
            });
            match peeked {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(1..) => return std::future::pending().await,
                Ok(0) | Err(_) => return,
            }
        }
    }

    async fn write(&mut self, mut bytes: impl Buf) -> io::Result<()> {
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        timeout(TAKEN, self.stream.write_all_buf(&mut bytes))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// Begins an answer.
    pub(super) async fn begin(&mut self, head: &ResponseHead<'_>) -> io::Result<()> {
        let status = head.status;
        let reason = status.canonical_reason().unwrap_or("Answer");
        let mut text = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
        for (name, value) in &head.fields {
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(
            match head.length {
                Some(length) => format!("content-length: {length}\r\n\r\n").into_bytes(),
                None => b"transfer-encoding: chunked\r\n\r\n".to_vec(),
            }
            .as_slice(),
        );
        self.write(&text[..]).await
    }

    /// Writes a part of the answer's body.
    pub(super) async fn part(&mut self, part: &[u8], in_chunks: bool) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        if !in_chunks {
            return self.write(part).await;
        }
        let size = format!("{:x}\r\n", part.len());
        // In one writev(2).
        self.write(Buf::chain(size.as_bytes(), part).chain(&b"\r\n"[..]))
            .await
    }

    /// Ends an answer.
    pub(super) async fn end(&mut self, in_chunks: bool) -> io::Result<()> {
        match in_chunks {
            true => self.write(&b"0\r\n\r\n"[..]).await,
            false => Ok(()),
        }
    }

    /// Says why a request is not passed on; `again`: another may follow on this connection.
    pub(super) async fn refuse(&mut self, refusal: &ModelRefusal, again: bool) -> io::Result<()> {
        let body = error_body(
            self.api,
            refusal.status,
            &format!("Colibri's model relay: {}", refusal.message),
        );
        // The libraries of providers try again what is refused for now, unless they are told.
        let mut fields = vec![
            ("content-type", Bytes::from_static(b"application/json")),
            ("x-should-retry", Bytes::from_static(b"false")),
        ];
        if !again {
            fields.push(("connection", Bytes::from_static(b"close")));
        }
        let head = ResponseHead {
            status: refusal.status,
            fields,
            length: Some(body.len() as u64),
        };
        self.begin(&head).await?;
        self.write(body.as_bytes()).await
    }

    /// Closes the connection after a refusal, and reads on for a while: one who still writes would
    /// not come to read it.
    pub(super) async fn linger(mut self) {
        let read = async {
            self.stream.shutdown().await?;
            let (mut buffer, mut read) = (vec![0; ROOM], 0);
            while read < MAX_LINGERING {
                match self.stream.read(&mut buffer).await? {
                    0 => break,
                    more => read += more,
                }
            }
            io::Result::Ok(())
        };
        // It is gone, or does not read: there is nobody to be told.
        let _ = timeout(LINGER, read).await;
    }
}

/// The refusal of a request of an agent that was cut off.
pub(super) fn no_room() -> ModelRefusal {
    let why = "the daemon has no room for the request now: what this person's agents and clients have begun fills it";
    ModelRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
}

fn bad(why: &str) -> ModelRefusal {
    ModelRefusal::new(StatusCode::BAD_REQUEST, why)
}

/// Method, target, version and fields of a head that was found right.
fn parts(head: &[u8]) -> (String, String, String, Vec<(String, String)>) {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let mut words = lines
        .next()
        .unwrap_or_default()
        .split(' ')
        .map(str::to_owned);
    let mut word = || words.next().unwrap_or_default();
    let (method, target, version) = (word(), word(), word());
    let fields = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    (method, target, version, fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_peer::{ByteBudget, Tenant};

    #[tokio::test]
    async fn a_long_body_waits_for_its_place_longer_than_it_may_take_to_come() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let peer = Outbox::charged(
            MAX_BODY,
            &Arc::new(ByteBudget::default()),
            Tenant::Person(1),
        );
        let mut wire = ModelWire::new(near, peer, ModelApi::Anthropic);
        let own = Semaphore::new(4);
        let four = own.acquire_many(4).await.unwrap();
        let body = vec![b'x'; LARGE + 1];
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        far.write_all(head.as_bytes()).await.unwrap();
        let mut fifth = Box::pin(wire.request(&own));
        // In the first of these its head is read; all of the second it waits for its place.
        tokio::time::pause();
        for _ in 0..2 {
            assert!(timeout(BODY * 2, &mut fifth).await.is_err());
        }
        tokio::time::resume();
        drop(four);
        let (read, written) = tokio::join!(fifth, far.write_all(&body));
        written.unwrap();
        let (request, _room) = read.unwrap().unwrap();
        assert_eq!(request.body, body);
    }
}
