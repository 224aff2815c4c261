//! The pages of lists: made once for all who ask for the same.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use crate::builtin::{self, BuiltinDefinition};
use crate::catalog::{CatalogTable, Item};
use crate::relay::{COLIBRI, SharedPage};
use crate::servers::State;
use bytes::Bytes;
use colibri_peer::Outbox;
use colibri_policy::{Gate, ListMode, Rights};
use colibri_protocol::lists::{ListCursor, least_ttl, page};
use colibri_protocol::{Code, Failure, Feature, Version};
use colibri_store::cost_ledger::ListedToolCost;
use colibri_text::counted;
use parking_lot::Mutex;

/// The most bytes of pages that are kept although nobody is being sent them.
const MAX_KEPT: usize = 16 * 1024 * 1024;
/// The most pages.
const MAX_PAGES: usize = 32;
/// The most servers that are named to a model that is to find their tools, and tools of each.
const MAX_NAMED_SERVERS: usize = 24;
const MAX_NAMED_TOOLS: usize = 2;

/// Everything that a page is made of.
pub(super) struct ListQuery {
    /// The listed feature.
    pub feature: Feature,
    /// The requesting user.
    pub uid: u32,
    /// The table of external servers' items.
    pub table: Arc<CatalogTable>,
    /// The client's rights.
    pub rights: Arc<Rights>,
    /// True if that is listed at all.
    pub external: bool,
    /// True if our own tools are listed that change something.
    pub write: bool,
    /// The version that the client speaks.
    pub version: Version,
    /// The beginning of the page.
    pub cursor: Option<ListCursor>,
    /// The status of each server, in the order of their ids: its state, its version, and the
    /// lifetime of its list.
    pub standing: Vec<(State, Option<Version>, Option<u64>)>,
    /// The skills of the daemon's own that it lists, or the resources that they are.
    pub skills: Vec<(String, Bytes)>,
}

impl ListQuery {
    /// The page, and the tools in it.
    fn make(&self) -> (Vec<u8>, Vec<ListedToolCost>) {
        let own = builtin::definitions()
            .iter()
            .filter(|_| self.feature == Feature::Tool && !self.rights.is_narrowed())
            .filter(|definition| match self.rights.is_agents() {
                true => definition.at_door.is_some(),
                false => self.write || definition.gate != Gate::Write,
            })
            .filter_map(|definition| {
                Some((
                    definition.name.to_owned(),
                    self.own_definition(definition)?,
                    None,
                ))
            });
        let mut listed: Vec<(String, Bytes, Option<&Arc<Item>>)> = own.collect();
        listed.extend(
            self.skills
                .iter()
                .map(|(uri, entry)| (uri.clone(), entry.clone(), None)),
        );
        if self.external {
            let sees = |item: &&Arc<Item>| {
                item.is_listed(self.rights.list)
                    && self
                        .rights
                        .sees(&item.server.spec.id, self.feature, &item.own)
            };
            if self.rights.is_narrowed() {
                let seen = self.table.offered_alone(self.feature).filter(sees);
                listed.extend(seen.map(|item| {
                    (
                        item.own.clone(),
                        item.own_definition(self.version),
                        Some(item),
                    )
                }));
            } else {
                let seen = self.table.offered(self.feature).filter(sees);
                listed.extend(seen.map(|item| {
                    let shown = item.shown(&self.rights);
                    let definition = item.definition(shown, self.version, self.uid);
                    (shown.to_owned(), definition, Some(item))
                }));
            }
        }
        // Ours come first, and win.
        listed.sort_by(|a, b| a.0.cmp(&b.0));
        listed.dedup_by(|later, first| later.0 == first.0);
        let lives = self
            .standing
            .iter()
            .filter_map(|(_, version, ttl)| Some(((*version)?, *ttl)));
        let (page, in_it) = page(
            self.feature,
            self.version,
            least_ttl(lives),
            self.cursor.as_ref(),
            listed
                .iter()
                .map(|(name, raw, _)| (name.as_str(), &raw[..])),
        );
        let tools = listed[in_it]
            .iter()
            .filter(|_| self.feature == Feature::Tool);
        let tools = tools.map(|(name, raw, item)| ListedToolCost {
            server: item.map_or_else(|| COLIBRI.into(), |item| item.server.spec.id.clone()),
            tool: item.map_or(name.as_str(), |item| &item.own).into(),
            bytes: raw.len() as u64,
        });
        (page, tools.collect())
    }
}

