//! `colibri/watch-notices`: what happens, told to operators as it does.

use std::sync::Arc;

use colibri_api::{Notice, NoticeNotification, NoticesLagged, NoticesSubscribed};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::method::check_operator;
use super::stream::AnswerStream;

/// Streams notices, until somebody ends it.
pub(super) async fn tell(stream: AnswerStream, mut notices: Receiver<Arc<Notice>>) {
    if !stream.send("colibri/watching-notices", &NoticesSubscribed { watch: stream.id() }) {
        return;
    }
    loop {
        let told = tokio::select! {
            biased;
            () = stream.held.over() => return,
            told = notices.recv() => told,
        };
        if check_operator(&stream.daemon, &stream.client).is_err() {
            return stream.end("you are no operator any more");
        }
        if !stream.has_room().await {
            return;
        }
        let watch = stream.id();
        let goes_on = match told {
            Err(RecvError::Closed) => return stream.end("the daemon is ending"),
            Err(RecvError::Lagged(notices)) => {
                stream.send("colibri/notices-dropped", &NoticesLagged { watch, notices })
            }
            Ok(notice) => {
                let notice = Notice::clone(&notice);
                stream.send("colibri/notice", &NoticeNotification { watch, notice })
            }
        };
        if !goes_on {
            return;
        }
    }
}
