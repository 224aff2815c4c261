//! The operators' methods that answer with a stream: `colibri/tap`, `colibri/overview`, `colibri/watch-notices`.
//!
//! Such a request is acknowledged by its first notification, followed by others until its client cancels it, which has
//! no answer, or goes away, or until the daemon ends it with a result that says why. A client that reads slowly gets
//! less, and never holds up anybody.

use std::sync::Arc;
use std::time::Duration;

use colibri_api::{OverviewRequest, TapLagged, TapRequest, Tapping};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::sleep;

use super::frames::{Describer, SHORT};
use super::method::{DaemonMethod, MethodCall, check_operator};
use super::stream::AnswerStream;
use super::{overview, watch_notices};
use crate::daemon::Daemon;
use crate::relay::{Call, CallOutcome};
use crate::servers::tap::{MAX_TAPS, Tap, TapBatch};
use crate::servers::{HostedServer, Viewer};
use colibri_protocol::{Code, Failure, RpcError};
use colibri_trail::TrailEvent;

/// The bytes that a notification holds beside the frame, at most.
const AROUND: usize = 16 * 1024;
/// The longest message that clients read (`client::lines::LINE_LIMIT`), whatever the daemon's limit is.
const MAX_READ: usize = 16 * 1024 * 1024;
/// The permitted interval of the overview, in milliseconds.
const EVERY_MS: std::ops::RangeInclusive<u64> = 100..=60_000;
/// The most records of the trail in an overview.
const MAX_TAIL: u64 = 200;

/// `colibri/tap`: the frames of a server.
pub(super) struct TapServer;

impl DaemonMethod for TapServer {
    const NAME: &'static str = "colibri/tap";
    type Parameters = TapRequest;

    fn start(asked: TapRequest, request: MethodCall) {
        if let Err(failure) = check_operator(&request.daemon, &request.call.client) {
            return request.finish(CallOutcome::Failed(failure));
        }
        match open(&request.daemon, &request.call, &asked.server, asked.full) {
            Err(outcome) => request.finish(outcome),
            Ok((server, tap)) => {
                let frame = request.daemon.limits.frame;
                let describer = describer(&request.call, &server, asked.full, frame);
                let stream = AnswerStream::begin(request);
                let begun = Tapping {
                    tap: stream.id(),
                    server: server.spec.id.to_string(),
                    state: server.state(Viewer::Operator(None)).0,
                    processes: server.sessions().len() as u64,
                };
                if stream.send("colibri/tapping", &begun) {
                    tokio::spawn(frames(stream, tap, describer));
                }
            }
        }
    }
}

/// `colibri/overview`: the state of everything, once or as a stream.
pub(super) struct OverviewMethod;

impl DaemonMethod for OverviewMethod {
    const NAME: &'static str = "colibri/overview";
    const UNRECORDED: bool = true;
    type Parameters = OverviewRequest;

    fn check(asked: &OverviewRequest) -> Result<(), RpcError> {
        if asked.every_ms.is_some_and(|every| !EVERY_MS.contains(&every)) {
            return Err(RpcError::invalid_params(format!(
                "params.every_ms must be a number of milliseconds, {} to {}",
                EVERY_MS.start(),
                EVERY_MS.end()
            )));
        }
        if asked.tail > MAX_TAIL {
            return Err(RpcError::invalid_params(format!("params.tail must be 0 to {MAX_TAIL}")));
        }
        Ok(())
    }

    fn start(asked: OverviewRequest, request: MethodCall) {
        if let Err(failure) = check_operator(&request.daemon, &request.call.client) {
            return request.finish(CallOutcome::Failed(failure));
        }
        let tail = asked.tail;
        match asked.every_ms {
            None => request.finish_blocking(move |daemon, call| {
                let overview = json!(overview::of(daemon, Some(call.client.caller.uid), tail));
                CallOutcome::result(overview.to_string().into_bytes())
            }),
            Some(every) => {
                let stream = AnswerStream::begin(request);
                tokio::spawn(overviews(stream, Duration::from_millis(every), tail));
            }
        }
    }
}

/// `colibri/watch-notices`: events as they happen.
pub(super) struct WatchNotices;

impl DaemonMethod for WatchNotices {
    const NAME: &'static str = "colibri/watch-notices";
    type Parameters = IgnoredAny;

    fn start(_: IgnoredAny, request: MethodCall) {
        if let Err(failure) = check_operator(&request.daemon, &request.call.client) {
            return request.finish(CallOutcome::Failed(failure));
        }
        // From here on, so that nothing is missed that happens from now on.
        let notices = request.daemon.notices.watch();
        tokio::spawn(watch_notices::tell(AnswerStream::begin(request), notices));
    }
}

