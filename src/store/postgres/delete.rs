//! delete: finished → gone, with its attempts. Its idempotency key is free again.

use std::collections::HashMap;

use uuid::Uuid;

use super::ask::{ask, read};
use super::core::Core;
use super::error::Effect;
use super::row;
use crate::job::JobId;
use crate::store::{Deleted, PerItem};

pub(super) async fn delete(core: &Core, ids: Vec<JobId>) -> PerItem<Deleted> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| *id.as_uuid()).collect();
    let rows = ask(core, "delete", Effect::Once, &core.sql.delete, &[&uuids]).await?;
    let mut was = HashMap::with_capacity(rows.len());
    for row in &rows {
        was.insert(row::id(read("delete", row.try_get(0))?), row::status(read("delete", row.try_get(1))?));
    }
    let answer = |id| match was.get(&id).copied() {
        None => Deleted::NotFound,
        Some(status) if status.is_terminal() => {
            // Named twice in one call, it is gone by the second time.
            was.remove(&id);
            Deleted::Gone
        }
        Some(status) => Deleted::NotFinished(status),
    };
    Ok(ids.into_iter().map(answer).map(Ok).collect())
}
