//! The topic `tasks` of `colibri/watch`: changes of tasks as they are made, for everybody of those
//! they may see.

use std::sync::Arc;

use colibri_api::TaskChanged;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::method::MethodCall;
use super::stream::AnswerStream;
use super::task_actor::TaskActor;
use crate::board::TaskChange;
use crate::builtin::store_failure;
use crate::relay::CallOutcome;
use colibri_protocol::{Code, Failure};

/// Begins to tell changes of tasks, or of this task alone.
pub(super) fn watch(wanted: Option<u64>, request: MethodCall) {
    tokio::spawn(async move {
        // Subscribed before the task is read, so that no change is missed in between.
        let changes = request.daemon.board.watch();
        let (daemon, client) = (request.daemon.clone(), request.call.client.clone());
        // The store is read: not on a thread that serves clients.
        let read = tokio::task::spawn_blocking(move || {
            let actor = TaskActor::of(&daemon, &client);
            let one = |id| daemon.board.task(actor.doer(), id).map(|(task, _)| task);
            wanted.map(one).transpose()
        });
        let refused = match read.await {
            Ok(Ok(task)) => {
                let stream = AnswerStream::begin(request);
                if stream.tell_subscribed(task, None) {
                    tell(stream, changes, wanted).await;
                }
                return;
            }
            Ok(Err(error)) => store_failure(error),
            Err(error) => Failure::new(Code::Internal, error.to_string()),
        };
        request.finish(CallOutcome::Failed(refused));
    });
}

async fn tell(stream: AnswerStream, mut changes: Receiver<Arc<TaskChange>>, wanted: Option<u64>) {
    loop {
        let change = tokio::select! {
            biased;
            () = stream.held.over() => return,
            change = changes.recv() => change,
        };
        if !stream.has_room().await {
            return;
        }
        let goes_on = match change {
            Err(RecvError::Closed) => return stream.end("the daemon is ending"),
            Err(RecvError::Lagged(changes)) => {
                // To anybody else the number would say what others do.
                let actor = TaskActor::of(&stream.daemon, &stream.client);
                stream.tell_dropped(actor.doer().operator.then_some(changes))
            }
            Ok(change) => {
                let TaskChange { task, from } = &*change;
                let actor = TaskActor::of(&stream.daemon, &stream.client);
                if wanted.is_some_and(|wanted| wanted != task.id)
                    || !stream.daemon.board.sees(actor.doer(), task)
                {
                    continue;
                }
                let (watch, from, task) = (stream.id(), *from, task.clone());
                stream.send("colibri/task", &TaskChanged { watch, from, task })
            }
        };
        if !goes_on {
            return;
        }
    }
}
