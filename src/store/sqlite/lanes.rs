//! What waits, lane by lane, as a claim reads it. A lane is (queue, kind, priority): a range of the ready index, in the order
//! in which its jobs are claimed.
//!
//! Lanes that have jobs waiting are found by hopping from one to the next. Of those of one priority the due jobs are merged
//! by `run_at`, then id, and only the columns are read that a waiting job has something in. It never changes a row.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use uuid::Uuid;

use super::row::{Unreadable, UuidBlob, column, timestamp, unreadable};
use super::transaction::Tx;
use crate::job::limits::{BATCH_MAX, PRIORITY_MIN};
use crate::job::{JobId, JobRecord, Json, Kind, NotAName, QueueName, Status, WorkerId};

/// One lane and when its oldest job is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadyLane {
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) priority: i16,
    pub(super) oldest_run_at: i64,
}

macro_rules! first_waiting {
    ($behind:literal, $order:literal) => {
        concat!(
            "
-- lanes: the first waiting job behind a lane
SELECT queue, kind, priority, run_at FROM jobs INDEXED BY jobs_ready
WHERE lease_expires_at IS NULL AND finished_at IS NULL AND ",
            $behind,
            " ORDER BY ",
            $order,
            " LIMIT 1"
        )
    };
}

/// Where the next lane can be, nearest first. Each is one probe of the index, however many jobs wait. Not one comparison
/// of `(queue, kind, priority)`: SQLite begins such a range at the lane itself and walks over all of its jobs (13 ms
/// instead of 5 µs with 100,000 waiting).
pub(super) const NEXT_LANE: [&str; 3] = [
    first_waiting!("queue = ?1 AND kind = ?2 AND priority > ?3", "priority, run_at, id"),
    first_waiting!("queue = ?1 AND kind > ?2", "kind, priority, run_at, id"),
    first_waiting!("queue > ?1", "queue, kind, priority, run_at, id"),
];

pub(super) fn ready_lanes(connection: &Connection) -> rusqlite::Result<Vec<ReadyLane>> {
    let mut lanes: Vec<ReadyLane> = Vec::new();
    while let Some(lane) = lane_behind(connection, lanes.last())? {
        lanes.push(lane);
    }
    Ok(lanes)
}

fn lane_behind(connection: &Connection, last: Option<&ReadyLane>) -> rusqlite::Result<Option<ReadyLane>> {
    let (queue, kind, priority) =
        last.map_or(("", "", PRIORITY_MIN - 1), |lane| (&*lane.queue, &*lane.kind, lane.priority));
    let params: [&dyn ToSql; 3] = [&queue, &kind, &priority];
    for next in NEXT_LANE {
        let mut statement = connection.prepare_cached(next)?;
        let asked = statement.parameter_count();
        let found = statement.query_row(&params[..asked], |row| {
            Ok(ReadyLane { queue: row.get(0)?, kind: row.get(1)?, priority: row.get(2)?, oldest_run_at: row.get(3)? })
        });
        if let Some(lane) = found.optional()? {
            return Ok(Some(lane));
        }
    }
    Ok(None)
}

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

// How long a payload is stands at the beginning of its row; it is not read for that.
pub(super) const POSITIONS_IN_LANE: &str = due_in_lane!("run_at, id, octet_length(payload)");
pub(super) const DUE_IN_LANE: &str = due_in_lane!(
    "seq, id, run_at, status, lease_token IS NOT NULL, payload, attempts, max_attempts, timeout_ms, idempotency_key, \
     cancel_requested, last_error, created_at"
);

/// A waiting row. What the counts must know stands beside the job, which may make no sense.
pub(super) struct DueRow {
    pub(super) seq: i64,
    /// `run_at` and id: where it stands in its lane.
    position: (i64, Uuid),
    pub(super) queue: QueueName,
    pub(super) status: Status,
    pub(super) was_started: bool,
    pub(super) job: Result<DueJob, Unreadable>,
}

