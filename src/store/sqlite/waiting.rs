//! Jobs that are due, as a claim reads them: in the order of the ready index, and only the columns that a waiting job
//! has something in. Lanes of one priority are merged by `run_at`, then id. It never changes a row.

use rusqlite::{Row, params};
use uuid::Uuid;

use super::lanes::ReadyLane;
use super::row::{Id, Unreadable, column, time, unreadable};
use super::transaction::Tx;
use crate::job::limits::BATCH_MAX;
use crate::job::{JobId, JobRecord, Json, Kind, QueueName, Status, WorkerId};

macro_rules! due_in_lane {
    ($columns:literal) => {
        concat!(
            "
-- claim: what is due in one lane
SELECT ",
            $columns,
            " FROM jobs INDEXED BY jobs_ready
WHERE lease_expires_at IS NULL AND finished_at IS NULL
  AND queue = ?1 AND kind = ?2 AND priority = ?3 AND run_at <= ?4
ORDER BY run_at, id LIMIT ?5"
        )
    };
}

pub(super) const PLACES_IN_LANE: &str = due_in_lane!("run_at, id");
pub(super) const DUE_IN_LANE: &str = due_in_lane!(
    "seq, id, run_at, status, lease_token IS NOT NULL, payload, attempts, max_attempts, timeout_ms, idempotency_key, \
     cancel_requested, last_error, created_at"
);

/// A waiting row. What the counts must know stands beside the job, which may make no sense.
pub(super) struct Due {
    pub(super) seq: i64,
    /// `run_at` and id: where it stands in its lane.
    place: (i64, Uuid),
    pub(super) queue: QueueName,
    pub(super) status: Status,
    pub(super) was_started: bool,
    pub(super) job: Result<Waiting, Unreadable>,
}

/// What there is to know of a job that waits.
pub(super) struct Waiting {
    pub(super) id: JobId,
    kind: Kind,
    queue: QueueName,
    payload: Json,
    priority: i16,
    pub(super) attempts: u32,
    pub(super) max_attempts: u32,
    run_at: i64,
    pub(super) timeout_ms: Option<u64>,
    idempotency_key: Option<String>,
    cancel_requested: bool,
    last_error: Option<String>,
    created_at: i64,
}

impl Waiting {
    fn read(row: &Row<'_>, lane: &ReadyLane, names: &Names) -> Result<Self, Unreadable> {
        Ok(Self {
            id: JobId::from(column::<Id>(row, 1, "id")?.0),
            kind: names.kind.clone().map_err(|error| unreadable("kind", error))?,
            queue: names.queue.clone().map_err(|error| unreadable("queue", error))?,
            payload: Json::parse(column(row, 5, "payload")?).map_err(|error| unreadable("payload", error))?,
            priority: lane.priority,
            attempts: column(row, 6, "attempts")?,
            max_attempts: column(row, 7, "max_attempts")?,
            run_at: column(row, 2, "run_at")?,
            timeout_ms: column(row, 8, "timeout_ms")?,
            idempotency_key: column(row, 9, "idempotency_key")?,
            cancel_requested: column(row, 10, "cancel_requested")?,
            last_error: column(row, 11, "last_error")?,
            created_at: column(row, 12, "created_at")?,
        })
    }

    /// The job as it is once it has been started.
    pub(super) fn started(self, worker: WorkerId, now_micros: i64, expires_at: i64) -> JobRecord {
        JobRecord {
            id: self.id,
            kind: self.kind,
            queue: self.queue,
            payload: self.payload,
            status: Status::Running,
            priority: self.priority,
            attempts: self.attempts + 1,
            max_attempts: self.max_attempts,
            run_at: time(self.run_at),
            timeout_ms: self.timeout_ms,
            idempotency_key: self.idempotency_key,
            cancel_requested: self.cancel_requested,
            locked_by: Some(worker),
            locked_at: Some(time(now_micros)),
            lease_expires_at: Some(time(expires_at)),
            last_error: self.last_error,
            result: None,
            progress: None,
            created_at: time(self.created_at),
            updated_at: time(now_micros),
            started_at: Some(time(now_micros)),
            finished_at: None,
        }
    }
}

/// The names of a lane, checked once for all of its jobs.
struct Names {
    kind: Result<Kind, crate::job::NotAName>,
    queue: Result<QueueName, crate::job::NotAName>,
}

/// The oldest due jobs of lanes of one priority. Each lane is asked only for as many as are among the oldest of all.
pub(super) fn due_jobs(tx: &Tx<'_>, lanes: &[ReadyLane], max: usize) -> rusqlite::Result<Vec<Due>> {
    let shares = match lanes {
        [_] => vec![max],
        several => shares(tx, several, max)?,
    };
    let mut due = Vec::with_capacity(max.min(BATCH_MAX));
    let mut statement = tx.statement(DUE_IN_LANE)?;
    for (lane, share) in lanes.iter().zip(shares).filter(|(_, share)| *share > 0) {
        let names = Names { kind: Kind::new(&lane.kind), queue: QueueName::new(&lane.queue) };
        let queue = names.queue.clone().unwrap_or_else(|_| QueueName::unknown());
        let params = params![lane.queue, lane.kind, lane.priority, tx.now_micros(), share as i64];
        let rows = statement.query_map(params, |row| {
            Ok(Due {
                seq: row.get(0)?,
                place: (row.get(2)?, row.get::<_, Id>(1)?.0),
                queue: queue.clone(),
                // One of the two, or the index would not have named it.
                status: if row.get_ref(3)?.as_str() == Ok("retrying") { Status::Retrying } else { Status::Queued },
                was_started: row.get(4)?,
                job: Waiting::read(row, lane, &names),
            })
        })?;
        for row in rows {
            due.push(row?);
        }
    }
    if lanes.len() > 1 {
        due.sort_by_key(|due| due.place);
    }
    Ok(due)
}

/// How many of the oldest `max` jobs each of these lanes has.
fn shares(tx: &Tx<'_>, lanes: &[ReadyLane], max: usize) -> rusqlite::Result<Vec<usize>> {
    let mut places = Vec::new();
    let mut statement = tx.statement(PLACES_IN_LANE)?;
    for (n, lane) in lanes.iter().enumerate() {
        let params = params![lane.queue, lane.kind, lane.priority, tx.now_micros(), max as i64];
        for row in statement.query_map(params, |row| Ok((row.get(0)?, row.get::<_, Id>(1)?)))? {
            let (run_at, id): (i64, Id) = row?;
            places.push((run_at, id.0, n));
        }
    }
    places.sort_unstable();
    let mut shares = vec![0; lanes.len()];
    places.into_iter().take(max).for_each(|(_, _, n)| shares[n] += 1);
    Ok(shares)
}
