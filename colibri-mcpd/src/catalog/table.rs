//! All that external servers offer, by the names and URIs that clients see and by origin.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::changes::ChangedFeatures;
use super::item::Item;
use super::method::{self, HostMethod};
use super::names::{ExposedNames, NameConflict, ServerItems};
use crate::builtin;
use crate::servers::{HostedServer, ServerDefinition};
use colibri_policy::{LookAlike, Rights, look_alikes};
use colibri_protocol::{Feature, Version};

/// All that external servers offer.
#[derive(Default)]
pub struct CatalogTable {
    /// By [`Feature::index`].
    lists: [FeatureList; Feature::COUNT],
    /// Tools by their servers' own names of them.
    called: HashMap<String, Vec<Arc<Item>>>,
    /// Methods beyond MCP's, by name.
    methods: BTreeMap<String, HostMethod>,
    /// The items that are not advertised because their name was taken, the first `MAX_TOLD`.
    pub collisions: Vec<NameConflict>,
    /// Names that could be taken for others, the first `MAX_TOLD`.
    pub look_alikes: Vec<LookAlike>,
}

#[derive(Default)]
struct FeatureList {
    /// By exposed name or URI, with those that are not offered: their names are taken, and who asks
    /// for them is told why.
    exposed: BTreeMap<String, Arc<Item>>,
    /// By server and its own name or URI; with what would collide there, which its server shows
    /// where it stands alone.
    origins: HashMap<(Arc<str>, String), Arc<Item>>,
    /// Of accounts of an entry, by server and the name under that of the entry.
    of_accounts: HashMap<(Arc<str>, String), Arc<Item>>,
}

impl FeatureList {
    /// True if it stands among what all servers offer.
    fn shows(&self, item: &Arc<Item>) -> bool {
        let shown = self.exposed.get(&item.exposed);
        shown.is_some_and(|shown| Arc::ptr_eq(shown, item))
    }
}

/// The most collisions, and the most look-alikes, that are told of: a server can invent them
/// without end.
const MAX_TOLD: usize = 50;

/// The entries with accounts, as servers with a prefix that have nothing: no other server's names
/// may seem to be of them.
fn of_entries(
    servers: &BTreeMap<String, Arc<HostedServer>>,
) -> impl Iterator<Item = ServerItems<'_>> {
    let accounts = servers.values().filter(|server| server.is_account());
    accounts.map(|server| ServerItems {
        server: &server.spec.entry.entry_id,
        prefix: true,
        names: &[],
    })
}

/// The names of an account's tools or prompts under the id of its entry, for clients whose policy
/// says that account.
fn names_under_entry(
    feature: Feature,
    server: &HostedServer,
    ours: &[&str],
    own_names: &BTreeMap<String, Vec<String>>,
) -> ExposedNames {
    let has_names = matches!(feature, Feature::Tool | Feature::Prompt) && server.is_account();
    let items = own_names.get(&*server.spec.id).filter(|_| has_names);
    let items = items.map(|names| ServerItems {
        server: &server.spec.entry.entry_id,
        prefix: true,
        names,
    });
    ExposedNames::build(feature, ours, items.as_slice())
}

impl CatalogTable {
    /// The table of these servers' items. What has not changed since `before` keeps what was made
    /// for it.
    pub fn build(
        servers: &BTreeMap<String, Arc<HostedServer>>,
        before: &CatalogTable,
    ) -> CatalogTable {
        let definitions: Vec<_> = servers
            .values()
            .map(|server| (server, server.offer.definitions()))
            .collect();
        let ours: Vec<&str> = builtin::definitions()
            .iter()
            .map(|definition| definition.name)
            .collect();
        let (methods, collisions) = method::offered(servers);
        let mut table = CatalogTable {
            methods,
            collisions,
            ..CatalogTable::default()
        };
        for feature in Feature::ALL {
            let own_names: BTreeMap<String, Vec<String>> = definitions
                .iter()
                .map(|(server, (catalogue, _))| {
                    let names = catalogue
                        .of(feature)
                        .iter()
                        .map(|definition| definition.name.clone());
                    (server.spec.id.to_string(), names.collect())
                })
                .collect();
            let offers: Vec<ServerItems<'_>> = servers
                .values()
                .filter_map(|server| {
                    Some(ServerItems {
                        server: &server.spec.id,
                        prefix: server.spec.entry.prefix,
                        names: own_names.get(&*server.spec.id)?,
                    })
                })
                .chain(of_entries(servers))
                .collect();
            let ours = if feature == Feature::Tool {
                &ours[..]
            } else {
                &[]
            };
            let names = ExposedNames::build(feature, ours, &offers);
            table.collisions.extend_from_slice(names.collisions());
            if feature == Feature::Tool {
                table.look_alikes = look_alikes(&own_names);
            }
            let (list, old) = (
                &mut table.lists[feature.index()],
                &before.lists[feature.index()],
            );
            for (server, (catalogue, judgement)) in &definitions {
                let version = catalogue.version.unwrap_or(Version::LATEST_LEGACY);
                let label_denial = server.label_denial();
                let names_alone = names_under_entry(feature, server, ours, &own_names);
                for ServerDefinition { name, raw } in catalogue.of(feature) {
                    let found = names.exposed(&server.spec.id, name);
                    let exposed = found.unwrap_or(name);
                    let under_entry = names_alone.exposed(&server.spec.entry.entry_id, name);
                    let standing = judgement.of(feature, name);
                    let by_hand = feature == Feature::Tool && judgement.by_hand.contains(name);
                    let origin = (server.spec.id.clone(), name.clone());
                    let kept = old.origins.get(&origin).filter(|old| {
                        old.is_still(
                            server,
                            raw,
                            (exposed, under_entry, version),
                            (standing, by_hand),
                            label_denial.as_ref(),
                        )
                    });
                    let item = kept.cloned().unwrap_or_else(|| {
                        let exposure = (exposed, under_entry, version);
                        let approval = (standing.clone(), by_hand);
                        Arc::new(Item::new(
                            server,
                            (feature, name, raw),
                            exposure,
                            approval,
                            label_denial.as_ref(),
                        ))
                    });
                    if found.is_some() {
                        if feature == Feature::Tool {
                            table
                                .called
                                .entry(name.clone())
                                .or_default()
                                .push(item.clone());
                        }
                        list.exposed.insert(exposed.to_owned(), item.clone());
                        if let Some(name) = under_entry {
                            let of_account = (server.spec.id.clone(), name.to_owned());
                            list.of_accounts.insert(of_account, item.clone());
                        }
                    }
                    list.origins.insert(origin, item);
                }
            }
        }
        table.collisions.truncate(MAX_TOLD);
        table.look_alikes.truncate(MAX_TOLD);
        table
    }

