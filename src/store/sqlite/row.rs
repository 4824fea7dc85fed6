//! Between rows and the words of `job`. Reading is lenient: one row that makes no sense must not keep others back.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use uuid::Uuid;

use super::job_options::JobOptions;
use crate::job::{Fingerprint, GroupKey, JobId, JobRecord, Json, Kind, LeaseToken, QueueName, WorkerId};

/// What [`read_job_leniently`] reads, in its order.
macro_rules! job_columns {
    () => {
        "id, kind, queue, payload, status, priority, attempts, max_attempts, run_at, timeout_ms, idempotency_key, \
         cancel_requested, worker, started_at, lease_expires_at, last_error, result, progress, created_at, updated_at, \
         finished_at, group_key, \
         CASE WHEN marks & 16 THEN (SELECT shown FROM job_options WHERE job_options.seq = jobs.seq) END, \
         CASE WHEN died_at IS NOT NULL THEN (SELECT fingerprint FROM dead_groups WHERE dead_groups.seq = jobs.seq) END"
    };
}
pub(super) use job_columns;

/// Why a row makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{column} cannot be read: {reason}")]
pub(super) struct Unreadable {
    column: &'static str,
    reason: String,
}

/// Reads a whole job, to be shown: a payload that is not JSON is a string instead of giving up.
pub(super) fn read_job_leniently(row: &Row<'_>) -> Result<JobRecord, Unreadable> {
    let text = match row.get_ref(3) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let payload =
        Json::parse(text.clone()).or_else(|_| Json::of(&text)).map_err(|error| unreadable("payload", error))?;
    let status = parsed(row, 4, "status")?;
    let running = status == crate::job::Status::Running;
    let started_at = time_or_null(row, 13, "started_at")?;
    let worker: Option<String> = column(row, 12, "worker")?;
    let result: Option<String> = column(row, 16, "result")?;
    let progress: Option<String> = column(row, 17, "progress")?;
    let group_key: Option<String> = column(row, 21, "group_key")?;
    let options: Option<String> = column(row, 22, "options")?;
    let options = options.map(|shown| JobOptions::shown(&shown)).unwrap_or_default();
    Ok(JobRecord {
        id: JobId::from(column::<UuidBlob>(row, 0, "id")?.0),
        kind: parsed::<Kind>(row, 1, "kind")?,
        queue: parsed::<QueueName>(row, 2, "queue")?,
        payload,
        status,
        priority: column(row, 5, "priority")?,
        attempts: column(row, 6, "attempts")?,
        max_attempts: column(row, 7, "max_attempts")?,
        run_at: timestamp(column(row, 8, "run_at")?),
        timeout_ms: column(row, 9, "timeout_ms")?,
        idempotency_key: column(row, 10, "idempotency_key")?,
        group_key: group_key.map(|key| GroupKey::stored(&key)),
        cost: options.cost,
        start_by: options.start_by,
        unique: options.unique,
        notify: options.notify,
        trace: options.trace,
        cancel_requested: column(row, 11, "cancel_requested")?,
        locked_by: match worker.filter(|_| running) {
            Some(name) => Some(WorkerId::new(name).map_err(|error| unreadable("worker", error))?),
            None => None,
        },
        locked_at: started_at.filter(|_| running),
        lease_expires_at: time_or_null(row, 14, "lease_expires_at")?,
        last_error: column(row, 15, "last_error")?,
        error_group: column::<Option<i64>>(row, 23, "error_group")?.map(Fingerprint::from_i64),
        result: result.map(Json::parse).transpose().map_err(|error| unreadable("result", error))?,
        // Only for show; not worth an error.
        progress: progress.and_then(|text| serde_json::from_str(&text).ok()),
        created_at: timestamp(column(row, 18, "created_at")?),
        updated_at: timestamp(column(row, 19, "updated_at")?),
        started_at,
        finished_at: time_or_null(row, 20, "finished_at")?,
    })
}

pub(super) fn column<T: FromSql>(row: &Row<'_>, index: usize, name: &'static str) -> Result<T, Unreadable> {
    row.get(index).map_err(|error| unreadable(name, error))
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    row: &Row<'_>,
    index: usize,
    name: &'static str,
) -> Result<T, Unreadable> {
    let text = row.get_ref(index).ok().and_then(|value| value.as_str().ok());
    text.ok_or_else(|| unreadable(name, "not text"))?.parse().map_err(|error| unreadable(name, error))
}

fn time_or_null(row: &Row<'_>, index: usize, name: &'static str) -> Result<Option<Timestamp>, Unreadable> {
    Ok(column::<Option<i64>>(row, index, name)?.map(timestamp))
}

pub(super) fn unreadable(column: &'static str, reason: impl std::fmt::Display) -> Unreadable {
    Unreadable { column, reason: reason.to_string() }
}

/// A job id or lease token: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UuidBlob(pub(super) Uuid);

impl From<JobId> for UuidBlob {
    fn from(id: JobId) -> Self {
        Self(*id.as_uuid())
    }
}

impl From<LeaseToken> for UuidBlob {
    fn from(token: LeaseToken) -> Self {
        Self(*token.as_uuid())
    }
}

impl ToSql for UuidBlob {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(self.0.as_bytes())))
    }
}

impl FromSql for UuidBlob {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Uuid::from_slice(value.as_blob()?).map(Self).map_err(|error| FromSqlError::Other(error.into()))
    }
}

/// Microseconds since 1970: what the file keeps.
pub(super) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// Back again. Out of range only in a file that somebody else wrote; the nearest time will do for that.
pub(super) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
