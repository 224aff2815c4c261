//! A client's identity on the board.

use std::sync::Arc;

use colibri_api::TaskShare;
use colibri_protocol::{Code, Failure};
use colibri_text::brief;

use crate::board::BoardActor;
use crate::daemon::Daemon;
use crate::relay::Client;

/// The person, or the agent's instance at whose socket the client is.
pub(super) struct TaskActor<'a> {
    client: &'a Client,
    operator: bool,
    groups: Option<Arc<[u32]>>,
}

impl<'a> TaskActor<'a> {
    /// Looks up what the person may see. An agent sees shared tasks only if its entry says so.
    pub(super) fn of(daemon: &Daemon, client: &'a Client) -> TaskActor<'a> {
        let rules = &daemon.chain.rules;
        let door = client.door.as_deref();
        let shared = door.is_none_or(|door| door.shared_tasks);
        TaskActor {
            client,
            operator: door.is_none() && rules.rights(client).operator,
            groups: shared.then(|| rules.clients.load().groups(&client.caller)),
        }
    }

    /// The same as the board knows it.
    pub(super) fn doer(&self) -> BoardActor<'_> {
        let door = self.client.door.as_deref();
        BoardActor {
            uid: self.client.caller.uid,
            agent: door.map(|door| (&*door.agent, &*door.session)),
            operator: self.operator,
            groups: self.groups.as_deref(),
        }
    }

    /// With whom a task is shared under a name: `all`, or a group of this person's.
    ///
    /// # Errors
    /// There is no such group, or the person is not in it.
    pub(super) fn share(&self, daemon: &Daemon, name: &str) -> Result<TaskShare, Failure> {
        if name == "all" {
            return Ok(TaskShare::All);
        }
        let gid = daemon.chain.rules.clients.load().gid(name);
        let own = gid.filter(|gid| {
            self.groups
                .as_deref()
                .is_some_and(|groups| groups.contains(gid))
        });
        own.map(TaskShare::Group).ok_or_else(|| {
            let name = brief(name, 64);
            let why = match gid {
                None => format!("there is no group \"{name}\" on this host"),
                Some(_) => format!("you are not in the group \"{name}\""),
            };
            Failure::new(Code::PolicyDenied, why)
                .advising("share with all, or with a group of yours; id(1) shows them")
        })
    }
}
