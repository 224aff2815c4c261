//! Clients are woken when something is theirs to do.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::sleep;

use super::Daemon;
use super::wake::WakeEvent;

/// The time for which events are gathered after some were told, so that many are no flood of
/// changed lists.
const PAUSE: Duration = Duration::from_millis(20);

/// All that a receiver has now. What it has lost is nobody's to do any more, or is found by whoever
/// looks.
fn drain<T: Clone>(
    receiver: &mut Receiver<T>,
    wakes: &mut Vec<WakeEvent>,
    of: impl Fn(&T) -> Option<WakeEvent>,
) {
    loop {
        match receiver.try_recv() {
            Ok(event) => wakes.extend(of(&event)),
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

/// An event, or why there is none; `Err`: there never will be.
fn next<T>(
    event: Result<T, RecvError>,
    of: impl Fn(&T) -> Option<WakeEvent>,
) -> Result<Option<WakeEvent>, ()> {
    match event {
        Ok(event) => Ok(of(&event)),
        Err(RecvError::Lagged(_)) => Ok(None),
        Err(RecvError::Closed) => Err(()),
    }
}

impl Daemon {
    /// Wakes clients, for as long as it is waited for.
    pub(crate) async fn wake_always(self: &Arc<Daemon>) {
        let mut tasks = self.board.watch();
        let mut approvals = self.chain.approvals.watch();
        let mut notices = self.notices.watch();
        loop {
            let first = tokio::select! {
                change = tasks.recv() => next(change, |change| WakeEvent::of_task(change)),
                change = approvals.recv() => next(change, WakeEvent::of_approval),
                notice = notices.recv() => next(notice, WakeEvent::of_notice),
            };
            let Ok(first) = first else { return };
            let mut wakes: Vec<WakeEvent> = first.into_iter().collect();
            drain(&mut tasks, &mut wakes, |change| WakeEvent::of_task(change));
            drain(&mut approvals, &mut wakes, WakeEvent::of_approval);
            drain(&mut notices, &mut wakes, WakeEvent::of_notice);
            if !wakes.is_empty() {
                self.connections.wake(&wakes);
                sleep(PAUSE).await;
            }
        }
    }
}
