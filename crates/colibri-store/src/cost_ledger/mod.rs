//! The ledger: what every call, every list and every token of a model cost, and whom.
//!
//! Counting touches memory alone, under one short lock. What was counted goes to the store every
//! `INTERVAL`, whole or not at all, and at the daemon's end; a daemon that is killed loses the last
//! interval. What cannot be written stays counted, and is written when it can be. A count belongs
//! to the day, in UTC, on which its request was read.

mod book;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::{CostKey, Database, StoreError};
use book::Book;
pub use book::{CostLine, ListedToolCost, Payer};
use colibri_api::{CostDay, CostSum};
use parking_lot::Mutex;

/// The interval at which counts go to the store.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// The number of days that are stored.
const KEPT_DAYS: u32 = 400;
/// The number of days deleted at a time: a clock that is ahead by years costs no more than these.
const FORGOTTEN_AT_A_TIME: u32 = 7;

/// The counts that are not yet in the store.
#[derive(Default)]
pub struct CostLedger {
    book: Mutex<Book>,
    /// Locked while the book is written to the store.
    written: Mutex<FlushedCosts>,
}

#[derive(Default)]
struct FlushedCosts {
    /// The last day on which old days were forgotten.
    forgotten: Option<CostDay>,
    totals: Totals,
}

/// The totals written since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// By server.
    pub servers: BTreeMap<String, CostSum>,
    /// By agent.
    pub agents: BTreeMap<String, CostSum>,
}

impl Totals {
    fn add(&mut self, costs: &[(CostKey, CostSum)]) {
        for (key, cost) in costs {
            for (totals, name) in [
                (&mut self.servers, &key.server),
                (&mut self.agents, &key.agent),
            ] {
                if !name.is_empty() {
                    totals.entry(name.clone()).or_default().add(cost);
                }
            }
        }
    }
}

impl CostLedger {
    /// The totals written since the daemon started.
    pub fn totals(&self) -> Totals {
        self.written.lock().totals.clone()
    }

    /// Counts what something cost.
    pub fn count(&self, payer: &Payer<'_>, line: CostLine<'_>, cost: &CostSum) {
        self.book.lock().count(payer, line, cost);
    }

    /// Counts a list of tools that was answered.
    pub fn count_list(&self, payer: &Payer<'_>, tools: &Arc<[ListedToolCost]>) {
        self.book.lock().count_list(payer, tools);
    }

    /// Writes what was counted to the store, and has it forget what is too old. Waits for the disk.
    ///
    /// # Errors
    /// It cannot be written now. It stays counted.
    pub fn write(&self, store: &Database) -> Result<(), StoreError> {
        let mut written = self.written.lock();
        let today = CostDay::of(SystemTime::now());
        let costs = self.book.lock().take(today);
        if !costs.is_empty()
            && let Err(error) = store.add_to_ledger(&costs)
        {
            self.book.lock().give_back(&costs);
            return Err(error);
        }
        written.totals.add(&costs);
        if written.forgotten != Some(today) {
            store.drop_from_ledger(
                CostDay(today.0.saturating_sub(KEPT_DAYS - 1)),
                FORGOTTEN_AT_A_TIME,
            )?;
            written.forgotten = Some(today);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CostQuery;
    use colibri_api::CostsBy;

    const ONE: CostSum = CostSum {
        calls: 1,
        errors: 0,
        bytes_in: 10,
        bytes_out: 100,
        estimated_tokens: 0,
        microseconds: 5,
        lists: 0,
        listed_bytes: 0,
        estimated_listed_tokens: 0,
        model_requests: 0,
        tokens_in: 0,
        tokens_out: 0,
        tokens_cached: 0,
        tokens_cache_write: 0,
    };

    fn payer(day: CostDay) -> Payer<'static> {
        Payer {
            day,
            uid: 7,
            agent: None,
            client: None,
            task: None,
            model: None,
        }
    }

    const LINE: CostLine<'static> = CostLine {
        server: "s",
        method: "tools/call",
        tool: "t",
    };

    fn told(store: &Database) -> (u64, Option<CostDay>) {
        let query = CostQuery {
            since: CostDay(0),
            uid: None,
            by: &[CostsBy::Tool],
            unused: false,
            limit: 9,
        };
        let told = store.ledger(&query).unwrap();
        (told.sum.calls, told.since)
    }

    #[test]
    fn what_is_counted_is_written_once() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        let (ledger, today) = (CostLedger::default(), CostDay::of(SystemTime::now()));
        for round in 1..=3 {
            ledger.count(&payer(today), LINE, &ONE);
            ledger.write(&store).unwrap();
            ledger.write(&store).unwrap();
            assert_eq!(told(&store), (round, Some(today)));
            assert_eq!(ledger.totals().servers["s"].calls, round);
        }
        assert!(ledger.totals().agents.is_empty());
    }

    #[test]
    fn what_cannot_be_written_stays_counted() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        let other = rusqlite::Connection::open(store.path()).unwrap();
        other
            .execute_batch("ALTER TABLE ledger RENAME TO hidden")
            .unwrap();
        let (ledger, today) = (CostLedger::default(), CostDay::of(SystemTime::now()));
        for _ in 0..3 {
            ledger.count(&payer(today), LINE, &ONE);
            ledger.write(&store).unwrap_err();
        }
        other
            .execute_batch("ALTER TABLE hidden RENAME TO ledger")
            .unwrap();
        ledger.write(&store).unwrap();
        assert_eq!(told(&store).0, 3);
    }

    #[test]
    fn days_are_kept_for_400_days_and_a_clock_that_jumps_costs_few() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        let today = CostDay::of(SystemTime::now());
        let ledger = CostLedger::default();
        for ago in [0, 399, 400, 401] {
            ledger.count(&payer(CostDay(today.0 - ago)), LINE, &ONE);
        }
        // A day of a clock that was ahead.
        ledger.count(&payer(CostDay(today.0 + 4000)), LINE, &ONE);
        ledger.write(&store).unwrap();
        assert_eq!(told(&store), (3, Some(CostDay(today.0 - 399))));
        for ago in 0..30 {
            ledger.count(&payer(CostDay(500 + ago)), LINE, &ONE);
        }
        ledger.written.lock().forgotten = None;
        ledger.write(&store).unwrap();
        assert_eq!(
            told(&store),
            (26, Some(CostDay(507))),
            "seven days at a time"
        );
    }
}
