//! A connection that has come in, whatever it will speak.

use std::sync::Arc;

use crate::daemon::Daemon;
use crate::daemon::connections::{Connection, ConnectionKind};
use crate::relay::{AgentSocket, Client};
use colibri_peer::Tenant;
use colibri_policy::{Caller, UserUsage};

/// A connection that has come in: who it is, and what the daemon keeps of it.
pub struct InboundConnection {
    pub(super) daemon: Arc<Daemon>,
    pub(super) client: Arc<Client>,
    pub(super) connection: Arc<Connection>,
}

impl InboundConnection {
    /// It comes in; it is for who serves it to have it leave again.
    pub fn enter(daemon: Arc<Daemon>, caller: Caller) -> InboundConnection {
        let client = client(&daemon, caller, Tenant::Person(caller.uid))
            .sharing(daemon.host.shares().of(caller.uid));
        InboundConnection::of(daemon, client)
    }

    /// The same through an agent socket, for a person, as some process.
    pub(super) fn through(
        daemon: &Arc<Daemon>,
        door: &Arc<AgentSocket>,
        (person, peer): (Caller, Caller),
        share: &Arc<UserUsage>,
    ) -> InboundConnection {
        let tenant = Tenant::Agent {
            person: person.uid,
            session: door.session.clone(),
        };
        let client = client(daemon, person, tenant).through(door.clone(), peer);
        InboundConnection::of(daemon.clone(), client.sharing(share.clone()))
    }

    fn of(daemon: Arc<Daemon>, client: Client) -> InboundConnection {
        let client = Arc::new(client);
        let connection = daemon
            .connections
            .enter(client.clone(), ConnectionKind::Connection);
        InboundConnection {
            daemon,
            client,
            connection,
        }
    }

    /// It leaves without having been served.
    pub(super) fn leave(self) {
        self.client.disconnect();
        self.client.outbox.close();
        self.daemon.leave(&self.client);
    }
}

fn client(daemon: &Daemon, caller: Caller, tenant: Tenant) -> Client {
    let number = daemon.connections.next_number();
    Client::new(
        number,
        caller,
        daemon.queue_for(tenant),
        daemon.limits.in_flight,
    )
}
