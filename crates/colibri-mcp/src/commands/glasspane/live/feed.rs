//! The thread that reads trail and daemon for a served page, for as long as somebody looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::super::feed::look;
use super::super::html::{
    DAY, PageData, PagePresent, PageSource, Span, TrailNews, json, now, tables,
};
use crate::commands::context::CommandContext;
use crate::connection::{DaemonConnection, RequestError};
use crate::failure::CommandError;
use colibri_api::{DecisionRequest, DecisionResponse, Task};

/// The wait before the trail is read again.
const TICK: Duration = Duration::from_millis(500);
/// The shortest time from one look to the next.
const SOON: Duration = Duration::from_secs(1);
/// The most tasks that are remembered.
const MAX_TASKS: usize = 200;

/// An order to the thread.
pub(super) enum LiveOrder {
    /// Somebody looks at the page.
    Look,
    /// The newest tasks.
    Tasks(Vec<Task>),
    /// A task as it is now.
    Task(Box<Task>),
    /// A person's answer to a waiting call.
    Decide {
        id: String,
        approve: bool,
        outcome: oneshot::Sender<Result<DecisionResponse, CommandError>>,
    },
}

/// A part of the page: the number of its last change, and the part.
#[derive(Clone, Default)]
pub(super) struct PagePart {
    pub number: u64,
    pub json: Arc<str>,
}

/// The page as it is now.
#[derive(Clone, Default)]
pub(super) struct LivePage {
    pub head: Arc<str>,
    pub record: PagePart,
    pub present: PagePart,
    pub tables: Arc<str>,
    /// The time at which it was so, milliseconds since the epoch.
    pub at: u64,
}

impl LivePage {
    /// The page's content.
    pub(super) fn json(&self) -> String {
        format!(
            "{{\"head\":{},\"record\":{},\"present\":{},\"numbers\":[{},{}]}}",
            self.head, self.record.json, self.present.json, self.record.number, self.present.number
        )
    }
}

/// The thread's values.
pub(super) struct LiveFeed {
    pub source: PageSource,
    pub span: Span,
    /// The length of the period at the beginning, milliseconds. One that is a day longer begins
    /// anew with this length.
    pub period: u64,
    pub every: Duration,
    pub orders: Receiver<LiveOrder>,
    /// The number of browsers that listen.
    pub listeners: Arc<AtomicUsize>,
    pub page: watch::Sender<LivePage>,
}

impl LiveFeed {
    /// Makes the page what was read at the beginning.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub(super) fn begin(&self) -> Result<(), CommandError> {
        let head = json(&self.source.page.head)?.into();
        self.page.send_modify(|page| page.head = head);
        self.publish(true)
    }

    /// Runs until nobody gives orders any more.
    pub(super) fn run(mut self) {
        let mut connection = None;
        let mut looked = Instant::now();
        let (mut has_records, mut has_others) = (false, false);
        loop {
            let order = if self.listeners.load(Ordering::Relaxed) == 0 {
                self.orders
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.orders.recv_timeout(TICK)
            };
            let mut is_due = looked.elapsed() >= self.every;
            match order {
                Ok(LiveOrder::Look) => is_due |= looked.elapsed() >= TICK,
                Ok(LiveOrder::Tasks(tasks)) => {
                    self.source.tasks = tasks;
                    is_due = true;
                }
                Ok(LiveOrder::Task(task)) => self.put(*task),
                Ok(LiveOrder::Decide {
                    id,
                    approve,
                    outcome,
                }) => {
                    // Who asked may be gone.
                    let _ =
                        outcome.send(decide(&self.source.context, &mut connection, id, approve));
                    is_due = true;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let news = self.read_on();
            has_records |= news.has_records;
            has_others |= news.has_others;
            is_due |= has_others && looked.elapsed() >= SOON;
            if !is_due {
                continue;
            }
            has_others = false;
            looked = Instant::now();
            let seen = ask(&self.source.context, &mut connection, |connection| {
                look(connection, None)
            });
            self.source.page.present = PagePresent::of(seen.as_ref(), &self.source.tasks);
            if has_records && let Some(trail) = &mut self.source.trail {
                self.source.page.record = trail.part(now());
            }
            // What cannot be encoded is as it was.
            if self.publish(has_records).is_ok() {
                has_records = false;
            }
        }
    }

    fn put(&mut self, task: Task) {
        let tasks = &mut self.source.tasks;
        match tasks.iter_mut().find(|one| one.id == task.id) {
            Some(one) => *one = task,
            None => {
                tasks.insert(0, task);
                tasks.sort_by_key(|task| std::cmp::Reverse(task.id));
                tasks.truncate(MAX_TASKS);
            }
        }
    }

    /// Reads the trail on.
    fn read_on(&mut self) -> TrailNews {
        let Some(trail) = &mut self.source.trail else {
            return TrailNews::default();
        };
        let until = now();
        if until.saturating_sub(self.span.since) > self.period + DAY {
            self.span.since = until - self.period;
            trail.restart(self.span);
        }
        trail.read().unwrap_or_else(|failure| {
            // The last that was read stays, with the reason for which there is no more.
            let trouble = Some(failure.to_string());
            let is_news = self.source.page.record.trail_trouble != trouble;
            self.source.page.record.trail_trouble = trouble;
            TrailNews {
                has_records: is_news,
                has_others: is_news,
            }
        })
    }

    /// Gives the page to those who listen, as far as it has changed.
    fn publish(&self, has_records: bool) -> Result<(), CommandError> {
        let PageData {
            record, present, ..
        } = &self.source.page;
        let present = json(present)?;
        let record = has_records.then(|| json(record)).transpose()?;
        let tables: Arc<str> = tables(&self.source.page).into();
        self.page.send_modify(|page| {
            page.at = now();
            page.tables = tables;
            if *page.present.json != present {
                page.present.number += 1;
                page.present.json = present.into();
            }
            if let Some(record) = record {
                page.record.number += 1;
                page.record.json = record.into();
            }
        });
        Ok(())
    }
}

/// Sends requests over the connection there is, or over a new one.
fn ask<T>(
    context: &CommandContext,
    connection: &mut Option<DaemonConnection>,
    ask: impl Fn(&mut DaemonConnection) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    if let Some(old) = connection {
        match ask(old) {
            Err(CommandError::Request(RequestError::Lost { .. })) => *connection = None,
            answer => return answer,
        }
    }
    ask(connection.insert(context.connect()?))
}

/// Approves or denies a waiting call, as `colibri-mcp approvals` does.
fn decide(
    context: &CommandContext,
    connection: &mut Option<DaemonConnection>,
    id: String,
    approve: bool,
) -> Result<DecisionResponse, CommandError> {
    let method = if approve {
        "colibri/approve"
    } else {
        "colibri/deny"
    };
    let asked = DecisionRequest { id };
    ask(context, connection, |connection| {
        Ok(connection.ask(method, &asked)?.0)
    })
}
