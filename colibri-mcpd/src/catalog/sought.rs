//! Calls of tools that are not known yet, because their server was never seen: it is started, and they wait for it.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::Host;
use super::tool::refuse_task;
use crate::builtin;
use crate::policy::{Gate, Rights};
use crate::relay::{COLIBRI, Call, CallMetrics, Chain, Described, Outcome, Target};
use crate::servers::Server;
use colibri_protocol::{Answer, Failure, RpcError};

/// A tool that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The one that clients see under this name.
    Exposed(String),
    /// The one that this server has under this name of its own.
    Origin(String, String),
}

impl Wanted {
    /// The answer to a call of what is not there. Of a server that policy hides from the caller nothing is said, as if
    /// there were none: `known` says whether the caller may know the server that is named.
    pub fn missing(&self, known: bool) -> Outcome {
        match self {
            Wanted::Exposed(name) => Outcome::Own {
                answer: Answer::Error(RpcError::unknown_tool(name)),
                failed: true,
            },
            Wanted::Origin(server, name) => Outcome::Failed(builtin::no_such_tool(server, name, known)),
        }
    }
}

/// A tool that servers may have that were never seen.
struct Sought {
    host: Arc<Host>,
    wanted: Wanted,
    place: Place,
}

enum Place {
    /// This server has it under this name, if any has.
    At(Arc<Server>, String),
    /// One of these, which show their tools under their own names.
    Among(Vec<Arc<Server>>),
}

impl Host {
    /// The tool that is wanted, if it is known.
    fn known(&self, wanted: &Wanted) -> Option<Arc<dyn Target>> {
        match wanted {
            Wanted::Exposed(name) => self.exposed(name),
            Wanted::Origin(server, name) => Some(self.table().by_origin(server, name)?.clone()),
        }
    }

    /// The tool that clients see under a name, if it is known.
    pub fn exposed(&self, name: &str) -> Option<Arc<dyn Target>> {
        Some(self.table().by_name(name)?.clone())
    }

    /// Who answers a call of this tool. Where it is not known, but a server that the caller may see may have it that was
    /// never seen, that one is asked before the call is answered.
    ///
    /// # Errors
    /// The answer, if there is no such tool.
    pub fn find(self: &Arc<Self>, wanted: Wanted, rights: &Rights) -> Result<Arc<dyn Target>, Outcome> {
        if let Some(tool) = self.known(&wanted) {
            return Ok(tool);
        }
        let servers = self.servers();
        let visible = |server: &&Arc<Server>| rights.sees_any(&server.id);
        let (named, name) = match &wanted {
            // An id has no underscore, so the first two end it.
            Wanted::Exposed(exposed) => match exposed.split_once("__") {
                Some((id, name)) => (servers.get(id).filter(|server| server.entry.prefix), name),
                None => (None, exposed.as_str()),
            },
            Wanted::Origin(id, name) => (servers.get(id), name.as_str()),
        };
        let place = match (named, &wanted) {
            (Some(server), _) if visible(&server) && !server.offer.is_in_table() => {
                Some(Place::At(server.clone(), name.to_owned()))
            }
            (None, Wanted::Exposed(_)) => {
                let bare = servers
                    .values()
                    .filter(|server| !server.entry.prefix && !server.offer.is_in_table());
                let bare: Vec<_> = bare.filter(visible).cloned().collect();
                (!bare.is_empty()).then_some(Place::Among(bare))
            }
            _ => None,
        };
        match place {
            Some(place) => Ok(Arc::new(Sought {
                host: self.clone(),
                wanted,
                place,
            })),
            None => Err(wanted.missing(named.as_ref().is_some_and(visible))),
        }
    }
}

impl Sought {
    /// Goes on with a call once its servers have been asked.
    fn go_on(&self, chain: &Arc<Chain>, call: Box<Call>) {
        match self.host.known(&self.wanted) {
            Some(target) => chain.redirect(call, target),
            None => chain.finish(vec![(call, self.wanted.missing(true))]),
        }
    }
}

impl Target for Sought {
    fn describe(&self) -> Described<'_> {
        let (server, operation) = match (&self.place, &self.wanted) {
            (Place::At(server, name), _) => (&*server.id, name),
            (Place::Among(_), Wanted::Exposed(name) | Wanted::Origin(_, name)) => (COLIBRI, name),
        };
        // A client's own words go to the records: no more of them than a tool's name can have.
        let end = operation
            .char_indices()
            .nth(200)
            .map_or(operation.len(), |(end, _)| end);
        Described {
            server,
            operation: &operation[..end],
            gate: Gate::External,
        }
    }

    fn metrics(&self) -> Option<&CallMetrics> {
        match &self.place {
            Place::At(server, _) => Some(&server.metrics),
            Place::Among(_) => None,
        }
    }

    fn in_full(&self, bytes: &[u8]) -> Option<Box<RawValue>> {
        match &self.place {
            Place::At(server, _) => server.in_full(bytes),
            Place::Among(_) => None,
        }
    }

    fn check(&self, call: &mut Call) -> Result<(), Failure> {
        refuse_task(call, self.describe().server)
    }

    fn send(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) {
        let chain = chain.clone();
        tokio::spawn(async move {
            let (caller, connection) = (call.client.caller, call.client.session.number);
            match &self.place {
                Place::At(server, _) => {
                    let key = server.key(&caller, connection);
                    let then = |_: &_, call| {
                        self.go_on(&chain, call);
                        Ok(())
                    };
                    server.clone().with_process(key, call, then).await;
                }
                Place::Among(servers) => {
                    self.host.discover(servers, &caller, connection);
                    self.host.settled(servers).await;
                    self.go_on(&chain, call);
                }
            }
        });
    }
}
