//! What is due, read row by row in the order in which it is claimed.
//!
//! Each lane is in that order already. So the lanes are merged: of the one whose turn it is, jobs are read until one comes
//! that stands behind the head of another. Only the columns are read that a waiting job has something in. It never
//! changes a row.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Row, params};

use super::known_lanes::{DueLanes, Rank};
use super::lanes::{Lane, Position};
use super::options::ShownOptions;
use super::row::{Unreadable, UuidBlob, column, timestamp, unreadable};
use super::transaction::Tx;
use crate::job::limits::BATCH_MAX;
use crate::job::{JobId, JobRecord, Json, Kind, NotAName, QueueName, Status, WorkerId};
use crate::store::Claim;

// How long a payload is stands at the beginning of its row; it is not read for that.
pub(super) const DUE_IN_LANE: &str = "
-- claim: what is due in one lane, behind a position
SELECT seq, id, run_at, status, lease_token IS NOT NULL, payload, attempts, max_attempts, timeout_ms, idempotency_key,
       cancel_requested, last_error, created_at,
       CASE WHEN marks & 16 THEN (SELECT o.shown FROM job_options o WHERE o.seq = jobs.seq) END
FROM jobs INDEXED BY jobs_ready
WHERE lease_expires_at IS NULL AND finished_at IS NULL AND group_key IS NULL
  AND queue = ?1 AND kind = ?2 AND priority = ?3 AND (run_at, id) > (?4, ?5) AND run_at <= ?6
ORDER BY run_at, id LIMIT ?7";

/// A waiting row. What the counts must know stands beside the job, which may make no sense.
pub(super) struct DueRow {
    pub(super) seq: i64,
    pub(super) lane: Arc<Lane>,
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
    /// What a plain job does not have.
    options: Option<Box<ShownOptions>>,
}

impl DueJob {
    fn read(row: &Row<'_>, lane: &Lane, names: &LaneNames) -> Result<Self, Unreadable> {
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
            options: column::<Option<String>>(row, 13, "options")?
                .map(|text| Box::new(ShownOptions::read(Some(&text)))),
        })
    }

    /// The job as it is once it has been started.
    pub(super) fn started(self, worker: WorkerId, now_micros: i64, expires_at: i64) -> JobRecord {
        let mut job = JobRecord {
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
            group_key: None,
            cost: None,
            start_by: None,
            unique: None,
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
        };
        if let Some(options) = self.options {
            options.add_to(&mut job);
        }
        job
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

/// A lane whose turn comes when its next job is the first of all.
struct NextOfLane<'l> {
    /// Of that job, or less.
    rank: Rank,
    lane: &'l Arc<Lane>,
    /// The last job that was read of the lane.
    behind: Position,
    /// The range that the lane is from, as long as the lane behind it in that range has no turn yet.
    range: Option<usize>,
}

impl Ord for NextOfLane<'_> {
    /// The heap gives out the greatest first, which is the least rank.
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank)
    }
}

impl PartialOrd for NextOfLane<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NextOfLane<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for NextOfLane<'_> {}

/// What was read for a claim.
pub(super) struct Due {
    /// In the order in which they are claimed.
    pub(super) rows: Vec<DueRow>,
    /// All lanes that were read from.
    pub(super) lanes: Vec<Arc<Lane>>,
}

/// The first `max` due jobs that a claim may take, as far as the budget goes.
pub(super) fn due_jobs(tx: &Tx<'_>, claim: &Claim, max: usize, budget: &mut ByteBudget) -> rusqlite::Result<Due> {
    let mut due = Due { rows: Vec::with_capacity(max.min(BATCH_MAX)), lanes: Vec::new() };
    let mut ranges = tx.lanes().due_for(claim);
    let mut turns: BinaryHeap<NextOfLane<'_>> =
        ranges.iter_mut().enumerate().filter_map(|(index, range)| NextOfLane::of_next(range, index)).collect();
    let mut statement = tx.statement(DUE_IN_LANE)?;
    while due.rows.len() < max
        && !budget.is_exhausted
        && let Some(mut turn) = turns.pop()
    {
        if let Some(index) = turn.range.take() {
            turns.extend(NextOfLane::of_next(&mut ranges[index], index));
            due.lanes.push(turn.lane.clone());
        }
        let until = turns.peek().map(|next| next.rank);
        let limit = max - due.rows.len();
        if turn.read(tx, &mut statement, until, limit, budget, &mut due.rows)? {
            turns.push(turn);
        }
    }
    Ok(due)
}

impl<'l> NextOfLane<'l> {
    fn of_next(range: &mut DueLanes<'l>, index: usize) -> Option<Self> {
        range.next().map(|(rank, lane)| Self { rank, lane, behind: Position::START, range: Some(index) })
    }

    /// Reads at most `limit` due jobs of the lane, up to one that another lane's job comes before (`true`: there is one,
    /// and it has its turn later) or that the budget does not admit.
    fn read(
        &mut self,
        tx: &Tx<'_>,
        statement: &mut CachedStatement<'_>,
        until: Option<Rank>,
        limit: usize,
        budget: &mut ByteBudget,
        due: &mut Vec<DueRow>,
    ) -> rusqlite::Result<bool> {
        let lane = self.lane;
        let names = LaneNames { kind: Kind::new(&lane.kind), queue: QueueName::new(&lane.queue) };
        let (run_at, id) = (self.behind.run_at, UuidBlob(self.behind.id));
        let now = tx.now_micros();
        let mut rows = statement.query(params![lane.queue, lane.kind, lane.priority, run_at, id, now, limit as i64])?;
        while let Some(row) = rows.next()? {
            let position = Position { run_at: row.get(2)?, id: row.get::<_, UuidBlob>(1)?.0 };
            let rank = (Reverse(lane.priority), position);
            if until.is_some_and(|until| until < rank) {
                self.rank = rank;
                return Ok(true);
            }
            let bytes = match row.get_ref(5)? {
                ValueRef::Text(payload) | ValueRef::Blob(payload) => payload.len(),
                _ => 0,
            };
            if !budget.admits(bytes) {
                break;
            }
            self.behind = position;
            due.push(DueRow {
                seq: row.get(0)?,
                lane: lane.clone(),
                // One of the two, or the index would not have named it.
                status: if row.get_ref(3)?.as_str() == Ok("retrying") { Status::Retrying } else { Status::Queued },
                was_started: row.get(4)?,
                job: DueJob::read(row, lane, &names),
            });
        }
        Ok(false)
    }
}
