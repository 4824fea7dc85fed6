//! Enqueue inside the caller's own transaction: the job exists if, and only if, the caller commits.

use tokio_postgres::{Statement, Transaction};

use super::PostgresStore;
use super::enqueue::{insert, insert_sql};
use super::enqueue_unique::{self, UniqueStatements, any_unique};
use super::error::DbError;
use super::sql::Sql;
use super::stored::{PerJob, whole};
use super::wake::channel;
use crate::job::NewJob;
use crate::store::{EnqueueAnswer, Enqueued, NotStored};

/// A transaction of the caller's that jobs can be part of: of tokio-postgres, or of sqlx with the feature `sqlx`.
pub trait CallerTransaction: sealed::Sealed + Send {
    /// Stores the jobs in it.
    #[doc(hidden)]
    fn enqueue(
        &mut self,
        store: &PostgresStore,
        jobs: &[NewJob],
    ) -> impl Future<Output = Result<Vec<Enqueued>, NotStored>> + Send;
}

pub(super) mod sealed {
    /// Who enqueues within a transaction has to know its driver.
    pub trait Sealed {}
}

impl sealed::Sealed for Transaction<'_> {}

impl CallerTransaction for Transaction<'_> {
    async fn enqueue(&mut self, store: &PostgresStore, jobs: &[NewJob]) -> Result<Vec<Enqueued>, NotStored> {
        store.enqueue_in(self, jobs).await
    }
}

impl PostgresStore {
    /// Stores the jobs in `transaction`, which must be on this store's database. Committing it makes them real and
    /// wakes a worker; rolling it back leaves nothing. A key that belongs to another job leaves the transaction as it was;
    /// any other error has broken it, as SQL errors do.
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
    ) -> Result<Vec<Enqueued>, NotStored> {
        let answer = self.try_enqueue_in(transaction, jobs).await.map_err(|error| error.during("enqueue_in"))?;
        answer.map_err(NotStored::KeysTaken)
    }

    async fn try_enqueue_in(
        &self,
        transaction: &mut Transaction<'_>,
        jobs: &[NewJob],
    ) -> Result<EnqueueAnswer, DbError> {
        if jobs.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let jobs: Vec<&NewJob> = jobs.iter().collect();
        let sql = &self.core.sql;
        if any_unique(&jobs) {
            return self.enqueue_unique_in(transaction, &jobs).await;
        }
        let statement = transaction.prepare(insert_sql(sql, &jobs)).await?;
        // Without a key there is nothing to take back: what fails then breaks the transaction, as SQL errors do.
        let answers = match jobs.iter().any(|job| job.idempotency_key().is_some()) {
            true => {
                let within = transaction.savepoint("steadfast_enqueue").await?;
                let answers = try_store(&within, sql, &statement, &jobs).await?;
                match answers.iter().all(Result::is_ok) {
                    true => within.commit().await?,
                    false => within.rollback().await?,
                }
                answers
            }
            false => try_store(transaction, sql, &statement, &jobs).await?,
        };
        if answers.iter().all(Result::is_ok) {
            // Delivered at commit, and not at all if there is none.
            let channel = channel(&self.schema);
            transaction.execute("SELECT pg_catalog.pg_notify($1, '')", &[&channel]).await?;
        }
        Ok(whole(answers))
    }

    async fn enqueue_unique_in(
        &self,
        transaction: &mut Transaction<'_>,
        jobs: &[&NewJob],
    ) -> Result<EnqueueAnswer, DbError> {
        let sql = &self.core.sql;
        let statements = UniqueStatements {
            insert: transaction.prepare(&sql.enqueue_with_options).await?,
            free: transaction.prepare(&sql.unique_free).await?,
            replace: transaction.prepare(&sql.unique_replace).await?,
            holders: transaction.prepare(&sql.unique_holders).await?,
            known: transaction.prepare(&sql.known).await?,
            get: transaction.prepare(&sql.get).await?,
        };
        let within = transaction.savepoint("steadfast_enqueue").await?;
        let answers = enqueue_unique::store(&within, &statements, jobs).await?;
        match answers.iter().all(Result::is_ok) {
            true => within.commit().await?,
            false => within.rollback().await?,
        }
        let channel = channel(&self.schema);
        transaction.execute("SELECT pg_catalog.pg_notify($1, '')", &[&channel]).await?;
        Ok(whole(answers))
    }
}

async fn try_store(
    transaction: &Transaction<'_>,
    sql: &Sql,
    statement: &Statement,
    jobs: &[&NewJob],
) -> Result<Vec<PerJob>, DbError> {
    let mut stored = insert(transaction, statement, jobs, None).await?;
    if !stored.missing().is_empty() {
        let (known, get) = (transaction.prepare(&sql.known).await?, transaction.prepare(&sql.get).await?);
        stored.look_up(transaction, &known, &get).await?;
    }
    stored.answers()
}
