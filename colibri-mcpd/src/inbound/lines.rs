//! A connection whose client writes a message a line: its messages are read, and it is seen to that
//! it reads its answers.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Interest};
use tokio::net::unix::OwnedReadHalf;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::connection::InboundConnection;
use super::messages::{ClientMessages, split_batch};
use crate::relay::{BatchAnswers, Call};
use crate::results::ResultOwner;
use colibri_peer::{Frame, FrameReader, aside, together};
use colibri_policy::Gate;
use colibri_protocol::{AnswerBody, Code, Failure, RpcError};
use colibri_wire::Json;
use colibri_wire::envelope::INVALID_REQUEST;

/// The time for which a client that closed its side is kept for the answers in flight.
const LINGER: Duration = Duration::from_secs(3600);
/// The time in which queued output must be written once a client is to go.
const FLUSH: Duration = Duration::from_secs(2);
/// The time in which a line must end, once a part of it is stored.
const LINE: Duration = Duration::from_secs(60);
/// The interval at which such a client is checked to be there.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The most calls of one read whose list is kept for the next.
const MAX_SPARE_CALLS: usize = 1024;

/// The reason for which a client is dropped whose line takes too much time or room.
const NO_END: &str = "its line does not end";

thread_local! {
    /// The list of the calls of one read; empty between two.
    static CALLS: Cell<Vec<Box<Call>>> = const { Cell::new(Vec::new()) };
}

/// One connection.
struct LineSession {
    messages: ClientMessages,
    /// The number of lines read.
    lines: u64,
}

/// The reading side of a connection. At its end the client may still read, or be gone: only the
/// transport knows.
pub trait LineInput: AsyncRead + Unpin + Sync {
    /// Waits until the client has closed both directions. Asked only after the end of what it
    /// writes.
    fn hung_up(&self) -> impl Future<Output = ()> + Send;
}

