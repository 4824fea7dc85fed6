//! list: jobs, newest first. With a filter, one call looks at a bounded number of rows and says where to go on.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::ask::{ask, read};
use super::core::Core;
use super::error::Effect;
use super::row;
use super::sql::Sql;
use crate::job::{JobId, Status};
use crate::store::{List, Page, StoreError};

/// 20,000 rows: a few tens of milliseconds.
const LOOK_MAX: usize = 20_000;

/// Where to look. What is rare has an index of its own; the rest is found by walking back in time.
#[derive(Clone, Copy, PartialEq, Eq)]
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

    fn page(self, sql: &Sql) -> &str {
        match self {
            Self::All => &sql.list,
            Self::Dead => &sql.list_dead,
            Self::Running => &sql.list_running,
        }
    }

    /// Finds the row at which one call stops looking; running jobs are all looked at.
    fn floor(self, sql: &Sql) -> Option<&str> {
        match self {
            Self::All => Some(&sql.list_floor),
            Self::Dead => Some(&sql.list_dead_floor),
            Self::Running => None,
        }
    }
}

pub(super) async fn list(core: &Core, list: List) -> Result<Page, StoreError> {
    let source = Source::of(&list);
    let before = list.before.map_or(Uuid::max(), |id| *id.as_uuid());
    let filtered = list.status.is_some() || list.kind.is_some() || list.queue.is_some();
    let floor = match source.floor(&core.sql) {
        Some(sql) if filtered => floor(core, sql, before, list.offset).await?,
        _ => None,
    };
    let from = floor.unwrap_or(Uuid::nil());
    let (status, kind) = (list.status.map(|status| status.as_str()), list.kind.as_ref().map(|kind| kind.as_str()));
    let queue = list.queue.as_ref().map(|queue| queue.as_str());
    // One more than asked for tells whether there is a next page.
    let (offset, limit) = (count(list.offset), count(list.limit.saturating_add(1)));
    let params: [&(dyn ToSql + Sync); 7] = [&before, &from, &status, &kind, &queue, &offset, &limit];
    let mut rows = ask(core, "list", Effect::Repeatable, source.page(&core.sql), &params).await?;
    let more = rows.len() > list.limit;
    rows.truncate(list.limit);
    let last = rows.last().map(|row| read("list", row.try_get::<_, Uuid>(0))).transpose()?;
    let next = if more { last } else { floor };
    // A row that makes no sense at all is left out; claiming it makes it a dead letter with the reason.
    let jobs = rows.iter().filter_map(|row| row::job(row).ok()).collect();
    Ok(Page { jobs, next: next.map(JobId::from) })
}

/// The lowest id one call may look at, unless that is all there is. What the offset leaves out comes on top.
async fn floor(core: &Core, sql: &str, before: Uuid, offset: usize) -> Result<Option<Uuid>, StoreError> {
    let looks = count(LOOK_MAX.saturating_add(offset));
    let rows = ask(core, "list", Effect::Repeatable, sql, &[&before, &looks]).await?;
    rows.first().map(|row| read("list", row.try_get(0))).transpose()
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
