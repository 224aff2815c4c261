//! A connection that has come in, whatever it will speak.

use std::sync::Arc;

use crate::daemon::Daemon;
use crate::daemon::connections::{Connection, Kind};
use crate::peer::Outbox;
use crate::policy::Caller;
use crate::relay::Client;

/// A connection that has come in: who it is, and what the daemon keeps of it.
pub struct Visitor {
    pub(super) daemon: Arc<Daemon>,
    pub(super) client: Arc<Client>,
    pub(super) connection: Arc<Connection>,
}

impl Visitor {
    /// It comes in; it is for who serves it to have it leave again.
    pub fn enter(daemon: Arc<Daemon>, caller: Caller) -> Visitor {
        let number = daemon.connections.next_number();
        let outbox = Outbox::of_client(daemon.limits.frame + daemon.limits.ahead, &daemon.budget);
        let client = Client::new(number, caller, outbox, daemon.limits.in_flight);
        let client = Arc::new(client.sharing(daemon.host.shares().of(caller.uid)));
        let connection = daemon.connections.enter(client.clone(), Kind::Connection);
        Visitor {
            daemon,
            client,
            connection,
        }
    }
}
