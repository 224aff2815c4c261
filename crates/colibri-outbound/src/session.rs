//! A session with an MCP endpoint, which is read and written like a process: one message a line in
//! both directions.
//!
//! What is written is sent with a POST for each message; what comes back, as JSON or as events, is
//! read. Bytes pass as they are, but for line ends between tokens. A request whose answer cannot be
//! relayed is told as a [`SendError`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::endpoint::{
    Body, EVENTS, Endpoint, EndpointTransport, Port, body_of, first_of, refused,
};
use super::events;
use super::lines::{OutboundLines, lines};
use super::send_error::{ExchangeError, SendError, SendErrorKind};
use colibri_http::ResponseStream;
use colibri_http::sse::Parser;
use colibri_peer::{Frame, FrameReader};
use colibri_protocol::rpc_error::HEADER_MISMATCH;
use colibri_protocol::{MirroredArgument, declared_version, request_fields};
use colibri_wire::{Envelope, Json, envelope::EnvelopeKind};

/// Bytes of messages that were written and not yet sent.
const UNSENT: usize = 64 * 1024;
/// The longest time for the notification of a session's end, and for a notification that others
/// follow.
const TOLD: Duration = Duration::from_secs(5);
/// The time for which messages are held for the stream of a legacy server's own messages: some
/// servers send its head with its first event only.
const OPENED: Duration = Duration::from_secs(1);
/// The time for which a cancelled legacy request lives on: its answer may be on its way.
const AFTER_CANCEL: Duration = Duration::from_secs(2);
/// The other possible kind of a URL that takes no POST (2025-11-25, basic/transports, "Backwards
/// Compatibility").
const NO_POST: &str =
    " (is the path of the url right? A server of HTTP+SSE needs \"type\": \"sse\" in its entry)";
/// The most tools of which it is kept what their calls repeat, and the most bytes of their names.
const MAX_MIRRORED: usize = 4096;
const MAX_TOOL_NAME: usize = 512;
/// The longest time for a notification or an answer.
const TOLD_AT_ALL: Duration = Duration::from_secs(60);
/// The most bytes of them at once, and the most of them.
const MAX_TELLING: usize = 16 << 20;
const MAX_TOLD_AT_ONCE: usize = 256;
/// The time for which an event stream may go on after its answer, for the connection to be reused.
const AFTER_ANSWER: Duration = Duration::from_millis(500);
/// The wait before a stream is resumed of which the server does not say it, the shortest that it
/// can say, and the longest.
const RESUME: Duration = Duration::from_secs(1);
const MIN_RESUME: Duration = Duration::from_millis(100);
const MAX_RESUME: Duration = Duration::from_secs(60);
/// The number of times in a row that a stream is resumed which brings nothing.
const MAX_RESUMED: u32 = 5;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EITHER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The two ends of a session.
pub struct LegacyLink {
    /// The messages to send. Closing it ends the session.
    pub input: DuplexStream,
    /// The messages of the server.
    pub output: OutboundLines,
    /// The failures of requests that are not answered.
    pub faults: mpsc::UnboundedReceiver<SendError>,
    /// The session, to wait for.
    pub ended: JoinHandle<()>,
}

/// A session with an endpoint. Nothing is sent before something is written, but for the stream of
/// [`EndpointTransport::Events`].
pub fn connect(endpoint: Endpoint) -> LegacyLink {
    let (input, written) = duplex(UNSENT);
    let (out, output) = lines();
    let (faults, told) = mpsc::unbounded_channel();
    let transport = endpoint.transport;
    let most = endpoint.max_message.saturating_mul(2);
    let port = Port {
        endpoint,
        out,
        faults,
    };
    let reader = FrameReader::new(written, most);
    let ended = tokio::spawn(async move {
        match transport {
            EndpointTransport::Streamable => {
                run(Arc::new(OutboundSession::new(port)), reader).await
            }
            EndpointTransport::Events => events::run(port, reader).await,
        }
    });
    LegacyLink {
        input,
        output,
        faults: told,
        ended,
    }
}

