//! Enqueue inside the caller's own transaction: the job exists if, and only if, the caller commits.

use tokio_postgres::Transaction;

use super::PostgresStore;
use super::enqueue::{Statements, store};
use super::trouble::Trouble;
use super::wake::channel;
use crate::job::NewJob;
use crate::store::{Enqueued, StoreError};

impl PostgresStore {
    /// Stores the jobs in `transaction`, which must be on this store's database. Committing it makes them real and
    /// wakes a worker; rolling it back leaves nothing. An error has broken the transaction, as any SQL error does.
    ///
    /// ```no_run
    /// # use steadfast::job::NewJob;
    /// # use steadfast::store::postgres::PostgresStore;
    /// # async fn sign_up(
    /// #     client: &mut tokio_postgres::Client, store: &PostgresStore, welcome: NewJob,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = client.transaction().await?;
    /// transaction.execute("INSERT INTO users (name) VALUES ('Ada')", &[]).await?;
    /// store.enqueue_in(&mut transaction, &[welcome]).await?;
    /// // Both or neither.
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_in(
        &self,
        transaction: &mut Transaction<'_>,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.try_enqueue_in(transaction, jobs).await.map_err(|trouble| trouble.doing("enqueue_in"))
    }

    async fn try_enqueue_in(&self, transaction: &Transaction<'_>, jobs: &[NewJob]) -> Result<Vec<Enqueued>, Trouble> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let statements = Statements {
            enqueue: transaction.prepare(&self.core.sql.enqueue).await?,
            known: transaction.prepare(&self.core.sql.enqueue_known).await?,
        };
        let jobs: Vec<&NewJob> = jobs.iter().collect();
        let enqueued = store(transaction, &statements, &jobs).await?;
        // Delivered at commit, and not at all if there is none.
        let channel = channel(&self.schema);
        transaction.execute("SELECT pg_catalog.pg_notify($1, '')", &[&channel]).await?;
        Ok(enqueued)
    }
}
