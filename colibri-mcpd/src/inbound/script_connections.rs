//! The connections on which scripts make their calls: with the rights of who runs the script, and
//! no more.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::io::DuplexStream;

use super::messages::ClientMessages;
use crate::daemon::Daemon;
use crate::daemon::connections::ConnectionKind;
use crate::relay::{Call, Client, OuterCall};
use crate::scripts::{ScriptConnection, ScriptConnector};
use colibri_peer::Tenant;
use colibri_policy::Road;

/// Bytes on their way to the script.
const PIPE: usize = 64 << 10;

/// Makes the connections of scripts.
pub struct ScriptConnections(Weak<Daemon>);

impl ScriptConnections {
    /// In this daemon.
    pub fn new(daemon: &Arc<Daemon>) -> Arc<ScriptConnections> {
        Arc::new(ScriptConnections(Arc::downgrade(daemon)))
    }
}

impl ScriptConnector for ScriptConnections {
    fn connect(&self, call: &Call) -> Option<(Box<dyn ScriptConnection>, DuplexStream)> {
        let (daemon, of) = (self.0.upgrade()?, &call.client);
        let tenant = match &of.door {
            Some(door) => Tenant::Agent {
                person: of.caller.uid,
                session: door.session.clone(),
            },
            None => Tenant::Person(of.caller.uid),
        };
        let (number, outer) = (
            daemon.connections.next_number(),
            OuterCall {
                record: call.entry.number,
            },
        );
        let client = Arc::new(of.for_script(number, outer, daemon.queue_for(tenant)));
        daemon
            .connections
            .enter(client.clone(), ConnectionKind::Request);
        let (writer, answers) = tokio::io::duplex(PIPE);
        let outbox = client.outbox.clone();
        tokio::spawn(async move { outbox.drive(writer).await });
        Some((Box::new(InnerConnection { daemon, client }), answers))
    }
}

/// One connection.
struct InnerConnection {
    daemon: Arc<Daemon>,
    client: Arc<Client>,
}

impl ScriptConnection for InnerConnection {
    fn send(&self, request: Bytes) {
        let messages = ClientMessages::of(self.daemon.clone(), self.client.clone(), Road::Script);
        let mut calls = Vec::new();
        messages.message(request, None, &mut calls);
        self.daemon.chain.accept(&mut calls);
    }
}

impl Drop for InnerConnection {
    fn drop(&mut self) {
        self.client.disconnect();
        self.client.end_with_its_calls();
        self.daemon.leave(&self.client);
    }
}
