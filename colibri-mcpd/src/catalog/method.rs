//! Methods beyond MCP's that an entry lists: they go to its server as they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::names::NameConflict;
use crate::relay::{CallTarget, ConfirmationRule, TargetDescription, TargetRules, Upstream};
use crate::servers::HostedServer;
use colibri_protocol::Feature;

/// A method that a server has beyond MCP's, because its entry says so.
pub struct HostMethod {
    /// The server that has it.
    pub server: Arc<HostedServer>,
    name: String,
}

impl HostMethod {
    /// The target of a call of it.
    pub(crate) fn target(&self) -> Arc<CallTarget> {
        let rules = TargetRules {
            // No rule of the server's own is about its methods.
            verdict: self.server.label_denial().unwrap_or_default(),
            confirmation: ConfirmationRule::Entry,
            ..TargetRules::default()
        };
        let of = (
            &self.server.spec.id,
            self.server.clone() as Arc<dyn Upstream>,
        );
        let description = TargetDescription::of_server(of, Feature::Tool, &self.name);
        CallTarget::handled(description, rules, self.server.clone())
    }
}

/// The methods of these servers, and what is not offered because two servers list it: the first by
/// id has it.
pub(super) fn offered(
    servers: &BTreeMap<String, Arc<HostedServer>>,
) -> (BTreeMap<String, HostMethod>, Vec<NameConflict>) {
    let mut methods: BTreeMap<String, HostMethod> = BTreeMap::new();
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
            let target = HostMethod {
                server: server.clone(),
                name: method.clone(),
            };
            methods.insert(method.clone(), target);
        }
    }
    (methods, collisions)
}
