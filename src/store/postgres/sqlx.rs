//! Enqueue inside the caller's own sqlx transaction; the twin of `enqueue_in`.

use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{AssertSqlSafe, Connection, Decode, Postgres, Row, Transaction, Type};

use super::PostgresStore;
use super::enqueue::Columns;
use super::enqueue_in::{CallerTransaction, sealed};
use super::error::{Cause, DbError};
use super::known::Probe;
use super::row;
use super::stored::{Stored, whole};
use super::timestamp::PgTimestamp;
use super::wake::channel;
use crate::job::{JobRecord, NewJob};
use crate::store::{EnqueueAnswer, Enqueued, NotStored, StoreError, StoreErrorKind};

impl sealed::Sealed for Transaction<'_, Postgres> {}

impl CallerTransaction for Transaction<'_, Postgres> {
    async fn enqueue(&mut self, store: &PostgresStore, jobs: &[NewJob]) -> Result<Vec<Enqueued>, NotStored> {
        store.enqueue_in_sqlx(self, jobs).await
    }
}

impl PostgresStore {
    /// As [`enqueue_in`](Self::enqueue_in), for transactions of sqlx.
    pub async fn enqueue_in_sqlx(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>, NotStored> {
        let answer = self.try_enqueue_in_sqlx(transaction, jobs).await.map_err(|error| {
            let refused =
                error.as_database_error().and_then(|error| error.code()).is_some_and(|code| &code[..2] == "23");
            let kind = if refused { StoreErrorKind::Rejected } else { StoreErrorKind::Unavailable };
            StoreError::new(kind, "enqueue_in").caused_by(Cause::from(&error))
        })?;
        answer.map_err(|error| error.during("enqueue_in"))?.map_err(NotStored::KeysTaken)
    }

    async fn try_enqueue_in_sqlx(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        jobs: &[NewJob],
    ) -> Result<Result<EnqueueAnswer, DbError>, sqlx::Error> {
        if jobs.is_empty() {
            return Ok(Ok(Ok(Vec::new())));
        }
        let jobs: Vec<&NewJob> = jobs.iter().collect();
        let columns = Columns::of(&jobs);
        let mut within = transaction.begin().await?;
        let rows = sqlx::query(AssertSqlSafe(self.core.sql.enqueue.clone()))
            .bind(&columns.ids)
            .bind(&columns.kinds)
            .bind(&columns.queues)
            .bind(&columns.payloads)
            .bind(&columns.priorities)
            .bind(&columns.max_attempts)
            .bind(&columns.at_us)
            .bind(&columns.delay_us)
            .bind(&columns.timeout_ms)
            .bind(&columns.keys)
            .bind(&columns.digests)
            .fetch_all(&mut *within)
            .await?;
        let mut stored = Stored::of(&jobs);
        for row in &rows {
            let (run_at, created_at): (PgTimestamp, PgTimestamp) = (row.try_get(1)?, row.try_get(2)?);
            stored.new.insert(row.try_get(0)?, (run_at.timestamp(), created_at.timestamp()));
        }
        let missing = stored.missing();
        if !missing.is_empty() {
            let probe = Probe::of(&missing);
            let query = sqlx::query(AssertSqlSafe(self.core.sql.known.clone()));
            let query = query.bind(&probe.ids).bind(&probe.keys).bind(&probe.digests);
            for row in query.fetch_all(&mut *within).await? {
                stored.holders.insert(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            }
            let query = sqlx::query(AssertSqlSafe(self.core.sql.get.clone()));
            for row in query.bind(stored.holders.same()).fetch_all(&mut *within).await? {
                stored.records.insert(row.try_get(0)?, job(&row)?);
            }
        }
        let answer = stored.answers().map(whole);
        if !matches!(answer, Ok(Ok(_))) {
            within.rollback().await?;
            return Ok(answer);
        }
        within.commit().await?;
        let notify = sqlx::query("SELECT pg_catalog.pg_notify($1, '')").bind(channel(&self.schema));
        notify.execute(&mut **transaction).await?;
        Ok(answer)
    }
}

/// As [`row::job`], from sqlx's rows.
fn job(row: &PgRow) -> Result<JobRecord, sqlx::Error> {
    Ok(row::job_from!(row, row::kind(row.try_get(1)?), row::queue(row.try_get(2)?), row::json(row.try_get(3)?)))
}

impl Type<Postgres> for PgTimestamp {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("timestamptz")
    }
}

impl<'r> Decode<'r, Postgres> for PgTimestamp {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Err("a time came as text".into());
        }
        Ok(Self::from_wire(i64::from_be_bytes(value.as_bytes()?.try_into()?)))
    }
}
