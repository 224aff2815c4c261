//! Lookup of the item that a client requests. What is not known yet, because its server was never
//! seen, is sought: the server is started, and the request waits for it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::ServerHost;
use crate::builtin;
use crate::relay::{
    Call, CallHandler, CallOutcome, CallTarget, Chain, Destination, ServerCall, TargetDescription,
    TargetRules, no_such_tool,
};
use crate::servers::HostedServer;
use colibri_policy::{Gate, Rights};
use colibri_protocol::{Failure, Feature, RpcError, Version};

/// The most bytes of an unknown name that is compared with known ones, and the most of these: any
/// client can ask.
const MAX_NEAR: usize = 64;
const MAX_COMPARED: usize = 500;

/// The item that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupKey {
    /// The tool or prompt that clients see under this name.
    Exposed(Feature, String),
    /// The same of a tool, for `colibri_call_tool`.
    Called(String),
    /// The tool that this server has under this name of its own.
    Origin(String, String),
    /// The resource, or the template, that clients see under this URI.
    Uri(Feature, String),
    /// The item of this server with this name or URI of its own, for a client that sees this server
    /// alone.
    Own(Feature, Arc<str>, String),
}

/// The place where an item was found.
pub(super) enum Look {
    /// It is known.
    Here(Arc<CallTarget>),
    /// Servers may have it that were never seen.
    Seek(UnseenServers),
    /// Nobody has it, for this reason if there is one to tell.
    Missing(Option<&'static str>),
}

/// Servers that were never seen.
pub(super) enum UnseenServers {
    /// This server has it under this name or URI, if any has.
    At(Arc<HostedServer>, String),
    /// One of these, which show what they have under their own names.
    Among(Vec<Arc<HostedServer>>),
}

impl UnseenServers {
    /// One of these: where there is but one, it is the one that a call is for.
    pub(super) fn among(mut servers: Vec<Arc<HostedServer>>, name: &str) -> Option<UnseenServers> {
        match servers.len() {
            0 | 1 => Some(UnseenServers::At(servers.pop()?, name.to_owned())),
            _ => Some(UnseenServers::Among(servers)),
        }
    }
}

impl LookupKey {
    /// The kind of item.
    fn feature(&self) -> Feature {
        match self {
            LookupKey::Exposed(feature, _)
            | LookupKey::Uri(feature, _)
            | LookupKey::Own(feature, ..) => *feature,
            LookupKey::Origin(..) | LookupKey::Called(_) => Feature::Tool,
        }
    }

    /// The name or URI.
    fn name(&self) -> &String {
        let (LookupKey::Exposed(_, name)
        | LookupKey::Called(name)
        | LookupKey::Uri(_, name)
        | LookupKey::Origin(_, name)
        | LookupKey::Own(_, _, name)) = self;
        name
    }

    /// The target that this refuses: of which account it is meant to be is not known.
    fn of_no_account(&self, refusal: Failure) -> Arc<CallTarget> {
        let rules = TargetRules {
            account_refusal: Some(Box::new(refusal)),
            ..TargetRules::default()
        };
        let description = self.description(None);
        CallTarget::new(description, rules, Destination::Known(Mutex::default()))
    }

    /// The description of the lookup at these servers.
    fn description(&self, place: Option<&UnseenServers>) -> TargetDescription {
        let (server, operation) = match place {
            Some(UnseenServers::At(server, name)) => (Some(server), name),
            Some(UnseenServers::Among(_)) | None => (None, self.name()),
        };
        // A client's own words go to the records: no more of them than a tool's name can have.
        let end = operation.char_indices().nth(200);
        let operation = &operation[..end.map_or(operation.len(), |(end, _)| end)];
        let description = match server {
            Some(server) => TargetDescription::of_server(
                (&server.spec.id, server.clone()),
                self.feature(),
                operation,
            ),
            None => TargetDescription::of_colibri(operation, Gate::External),
        };
        TargetDescription {
            feature: self.feature(),
            is_named: false,
            ..description
        }
    }

