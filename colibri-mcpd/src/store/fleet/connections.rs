//! Connections to the board's database, for callers that are not asynchronous.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::NoTls;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::BoardAddress;
use super::fault::pool_fault;
use crate::store::error::StoreError;

/// The most connections of one daemon beside its lease's.
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
    let runtime = builder.worker_threads(1).thread_name("colibri-board").enable_all();
    let runtime = runtime.build()?;
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// Connections to one database.
pub(super) struct BoardConnections {
    /// Its address as it may be shown.
    shown: String,
    pool: Pool,
}

impl BoardConnections {
    /// None yet.
    ///
    /// # Errors
    /// They cannot be pooled.
    pub(super) fn to(address: &BoardAddress) -> anyhow::Result<BoardConnections> {
        let settings = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let config = address.config.clone();
        let manager = match &address.tls {
            None => Manager::from_config(config, NoTls, settings),
            Some(tls) => Manager::from_config(config, MakeRustlsConnect::new(tls.clone()), settings),
        };
        Ok(BoardConnections {
            shown: address.shown.clone(),
            pool: Pool::builder(manager).max_size(CONNECTIONS).build()?,
        })
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
            Ok(Err(_)) | Err(_) => Err(self.unusable(format!("the database did not answer in {STATEMENT:?}"))),
        }
    }

    /// A connection.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    pub(super) fn client(&self) -> Result<Object, StoreError> {
        let pool = self.pool.clone();
        let client = self.wait(async move { pool.get().await })?;
        client.map_err(|error| self.unusable(pool_fault(&error)))
    }
}
