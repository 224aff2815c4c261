//! HTTP requests over pooled connections. Redirects are followed within the origin.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST, HeaderMap, HeaderValue, LOCATION};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::dial::{ConnectionRules, Dial, Dialer};
use super::error::HttpError;
use super::origin::{UrlOrigin, resolve_reference, without_query};
use colibri_text::brief;

/// The most bytes of a response's head.
const MAX_HEAD: usize = 64 * 1024;
/// The most header fields of a response.
const MAX_FIELDS: usize = 100;
/// The most redirects of one request.
const MAX_REDIRECTS: usize = 5;
/// The time for which an idle connection is pooled. It is shorter than the usual timeout of servers
/// (Node, uvicorn): if a server closes a connection during a request, the client cannot know if the
/// request was read.
const KEPT: Duration = Duration::from_secs(4);
/// The most idle connections in the pool.
const MAX_KEPT: usize = 16;
/// The most connections of one server's session. Each takes a descriptor, and the daemon has a
/// limited number for all.
const MAX_OPEN: usize = 512;
/// The most bytes of a response that are held in memory without a permit.
const SMALL: usize = 64 * 1024;
/// The most responses of one server larger than that which are held at a time. Each may be as long
/// as a message can be; the number of waiting ones is limited by the clients' calls in flight.
const MAX_LARGE: usize = 4;

/// The time limits of a request. A caller with a limit of its own drops the future.
#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    /// From the request to the head of its response.
    pub head: Duration,
    /// Between two parts of the response's body.
    pub silence: Duration,
}

impl HttpLimits {
    /// The same limit for both.
    pub fn all(limit: Duration) -> HttpLimits {
        HttpLimits {
            head: limit,
            silence: limit,
        }
    }
}

/// A client whose connections keep to [`ConnectionRules`]. Cheap to clone: clones share the
/// connections.
///
/// A request is sent at most once, over HTTP/1.1. [`HttpError::was_sent`] says if it is safe to
/// send it again.
#[derive(Clone)]
pub struct HttpClient {
    shared: Arc<HttpClientInner>,
}

struct HttpClientInner {
    dial: Box<dyn Dial>,
    kept: Mutex<Vec<IdleConnection>>,
    open: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

struct IdleConnection {
    origin: UrlOrigin,
    sender: SendRequest<Whole>,
    until: Instant,
}

impl HttpClient {
    /// A client that keeps to these rules.
    pub fn new(rules: ConnectionRules) -> HttpClient {
        HttpClient::over(Dialer::new(rules))
    }

    /// A client that connects with `dial`.
    pub fn over(dial: impl Dial + 'static) -> HttpClient {
        HttpClient {
            shared: Arc::new(HttpClientInner {
                dial: Box::new(dial),
                kept: Mutex::default(),
                open: Arc::new(Semaphore::new(MAX_OPEN)),
                large: Arc::new(Semaphore::new(MAX_LARGE)),
            }),
        }
    }

    /// Sends a request, whose URI is absolute, and returns the head of its response; the body is
    /// read from it. The client sets `Host`, `Content-Length` and `Accept-Encoding` itself. A
    /// redirect is returned like any other response.
    ///
    /// # Errors
    /// The reason for which there is no response. A status that means failure is no error.
    pub async fn ask(
        &self,
        request: Request<Bytes>,
        limits: HttpLimits,
    ) -> Result<ResponseStream, HttpError> {
        let (head, body) = request.into_parts();
        let url = head.uri;
        let origin = UrlOrigin::of(&url)?;
        let mut request = Request::new(Whole(Some(body).filter(|body| !body.is_empty())));
        *request.method_mut() = head.method;
        *request.headers_mut() = head.headers;
        *request.uri_mut() = match url.path_and_query() {
            Some(path) => Uri::from(path.clone()),
            None => Uri::from_static("/"),
        };
        if let Some(authority) = url.authority()
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            request.headers_mut().insert(HOST, host);
        }
        request
            .headers_mut()
            .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut response = self.send(&origin, request, limits).await?;
        response.url = url;
        Ok(response)
    }

