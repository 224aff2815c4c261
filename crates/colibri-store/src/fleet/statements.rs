//! Statements on one connection to PostgreSQL.

use std::error::Error;
use std::sync::Arc;

use bytes::BytesMut;
use deadpool_postgres::Object;
use rusqlite::types::Value;
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::connections::BoardConnections;
use super::fault::fault;
use super::row_seal::{RowSeal, SCHEDULE_SEAL, SCHEDULE_SEAL_COLUMNS, SEAL, SEAL_COLUMNS};
use super::signed::{RowSigner, SignedRow};
use crate::error::{StoreError, TransactionError};
use crate::statements::{BoardRow, Statements};

/// The statements of one transaction.
pub(super) struct FleetStatements<'a> {
    connections: &'a BoardConnections,
    signer: RowSigner<'a>,
    /// `None`: it was given up.
    client: Option<Arc<Object>>,
    transaction: TransactionState,
    wakes_others: bool,
}

/// The transaction of the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionState {
    /// Each statement is one.
    None,
    /// It begins with the first statement, on the same way to the database.
    Due,
    Open,
}

impl<'a> FleetStatements<'a> {
    pub(super) fn new(
        connections: &'a BoardConnections,
        signer: RowSigner<'a>,
        client: Object,
        transaction: TransactionState,
    ) -> FleetStatements<'a> {
        FleetStatements {
            connections,
            signer,
            client: Some(Arc::new(client)),
            transaction,
            wakes_others: false,
        }
    }

    /// Runs what `work` does on the connection. One that broke, or does not answer, is given up.
    fn run<T, F>(&mut self, work: impl FnOnce(Arc<Object>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, tokio_postgres::Error>> + Send + 'static,
    {
        let gone = || {
            self.connections
                .unusable("the connection to the database is gone")
        };
        let client = self.client.clone().ok_or_else(gone)?;
        let is_due = self.transaction == TransactionState::Due;
        let begin = client.clone();
        let work = work(client);
        let begun_work = async move {
            if !is_due {
                drop(begin);
                return work.await;
            }
            let begin = async move { begin.batch_execute("BEGIN").await };
            let (begun, done) = tokio::join!(biased; begin, work);
            begun.and(done)
        };
        if is_due {
            self.transaction = TransactionState::Open;
        }
        let done = self.connections.wait(begun_work);
        let is_broken = match &done {
            Err(_) => true,
            Ok(done) => done
                .as_ref()
                .is_err_and(|error| error.as_db_error().is_none()),
        };
        if is_broken && let Some(client) = self.client.take().and_then(Arc::into_inner) {
            drop(Object::take(client));
        }
        done?.map_err(|error| self.connections.unusable(fault(&error)))
    }

    /// Ends the transaction, if one has begun, with `COMMIT` or `ROLLBACK`.
    pub(super) fn end(&mut self, sql: &'static str) -> Result<(), StoreError> {
        if std::mem::replace(&mut self.transaction, TransactionState::None)
            != TransactionState::Open
        {
            return Ok(());
        }
        self.run(|client| async move { client.batch_execute(sql).await })
    }

    /// True if something was changed that other hosts wait for.
    pub(super) fn wakes_others(&self) -> bool {
        self.wakes_others
    }
}

/// The same statement with PostgreSQL's parameters, and with the columns of signatures, which
/// SQLite has not.
fn translated(sql: &str) -> String {
    let sql = sql.replace(SEAL, SEAL_COLUMNS);
    sql.replace(SCHEDULE_SEAL, SCHEDULE_SEAL_COLUMNS)
        .replace('?', "$")
}

fn parameters(values: &[Value]) -> Vec<BoundValue> {
    values.iter().cloned().map(BoundValue).collect()
}

impl Statements for FleetStatements<'_> {
    fn query(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<BoardRow<'_>>, TransactionError> {
        let (sql, values) = (translated(sql), parameters(values));
        let rows = self.run(|client| async move {
            let statement = client.prepare_cached(&sql).await?;
            let values: Vec<_> = values
                .iter()
                .map(|value| value as &(dyn ToSql + Sync))
                .collect();
            client.query(&statement, &values).await
        })?;
        let (connections, signer) = (self.connections, self.signer);
        let read = |row: &Row| -> Result<BoardRow<'_>, StoreError> {
            let mut seal = RowSeal::default();
            let values = row.columns().iter().enumerate();
            let values =
                values.filter(|(number, column)| !seal.read(column.name(), || row.get(*number)));
            let values =
                values.map(|(number, column)| match *column.type_() {
                    Type::INT8 => Ok(row
                        .get::<_, Option<i64>>(number)
                        .map_or(Value::Null, Value::from)),
                    Type::TEXT => Ok(row
                        .get::<_, Option<String>>(number)
                        .map_or(Value::Null, Value::from)),
                    ref other => Err(connections
                        .unusable(format!("column {} has the type {other}", column.name()))),
                });
            let values = values.collect::<Result<_, _>>()?;
            let shared = SignedRow { signer, seal };
            Ok(BoardRow {
                values,
                shared: Some(Box::new(shared)),
            })
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, TransactionError> {
        let (sql, values) = (translated(sql), parameters(values));
        Ok(self.run(|client| async move {
            let statement = client.prepare_cached(&sql).await?;
            let values: Vec<_> = values
                .iter()
                .map(|value| value as &(dyn ToSql + Sync))
                .collect();
            client.execute(&statement, &values).await
        })?)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn wake_others(&mut self) {
        self.wakes_others = true;
    }
}

/// A parameter, as the type that the statement has for it.
#[derive(Debug)]
struct BoundValue(Value);

impl ToSql for BoundValue {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (&self.0, kind) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Integer(number), &Type::INT4) => i32::try_from(*number)?.to_sql(kind, out),
            (Value::Integer(number), _) => number.to_sql_checked(kind, out),
            (Value::Text(text), _) => text.to_sql_checked(kind, out),
            (Value::Real(_) | Value::Blob(_), _) => {
                Err("the board has numbers and texts alone".into())
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
