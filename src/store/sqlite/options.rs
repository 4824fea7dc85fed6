//! What plain jobs do not have: a group, a cost, a start deadline, a unique key. `jobs` has one column for all of it
//! (`marks`, NULL for a plain job), `job_options` the rest (ADR 17).

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::row::timestamp;
use crate::job::{JobRecord, NewJob, StartBy, Unique, UniqueWhile};

/// Bits of `marks`.
pub(super) mod mark {
    /// The job is in a group of strict order.
    pub(in crate::store::sqlite) const STRICT: i64 = 8;
    /// It has a row in `job_options`.
    pub(in crate::store::sqlite) const OPTIONS: i64 = 16;
}

/// What users are shown, as it is stored.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ShownOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<u32>,
    /// Microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_by: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unique: Option<Unique>,
}

impl ShownOptions {
    /// Lenient: what cannot be read is not shown.
    pub(super) fn read(text: Option<&str>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    pub(super) fn add_to(self, job: &mut JobRecord) {
        job.cost = self.cost;
        job.start_by = self.start_by.map(timestamp);
        job.unique = self.unique;
    }
}

pub(super) const ENQUEUE_WITH_OPTIONS: &str = "
-- enqueue: as enqueue.sql, of a job that is not plain
INSERT INTO jobs (
    id, kind, queue, payload, status, priority, attempts, max_attempts, run_at, timeout_ms, idempotency_key,
    request_digest, created_at, updated_at, run_at_is_wall_clock, group_key, marks
) VALUES (?1, ?2, ?3, ?4, 'queued', ?5, 0, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12, ?13, ?14)
ON CONFLICT DO NOTHING";

const ADD_OPTIONS: &str = "
INSERT INTO job_options (seq, shown, cost, start_deadline, unique_key, unique_while, unique_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// As it is stored: keys of different kinds are different.
pub(super) fn stored_key(job: &NewJob) -> Option<String> {
    job.unique().map(|unique| format!("{}/{}", job.kind(), unique.key))
}

/// When the key is free again: 0 at the first start, 1 at the end, 2 after its window.
pub(super) fn stored_while(job: &NewJob) -> Option<i64> {
    job.unique().map(|unique| match (unique.for_ms, unique.while_) {
        (Some(_), _) => 2,
        (None, UniqueWhile::Unfinished) => 1,
        (None, _) => 0,
    })
}

/// The `marks` of a job that is about to be stored; `None` for a plain one.
pub(super) fn marks(connection: &Connection, job: &NewJob) -> rusqlite::Result<Option<i64>> {
    let mut marks = 0;
    if job.group_key().is_some() && is_strict(connection, job.queue().as_str())? {
        marks |= mark::STRICT;
    }
    if job.cost().is_some() || job.start_by().is_some() || job.unique().is_some() {
        marks |= mark::OPTIONS;
    }
    Ok((marks != 0).then_some(marks))
}

fn is_strict(connection: &Connection, queue: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM queue_settings WHERE queue = ?1 AND group_order = 'strict')")?
        .query_row([queue], |row| row.get(0))
}

/// Stores the options of the job that was inserted last.
pub(super) fn add_options(connection: &Connection, job: &NewJob, now_micros: i64) -> rusqlite::Result<()> {
    let start_by = job.start_by().map(|by| match by {
        StartBy::At(at) => at.as_microsecond(),
        StartBy::Within(wait) => now_micros.saturating_add(wait.as_micros() as i64),
    });
    let shown = ShownOptions { cost: job.cost(), start_by, unique: job.unique().cloned() };
    let shown = serde_json::to_string(&shown).unwrap_or_else(|_| "{}".into());
    let until = job.unique().and_then(|unique| unique.for_ms);
    let until = until.map(|ms| now_micros.saturating_add(ms.saturating_mul(1_000)));
    connection.prepare_cached(ADD_OPTIONS)?.execute(params![
        connection.last_insert_rowid(),
        shown,
        job.cost(),
        start_by,
        stored_key(job),
        stored_while(job),
        until,
    ])?;
    Ok(())
}
