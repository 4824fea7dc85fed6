//! redrive: failed_permanent, cancelled → queued, as if new, with its history and last error kept.

use std::collections::HashMap;

use uuid::Uuid;

use super::ask::{ask, read};
use super::core::Core;
use super::error::Effect;
use super::row;
use crate::job::{JobId, Status};
use crate::store::{PerItem, Redriven};

pub(super) async fn redrive(core: &Core, ids: Vec<JobId>) -> PerItem<Redriven> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| *id.as_uuid()).collect();
    let rows = ask(core, "redrive", Effect::Once, &core.sql.redrive, &[&uuids]).await?;
    let (mut again, mut elsewhere) = (HashMap::new(), HashMap::new());
    for row in &rows {
        let id = row::id(read("redrive", row.try_get("asked"))?);
        let status = row::status(read("redrive", row.try_get("stood"))?);
        if matches!(status, Status::FailedPermanent | Status::Cancelled) {
            again.insert(id, read("redrive", row::job(row))?);
        } else {
            elsewhere.insert(id, status);
        }
    }
    if !again.is_empty() {
        core.lanes.lower(again.values().map(Into::into));
        core.bell.ring();
    }
    let answer = |id| match again.remove(&id) {
        Some(job) => {
            // Named twice in one call, it is in the queue by the second time.
            elsewhere.insert(id, job.status);
            Redriven::Queued(job)
        }
        None => elsewhere.get(&id).map_or(Redriven::NotFound, |status| Redriven::NotDead(*status)),
    };
    Ok(ids.into_iter().map(answer).map(Ok).collect())
}