struct OutboundSession {
    port: Port,
    state: Mutex<OutboundSessionState>,
    /// Room for what is told: who writes more waits.
    telling: Arc<Semaphore>,
}

#[derive(Default)]
struct OutboundSessionState {
    /// The first request declared its version.
    is_modern: bool,
    /// The server's id of the session, in the legacy era.
    id: Option<HeaderValue>,
    /// The version that the server chose there.
    version: Option<HeaderValue>,
    /// The arguments that tool calls repeat in header fields, as the tools were last listed.
    mirrored: BTreeMap<String, Arc<[MirroredArgument]>>,
    /// Requests that are not answered.
    pending: BTreeMap<u64, AbortHandle>,
}

/// The facts of a request that matter here.
struct OutboundRequest {
    id: u64,
    method: String,
}

/// Sends what is written until its end.
async fn run(session: Arc<OutboundSession>, mut reader: FrameReader<DuplexStream>) {
    let mut tasks = JoinSet::new();
    while reader.fill().await.unwrap_or(false) {
        while let Some(frame) = reader.pop() {
            if let Frame::Line(line) = frame {
                session.written(line, &mut tasks).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
    tasks.shutdown().await;
    let fields = session.fields(None, HeaderMap::new());
    if session.state.lock().id.is_some() {
        let bye = session.port.send(
            Method::DELETE,
            &session.port.endpoint.url,
            &fields,
            Bytes::new(),
        );
        let _ = timeout(TOLD, bye).await;
    }
}

impl OutboundSession {
    fn new(port: Port) -> OutboundSession {
        OutboundSession {
            port,
            state: Mutex::default(),
            telling: Arc::new(Semaphore::new(MAX_TELLING)),
        }
    }

    /// A message was written.
    async fn written(self: &Arc<Self>, line: Bytes, tasks: &mut JoinSet<()>) {
        let Ok(envelope) = Envelope::parse(&line) else {
            debug!("a line that is no message was not sent");
            return;
        };
        match envelope.kind {
            EnvelopeKind::Request { id, method, params } => {
                let Some(id) = id.as_u64() else { return };
                let asked = OutboundRequest {
                    id,
                    method: method.as_str().unwrap_or_default().into_owned(),
                };
                let mut fields = HeaderMap::new();
                let is_modern = declared_version(params).is_some();
                if is_modern {
                    for (name, value) in
                        request_fields(&asked.method, params, &self.mirrored(&asked.method, params))
                    {
                        if let (Ok(name), Ok(value)) =
                            (name.parse::<HeaderName>(), HeaderValue::from_str(&value))
                        {
                            fields.insert(name, value);
                        }
                    }
                }
                let session = self.clone();
                let line = line.clone();
                // It is noted before it can end.
                let mut state = self.state.lock();
                state.is_modern = is_modern;
                let task = tasks.spawn(async move { session.request(asked, line, fields).await });
                state.pending.insert(id, task);
            }
            EnvelopeKind::Notification { method, params } => {
                let method = method.as_str().unwrap_or_default();
                if method == "notifications/cancelled" {
                    let id = params.and_then(|params| params.get("requestId")?.as_u64());
                    return self.cancelled(id, line.clone(), tasks).await;
                }
                if self.state.lock().is_modern {
                    return;
                }
                let session = self.clone();
                if method == "notifications/initialized" {
                    // What follows may need it.
                    let _ = timeout(TOLD, session.tell(line.clone())).await;
                    let (opening, opened) = oneshot::channel();
                    tasks.spawn(async move { session.listen(opening).await });
                    // What the server says of its own accord before that stream is there, it says
                    // to nobody.
                    let _ = timeout(OPENED, opened).await;
                } else {
                    self.tell_beside(line.clone(), tasks).await;
                }
            }
            // A modern server asks for nothing but in its answers.
            EnvelopeKind::Answer { .. } if self.state.lock().is_modern => {}
            EnvelopeKind::Answer { .. } => self.tell_beside(line.clone(), tasks).await,
        }
    }

    /// The header fields that a tool call mirrors.
    fn mirrored(&self, method: &str, params: Option<Json<'_>>) -> Arc<[MirroredArgument]> {
        let name = match method {
            "tools/call" => params.and_then(|params| params.get("name")?.as_str()),
            _ => None,
        };
        let state = self.state.lock();
        let of = name.and_then(|name| state.mirrored.get(&*name));
        of.cloned().unwrap_or_default()
    }

    /// A request is not wanted any more. Modern servers see that from the end of its stream, others
    /// are told.
    async fn cancelled(self: &Arc<Self>, id: Option<u64>, line: Bytes, tasks: &mut JoinSet<()>) {
        let (task, is_modern) = {
            let mut state = self.state.lock();
            (id.and_then(|id| state.pending.remove(&id)), state.is_modern)
        };
        if is_modern {
            return task.into_iter().for_each(|task| task.abort());
        }
        let (session, room) = (self.clone(), self.room(&line).await);
        tasks.spawn(async move {
            session.tell(line).await;
            sleep(AFTER_CANCEL).await;
            task.into_iter().for_each(|task| task.abort());
            drop(room);
        });
    }

    /// Sends a notification while others follow, as soon as there is room for it.
    async fn tell_beside(self: &Arc<Self>, line: Bytes, tasks: &mut JoinSet<()>) {
        let (session, room) = (self.clone(), self.room(&line).await);
        tasks.spawn(async move {
            session.tell(line).await;
            drop(room);
        });
    }

    /// Waits for room: each has a connection of its own, so there is an end to how many a client
    /// can begin.
    async fn room(&self, line: &Bytes) -> Option<OwnedSemaphorePermit> {
        let takes = line
            .len()
            .clamp(MAX_TELLING / MAX_TOLD_AT_ONCE, MAX_TELLING);
        let takes = u32::try_from(takes).unwrap_or(u32::MAX);
        self.telling.clone().acquire_many_owned(takes).await.ok()
    }

    /// The header fields of a request: what it says of itself, and what the session is.
    fn fields(&self, accept: Option<HeaderValue>, mut fields: HeaderMap) -> HeaderMap {
        let state = self.state.lock();
        if let Some(accept) = accept {
            fields.insert(ACCEPT, accept);
        }
        if let Some(id) = &state.id {
            fields.insert(SESSION_ID, id.clone());
        }
        if let Some(version) = &state.version {
            fields.insert(PROTOCOL_VERSION, version.clone());
        }
        fields
    }

    async fn post(&self, line: Bytes, fields: HeaderMap) -> Result<ResponseStream, ExchangeError> {
        let mut fields = self.fields(Some(EITHER), fields);
        fields.insert(CONTENT_TYPE, JSON);
        let in_session = fields.contains_key(SESSION_ID);
        let url = &self.port.endpoint.url;
        let response = self.port.send(Method::POST, url, &fields, line).await?;
        match response.status {
            StatusCode::NOT_FOUND if in_session => Err(forgotten()),
            _ => Ok(response),
        }
    }

    /// Sends what wants no answer.
    async fn tell(&self, line: Bytes) {
        let told = async {
            let mut response = self.post(line, HeaderMap::new()).await?;
            let _ = response.whole(UNSENT).await;
            Ok::<(), ExchangeError>(())
        };
        match timeout(TOLD_AT_ALL, told).await {
            Ok(Ok(())) => {}
            Ok(Err(failed)) if failed.kind == SendErrorKind::Forgotten => {
                self.port.tell(None, failed)
            }
            Ok(Err(failed)) => debug!("a notification or answer was not sent: {}", failed.message),
            Err(_) => debug!("a notification or answer was not taken within {TOLD_AT_ALL:?}"),
        }
    }

    /// Sends a request and relays what comes of it.
    async fn request(self: Arc<Self>, asked: OutboundRequest, line: Bytes, fields: HeaderMap) {
        let id = asked.id;
        let outcome = self.asked(asked, line, fields).await;
        self.state.lock().pending.remove(&id);
        match outcome {
            Ok(Some(mut rest)) => {
                let _ = timeout(AFTER_ANSWER, async {
                    while let Ok(Some(_)) = rest.chunk().await {}
                })
                .await;
            }
            Ok(None) => {}
            Err(failed) => self.port.tell(Some(id), failed),
        }
    }

    /// Sends a request until its answer was relayed; then there may be a rest of its stream.
    async fn asked(
        &self,
        asked: OutboundRequest,
        line: Bytes,
        fields: HeaderMap,
    ) -> Result<Option<ResponseStream>, ExchangeError> {
        let mut response = self.post(line, fields).await?;
        let status = response.status;
        if status.is_success() && asked.method == "initialize" {
            self.state.lock().id = response.headers.get(SESSION_ID).cloned();
        }
        match (status.is_success(), body_of(&response)) {
            (true, Body::Json) => {
                let body = response.whole(self.port.endpoint.max_message).await?;
                self.answer(&asked, body).await?;
                Ok(None)
            }
            (true, Body::Events) => self.stream(&asked, response).await.map(Some),
            (true, Body::Other) => {
                let status = status.as_u16();
                let why = format!(
                    "it answered a request with {status}, and with neither JSON nor events"
                );
                Err(ExchangeError::new(SendErrorKind::Invalid, why))
            }
            (false, kind) => {
                let said = first_of(&mut response).await;
                let hint = match status {
                    StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => NO_POST,
                    _ => "",
                };
                let failed = refused(&response, hint, &said);
                // A modern server gives its JSON-RPC errors a status of HTTP.
                let is_relayed = kind == Body::Json
                    && matches!(failed.kind, SendErrorKind::Failed | SendErrorKind::Status);
                match is_relayed.then(|| error_of(&said)).flatten() {
                    Some(HEADER_MISMATCH)
                        if asked.method == "tools/call"
                            && status == StatusCode::BAD_REQUEST
                            && self.state.lock().is_modern =>
                    {
                        let kind = SendErrorKind::Mismatched;
                        Err(ExchangeError { kind, ..failed })
                    }
                    Some(_) => self.answer(&asked, said).await.map(|()| None),
                    None => Err(failed),
                }
            }
        }
    }

    /// Relays a body that is to be the answer.
    async fn answer(&self, asked: &OutboundRequest, body: Bytes) -> Result<(), ExchangeError> {
        if answers(&body, asked.id) {
            self.learn(asked, &body);
            self.port.deliver(body).await;
            return Ok(());
        }
        let invalid = || {
            // It may be another request's: then so would be whatever came next over this
            // connection.
            self.port.endpoint.client.let_go();
            ExchangeError::new(
                SendErrorKind::Invalid,
                "it answered with JSON that is no answer to the request",
            )
        };
        let root = Json::parse(&body).map_err(|_| invalid())?;
        match Envelope::of(root).map(|envelope| envelope.kind) {
            // It could not read the id, or has none to refuse a request with.
            Ok(EnvelopeKind::Answer {
                id: None,
                outcome: Err(error),
            }) => {
                let line = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"error":{}}}"#,
                    asked.id,
                    error.text()
                );
                self.port.deliver(line.into()).await;
                Ok(())
            }
            _ => Err(invalid()),
        }
    }

    /// Relays the events of a request's stream until its answer has come.
    async fn stream(
        &self,
        asked: &OutboundRequest,
        mut response: ResponseStream,
    ) -> Result<ResponseStream, ExchangeError> {
        let mut parser = Parser::new(self.port.endpoint.max_message);
        let mut resumed = 0;
        loop {
            let end = self.relay(&mut response, &mut parser, Some(asked)).await;
            let failed = match end {
                Ok(StreamMessages { answered: true, .. }) => return Ok(response),
                Ok(relayed) => {
                    if relayed.events > 0 {
                        resumed = 0;
                    }
                    ExchangeError::new(
                        SendErrorKind::Lost,
                        "its event stream ended without the answer",
                    )
                }
                Err(failed) if failed.kind == SendErrorKind::Lost => failed,
                Err(failed) => return Err(failed),
            };
            let can =
                !self.state.lock().is_modern && parser.last_id().is_some() && resumed < MAX_RESUMED;
            if !can {
                return Err(failed);
            }
            resumed += 1;
            sleep(
                parser
                    .retry()
                    .unwrap_or(RESUME)
                    .clamp(MIN_RESUME, MAX_RESUME),
            )
            .await;
            response = match self.open_stream(&parser).await {
                Ok(Some(response)) => response,
                Ok(None) => return Err(failed),
                Err(again) if again.kind == SendErrorKind::Forgotten => return Err(failed),
                Err(_) => continue,
            };
            parser.resume();
        }
    }

    /// Opens the stream of what the server says without being asked, or the one that ended after
    /// the last event. `None`: there is none.
    async fn open_stream(&self, parser: &Parser) -> Result<Option<ResponseStream>, ExchangeError> {
        let mut fields = self.fields(Some(EVENTS), HeaderMap::new());
        if let Some(last) = parser
            .last_id()
            .and_then(|id| HeaderValue::from_str(id).ok())
        {
            fields.insert(LAST_EVENT_ID, last);
        }
        let in_session = fields.contains_key(SESSION_ID);
        let url = &self.port.endpoint.url;
        let response = self
            .port
            .send(Method::GET, url, &fields, Bytes::new())
            .await?;
        match response.status {
            StatusCode::NOT_FOUND if in_session => Err(forgotten()),
            status if status.is_success() && body_of(&response) == Body::Events => {
                Ok(Some(response))
            }
            status if status.is_server_error() => Err(refused(&response, "", &[])),
            _ => Ok(None),
        }
    }

    /// Hears what a legacy server says without being asked, if it says anything, as long as the
    /// session lasts. `opening` goes when the stream is there, or is not to be had at once.
    async fn listen(&self, opening: oneshot::Sender<()>) {
        let mut parser = Parser::new(self.port.endpoint.max_message);
        let mut pause = RESUME;
        let mut opening = Some(opening);
        loop {
            let opened = self.open_stream(&parser).await;
            opening.take();
            match opened {
                Ok(Some(mut response)) => {
                    parser.resume();
                    if matches!(self.relay(&mut response, &mut parser, None).await, Ok(relayed) if relayed.events > 0)
                    {
                        pause = RESUME;
                    }
                }
                Ok(None) => return,
                Err(failed) if failed.kind == SendErrorKind::Forgotten => {
                    return self.port.tell(None, failed);
                }
                Err(failed)
                    if matches!(
                        failed.kind,
                        SendErrorKind::Denied | SendErrorKind::Impossible
                    ) =>
                {
                    return;
                }
                Err(_) => {}
            }
            sleep(
                parser
                    .retry()
                    .unwrap_or(pause)
                    .clamp(MIN_RESUME, MAX_RESUME),
            )
            .await;
            pause = (pause * 2).min(MAX_RESUME);
        }
    }

    /// Relays events until the stream ends, or the answer has come that is waited for.
    async fn relay(
        &self,
        response: &mut ResponseStream,
        parser: &mut Parser,
        asked: Option<&OutboundRequest>,
    ) -> Result<StreamMessages, ExchangeError> {
        let mut relayed = StreamMessages::default();
        let mut events = VecDeque::new();
        while let Some(part) = response.chunk().await? {
            let read = parser.feed(&part, &mut events);
            while let Some(event) = events.pop_front() {
                relayed.events += 1;
                if event.data.is_empty() || !matches!(event.name.as_str(), "" | "message") {
                    continue;
                }
                let message = Bytes::from(event.data);
                if let Some(asked) = asked.filter(|asked| answers(&message, asked.id)) {
                    relayed.answered = true;
                    self.learn(asked, &message);
                }
                self.port.deliver(message).await;
            }
            if relayed.answered {
                break;
            }
            read.map_err(|_| {
                let most = self.port.endpoint.max_message;
                ExchangeError::new(
                    SendErrorKind::TooLong,
                    format!("it sent an event over the limit of {most} bytes"),
                )
            })?;
            response.hold(parser.held()).await?;
        }
        Ok(relayed)
    }

    /// Notes what of an answer the session goes by.
    fn learn(&self, asked: &OutboundRequest, message: &Bytes) {
        if !matches!(asked.method.as_str(), "initialize" | "tools/list") {
            return;
        }
        let Some(result) = Json::parse(message)
            .ok()
            .and_then(|root| root.get("result"))
        else {
            return;
        };
        let mut state = self.state.lock();
        if asked.method == "initialize" {
            let version = result
                .get("protocolVersion")
                .and_then(|version| version.as_str());
            state.version = version.and_then(|version| HeaderValue::from_str(&version).ok());
        } else if state.is_modern
            && let Some(tools) = result.get("tools")
        {
            for tool in tools.elements() {
                let name = tool.get("name").and_then(|name| name.as_str());
                if let Some(name) = name.filter(|name| name.len() <= MAX_TOOL_NAME) {
                    let mirrored = MirroredArgument::of_tool(tool);
                    if mirrored.is_empty() {
                        state.mirrored.remove(&*name);
                        continue;
                    }
                    if state.mirrored.len() >= MAX_MIRRORED {
                        // Each list had others: what it now says is what counts.
                        state.mirrored.clear();
                    }
                    state.mirrored.insert(name.into_owned(), mirrored.into());
                }
            }
        }
    }
}

