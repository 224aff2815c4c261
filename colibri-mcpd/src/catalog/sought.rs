//! Who has what a client asks for. What is not known yet, because its server was never seen, is sought: the server is
//! started, and the request waits for it.

use std::sync::Arc;

use super::Host;
use super::item::refuse_task;
use crate::builtin;
use crate::policy::{Gate, Rights};
use crate::relay::{COLIBRI, Call, Chain, Described, Outcome, Target, Upstream, no_such_tool};
use crate::servers::Server;
use colibri_protocol::{Failure, Feature, RpcError, Version};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The tool or prompt that clients see under this name.
    Exposed(Feature, String),
    /// The same of a tool, for `colibri_call_tool`.
    Called(String),
    /// The tool that this server has under this name of its own.
    Origin(String, String),
    /// The resource, or the template, that clients see under this URI.
    Uri(Feature, String),
    /// What this server has under this name or URI of its own, for who sees it alone.
    Own(Feature, Arc<str>, String),
}

/// Where something is that was looked for.
pub(super) enum Look {
    /// It is known.
    Here(Arc<dyn Target>),
    /// Servers may have it that were never seen.
    Seek(Place),
    /// Nobody has it, for this reason if there is one to tell.
    Missing(Option<&'static str>),
}

/// Servers that were never seen.
pub(super) enum Place {
    /// This server has it under this name or URI, if any has.
    At(Arc<Server>, String),
    /// One of these, which show what they have under their own names.
    Among(Vec<Arc<Server>>),
}

impl Place {
    /// One of these: where there is but one, it is the one that a call is for.
    pub(super) fn among(mut servers: Vec<Arc<Server>>, name: &str) -> Option<Place> {
        match servers.len() {
            0 | 1 => Some(Place::At(servers.pop()?, name.to_owned())),
            _ => Some(Place::Among(servers)),
        }
    }
}

impl Wanted {
    /// What it is.
    fn feature(&self) -> Feature {
        match self {
            Wanted::Exposed(feature, _) | Wanted::Uri(feature, _) | Wanted::Own(feature, ..) => *feature,
            Wanted::Origin(..) | Wanted::Called(_) => Feature::Tool,
        }
    }

    /// The answer to who asks for what is not there. Of a server that policy hides from the caller nothing is said, as
    /// if there were none: `known` says whether the caller may know the server that is named.
    fn missing(&self, why: Option<&str>, known: bool, version: Version) -> Outcome {
        Outcome::error(match self {
            Wanted::Exposed(feature, name) | Wanted::Own(feature @ (Feature::Tool | Feature::Prompt), _, name) => {
                RpcError::unknown(feature.noun(), name, why)
            }
            Wanted::Uri(_, uri) | Wanted::Own(_, _, uri) => RpcError::unknown_resource(uri, why, version),
            Wanted::Origin(server, name) => return Outcome::Failed(builtin::no_such_tool(server, name, known)),
            Wanted::Called(name) => return Outcome::Failed(no_such_tool(name)),
        })
    }
}

/// What servers may have that were never seen.
struct Sought {
    host: Arc<Host>,
    wanted: Wanted,
    place: Place,
}

impl Host {
    /// What clients see under a name, if it is known.
    pub fn exposed(&self, feature: Feature, name: &str) -> Option<Arc<dyn Target>> {
        Some(self.table().by_name(feature, name)?.clone())
    }

    /// Who answers a request for this, of a client with these rights in this version. Where it is not known, but a
    /// server that the caller may see may have it that was never seen, that one is asked before the request is
    /// answered.
    ///
    /// # Errors
    /// The answer, if there is no such thing.
    pub fn find(
        self: &Arc<Self>,
        wanted: Wanted,
        rights: &Rights,
        version: Version,
    ) -> Result<Arc<dyn Target>, Outcome> {
        match self.look(&wanted, rights) {
            Look::Here(target) => Ok(target),
            Look::Seek(place) => Ok(Arc::new(Sought {
                host: self.clone(),
                wanted,
                place,
            })),
            Look::Missing(why) => {
                let known = match &wanted {
                    Wanted::Origin(id, _) => self.servers().contains_key(id) && rights.sees_any(id),
                    Wanted::Exposed(..) | Wanted::Called(_) | Wanted::Uri(..) | Wanted::Own(..) => false,
                };
                Err(wanted.missing(why, known, version))
            }
        }
    }

    fn look(&self, wanted: &Wanted, rights: &Rights) -> Look {
        let look = self.look_everywhere(wanted, rights);
        if !rights.is_agents() {
            return look;
        }
        // What an agent may not use is to it as if nobody had it.
        let sees = match &look {
            Look::Here(target) => {
                let found = target.describe();
                rights.sees(found.server, found.feature, found.operation)
            }
            Look::Seek(Place::At(server, own)) => rights.sees(&server.id, wanted.feature(), own),
            Look::Seek(Place::Among(_)) | Look::Missing(_) => true,
        };
        if sees { look } else { Look::Missing(None) }
    }

