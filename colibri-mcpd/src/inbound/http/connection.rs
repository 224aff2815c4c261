//! A connection that speaks HTTP, from its first byte to its last.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::front::Front;
use super::head::MAX_HEAD;
use super::refusal::HttpRefusal;
use super::wire::{Busy, HttpExchange, HttpWire, is_gone};
use crate::inbound::connection::InboundConnection;

/// The longest time for the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// The longest time in which a response must be written once its client is to go.
const FLUSH: Duration = Duration::from_secs(2);
/// The interval at which a client is checked to be there and to read.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The time and the bytes for which a refused client is read, so that it comes to read the reason.
const LINGER: Duration = Duration::from_secs(2);
const MAX_LINGERING: usize = 64 * 1024 * 1024;

enum HttpConnectionEvent {
    ToldToGo(&'static str),
    Over(hyper::Result<()>),
    Refused,
    LookAgain,
}

/// Serves a connection until the client is gone or told to go.
pub(in crate::inbound) async fn serve(
    front: Arc<Front>,
    visitor: InboundConnection,
    stream: UnixStream,
) {
    visitor.connection.speaks_http();
    let (stream, turn, visitor) = (
        Arc::new(stream),
        Arc::new(HttpExchange::default()),
        Arc::new(visitor),
    );
    let why = drive(front, &visitor, &stream, &turn).await;
    visitor.client.disconnect();
    visitor.client.outbox.close();
    visitor.daemon.leave(&visitor.client);
    let (connection, uid) = (visitor.client.connection, visitor.client.caller.uid);
    debug!(connection, uid, why, "client gone");
    if let Some(stream) = Arc::into_inner(stream) {
        finish(stream, turn.refusal()).await;
    }
}

async fn drive(
    front: Arc<Front>,
    visitor: &Arc<InboundConnection>,
    stream: &Arc<UnixStream>,
    turn: &Arc<HttpExchange>,
) -> &'static str {
    let service = service_fn(|request: Request<_>| {
        let (front, visitor, turn) = (front.clone(), visitor.clone(), turn.clone());
        async move {
            let busy = Busy(turn.clone());
            let response = front.answer(&visitor, &turn, request).await;
            Ok::<_, Infallible>(response.map(|reply| reply.written(busy)))
        }
    });
    let mut builder = http1::Builder::new();
    let connection = builder
        .max_buf_size(2 * MAX_HEAD)
        .serve_connection(HttpWire::new(stream.clone(), turn.clone()), service);
    let (mut connection, mut told) = (pin!(connection), pin!(visitor.connection.told_to_go()));
    let (mut going, mut nap) = (None, None);
    loop {
        let event = std::future::poll_fn(|context| {
            if going.is_none()
                && let Poll::Ready(why) = told.as_mut().poll(context)
            {
                return Poll::Ready(HttpConnectionEvent::ToldToGo(why));
            }
            if let Poll::Ready(done) = connection.as_mut().poll(context) {
                return Poll::Ready(HttpConnectionEvent::Over(done));
            }
            if turn.is_refused() {
                return Poll::Ready(HttpConnectionEvent::Refused);
            }
            if going.is_some() || turn.is_watched() {
                let nap = nap.get_or_insert_with(|| Box::pin(sleep(LOOK_AGAIN)));
                return nap
                    .as_mut()
                    .poll(context)
                    .map(|()| HttpConnectionEvent::LookAgain);
            }
            Poll::Pending
        });
        match event.await {
            HttpConnectionEvent::ToldToGo(why) => {
                going = Some((why, Instant::now()));
                connection.as_mut().graceful_shutdown();
            }
            HttpConnectionEvent::Over(Ok(())) => {
                return going.map_or("it closed the connection", |(why, _)| why);
            }
            HttpConnectionEvent::Over(Err(error)) => {
                debug!(
                    connection = visitor.client.connection,
                    "HTTP failed: {error}"
                );
                return "HTTP failed";
            }
            HttpConnectionEvent::Refused => return "it sent what is no request",
            HttpConnectionEvent::LookAgain => {
                nap = None;
                if let Some((why, _)) = going.filter(|(_, since)| since.elapsed() > FLUSH) {
                    return why;
                }
                if is_gone(stream) {
                    return "it is gone";
                }
                if turn.is_cut_off() {
                    let (connection, uid) = (visitor.client.connection, visitor.client.caller.uid);
                    warn!(
                        connection,
                        uid, "client does not read its answer over HTTP, and is let go"
                    );
                    return "it does not read its answer";
                }
                if turn.begun().is_some_and(|since| since.elapsed() > HEAD) {
                    turn.refuse(HttpRefusal::new(
                        StatusCode::REQUEST_TIMEOUT,
                        format!(
                            "the head of the request has not ended within {} s",
                            HEAD.as_secs()
                        ),
                    ));
                    return "the head of its request does not end";
                }
            }
        }
    }
}

/// Answers a client that there is no place for it.
pub(in crate::inbound) async fn turn_away(stream: UnixStream, why: String) {
    finish(
        stream,
        Some(HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why)),
    )
    .await;
}

/// Answers the one who speaks HTTP at an agent socket.
pub(in crate::inbound) async fn refuse_at_door(stream: UnixStream) {
    let why = "an agent's door takes JSON-RPC, one message a line, and no HTTP: connect as colibri-mcp does";
    finish(stream, Some(HttpRefusal::new(StatusCode::FORBIDDEN, why))).await;
}

/// Says why what came is not served, and reads on for a while: a client that still writes when we
/// close would not come to read it.
async fn finish(mut stream: UnixStream, refusal: Option<HttpRefusal>) {
    let said = async {
        if let Some(refusal) = refusal {
            stream.write_all(&refusal.to_response()).await?;
        }
        stream.shutdown().await?;
        let (mut buffer, mut read) = (vec![0; 16 * 1024], 0);
        while read < MAX_LINGERING {
            match stream.read(&mut buffer).await? {
                0 => break,
                more => read += more,
            }
        }
        std::io::Result::Ok(())
    };
    // It is gone, or does not read: there is nobody to be told.
    let _ = timeout(LINGER, said).await;
}