    /// The items of a feature that clients see, in the order of their exposed names or URIs.
    pub fn offered(&self, feature: Feature) -> impl Iterator<Item = &Arc<Item>> {
        let list = self.lists[feature.index()].exposed.values();
        list.filter(|item| item.standing().is_approved())
    }

    /// The items that each server advertises to a client that sees it alone, in no order: with
    /// those that collide among all.
    pub(crate) fn offered_alone(&self, feature: Feature) -> impl Iterator<Item = &Arc<Item>> {
        let list = self.lists[feature.index()].origins.values();
        list.filter(|item| item.standing().is_approved())
    }

    /// The item with this exposed name or URI.
    pub fn by_name(&self, feature: Feature, exposed: &str) -> Option<&Arc<Item>> {
        self.lists[feature.index()].exposed.get(exposed)
    }

    /// The item that a client with these rights sees under this name: under an entry's, of the
    /// account that policy says.
    pub(crate) fn by_shown_name(
        &self,
        feature: Feature,
        name: &str,
        rights: &Rights,
    ) -> Option<&Arc<Item>> {
        let of_account = || {
            // An id has no underscore, so the first two end it.
            let server = rights.account(name.split_once("__")?.0)?;
            let key = (Arc::from(server), name.to_owned());
            self.lists[feature.index()].of_accounts.get(&key)
        };
        self.by_name(feature, name).or_else(of_account)
    }

    /// The item of a server with this name or URI of its own, if it is advertised among those of
    /// others.
    pub fn by_origin(&self, feature: Feature, server: &str, own: &str) -> Option<&Arc<Item>> {
        let list = &self.lists[feature.index()];
        self.by_own_name(feature, server, own)
            .filter(|item| list.shows(item))
    }

    /// The same for who sees the server alone.
    pub(crate) fn by_own_name(
        &self,
        feature: Feature,
        server: &str,
        own: &str,
    ) -> Option<&Arc<Item>> {
        let origin = (Arc::from(server), own.to_owned());
        self.lists[feature.index()].origins.get(&origin)
    }

    /// The tools that servers have under this name of their own.
    pub(super) fn tools_called(&self, own: &str) -> &[Arc<Item>] {
        self.called.get(own).map_or(&[], Vec::as_slice)
    }

    /// The method beyond MCP's that a server has under this name.
    pub fn method(&self, name: &str) -> Option<&HostMethod> {
        self.methods.get(name)
    }

    /// The servers whose items differ from the table before it, with the features: more, fewer, or
    /// other items.
    pub(super) fn changed_since(&self, before: &CatalogTable) -> ChangedFeatures {
        let mut changed = ChangedFeatures::new();
        for feature in Feature::ALL {
            let (old, new): (HashSet<_>, HashSet<_>) = (
                before.offered_alone(feature).map(Arc::as_ptr).collect(),
                self.offered_alone(feature).map(Arc::as_ptr).collect(),
            );
            let before = before.offered_alone(feature);
            let gone = before.filter(|item| !new.contains(&Arc::as_ptr(item)));
            let now = self.offered_alone(feature);
            let come = now.filter(|item| !old.contains(&Arc::as_ptr(item)));
            for item in gone.chain(come) {
                *changed.entry(item.server.spec.id.clone()).or_default() |= feature.into();
            }
        }
        changed
    }
}
