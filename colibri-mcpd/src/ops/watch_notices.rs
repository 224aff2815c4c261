//! The topic `notices` of `colibri/watch`: what happens, told to operators as it does.

use std::sync::Arc;

use colibri_api::{Notice, NoticeNotification};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::method::MethodCall;
use super::stream::AnswerStream;

/// Begins to tell notices.
pub(super) fn watch(request: MethodCall) {
    // From here on, so that nothing is missed that happens from now on.
    let notices = request.daemon.notices.watch();
    tokio::spawn(tell(AnswerStream::begin(request), notices));
}

async fn tell(stream: AnswerStream, mut notices: Receiver<Arc<Notice>>) {
    if !stream.tell_subscribed(None, None) {
        return;
    }
    loop {
        let told = tokio::select! {
            biased;
            () = stream.held.over() => return,
            told = notices.recv() => told,
        };
        if stream.end_unless_operator() {
            return;
        }
        if !stream.has_room().await {
            return;
        }
        let goes_on = match told {
            Err(RecvError::Closed) => return stream.end("the daemon is ending"),
            Err(RecvError::Lagged(notices)) => stream.tell_dropped(Some(notices)),
            Ok(notice) => {
                let (watch, notice) = (stream.id(), Notice::clone(&notice));
                stream.send("colibri/notice", &NoticeNotification { watch, notice })
            }
        };
        if !goes_on {
            return;
        }
    }
}
