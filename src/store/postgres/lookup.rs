//! Reading jobs: get by id, list, and the attempts of one job. Nothing here changes anything.

use std::collections::HashMap;

use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::core::{Core, decode};
use super::error::Effect;
use super::row;
use super::sql::Sql;
use crate::job::{AttemptRecord, JobId, JobRecord, Status};
use crate::store::{List, Page, StoreError};

pub(super) const GET: &str = "\
-- get: jobs by id
SELECT JOB_COLUMNS FROM unnest($1::uuid[]) AS t(id) JOIN SCHEMA.jobs j ON j.id = t.id";

pub(super) const LIST: &str = "\
-- list: jobs below an id, newest first
SELECT JOB_COLUMNS
FROM SCHEMA.jobs j
WHERE j.id < $1 AND j.id >= $2
  AND ($3::text IS NULL OR j.status = $3) AND ($4::text IS NULL OR j.kind = $4) AND ($5::text IS NULL OR j.queue = $5)
ORDER BY j.id DESC
OFFSET $6 LIMIT $7";

pub(super) const LIST_DEAD: &str = "\
-- list of dead letters: jobs below an id, newest first
SELECT JOB_COLUMNS
FROM SCHEMA.jobs j
WHERE j.died_at IS NOT NULL AND j.id < $1 AND j.id >= $2
  AND ($3::text IS NULL OR j.status = $3) AND ($4::text IS NULL OR j.kind = $4) AND ($5::text IS NULL OR j.queue = $5)
ORDER BY j.id DESC
OFFSET $6 LIMIT $7";

pub(super) const LIST_RUNNING: &str = "\
-- list of running jobs: below an id, newest first
WITH named AS MATERIALIZED (
    SELECT DISTINCT n.id FROM SCHEMA.lease_checks c CROSS JOIN LATERAL unnest(c.jobs) AS n(id) WHERE n.id < $1 AND n.id >= $2
)
SELECT JOB_COLUMNS
FROM named n CROSS JOIN LATERAL (
    -- One by one: the planner might walk all jobs by id instead.
    SELECT j.* FROM SCHEMA.jobs j WHERE j.id = n.id AND j.lease_expires_at IS NOT NULL LIMIT 1
) j
WHERE ($3::text IS NULL OR j.status = $3) AND ($4::text IS NULL OR j.kind = $4) AND ($5::text IS NULL OR j.queue = $5)
ORDER BY j.id DESC
OFFSET $6 LIMIT $7";

pub(super) const LIST_FLOOR: &str = "\
-- list: how far down one call may look
SELECT j.id FROM SCHEMA.jobs j WHERE j.id < $1 ORDER BY j.id DESC OFFSET $2 LIMIT 1";

pub(super) const LIST_DEAD_FLOOR: &str = "\
-- list of dead letters: how far down one call may look
SELECT j.id
FROM SCHEMA.jobs j
WHERE j.died_at IS NOT NULL AND j.id < $1
ORDER BY j.id DESC
OFFSET $2 LIMIT 1";

pub(super) const LIST_RUNNING_FLOOR: &str = "\
-- list of running jobs: how far down one call may look
SELECT n.id
FROM SCHEMA.lease_checks c CROSS JOIN LATERAL unnest(c.jobs) AS n(id)
WHERE n.id < $1
GROUP BY n.id
ORDER BY n.id DESC
OFFSET $2 LIMIT 1";

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

/// 20,000 rows: a few tens of milliseconds.
const SCAN_MAX: usize = 20_000;

/// Where to look. What is rare has an index of its own; the rest is found by walking back in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Every job by id.
    All,
    /// `failed_permanent` and `cancelled`, by id.
    Dead,
    /// `running`: among the jobs whose leases are to be checked.
    Running,
}

impl Source {
    fn of(list: &List) -> Self {
        match list.status {
            Some(Status::FailedPermanent | Status::Cancelled) => Self::Dead,
            Some(Status::Running) => Self::Running,
            _ => Self::All,
        }
    }

    fn page(self, sql: &Sql) -> &str {
        match self {
            Self::All => &sql.list,
            Self::Dead => &sql.list_dead,
            Self::Running => &sql.list_running,
        }
    }

    /// Finds the row at which one call stops looking.
    fn floor(self, sql: &Sql) -> &str {
        match self {
            Self::All => &sql.list_floor,
            Self::Dead => &sql.list_dead_floor,
            Self::Running => &sql.list_running_floor,
        }
    }
}

/// list: jobs, newest first. With a filter, one call looks at a bounded number of rows and says where to go on.
pub(super) async fn list(core: &Core, list: List) -> Result<Page, StoreError> {
    let source = Source::of(&list);
    let before = list.before.map_or(Uuid::max(), |id| *id.as_uuid());
    let filtered = list.status.is_some() || list.kind.is_some() || list.queue.is_some();
    let floor = match filtered {
        true => floor(core, source.floor(&core.sql), before, list.offset).await?,
        false => None,
    };
    let from = floor.unwrap_or(Uuid::nil());
    let (status, kind) = (list.status.map(|status| status.as_str()), list.kind.as_ref().map(|kind| kind.as_str()));
    let queue = list.queue.as_ref().map(|queue| queue.as_str());
    // One more than asked for tells whether there is a next page.
    let (offset, limit) = (count(list.offset), count(list.limit.saturating_add(1)));
    let params: [&(dyn ToSql + Sync); 7] = [&before, &from, &status, &kind, &queue, &offset, &limit];
    let mut rows = core.query("list", Effect::Repeatable, source.page(&core.sql), &params).await?;
    let more = rows.len() > list.limit;
    rows.truncate(list.limit);
    let last = rows.last().map(|row| decode("list", row.try_get::<_, Uuid>(0))).transpose()?;
    let next = if more { last } else { floor };
    // A row that makes no sense at all is left out; claiming it makes it a dead letter with the reason.
    let jobs = rows.iter().filter_map(|row| row::job(row).ok()).collect();
    Ok(Page { jobs, next: next.map(JobId::from) })
}

/// The lowest id one call may look at, unless that is all there is. What the offset leaves out comes on top.
async fn floor(core: &Core, sql: &str, before: Uuid, offset: usize) -> Result<Option<Uuid>, StoreError> {
    let looks = count(SCAN_MAX.saturating_add(offset));
    let rows = core.query("list", Effect::Repeatable, sql, &[&before, &looks]).await?;
    rows.first().map(|row| decode("list", row.try_get(0))).transpose()
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
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
