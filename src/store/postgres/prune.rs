//! prune: finished long enough ago → gone. Walks along the ids, which follow time, a bounded number per call.

use uuid::Uuid;

use super::ask::{ask, read};
use super::core::Core;
use super::error::Effect;
use super::row;
use crate::store::{Prune, Pruned, StoreError};

pub(super) async fn prune(core: &Core, prune: Prune) -> Result<Pruned, StoreError> {
    let after = prune.after.map_or(Uuid::nil(), |id| *id.as_uuid());
    let limit = prune.limit.max(1).try_into().unwrap_or(i64::MAX);
    // 2^52 µs, 142 years: far beyond any retention, and the sum stays within what the database calls a time.
    let keep = |kept| row::micros(kept).min(1 << 52);
    let [succeeded, cancelled, failed] = [prune.keep_succeeded, prune.keep_cancelled, prune.keep_failed].map(keep);
    // Deleting what is gone already deletes nothing.
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [&after, &limit, &succeeded, &cancelled, &failed];
    let rows = ask(core, "prune", Effect::Repeatable, &core.sql.prune, &params).await?;
    let Some(row) = rows.first() else { return Ok(Pruned { deleted: 0, next: None }) };
    let looked: i64 = read("prune", row.try_get(0))?;
    let deleted: i64 = read("prune", row.try_get(1))?;
    let last: Option<Uuid> = read("prune", row.try_get(2))?;
    let too_new: bool = read("prune", row.try_get(3))?;
    let next = last.filter(|_| looked == limit && !too_new).map(row::id);
    Ok(Pruned { deleted: deleted as usize, next })
}
