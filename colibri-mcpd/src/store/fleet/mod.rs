//! The board of many hosts: its tables in PostgreSQL, and this host's place among the others.
//!
//! The store's methods are synchronous, and the database is reached by tasks of a runtime of its own: whoever calls waits
//! on no thread of it. While the database is away each call fails at once, with the reason; the keeper of the lease finds
//! out when it is back.

mod address;
mod keeper;
mod lease;
mod people;
mod schema;
mod statements;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use parking_lot::Mutex;
use rusqlite::types::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio_postgres::NoTls;
use tokio_postgres_rustls::MakeRustlsConnect;

pub use address::BoardAddress;
pub use lease::HostLease;
use people::{Account, FOREIGN, People};
use statements::FleetStatements;

use super::database::TransactionError;
use super::error::StoreError;
use super::statements::Statements;

/// The most connections of one daemon beside its lease's.
const CONNECTIONS: usize = 6;
/// The reason for which the database is not used at the start.
const NOT_YET: &str = "it was not reached yet";
/// The longest time that a statement is waited for: longer than the server lets it take.
const STATEMENT: Duration = Duration::from_secs(6);

/// Returns the runtime on whose tasks the database is reached.
fn runtime() -> std::io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).thread_name("colibri-board").enable_all();
    let runtime = runtime.build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// This host among those of the board.
#[derive(Debug, Clone)]
pub struct HostIdentity {
    /// Its name.
    pub name: String,
    /// The key that checks what its trail signs.
    pub key: String,
}

/// What a host can run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPlaces {
    /// The agents of its registry, with their capabilities, as JSON.
    pub agents: String,
    /// The number of instances that may be started automatically now.
    pub free: u32,
}

/// The board's tables in PostgreSQL, as one host reaches them.
pub struct Fleet {
    address: BoardAddress,
    host: HostIdentity,
    /// This run of the daemon: sixteen hex digits.
    run: String,
    pool: Pool,
    people: People,
    lease: Arc<HostLease>,
    places: Mutex<HostPlaces>,
    /// The reason for which the database is not used now.
    away: Mutex<Option<String>>,
    /// Another host has changed something, or the database is back.
    woken: Notify,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fleet({}, {})", self.address.shown, self.host.name)
    }
}

impl Fleet {
    /// Begins to reach the board as this host. Whether it can be reached is found out afterwards, and again and again.
    ///
    /// # Errors
    /// The system gives no threads or no random numbers; or the host's name is none.
    pub fn start(address: BoardAddress, host: HostIdentity) -> anyhow::Result<Arc<Fleet>> {
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(std::io::Error::other)?;
        let settings = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let config = address.config.clone();
        let manager = match &address.tls {
            None => Manager::from_config(config, NoTls, settings),
            Some(tls) => Manager::from_config(config, MakeRustlsConnect::new(tls.clone()), settings),
        };
        let pool = Pool::builder(manager).max_size(CONNECTIONS).build()?;
        let fleet = Arc::new(Fleet {
            people: People::of(&host.name),
            away: Mutex::new(Some(NOT_YET.to_owned())),
            run: format!("{:016x}", u64::from_be_bytes(run)),
            lease: Arc::default(),
            places: Mutex::default(),
            woken: Notify::new(),
            pool,
            address,
            host,
        });
        let runtime = runtime()?;
        runtime.spawn(keeper::keep(Arc::downgrade(&fleet)));
        runtime.spawn(keeper::watch(Arc::downgrade(&fleet)));
        Ok(fleet)
    }

    /// The board's address as it may be shown.
    pub fn address(&self) -> &str {
        &self.address.shown
    }

    /// This host's name.
    pub fn host(&self) -> &str {
        &self.host.name
    }

    /// This host's lease.
    pub fn lease(&self) -> &Arc<HostLease> {
        &self.lease
    }

    /// The reason for which the board cannot be used now.
    pub fn away(&self) -> Option<String> {
        self.away.lock().clone()
    }

    /// The same, but for the time in which it was not reached yet.
    pub(super) fn fault(&self) -> Option<String> {
        self.away().filter(|why| why != NOT_YET)
    }

    /// Waits until another host has changed something, or the database is back.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    /// From now on these uids of this host are these persons.
    pub fn map_persons(&self, persons: HashMap<u32, String>) {
        self.people.map(persons);
    }

    /// From now on the other hosts read this of what this one can run.
    pub fn report(&self, places: HostPlaces) {
        *self.places.lock() = places;
    }

    fn unusable(&self, why: impl Into<String>) -> StoreError {
        StoreError::Board {
            board: self.address.shown.clone(),
            why: why.into(),
        }
    }