    /// Sends a request like [`HttpClient::ask`], and follows redirects: within the origin, at most
    /// five, and only if method and body stay the same. Any other redirect is an error, so that a
    /// request for one server never reaches another.
    ///
    /// # Errors
    /// The reason for which there is no response. A status that means failure is no error.
    pub async fn request(
        &self,
        request: Request<Bytes>,
        limits: HttpLimits,
    ) -> Result<ResponseStream, HttpError> {
        let (head, body) = request.into_parts();
        let mut url = head.uri;
        for _ in 0..=MAX_REDIRECTS {
            let mut again = Request::new(body.clone());
            *again.method_mut() = head.method.clone();
            *again.headers_mut() = head.headers.clone();
            *again.uri_mut() = url.clone();
            let mut response = self.ask(again, limits).await?;
            let follow = match response.status {
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
                StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => {
                    // Clients turn a POST into a GET at such a status.
                    matches!(head.method, Method::GET | Method::HEAD)
                        || return Err(moved(&url, &response))
                }
                _ => false,
            };
            if !follow {
                return Ok(response);
            }
            let location = location(&response).ok_or_else(|| moved(&url, &response))?;
            let next = resolve_reference(&url, location)?;
            if UrlOrigin::of(&next)? != UrlOrigin::of(&url)? {
                return Err(moved(&url, &response));
            }
            // A short body is read to its end, so that the connection can be pooled.
            let _ = response.whole(MAX_HEAD).await;
            url = next;
        }
        Err(HttpError::Url(format!(
            "{} redirects over and over ({MAX_REDIRECTS} times)",
            without_query(&url)
        )))
    }

    /// Closes the idle connections of the pool.
    pub fn let_go(&self) {
        self.shared.kept().clear();
    }

    async fn send(
        &self,
        origin: &UrlOrigin,
        request: Request<Whole>,
        limits: HttpLimits,
    ) -> Result<ResponseStream, HttpError> {
        let host = &origin.host;
        let mut sender = match self.kept(origin).await {
            Some(sender) => sender,
            None => self.connect(origin, limits.head).await?,
        };
        let sent = match timeout(limits.head, sender.try_send_request(request)).await {
            Ok(sent) => sent,
            Err(_) => {
                return Err(HttpError::Silent {
                    host: host.clone(),
                    waited: limits.head,
                });
            }
        };
        let response = match sent {
            Ok(response) => response,
            Err(mut error) => {
                return Err(match error.take_message() {
                    Some(_) => HttpError::Unsent { host: host.clone() },
                    None => lost(host, error.error()),
                });
            }
        };
        let (head, body) = response.into_parts();
        if head.headers.len() > MAX_FIELDS {
            return Err(HttpError::Lost {
                host: host.clone(),
                why: format!("its answer has over {MAX_FIELDS} header fields"),
            });
        }
        if let Some(coding) = head
            .headers
            .get(CONTENT_ENCODING)
            .filter(|coding| *coding != "identity")
        {
            let coding = brief(&String::from_utf8_lossy(coding.as_bytes()), 40);
            return Err(HttpError::Lost {
                host: host.clone(),
                why: format!("it encoded its answer ({coding}), which it was not asked for"),
            });
        }
        let keep = keep_for(&head.headers).map(|time| (sender, time));
        Ok(ResponseStream {
            status: head.status,
            headers: head.headers,
            url: Uri::default(),
            body,
            keep,
            silence: limits.silence,
            origin: origin.clone(),
            shared: self.shared.clone(),
            room: None,
        })
    }