/// What there is to know of a job that waits.
pub(super) struct DueJob {
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

impl DueJob {
    fn read(row: &Row<'_>, lane: &ReadyLane, names: &LaneNames) -> Result<Self, Unreadable> {
        Ok(Self {
            id: JobId::from(column::<UuidBlob>(row, 1, "id")?.0),
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
            run_at: timestamp(self.run_at),
            timeout_ms: self.timeout_ms,
            idempotency_key: self.idempotency_key,
            cancel_requested: self.cancel_requested,
            locked_by: Some(worker),
            locked_at: Some(timestamp(now_micros)),
            lease_expires_at: Some(timestamp(expires_at)),
            last_error: self.last_error,
            result: None,
            progress: None,
            created_at: timestamp(self.created_at),
            updated_at: timestamp(now_micros),
            started_at: Some(timestamp(now_micros)),
            finished_at: None,
        }
    }
}

/// The names of a lane, checked once for all of its jobs.
struct LaneNames {
    kind: Result<Kind, NotAName>,
    queue: Result<QueueName, NotAName>,
}

/// How many bytes of payload a claim may still bring.
pub(super) struct ByteBudget {
    left: usize,
    /// The first job is taken however large it is.
    untouched: bool,
    /// A job was left because it did not fit. Those behind it wait with it: the order stands.
    pub(super) is_exhausted: bool,
}

impl ByteBudget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: bytes, untouched: true, is_exhausted: false }
    }

    fn admits(&mut self, bytes: usize) -> bool {
        if self.is_exhausted || (bytes > self.left && !self.untouched) {
            self.is_exhausted = true;
            return false;
        }
        self.left = self.left.saturating_sub(bytes);
        self.untouched = false;
        true
    }
}

/// The oldest due jobs of lanes of one priority, as far as the budget goes. Each lane is asked only for as many as are
/// among the oldest of all.
pub(super) fn due_jobs(
    tx: &Tx<'_>,
    lanes: &[ReadyLane],
    max: usize,
    budget: &mut ByteBudget,
) -> rusqlite::Result<Vec<DueRow>> {
    let [lane] = lanes else {
        let mut due = Vec::with_capacity(max.min(BATCH_MAX));
        for (lane, share) in lanes.iter().zip(shares(tx, lanes, max, budget)?).filter(|(_, share)| *share > 0) {
            // What has a share was measured already.
            due_in_lane(tx, lane, share, |_| true, &mut due)?;
        }
        due.sort_by_key(|due| due.position);
        return Ok(due);
    };
    let mut due = Vec::with_capacity(max.min(BATCH_MAX));
    due_in_lane(tx, lane, max, |bytes| budget.admits(bytes), &mut due)?;
    Ok(due)
}

/// The first `max` due jobs of a lane, up to one whose payload is not wanted.
fn due_in_lane(
    tx: &Tx<'_>,
    lane: &ReadyLane,
    max: usize,
    mut wants: impl FnMut(usize) -> bool,
    due: &mut Vec<DueRow>,
) -> rusqlite::Result<()> {
    let names = LaneNames { kind: Kind::new(&lane.kind), queue: QueueName::new(&lane.queue) };
    let queue = names.queue.clone().unwrap_or_else(|_| QueueName::unknown());
    let mut statement = tx.statement(DUE_IN_LANE)?;
    let mut rows = statement.query(params![lane.queue, lane.kind, lane.priority, tx.now_micros(), max as i64])?;
    while let Some(row) = rows.next()? {
        let bytes = match row.get_ref(5)? {
            ValueRef::Text(payload) | ValueRef::Blob(payload) => payload.len(),
            _ => 0,
        };
        if !wants(bytes) {
            break;
        }
        due.push(DueRow {
            seq: row.get(0)?,
            position: (row.get(2)?, row.get::<_, UuidBlob>(1)?.0),
            queue: queue.clone(),
            // One of the two, or the index would not have named it.
            status: if row.get_ref(3)?.as_str() == Ok("retrying") { Status::Retrying } else { Status::Queued },
            was_started: row.get(4)?,
            job: DueJob::read(row, lane, &names),
        });
    }
    Ok(())
}

/// How many of the oldest `max` jobs each of these lanes has, as far as the budget goes.
fn shares(tx: &Tx<'_>, lanes: &[ReadyLane], max: usize, budget: &mut ByteBudget) -> rusqlite::Result<Vec<usize>> {
    let mut positions = Vec::new();
    let mut statement = tx.statement(POSITIONS_IN_LANE)?;
    for (n, lane) in lanes.iter().enumerate() {
        let params = params![lane.queue, lane.kind, lane.priority, tx.now_micros(), max as i64];
        for row in statement.query_map(params, |row| Ok((row.get(0)?, row.get::<_, UuidBlob>(1)?, row.get(2)?)))? {
            let (run_at, id, bytes): (i64, UuidBlob, usize) = row?;
            positions.push((run_at, id.0, n, bytes));
        }
    }
    positions.sort_unstable();
    let mut shares = vec![0; lanes.len()];
    positions
        .into_iter()
        .take(max)
        .take_while(|(.., bytes)| budget.admits(*bytes))
        .for_each(|(_, _, n, _)| shares[n] += 1);
    Ok(shares)
}