    /// Waits for a task of the fleet's runtime. No thread of that may wait here.
    fn wait<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Result<T, StoreError> {
        let runtime = runtime().map_err(|error| self.unusable(error.to_string()))?;
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            let done = tokio::time::timeout(STATEMENT, task).await;
            // Who waited has gone: nobody has to know.
            let _ = sender.send(done);
        });
        match receiver.recv() {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) | Err(_) => Err(self.unusable(format!("the database did not answer in {STATEMENT:?}"))),
        }
    }

    fn client(&self) -> Result<Object, StoreError> {
        if let Some(why) = self.away() {
            return Err(self.unusable(why));
        }
        let pool = self.pool.clone();
        let client = self.wait(async move { pool.get().await })?;
        client.map_err(|error| self.unusable(pool_fault(&error)))
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
        let mut statements = FleetStatements::new(self, self.client()?);
        if is_transaction {
            statements.batch("BEGIN")?;
        }
        let done = work(&mut statements).and_then(|done| {
            if is_transaction {
                statements.notify_others()?;
                statements.batch("COMMIT")?;
            }
            Ok(done)
        });
        done.map_err(|aborted| {
            if is_transaction {
                // A connection that cannot roll back is given up, and the server does.
                let _ = statements.batch("ROLLBACK");
            }
            match aborted {
                TransactionError::Refused(error) => error,
                TransactionError::Sqlite(error) => self.unusable(format!("what it has cannot be read: {error}")),
            }
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
        let number = self.work(false, |statements| {
            // Numbers are not used up by those who are there.
            let insert = "INSERT INTO persons (name) SELECT ?1::TEXT WHERE NOT EXISTS
                (SELECT 1 FROM persons WHERE name = ?1) ON CONFLICT (name) DO NOTHING";
            statements.execute(insert, &name)?;
            statements.one("SELECT id FROM persons WHERE name = ?1", &name, |row| row.get(0))
        })?;
        let number = number.ok_or_else(|| self.unusable("a person was removed at the same moment"))?;
        self.people.note(account, number);
        Ok(number)
    }

    /// The name of a number, if the board has one.
    pub(super) fn name(&self, number: i64) -> Option<String> {
        if let Some(name) = self.people.known(number) {
            return Some(name);
        }
        let rows = self.work(false, |statements| {
            let name = |row: &super::statements::BoardRow<'_>| Ok((row.get(0)?, row.get(1)?));
            statements.all("SELECT id, name FROM persons", &[], name)
        });
        self.people.learn(rows.ok()?.into_iter());
        self.people.known(number)
    }

    /// The uid of a person; of one who is none here a number that no account has.
    pub(super) fn user(&self, number: i64) -> u32 {
        let name = self.name(number);
        let uid = name.and_then(|name| self.people.uid(&name));
        uid.unwrap_or_else(|| foreign(number))
    }

    /// The gid of a group; of one that is none here a number that no group has.
    pub(super) fn group(&self, number: i64) -> u32 {
        let name = self.name(number);
        let gid = name.and_then(|name| self.people.gid(&name));
        gid.unwrap_or_else(|| foreign(number))
    }

    /// An instance of this host as the board has it.
    pub(super) fn session(&self, session: &str) -> String {
        match session.contains(':') {
            true => session.to_owned(),
            false => format!("{}:{session}", self.host.name),
        }
    }

    /// An instance as this host has it: one of another host keeps that one's name.
    pub(super) fn local_session<'a>(&self, session: &'a str) -> &'a str {
        let own = session.strip_prefix(&*self.host.name);
        own.and_then(|rest| rest.strip_prefix(':')).unwrap_or(session)
    }

    /// The condition that this host's lease is in force by the database's clock. Its parameters are added to `values`.
    pub(super) fn lease_condition(&self, values: &mut Vec<Value>) -> String {
        values.extend([self.host.name.clone().into(), self.run.clone().into()]);
        let (host, run) = (values.len() - 1, values.len());
        format!("EXISTS (SELECT 1 FROM hosts WHERE name = ?{host} AND run = ?{run} AND lease_until > now_ms())")
    }

    /// Gives the lease back: this daemon ends, and others take over at once.
    pub fn leave(self: &Arc<Self>) {
        self.lease.lose();
        let values = [Value::from(self.host.name.clone()), self.run.clone().into()];
        let sql = "UPDATE hosts SET lease_until = 0, free_places = 0 WHERE name = ?1 AND run = ?2";
        let left = self.work(false, |statements| statements.execute(sql, &values));
        if let Err(error) = left {
            tracing::warn!("this host's lease was not given back, and ends by itself: {error}");
        }
        *self.away.lock() = Some("this daemon ends".to_owned());
    }
}

/// True if a uid stands for a person who is none of this host.
pub(super) fn is_foreign(uid: u32) -> bool {
    uid >= FOREIGN && uid != u32::MAX
}

fn foreign(number: i64) -> u32 {
    FOREIGN.saturating_add(u32::try_from(number).unwrap_or(u32::MAX - FOREIGN))
}

fn pool_fault(error: &deadpool_postgres::PoolError) -> String {
    match error {
        deadpool_postgres::PoolError::Backend(error) => fault(error),
        error => error.to_string(),
    }
}

/// The fault of the database, and the remedy.
fn fault(error: &tokio_postgres::Error) -> String {
    let Some(refusal) = error.as_db_error() else {
        let causes = anyhow::Error::msg(chain(error));
        return format!("{causes}: see that the database runs and is reached from here");
    };
    let remedy = match refusal.code().code() {
        "28P01" => "put the right password into the file of passfile",
        "28000" => "let this role in from this host in pg_hba.conf, or name another in the address",
        "3D000" => "make it (createdb), or name another in the address",
        "42501" => "grant the role what it lacks",
        "53300" => "raise max_connections: a daemon takes up to 7",
        "25006" => "it is a standby: name the primary, or add target_session_attrs=read-write",
        "40001" | "40P01" | "55P03" => "somebody else was at it: try again",
        "57P03" => "wait until it has started",
        "57P01" | "57P02" | "57P05" => "it was ended: it is tried again",
        "42P01" | "42703" => "its schema is not whole: restore it from a backup",
        _ => "see the database's log",
    };
    format!("{}; {remedy}", refusal.message())
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
