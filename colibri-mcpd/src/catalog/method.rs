//! Methods beyond MCP's that an entry lists: they go to its server as they are.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::names::NameConflict;
use crate::relay::{Call, CallTarget, Chain, TargetDescription, Upstream};
use crate::servers::HostedServer;
use colibri_policy::{RuleVerdict, SuspensionFacts, TargetFacts};
use colibri_protocol::Feature;

/// A method that a server has beyond MCP's, because its entry says so.
pub struct HostMethod {
    /// The server that has it.
    pub server: Arc<HostedServer>,
    description: TargetDescription,
}

impl CallTarget for HostMethod {
    fn description(&self) -> &TargetDescription {
        &self.description
    }

    fn facts<'a>(&'a self, call: &'a Call) -> TargetFacts<'a> {
        // No rule of the server's own is about its methods.
        let verdict = self.server.label_denial().unwrap_or(RuleVerdict::Allow);
        TargetFacts {
            verdict: Cow::Owned(verdict),
            suspension: SuspensionFacts::Item(call.flow_of(&self.description)),
            ..self.description.facts(call.method)
        }
    }

    fn send(self: Arc<Self>, _: &Arc<Chain>, call: Box<Call>) {
        self.server.call(call);
    }
}

/// The methods of these servers, and what is not offered because two servers list it: the first by
/// id has it.
pub(super) fn offered(
    servers: &BTreeMap<String, Arc<HostedServer>>,
) -> (BTreeMap<String, Arc<HostMethod>>, Vec<NameConflict>) {
    let mut methods: BTreeMap<String, Arc<HostMethod>> = BTreeMap::new();
    let mut collisions = Vec::new();
    for server in servers.values() {
        for method in &server.spec.entry.methods {
            if let Some(first) = methods.get(method) {
                let first = &first.server.spec.id;
                collisions.push(NameConflict {
                    server: server.spec.id.clone(),
                    what: None,
                    holder: Some(first.to_string()),
                    text: format!(
                        "method {method} of {}: {first} lists it too and has it; take it out of one of the two entries",
                        server.spec.id
                    ),
                });
                continue;
            }
            let upstream = (&server.spec.id, server.clone() as Arc<dyn Upstream>);
            let target = HostMethod {
                server: server.clone(),
                description: TargetDescription::of_server(upstream, Feature::Tool, method),
            };
            methods.insert(method.clone(), Arc::new(target));
        }
    }
    (methods, collisions)
}
