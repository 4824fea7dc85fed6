//! A look at the server from beside, for benchmarks: what it is set to, what it has written, and the removal of a
//! schema made for one. The store itself never uses it.

use std::fmt;

use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::error::{Cause, DbError};
use super::open::{check_server, connect};
use super::pool::{Connector, quoted};
use super::settings::PostgresSettings;
use crate::store::{OpenError, StoreError};

/// What bears on durability and speed.
const TELLING: [&str; 7] = [
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "max_connections",
];

/// A connection of its own, set up as the store's are.
pub(crate) struct Observer {
    client: Client,
    backend: u32,
    /// Connections live on its thread.
    _dial: Connector,
}

/// What the server has written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteCounters {
    /// Bytes of write-ahead log, of the whole server.
    pub(crate) wal_bytes: u64,
    /// Transactions committed in this database, as far as backends have reported them.
    pub(crate) commits: u64,
}

impl Observer {
    /// Connects.
    pub(crate) async fn connect(settings: &PostgresSettings) -> Result<Self, OpenError> {
        let connector = Connector::new(settings)?;
        let client = connect(&connector, settings).await?;
        check_server(&client, &connector, settings).await?;
        let asked = client.query_one("SELECT pg_backend_pid()", &[]).await.and_then(|row| row.try_get::<_, i32>(0));
        let backend = asked.map_err(|error| {
            OpenError::new(&connector.shown, "the server does not say who it is", "see its message")
                .caused_by(Cause::from(&error))
        })?;
        Ok(Self { client, backend: backend.unsigned_abs(), _dial: connector })
    }

    /// The process that serves this connection.
    pub(crate) fn backend(&self) -> u32 {
        self.backend
    }

    /// Settings that bear on durability and speed, as a connection of the store finds them.
    pub(crate) async fn settings(&self) -> Result<Vec<(String, String)>, StoreError> {
        let mut found = Vec::new();
        for name in TELLING {
            let value = self.ask::<String>("SELECT current_setting($1)", &[&name]).await?;
            found.push((name.to_owned(), value));
        }
        Ok(found)
    }

    /// What was written so far.
    pub(crate) async fn written(&self) -> Result<WriteCounters, StoreError> {
        let wal: i64 = self.ask("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint", &[]).await?;
        let commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
        let commits: i64 = self.ask(commits, &[]).await?;
        Ok(WriteCounters { wal_bytes: wal.unsigned_abs(), commits: commits.unsigned_abs() })
    }

    /// How many connections there are under this application name, which the server cuts after 63 bytes.
    pub(crate) async fn connections(&self, application_name: &str) -> Result<i64, StoreError> {
        let count =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()";
        self.ask(count, &[&application_name]).await
    }

    /// Vacuums the jobs of a schema, and writes a checkpoint if this user may.
    pub(crate) async fn tidy(&self, schema: &str) -> Result<(), StoreError> {
        self.execute(&format!("VACUUM (ANALYZE) {}.jobs", quoted(schema))).await?;
        // Only some users may; without it the next one comes when the server thinks fit.
        let _ = self.client.batch_execute("CHECKPOINT").await;
        Ok(())
    }

    /// Removes a schema with everything in it.
    pub(crate) async fn drop_schema(&self, schema: &str) -> Result<(), StoreError> {
        self.execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", quoted(schema))).await
    }

    async fn execute(&self, sql: &str) -> Result<(), StoreError> {
        self.client.batch_execute(sql).await.map_err(|error| DbError::from(error).during("observe"))
    }

    async fn ask<T>(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<T, StoreError>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let row = self.client.query_one(sql, params).await;
        row.and_then(|row| row.try_get(0)).map_err(|error| DbError::from(error).during("observe"))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer(backend {})", self.backend)
    }
}