/// The messages that came over a stream.
#[derive(Default)]
struct StreamMessages {
    events: usize,
    answered: bool,
}

fn forgotten() -> ExchangeError {
    ExchangeError::new(
        SendErrorKind::Forgotten,
        "the server forgot the session (404)",
    )
}

/// True if a message, or one of a batch, answers the request with this id.
fn answers(message: &[u8], id: u64) -> bool {
    let is_it = |root: Json<'_>| match Envelope::of(root).map(|envelope| envelope.kind) {
        Ok(EnvelopeKind::Answer { id: Some(of), .. }) => of.as_u64() == Some(id),
        _ => false,
    };
    match Json::parse(message) {
        Ok(root) if message.first() == Some(&b'[') => root.elements().any(is_it),
        Ok(root) => is_it(root),
        Err(_) => false,
    }
}

/// The code of a body that is a JSON-RPC error; 0 if it has none.
fn error_of(body: &[u8]) -> Option<i64> {
    match Envelope::of(Json::parse(body).ok()?).map(|envelope| envelope.kind) {
        Ok(EnvelopeKind::Answer {
            outcome: Err(error),
            ..
        }) => {
            let code = error.get("code").and_then(|code| code.text().parse().ok());
            Some(code.unwrap_or_default())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Anonymous;
    use colibri_http::{ConnectionRules, HttpClient};

    #[test]
    fn a_server_whose_tools_are_ever_others_fills_no_memory() {
        let endpoint = Endpoint {
            url: "http://h/mcp".parse().unwrap(),
            transport: EndpointTransport::Streamable,
            headers: HeaderMap::new(),
            client: HttpClient::new(ConnectionRules::default()),
            authorizer: Arc::new(Anonymous),
            max_message: 4096,
            silence: Duration::from_secs(1),
        };
        let (out, faults) = (lines().0, mpsc::unbounded_channel().0);
        let session = OutboundSession::new(Port {
            endpoint,
            out,
            faults,
        });
        session.state.lock().is_modern = true;
        let asked = OutboundRequest {
            id: 1,
            method: "tools/list".to_owned(),
        };
        let tool = |name: &str| {
            let schema = r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}"#;
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"{name}","inputSchema":{schema}}}]}}}}"#
            )
        };
        for at in 0..2 * MAX_MIRRORED {
            session.learn(&asked, &tool(&at.to_string()).into());
        }
        session.learn(&asked, &tool(&"x".repeat(MAX_TOOL_NAME + 1)).into());
        session.learn(&asked, &tool("last").into());
        let state = session.state.lock();
        assert!(state.mirrored.len() <= MAX_MIRRORED && state.mirrored.contains_key("last"));
        assert!(
            state
                .mirrored
                .keys()
                .all(|name| name.len() <= MAX_TOOL_NAME)
        );
    }
}
