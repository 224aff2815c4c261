//! The board of many hosts: its tables in PostgreSQL, and this host's place among the others.
//!
//! The store's methods are synchronous, and the database is reached by tasks of a runtime of its
//! own: whoever calls waits on no thread of it. While the database is away each call fails at once,
//! with the reason; the renewal of the lease finds out when it is back.

mod address;
mod connections;
mod fault;
mod lease;
mod lease_renewal;
mod people;
mod row_seal;
mod schema;
mod signed;
mod state;
mod statements;
mod wakes;
mod witnesses;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use colibri_api::{Task, is_host_name};
use parking_lot::Mutex;
use rusqlite::types::Value;
use tokio::sync::Notify;

use super::actor::bind;
use super::board_storage::{BoardMembership, BoardStorage, BoardWork};
use super::database::Database;
use super::error::{StoreError, TransactionError};
use super::hosts::{CountedHost, HostIdentity, HostPlaces};
use super::lease::HostLease;
use super::statements::{BoardRow, HostNames, Statements};
pub use address::BoardAddress;
use connections::{BoardConnections, runtime};
use people::{Account, FOREIGN, People, is_foreign};
use signed::RowSigner;
use state::{FleetState, NOT_YET};
use statements::{FleetStatements, TransactionState};

impl Database {
    /// The same, but for tasks and schedules, which are those of many hosts.
    pub fn with_fleet(mut self, fleet: Arc<Fleet>) -> Database {
        self.storage = fleet;
        self
    }
}

/// The board's tables in PostgreSQL, as one host reaches them.
pub struct Fleet {
    state: Arc<FleetState>,
    connections: BoardConnections,
    people: People,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Fleet({}, {})",
            self.state.address.shown, self.state.host.name
        )
    }
}

impl Fleet {
    /// Begins to reach the board as this host. Whether it can be reached is found out afterwards,
    /// and again and again.
    ///
    /// # Errors
    /// The system gives no threads or no random numbers; or the host's name is none.
    pub fn start(address: BoardAddress, host: HostIdentity) -> anyhow::Result<Arc<Fleet>> {
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(std::io::Error::other)?;
        let state = Arc::new(FleetState {
            away: Mutex::new(Some(NOT_YET.to_owned())),
            run: format!("{:016x}", u64::from_be_bytes(run)),
            lease: Arc::default(),
            places: Mutex::default(),
            has_others: AtomicBool::new(false),
            board: Mutex::default(),
            counted: Mutex::default(),
            woken: Notify::new(),
            wakes: Notify::new(),
            address,
            host,
        });
        let fleet = Fleet {
            people: People::of(&state.host.name),
            connections: BoardConnections::to(&state.address)?,
            state,
        };
        let runtime = runtime()?;
        runtime.spawn(lease_renewal::keep(Arc::downgrade(&fleet.state)));
        runtime.spawn(lease_renewal::watch(Arc::downgrade(&fleet.state)));
        runtime.spawn(wakes::send(
            Arc::downgrade(&fleet.state),
            fleet.connections.aside().clone(),
        ));
        Ok(Arc::new(fleet))
    }

    /// The reason for which the board cannot be used now.
    fn away(&self) -> Option<String> {
        self.state.away.lock().clone()
    }

    /// Runs statements, as one transaction or each as its own.
    ///
    /// # Errors
    /// [`StoreError::Board`]; what `work` refuses.
    fn work<T>(
        &self,
        is_transaction: bool,
        work: impl FnOnce(&mut dyn Statements) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        let _place = self.connections.place()?;
        let state = if is_transaction {
            TransactionState::Due
        } else {
            TransactionState::None
        };
        self.run(state, false, work)
    }

