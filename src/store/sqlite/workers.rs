//! report_workers, tell_worker, worker, workers, prune_workers: who was seen lately, and what each holds.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use super::audit;
use super::inbox::{Urgency, Verb};
use super::lanes::{Lane, lane_behind};
use super::row::{UuidBlob, timestamp};
use super::transaction::Tx;
use crate::job::limits::{WORKER_JOBS_MAX, WORKERS_MAX};
use crate::job::{
    JobId, Kind, QueueName, Told, WorkerAsks, WorkerId, WorkerInfo, WorkerJob, WorkerRecord, WorkerSource,
};
use crate::store::audit_entry::AuditEntry;
use crate::store::{ListWorkers, PruneWorkers, TellWorker, WorkerDetail, WorkerPage, WorkerReport};

/// 10,000 leases are looked at for what workers hold, some tens of milliseconds.
const LEASES_MAX: i64 = 10_000;
/// 10,000 lanes are looked at for jobs that are due.
const LANES_MAX: usize = 10_000;
/// 30 s: a worker that was not seen for so long makes room for a new one.
const EVICTED_AFTER_MICROS: i64 = 30_000_000;

const COUNT: &str = "SELECT count(*) FROM workers";

const LONGEST_UNSEEN: &str = "
-- report_workers: who was not seen for the longest time makes room
SELECT worker FROM workers WHERE seen_at < ?1 ORDER BY seen_at LIMIT ?2";

/// Within `ON CONFLICT`: another process under the same name.
macro_rules! is_another {
    () => {
        "(excluded.incarnation IS NOT NULL AND workers.incarnation IS NOT NULL \
          AND excluded.incarnation <> workers.incarnation)"
    };
}

const REPORT: &str = concat!(
    "
-- report_workers: what one did since it was last reported
INSERT INTO workers (worker, source, incarnation, host, pid, language, version, concurrency, token, queues, kinds,
                     started_at, last_fetch_at, last_beat_at, seen_at, stopped)
VALUES (:worker, :source, :incarnation, :host, :pid, :language, :version, :concurrency, :token, :queues, :kinds,
        :started_at, :last_fetch_at, :last_beat_at, :seen_at, :stopped)
ON CONFLICT (worker) DO UPDATE SET
    source = excluded.source,
    incarnation = coalesce(excluded.incarnation, incarnation),
    host = coalesce(excluded.host, host),
    pid = coalesce(excluded.pid, pid),
    language = coalesce(excluded.language, language),
    version = coalesce(excluded.version, version),
    concurrency = coalesce(excluded.concurrency, concurrency),
    token = coalesce(excluded.token, token),
    queues = CASE WHEN excluded.last_fetch_at IS NULL THEN queues ELSE excluded.queues END,
    kinds = CASE WHEN excluded.last_fetch_at IS NULL THEN kinds ELSE excluded.kinds END,
    started_at = CASE WHEN ",
    is_another!(),
    " THEN excluded.started_at ELSE started_at END,
    last_fetch_at = CASE WHEN ",
    is_another!(),
    " THEN excluded.last_fetch_at
                         ELSE coalesce(max(last_fetch_at, excluded.last_fetch_at), last_fetch_at, excluded.last_fetch_at) END,
    last_beat_at = CASE WHEN ",
    is_another!(),
    " THEN excluded.last_beat_at
                        ELSE coalesce(max(last_beat_at, excluded.last_beat_at), last_beat_at, excluded.last_beat_at) END,
    seen_at = max(seen_at, excluded.seen_at),
    stopped = excluded.stopped,
    told = CASE WHEN ",
    is_another!(),
    " THEN 'run' ELSE told END
RETURNING told"
);

macro_rules! worker_columns {
    () => {
        "worker, source, host, pid, language, version, concurrency, token, queues, kinds, started_at, last_fetch_at, \
         last_beat_at, seen_at, stopped, told"
    };
}

const WORKERS: &str = concat!(
    "-- workers: a page, by name\nSELECT ",
    worker_columns!(),
    " FROM workers WHERE worker > ?1 ORDER BY worker LIMIT ?2"
);

const WORKER: &str = concat!("-- worker\nSELECT ", worker_columns!(), " FROM workers WHERE worker = ?1");

