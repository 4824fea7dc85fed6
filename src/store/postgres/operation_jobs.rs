//! Which jobs are next for an operation: by the index that fits, oldest first, a bounded number of rows at a time.

use jiff::Timestamp;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::sql::Sql;
use crate::job::Status;
use crate::store::{JobFilter, Selection};

/// Which rows (as `j`) are meant. Also asked of a row that is locked, which may have changed since it was looked at.
macro_rules! is_meant {
    () => {
        "(j.id >= $3 AND j.id < $4
         AND ($5::text[] IS NULL OR j.status = ANY ($5))
         AND ($6::text[] IS NULL OR j.kind = ANY ($6))
         AND ($7::text[] IS NULL OR j.queue = ANY ($7))
         AND ($8::text IS NULL OR (j.worker = $8 AND j.lease_expires_at IS NOT NULL))
         AND ($9::text IS NULL OR j.group_key = $9)
         AND ($10::bigint IS NULL OR j.error_group = $10)
         AND ($11::text IS NULL OR j.idempotency_key = $11)
         AND ($12::timestamptz IS NULL OR j.finished_at >= $12)
         AND ($13::timestamptz IS NULL OR j.finished_at < $13)
         AND coalesce(j.finished_at, j.created_at) <= $14::timestamptz
         AND ($15::uuid[] IS NULL OR j.id = ANY ($15)))"
    };
}

macro_rules! look {
    ($source:literal) => {
        concat!(
            "-- step_operation: the next rows, and which of them are meant
SELECT j.id, ",
            is_meant!(),
            ", j.kind, j.queue, j.created_at FROM SCHEMA.jobs j WHERE ",
            $source,
            " AND j.id > $1 ORDER BY j.id LIMIT $2"
        )
    };
}

pub(super) const LOOK_ALL: &str = look!("true");
pub(super) const LOOK_DEAD: &str = look!("j.died_at IS NOT NULL");
pub(super) const LOOK_ERROR_GROUP: &str = look!("j.error_group = $10");
pub(super) const LOOK_KEY: &str = look!("j.idempotency_key = $11");
pub(super) const LOOK_IDS: &str = look!("j.id = ANY ($15)");

pub(super) const LOCK_MEANT: &str = concat!(
    "-- step_operation: locks those that are still meant
SELECT j.id FROM SCHEMA.jobs j
WHERE j.id = ANY ($1) AND $2::bigint >= 0 AND ",
    is_meant!(),
    " ORDER BY j.id FOR UPDATE"
);

/// Where the jobs of a selection are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobSource {
    Ids,
    ErrorGroup,
    Dead,
    Key,
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
}

pub(super) fn look_sql(sql: &Sql, source: JobSource) -> &str {
    match source {
        JobSource::Ids => &sql.look_ids,
        JobSource::ErrorGroup => &sql.look_error_group,
        JobSource::Dead => &sql.look_dead,
        JobSource::Key => &sql.look_key,
        JobSource::All => &sql.look_all,
    }
}

/// Which rows are meant, as the parameters of the statements above.
pub(super) struct Look {
    from: Uuid,
    to: Uuid,
    statuses: Option<Vec<&'static str>>,
    kinds: Option<Vec<String>>,
    queues: Option<Vec<String>>,
    worker: Option<String>,
    group: Option<String>,
    error: Option<i64>,
    key: Option<String>,
    finished_after: Option<Timestamp>,
    finished_before: Option<Timestamp>,
    cutoff: Option<Timestamp>,
    ids: Option<Vec<Uuid>>,
}

fn names<T: ToString>(names: &[T]) -> Option<Vec<String>> {
    (!names.is_empty()).then(|| names.iter().map(ToString::to_string).collect())
}

impl Look {
    pub(super) fn new(selection: &Selection, cutoff: Option<Timestamp>) -> Self {
        let (filter, ids) = match selection {
            Selection::Filter(filter) => (filter.clone(), None),
            Selection::Ids(ids) => (JobFilter::new(), Some(ids.iter().map(|id| *id.as_uuid()).collect())),
        };
        let (from, to) = filter.ids();
        let statuses = filter.statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>();
        Self {
            from,
            to,
            statuses: (!statuses.is_empty()).then_some(statuses),
            kinds: names(&filter.kinds),
            queues: names(&filter.queues),
            worker: filter.worker.as_ref().map(ToString::to_string),
            group: filter.group.as_ref().map(|group| group.as_str().to_owned()),
            error: filter.error,
            key: filter.key,
            finished_after: filter.finished_after,
            finished_before: filter.finished_before,
            cutoff,
            ids,
        }
    }

    /// `$1` and `$2`, then those that say which rows are meant.
    pub(super) fn params<'p>(
        &'p self,
        first: &'p (dyn ToSql + Sync),
        second: &'p (dyn ToSql + Sync),
    ) -> [&'p (dyn ToSql + Sync); 15] {
        [
            first,
            second,
            &self.from,
            &self.to,
            &self.statuses,
            &self.kinds,
            &self.queues,
            &self.worker,
            &self.group,
            &self.error,
            &self.key,
            &self.finished_after,
            &self.finished_before,
            &self.cutoff,
            &self.ids,
        ]
    }
}
