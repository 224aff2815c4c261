//! Summaries that are made: one call at a time, within bounds of what it may cost.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::summary_call::{self, SummaryCallOutcome};
use super::summary_table::{SummaryKey, SummaryTable};
use super::tools::{SummarisableTool, ToolSource};
use crate::catalog::ServerHost;
use colibri_peer::aside;
use colibri_store::{Database, StoreError, now_ms};

/// The most calls of an hour.
pub(super) const MAX_CALLS: usize = 600;
/// The most of them for one server's tools.
pub(super) const MAX_CALLS_OF_SERVER: usize = 120;
/// The number of times in a row that a tool's summary is requested.
const ATTEMPTS: u32 = 3;
/// The wait after a failure; it doubles with each one that follows, up to the second.
const BETWEEN_ATTEMPTS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];
/// The time for which nothing is requested after a failure that stays until somebody changes
/// something; and the longest wait of all.
const AFTER_REFUSAL: Duration = Duration::from_secs(3600);
/// The wait where an hour had as many calls as it may.
const AFTER_LIMIT: Duration = Duration::from_secs(60);
/// The shortest wait between two looks for work.
const BETWEEN_BATCHES: Duration = Duration::from_secs(1);

/// The answer to a call, or the reason for which there is none.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>>;

/// Calls tools as the daemon's own user, through all that stands in front of them.
pub trait InternalCalls: Send + Sync {
    /// Calls a tool by the name that clients see; the whole answer.
    fn call(&self, tool: &str, arguments: &str) -> CallFuture<'_>;
}

/// The reason for which a batch is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BatchEnd {
    /// There is nothing to do.
    Done,
    /// There were as many calls as may be.
    Limit,
    /// Something stands against it until somebody changes something.
    Refused,
}

/// Has summaries made.
pub struct SummaryMaker {
    pub(super) summaries: Arc<SummaryTable>,
    pub(super) store: Arc<Database>,
    pub(super) tools: Arc<dyn ToolSource>,
    pub(super) calls: Arc<dyn InternalCalls>,
    /// The model that is asked, as the adapter knows it.
    pub(super) model: String,
    /// Milliseconds since the epoch.
    pub(super) clock: fn() -> u64,
    /// Calls that failed in a row.
    pub(super) failures: u32,
    /// Calls that were refused, by the server whose tools they were about.
    pub(super) refused: HashMap<Arc<str>, u32>,
}

impl SummaryMaker {
    /// One that asks this model about the tools of the host.
    pub fn new(
        summaries: &Arc<SummaryTable>,
        store: &Arc<Database>,
        host: &Arc<ServerHost>,
        calls: Arc<dyn InternalCalls>,
        model: &str,
    ) -> SummaryMaker {
        SummaryMaker {
            summaries: summaries.clone(),
            store: store.clone(),
            tools: host.clone(),
            calls,
            model: model.to_owned(),
            clock: now_ms,
            failures: 0,
            refused: HashMap::new(),
        }
    }

    /// Makes what is missing, and again whenever this tells that the tools have changed. It never
    /// ends.
    pub async fn work(mut self, mut changed: watch::Receiver<()>) {
        loop {
            let over = self.batch().await;
            let wait = match over {
                BatchEnd::Done | BatchEnd::Refused => AFTER_REFUSAL,
                BatchEnd::Limit => AFTER_LIMIT,
            };
            let again = self.summaries.clone();
            tokio::select! {
                _ = changed.changed(), if over == BatchEnd::Done => {}
                () = again.again.notified() => self.failures = 0,
                () = sleep(wait) => {}
            }
            sleep(BETWEEN_BATCHES).await;
        }
    }

    /// Makes what is missing, until nothing is or something stands against it.
    pub(super) async fn batch(&mut self) -> BatchEnd {
        let mut given_up = HashSet::new();
        let mut made = 0_u64;
        let over = loop {
            let tool = match aside(|| self.next(&given_up)) {
                Ok(Some(tool)) => tool,
                Ok(None) => break BatchEnd::Done,
                Err(over) => break over,
            };
            match self.summarise(&tool).await {
                Ok(true) => made += 1,
                Ok(false) => drop(given_up.insert(tool.key)),
                Err(over) => break over,
            }
        };
        if made > 0 {
            info!(made, model = self.model, "tools were summarised");
        }
        over
    }

