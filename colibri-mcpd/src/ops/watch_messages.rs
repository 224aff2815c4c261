//! The topic `messages` of `colibri/watch`: what the daemon and a server say to each other.

use std::sync::Arc;

use colibri_api::WatchedServer;

use super::frames::{Describer, SHORT};
use super::method::MethodCall;
use super::stream::AnswerStream;
use crate::daemon::Daemon;
use crate::relay::{Call, CallOutcome};
use crate::servers::tap::{MAX_TAPS, Tap, TapBatch};
use crate::servers::{HostedServer, Viewer};
use colibri_protocol::{Code, Failure, RpcError};
use colibri_trail::TrailEvent;

/// The bytes that a notification holds beside the frame, at most.
const AROUND: usize = 16 * 1024;
/// The longest message that clients read (`client::lines::LINE_LIMIT`), whatever the daemon's limit
/// is.
const MAX_READ: usize = 16 * 1024 * 1024;

/// Begins to tell the messages of a server, whole if `full`.
pub(super) fn watch(server: &str, full: bool, request: MethodCall) {
    let (server, tap) = match open(&request.daemon, &request.call, server, full) {
        Ok(opened) => opened,
        Err(outcome) => return request.finish(outcome),
    };
    let describer = describer(&request.call, &server, full, request.daemon.limits.frame);
    let stream = AnswerStream::begin(request);
    let server = WatchedServer {
        id: server.spec.id.to_string(),
        state: server.state(Viewer::Operator(None)).0,
        processes: server.sessions().len() as u64,
    };
    if stream.tell_subscribed(None, Some(server)) {
        tokio::spawn(tell(stream, tap, describer));
    }
}

/// Begins to tap a server, once it is on record who does.
fn open(
    daemon: &Daemon,
    call: &Call,
    id: &str,
    full: bool,
) -> Result<(Arc<HostedServer>, Tap), CallOutcome> {
    let wrong = |message: String| CallOutcome::error(RpcError::invalid_params(message));
    let servers = daemon.host.servers();
    let Some(server) = servers.get(id) else {
        return Err(wrong(format!(
            "there is no server \"{}\": colibri-mcp status shows those there are",
            colibri_text::brief(id, 64)
        )));
    };
    let recorded = daemon.chain.recorder.event(TrailEvent::Tap {
        server: id,
        by: call.client.caller.uid,
        connection: call.client.connection,
        full,
    });
    recorded.map_err(|error| {
        CallOutcome::Failed(Failure::new(Code::TrailUnavailable, error.to_string()))
    })?;
    match server.spec.taps.open() {
        Some(tap) => Ok((server.clone(), tap)),
        None => Err(wrong(format!(
            "{MAX_TAPS} taps watch {id} already: end one of them"
        ))),
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

async fn tell(stream: AnswerStream, tap: Tap, mut describer: Describer) {
    loop {
        let batch = tokio::select! {
            biased;
            () = stream.held.over() => return,
            batch = tap.next() => batch,
        };
        if stream.end_unless_operator() {
            return;
        }
        let TapBatch {
            frames,
            dropped,
            ended,
        } = batch;
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
        if dropped > 0 && !stream.tell_dropped(Some(dropped)) {
            return;
        }
        if let Some(why) = ended {
            return stream.end(why);
        }
    }
}
