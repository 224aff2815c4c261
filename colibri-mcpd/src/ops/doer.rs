//! Who a client is to the board.

use crate::board::Doer;
use crate::daemon::Daemon;
use crate::relay::Client;

/// The person, or the agent's instance whose door the client came through.
pub(super) fn doer<'a>(daemon: &Daemon, client: &'a Client) -> Doer<'a> {
    let door = client.door.as_deref();
    Doer {
        uid: client.caller.uid,
        agent: door.map(|door| (&*door.agent, &*door.session)),
        operator: door.is_none() && daemon.chain.rules.rights(client).operator,
    }
}
