//! worker, workers: who was seen lately, and what each holds. Nothing here changes anything.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::core::{Core, decode};
use super::error::Effect;
use super::row;
use super::timestamp::PgTimestamp;
use crate::job::limits::{WORKER_JOBS_MAX, WORKERS_MAX};
use crate::job::{Told, WorkerAsks, WorkerId, WorkerInfo, WorkerJob, WorkerRecord, WorkerSource};
use crate::store::{ListWorkers, StoreError, WorkerDetail, WorkerPage};

/// 10,000 leases are looked at for what workers hold, some tens of milliseconds.
const LEASES_MAX: i64 = 10_000;
/// 10,000 lanes are looked at for jobs that are due.
const LANES_MAX: i32 = 10_000;

pub(super) const WORKERS: &str = "\
-- workers: a page, by name; or one
SELECT w.worker, w.source, w.host, w.pid, w.language, w.version, w.concurrency, w.token, w.queues, w.kinds, w.started_at,
       w.last_fetch_at, w.last_beat_at, w.seen_at, w.stopped, w.told, now()
FROM SCHEMA.workers w
WHERE w.worker > $1 AND ($2::text IS NULL OR w.worker = $2)
ORDER BY w.worker
LIMIT $3";

pub(super) const WORKERS_SEEN: &str = "\
-- explain: workers seen lately
SELECT w.worker, w.source, w.host, w.pid, w.language, w.version, w.concurrency, w.token, w.queues, w.kinds, w.started_at,
       w.last_fetch_at, w.last_beat_at, w.seen_at, w.stopped, w.told, now()
FROM SCHEMA.workers w
WHERE w.seen_at >= now() - interval '60 seconds' AND NOT w.stopped
LIMIT $1";

/// Running jobs are found among those whose leases are to be checked, as in a list of them.
pub(super) const WORKER_LEASES: &str = "\
-- workers: how many leases each holds, and when the last of them ends
WITH named AS MATERIALIZED (
    SELECT DISTINCT n.id
    FROM (SELECT n.id FROM SCHEMA.lease_checks c CROSS JOIN LATERAL unnest(c.jobs) AS n(id) ORDER BY c.at DESC LIMIT $1) n
)
SELECT j.worker, count(*), max(j.lease_expires_at)
FROM named n CROSS JOIN LATERAL (
    -- One by one: the planner might walk all jobs by id instead.
    SELECT j.worker, j.lease_expires_at FROM SCHEMA.jobs j WHERE j.id = n.id AND j.lease_expires_at IS NOT NULL LIMIT 1
) j
WHERE j.worker IS NOT NULL
GROUP BY j.worker";

pub(super) const WORKER_JOBS: &str = "\
-- worker: the jobs that it holds
WITH named AS MATERIALIZED (
    SELECT DISTINCT n.id
    FROM (SELECT n.id FROM SCHEMA.lease_checks c CROSS JOIN LATERAL unnest(c.jobs) AS n(id) ORDER BY c.at DESC LIMIT $1) n
)
SELECT j.id, j.kind, j.queue, j.attempts, j.started_at, j.lease_expires_at
FROM named n CROSS JOIN LATERAL (
    SELECT j.* FROM SCHEMA.jobs j WHERE j.id = n.id AND j.lease_expires_at IS NOT NULL LIMIT 1
) j
WHERE j.worker = $2
ORDER BY j.id
LIMIT $3";

