//! Counts per queue and status. Every transaction that moves jobs appends what it changed; nobody waits for anybody.
//! Now and then the oldest changes are added up. Nothing ever counts jobs.

use tokio::time::timeout;

use super::core::Core;
use super::error::{Effect, Tries, Trouble};
use crate::store::StoreError;

/// 20,000 changes in one step: some tens of milliseconds.
const STEP: i64 = 20_000;

/// 8 steps in one go: more than all processes together append between two visits of one reaper.
const STEPS_MAX: usize = 8;

/// Adds the oldest changes up, a bounded number of them.
pub(super) async fn roll_up(core: &Core) -> Result<(), StoreError> {
    // Each step is a transaction that takes what it adds, so a second one adds something else.
    let mut tries = Tries::new("roll_up", Effect::Repeatable);
    for _ in 0..STEPS_MAX {
        match try_roll_up(core).await {
            Ok(taken) if taken < STEP => break,
            Ok(_) => (),
            Err(trouble) => tries.again(trouble).await?,
        }
    }
    Ok(())
}

async fn try_roll_up(core: &Core) -> Result<i64, Trouble> {
    let link = core.pool.get().await?;
    let work = async {
        let statement = link.prepare_cached(&core.sql.roll_up).await?;
        Ok(link.query_one(&statement, &[&STEP]).await?.try_get(0)?)
    };
    let answer = timeout(link.patience(), work).await;
    link.finish(answer)
}
