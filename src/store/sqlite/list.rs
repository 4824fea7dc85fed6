//! list: jobs, newest first, without ever walking the whole table.

use rusqlite::{Connection, OptionalExtension, ToSql, named_params};
use uuid::Uuid;

use super::jobs::shown_job;
use super::row::{UuidBlob, job_columns};
use crate::job::{JobId, Status};
use crate::store::{List, Page};

/// 20,000 rows, some milliseconds: how far one call looks for jobs that match its filter.
const LOOK_MAX: usize = 20_000;

/// Where to look. What is rare has an index of its own; the rest is found by walking back in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Every job by id.
    All,
    /// `failed_permanent` and `cancelled`, by id.
    Dead,
    /// `running`: never more than the workers hold, so sorting them is cheap.
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

    /// The `FROM` and the condition that selects its index.
    fn sql(self) -> &'static str {
        match self {
            Self::All => "jobs WHERE TRUE",
            Self::Dead => "jobs INDEXED BY jobs_dead WHERE died_at IS NOT NULL",
            Self::Running => "jobs INDEXED BY jobs_leased WHERE lease_expires_at IS NOT NULL",
        }
    }

    fn page(self) -> String {
        format!(
            concat!(
                "-- list: one page, newest first\nSELECT ",
                job_columns!(),
                " FROM {} AND id < :before AND id >= :floor
                 AND (:status IS NULL OR status = :status) AND (:kind IS NULL OR kind = :kind)
                 AND (:queue IS NULL OR queue = :queue)
                 ORDER BY id DESC LIMIT :limit OFFSET :offset"
            ),
            self.sql()
        )
    }

    /// The row at which one call stops looking.
    fn floor(self) -> String {
        format!(
            "-- list: how far one call looks\nSELECT id FROM {} AND id < :before ORDER BY id DESC LIMIT 1 OFFSET :looks",
            self.sql()
        )
    }
}

pub(super) fn list(connection: &Connection, list: &List) -> rusqlite::Result<Page> {
    let source = Source::of(list);
    let snapshot = connection.unchecked_transaction()?;
    let before = UuidBlob(list.before.map_or(Uuid::max(), |id| *id.as_uuid()));
    let filtered = list.status.is_some() || list.kind.is_some() || list.queue.is_some();
    let floor: Option<UuidBlob> = if filtered && source != Source::Running {
        let looks = (LOOK_MAX + list.offset) as i64;
        let params: &[(&str, &dyn ToSql)] = named_params! { ":before": before, ":looks": looks };
        snapshot.prepare_cached(&source.floor())?.query_row(params, |row| row.get(0)).optional()?
    } else {
        None
    };
    let mut statement = snapshot.prepare_cached(&source.page())?;
    let rows = statement.query_map(
        named_params! {
            ":before": before,
            ":floor": floor.unwrap_or(UuidBlob(Uuid::nil())),
            ":status": list.status.map(Status::as_str),
            ":kind": list.kind.as_ref().map(|kind| kind.as_str()),
            ":queue": list.queue.as_ref().map(|queue| queue.as_str()),
            // One more than asked for tells whether there is a next page.
            ":limit": list.limit as i64 + 1,
            ":offset": list.offset as i64,
        },
        |row| Ok((row.get::<_, UuidBlob>(0)?, shown_job(row))),
    )?;
    let mut rows: Vec<_> = rows.collect::<Result<_, _>>()?;
    let more = rows.len() > list.limit;
    rows.truncate(list.limit);
    let last = rows.last().map(|(id, _)| JobId::from(id.0));
    let next = if more { last } else { floor.map(|id| JobId::from(id.0)) };
    // A row that makes no sense at all is left out; claiming it makes it a dead letter with the reason.
    let jobs = rows.into_iter().filter_map(|(_, job)| job.ok()).collect();
    Ok(Page { jobs, next })
}

#[cfg(test)]
pub(super) fn every_statement() -> Vec<String> {
    [Source::All, Source::Dead, Source::Running].iter().flat_map(|source| [source.page(), source.floor()]).collect()
}