    /// The answer to who asks for what is not there. Of a server that policy hides from the caller
    /// nothing is said, as if there were none: `known` says whether the caller may know the server
    /// that is named. `near` is the nearest name that the caller may use.
    fn missing(
        &self,
        why: Option<&str>,
        known: bool,
        near: Option<String>,
        version: Version,
    ) -> CallOutcome {
        let near = near.map(|near| format!("did you mean \"{near}\"?"));
        CallOutcome::error(match self {
            LookupKey::Exposed(feature, name)
            | LookupKey::Own(feature @ (Feature::Tool | Feature::Prompt), _, name) => {
                RpcError::unknown(feature.noun(), name, why.or(near.as_deref()))
            }
            // -32602 in every version (SEP-2640, "Error Handling").
            LookupKey::Uri(Feature::Skill, uri) | LookupKey::Own(Feature::Skill, _, uri) => {
                RpcError::unknown("skill", uri, why)
            }
            LookupKey::Uri(_, uri) | LookupKey::Own(_, _, uri) => {
                RpcError::unknown_resource(uri, why, version)
            }
            LookupKey::Origin(server, name) => {
                let failure = builtin::no_such_tool(server, name, known);
                return CallOutcome::Failed(match near {
                    Some(near) => failure.advising(near),
                    None => failure,
                });
            }
            LookupKey::Called(name) => return CallOutcome::Failed(no_such_tool(name)),
        })
    }
}

/// A lookup among servers that were never seen.
struct DiscoveryLookup {
    host: Arc<ServerHost>,
    wanted: LookupKey,
    place: UnseenServers,
}

impl ServerHost {
    /// The item that clients see under a name, if it is known.
    pub fn exposed(&self, feature: Feature, name: &str) -> Option<Arc<CallTarget>> {
        Some(self.table().by_name(feature, name)?.target().clone())
    }

    /// The target that answers a request for this, of a client with these rights in this version.
    /// Where it is not known, but a server that the caller may see may have it that was never seen,
    /// that one is asked before the request is answered.
    ///
    /// # Errors
    /// The answer, if there is no such thing.
    pub fn find(
        self: &Arc<Self>,
        wanted: LookupKey,
        rights: &Rights,
        version: Version,
    ) -> Result<Arc<CallTarget>, CallOutcome> {
        let wanted = match self.of_account(&wanted, rights) {
            Ok(Some(meant)) => meant,
            Ok(None) => wanted,
            Err(refusal) => return Ok(wanted.of_no_account(refusal)),
        };
        match self.look(&wanted, rights) {
            Look::Here(target) => Ok(target),
            Look::Seek(place) => Ok(self.discovery_target(wanted, place)),
            Look::Missing(why) => {
                let known = match &wanted {
                    LookupKey::Origin(id, _) => {
                        self.servers().contains_key(id) && rights.sees_any(id)
                    }
                    LookupKey::Exposed(..)
                    | LookupKey::Called(_)
                    | LookupKey::Uri(..)
                    | LookupKey::Own(..) => false,
                };
                Err(wanted.missing(why, known, self.nearest(&wanted, rights), version))
            }
        }
    }

    /// The target of what servers may have that were never seen: they are asked, and the call
    /// enters again.
    pub(super) fn discovery_target(
        self: &Arc<Self>,
        wanted: LookupKey,
        place: UnseenServers,
    ) -> Arc<CallTarget> {
        let rules = TargetRules {
            refuses_tasks: true,
            ..TargetRules::default()
        };
        let description = wanted.description(Some(&place));
        let lookup = DiscoveryLookup {
            host: self.clone(),
            wanted,
            place,
        };
        CallTarget::handled(description, rules, Arc::new(lookup))
    }

    /// The key of the item that a client means that names an entry with accounts as a server: the
    /// item of the account that policy says. `None`: it names no such entry.
    ///
    /// # Errors
    /// As [`ServerHost::server_meant`].
    fn of_account(
        &self,
        wanted: &LookupKey,
        rights: &Rights,
    ) -> Result<Option<LookupKey>, Failure> {
        let named = match wanted {
            LookupKey::Exposed(_, name) | LookupKey::Called(name) => name.split_once("__"),
            LookupKey::Origin(id, own) => Some((id.as_str(), own.as_str())),
            LookupKey::Uri(..) | LookupKey::Own(..) => None,
        };
        let Some((named, own)) =
            named.filter(|(named, _)| !self.servers.load().contains_key(*named))
        else {
            return Ok(None);
        };
        let id = self.server_meant(named, rights)?;
        if id == named {
            return Ok(None);
        }
        let table = self.table();
        let known = match wanted {
            LookupKey::Exposed(feature, name) => table.by_shown_name(*feature, name, rights),
            LookupKey::Called(name) => table.by_shown_name(Feature::Tool, name, rights),
            _ => None,
        };
        Ok(Some(match wanted.feature() {
            Feature::Tool => LookupKey::Origin(id, known.map_or(own, |item| &item.own).to_owned()),
            feature => LookupKey::Exposed(
                feature,
                known.map_or_else(|| format!("{id}__{own}"), |item| item.exposed.clone()),
            ),
        }))
    }

