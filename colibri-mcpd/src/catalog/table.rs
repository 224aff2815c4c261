//! All external tools and methods, by the names that clients see and by origin.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::method::{self, HostMethod};
use super::names::{Names, Offer, Taken};
use super::tool::HostTool;
use crate::builtin;
use crate::policy::{LookAlike, look_alikes};
use crate::servers::{Definition, Server};
use colibri_protocol::{Feature, Version};

/// All external tools, by exposed name and by origin.
#[derive(Default)]
pub struct Table {
    /// By exposed name, with those that are not offered: their names are taken, and calls of them say why.
    tools: BTreeMap<String, Arc<HostTool>>,
    origins: HashMap<(Arc<str>, String), Arc<HostTool>>,
    /// Methods beyond MCP's, by name.
    methods: BTreeMap<String, Arc<HostMethod>>,
    /// What is not offered because its name was taken, the first `MAX_TOLD`.
    pub collisions: Vec<Taken>,
    /// Names that could be taken for others, the first `MAX_TOLD`.
    pub look_alikes: Vec<LookAlike>,
}

/// The most collisions, and the most look-alikes, that are told of: a server can invent them without end.
const MAX_TOLD: usize = 50;

impl Table {
    /// The tools of these servers. Tools that have not changed since `before` keep what was made for them.
    pub fn build(servers: &BTreeMap<String, Arc<Server>>, before: &Table) -> Table {
        let definitions: Vec<_> = servers
            .values()
            .map(|server| (server, server.offer.definitions()))
            .collect();
        let own_names: BTreeMap<String, Vec<String>> = definitions
            .iter()
            .map(|(server, (catalogue, _))| {
                let names = catalogue.of(Feature::Tool).iter().map(|tool| tool.name.clone());
                (server.id.to_string(), names.collect())
            })
            .collect();
        let offers: Vec<Offer<'_>> = servers
            .values()
            .filter_map(|server| {
                Some(Offer {
                    server: &server.id,
                    prefix: server.entry.prefix,
                    names: own_names.get(&*server.id)?,
                })
            })
            .collect();
        let own: Vec<&str> = builtin::definitions()
            .iter()
            .map(|definition| definition.name)
            .collect();
        let names = Names::build(&own, &offers);
        let (methods, mut collisions) = method::offered(servers);
        collisions.extend_from_slice(names.collisions());
        collisions.truncate(MAX_TOLD);
        let mut look_alikes = look_alikes(&own_names);
        look_alikes.truncate(MAX_TOLD);
        let mut table = Table {
            methods,
            collisions,
            look_alikes,
            ..Table::default()
        };
        for (server, (catalogue, judgement)) in &definitions {
            let version = catalogue.version.unwrap_or(Version::LATEST_LEGACY);
            for Definition { name, raw } in catalogue.of(Feature::Tool) {
                let Some(exposed) = names.exposed(&server.id, name) else {
                    continue;
                };
                let standing = judgement.of(Feature::Tool, name);
                let origin = (server.id.clone(), name.clone());
                let kept = before
                    .origins
                    .get(&origin)
                    .filter(|old| old.is_still(server, raw, (exposed, version), standing));
                let tool = kept.cloned().unwrap_or_else(|| {
                    let exposure = (exposed, version);
                    Arc::new(HostTool::new(server, name, raw, exposure, standing.clone()))
                });
                table.tools.insert(exposed.to_owned(), tool.clone());
                table.origins.insert(origin, tool);
            }
        }
        table
    }

    /// The tools that clients see, in the order of their exposed names.
    pub fn offered(&self) -> impl Iterator<Item = &Arc<HostTool>> {
        self.tools.values().filter(|tool| tool.standing.is_approved())
    }

    /// The tool with this exposed name.
    pub fn by_name(&self, exposed: &str) -> Option<&Arc<HostTool>> {
        self.tools.get(exposed)
    }

    /// The method beyond MCP's that a server has under this name.
    pub fn method(&self, name: &str) -> Option<&Arc<HostMethod>> {
        self.methods.get(name)
    }

    /// The tool of a server with this name of its own.
    pub fn by_origin(&self, server: &str, tool: &str) -> Option<&Arc<HostTool>> {
        self.origins.get(&(Arc::from(server), tool.to_owned()))
    }
}
