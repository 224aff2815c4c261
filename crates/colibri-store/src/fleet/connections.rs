//! Connections to the board's database, for callers that are not asynchronous.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::NoTls;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::BoardAddress;
use super::fault::pool_fault;
use crate::error::StoreError;

/// The most connections of one daemon beside its lease's and that for names and wakes.
const CONNECTIONS: usize = 6;
/// The longest time that a statement is waited for: longer than the server lets it take.
const STATEMENT: Duration = Duration::from_secs(6);

/// Returns the runtime on whose tasks the database is reached.
pub(super) fn runtime() -> std::io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let mut builder = Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(1)
        .thread_name("colibri-board")
        .enable_all();
    let runtime = runtime.build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// Connections to one database.
pub(super) struct BoardConnections {
    /// Its address as it may be shown.
    shown: String,
    pool: Pool,
    /// Of one connection: who has one of the pool may need a name.
    aside: Pool,
    /// A place for each connection of the pool, in the order of coming.
    places: Arc<Semaphore>,
}

impl BoardConnections {
    /// None yet.
    ///
    /// # Errors
    /// They cannot be pooled.
    pub(super) fn to(address: &BoardAddress) -> anyhow::Result<BoardConnections> {
        let pool = |connections| {
            let settings = ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            };
            let config = address.config.clone();
            let manager = match &address.tls {
                None => Manager::from_config(config, NoTls, settings),
                Some(tls) => {
                    Manager::from_config(config, MakeRustlsConnect::new(tls.clone()), settings)
                }
            };
            Pool::builder(manager).max_size(connections).build()
        };
        Ok(BoardConnections {
            shown: address.shown.clone(),
            pool: pool(CONNECTIONS)?,
            aside: pool(1)?,
            places: Arc::new(Semaphore::new(CONNECTIONS)),
        })
    }

    /// Waits for a place among those who have a connection of the pool: as long as it takes, since
    /// all are served in turn.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let places = self.places.clone();
        if let Ok(place) = places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let runtime = runtime().map_err(|error| self.unusable(error.to_string()))?;
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            // Who waited has gone: the place is another's.
            let _ = sender.send(places.acquire_owned().await);
        });
        let place = receiver.recv().ok().and_then(Result::ok);
        place.ok_or_else(|| self.unusable("this daemon ends"))
    }

    /// The pool for names and wakes, where none is waited for that needs another connection.
    pub(super) fn aside(&self) -> &Pool {
        &self.aside
    }

    /// The error that the board cannot be used.
    pub(super) fn unusable(&self, why: impl Into<String>) -> StoreError {
        StoreError::Board {
            board: self.shown.clone(),
            why: why.into(),
        }
    }

    /// Waits for a task of the fleet's runtime. No thread of that may wait here.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let runtime = runtime().map_err(|error| self.unusable(error.to_string()))?;
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            let done = tokio::time::timeout(STATEMENT, task).await;
            // Who waited has gone: nobody has to know.
            let _ = sender.send(done);
        });
        match receiver.recv() {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) | Err(_) => {
                Err(self.unusable(format!("the database did not answer in {STATEMENT:?}")))
            }
        }
    }

    /// A connection of the pool, for who has a place; or the one aside.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    pub(super) fn client(&self, is_aside: bool) -> Result<Object, StoreError> {
        let pool = if is_aside {
            self.aside.clone()
        } else {
            self.pool.clone()
        };
        let client = self.wait(async move { pool.get().await })?;
        client.map_err(|error| self.unusable(pool_fault(&error)))
    }
}