const SEEN: &str = concat!(
    "-- explain: workers seen lately\nSELECT ",
    worker_columns!(),
    " FROM workers WHERE seen_at >= ?1 AND NOT stopped LIMIT ?2"
);

pub(super) const LEASES: &str = "
-- workers: how many leases each holds, and when the last of them ends
SELECT worker, count(*), max(lease_expires_at)
FROM (SELECT worker, lease_expires_at FROM jobs INDEXED BY jobs_leased WHERE lease_expires_at IS NOT NULL
      ORDER BY lease_expires_at DESC LIMIT ?1)
GROUP BY worker";

pub(super) const JOBS: &str = "
-- worker: the jobs that it holds
SELECT id, kind, queue, attempts, started_at, lease_expires_at
FROM (SELECT id, kind, queue, attempts, started_at, lease_expires_at, worker FROM jobs INDEXED BY jobs_leased
      WHERE lease_expires_at IS NOT NULL ORDER BY lease_expires_at DESC LIMIT ?1)
WHERE worker = ?2 ORDER BY id LIMIT ?3";

/// Reports of several workers.
pub(super) struct ReportWorkers(pub(super) Vec<WorkerReport>);

impl Verb for ReportWorkers {
    type Answer = Vec<Told>;
    const NAME: &'static str = "report_workers";
    const URGENCY: Urgency = Urgency::Bulk;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<Told>> {
        let names: HashSet<&str> = self.0.iter().map(|report| report.worker.as_str()).collect();
        let mut known = HashSet::with_capacity(names.len());
        for name in &names {
            if tx.statement("SELECT 1 FROM workers WHERE worker = ?1")?.exists([name])? {
                known.insert(*name);
            }
        }
        let mut room = make_room(tx, &names, names.len() - known.len())?;
        let mut told = Vec::with_capacity(self.0.len());
        for report in &self.0 {
            let name = report.worker.as_str();
            if !known.contains(name) {
                if room == 0 {
                    told.push(Told::Run);
                    continue;
                }
                room -= 1;
                known.insert(name);
            }
            told.push(write(tx, report)?);
        }
        Ok(told)
    }

    fn weight(&self) -> usize {
        self.0.len()
    }

    fn needs_sync(&self) -> bool {
        // What a power cut takes is told again by whoever is still there.
        false
    }
}

/// For how many new ones there is room, up to `new`, after those have gone that can.
fn make_room(tx: &Tx<'_>, reported: &HashSet<&str>, new: usize) -> rusqlite::Result<usize> {
    if new == 0 {
        return Ok(0);
    }
    let stored: usize = tx.statement(COUNT)?.query_row([], |row| row.get(0))?;
    let room = WORKERS_MAX.saturating_sub(stored);
    if room >= new {
        return Ok(new);
    }
    let mut statement = tx.statement(LONGEST_UNSEEN)?;
    let params = params![tx.now_micros() - EVICTED_AFTER_MICROS, (new - room + reported.len()) as i64];
    let unseen: Vec<String> = statement.query_map(params, |row| row.get(0))?.collect::<Result<_, _>>()?;
    let evicted = unseen.iter().filter(|name| !reported.contains(name.as_str())).take(new - room);
    let mut gone = 0;
    for name in evicted {
        gone += tx.statement("DELETE FROM workers WHERE worker = ?1")?.execute([name])?;
    }
    Ok(room + gone)
}

fn write(tx: &Tx<'_>, report: &WorkerReport) -> rusqlite::Result<Told> {
    let ago = |ago: Duration| tx.now_micros().saturating_sub(i64::try_from(ago.as_micros()).unwrap_or(i64::MAX));
    let (queues, kinds) = report.asks.columns();
    let info = &report.info;
    let told: String = tx.statement(REPORT)?.query_row(
        named_params! {
            ":worker": report.worker.as_str(),
            ":source": report.source.as_str(),
            ":incarnation": report.incarnation,
            ":host": info.host,
            ":pid": info.pid,
            ":language": info.language,
            ":version": info.version,
            ":concurrency": info.concurrency,
            ":token": report.token,
            ":queues": queues,
            ":kinds": kinds,
            ":started_at": ago(report.started),
            ":last_fetch_at": report.fetched.map(ago),
            ":last_beat_at": report.beat.map(ago),
            ":seen_at": ago(report.seen),
            ":stopped": report.stopped,
        },
        |row| row.get(0),
    )?;
    Ok(Told::stored(&told))
}

