//! A connection that has come in, whatever it will speak.

use std::sync::Arc;

use crate::daemon::Daemon;
use crate::daemon::connections::{Connection, ConnectionKind};
use crate::relay::{AgentSocket, Client};
use colibri_peer::Tenant;
use colibri_policy::{Caller, Road, UserUsage};

/// A connection that has come in: who it is, and what the daemon keeps of it.
pub struct InboundConnection {
    pub(super) daemon: Arc<Daemon>,
    pub(super) client: Arc<Client>,
    pub(super) connection: Arc<Connection>,
    /// The road by which its calls come.
    pub(super) road: Road,
}

impl InboundConnection {
    /// It comes in; it is for who serves it to have it leave again.
    pub fn enter(daemon: Arc<Daemon>, caller: Caller) -> InboundConnection {
        InboundConnection::enter_by(daemon, caller, Road::Lines)
    }

    /// The same by a road that the daemon itself takes.
    pub(super) fn enter_by(daemon: Arc<Daemon>, caller: Caller, road: Road) -> InboundConnection {
        let client = client(&daemon, caller, Tenant::Person(caller.uid))
            .sharing(daemon.host.shares().of(caller.uid));
        InboundConnection::of(daemon, client, road)
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
        let client = client.sharing(share.clone());
        InboundConnection::of(daemon.clone(), client, Road::AgentSocket)
    }

    fn of(daemon: Arc<Daemon>, client: Client, road: Road) -> InboundConnection {
        let client = Arc::new(client);
        let connection = daemon
            .connections
            .enter(client.clone(), ConnectionKind::Connection);
        InboundConnection {
            daemon,
            client,
            connection,
            road,
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