    /// The server that a client is to see alone that names it so.
    pub(crate) fn only_meant(&self, named: &str, rights: &Rights) -> String {
        self.server_meant(named, rights)
            .unwrap_or_else(|_| named.to_owned())
    }

    /// The id of the server that a client means: of an entry with accounts the account that policy
    /// says, and any other id as it is.
    ///
    /// # Errors
    /// Policy says none, or one that is not there for this client. Of accounts that it may not see
    /// nothing is said.
    pub(crate) fn server_meant(&self, named: &str, rights: &Rights) -> Result<String, Failure> {
        let servers = self.servers();
        if servers.contains_key(named) {
            return Ok(named.to_owned());
        }
        let is_there = |id: &String, server: &HostedServer| {
            server.is_account() && server.spec.entry.entry_id == named && rights.sees_any(id)
        };
        let accounts = servers.iter().filter(|(id, server)| is_there(id, server));
        let accounts: Vec<&str> = accounts.map(|(id, _)| id.as_str()).collect();
        match accounts.is_empty() {
            true => Ok(named.to_owned()),
            false => rights.account_among(named, &accounts).map(str::to_owned),
        }
    }

    /// The name nearest to one that nothing has, among those that this client may use: of a tool or
    /// prompt, or, where a server is named that there is not, of a server.
    fn nearest(&self, wanted: &LookupKey, rights: &Rights) -> Option<String> {
        let (feature, name, server) = match wanted {
            LookupKey::Exposed(feature, name) => (*feature, name, None),
            LookupKey::Own(feature, id, name) => (*feature, name, Some(&**id)),
            LookupKey::Origin(id, name) => (Feature::Tool, name, Some(&**id)),
            LookupKey::Called(_) | LookupKey::Uri(..) => return None,
        };
        let servers = self.servers();
        if let Some(id) = server.filter(|id| !servers.contains_key(*id) || !rights.sees_any(id)) {
            let ids = servers.keys().filter(|id| rights.sees_any(id));
            return near(id, ids.map(|id| &**id));
        }
        let table = self.table();
        let sees = |item: &&Arc<super::item::Item>| {
            let id = &*item.server.spec.id;
            server.is_none_or(|server| server == id) && rights.sees(id, feature, &item.own)
        };
        let seen = table.offered(feature).filter(sees);
        near(
            name,
            seen.map(|item| {
                if server.is_some() {
                    &*item.own
                } else {
                    &*item.exposed
                }
            }),
        )
    }

    fn look(self: &Arc<Self>, wanted: &LookupKey, rights: &Rights) -> Look {
        let look = self.look_everywhere(wanted, rights);
        if !rights.is_agents() {
            return look;
        }
        // What an agent may not use is to it as if nobody had it.
        let sees = match &look {
            Look::Here(target) => {
                let found = target.description();
                rights.sees(&found.server, found.feature, &found.operation)
            }
            Look::Seek(UnseenServers::At(server, own)) => {
                rights.sees(&server.spec.id, wanted.feature(), own)
            }
            Look::Seek(UnseenServers::Among(_)) | Look::Missing(_) => true,
        };
        if sees { look } else { Look::Missing(None) }
    }

    fn look_everywhere(self: &Arc<Self>, wanted: &LookupKey, rights: &Rights) -> Look {
        let here = |target: Option<Arc<CallTarget>>| target.map(Look::Here);
        match wanted {
            LookupKey::Exposed(feature, name) => {
                here(self.exposed(*feature, name)).unwrap_or_else(|| {
                    match self.look_among_unseen(name, rights) {
                        Look::Missing(_) if *feature == Feature::Tool => {
                            self.look_by_own_name(name, rights)
                        }
                        look => look,
                    }
                })
            }
            LookupKey::Called(name) => {
                let known = here(self.exposed(Feature::Tool, name));
                known.unwrap_or_else(|| self.look_among_unseen(name, rights))
            }
            LookupKey::Own(feature, id, own) => {
                let servers = self.servers();
                let Some(server) = servers.get(&**id).filter(|_| rights.sees_any(id)) else {
                    return Look::Missing(None);
                };
                match feature {
                    Feature::Resource | Feature::Template | Feature::Skill => {
                        self.look_at(server, *feature, own)
                    }
                    Feature::Tool | Feature::Prompt if !server.offer.is_in_table() => {
                        Look::Seek(UnseenServers::At(server.clone(), own.clone()))
                    }
                    Feature::Tool | Feature::Prompt => {
                        let table = self.table();
                        let item = table.by_own_name(*feature, id, own);
                        item.map_or(Look::Missing(None), |item| {
                            Look::Here(item.target().clone())
                        })
                    }
                }
            }
            LookupKey::Origin(id, name) => {
                let known = |table: Arc<super::CatalogTable>| {
                    Some(table.by_origin(Feature::Tool, id, name)?.target().clone())
                };
                let servers = self.servers();
                let unseen = |server: &&Arc<HostedServer>| {
                    rights.sees_any(id) && !server.offer.is_in_table()
                };
                here(known(self.table())).unwrap_or_else(|| match servers.get(id).filter(unseen) {
                    Some(server) => Look::Seek(UnseenServers::At(server.clone(), name.clone())),
                    None => Look::Missing(None),
                })
            }
            LookupKey::Uri(feature, uri) => self.look_for_uri(*feature, uri, rights),
        }
    }

