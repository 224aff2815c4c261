//! An MCP endpoint: what is sent to it, and what its answers mean whatever the transport.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode, Uri};
use tokio::sync::mpsc;
use tracing::debug;

use super::authorizer::{Authorizer, Challenge};
use super::lines::as_line;
use super::send_error::{ExchangeError, SendError, SendErrorKind};
use colibri_http::{HttpClient, HttpError, HttpLimits, ResponseStream};
use colibri_text::brief;

/// The number of times that a request is sent again that was refused for lack of authorization.
const MAX_CHALLENGES: u32 = 3;
/// The number of times that a request is sent again because a reused connection ended before a byte
/// of it was sent.
const MAX_UNSENT: u32 = 3;
/// The most bytes that are read of an answer that says why there is none.
const MAX_REFUSAL: usize = 64 * 1024;
/// The most bytes of it that are told.
const MAX_TOLD: usize = 300;

/// The media type of a stream of events.
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The transport of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointTransport {
    /// Streamable HTTP, of the version that server and client agree on.
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Events,
}

/// An MCP endpoint, and how it is reached.
pub struct Endpoint {
    /// Its URL.
    pub url: Uri,
    /// Its transport.
    pub transport: EndpointTransport,
    /// Header fields of every request; secrets are marked as sensitive.
    pub headers: HeaderMap,
    /// The HTTP client.
    pub client: HttpClient,
    /// The authorization, where the headers do not carry it.
    pub authorizer: Arc<dyn Authorizer>,
    /// The most bytes of a message.
    pub max_message: usize,
    /// The longest wait for an answer, or for the next part of one.
    pub silence: Duration,
}

/// An endpoint, and who hears what it says.
pub(super) struct Port {
    pub(super) endpoint: Endpoint,
    pub(super) out: mpsc::Sender<Bytes>,
    pub(super) faults: mpsc::UnboundedSender<SendError>,
}

impl Port {
    /// Sends a request with these header fields besides the endpoint's own, and returns with the
    /// head of its answer.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Uri,
        fields: &HeaderMap,
        body: Bytes,
    ) -> Result<ResponseStream, ExchangeError> {
        let endpoint = &self.endpoint;
        let (mut unsent, mut challenges) = (0, 0);
        loop {
            let denied =
                |why: anyhow::Error| ExchangeError::new(SendErrorKind::Denied, format!("{why:#}"));
            let authorization = endpoint.authorizer.authorization().await.map_err(denied)?;
            let mut request = Request::new(body.clone());
            *request.method_mut() = method.clone();
            *request.uri_mut() = url.clone();
            let headers = request.headers_mut();
            headers.clone_from(&endpoint.headers);
            headers.extend(
                fields
                    .iter()
                    .map(|(name, value)| (name.clone(), value.clone())),
            );
            if let Some(authorization) = &authorization {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let mut response = match endpoint
                .client
                .request(request, HttpLimits::all(endpoint.silence))
                .await
            {
                Err(HttpError::Unsent { .. }) if unsent < MAX_UNSENT => {
                    unsent += 1;
                    continue;
                }
                answered => answered?,
            };
            if !matches!(
                response.status,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            ) {
                return Ok(response);
            }
            let challenge = Challenge {
                status: response.status,
                fields: response
                    .headers
                    .get_all(WWW_AUTHENTICATE)
                    .iter()
                    .cloned()
                    .collect(),
                refused: authorization,
            };
            let said = first_of(&mut response).await;
            let status = response.status.as_u16();
            let again = endpoint.authorizer.challenged(challenge).await;
            let why = match again {
                Ok(()) => {
                    challenges += 1;
                    if challenges < MAX_CHALLENGES {
                        continue;
                    }
                    format!("it goes on to refuse who asks ({status})")
                }
                Err(why) => format!("{why:#}"),
            };
            return Err(ExchangeError::new(SendErrorKind::Denied, with(why, &said)));
        }
    }

    /// Queues a message for who reads.
    pub(super) async fn deliver(&self, message: Bytes) {
        match as_line(message) {
            // Nobody reads any more: this session is being ended.
            Some(line) => drop(self.out.send(line).await),
            None => {
                debug!(url = %self.endpoint.url.path(), "a message that is no JSON was passed over")
            }
        }
    }

    /// Reports that a request fails.
    pub(super) fn tell(&self, id: Option<u64>, failed: ExchangeError) {
        let ExchangeError { kind, message } = failed;
        let _ = self.faults.send(SendError { id, kind, message });
    }
}

/// The kind of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Json,
    Events,
    Other,
}

pub(super) fn body_of(response: &ResponseStream) -> Body {
    let kind = response.header(CONTENT_TYPE.as_str()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "application/json" => Body::Json,
        "text/event-stream" => Body::Events,
        _ => Body::Other,
    }
}

/// The meaning of a failed response, of which this was read. `hint` stands before what the server
/// said: that may be a page of HTML, and a summary is cut.
pub(super) fn refused(response: &ResponseStream, hint: &str, said: &[u8]) -> ExchangeError {
    let status = response.status;
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            SendErrorKind::Busy(response.retry_after())
        }
        // These two say what the server cannot do, now or later.
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => {
            SendErrorKind::Status
        }
        // What stands before it waited too long for the request, or for the server.
        StatusCode::REQUEST_TIMEOUT => SendErrorKind::Failed,
        status if status.is_server_error() => SendErrorKind::Failed,
        _ => SendErrorKind::Status,
    };
    let reason = status.canonical_reason().unwrap_or("no known status");
    ExchangeError::new(
        kind,
        with(
            format!("it answered {} ({reason}){hint}", status.as_u16()),
            said,
        ),
    )
}

/// The beginning of a body that is not relayed.
pub(super) async fn first_of(response: &mut ResponseStream) -> Bytes {
    response.whole(MAX_REFUSAL).await.unwrap_or_default()
}

fn with(why: String, said: &[u8]) -> String {
    let text = String::from_utf8_lossy(&said[..said.len().min(4 * MAX_TOLD)]);
    match text.trim() {
        "" => why,
        text => format!("{why}: {}", brief(text, MAX_TOLD)),
    }
}
