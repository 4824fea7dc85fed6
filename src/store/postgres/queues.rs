//! Queues: pause, resume and stats. How their jobs are counted is in `counts`.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::core::Core;
pub(super) use super::counts::roll_up;
use super::error::{DbError, Effect, Retries};
use super::timestamp::PgTimestamp;
use super::{counts, row};
use crate::job::QueueName;
use crate::store::{Stats, StoreError};

pub(super) const PAUSE: &str = "\
-- pause
INSERT INTO SCHEMA.paused_queues (queue, paused_at) VALUES ($1, now()) ON CONFLICT (queue) DO NOTHING";

pub(super) const RESUME: &str = "\
-- resume
DELETE FROM SCHEMA.paused_queues p WHERE p.queue = $1";

pub(super) const PAUSED: &str = "\
-- paused: every queue that is paused
SELECT p.queue FROM SCHEMA.paused_queues p";

pub(super) const OLDEST_READY: &str = "\
-- oldest_ready: since when the first due job of every queue from $1 to $2 waits, by skipping from lane to lane
WITH RECURSIVE lane AS (
    (SELECT j.queue, j.kind, j.priority, j.run_at
     FROM SCHEMA.jobs j
     WHERE j.status IN ('queued', 'retrying') AND j.finished_at IS NULL AND j.queue >= $1 AND j.queue <= $2
     ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
     LIMIT 1)
    UNION ALL
    SELECT next.queue, next.kind, next.priority, next.run_at
    FROM lane l CROSS JOIN LATERAL (
        SELECT j.queue, j.kind, j.priority, j.run_at
        FROM SCHEMA.jobs j
        WHERE j.status IN ('queued', 'retrying') AND j.finished_at IS NULL
          AND (j.queue, j.kind, j.priority) > (l.queue, l.kind, l.priority) AND j.queue <= $2
        ORDER BY j.queue, j.kind, j.priority, j.run_at, j.id
        LIMIT 1
    ) next
)
SELECT l.queue, now(), min(l.run_at) FROM lane l WHERE l.run_at <= now() GROUP BY l.queue";

/// pause: the jobs of a queue are not claimed. The claim statement looks itself, so it binds at once.
pub(super) async fn pause(core: &Core, queue: QueueName) -> Result<(), StoreError> {
    core.query("pause", Effect::Repeatable, &core.sql.pause, &[&queue.as_str()]).await.map(drop)
}

/// resume: they are claimed again.
pub(super) async fn resume(core: &Core, queue: QueueName) -> Result<(), StoreError> {
    core.query("resume", Effect::Repeatable, &core.sql.resume, &[&queue.as_str()]).await?;
    core.notifier.notify();
    Ok(())
}

/// stats: jobs per queue and status from maintained counts, and how long the oldest due job of each queue has waited.
pub(super) async fn stats(core: &Core) -> Result<Stats, StoreError> {
    let mut retries = Retries::new("stats", Effect::Repeatable);
    let (stats, is_roll_up_due) = loop {
        match try_stats(core).await {
            Ok(answer) => break answer,
            Err(error) => retries.again(error).await?,
        }
    };
    if is_roll_up_due && let Err(error) = roll_up(core).await {
        tracing::debug!(?error, "counts are rolled up another time");
    }
    Ok(stats)
}

async fn try_stats(core: &Core) -> Result<(Stats, bool), DbError> {
    let connection = core.pool.get().await?;
    let work = async {
        let mut stats = Stats::default();
        let (counts, is_roll_up_due) = counts::counts(core, &connection).await?;
        for (queue, status, n) in counts {
            *stats.queues.entry(queue).or_default().counts.entry(status).or_default() += n;
        }
        // A queue with a due job has a count.
        if let (Some((first, _)), Some((last, _))) = (stats.queues.first_key_value(), stats.queues.last_key_value()) {
            let oldest = connection.prepare_cached(&core.sql.oldest_ready).await?;
            for row in connection.query(&oldest, &[&first.as_str(), &last.as_str()]).await? {
                // A manual edit can have put it before all time.
                let (now, since): (Timestamp, PgTimestamp) = (row.try_get(1)?, row.try_get(2)?);
                let queue = stats.queues.entry(row::queue(row.try_get(0)?)).or_default();
                queue.oldest_ready = Duration::try_from(now.duration_since(since.timestamp())).ok();
            }
        }
        let paused = connection.prepare_cached(&core.sql.paused).await?;
        for row in connection.query(&paused, &[]).await? {
            stats.queues.entry(row::queue(row.try_get(0)?)).or_default().paused = true;
        }
        Ok((stats, is_roll_up_due))
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}