impl ListQuery {
    /// The definition of a tool of ours, if it is listed: who finds tools is not to pay for many of
    /// ours either.
    fn own_definition(&self, definition: &BuiltinDefinition) -> Option<Bytes> {
        if self.rights.list == ListMode::All {
            return Some(definition.listed(self.version));
        }
        let names_servers = self.external && definition.name == builtin::FIND_TOOLS;
        let servers = if names_servers {
            self.named_servers()
        } else {
            String::new()
        };
        (definition.rules.always_listed).then(|| definition.listed_briefly(self.version, &servers))
    }

    /// The servers whose tools can be found, each with the names of its first few.
    fn named_servers(&self) -> String {
        let mut servers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for item in self.table.offered(Feature::Tool) {
            let server = &*item.server.spec.id;
            if self.rights.sees(server, Feature::Tool, &item.own) {
                let shown = item.shown(&self.rights);
                let (server, tool) = match item.server.spec.entry.prefix {
                    true => shown.split_once("__").unwrap_or((server, shown)),
                    false => (server, shown),
                };
                servers.entry(server).or_default().push(tool);
            }
        }
        let named = servers
            .iter()
            .take(MAX_NAMED_SERVERS)
            .map(|(server, tools)| {
                let first = &tools[..tools.len().min(MAX_NAMED_TOOLS)];
                format!(" {server}: {}.", first.join(", "))
            });
        let mut text = match servers.is_empty() {
            true => String::new(),
            false => " Servers and some tools:".to_owned(),
        };
        text.extend(named);
        if servers.len() > MAX_NAMED_SERVERS {
            text += &format!(
                " And {} more.",
                counted((servers.len() - MAX_NAMED_SERVERS) as u64, "server")
            );
        }
        text
    }
}

/// A page that was made, and what of. It keeps neither tools nor rights alive that are no longer in
/// force.
struct CachedPage {
    feature: Feature,
    table: Weak<CatalogTable>,
    rights: Weak<Rights>,
    external: bool,
    write: bool,
    version: Version,
    cursor: Option<ListCursor>,
    standing: Vec<(State, Option<Version>, Option<u64>)>,
    skills: Vec<(String, Bytes)>,
    page: Arc<SharedPage>,
}

impl CachedPage {
    fn is_for(&self, asked: &ListQuery) -> bool {
        self.table.as_ptr() == Arc::as_ptr(&asked.table)
            && self.rights.as_ptr() == Arc::as_ptr(&asked.rights)
            && (self.feature, self.external, self.write)
                == (asked.feature, asked.external, asked.write)
            && self.version == asked.version
            && self.cursor == asked.cursor
            && self.standing == asked.standing
            && self.skills == asked.skills
    }
}

/// The pages that were asked for last.
#[derive(Default)]
pub(super) struct Lists {
    pages: Mutex<VecDeque<CachedPage>>,
}

impl Lists {
    /// Forgets them.
    pub(super) fn clear(&self) {
        self.pages.lock().clear();
    }

    /// The page that is asked for, for the client of this queue: one that is made for it is taken
    /// out of the budget for it.
    ///
    /// # Errors
    /// Where the budget has no room for it.
    pub(super) fn page(&self, asked: ListQuery, whom: &Outbox) -> Result<Arc<SharedPage>, Failure> {
        // Held while a page is made: who asks for the same meanwhile gets the same.
        let mut pages = self.pages.lock();
        if let Some(made) = pages.iter().find(|made| made.is_for(&asked)) {
            return Ok(made.page.clone());
        }
        let (result, tools) = asked.make();
        let page = SharedPage::new(result, whom).ok_or_else(|| {
            Failure::new(
                Code::DaemonBusy,
                "the daemon has no room for the list: too much is queued for its clients",
            )
        })?;
        let page = Arc::new(page.listing(tools));
        pages.retain(|made| made.table.strong_count() > 0 && made.rights.strong_count() > 0);
        pages.push_front(CachedPage {
            feature: asked.feature,
            table: Arc::downgrade(&asked.table),
            rights: Arc::downgrade(&asked.rights),
            external: asked.external,
            write: asked.write,
            version: asked.version,
            cursor: asked.cursor,
            standing: asked.standing,
            skills: asked.skills,
            page: page.clone(),
        });
        let mut sum = 0;
        let keep = pages.iter().take_while(|made| {
            sum += made.page.length();
            sum <= MAX_KEPT
        });
        let keep = keep.count().min(MAX_PAGES);
        pages.truncate(keep);
        Ok(page)
    }
}
