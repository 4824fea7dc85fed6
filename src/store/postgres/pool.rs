//! Connections: how one is made, the pool of the verbs, and the one that heartbeats have to themselves.
//!
//! No SQL of any verb is here; statements live beside their verbs.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Connect, Manager, ManagerConfig, Object, Pool as Deadpool, QueueMode, RecyclingMethod, Runtime,
};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio_postgres::tls::TlsStream;
use tokio_postgres::{Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::driver::Driver;
use super::error::{Cause, DbError};
use super::settings::{Address, PostgresSettings};
use crate::store::OpenError;

/// Everything needed to make a connection.
#[derive(Clone)]
pub(super) struct Connector {
    config: tokio_postgres::Config,
    tls: MakeRustlsConnect,
    session: Arc<str>,
    /// Where every connection is made and driven.
    driver: Arc<Driver>,
    /// For people to read; without the password.
    pub(super) shown: Arc<str>,
}

impl Connector {
    pub(super) fn new(settings: &PostgresSettings) -> Result<Self, OpenError> {
        let address = Address::parse(settings)?;
        let tls = super::tls::connector(&address.verify).map_err(|problem| {
            OpenError::new(
                &address.shown,
                problem,
                "point sslrootcert at a PEM file with the server's root certificate",
            )
        })?;
        let driver = Driver::start().map_err(|error| no_thread(&address.shown, error))?;
        Ok(Self {
            config: address.config,
            tls,
            session: session(settings).into(),
            driver: Arc::new(driver),
            shown: address.shown.into(),
        })
    }

    /// The same, with a thread of its own for the connections made by it.
    pub(super) fn on_a_thread_of_its_own(&self) -> std::io::Result<Self> {
        Ok(Self { driver: Arc::new(Driver::start()?), ..self.clone() })
    }

    /// A connection that is not driven yet, for whoever wants to hear notifications. To be called on the driver.
    pub(super) async fn connect_raw(
        &self,
    ) -> Result<(Client, Connection<Socket, impl TlsStream + Unpin + Send + 'static>), tokio_postgres::Error> {
        self.config.connect(self.tls.clone()).await
    }

    pub(super) async fn connect(&self) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
        let connector = self.clone();
        let connected = self.driver.run(async move {
            let (client, connection) = connector.connect_raw().await?;
            let task = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    let error = Cause::from(&error);
                    tracing::debug!(%error, "a PostgreSQL connection ended");
                }
            });
            client.batch_execute(&connector.session).await?;
            Ok((client, task))
        });
        connected.await
    }

    /// The thread that connections live on.
    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// What [`connect`](Self::connect) sets on a connection.
    pub(super) fn session(&self) -> &str {
        &self.session
    }
}

/// There are no threads left to drive connections with.
pub(super) fn no_thread(shown: &str, error: std::io::Error) -> OpenError {
    let way_out = "raise the limits on threads and open files of this process";
    OpenError::new(shown, "no thread can be started for its connections", way_out).caused_by(error)
}

impl Connect for Connector {
    fn connect(
        &self,
        _: &tokio_postgres::Config,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + '_>>
    {
        Box::pin(self.connect())
    }
}

/// Settings of every connection. Statements name their schema, so the search path matters only to a manual clock.
fn session(settings: &PostgresSettings) -> String {
    let search_path = match &settings.clock_schema {
        Some(clock) => format!("{}, pg_catalog", quoted(clock)),
        None => "pg_catalog".into(),
    };
    let ms = settings.statement_timeout.as_millis();
    // Sooner than the statement's own end, so that it can be told from a slow server, and leaves time to go around.
    let lock_ms = (ms / 4).max(1);
    format!(
        "SET search_path = {search_path};
         SET statement_timeout = {ms};
         SET lock_timeout = {lock_ms};
         SET idle_in_transaction_session_timeout = {idle_ms};
         SET synchronous_commit = on;
         SET default_transaction_isolation = 'read committed';
         SET timezone = 'UTC';
         SET jit = off;
         -- Every statement here is a walk along an index. What the planner believes of a table that was empty when it
         -- was last analysed, or of an array whose length it cannot know, must not turn one into a walk over the table.
         SET plan_cache_mode = force_generic_plan;
         SET enable_seqscan = off;
         SET enable_bitmapscan = off;
         SET enable_hashjoin = off;
         SET enable_mergejoin = off;",
        idle_ms = ms * 2,
    )
}

/// As an SQL identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A bounded number of connections.
#[derive(Clone)]
pub(super) struct Pool {
    connections: Deadpool,
    timeout: Duration,
}

impl Pool {
    pub(super) fn new(connector: &Connector, settings: &PostgresSettings, size: usize) -> Self {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(connector.config.clone(), connector.clone(), config);
        let connections = Deadpool::builder(manager)
            .max_size(size.max(1))
            // The one used last: its server process has all it needs at hand, and the others stay asleep.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(settings.wait_timeout))
            .create_timeout(Some(settings.connect_timeout * 2))
            .recycle_timeout(Some(settings.connect_timeout))
            .runtime(Runtime::Tokio1)
            .build()
            .expect("a runtime is given, which is all that building asks for");
        // The server breaks a statement off first and says so; only a silent server gets to the end of this.
        Self { connections, timeout: settings.statement_timeout + Duration::from_secs(2) }
    }

    /// A connection that answers. Give it back with [`PooledConnection::finish`]; one that is dropped without is closed, because
    /// something may still be going on in it.
    pub(super) async fn get(&self) -> Result<PooledConnection, DbError> {
        Ok(PooledConnection { object: Some(self.connections.get().await?), timeout: self.timeout })
    }
}

/// A connection taken from the pool.
pub(super) struct PooledConnection {
    object: Option<Object>,
    timeout: Duration,
}

impl PooledConnection {
    /// How long to wait for work on this connection.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Gives the connection back if the work came to an end, well or not, and it is of use for more.
    pub(super) fn finish<T>(mut self, answer: Result<Result<T, DbError>, Elapsed>) -> Result<T, DbError> {
        let answer = answer.map_err(|_| DbError::overdue())?;
        if !answer.as_ref().is_err_and(DbError::is_read_only) {
            drop(self.object.take());
        }
        answer
    }
}

impl Deref for PooledConnection {
    type Target = Object;
    fn deref(&self) -> &Object {
        self.object.as_ref().expect("only finish and drop take it, and both end the connection")
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut Object {
        self.object.as_mut().expect("only finish and drop take it, and both end the connection")
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}
