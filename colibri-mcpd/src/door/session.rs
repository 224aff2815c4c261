//! One client's connection: reads its messages, makes calls of its requests, and sees to it that it reads its answers.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Interest};
use tokio::net::unix::OwnedReadHalf;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::daemon::Daemon;
use crate::ops::operator::OperatorRequest;
use crate::ops::own::Own;
use crate::ops::route;
use crate::ops::watch::Watch;
use crate::peer::{Frame, FrameReader, Outbox, aside, together};
use crate::policy::{Caller, Gate};
use crate::relay::{Arguments, Batch, Call, Client, Limit, Parts, Target, Trace};
use colibri_protocol::{
    self as protocol, Answer, Code, Failure, Method, Notification, Request, RpcError, Session as Agreed, Version,
};
use colibri_wire::envelope::{INVALID_REQUEST, Refusal};
use colibri_wire::{Envelope, Id, Json, Kind, Tape};

/// How long a client that closed its side waits for the answers in flight before it is let go.
const LINGER: Duration = Duration::from_secs(3600);
/// How long what is queued for a client may take to be written once it is to go.
const FLUSH: Duration = Duration::from_secs(2);
/// How often it is looked whether such a client is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The most requests of one batch.
const MAX_IN_BATCH: usize = 1000;

/// The most calls of one read whose list is kept for the next.
const MAX_SPARE_CALLS: usize = 1024;

thread_local! {
    /// The list of the calls of one read; empty between two.
    static CALLS: Cell<Vec<Box<Call>>> = const { Cell::new(Vec::new()) };
}

/// One connection.
pub struct Session {
    daemon: Arc<Daemon>,
    client: Arc<Client>,
    agreed: Agreed,
    first: bool,
    /// When it was read last.
    now: (Instant, SystemTime),
}

/// The reading side of a connection. At its end the client may still read, or be gone: only the transport knows.
pub trait Reading: AsyncRead + Unpin + Sync {
    /// Waits until the client has closed both directions. Asked only after the end of what it writes.
    fn hung_up(&self) -> impl Future<Output = ()> + Send;
}

