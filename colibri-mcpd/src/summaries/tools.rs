//! The tools that there are, as far as summaries go.

use std::sync::Arc;

use super::summary_call;
use super::summary_table::SummaryKey;
use crate::catalog::{Item, ServerHost};
use colibri_protocol::Feature;

/// The server whose tool is called: the model adapter.
const ADAPTER: &str = "model-api";
/// Its tool.
const COMPLETE: &str = "complete";

/// A definition that may be summarised.
#[derive(Debug, Clone)]
pub(super) struct SummarisableTool {
    /// The server that has it.
    pub server: Arc<str>,
    /// Its server's own name of it.
    pub own: String,
    /// The key of its summary.
    pub key: SummaryKey,
}

/// The tools that there are.
pub(super) trait ToolSource: Send + Sync {
    /// The name under which the model adapter's tool is called; `None` if the adapter is not in the
    /// registry.
    fn adapter(&self) -> Option<String>;

    /// The tools that may be summarised.
    fn approved(&self) -> Vec<SummarisableTool>;

    /// The question to a model about a tool; `None` if its definition is another one by now, or not
    /// approved.
    fn context(&self, tool: &SummarisableTool) -> Option<String>;
}

/// True if a definition may be sent: it is approved, by who may read it as well, and somebody may
/// call the tool.
fn may_be_sent(item: &Item) -> bool {
    item.standing().is_approved()
        && &*item.server.spec.id != ADAPTER
        && item
            .verdict()
            .failure(&item.server.spec.id, Feature::Tool)
            .is_none()
}

impl ToolSource for ServerHost {
    fn adapter(&self) -> Option<String> {
        if !self.servers().contains_key(ADAPTER) {
            return None;
        }
        let table = self.table();
        let known = table.by_origin(Feature::Tool, ADAPTER, COMPLETE);
        Some(known.map_or_else(
            || format!("{ADAPTER}__{COMPLETE}"),
            |item| item.exposed.clone(),
        ))
    }

    fn approved(&self) -> Vec<SummarisableTool> {
        let table = self.table();
        let approved = table
            .offered_alone(Feature::Tool)
            .filter(|item| may_be_sent(item));
        approved
            .map(|item| SummarisableTool {
                server: item.server.spec.id.clone(),
                own: item.own.clone(),
                key: SummaryKey::of(item),
            })
            .collect()
    }

    fn context(&self, tool: &SummarisableTool) -> Option<String> {
        let table = self.table();
        let item = table.by_own_name(Feature::Tool, &tool.server, &tool.own)?;
        let is_still = may_be_sent(item) && SummaryKey::of(item) == tool.key;
        is_still.then(|| summary_call::context(&item.raw, &self.redactor()))
    }
}
