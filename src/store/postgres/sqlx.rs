//! Enqueue inside the caller's own sqlx transaction; the twin of `enqueue_in`.

use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{AssertSqlSafe, Connection, Decode, Postgres, Row, Transaction, Type};

use super::PostgresStore;
use super::enqueue::Columns;
use super::enqueue_in::{CallerTransaction, sealed};
use super::enqueue_unique::{Replacements, stored_key};
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
        let is_plain = jobs.iter().all(|job| job.is_plain());
        let sql = if is_plain { &self.core.sql.enqueue } else { &self.core.sql.enqueue_with_options };
        let insert = sqlx::query(AssertSqlSafe(sql.clone()))
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
            .bind(&columns.digests);
        let insert = match is_plain {
            true => insert,
            false => insert
                .bind(&columns.options.groups)
                .bind(&columns.options.costs)
                .bind(&columns.options.start_by_us)
                .bind(&columns.options.start_within_us)
                .bind(&columns.options.unique_keys)
                .bind(&columns.options.unique_whiles)
                .bind(&columns.options.unique_for_us)
                .bind(&columns.options.unique_shown)
                .bind(&columns.options.watches)
                .bind(&columns.options.notifies)
                .bind(&columns.options.traces),
        };
        let keys: Vec<String> = jobs.iter().filter_map(|job| stored_key(job)).collect();
        if !keys.is_empty() {
            let free = sqlx::query(AssertSqlSafe(self.core.sql.unique_free.clone()));
            free.bind(&keys).execute(&mut *within).await?;
        }
        let rows = insert.fetch_all(&mut *within).await?;
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
        let open = stored.unanswered();
        if !open.is_empty() && !keys.is_empty() {
            // One round: a key that is free again by now is an error, to be tried again with the transaction.
            let replacing = Replacements::of(&open);
            let query = sqlx::query(AssertSqlSafe(self.core.sql.unique_replace.clone()))
                .bind(&replacing.keys)
                .bind(&replacing.payloads)
                .bind(&replacing.priorities)
                .bind(&replacing.at_us)
                .bind(&replacing.delay_us)
                .bind(&replacing.max_wait_us);
            for row in query.fetch_all(&mut *within).await? {
                stored.replaced.insert(row.try_get(row::JOB_COLUMN_COUNT)?, job(&row)?);
            }
            let query = sqlx::query(AssertSqlSafe(self.core.sql.unique_holders.clone()));
            for row in query.bind(&keys).fetch_all(&mut *within).await? {
                stored.unique_holders.insert(row.try_get(row::JOB_COLUMN_COUNT)?, job(&row)?);
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