    /// An open connection to this origin from the pool.
    async fn kept(&self, origin: &UrlOrigin) -> Option<SendRequest<Whole>> {
        loop {
            let mut sender = {
                let mut kept = self.shared.kept();
                let now = Instant::now();
                kept.retain(|kept| kept.until > now && !kept.sender.is_closed());
                let at = kept.iter().rposition(|kept| kept.origin == *origin)?;
                kept.remove(at).sender
            };
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    async fn connect(
        &self,
        origin: &UrlOrigin,
        patience: Duration,
    ) -> Result<SendRequest<Whole>, HttpError> {
        let failed = |why: String| HttpError::Connect {
            host: origin.host.clone(),
            why,
        };
        let full = || failed(format!("its {MAX_OPEN} connections are all in use"));
        let room = timeout(patience, self.shared.open.clone().acquire_owned()).await;
        let room = room.ok().and_then(Result::ok).ok_or_else(full)?;
        let io = self.shared.dial.dial(origin).await?;
        let made = Builder::new()
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_FIELDS)
            .handshake(TokioIo::new(io))
            .await;
        let (sender, connection) = made.map_err(|error| failed(error.to_string()))?;
        // The task ends when the sender and the body of the last response are dropped.
        tokio::spawn(async move {
            let _ = connection.await;
            drop(room);
        });
        Ok(sender)
    }
}

impl HttpClientInner {
    fn kept(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        self.kept.lock()
    }
}

/// A response whose body is not read yet. If it is dropped before the end of the body, the
/// connection is closed.
pub struct ResponseStream {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The URL that responded, after redirects.
    pub url: Uri,
    body: Incoming,
    keep: Option<(SendRequest<Whole>, Duration)>,
    silence: Duration,
    origin: UrlOrigin,
    shared: Arc<HttpClientInner>,
    /// The permit of a large response.
    room: Option<OwnedSemaphorePermit>,
}

impl ResponseStream {
    /// A header field, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next part of the body; `None` at its end.
    ///
    /// # Errors
    /// The body ended too early, or nothing came for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let next = std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            match timeout(self.silence, next).await {
                Err(_) => {
                    return Err(HttpError::Silent {
                        host: self.origin.host.clone(),
                        waited: self.silence,
                    });
                }
                Ok(None) => {
                    self.release();
                    return Ok(None);
                }
                Ok(Some(Err(error))) => return Err(lost(&self.origin.host, &error)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Waits for a permit to hold a response of this many bytes, before more is read. Returns the
    /// permit if the bytes are few. A response whose body was read whole keeps its permit until it
    /// is dropped.
    ///
    /// # Errors
    /// No permit became free within the time limit for the next part.
    pub async fn hold(&mut self, bytes: usize) -> Result<(), HttpError> {
        if bytes <= SMALL {
            self.room = None;
        } else if self.room.is_none() {
            let room = timeout(self.silence, self.shared.large.clone().acquire_owned()).await;
            let silent = |_| HttpError::Silent {
                host: self.origin.host.clone(),
                waited: self.silence,
            };
            self.room = room.map_err(silent)?.ok();
        }
        Ok(())
    }

    /// The whole body, of at most `most` bytes.
    ///
    /// # Errors
    /// The errors of [`ResponseStream::chunk`], or the body is longer.
    pub async fn whole(&mut self, most: usize) -> Result<Bytes, HttpError> {
        let mut body = match self.chunk().await? {
            Some(first) if first.len() <= most && self.body.is_end_stream() => {
                self.release();
                return Ok(first);
            }
            Some(first) => Vec::from(first),
            None => return Ok(Bytes::new()),
        };
        loop {
            if body.len() > most {
                return Err(HttpError::TooLong {
                    host: self.origin.host.clone(),
                    limit: most,
                });
            }
            self.hold(body.len()).await?;
            match self.chunk().await? {
                Some(more) => body.extend_from_slice(&more),
                None => return Ok(body.into()),
            }
        }
    }

    /// Returns the connection to the pool: the body has been read.
    fn release(&mut self) {
        let Some((sender, time)) = self.keep.take() else {
            return;
        };
        let mut kept = self.shared.kept();
        if kept.len() < MAX_KEPT {
            kept.push(IdleConnection {
                origin: self.origin.clone(),
                sender,
                until: Instant::now() + time,
            });
        }
    }
}

/// The time for which a connection may be pooled after this response.
fn keep_for(headers: &HeaderMap) -> Option<Duration> {
    let says = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    if says("connection").to_ascii_lowercase().contains("close") {
        return None;
    }
    let keep_alive = says("keep-alive");
    let told = keep_alive
        .split(',')
        .find_map(|part| part.trim().strip_prefix("timeout="));
    match told.and_then(|seconds| seconds.parse::<u64>().ok()) {
        // One second less, for the time on the network.
        Some(seconds) => Some(Duration::from_secs(seconds.min(60).saturating_sub(1)))
            .filter(|time| !time.is_zero()),
        None => Some(KEPT),
    }
}

fn location(response: &ResponseStream) -> Option<&str> {
    response.header(LOCATION.as_str())
}

fn moved(url: &Uri, response: &ResponseStream) -> HttpError {
    let place = location(response)
        .unwrap_or("nowhere")
        .split(['?', '#'])
        .next()
        .unwrap_or_default();
    HttpError::Url(format!(
        "{} redirects ({}) to {}, which is not followed: write that into \"url\" if it is meant",
        without_query(url),
        response.status.as_u16(),
        brief(place, 200)
    ))
}

fn lost(host: &str, error: &hyper::Error) -> HttpError {
    // hyper's error is general, its source has the cause.
    let why = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    HttpError::Lost {
        host: host.to_owned(),
        why: brief(&why, 200),
    }
}

/// A body that is complete in memory.
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|body| Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |body| body.len() as u64))
    }
}
