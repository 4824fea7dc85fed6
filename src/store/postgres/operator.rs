//! cancel: queued, retrying → cancelled at once; running → flagged, for its worker to see.

use std::collections::HashMap;

use uuid::Uuid;

use super::ask::{ask, read};
use super::core::Core;
use super::error::Effect;
use super::row;
use crate::job::{JobId, Status};
use crate::store::{Cancelled, PerItem};

pub(super) async fn cancel(core: &Core, ids: Vec<JobId>) -> PerItem<Cancelled> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| *id.as_uuid()).collect();
    let rows = ask(core, "cancel", Effect::Once, &core.sql.cancel, &[&uuids]).await?;
    let mut was = HashMap::with_capacity(rows.len());
    for row in &rows {
        was.insert(row::id(read("cancel", row.try_get(0))?), row::status(read("cancel", row.try_get(1))?));
    }
    let answer = |id| {
        let Some(status) = was.get_mut(&id) else { return Cancelled::NotFound };
        match *status {
            Status::Queued | Status::Retrying => {
                // Named twice in one call, it has ended by the second time.
                *status = Status::Cancelled;
                Cancelled::Now
            }
            Status::Running => Cancelled::Requested,
            finished => Cancelled::AlreadyFinished(finished),
        }
    };
    Ok(ids.into_iter().map(answer).map(Ok).collect())
}
