//! Which jobs are next for an operation: by the index that fits, oldest first, a bounded number of rows at a time.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, named_params};

use super::jobs::job_with_id;
use super::operations::filter_of;
use super::row::{UuidBlob, micros, timestamp};
use crate::job::{JobId, Status};
use crate::store::{Matches, OperationPreview, Selection};

/// Where the jobs of a selection are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobSource {
    /// By the ids that are named.
    Ids,
    /// By the fingerprint of the error that ended them.
    ErrorGroup,
    /// Among what failed permanently or was cancelled.
    Dead,
    /// By their idempotency key.
    Key,
    /// Among all jobs.
    All,
}

impl JobSource {
    pub(super) fn of(selection: &Selection) -> Self {
        let Selection::Filter(filter) = selection else { return Self::Ids };
        let dead = [Status::FailedPermanent, Status::Cancelled];
        match filter {
            filter if filter.key.is_some() => Self::Key,
            filter if filter.error.is_some() => Self::ErrorGroup,
            filter if filter.only(&dead) => Self::Dead,
            _ => Self::All,
        }
    }

    /// What the cursor is, and the `FROM` and the condition that selects its index.
    fn sql(self) -> (&'static str, &'static str) {
        match self {
            Self::Ids => ("id", "jobs WHERE id IN (SELECT unhex(value) FROM json_each(:ids))"),
            Self::ErrorGroup => (
                "jobs.seq",
                "dead_groups g JOIN jobs ON jobs.seq = g.seq WHERE g.fingerprint = :error AND g.seq > :cursor",
            ),
            Self::Dead => ("id", "jobs INDEXED BY jobs_dead WHERE died_at IS NOT NULL"),
            Self::Key => ("id", "jobs INDEXED BY jobs_idempotency_key WHERE idempotency_key = :key"),
            Self::All => ("jobs.seq", "jobs WHERE TRUE"),
        }
    }

    /// The rows behind a cursor, and whether each is meant.
    pub(super) fn statement(self) -> String {
        let (cursor, from) = self.sql();
        format!(
            "-- step_operation: the next rows, and which of them are meant
             SELECT {cursor}, id, kind, queue, created_at,
                    id >= :from AND id < :to
                    AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
                    AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
                    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
                    AND (:worker IS NULL OR (worker = :worker AND lease_expires_at IS NOT NULL))
                    AND (:group IS NULL OR group_key = :group)
                    AND (:error IS NULL OR EXISTS (SELECT 1 FROM dead_groups d WHERE d.seq = jobs.seq AND d.fingerprint = :error))
                    AND (:key IS NULL OR idempotency_key = :key)
                    AND (:finished_after IS NULL OR finished_at >= :finished_after)
                    AND (:finished_before IS NULL OR finished_at < :finished_before)
                    AND coalesce(finished_at, created_at) <= :cutoff
                    AND (:ids IS NULL OR id IN (SELECT unhex(value) FROM json_each(:ids)))
             FROM {from} AND {cursor} > :cursor ORDER BY {cursor} LIMIT :rows"
        )
    }

    /// Before every row.
    pub(super) fn start(self) -> Value {
        match self {
            Self::ErrorGroup | Self::All => Value::Integer(i64::MIN),
            Self::Ids | Self::Dead | Self::Key => Value::Blob(Vec::new()),
        }
    }
}

/// Which rows are meant, and how many are looked at.
pub(super) struct Look<'s> {
    pub(super) selection: &'s Selection,
    pub(super) cutoff: i64,
    pub(super) rows: usize,
}

/// A row that was looked at.
pub(super) struct LookedAt {
    pub(super) cursor: Value,
    pub(super) id: JobId,
    pub(super) is_meant: bool,
    kind: String,
    queue: String,
    created_at: i64,
}

impl LookedAt {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            cursor: row.get(0)?,
            id: JobId::from(row.get::<_, UuidBlob>(1)?.0),
            kind: row.get(2)?,
            queue: row.get(3)?,
            created_at: row.get(4)?,
            is_meant: row.get::<_, Option<bool>>(5)?.unwrap_or(false),
        })
    }
}

fn list<T: ToString>(items: &[T]) -> Option<String> {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    (!items.is_empty()).then(|| serde_json::to_string(&items).expect("strings are JSON"))
}

/// The next rows behind a cursor.
pub(super) fn look(
    connection: &Connection,
    source: JobSource,
    look: &Look<'_>,
    cursor: &Value,
) -> rusqlite::Result<Vec<LookedAt>> {
    let filter = filter_of(look.selection);
    let (from, to) = filter.ids();
    let ids = match look.selection {
        Selection::Ids(ids) => {
            let hex = |id: &JobId| id.as_uuid().simple().to_string();
            Some(serde_json::to_string(&ids.iter().map(hex).collect::<Vec<_>>()).expect("strings are JSON"))
        }
        Selection::Filter(_) => None,
    };
    let mut statement = connection.prepare_cached(&source.statement())?;
    let rows = statement.query_map(
        named_params! {
            ":from": UuidBlob(from),
            ":to": UuidBlob(to),
            ":statuses": list(&filter.statuses),
            ":kinds": list(&filter.kinds),
            ":queues": list(&filter.queues),
            ":worker": filter.worker.as_ref().map(ToString::to_string),
            ":group": filter.group.as_ref().map(|group| group.as_str().to_owned()),
            ":error": filter.error,
            ":key": filter.key,
            ":finished_after": filter.finished_after.map(micros),
            ":finished_before": filter.finished_before.map(micros),
            ":cutoff": look.cutoff,
            ":ids": ids,
            ":cursor": cursor,
            ":rows": look.rows as i64,
        },
        LookedAt::read,
    )?;
    rows.collect()
}

pub(super) fn preview(
    connection: &Connection,
    source: JobSource,
    at: &Look<'_>,
    samples: usize,
    now_micros: i64,
) -> rusqlite::Result<OperationPreview> {
    let rows = look(connection, source, at, &source.start())?;
    let (mut sample, mut matches) = (Vec::new(), Matches::default());
    for row in rows.iter().filter(|row| row.is_meant) {
        if sample.len() < samples {
            sample.extend(job_with_id(connection, row.id)?);
        }
        matches.add(&row.kind, &row.queue, timestamp(row.created_at));
    }
    Ok(matches.preview(rows.len(), at.rows, sample, timestamp(now_micros)))
}