impl Verb for TellWorker {
    type Answer = bool;
    const NAME: &'static str = "tell_worker";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let (worker, told) = (self.worker.as_str(), self.told.as_str());
        let sql = "SELECT told FROM workers WHERE worker = ?1";
        let Some(before) = tx.statement(sql)?.query_row([worker], |row| row.get::<_, String>(0)).optional()? else {
            return Ok(false);
        };
        if before != told {
            tx.statement("UPDATE workers SET told = ?2 WHERE worker = ?1")?.execute([worker, told])?;
            let action = if self.told == Told::Drain { "drain" } else { "undrain" };
            let entry = AuditEntry::new(action, format!("worker:{worker}"), self.by.as_ref());
            let shown = |told: &str| Some(serde_json::json!({ "told": told }));
            audit::record(tx, &entry.before(shown(&before)).after(shown(told)))?;
        }
        Ok(true)
    }
}

impl Verb for PruneWorkers {
    type Answer = usize;
    const NAME: &'static str = "prune_workers";
    const URGENCY: Urgency = Urgency::Bulk;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<usize> {
        let keep = i64::try_from(self.keep.as_micros()).unwrap_or(i64::MAX);
        let sql = "DELETE FROM workers WHERE worker IN (SELECT worker FROM workers WHERE seen_at < ?1 LIMIT ?2)";
        tx.statement(sql)?.execute(params![tx.now_micros().saturating_sub(keep), self.limit as i64])
    }
}

pub(super) fn worker(
    connection: &Connection,
    worker: &WorkerId,
    now_micros: i64,
) -> rusqlite::Result<Option<WorkerDetail>> {
    let snapshot = connection.unchecked_transaction()?;
    let found =
        snapshot.prepare_cached(WORKER)?.query_row([worker.as_str()], |row| read(row, now_micros)).optional()?;
    let Some(mut worker) = found else { return Ok(None) };
    complete(&snapshot, std::slice::from_mut(&mut worker))?;
    let mut statement = snapshot.prepare_cached(JOBS)?;
    let jobs = statement.query_map(params![LEASES_MAX, worker.worker.as_str(), WORKER_JOBS_MAX as i64], read_job)?;
    // A row that makes no sense is left out.
    let jobs = jobs.filter_map(Result::ok).collect();
    Ok(Some(WorkerDetail { worker, jobs }))
}

fn read_job(row: &Row<'_>) -> rusqlite::Result<WorkerJob> {
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(timestamp));
    Ok(WorkerJob {
        job_id: JobId::from(row.get::<_, UuidBlob>(0)?.0),
        kind: Kind::new(row.get::<_, String>(1)?).unwrap_or_else(|_| Kind::unknown()),
        queue: QueueName::new(row.get::<_, String>(2)?).unwrap_or_else(|_| QueueName::unknown()),
        attempt: row.get(3)?,
        started_at: time(4)?,
        lease_expires_at: time(5)?,
    })
}

pub(super) fn workers(connection: &Connection, list: &ListWorkers, now_micros: i64) -> rusqlite::Result<WorkerPage> {
    let snapshot = connection.unchecked_transaction()?;
    let after = list.after.as_ref().map_or("", WorkerId::as_str);
    let mut statement = snapshot.prepare_cached(WORKERS)?;
    // One more than asked for tells whether there is a next page.
    let rows = statement.query_map(params![after, list.limit as i64 + 1], |row| read(row, now_micros))?;
    let mut workers: Vec<WorkerRecord> = rows.collect::<Result<_, _>>()?;
    let has_more = workers.len() > list.limit;
    workers.truncate(list.limit);
    complete(&snapshot, &mut workers)?;
    let next = workers.last().filter(|_| has_more).map(|last| last.worker.clone());
    Ok(WorkerPage { workers, next })
}

