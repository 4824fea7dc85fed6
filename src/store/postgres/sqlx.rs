//! Enqueue inside the caller's own sqlx transaction; the twin of `enqueue_in`.

use std::collections::HashMap;

use jiff::Timestamp;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{AssertSqlSafe, Connection, Decode, Postgres, Row, Transaction, Type};
use uuid::Uuid;

use super::PostgresStore;
use super::cause::Cause;
use super::enqueue::{Columns, Stored, answer};
use super::enqueue_in::{CallerTransaction, sealed};
use super::error::Trouble;
use super::known::{Holders, Probe};
use super::row;
use super::timestamp::Moment;
use super::wake::channel;
use crate::job::{JobRecord, NewJob, Status};
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
        answer.map_err(|trouble| trouble.doing("enqueue_in"))?.map_err(NotStored::KeysTaken)
    }

    async fn try_enqueue_in_sqlx(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        jobs: &[NewJob],
    ) -> Result<Result<EnqueueAnswer, Trouble>, sqlx::Error> {
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
        let mut stored = Stored::with_capacity(rows.len());
        for row in &rows {
            stored.insert(row.try_get::<Uuid, _>(0)?, (row.try_get::<Time, _>(1)?.0, row.try_get::<Time, _>(2)?.0));
        }
        let missing: Vec<&NewJob> =
            jobs.iter().copied().filter(|job| !stored.contains_key(job.id().as_uuid())).collect();
        let (probe, mut holders, mut records) = (Probe::of(&missing), Holders::default(), HashMap::new());
        if !missing.is_empty() {
            let query = sqlx::query(AssertSqlSafe(self.core.sql.known.clone()));
            let query = query.bind(&probe.ids).bind(&probe.keys).bind(&probe.digests);
            for row in query.fetch_all(&mut *within).await? {
                holders.insert(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            }
            if let Some(ids) = holders.ids_if_none_is_taken() {
                let query = sqlx::query(AssertSqlSafe(self.core.sql.get.clone()));
                for row in query.bind(ids).fetch_all(&mut *within).await? {
                    records.insert(row.try_get(0)?, job(&row)?);
                }
            }
        }
        let answer = answer(&jobs, &stored, &holders, &records);
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
    let time = |column| row.try_get::<Option<Time>, _>(column).map(|time| time.map(|time| time.0));
    let always = |column| row.try_get::<Time, _>(column).map(|time| time.0);
    let status = row::status(row.try_get(4)?);
    let running = status == Status::Running;
    Ok(JobRecord {
        id: row::id(row.try_get(0)?),
        kind: row::kind(row.try_get(1)?),
        queue: row::queue(row.try_get(2)?),
        payload: row::json(row.try_get(3)?),
        status,
        priority: row.try_get(5)?,
        attempts: row::count(row.try_get(6)?),
        max_attempts: row::count(row.try_get(7)?),
        run_at: always(8)?,
        timeout_ms: row.try_get::<Option<i64>, _>(9)?.map(|ms| ms.max(0) as u64),
        idempotency_key: row.try_get(10)?,
        cancel_requested: row.try_get(11)?,
        locked_by: row.try_get::<Option<&str>, _>(12)?.filter(|_| running).map(row::worker),
        locked_at: time(13)?.filter(|_| running),
        lease_expires_at: time(14)?,
        last_error: row.try_get(15)?,
        result: row.try_get::<Option<&str>, _>(16)?.map(row::json),
        progress: row.try_get::<Option<&str>, _>(17)?.and_then(|text| serde_json::from_str(text).ok()),
        created_at: always(18)?,
        updated_at: always(19)?,
        started_at: time(13)?,
        finished_at: time(20)?,
    })
}

/// `timestamptz`, which sqlx reads only into other crates' types.
struct Time(Timestamp);

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("timestamptz")
    }
}

impl<'r> Decode<'r, Postgres> for Time {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Err("a time came as text".into());
        }
        let us = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(Self(Moment::from_wire(us).timestamp()))
    }
}