    /// Runs statements on a connection of the pool, for which the caller has a place, or on the one
    /// aside.
    fn run<T>(
        &self,
        transaction: TransactionState,
        is_aside: bool,
        work: impl FnOnce(&mut dyn Statements) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        if let Some(why) = self.away() {
            return Err(self.connections.unusable(why));
        }
        let client = self.connections.client(is_aside)?;
        let mut statements =
            FleetStatements::new(&self.connections, self.rows(), client, transaction);
        let done = work(&mut statements).and_then(|done| {
            statements.end("COMMIT")?;
            Ok(done)
        });
        if done.is_ok() && statements.wakes_others() {
            self.state.wakes.notify_one();
        }
        done.map_err(|aborted| {
            // A connection that cannot roll back is given up, and the server does.
            let _ = statements.end("ROLLBACK");
            match aborted {
                TransactionError::Refused(error) => error,
                TransactionError::Sqlite(error) => self
                    .connections
                    .unusable(format!("what it has cannot be read: {error}")),
            }
        })
    }

    /// Changes a row that belongs to no transaction.
    fn put(&self, sql: &str, values: &[Value]) -> Result<(), StoreError> {
        self.run(TransactionState::None, true, |statements| {
            statements.execute(sql, values).map(drop)
        })
    }

    fn number(&self, account: Account) -> Result<i64, StoreError> {
        if let Some(number) = self.people.number(account) {
            return Ok(number);
        }
        let name = [Value::from(self.people.name(account))];
        let number = self.run(TransactionState::None, true, |statements| {
            // Numbers are not used up by those who are there.
            let insert = "INSERT INTO persons (name) SELECT ?1::TEXT WHERE NOT EXISTS
                (SELECT 1 FROM persons WHERE name = ?1) ON CONFLICT (name) DO NOTHING";
            statements.execute(insert, &name)?;
            statements.one("SELECT id FROM persons WHERE name = ?1", &name, |row| {
                row.get(0)
            })
        })?;
        let number = number.ok_or_else(|| {
            self.connections
                .unusable("a person was removed at the same moment")
        })?;
        self.people.note(account, number);
        Ok(number)
    }

    /// What signs and checks rows for this host.
    fn rows(&self) -> RowSigner<'_> {
        RowSigner {
            state: &self.state,
            people: &self.people,
            names: self,
        }
    }
}

fn foreign(number: i64) -> u32 {
    FOREIGN.saturating_add(u32::try_from(number).unwrap_or(u32::MAX - FOREIGN))
}

impl HostNames for Fleet {
    fn user(&self, number: i64) -> u32 {
        let name = self.name(number);
        let uid = name.and_then(|name| self.people.uid(&name));
        uid.unwrap_or_else(|| foreign(number))
    }

    fn group(&self, number: i64) -> u32 {
        let name = self.name(number);
        let gid = name.and_then(|name| self.people.gid(&name));
        gid.unwrap_or_else(|| foreign(number))
    }

    fn name(&self, number: i64) -> Option<String> {
        if let Some(name) = self.people.known(number) {
            return Some(name);
        }
        let rows = self.run(TransactionState::None, true, |statements| {
            let name = |row: &BoardRow<'_>| Ok((row.get(0)?, row.get(1)?));
            statements.all("SELECT id, name FROM persons", &[], name)
        });
        self.people.learn(rows.ok()?.into_iter());
        self.people.known(number)
    }

    fn local_session<'a>(&self, session: &'a str) -> &'a str {
        let own = session.strip_prefix(&*self.state.host.name);
        own.and_then(|rest| rest.strip_prefix(':'))
            .unwrap_or(session)
    }
}

impl BoardMembership for Fleet {
    fn is_shared(&self) -> bool {
        true
    }

    fn is_away(&self) -> bool {
        self.state.away.lock().is_some()
    }

    fn changes_elsewhere(&self) -> &Notify {
        &self.state.woken
    }

    fn lease(&self) -> &Arc<HostLease> {
        &self.state.lease
    }

    fn shown_host(&self) -> Option<&str> {
        let has_others = self.state.has_others.load(Ordering::Relaxed);
        has_others.then_some(&*self.state.host.name)
    }

