//! Enqueue inside the caller's own sqlx transaction; the twin of `enqueue_in`.

use std::collections::HashMap;

use jiff::Timestamp;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{AssertSqlSafe, Decode, Postgres, Row, Transaction, Type};
use uuid::Uuid;

use super::PostgresStore;
use super::cause::Cause;
use super::enqueue::Columns;
use super::moment::Moment;
use super::row;
use super::wake::channel;
use crate::job::{JobRecord, NewJob, Status};
use crate::store::{Enqueued, StoreError, StoreErrorKind};

impl PostgresStore {
    /// Stores the jobs in `transaction`, which must be on this store's database. Committing it makes them real and
    /// wakes a worker; rolling it back leaves nothing. An error has broken the transaction, as any SQL error does.
    pub async fn enqueue_in_sqlx(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>, StoreError> {
        self.try_enqueue_in_sqlx(transaction, jobs).await.map_err(|error| {
            let refused =
                error.as_database_error().and_then(|error| error.code()).is_some_and(|code| &code[..2] == "23");
            let kind = if refused { StoreErrorKind::Rejected } else { StoreErrorKind::Unavailable };
            StoreError::new(kind, "enqueue_in").caused_by(Cause::from(&error))
        })
    }

    async fn try_enqueue_in_sqlx(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>, sqlx::Error> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let columns = Columns::of(&jobs.iter().collect::<Vec<_>>());
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
            .fetch_all(&mut **transaction)
            .await?;
        let mut stored = HashMap::with_capacity(rows.len());
        for row in &rows {
            stored.insert(row.try_get::<Uuid, _>(0)?, (row.try_get::<Time, _>(1)?.0, row.try_get::<Time, _>(2)?.0));
        }
        let missing: Vec<&str> = jobs
            .iter()
            .filter(|job| !stored.contains_key(job.id().as_uuid()))
            .filter_map(|job| job.idempotency_key())
            .collect();
        let mut known = HashMap::new();
        if !missing.is_empty() {
            let query = sqlx::query(AssertSqlSafe(self.core.sql.enqueue_known.clone()));
            for row in query.bind(Vec::<Uuid>::new()).bind(&missing).fetch_all(&mut **transaction).await? {
                let job = job(&row)?;
                known.insert(job.idempotency_key.clone(), job);
            }
        }
        let notify = sqlx::query("SELECT pg_catalog.pg_notify($1, '')").bind(channel(&self.schema));
        notify.execute(&mut **transaction).await?;
        let answer = |new: &NewJob| match stored.get(new.id().as_uuid()) {
            Some((run_at, created_at)) => Ok(Enqueued { created: true, job: new.as_stored(*run_at, *created_at) }),
            None => match known.get(&new.idempotency_key().map(str::to_owned)) {
                Some(job) => Ok(Enqueued { created: false, job: job.clone() }),
                // Its key was free again a moment later; the caller's transaction is where to try again.
                None => Err(sqlx::Error::RowNotFound),
            },
        };
        jobs.iter().map(answer).collect()
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
