//! get: jobs by id.

use std::collections::HashMap;

use uuid::Uuid;

use super::ask::{ask, read};
use super::core::Core;
use super::error::Effect;
use super::row;
use crate::job::{JobId, JobRecord};
use crate::store::StoreError;

pub(super) async fn get(core: &Core, ids: Vec<JobId>) -> Result<Vec<Option<JobRecord>>, StoreError> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| *id.as_uuid()).collect();
    let mut found = HashMap::with_capacity(ids.len());
    for row in ask(core, "get", Effect::Repeatable, &core.sql.get, &[&uuids]).await? {
        let job = read("get", row::job(&row))?;
        found.insert(job.id, job);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}