    fn look_everywhere(&self, wanted: &Wanted, rights: &Rights) -> Look {
        let here = |target: Option<Arc<dyn Target>>| target.map(Look::Here);
        match wanted {
            Wanted::Exposed(feature, name) => {
                here(self.exposed(*feature, name)).unwrap_or_else(|| match self.look_among_unseen(name, rights) {
                    Look::Missing(_) if *feature == Feature::Tool => self.look_by_own_name(name, rights),
                    look => look,
                })
            }
            Wanted::Called(name) => {
                let known = here(self.exposed(Feature::Tool, name));
                known.unwrap_or_else(|| self.look_among_unseen(name, rights))
            }
            Wanted::Own(feature, id, own) => {
                let servers = self.servers();
                let Some(server) = servers.get(&**id).filter(|_| rights.sees_any(id)) else {
                    return Look::Missing(None);
                };
                match feature {
                    Feature::Resource | Feature::Template => self.look_at(server, *feature, own),
                    Feature::Tool | Feature::Prompt if !server.offer.is_in_table() => {
                        Look::Seek(Place::At(server.clone(), own.clone()))
                    }
                    Feature::Tool | Feature::Prompt => {
                        let table = self.table();
                        let item = table.by_own_name(*feature, id, own).cloned();
                        item.map_or(Look::Missing(None), |item| Look::Here(item))
                    }
                }
            }
            Wanted::Origin(id, name) => {
                let known = |table: Arc<super::Table>| {
                    Some(table.by_origin(Feature::Tool, id, name)?.clone() as Arc<dyn Target>)
                };
                let servers = self.servers();
                let unseen = |server: &&Arc<Server>| rights.sees_any(id) && !server.offer.is_in_table();
                here(known(self.table())).unwrap_or_else(|| match servers.get(id).filter(unseen) {
                    Some(server) => Look::Seek(Place::At(server.clone(), name.clone())),
                    None => Look::Missing(None),
                })
            }
            Wanted::Uri(feature, uri) => self.look_for_uri(*feature, uri, rights),
        }
    }

    /// The tool that one server alone has under this name of its own: the page of an app knows its server's tools by no
    /// other names.
    fn look_by_own_name(&self, own: &str, rights: &Rights) -> Look {
        let table = self.table();
        let seen = |item: &&Arc<super::item::Item>| {
            item.standing.is_approved() && rights.sees(&item.server.id, Feature::Tool, own)
        };
        let mut tools = table.tools_called(own).iter().filter(seen);
        match (tools.next(), tools.next()) {
            (Some(item), None) => Look::Here(item.clone()),
            (Some(_), Some(_)) => Look::Missing(Some(
                "several servers have a tool of that name: call it as SERVER__TOOL, or see one server alone (--only)",
            )),
            (None, _) => Look::Missing(None),
        }
    }

    /// The servers that may have what clients would see under this name, and that were never seen.
    fn look_among_unseen(&self, exposed: &str, rights: &Rights) -> Look {
        let servers = self.servers();
        let wanted = |server: &&Arc<Server>| rights.sees_any(&server.id) && !server.offer.is_in_table();
        // An id has no underscore, so the first two end it.
        let named = exposed
            .split_once("__")
            .and_then(|(id, name)| Some((servers.get(id)?, name)));
        if let Some((server, name)) = named.filter(|(server, _)| server.entry.prefix) {
            return match Some(server).filter(wanted) {
                Some(server) => Look::Seek(Place::At(server.clone(), name.to_owned())),
                None => Look::Missing(None),
            };
        }
        let bare = servers.values().filter(|server| !server.entry.prefix).filter(wanted);
        Place::among(bare.cloned().collect(), exposed).map_or(Look::Missing(None), Look::Seek)
    }
}

impl Sought {
    /// Goes on with a call once its servers have been asked.
    fn go_on(&self, chain: &Arc<Chain>, call: Box<Call>) {
        let rights = chain.rules.rights(&call.client);
        let missing = |why| self.wanted.missing(why, true, call.version);
        match self.host.look(&self.wanted, &rights) {
            Look::Here(target) => chain.redirect(call, target),
            Look::Seek(_) => {
                let outcome = missing(Some("a server that may have it could not be asked"));
                chain.finish(vec![(call, outcome)]);
            }
            Look::Missing(why) => {
                let outcome = missing(why);
                chain.finish(vec![(call, outcome)]);
            }
        }
    }
}

impl Target for Sought {
    fn describe(&self) -> Described<'_> {
        let (server, operation) = match (&self.place, &self.wanted) {
            (Place::At(server, name), _) => (&*server.id, name),
            (
                Place::Among(_),
                Wanted::Exposed(_, name)
                | Wanted::Called(name)
                | Wanted::Uri(_, name)
                | Wanted::Origin(_, name)
                | Wanted::Own(_, _, name),
            ) => (COLIBRI, name),
        };
        // A client's own words go to the records: no more of them than a tool's name can have.
        let end = operation
            .char_indices()
            .nth(200)
            .map_or(operation.len(), |(end, _)| end);
        Described {
            server,
            feature: self.wanted.feature(),
            operation: &operation[..end],
            gate: Gate::External,
        }
    }

    fn is_named(&self) -> bool {
        false
    }

    fn upstream(&self) -> Option<&dyn Upstream> {
        match &self.place {
            Place::At(server, _) => Some(&**server),
            Place::Among(_) => None,
        }
    }

    fn check(&self, call: &mut Call) -> Result<(), Failure> {
        refuse_task(call, self.describe().server)
    }

    fn send(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) {
        let chain = chain.clone();
        tokio::spawn(async move {
            let client = call.client.clone();
            match &self.place {
                Place::At(server, _) => {
                    let key = server.key(&client.caller, client.session.owner());
                    let then = |_: &_, call| {
                        self.go_on(&chain, call);
                        Ok(())
                    };
                    server.clone().with_process(key, call, then).await;
                }
                Place::Among(servers) => {
                    self.host.discover(servers, &client);
                    self.host.settled(servers).await;
                    self.go_on(&chain, call);
                }
            }
        });
    }
}