    fn person_name(&self, uid: u32) -> Option<String> {
        Some(self.rows().person_name(uid))
    }

    fn is_foreign(&self, uid: u32) -> bool {
        is_foreign(uid)
    }

    fn instances_elsewhere(&self) -> Result<Vec<(String, String)>, StoreError> {
        let sql = "SELECT name, instances FROM hosts WHERE name <> ?1 AND lease_until > now_ms() ORDER BY name";
        let own = [Value::from(self.state.host.name.clone())];
        let read = |row: &BoardRow<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut hosts: Vec<(String, String)> =
            self.work(false, |statements| statements.all(sql, &own, read))?;
        hosts.retain(|(name, _)| is_host_name(name));
        Ok(hosts)
    }

    fn report_places(&self, places: HostPlaces) {
        *self.state.places.lock() = places;
    }

    fn map_persons(&self, persons: HashMap<u32, String>) {
        self.people.map(persons);
    }

    fn count_hosts(&self, hosts: BTreeMap<String, CountedHost>) {
        let own = &self.state.host;
        if hosts
            .get(&own.name)
            .is_some_and(|listed| listed.key != *own.signer.verifier())
        {
            tracing::warn!(
                "hosts.json: hosts.{}: that is this host, and the key there is not its own, which counts: write {} there, or \
                 leave it out",
                own.name,
                own.signer.verifier()
            );
        }
        *self.state.counted.lock() = Arc::new(hosts);
    }

    fn leave(&self) {
        self.state.lease.lose();
        let values = [
            Value::from(self.state.host.name.clone()),
            self.state.run.clone().into(),
        ];
        let sql = "UPDATE hosts SET lease_until = 0, free_places = 0 WHERE name = ?1 AND run = ?2";
        let left = self.work(false, |statements| statements.execute(sql, &values));
        if let Err(error) = left {
            tracing::warn!("this host's lease was not given back, and ends by itself: {error}");
        }
        *self.state.away.lock() = Some("this daemon ends".to_owned());
    }
}

impl BoardStorage for Fleet {
    fn run_statements(&self, work: BoardWork<'_>) -> Result<(), StoreError> {
        self.work(false, work)
    }

    fn run_transaction(&self, work: BoardWork<'_>) -> Result<(), StoreError> {
        self.work(true, work)
    }

    fn fault(&self) -> Option<String> {
        self.away().filter(|why| why != NOT_YET)
    }

    fn person(&self, uid: u32) -> Result<i64, StoreError> {
        self.number(Account::User(uid))
    }

    fn group(&self, gid: u32) -> Result<i64, StoreError> {
        self.number(Account::Group(gid))
    }

    fn session_name(&self, session: &str) -> String {
        self.state.session(session)
    }

    fn lease_condition(&self, values: &mut Vec<Value>) -> String {
        let host = bind(values, self.state.host.name.clone());
        let run = bind(values, self.state.run.clone());
        format!(
            "EXISTS (SELECT 1 FROM hosts WHERE name = {host} AND run = {run} AND lease_until > now_ms())"
        )
    }

    fn sign_task(
        &self,
        statements: &mut dyn Statements,
        stored: Task,
        meant: Task,
    ) -> Result<Task, TransactionError> {
        let mut task = Task {
            id: stored.id,
            person: self.person_name(meant.said.created_by),
            ..meant
        };
        self.rows().sign_task(statements, &mut task)?;
        Ok(task)
    }

    fn sign_state(&self, task: &Task, result: Option<&str>, values: &mut Vec<Value>) -> String {
        let [host, signature] = self.rows().sign_state(task, result);
        let (host, signature) = (bind(values, host), bind(values, signature));
        format!(", state_host = {host}, state_signature = {signature}")
    }

    fn sign_schedule(
        &self,
        statements: &mut dyn Statements,
        id: u64,
        facts: &serde_json::Value,
    ) -> Result<(), TransactionError> {
        self.rows().sign_schedule(statements, id, facts)
    }
}