impl Reading for OwnedReadHalf {
    async fn hung_up(&self) {
        // The system reports that the other side is closed with what it reports of writing (EPOLLHUP, EV_EOF). As a
        // rule writing is possible all the time, so there is no change to be woken by.
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
impl Reading for DuplexStream {
    async fn hung_up(&self) {
        std::future::pending().await
    }
}

/// Serves a connection until the client is gone or told to go.
pub async fn serve(
    daemon: Arc<Daemon>,
    caller: Caller,
    reader: impl Reading,
    writer: impl AsyncWrite + Unpin + Send + 'static,
) {
    let outbox = Outbox::of_client(daemon.limits.frame + daemon.limits.ahead, &daemon.budget);
    let client = Client::new(
        daemon.connections.next_number(),
        caller,
        outbox.clone(),
        daemon.limits.in_flight,
    );
    let client = Arc::new(client.sharing(daemon.host.shares().of(caller.uid)));
    let connection = daemon.connections.enter(client.clone());
    let mut write = tokio::spawn(async move { outbox.drive(writer).await });
    let mut session = Session {
        daemon: daemon.clone(),
        client: client.clone(),
        agreed: Agreed::Fresh,
        first: true,
        now: (Instant::now(), SystemTime::now()),
    };
    let mut reader = FrameReader::new(reader, daemon.limits.frame);
    let (mut written, mut kept) = (None, 0);
    let mut told_to_go = std::pin::pin!(connection.told_to_go());
    let why = loop {
        // An order to go, and a client that does not read, come before what the client writes.
        tokio::select! {
            biased;
            why = &mut told_to_go => break why,
            done = &mut write => {
                written = Some(done);
                break "it does not read any more";
            }
            more = reader.fill() => match more {
                Ok(more) => {
                    let has_much = reader.has_much();
                    let mut read = || together(|| session.read(&mut reader));
                    if let Some(why) = if has_much { aside(read) } else { read() } {
                        break why;
                    }
                    let now = reader.kept();
                    if now != kept && !client.outbox.keep(kept, now) {
                        break "its line does not end";
                    }
                    kept = now;
                    if !more {
                        break "it closed its side";
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
            "all together hold more than the daemon has room for: this client had most, and is let go"
        );
    }
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
    debug!(connection = client.connection, uid = caller.uid, why, "client gone");
}

impl Session {
    /// Handles everything that was read; tells why the client is to go, if it is.
    fn read<R: AsyncRead + Unpin>(&mut self, reader: &mut FrameReader<R>) -> Option<&'static str> {
        let mut calls = CALLS.take();
        self.now = (Instant::now(), SystemTime::now());
        let mut why = None;
        while let Some(frame) = reader.pop() {
            match frame {
                Frame::Line(line) => self.line(line, &mut calls),
                Frame::TooLong { length, id, request } => {
                    let limit = self.daemon.limits.frame;
                    let message = format!("the message has {length} bytes, the limit is {limit} (--max-frame)");
                    if request || id.is_none() {
                        let answer = Failure::new(Code::FrameTooLong, message).answer(None, self.version());
                        self.client.outbox.push(&answer.to_message(id.as_deref()));
                    }
                }
                Frame::Endless { length } => {
                    info!(
                        connection = self.client.connection,
                        length, "client sends a line that does not end"
                    );
                    let limit = self.daemon.limits.frame;
                    let message = format!("a line of over {length} bytes, the limit is {limit} (--max-frame)");
                    let answer = Failure::new(Code::FrameTooLong, message).answer(None, self.version());
                    self.client.outbox.push(&answer.to_message(None));
                    why = Some("it sent a line that does not end");
                    break;
                }
            }
            self.first = false;
        }
        self.daemon.chain.accept(&mut calls);
        if calls.capacity() <= MAX_SPARE_CALLS {
            CALLS.set(calls);
        }
        why
    }

    /// The version to word errors in while no request says otherwise.
    fn version(&self) -> Version {
        match self.agreed {
            Agreed::Fresh => Version::LATEST_LEGACY,
            Agreed::Legacy(version) => version,
        }
    }

    fn line(&mut self, line: Bytes, calls: &mut Vec<Box<Call>>) {
        let first = line.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
        if first == Some(&b'[') {
            return self.batch(line, calls);
        }
        if self.first && self.hello(&line) {
            return;
        }
        self.message(line, None, calls);
    }

    /// Reads the bridge's hello, `{"colibri":1,"narrow":[…]}`: it closes gates for this connection. Not a message, so
    /// nothing is answered.
    fn hello(&self, line: &[u8]) -> bool {
        let Ok(hello) = Json::parse(line) else { return false };
        if hello.get("colibri").is_none() || hello.get("jsonrpc").is_some() {
            return false;
        }
        let narrow = hello
            .get("narrow")
            .map(|narrow| narrow.elements().collect::<Vec<_>>())
            .unwrap_or_default();
        for gate in narrow {
            match gate.as_str().as_deref() {
                Some("write") => self.client.narrow(Gate::Write),
                Some("external") => self.client.narrow(Gate::External),
                // What we do not know was meant to narrow, so everything is.
                _ => {
                    self.client.narrow(Gate::Write);
                    self.client.narrow(Gate::External);
                }
            }
        }
        true
    }

    fn batch(&mut self, line: Bytes, calls: &mut Vec<Box<Call>>) {
        let refuse = |message: &str| {
            let answer = Answer::Error(RpcError::new(INVALID_REQUEST, message));
            self.client.outbox.push(&answer.to_message(None));
        };
        if !self.agreed.takes_batches() {
            return refuse("batches are for connections that negotiated 2025-03-26; send one message a line");
        }
        let messages: Vec<Bytes> = match Json::parse(&line) {
            Ok(batch) => batch.elements().map(|element| line.slice(element.span())).collect(),
            Err(error) => {
                let error = RpcError::new(colibri_wire::envelope::PARSE_ERROR, format!("the batch is {error}"));
                self.client.outbox.push(&Answer::Error(error).to_message(None));
                return;
            }
        };
        if messages.is_empty() || messages.len() > MAX_IN_BATCH {
            return refuse(&format!(
                "a batch holds 1 to {MAX_IN_BATCH} messages, this one holds {}",
                messages.len()
            ));
        }
        let expected = messages
            .iter()
            .filter(|message| match Envelope::parse(message) {
                Ok(envelope) => matches!(envelope.kind, Kind::Request { .. }),
                Err(refusal) => !refusal.answer || refusal.id.is_none(),
            })
            .count();
        let batch = Arc::new(Batch::new(self.client.outbox.clone(), expected));
        for message in messages {
            self.message(message, Some(&batch), calls);
        }
    }

    fn message(&mut self, frame: Bytes, batch: Option<&Arc<Batch>>, calls: &mut Vec<Box<Call>>) {
        let mut tape = Tape::default();
        let envelope = match Envelope::read(&frame, &mut tape) {
            Ok(envelope) => envelope,
            Err(refusal) => return self.refuse(refusal, batch),
        };
        match envelope.kind {
            Kind::Request { id, method, params } => {
                if !self.client.outbox.hold(frame.len()) {
                    let failure = Failure::new(Code::DaemonBusy, "the daemon has no room for the request now");
                    return self.fail(&failure, id.text(), batch);
                }
                match self.request((id, method, params), batch) {
                    Some(mut call) => {
                        call.held = frame.len();
                        call.frame = frame;
                        calls.push(call);
                    }
                    None => self.client.outbox.let_go(frame.len()),
                }
            }
            Kind::Notification { method, params } => {
                let method = method.as_str().unwrap_or_default();
                match protocol::read_notification(&method, params) {
                    Some(Notification::Cancelled { request }) => {
                        // Calls of the same read come first: a cancellation never overtakes its request.
                        self.daemon.chain.accept(calls);
                        let params = params.map(|params| params.span()).unwrap_or_default();
                        self.client.cancel(&Id::of(request), (&frame, params));
                    }
                    Some(Notification::Initialized) => self.daemon.connections.initialized(&self.client),
                    _ => debug!(connection = self.client.connection, "notification passed over"),
                }
            }
            Kind::Answer { .. } => debug!(connection = self.client.connection, "answer to nothing that was asked"),
        }
    }

    /// Answers what is no message, if its sender can be waiting for an answer.
    fn refuse(&self, refusal: Refusal, batch: Option<&Arc<Batch>>) {
        if refusal.answer && refusal.id.is_some() {
            return debug!(connection = self.client.connection, "answer passed over: {refusal}");
        }
        let message = Answer::Error(RpcError::new(refusal.code, refusal.message)).to_message(refusal.id.as_deref());
        match batch {
            Some(batch) => batch.answer(Some(&message)),
            None => drop(self.client.outbox.push(&message)),
        }
    }

    /// Answers a request that is not taken.
    fn fail(&self, failure: &Failure, id: &str, batch: Option<&Arc<Batch>>) {
        let message = failure.answer(None, self.version()).to_message(Some(id));
        match batch {
            Some(batch) => batch.answer(Some(&message)),
            None => drop(self.client.outbox.push(&message)),
        }
    }

    /// The limit that keeps the client's user from filling the trail, while it does.
    fn trail_limit(&self) -> Option<Limit> {
        let is_spent = self.client.share().is_some_and(|share| share.trail_is_spent());
        (is_spent && !self.daemon.chain.rules.rights(&self.client).operator)
            .then(|| Limit::Trail(self.daemon.host.shares().limits().trail_per_user))
    }

    /// Makes a call of a request, all but its frame.
    fn request(
        &mut self,
        (id, method, params): (Json<'_>, Json<'_>, Option<Json<'_>>),
        batch: Option<&Arc<Batch>>,
    ) -> Option<Box<Call>> {
        let (key, id_text) = (Id::of(id), id.text());
        let admitted = match self.trail_limit() {
            Some(limit) => Err(limit),
            None => self.client.admit(&key),
        };
        if let Err(limit) = admitted {
            let failure = match limit {
                Limit::Trail(limit) => Failure::new(
                    Code::LimitUser,
                    format!(
                        "the calls of this user fill the trail faster than {limit} bytes a second (--max-trail-per-user)"
                    ),
                ),
                Limit::InFlight(limit) => Failure::new(
                    Code::LimitInFlight,
                    format!("{limit} calls of this client are in flight already (--max-in-flight)"),
                ),
                Limit::Closed => Failure::new(Code::DaemonStopping, "the daemon is ending and takes no new calls"),
                Limit::SameId => {
                    self.refuse(
                        Refusal {
                            code: INVALID_REQUEST,
                            message: format!("a request with the id {id_text} is still in flight"),
                            id: Some(id_text.to_owned()),
                            answer: false,
                        },
                        batch,
                    );
                    return None;
                }
            };
            self.fail(&failure, id_text, batch);
            return None;
        }
        let name = method.as_str().unwrap_or_default();
        let mut parts = Parts {
            id: id.span(),
            params: params.map(|params| params.span()),
            ..Parts::default()
        };
        let mut trace = None;
        if name.starts_with(protocol::method::OPERATORS) {
            let daemon = self.daemon.clone();
            let target = match Watch::read(&name, params) {
                Some(watch) => watch.map(|watch| Own::watch(daemon, &name, watch)),
                None => OperatorRequest::read(&name, params).map(|order| Own::operator(daemon, &name, order)),
            };
            let target = target.unwrap_or_else(|error| Own::answer(&name, Answer::Error(error)));
            return Some(self.call((key, batch), (self.version(), None), parts, None, target));
        }
        let used;
        let (version, known, target) = match protocol::classify(self.agreed, &OFFERED, &name, params) {
            Ok(request) => {
                trace = request.meta.object.and_then(read_trace);
                used = request.name;
                parts.task = request.task.is_some();
                parts.progress_token = request.meta.progress_token.map(|token| token.span());
                let target = self
                    .target((&request, &name), params, &key, &mut parts)
                    .unwrap_or_else(|error| Own::answer(&name, Answer::Error(error)));
                (request.version, request.method, target)
            }
            Err(error) => {
                used = params.and_then(|params| params.get("name"));
                let target = Own::answer(&name, Answer::Error(error));
                (self.version(), Method::parse(&name), target)
            }
        };
        parts.name = used
            .filter(|_| known == Some(Method::ToolsCall))
            .map(|name| name.span());
        Some(self.call((key, batch), (version, known), parts, trace, target))
    }

    fn call(
        &self,
        (id, batch): (Id, Option<&Arc<Batch>>),
        (version, method): (Version, Option<Method>),
        parts: Parts,
        trace: Option<Box<Trace>>,
        target: Arc<dyn Target>,
    ) -> Box<Call> {
        Box::new(Call {
            client: self.client.clone(),
            id,
            batch: batch.cloned(),
            version,
            method,
            // Comes when nothing looks into it any more.
            frame: Bytes::new(),
            held: 0,
            parts,
            trace,
            target,
            entered: self.now.0,
            time: self.now.1,
            number: 0,
            attempt: 1,
            validated: false,
            against: None,
        })
    }

    /// Who answers a request.
    fn target(
        &mut self,
        (request, name): (&Request<'_>, &str),
        params: Option<Json<'_>>,
        id: &Id,
        parts: &mut Parts,
    ) -> Result<Arc<dyn Target>, RpcError> {
        let version = request.version;
        let Some(method) = request.method else {
            let target = route::method(&self.daemon, name).ok_or_else(|| RpcError::method_not_found(name, version))?;
            if let Some(params) = params {
                parts.arguments = Arguments::At(params.span());
            }
            return Ok(target);
        };
        match method {
            Method::Initialize => {
                let asked = protocol::read_initialize(params)?;
                self.agreed = Agreed::Legacy(asked.version);
                let answer =
                    protocol::initialize_result(asked.version, &OFFERED, &self.daemon.instructions(&self.client));
                Ok(Own::answer(method.as_str(), Answer::Result(answer)))
            }
            Method::Discover => {
                let answer = protocol::discover_result(version, &OFFERED, &self.daemon.instructions(&self.client));
                Ok(Own::answer(method.as_str(), Answer::Result(answer)))
            }
            Method::Ping => Ok(Own::answer(
                method.as_str(),
                Answer::Result(protocol::empty_result(version)),
            )),
            Method::ToolsList => {
                let cursor = protocol::tools::Cursor::read(params)?;
                Ok(Own::list(self.daemon.clone(), cursor))
            }
            Method::SubscriptionsListen => {
                let listen = protocol::read_listen(params)?;
                Ok(Own::listen(self.daemon.clone(), id.clone(), listen))
            }
            Method::ToolsCall => {
                let params = params.ok_or_else(|| RpcError::invalid_params("tools/call needs params with a name"))?;
                let name = request.name.and_then(|name| name.as_str());
                let name = name.ok_or_else(|| RpcError::invalid_params("params.name must be a string"))?;
                if let Some(arguments) = request.arguments {
                    if !arguments.is_object() {
                        return Err(RpcError::invalid_params("params.arguments must be an object"));
                    }
                    parts.arguments = Arguments::At(arguments.span());
                }
                route::tool(&self.daemon, &name, params, parts, &self.client)
            }
            _ => Err(RpcError::method_not_found(method.as_str(), version)),
        }
    }
}

/// The trace context of a request. One that is longer than any that the standard allows is left out.
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

/// What the daemon offers as a server.
const OFFERED: [protocol::Capability; 1] = [protocol::Capability::Tools];