impl LineInput for OwnedReadHalf {
    async fn hung_up(&self) {
        // The system reports that the other side is closed with what it reports of writing
        // (EPOLLHUP, EV_EOF). As a rule writing is possible all the time, so there is no change to
        // be woken by.
        while !self
            .ready(Interest::WRITABLE)
            .await
            .is_ok_and(|ready| ready.is_write_closed())
        {
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// An in-memory pipe, which has one direction.
impl LineInput for DuplexStream {
    async fn hung_up(&self) {
        std::future::pending().await
    }
}

/// Serves a connection until the client is gone or told to go.
pub async fn serve(
    InboundConnection {
        daemon,
        client,
        connection,
        road,
    }: InboundConnection,
    reader: impl LineInput,
    writer: impl AsyncWrite + Unpin + Send + 'static,
) {
    let caller = client.caller;
    let outbox = client.outbox.clone();
    let mut write = tokio::spawn(async move { outbox.drive(writer).await });
    let mut session = LineSession {
        messages: ClientMessages::of(daemon.clone(), client.clone(), road),
        lines: 0,
    };
    let mut reader = FrameReader::new(reader, daemon.limits.frame);
    let (mut written, mut kept) = (None, 0);
    let mut told_to_go = std::pin::pin!(connection.told_to_go());
    let mut begun = Instant::now();
    let mut late = std::pin::pin!(sleep(LINE));
    let why = loop {
        // An order to go, and a client that does not read, come before what the client writes.
        tokio::select! {
            biased;
            why = &mut told_to_go => break why,
            done = &mut write => {
                written = Some(done);
                break "it does not read any more";
            }
            // It is set again when it has run down, and not for each line: most end with the read
            // that begins them.
            () = &mut late, if kept > 0 => {
                if begun.elapsed() >= LINE {
                    break NO_END;
                }
                late.as_mut().reset(begun + LINE);
            }
            more = reader.fill() => match more {
                Ok(more) => {
                    let (has_much, lines) = (reader.has_much(), session.lines);
                    let mut read = || together(|| session.read(&mut reader));
                    let why = if has_much {
                        let ResultOwner { uid, session } = client.owner();
                        let _turn = daemon.long_messages.of(uid, session).await;
                        aside(read)
                    } else {
                        read()
                    };
                    if let Some(why) = why {
                        break why;
                    }
                    let now = reader.kept();
                    if kept == 0 || session.lines != lines {
                        begun = session.messages.now.0;
                    }
                    if now != kept && !client.outbox.keep(kept, now) {
                        break NO_END;
                    }
                    kept = now;
                    if !more {
                        break "it closed its side";
                    }
                    if reader.is_long() {
                        // Of all such lines of a user one read is made before others have their
                        // turn.
                        let ResultOwner { uid, session } = client.owner();
                        let _turn = daemon.long_lines.of(uid, session).await;
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) => {
                    debug!(connection = client.connection, "reading failed: {error}");
                    break "reading failed";
                }
            },
        }
    };
    if client.outbox.was_cut_off() {
        warn!(
            connection = client.connection,
            uid = caller.uid,
            "the daemon's room for messages is used up: this user's clients hold most of it, and the largest is let go"
        );
    }
    // What it is asked it answers no more.
    client.session.asked.end();
    // A client that closed its side still gets the answers that it waits for.
    if why == "it closed its side" {
        daemon.connections.end_subscriptions(&client);
        tokio::select! {
            biased;
            () = connection.all_answered() => {}
            _ = connection.told_to_go() => {}
            done = &mut write => written = Some(done),
            () = reader.get_ref().hung_up() => {}
            () = sleep(LINGER) => {}
        }
    }
    client.disconnect();
    client.outbox.close();
    if written.is_none() && timeout(FLUSH, &mut write).await.is_err() {
        client.outbox.discard();
        let _ = write.await;
    }
    daemon.leave(&client);
    debug!(
        connection = client.connection,
        uid = caller.uid,
        why,
        "client gone"
    );
}

impl LineSession {
    /// Handles everything that was read; tells why the client is to go, if it is.
    fn read<R: AsyncRead + Unpin>(&mut self, reader: &mut FrameReader<R>) -> Option<&'static str> {
        let mut calls = CALLS.take();
        self.messages.now = (Instant::now(), SystemTime::now());
        let mut why = None;
        while let Some(frame) = reader.pop() {
            match frame {
                Frame::Line(line) => self.line(line, &mut calls),
                Frame::TooLong {
                    length,
                    id,
                    request,
                } => {
                    let limit = self.messages.daemon.limits.frame;
                    let message = format!(
                        "the message has {length} bytes, the limit is {limit} (limits.message_bytes)"
                    );
                    if request || id.is_none() {
                        let answer = self.too_long(message);
                        self.messages
                            .client
                            .outbox
                            .push(&answer.to_message(id.as_deref()));
                    } else {
                        self.messages.answered(id.as_deref(), Err(&message));
                    }
                }
                Frame::Endless { length } => {
                    info!(
                        connection = self.messages.client.connection,
                        length, "client sends a line that does not end"
                    );
                    let limit = self.messages.daemon.limits.frame;
                    let message = format!(
                        "a line of over {length} bytes, the limit is {limit} (limits.message_bytes)"
                    );
                    let answer = self.too_long(message);
                    self.messages.client.outbox.push(&answer.to_message(None));
                    why = Some("it sent a line that does not end");
                    break;
                }
            }
            self.lines += 1;
        }
        let chain = &self.messages.daemon.chain;
        chain.accept(&mut calls);
        if calls.capacity() <= MAX_SPARE_CALLS {
            CALLS.set(calls);
        }
        why
    }

    /// The answer to a message that is over the limit.
    fn too_long(&self, message: String) -> AnswerBody {
        let clients = self.messages.daemon.chain.rules.clients.load();
        Failure::new(Code::FrameTooLong, message)
            .by_rule(clients.limit_place("message_bytes"))
            .answer(None, self.messages.version())
    }

    fn line(&mut self, line: Bytes, calls: &mut Vec<Box<Call>>) {
        let first = line
            .iter()
            .find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
        if first == Some(&b'[') {
            return self.batch(line, calls);
        }
        if self.lines == 0 && self.hello(&line) {
            return;
        }
        self.messages.message(line, None, calls);
    }

    /// Reads the bridge's hello, `{"colibri":1,"narrow":[…],"only":"SERVER"}`: it closes gates for
    /// this connection, and leaves it one server. Not a message, so nothing is answered.
    fn hello(&self, line: &[u8]) -> bool {
        let Ok(hello) = Json::parse(line) else {
            return false;
        };
        if hello.get("colibri").is_none() || hello.get("jsonrpc").is_some() {
            return false;
        }
        if let Some(only) = hello.get("only") {
            // What cannot be read was meant to narrow, and no server has that name.
            let (daemon, client) = (&self.messages.daemon, &self.messages.client);
            let rights = daemon.chain.rules.rights(client);
            let only = daemon
                .host
                .only_meant(&only.as_str().unwrap_or_default(), &rights);
            client.session.show_only(&only);
        }
        let narrow = hello
            .get("narrow")
            .map(|narrow| narrow.elements().collect::<Vec<_>>())
            .unwrap_or_default();
        for gate in narrow {
            match gate.as_str().as_deref() {
                Some("write") => self.messages.client.narrow(Gate::Write),
                Some("external") => self.messages.client.narrow(Gate::External),
                // What we do not know was meant to narrow, so everything is.
                _ => {
                    self.messages.client.narrow(Gate::Write);
                    self.messages.client.narrow(Gate::External);
                }
            }
        }
        true
    }

    fn batch(&mut self, line: Bytes, calls: &mut Vec<Box<Call>>) {
        let split = if self.messages.client.session.agreed().takes_batches() {
            split_batch(&line)
        } else {
            let why =
                "batches are for connections that negotiated 2025-03-26; send one message a line";
            Err(RpcError::new(INVALID_REQUEST, why))
        };
        let (messages, expected) = match split {
            Ok(split) => split,
            Err(error) => {
                self.messages
                    .client
                    .outbox
                    .push(&AnswerBody::Error(error).to_message(None));
                return;
            }
        };
        let batch = Arc::new(BatchAnswers::new(
            self.messages.client.outbox.clone(),
            expected,
        ));
        for message in messages {
            self.messages.message(message, Some(&batch), calls);
        }
    }
}