/// Begins to tap a server, once it is on record who does.
fn open(daemon: &Daemon, call: &Call, id: &str, full: bool) -> Result<(Arc<HostedServer>, Tap), CallOutcome> {
    let wrong = |message: String| CallOutcome::error(RpcError::invalid_params(message));
    let servers = daemon.host.servers();
    let Some(server) = servers.get(id) else {
        return Err(wrong(format!(
            "there is no server \"{}\": colibri-mcp servers shows those there are",
            colibri_text::brief(id, 64)
        )));
    };
    let recorded = daemon.chain.recorder.event(TrailEvent::Tap {
        server: id,
        by: call.client.caller.uid,
        connection: call.client.connection,
        full,
    });
    recorded.map_err(|error| CallOutcome::Failed(Failure::new(Code::TrailUnavailable, error.to_string())))?;
    match server.spec.taps.open() {
        Some(tap) => Ok((server.clone(), tap)),
        None => Err(wrong(format!("{MAX_TAPS} taps watch {id} already: end one of them"))),
    }
}

fn describer(call: &Call, server: &HostedServer, full: bool, frame: usize) -> Describer {
    let sessions = server.sessions();
    let asked = sessions.iter().flat_map(|(_, session)| {
        let calls = session.asked().into_iter();
        calls.map(|(number, asker)| ((session.number, number), asker))
    });
    // A notification is a message as every other: what is shown whole has to fit in one.
    let most = if full {
        frame.min(MAX_READ).saturating_sub(AROUND)
    } else {
        SHORT
    };
    Describer::new(call.id_text(), most, asked)
}

/// The reason for which a stream must end: an operator's right can be taken away.
fn refused(stream: &AnswerStream) -> Option<&'static str> {
    let refused = check_operator(&stream.daemon, &stream.client).is_err();
    refused.then_some("you are no operator any more")
}

async fn frames(stream: AnswerStream, tap: Tap, mut describer: Describer) {
    loop {
        let batch = tokio::select! {
            biased;
            () = stream.held.over() => return,
            batch = tap.next() => batch,
        };
        if let Some(why) = refused(&stream) {
            return stream.end(why);
        }
        let TapBatch { frames, dropped, ended } = batch;
        let redactor = stream.daemon.host.redactor();
        // A long frame takes a while to be looked through: not on a thread that serves clients.
        let described = tokio::task::spawn_blocking(move || {
            let lines: Vec<_> = frames
                .into_iter()
                .map(|seen| describer.describe(seen, &redactor))
                .collect();
            (describer, lines)
        });
        let Ok((back, lines)) = described.await else {
            return stream.end("a frame could not be shown");
        };
        describer = back;
        for line in lines {
            if !stream.has_room().await || !stream.push(&line) {
                return;
            }
        }
        let lost = TapLagged {
            tap: stream.id(),
            frames: dropped,
        };
        if dropped > 0 && !stream.send("colibri/dropped", &lost) {
            return;
        }
        if let Some(why) = ended {
            return stream.end(why);
        }
    }
}

async fn overviews(stream: AnswerStream, every: Duration, tail: u64) {
    loop {
        if let Some(why) = refused(&stream) {
            return stream.end(why);
        }
        if !stream.has_room().await {
            return;
        }
        let (daemon, operator) = (stream.daemon.clone(), stream.client.caller.uid);
        let Ok(overview) =
            tokio::task::spawn_blocking(move || json!(overview::of(&daemon, Some(operator), tail))).await
        else {
            return stream.end("the overview could not be made");
        };
        if !stream.send("colibri/overview", &overview) {
            return;
        }
        tokio::select! {
            biased;
            () = stream.held.over() => return,
            () = sleep(every) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::method::read_parameters;
    use super::*;
    use colibri_wire::Json;

    fn read<M: DaemonMethod>(params: &str) -> Result<M::Parameters, RpcError> {
        read_parameters::<M>(Json::parse(params.as_bytes()).ok())
    }

    #[test]
    fn parameters_are_read_strictly() {
        let tap = read::<TapServer>;
        let server = "git".to_owned();
        assert_eq!(
            tap(r#"{"server":"git","full":true}"#).unwrap(),
            TapRequest { server, full: true }
        );
        for wrong in [r#"{}"#, r#"{"server":1}"#, r#"{"server":"git","full":1}"#, "[]"] {
            assert!(tap(wrong).is_err(), "{wrong}");
        }
        let overview = read::<OverviewMethod>;
        assert_eq!(overview("{}").unwrap(), OverviewRequest::default());
        let asked = OverviewRequest {
            every_ms: Some(2000),
            tail: 9,
        };
        assert_eq!(overview(r#"{"every_ms":2000,"tail":9}"#).unwrap(), asked);
        for wrong in [
            r#"{"every_ms":0}"#,
            r#"{"every_ms":60001}"#,
            r#"{"every_ms":"1"}"#,
            r#"{"tail":201}"#,
            r#"{"tail":-1}"#,
        ] {
            assert!(overview(wrong).is_err(), "{wrong}");
        }
    }
}
