//! list: jobs, newest first. With a filter, one call looks at a bounded number of rows and says where to go on.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::ask::{ask, read};
use super::core::Core;
use super::row;
use super::trouble::Effect;
use crate::job::{JobId, JobRecord};
use crate::store::{List, Page, StoreError};

/// 20,000 rows: a few tens of milliseconds.
const LOOKED_AT_MAX: i64 = 20_000;

pub(super) async fn list(core: &Core, list: List) -> Result<Page, StoreError> {
    let before = list.before.map_or(Uuid::max(), |id| *id.as_uuid());
    let filtered = list.status.is_some() || list.kind.is_some() || list.queue.is_some();
    let floor = if filtered { floor(core, before).await? } else { None };
    let from = floor.unwrap_or(Uuid::nil());
    let (status, kind) = (list.status.map(|status| status.as_str()), list.kind.as_ref().map(|kind| kind.as_str()));
    let queue = list.queue.as_ref().map(|queue| queue.as_str());
    let offset = i64::try_from(list.offset).unwrap_or(i64::MAX);
    // One more than asked for tells whether there is a next page.
    let limit = i64::try_from(list.limit).unwrap_or(i64::MAX).saturating_add(1);
    let params: [&(dyn ToSql + Sync); 7] = [&before, &from, &status, &kind, &queue, &offset, &limit];
    let rows = ask(core, "list", Effect::Repeatable, &core.sql.list, &params).await?;
    let jobs: Result<Vec<JobRecord>, _> = rows.iter().map(|row| read("list", row::job(row))).collect();
    let mut jobs = jobs?;
    let more = jobs.len() > list.limit;
    jobs.truncate(list.limit);
    let next = if more { jobs.last().map(|job| job.id) } else { floor.map(JobId::from) };
    Ok(Page { jobs, next })
}

/// The lowest id one call may look at, unless that is all there is.
async fn floor(core: &Core, before: Uuid) -> Result<Option<Uuid>, StoreError> {
    let last_looked_at = LOOKED_AT_MAX - 1;
    let rows = ask(core, "list", Effect::Repeatable, &core.sql.list_floor, &[&before, &last_looked_at]).await?;
    rows.first().map(|row| read("list", row.try_get(0))).transpose()
}
