//! Responses of the served page.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, SET_COOKIE};
use hyper::{Response, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

/// Headers of every response. The page is in no cache, in no frame, and what it links to learns
/// nothing of it.
const HEADERS: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("content-security-policy"),
        "frame-ancestors 'none'",
    ),
];

/// The body of a response.
pub(super) enum PageBody {
    /// All of it.
    Whole(Bytes),
    /// Pieces as they come.
    Stream(Receiver<Bytes>),
}

impl Body for PageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            PageBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            PageBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            PageBody::Stream(pieces) => pieces
                .poll_recv(context)
                .map(|piece| piece.map(Frame::data).map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, PageBody::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            PageBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            PageBody::Stream(_) => SizeHint::default(),
        }
    }
}

fn response(status: StatusCode, kind: &'static str, body: PageBody) -> Response<PageBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The page, or another one.
pub(super) fn html(page: String) -> Response<PageBody> {
    response(
        StatusCode::OK,
        "text/html; charset=utf-8",
        PageBody::Whole(page.into()),
    )
}

/// The page that leads on from the token's address. The browser sends the cookie with what this
/// page asks for, and not with what a file made it ask for.
pub(super) fn entered(path: &str, cookie: &str) -> Response<PageBody> {
    let page = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"refresh\" content=\"0;url={path}\">\n\
         <title>Colibri</title>\n<p><a href=\"{path}\">Open the page</a>\n"
    );
    let mut response = html(page);
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// The stream of news.
pub(super) fn events(pieces: Receiver<Bytes>) -> Response<PageBody> {
    response(
        StatusCode::OK,
        "text/event-stream",
        PageBody::Stream(pieces),
    )
}

/// An answer to a decision.
pub(super) fn json(status: StatusCode, answer: &Value) -> Response<PageBody> {
    let text = colibri_text::json(&answer.to_string()).into_owned();
    response(status, "application/json", PageBody::Whole(text.into()))
}

/// A refusal, which says nothing and ends the connection.
pub(super) fn refusal(status: StatusCode) -> Response<PageBody> {
    let mut response = Response::new(PageBody::Whole(Bytes::new()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
