//! `colibri/watch-tasks`: changes of tasks as they are made, for everybody of those they may see.

use std::sync::Arc;

use colibri_api::{TaskChanged, TasksLagged, TasksSubscribed, WatchTasksRequest};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::stream::AnswerStream;
use super::task_actor::TaskActor;
use crate::board::TaskChange;
use crate::daemon::Daemon;
use crate::relay::{Call, CallOutcome, Chain};
use colibri_protocol::{Code, Failure};

/// Begins to tell.
pub(super) fn start(daemon: &Arc<Daemon>, chain: &Arc<Chain>, call: Box<Call>, asked: &WatchTasksRequest) {
    let (daemon, chain, wanted) = (daemon.clone(), chain.clone(), asked.task);
    tokio::spawn(async move {
        // From here on, so that nothing is missed between what is read and what is told.
        let changes = daemon.board.watch();
        let (board, client) = (daemon.clone(), call.client.clone());
        // The store is read: not on a thread that serves clients.
        let read = tokio::task::spawn_blocking(move || {
            let actor = TaskActor::of(&board, &client);
            let one = |id| board.board.task(actor.doer(), id).map(|(task, _)| task);
            wanted.map(one).transpose()
        });
        let refused = match read.await {
            Ok(Ok(task)) => {
                let stream = AnswerStream::begin(&daemon, &chain, call);
                let watch = stream.id();
                if stream.send("colibri/watching-tasks", &TasksSubscribed { watch, task }) {
                    tell(stream, changes, wanted).await;
                }
                return;
            }
            Ok(Err(error)) => Failure::from(error),
            Err(error) => Failure::new(Code::Internal, error.to_string()),
        };
        chain.finish(vec![(call, CallOutcome::Failed(refused))]);
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
        let watch = stream.id();
        let goes_on = match change {
            Err(RecvError::Closed) => return stream.end("the daemon is ending"),
            Err(RecvError::Lagged(changes)) => {
                // To anybody else the number would say what others do.
                let actor = TaskActor::of(&stream.daemon, &stream.client);
                let changes = actor.doer().operator.then_some(changes);
                stream.send("colibri/tasks-dropped", &TasksLagged { watch, changes })
            }
            Ok(change) => {
                let TaskChange { task, from } = &*change;
                let actor = TaskActor::of(&stream.daemon, &stream.client);
                if wanted.is_some_and(|wanted| wanted != task.id) || !stream.daemon.board.sees(actor.doer(), task) {
                    continue;
                }
                let (from, task) = (*from, task.clone());
                stream.send("colibri/task", &TaskChanged { watch, from, task })
            }
        };
        if !goes_on {
            return;
        }
    }
}