/// Workers that were seen within the last minute.
pub(super) fn seen_lately(snapshot: &Connection, now_micros: i64) -> rusqlite::Result<Vec<WorkerRecord>> {
    const LATELY_MICROS: i64 = 60_000_000;
    let mut statement = snapshot.prepare_cached(SEEN)?;
    let params = params![now_micros - LATELY_MICROS, WORKERS_MAX as i64];
    let mut seen: Vec<_> = statement.query_map(params, |row| read(row, now_micros))?.collect::<Result<_, _>>()?;
    add_leases(snapshot, &mut seen)?;
    Ok(seen)
}

fn read(row: &Row<'_>, now_micros: i64) -> rusqlite::Result<WorkerRecord> {
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(timestamp));
    let name = WorkerId::new(row.get::<_, String>(0)?).unwrap_or_else(|_| WorkerId::unknown());
    let source = match row.get::<_, String>(1)?.as_str() {
        "embedded" => WorkerSource::Embedded,
        _ => WorkerSource::Http,
    };
    let (queues, kinds): (Option<String>, Option<String>) = (row.get(8)?, row.get(9)?);
    Ok(WorkerRecord {
        info: WorkerInfo {
            host: row.get(2)?,
            pid: row.get(3)?,
            language: row.get(4)?,
            version: row.get(5)?,
            concurrency: row.get(6)?,
        },
        token: row.get(7)?,
        asks: WorkerAsks::stored(queues.as_deref(), kinds.as_deref()),
        started_at: timestamp(row.get(10)?),
        last_fetch_at: time(11)?,
        last_beat_at: time(12)?,
        seen_at: timestamp(row.get(13)?),
        stopped: row.get(14)?,
        told: Told::stored(&row.get::<_, String>(15)?),
        ..WorkerRecord::new(name, source, timestamp(now_micros))
    })
}

/// Adds what they hold, and whether there is work for those that do not fetch.
fn complete(snapshot: &Connection, workers: &mut [WorkerRecord]) -> rusqlite::Result<()> {
    add_leases(snapshot, workers)?;
    if !workers.iter().any(WorkerRecord::does_not_fetch) {
        return Ok(());
    }
    let due = due_lanes(snapshot)?;
    for worker in workers.iter_mut().filter(|worker| worker.does_not_fetch()) {
        let asked = due.iter().filter(|(lane, _)| worker.asks.takes(&lane.queue, &lane.kind));
        worker.due_since = asked.map(|(_, run_at)| timestamp(*run_at)).min().filter(|at| *at <= worker.as_of);
    }
    Ok(())
}

fn add_leases(snapshot: &Connection, workers: &mut [WorkerRecord]) -> rusqlite::Result<()> {
    if workers.is_empty() {
        return Ok(());
    }
    let mut statement = snapshot.prepare_cached(LEASES)?;
    let rows = statement.query_map([LEASES_MAX], |row| {
        Ok((row.get::<_, Option<String>>(0)?.unwrap_or_default(), (row.get(1)?, row.get(2)?)))
    })?;
    let held: HashMap<String, (u32, i64)> = rows.collect::<Result<_, _>>()?;
    for worker in workers {
        if let Some((leases, until)) = held.get(worker.worker.as_str()) {
            (worker.busy, worker.leased_until) = (*leases, Some(timestamp(*until)));
        }
    }
    Ok(())
}

/// Lanes of queues that are not paused, and since when their first job has been due.
fn due_lanes(snapshot: &Connection) -> rusqlite::Result<Vec<(Lane, i64)>> {
    let mut statement = snapshot.prepare_cached("SELECT queue FROM paused_queues LIMIT ?1")?;
    let paused = statement.query_map([LANES_MAX as i64], |row| row.get::<_, String>(0))?;
    let paused: HashSet<String> = paused.collect::<Result<_, _>>()?;
    let (mut due, mut last): (Vec<(Lane, i64)>, Option<Lane>) = (Vec::new(), None);
    for _ in 0..LANES_MAX {
        let Some(found) = lane_behind(snapshot, last.as_ref())? else { break };
        if let Some(head) = found.head.filter(|_| !paused.contains(&*found.lane.queue)) {
            due.push((found.lane.clone(), head.run_at));
        }
        last = Some(found.lane);
    }
    Ok(due)
}
