//! The bound on connections. Whoever showed no cookie has little time, and makes room for who comes
//! later: so that no program of this machine can keep the browser out. The server reads from each
//! once before it accepts the next, so that a request that comes with its connection is answered
//! whatever comes after it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The most connections that showed no cookie, and that did.
const MAX_STRANGERS: usize = 256;
const MAX_KNOWN: usize = 32;

/// The connections there are.
#[derive(Default)]
pub(super) struct PageConnections {
    places: Mutex<ConnectionPlaces>,
}

#[derive(Default)]
struct ConnectionPlaces {
    last: u64,
    strangers: VecDeque<(u64, AbortHandle)>,
    known: VecDeque<(u64, AbortHandle)>,
}

/// A connection's place, which it leaves when this is dropped.
pub(super) struct ConnectionPlace {
    connections: Arc<PageConnections>,
    number: u64,
}

impl PageConnections {
    /// The place of a new connection.
    pub(super) fn place(self: &Arc<Self>) -> ConnectionPlace {
        let mut places = self.places.lock();
        places.last += 1;
        ConnectionPlace {
            connections: self.clone(),
            number: places.last,
        }
    }

    /// The connection of this number is served by this task. The one that is a stranger longest
    /// makes room.
    pub(super) fn serve(&self, number: u64, task: AbortHandle) {
        push(
            &mut self.places.lock().strangers,
            MAX_STRANGERS,
            (number, task),
        );
    }
}

fn push(queue: &mut VecDeque<(u64, AbortHandle)>, most: usize, one: (u64, AbortHandle)) {
    if queue.len() >= most
        && let Some((_, oldest)) = queue.pop_front()
    {
        oldest.abort();
    }
    queue.push_back(one);
}

impl ConnectionPlace {
    /// The number of the connection.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// It showed the cookie.
    pub(super) fn is_known_now(&self) {
        let mut places = self.connections.places.lock();
        let at = places
            .strangers
            .iter()
            .position(|(number, _)| *number == self.number);
        if let Some(one) = at.and_then(|at| places.strangers.remove(at)) {
            push(&mut places.known, MAX_KNOWN, one);
        }
    }

    /// True if it has shown the cookie.
    pub(super) fn is_known(&self) -> bool {
        let places = self.connections.places.lock();
        places
            .known
            .iter()
            .any(|(number, _)| *number == self.number)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut places = self.connections.places.lock();
        places
            .strangers
            .retain(|(number, _)| *number != self.number);
        places.known.retain(|(number, _)| *number != self.number);
    }
}
