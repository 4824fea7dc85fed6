//! stats: jobs per queue and status from maintained counts, and how long the oldest due job of each queue has waited.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::core::Core;
use super::error::{Effect, Tries, Trouble};
use super::{claim, counts, row};
use crate::store::{Stats, StoreError};

/// 5,000 loose changes: beyond it adding them up costs more than rolling them up.
const LOOSE_MAX: i64 = 5_000;

pub(super) async fn stats(core: &Core) -> Result<Stats, StoreError> {
    let mut tries = Tries::new("stats", Effect::Repeatable);
    let (stats, loose) = loop {
        match try_stats(core).await {
            Ok(answer) => break answer,
            Err(trouble) => tries.again(trouble).await?,
        }
    };
    if loose > LOOSE_MAX
        && let Err(error) = counts::roll_up(core).await
    {
        tracing::debug!(?error, "counts are rolled up another time");
    }
    Ok(stats)
}

async fn try_stats(core: &Core) -> Result<(Stats, i64), Trouble> {
    let link = core.pool.get().await?;
    let work = async {
        let mut stats = Stats::default();
        let mut loose = 0;
        let counts = link.prepare_cached(&core.sql.stats).await?;
        for row in link.query(&counts, &[]).await? {
            let (queue, status) = (row::queue(row.try_get(0)?), row::status(row.try_get(1)?));
            let n: i64 = row.try_get(2)?;
            loose += row.try_get::<_, i64>(3)?;
            if n > 0 {
                *stats.queues.entry(queue).or_default().counts.entry(status).or_default() += n as u64;
            }
        }
        let paused = link.prepare_cached(&core.sql.paused).await?;
        let mut now = None;
        for row in link.query(&paused, &[]).await? {
            now = Some(row.try_get::<_, Timestamp>(0)?);
            if let Some(queue) = row.try_get::<_, Option<&str>>(1)? {
                stats.queues.entry(row::queue(queue)).or_default().paused = true;
            }
        }
        for lane in claim::lanes(core, &link).await? {
            let since = lane.1.0.timestamp();
            let waited = now.map(|now| now.duration_since(since)).and_then(|waited| Duration::try_from(waited).ok());
            let queue = stats.queues.entry(row::queue(&lane.0.queue)).or_default();
            // A lane whose first job is not due yet has waited less than nothing.
            queue.oldest_ready = queue.oldest_ready.max(waited);
        }
        Ok((stats, loose))
    };
    let answer = timeout(link.patience(), work).await;
    link.finish(answer)
}
