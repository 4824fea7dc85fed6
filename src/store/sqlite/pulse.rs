//! pulse, kind_counts: what is due by queue and kind, what is paused by whom, and how long the log is.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use super::lanes::{Group, Lane, lane_behind};
use super::row::timestamp;
use crate::job::{Kind, QueueName, Status};
use crate::store::{
    Counts, DUE_LANES_MAX, DUE_MAX, DUE_OF_LANE_MAX, DueJobs, KIND_COUNTS_MAX, PAUSED_MAX, PausedQueue, PulseFacts,
    due_by_kind,
};

macro_rules! count_due {
    ($from:literal) => {
        concat!(
            "
-- pulse: how many jobs of a lane are due, up to so many
SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY ",
            $from,
            " AND queue = ?1 AND kind = ?2 AND priority = ?3 AND run_at <= ?4 LIMIT ?5)"
        )
    };
}

const DUE: &str = count_due!("jobs_ready WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL");
const DUE_GROUPED: &str = count_due!(
    "jobs_ready_grouped WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NOT NULL \
     AND coalesce(marks, 0) & 8 = 0 AND group_key = ?6"
);

const PAUSED: &str = "
-- pulse: paused queues, and who paused them
SELECT p.queue, a.at, a.token_name
FROM (SELECT queue FROM paused_queues ORDER BY queue LIMIT ?1) p
LEFT JOIN audit a ON a.seq = (SELECT seq FROM audit WHERE target = 'queue:' || p.queue AND action = 'pause'
                              ORDER BY at DESC, seq DESC LIMIT 1)";

/// Everything of one snapshot.
pub(super) fn pulse(connection: &Connection, path: &Path, now_micros: i64) -> rusqlite::Result<PulseFacts> {
    let snapshot = connection.unchecked_transaction()?;
    let mut facts = PulseFacts::new(timestamp(now_micros));
    facts.due = due_by_kind(due_lanes(&snapshot, now_micros)?);
    let mut statement = snapshot.prepare_cached(PAUSED)?;
    let paused = statement.query_map([PAUSED_MAX as i64], |row| {
        let at: Option<i64> = row.get(1)?;
        Ok((row.get::<_, String>(0)?, PausedQueue::new(at.map(timestamp), row.get::<_, Option<String>>(2)?)))
    })?;
    for paused in paused {
        let (name, paused) = paused?;
        facts.paused.extend(QueueName::new(name).ok().map(|name| (name, paused)));
    }
    facts.audit_seq =
        snapshot.query_row("SELECT seq FROM audit ORDER BY seq DESC LIMIT 1", [], |row| row.get(0)).optional()?;
    // Beside the file; none yet is as good as an empty one.
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    facts.log_bytes = std::fs::metadata(log).ok().map(|file| file.len());
    Ok(facts)
}

fn due_lanes(snapshot: &Connection, now_micros: i64) -> rusqlite::Result<Vec<DueJobs>> {
    let (mut due, mut last, mut left): (Vec<DueJobs>, Option<Lane>, u64) = (Vec::new(), None, DUE_MAX);
    for _ in 0..DUE_LANES_MAX {
        let Some(found) = lane_behind(snapshot, last.as_ref())? else { break };
        let head = found.head.filter(|head| head.run_at <= now_micros);
        if let (Some(head), Ok(queue), Ok(kind)) =
            (head, QueueName::new(&*found.lane.queue), Kind::new(&*found.lane.kind))
        {
            let most = left.clamp(1, DUE_OF_LANE_MAX);
            let n = count(snapshot, &found.lane, now_micros, most)?.max(1);
            left = left.saturating_sub(n);
            let is_strict = matches!(found.lane.group, Group::Strict(_));
            due.push(DueJobs {
                at_least: n >= most && !is_strict,
                ..DueJobs::new(queue, kind, n, timestamp(head.run_at))
            });
        }
        last = Some(found.lane);
    }
    Ok(due)
}

fn count(snapshot: &Connection, lane: &Lane, now_micros: i64, most: u64) -> rusqlite::Result<u64> {
    let most = most as i64;
    match &lane.group {
        Group::None => {
            let params = params![lane.queue, lane.kind, lane.priority, now_micros, most];
            snapshot.prepare_cached(DUE)?.query_row(params, |row| row.get(0))
        }
        Group::Fair(key) => {
            let params = params![lane.queue, lane.kind, lane.priority, now_micros, most, key];
            snapshot.prepare_cached(DUE_GROUPED)?.query_row(params, |row| row.get(0))
        }
        // The others of the group wait for it.
        Group::Strict(_) => Ok(1),
    }
}

const KIND_COUNTS: &str = "
-- kind_counts: jobs by kind and status, over all queues
SELECT kind, sum(queued), sum(running), sum(retrying), sum(succeeded), sum(failed_permanent), sum(cancelled)
FROM counts GROUP BY kind ORDER BY kind LIMIT ?1";

pub(super) fn kind_counts(connection: &Connection) -> rusqlite::Result<BTreeMap<Kind, Counts>> {
    let mut statement = connection.prepare_cached(KIND_COUNTS)?;
    let mut rows = statement.query([KIND_COUNTS_MAX as i64])?;
    let mut counted = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let Ok(kind) = Kind::new(row.get::<_, String>(0)?) else { continue };
        let mut counts = Counts::new();
        for (status, column) in Status::ALL.into_iter().zip(1..) {
            let n: i64 = row.get(column)?;
            counts.extend((n > 0).then_some((status, n as u64)));
        }
        counted.insert(kind, counts);
    }
    Ok(counted)
}
