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

use super::error::{StoreError, TransactionError};
use super::row_seal::RowSeal;
use super::statements::{BoardRow, HostNames, Statements};
pub use address::BoardAddress;
use connections::{BoardConnections, runtime};
pub use lease::HostLease;
pub(super) use people::is_foreign;
use people::{Account, FOREIGN, People};
use signed::RowSigner;
pub(super) use signed::digest;
pub use state::CountedHost;
use state::{FleetState, NOT_YET};
pub use state::{HostIdentity, HostPlaces};
use statements::{FleetStatements, TransactionState};

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

    /// This host's name.
    pub fn host(&self) -> &str {
        &self.state.host.name
    }

    /// This host's lease.
    pub fn lease(&self) -> &Arc<HostLease> {
        &self.state.lease
    }

    /// The reason for which the board cannot be used now.
    pub fn away(&self) -> Option<String> {
        self.state.away.lock().clone()
    }

    /// The same, but for the time in which it was not reached yet.
    pub(super) fn fault(&self) -> Option<String> {
        self.away().filter(|why| why != NOT_YET)
    }

    /// Waits until another host has changed something, or the database is back.
    pub async fn woken(&self) {
        self.state.woken.notified().await;
    }

    /// From now on these uids of this host are these persons.
    pub fn map_persons(&self, persons: HashMap<u32, String>) {
        self.people.map(persons);
    }

    /// From now on what these hosts have signed counts, beside what this one has.
    pub fn count_hosts(&self, hosts: BTreeMap<String, CountedHost>) {
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

    /// From now on the other hosts read this of what this one can run.
    pub fn report(&self, places: HostPlaces) {
        *self.state.places.lock() = places;
    }

    /// True if other hosts have enrolled on the board.
    pub fn has_others(&self) -> bool {
        self.state.has_others.load(Ordering::Relaxed)
    }

    /// The instances of the other hosts that are there, as they show them: by the host's name,
    /// JSON.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    pub fn instances_elsewhere(&self) -> Result<Vec<(String, String)>, StoreError> {
        let sql = "SELECT name, instances FROM hosts WHERE name <> ?1 AND lease_until > now_ms() ORDER BY name";
        let own = [Value::from(self.state.host.name.clone())];
        let read = |row: &BoardRow<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut hosts: Vec<(String, String)> =
            self.work(false, |statements| statements.all(sql, &own, read))?;
        hosts.retain(|(name, _)| is_host_name(name));
        Ok(hosts)
    }

    /// Runs statements, as one transaction or each as its own.
    ///
    /// # Errors
    /// [`StoreError::Board`]; what `work` refuses.
    pub(super) fn work<T>(
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
        let mut statements = FleetStatements::new(&self.connections, self, client, transaction);
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

    /// The number of a user on the board.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    pub(super) fn person(&self, uid: u32) -> Result<i64, StoreError> {
        self.number(Account::User(uid))
    }

    /// The number of a group on the board.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    pub(super) fn group_number(&self, gid: u32) -> Result<i64, StoreError> {
        self.number(Account::Group(gid))
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

    /// The name of a user on the board.
    pub fn person_name(&self, uid: u32) -> String {
        self.rows().person_name(uid)
    }

    /// What signs and checks rows for this host.
    pub(super) fn rows(&self) -> RowSigner<'_> {
        RowSigner {
            state: &self.state,
            people: &self.people,
            names: self,
        }
    }

    /// An instance of this host as the board has it.
    pub(super) fn session(&self, session: &str) -> String {
        self.state.session(session)
    }

    /// The condition that this host's lease is in force by the database's clock. Its parameters are
    /// added to `values`.
    pub(super) fn lease_condition(&self, values: &mut Vec<Value>) -> String {
        values.extend([
            self.state.host.name.clone().into(),
            self.state.run.clone().into(),
        ]);
        let (host, run) = (values.len() - 1, values.len());
        format!(
            "EXISTS (SELECT 1 FROM hosts WHERE name = ?{host} AND run = ?{run} AND lease_until > now_ms())"
        )
    }

    /// Gives the lease back: this daemon ends, and others take over at once.
    pub fn leave(self: &Arc<Self>) {
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

    fn foreign_task(&self, task: &Task, seal: &RowSeal) -> Option<String> {
        self.rows().foreign_task(task, seal)
    }

    fn foreign_schedule(
        &self,
        facts: &serde_json::Value,
        creator: Option<&str>,
        seal: &RowSeal,
    ) -> Option<String> {
        self.rows().foreign_schedule(facts, creator, seal)
    }

    fn local_session<'a>(&self, session: &'a str) -> &'a str {
        let own = session.strip_prefix(&*self.state.host.name);
        own.and_then(|rest| rest.strip_prefix(':'))
            .unwrap_or(session)
    }
}
