//! From rows to the domain's words. Reading is lenient: a row that a manual edit has damaged is still shown, as well
//! as it can be. Only [`strict`] refuses, because a damaged job must not be run.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::timestamp::PgTimestamp;
use crate::job::limits::NAME_MAX_BYTES;
use crate::job::{JobId, JobRecord, Json, Kind, QueueName, Status, WorkerId};

/// The columns of `jobs` (as `j`) that [`job`] reads, in its order; the last is for the outbox.
pub(super) const JOB_COLUMNS: &str = "j.id, j.kind, j.queue, j.payload, j.status, j.priority, j.attempts, \
     j.max_attempts, j.run_at, j.timeout_ms, j.idempotency_key, j.cancel_requested, j.worker, j.started_at, \
     j.lease_expires_at, j.last_error, j.result, j.progress, j.created_at, j.updated_at, j.finished_at, j.group_key, \
     j.cost, j.start_by, j.unique_shown, j.error_group, j.notify, j.trace, j.watch";

/// How many columns that is.
pub(super) const JOB_COLUMN_COUNT: usize = 29;

/// Where among them the end of the lease is.
pub(super) const LEASE_EXPIRES_AT: usize = 14;

/// Reads [`JOB_COLUMNS`] from a row of tokio-postgres or of sqlx: both have a `try_get` that answers what it is asked for.
macro_rules! job_from {
    ($row:expr, $kind:expr, $queue:expr, $payload:expr) => {{
        let row = $row;
        let (kind, queue, payload) = ($kind, $queue, $payload);
        let status = $crate::store::postgres::row::status(row.try_get(4)?);
        let is_running = status == $crate::job::Status::Running;
        let run_at: PgTimestamp = row.try_get(8)?;
        let timeout_ms: Option<i64> = row.try_get(9)?;
        let worker: Option<&str> = row.try_get(12)?;
        let started_at: Option<PgTimestamp> = row.try_get(13)?;
        let lease_expires_at: Option<PgTimestamp> = row.try_get($crate::store::postgres::row::LEASE_EXPIRES_AT)?;
        let result: Option<&str> = row.try_get(16)?;
        let progress: Option<&str> = row.try_get(17)?;
        let created_at: PgTimestamp = row.try_get(18)?;
        let updated_at: PgTimestamp = row.try_get(19)?;
        let finished_at: Option<PgTimestamp> = row.try_get(20)?;
        let group_key: Option<&str> = row.try_get(21)?;
        let cost: Option<i32> = row.try_get(22)?;
        let start_by: Option<PgTimestamp> = row.try_get(23)?;
        let unique: Option<&str> = row.try_get(24)?;
        let error_group: Option<i64> = row.try_get(25)?;
        let notify: Option<&str> = row.try_get(26)?;
        let trace: Option<&str> = row.try_get(27)?;
        $crate::job::JobRecord {
            id: $crate::store::postgres::row::id(row.try_get(0)?),
            kind,
            queue,
            payload,
            status,
            priority: row.try_get(5)?,
            attempts: $crate::store::postgres::row::count(row.try_get(6)?),
            max_attempts: $crate::store::postgres::row::count(row.try_get(7)?),
            run_at: run_at.timestamp(),
            timeout_ms: timeout_ms.map(|ms| ms.max(0) as u64),
            idempotency_key: row.try_get(10)?,
            group_key: group_key.map($crate::job::GroupKey::stored),
            cost: cost.map($crate::store::postgres::row::count),
            start_by: start_by.map(PgTimestamp::timestamp),
            unique: unique.and_then(|text| serde_json::from_str(text).ok()),
            notify: notify.and_then(|name| $crate::job::HookName::new(name).ok()),
            trace: trace.and_then($crate::job::TraceContext::from_stored),
            cancel_requested: row.try_get(11)?,
            locked_by: worker.filter(|_| is_running).map($crate::store::postgres::row::worker),
            locked_at: started_at.filter(|_| is_running).map(PgTimestamp::timestamp),
            lease_expires_at: lease_expires_at.map(PgTimestamp::timestamp),
            last_error: row.try_get(15)?,
            error_group: error_group.map($crate::job::Fingerprint::from_i64),
            result: result.map($crate::store::postgres::row::json),
            progress: progress.and_then(|text| serde_json::from_str(text).ok()),
            created_at: created_at.timestamp(),
            updated_at: updated_at.timestamp(),
            started_at: started_at.map(PgTimestamp::timestamp),
            finished_at: finished_at.map(PgTimestamp::timestamp),
        }
    }};
}
#[cfg(feature = "sqlx")]
pub(super) use job_from;

