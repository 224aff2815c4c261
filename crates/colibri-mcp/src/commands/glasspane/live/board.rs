//! The thread that watches tasks. Watching is no call, while a list of them would be one each time.

use std::ops::ControlFlow;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::super::html::list_tasks;
use super::feed::LiveOrder;
use crate::commands::context::CommandContext;
use crate::connection::read;
use crate::failure::CommandError;
use colibri_api::{TaskChanged, WatchRequest};

/// The wait before tasks are watched again: the daemon was away, or told more than was read.
const AGAIN: Duration = Duration::from_secs(2);

/// Sends changes of tasks until nobody listens any more.
pub(super) fn watch(context: &CommandContext, orders: &SyncSender<LiveOrder>) {
    let changes = || watch_once(context, orders);
    // While the daemon is away the page says so.
    while !matches!(changes(), Ok(ControlFlow::Break(()))) {
        std::thread::sleep(AGAIN);
        let tasks = context
            .connect()
            .and_then(|mut connection| list_tasks(&mut connection));
        if tasks.is_ok_and(|tasks| orders.send(LiveOrder::Tasks(tasks)).is_err()) {
            return;
        }
    }
}

/// Breaks where nobody listens any more; else the daemon has ended the watch, or something was left
/// out.
fn watch_once(
    context: &CommandContext,
    orders: &SyncSender<LiveOrder>,
) -> Result<ControlFlow<()>, CommandError> {
    let mut is_heard = true;
    let asked = WatchRequest::Tasks { task: None };
    context
        .connect()?
        .listen("colibri/watch", &asked, |_, name, params| {
            match name {
                "colibri/task" => {
                    let TaskChanged { task, .. } = read(name, params)?;
                    is_heard = orders.send(LiveOrder::Task(Box::new(task))).is_ok();
                }
                "colibri/dropped" => return Ok(ControlFlow::Break(())),
                _ => {}
            }
            Ok::<_, CommandError>(match is_heard {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        })?;
    Ok(match is_heard {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    })
}