pub(super) async fn worker(core: &Core, worker: WorkerId) -> Result<Option<WorkerDetail>, StoreError> {
    let name = Some(worker.as_str());
    let rows = core.query("worker", Effect::Repeatable, &core.sql.workers, &[&"", &name, &1_i64]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let mut found = [decode("worker", record(row))?];
    complete(core, &mut found).await?;
    let params: [&(dyn ToSql + Sync); 3] = [&LEASES_MAX, &worker.as_str(), &(WORKER_JOBS_MAX as i64)];
    let rows = core.query("worker", Effect::Repeatable, &core.sql.worker_jobs, &params).await?;
    let jobs = rows.iter().map(|row| decode("worker", held(row))).collect::<Result<_, _>>()?;
    let [worker] = found;
    Ok(Some(WorkerDetail { worker, jobs }))
}

fn held(row: &Row) -> Result<WorkerJob, tokio_postgres::Error> {
    Ok(WorkerJob {
        attempt: row::count(row.try_get(3)?),
        started_at: row::time(row, 4)?,
        lease_expires_at: row::time(row, 5)?,
        ..WorkerJob::new(row::id(row.try_get(0)?), row::kind(row.try_get(1)?), row::queue(row.try_get(2)?))
    })
}

pub(super) async fn workers(core: &Core, list: ListWorkers) -> Result<WorkerPage, StoreError> {
    let after = list.after.as_ref().map_or("", WorkerId::as_str);
    // One more than asked for tells whether there is a next page.
    let limit = i64::try_from(list.limit.saturating_add(1)).unwrap_or(i64::MAX);
    let params: [&(dyn ToSql + Sync); 3] = [&after, &None::<&str>, &limit];
    let rows = core.query("workers", Effect::Repeatable, &core.sql.workers, &params).await?;
    let has_more = rows.len() > list.limit;
    let read = rows.iter().take(list.limit).map(|row| decode("workers", record(row)));
    let mut workers: Vec<WorkerRecord> = read.collect::<Result<_, _>>()?;
    complete(core, &mut workers).await?;
    let next = workers.last().filter(|_| has_more).map(|last| last.worker.clone());
    Ok(WorkerPage { workers, next })
}

/// Workers that were seen within the last minute.
pub(super) async fn seen_lately(core: &Core) -> Result<Vec<WorkerRecord>, StoreError> {
    let limit = WORKERS_MAX as i64;
    let rows = core.query("explain", Effect::Repeatable, &core.sql.workers_seen, &[&limit]).await?;
    let mut seen: Vec<_> = rows.iter().map(|row| decode("explain", record(row))).collect::<Result<_, _>>()?;
    add_leases(core, &mut seen).await?;
    Ok(seen)
}

fn record(row: &Row) -> Result<WorkerRecord, tokio_postgres::Error> {
    let source = match row.try_get(1)? {
        "embedded" => WorkerSource::Embedded,
        _ => WorkerSource::Http,
    };
    let concurrency: Option<i32> = row.try_get(6)?;
    let pid: Option<i64> = row.try_get(3)?;
    let now: PgTimestamp = row.try_get(16)?;
    let (started_at, seen_at): (PgTimestamp, PgTimestamp) = (row.try_get(10)?, row.try_get(13)?);
    Ok(WorkerRecord {
        info: WorkerInfo {
            host: row.try_get(2)?,
            pid: pid.and_then(|pid| u32::try_from(pid).ok()),
            language: row.try_get(4)?,
            version: row.try_get(5)?,
            concurrency: concurrency.map(row::count),
        },
        token: row.try_get(7)?,
        asks: WorkerAsks::stored(row.try_get(8)?, row.try_get(9)?),
        started_at: started_at.timestamp(),
        last_fetch_at: row::time(row, 11)?,
        last_beat_at: row::time(row, 12)?,
        seen_at: seen_at.timestamp(),
        stopped: row.try_get(14)?,
        told: Told::stored(row.try_get(15)?),
        ..WorkerRecord::new(row::worker(row.try_get(0)?), source, now.timestamp())
    })
}

/// Adds what they hold, and whether there is work for those that do not fetch.
async fn complete(core: &Core, workers: &mut [WorkerRecord]) -> Result<(), StoreError> {
    add_leases(core, workers).await?;
    if !workers.iter().any(WorkerRecord::does_not_fetch) {
        return Ok(());
    }
    let due = due_lanes(core).await?;
    for worker in workers.iter_mut().filter(|worker| worker.does_not_fetch()) {
        let asked = due.iter().filter(|(queue, kind, _)| worker.asks.takes(queue, kind));
        let oldest = asked.map(|(_, _, run_at)| run_at.timestamp()).min();
        worker.due_since = oldest.filter(|at| *at <= worker.as_of);
    }
    Ok(())
}

async fn add_leases(core: &Core, workers: &mut [WorkerRecord]) -> Result<(), StoreError> {
    if workers.is_empty() {
        return Ok(());
    }
    let rows = core.query("workers", Effect::Repeatable, &core.sql.worker_leases, &[&LEASES_MAX]).await?;
    let mut leases: HashMap<&str, (i64, PgTimestamp)> = HashMap::with_capacity(rows.len());
    for row in &rows {
        let read = || Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)));
        leases.extend([decode("workers", read())?]);
    }
    for worker in workers {
        if let Some((held, until)) = leases.get(worker.worker.as_str()) {
            (worker.busy, worker.leased_until) = ((*held).max(0) as u32, Some(until.timestamp()));
        }
    }
    Ok(())
}

/// Queue and kind of lanes that are not paused, and since when their first job has been due. Without groups of strict order,
/// of which only the whole group is known here.
async fn due_lanes(core: &Core) -> Result<Vec<(String, String, PgTimestamp)>, StoreError> {
    let plain: [&(dyn ToSql + Sync); 4] = [&"", &"", &i16::MIN, &LANES_MAX];
    let grouped: [&(dyn ToSql + Sync); 5] = [&"", &"", &i16::MIN, &"", &LANES_MAX];
    let mut due = Vec::new();
    // Where each has the time, and whether it is paused.
    for (sql, params, run_at, paused) in
        [(&core.sql.listed_lanes, &plain[..], 3, 6), (&core.sql.listed_group_lanes, &grouped[..], 4, 7)]
    {
        for row in core.query("workers", Effect::Repeatable, sql, params).await? {
            let read = || Ok((row.try_get(paused)?, (row.try_get(0)?, row.try_get(1)?, row.try_get(run_at)?)));
            let (is_paused, lane): (bool, _) = decode("workers", read())?;
            if !is_paused {
                due.push(lane);
            }
        }
    }
    Ok(due)
}
