//! extend: running → running. Many leases in one statement, on a connection of its own.

use std::collections::{BTreeMap, HashMap};

use tokio::time::timeout;
use uuid::Uuid;

use super::core::Core;
use super::row;
use super::trouble::{Effect, Tries, Trouble};
use crate::job::Progress;
use crate::store::{Extend, Extended, StoreError};

pub(super) async fn extend(core: &Core, extend: Extend) -> Result<Vec<Extended>, StoreError> {
    if extend.beats.is_empty() {
        return Ok(Vec::new());
    }
    let mut tries = Tries::new("extend", Effect::Repeatable);
    loop {
        match try_extend(core, &extend).await {
            Ok(answers) => return Ok(answers),
            Err(trouble) => tries.again(trouble).await?,
        }
    }
}

async fn try_extend(core: &Core, extend: &Extend) -> Result<Vec<Extended>, Trouble> {
    let link = core.heartbeats.get().await?;
    let work = async {
        // One row each and in one order everywhere, so that two processes cannot wait for each other. Of two beats for
        // one lease the newer progress counts.
        let mut beats: BTreeMap<(Uuid, Uuid), Option<&Progress>> = BTreeMap::new();
        for beat in &extend.beats {
            let progress = beats.entry((*beat.lease.job_id.as_uuid(), *beat.lease.token.as_uuid())).or_default();
            *progress = beat.progress.as_ref().or(*progress);
        }
        let (ids, tokens): (Vec<Uuid>, Vec<Uuid>) = beats.keys().copied().unzip();
        let progress: Vec<Option<String>> =
            beats.values().map(|progress| progress.and_then(|progress| serde_json::to_string(progress).ok())).collect();
        let lease_ms = extend.lease.map(row::millis);
        let statement = link.prepare_cached(&core.sql.extend).await?;
        let mut held: HashMap<Uuid, bool> = HashMap::with_capacity(beats.len());
        for row in link.query(&statement, &[&ids, &tokens, &progress, &lease_ms]).await? {
            held.insert(row.try_get(0)?, row.try_get(1)?);
        }
        let answer = |token| match held.get(token) {
            Some(true) => Extended::Cancel,
            Some(false) => Extended::Ok,
            None => Extended::Lost,
        };
        Ok(extend.beats.iter().map(|beat| answer(beat.lease.token.as_uuid())).collect())
    };
    let answer = timeout(link.patience(), work).await;
    link.finish(answer)
}
