//! A job that is due, as a claim reads it: only the columns that a waiting job has something in. It never changes a row.

use std::sync::Arc;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::job_options::JobOptions;
use super::lanes::{Lane, Position};
use super::marks::Marks;
use super::row::{Unreadable, UuidBlob, column, timestamp, unreadable};
use super::transaction::Tx;
use crate::job::{GroupKey, JobId, JobRecord, Json, Kind, NotAName, QueueName, Status, WorkerId};

/// A waiting row. What the counts must know stands beside the job, which may make no sense.
pub(super) struct DueRow {
    pub(super) seq: i64,
    pub(super) lane: Arc<Lane>,
    pub(super) status: Status,
    pub(super) was_started: bool,
    pub(super) position: Position,
    /// As they are, and as they will be once it has started.
    pub(super) marks: Marks,
    pub(super) started_marks: Marks,
    /// The deadline of its start, if it has passed.
    pub(super) expired: Option<i64>,
    pub(super) bytes: usize,
    /// A limit binds it.
    pub(super) is_limited: bool,
    pub(super) job: Result<DueJob, Unreadable>,
}

impl DueRow {
    /// From the columns of the statements that read what is due.
    pub(super) fn read(tx: &Tx<'_>, row: &Row<'_>, lane: &Arc<Lane>, names: &LaneNames) -> rusqlite::Result<Self> {
        let (seq, marks) = (row.get(0)?, Marks::read(row, 13)?);
        let options = if marks.has_options() { JobOptions::read(tx.connection(), seq)? } else { None };
        let bytes = payload_bytes(row)?;
        Ok(Self {
            seq,
            lane: lane.clone(),
            // One of the two, or the index would not have named it.
            status: if row.get_ref(3)?.as_str() == Ok("retrying") { Status::Retrying } else { Status::Queued },
            was_started: row.get(4)?,
            position: Position { run_at: row.get(2)?, id: row.get::<_, UuidBlob>(1)?.0 },
            marks,
            started_marks: marks.without_holds(),
            expired: options.as_ref().and_then(|options| options.start_deadline).filter(|by| *by <= tx.now_micros()),
            bytes,
            is_limited: false,
            job: DueJob::read(row, lane, names, options),
        })
    }

    /// Whether it will be started; else it is ended with the reason.
    pub(super) fn can_start(&self) -> bool {
        self.expired.is_none() && self.job.as_ref().is_ok_and(|job| job.attempts < job.max_attempts)
    }

    /// How much of a rate it uses.
    pub(super) fn cost(&self) -> u32 {
        self.job.as_ref().ok().and_then(|job| job.options.as_ref()?.cost).unwrap_or(1)
    }
}

/// How long a payload is stands at the beginning of its row; it is not read for that.
pub(super) fn payload_bytes(row: &Row<'_>) -> rusqlite::Result<usize> {
    Ok(match row.get_ref(5)? {
        ValueRef::Text(payload) | ValueRef::Blob(payload) => payload.len(),
        _ => 0,
    })
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
    group_key: Option<GroupKey>,
    options: Option<Box<JobOptions>>,
}

impl DueJob {
    fn read(row: &Row<'_>, lane: &Lane, names: &LaneNames, options: Option<JobOptions>) -> Result<Self, Unreadable> {
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
            group_key: names.group_key.clone(),
            options: options.map(Box::new),
        })
    }

    /// The job as it is once it has been started.
    pub(super) fn started(self, worker: WorkerId, now_micros: i64, expires_at: i64) -> JobRecord {
        let options = self.options.map(|options| *options).unwrap_or_default();
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
            group_key: self.group_key,
            cost: options.cost,
            start_by: options.start_by,
            unique: options.unique,
            notify: options.notify,
            trace: options.trace,
            cancel_requested: self.cancel_requested,
            locked_by: Some(worker),
            locked_at: Some(timestamp(now_micros)),
            lease_expires_at: Some(timestamp(expires_at)),
            last_error: self.last_error,
            error_group: None,
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
pub(super) struct LaneNames {
    kind: Result<Kind, NotAName>,
    queue: Result<QueueName, NotAName>,
    group_key: Option<GroupKey>,
}

impl LaneNames {
    pub(super) fn of(lane: &Lane) -> Self {
        let group_key = lane.group.key().map(|key| GroupKey::stored(key));
        Self { kind: Kind::new(&lane.kind), queue: QueueName::new(&lane.queue), group_key }
    }
}

/// How many bytes of payload a claim may still bring.
pub(super) struct ByteBudget {
    pub(super) left: usize,
    /// The first job is taken however large it is.
    untouched: bool,
    /// A job was left because it did not fit. Those behind it wait with it: the order stands.
    pub(super) is_exhausted: bool,
}

impl ByteBudget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: bytes, untouched: true, is_exhausted: false }
    }

    /// Whether a job of this size fits; if not, nothing more does.
    pub(super) fn has_room_for(&mut self, bytes: usize) -> bool {
        self.is_exhausted |= bytes > self.left && !self.untouched;
        !self.is_exhausted
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.untouched = false;
    }
}