    /// The tool to summarise next, if there is one: of the server with the fewest refusals and then
    /// the fewest calls, so that none with many tools, or with a definition that the provider
    /// refuses to read, keeps those of others waiting.
    fn next(&self, given_up: &HashSet<SummaryKey>) -> Result<Option<SummarisableTool>, BatchEnd> {
        let now = (self.clock)();
        let calls = self
            .store
            .summary_calls(now)
            .map_err(|error| unkept(&error))?;
        let calls_of =
            |tool: &SummarisableTool| calls.get(&*tool.server).copied().unwrap_or_default();
        let mut due = self.tools.approved();
        due.retain(|tool| self.summaries.is_due(&tool.key, now) && !given_up.contains(&tool.key));
        let any = !due.is_empty();
        due.retain(|tool| calls_of(tool) < MAX_CALLS_OF_SERVER);
        if any && (due.is_empty() || calls.values().sum::<usize>() >= MAX_CALLS) {
            return Err(BatchEnd::Limit);
        }
        let first = due.into_iter().min_by(|a, b| {
            let refused = |tool: &SummarisableTool| {
                self.refused.get(&tool.server).copied().unwrap_or_default()
            };
            let order =
                |tool: &SummarisableTool| (refused(tool), calls_of(tool), tool.server.clone());
            order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key))
        });
        Ok(first)
    }

    /// Requests a summary of a tool, and again if that fails; true if there is an answer.
    async fn summarise(&mut self, tool: &SummarisableTool) -> Result<bool, BatchEnd> {
        for _ in 0..ATTEMPTS {
            let Some(context) = aside(|| self.tools.context(tool)) else {
                return Ok(false);
            };
            let Some(adapter) = self.tools.adapter() else {
                warn!(
                    "tools are not summarised: the registry has no server model-api; reload when it has"
                );
                return Err(BatchEnd::Refused);
            };
            let may = aside(|| {
                self.store.add_summary_call(
                    &tool.server,
                    (self.clock)(),
                    (MAX_CALLS_OF_SERVER, MAX_CALLS),
                )
            });
            if !may.map_err(|error| unkept(&error))? {
                return Err(BatchEnd::Limit);
            }
            let arguments = summary_call::arguments(&tool.key.name, &context, &self.model);
            let answered = match self.calls.call(&adapter, &arguments).await {
                Ok(message) => summary_call::read(&message),
                Err(why) => SummaryCallOutcome::Failed(why, Duration::ZERO),
            };
            match answered {
                SummaryCallOutcome::Sentence(sentence) => {
                    self.failures = 0;
                    let kept = (
                        &tool.key,
                        sentence.as_deref().unwrap_or_default(),
                        (self.clock)(),
                    );
                    aside(|| self.summaries.keep(&self.store, kept, &self.model));
                    return Ok(true);
                }
                SummaryCallOutcome::Refused(why) => {
                    *self.refused.entry(tool.server.clone()).or_default() += 1;
                    warn!(
                        model = self.model,
                        "tools are not summarised until something is changed and reloaded, or an hour has gone by: {why}"
                    );
                    return Err(BatchEnd::Refused);
                }
                SummaryCallOutcome::Failed(why, after) => {
                    let [least, most] = BETWEEN_ATTEMPTS;
                    let wait = (least * 2_u32.pow(self.failures.min(4)))
                        .min(most)
                        .max(after);
                    if self.failures == 0 {
                        info!(model = self.model, "a tool was not summarised yet: {why}");
                    }
                    self.failures += 1;
                    sleep(wait.min(AFTER_REFUSAL)).await;
                }
            }
        }
        Ok(false)
    }
}

/// The error of a call that cannot be counted, so that nothing is called.
fn unkept(error: &StoreError) -> BatchEnd {
    warn!("tools are not summarised: {error}");
    BatchEnd::Refused
}