    /// The tool that one server alone has under this name of its own: the page of an app knows its
    /// server's tools by no other names.
    fn look_by_own_name(&self, own: &str, rights: &Rights) -> Look {
        let table = self.table();
        let seen = |item: &&Arc<super::item::Item>| {
            let spec = &item.server.spec;
            let meant = rights
                .account(&spec.entry.entry_id)
                .filter(|_| item.server.is_account());
            let is_meant = meant.is_none_or(|meant| meant == &*spec.id);
            item.standing().is_approved() && rights.sees(&spec.id, Feature::Tool, own) && is_meant
        };
        let mut tools = table.tools_called(own).iter().filter(seen);
        match (tools.next(), tools.next()) {
            (Some(item), None) => Look::Here(item.target().clone()),
            (Some(_), Some(_)) => Look::Missing(Some(
                "several servers have a tool of that name: call it as SERVER__TOOL, or see one server alone (--only)",
            )),
            (None, _) => Look::Missing(None),
        }
    }

    /// The servers that may have what clients would see under this name, and that were never seen.
    fn look_among_unseen(&self, exposed: &str, rights: &Rights) -> Look {
        let servers = self.servers();
        let wanted = |server: &&Arc<HostedServer>| {
            rights.sees_any(&server.spec.id) && !server.offer.is_in_table()
        };
        // An id has no underscore, so the first two end it.
        let named = exposed
            .split_once("__")
            .and_then(|(id, name)| Some((servers.get(id)?, name)));
        if let Some((server, name)) = named.filter(|(server, _)| server.spec.entry.prefix) {
            return match Some(server).filter(wanted) {
                Some(server) => Look::Seek(UnseenServers::At(server.clone(), name.to_owned())),
                None => Look::Missing(None),
            };
        }
        let bare = servers
            .values()
            .filter(|server| !server.spec.entry.prefix)
            .filter(wanted);
        UnseenServers::among(bare.cloned().collect(), exposed)
            .map_or(Look::Missing(None), Look::Seek)
    }
}

/// The nearest of these names, of a name that is not too long to be one.
fn near<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    if name.len() > MAX_NEAR {
        return None;
    }
    let known: Vec<&str> = known.take(MAX_COMPARED).collect();
    colibri_json::nearest(name, &known).map(str::to_owned)
}

impl DiscoveryLookup {
    /// Goes on with a call once its servers have been asked.
    fn go_on(&self, chain: &Arc<Chain>, call: Box<Call>) {
        let rights = chain.rules.rights(&call.client);
        let missing = |why| {
            let near = self.host.nearest(&self.wanted, &rights);
            self.wanted.missing(why, true, near, call.version)
        };
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

impl CallHandler for DiscoveryLookup {
    fn handle(self: Arc<Self>, chain: &Arc<Chain>, call: Box<Call>) -> Option<ServerCall> {
        let chain = chain.clone();
        tokio::spawn(async move {
            let client = call.client.clone();
            match &self.place {
                UnseenServers::At(server, _) => {
                    let key = server.key(&client.caller, client.session.owner());
                    let then = |_: &_, call| {
                        self.go_on(&chain, call);
                        Ok(())
                    };
                    server.clone().with_process(key, call, then).await;
                }
                UnseenServers::Among(servers) => {
                    self.host.discover(servers, &client);
                    self.host.settled(servers).await;
                    self.go_on(&chain, call);
                }
            }
        });
        None
    }
}