/// A whole job.
pub(super) fn job(row: &Row) -> Result<JobRecord, tokio_postgres::Error> {
    job_with(row, kind(row.try_get(1)?), queue(row.try_get(2)?), json(row.try_get(3)?))
}

fn job_with(row: &Row, kind: Kind, queue: QueueName, payload: Json) -> Result<JobRecord, tokio_postgres::Error> {
    Ok(job_from!(row, kind, queue, payload))
}

/// A job that can be run; the error says why it cannot.
pub(super) fn strict(row: &Row) -> Result<JobRecord, String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("cannot be run: the stored job cannot be read: {error}");
    let text = |column: usize| row.try_get::<_, &str>(column).map_err(|error| unreadable(&error));
    let kind = Kind::new(text(1)?).map_err(|error| unreadable(&error))?;
    let queue = QueueName::new(text(2)?).map_err(|error| unreadable(&error))?;
    let payload = Json::parse(text(3)?.to_owned()).map_err(|error| unreadable(&format!("payload: {error}")))?;
    job_with(row, kind, queue, payload).map_err(|error| unreadable(&error))
}

/// A time that may be absent, or one that only the database can say.
pub(super) fn time(row: &Row, column: usize) -> Result<Option<Timestamp>, tokio_postgres::Error> {
    Ok(row.try_get::<_, Option<PgTimestamp>>(column)?.map(PgTimestamp::timestamp))
}

pub(super) fn id(id: Uuid) -> JobId {
    JobId::from(id)
}

pub(super) fn kind(text: &str) -> Kind {
    Kind::new(text).unwrap_or_else(|_| Kind::new(legible(text)).expect("legible text is a name"))
}

pub(super) fn queue(text: &str) -> QueueName {
    QueueName::new(text).unwrap_or_else(|_| QueueName::new(legible(text)).expect("legible text is a name"))
}

pub(super) fn worker(text: &str) -> WorkerId {
    WorkerId::new(text).unwrap_or_else(|_| WorkerId::new(legible(text)).expect("legible text is a name"))
}

/// The table's rules leave no other word; should one appear, it is nothing that can be run.
pub(super) fn status(text: &str) -> Status {
    text.parse().unwrap_or(Status::FailedPermanent)
}

/// JSON, or the text as a JSON string if it is none.
pub(super) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap_or_else(|_| Json::of(text).unwrap_or_else(|_| Json::null()))
}

pub(super) fn count(n: i32) -> u32 {
    n.max(0) as u32
}

/// A name as near to the text as names allow.
fn legible(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || "_.:-".contains(c) { c } else { '_' };
    let name: String = text.to_ascii_lowercase().chars().take(NAME_MAX_BYTES).map(allowed).collect();
    if name.is_empty() { "_".into() } else { name }
}

/// Microseconds, as far as they go.
pub(super) fn micros(duration: Duration) -> i64 {
    duration.as_micros().try_into().unwrap_or(i64::MAX)
}

/// Milliseconds, as far as they go.
pub(super) fn millis(duration: Duration) -> i64 {
    duration.as_millis().try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_shown_as_one() {
        assert_eq!(kind("Grüße Gott").as_str(), "gr__e_gott");
        assert_eq!(queue("").as_str(), "_");
        assert_eq!(kind(&"K".repeat(100)).as_str(), "k".repeat(64));
    }

    #[test]
    fn what_is_no_json_is_shown_as_a_string() {
        assert_eq!(json("{\"a\":1}").as_str(), "{\"a\":1}");
        assert_eq!(json("{broken").as_str(), "\"{broken\"");
    }

    #[test]
    fn the_columns_are_counted() {
        assert_eq!(JOB_COLUMNS.split(',').count(), JOB_COLUMN_COUNT);
        assert_eq!(JOB_COLUMNS.split(',').nth(LEASE_EXPIRES_AT).unwrap().trim(), "j.lease_expires_at");
    }
}
