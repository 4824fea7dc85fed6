//! Reading jobs: get by id, and the attempts of one job. Nothing here changes anything.

use std::collections::HashMap;

use jiff::Timestamp;
use uuid::Uuid;

use super::core::{Core, decode};
use super::error::Effect;
use super::row;
use crate::job::{AttemptRecord, JobId, JobRecord};
use crate::store::StoreError;

pub(super) const GET: &str = "\
-- get: jobs by id
SELECT JOB_COLUMNS FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id";

pub(super) const ATTEMPTS: &str = "\
-- attempts: the last 999 that were followed by another, then the newest
SELECT a.seq, a.attempt, a.worker, a.started_at, a.ended_at, a.outcome, a.error
FROM (SELECT p.* FROM SCHEMA.attempts p WHERE p.job_id = $1 ORDER BY p.seq DESC LIMIT 999) a
UNION ALL
SELECT NULL, CASE WHEN j.outcome IN ('released', 'snoozed') THEN j.attempts + 1 ELSE j.attempts END,
       CASE WHEN j.lease_token IS NOT NULL THEN j.worker END, j.started_at, j.ended_at, j.outcome,
       CASE WHEN j.outcome IN ('failed', 'timed_out', 'lease_expired') THEN j.last_error END
FROM SCHEMA.jobs j
WHERE j.id = $1
ORDER BY seq NULLS LAST";

/// get: jobs by id.
pub(super) async fn get(core: &Core, ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| *id.as_uuid()).collect();
    let mut found = HashMap::with_capacity(ids.len());
    for row in core.query("get", Effect::Repeatable, &core.sql.get, &[&uuids]).await? {
        let job = decode("get", row::job(&row))?;
        found.insert(job.id, job);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// attempts: the history of a job, in the order of starts. The newest is told by the row of the job itself.
pub(super) async fn attempts(core: &Core, id: JobId) -> Result<Option<Vec<AttemptRecord>>, StoreError> {
    let rows = core.query("attempts", Effect::Repeatable, &core.sql.attempts, &[id.as_uuid()]).await?;
    let (mut attempts, mut exists) = (Vec::with_capacity(rows.len()), false);
    for row in &rows {
        let seq: Option<i64> = decode("attempts", row.try_get(0))?;
        exists |= seq.is_none();
        // The job's own row: without a worker there has been no attempt since it was (re)queued.
        let Some(worker) = decode("attempts", row.try_get::<_, Option<&str>>(2))? else { continue };
        // Every attempt has a start; one that a manual edit has removed is shown as the beginning of time.
        let started_at = decode("attempts", row::time(row, 3))?.unwrap_or(Timestamp::UNIX_EPOCH);
        attempts.push(AttemptRecord {
            attempt: row::count(decode("attempts", row.try_get(1))?),
            worker: row::worker(worker),
            started_at,
            ended_at: decode("attempts", row::time(row, 4))?,
            outcome: decode("attempts", row.try_get::<_, Option<&str>>(5))?.and_then(|word| word.parse().ok()),
            error: decode("attempts", row.try_get(6))?,
        });
    }
    Ok(exists.then_some(attempts))
}
