//! Queues: pause, resume and stats. Every transaction that moves jobs appends what it changed in the counts; nobody waits
//! for anybody. Now and then the oldest changes are added up. Nothing ever counts jobs.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::core::Core;
use super::error::{DbError, Effect, Retries};
use super::{claim, row};
use crate::job::QueueName;
use crate::store::{Stats, StoreError};

pub(super) const PAUSE: &str = "\
-- pause
INSERT INTO SCHEMA.paused_queues (queue, paused_at) VALUES ($1, now()) ON CONFLICT (queue) DO NOTHING";

pub(super) const RESUME: &str = "\
-- resume
DELETE FROM SCHEMA.paused_queues p WHERE p.queue = $1";

pub(super) const PAUSED: &str = "\
-- paused: the time, and every queue that is paused
SELECT now(), p.queue FROM (SELECT) one LEFT JOIN SCHEMA.paused_queues p ON true";

pub(super) const STATS: &str = "\
-- stats: what was rolled up, plus what changed since
SELECT c.queue, c.status, sum(c.n)::bigint, sum(c.loose)::bigint
FROM (SELECT queue, status, n, 0 AS loose FROM SCHEMA.counts
      UNION ALL SELECT queue, status, delta, 1 FROM SCHEMA.count_deltas) c
GROUP BY c.queue, c.status";

pub(super) const ROLL_UP: &str = "\
-- roll_up: the oldest changes of the counts → counts
WITH oldest AS MATERIALIZED (
    SELECT d.seq FROM SCHEMA.count_deltas d ORDER BY d.seq LIMIT $1 FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM SCHEMA.count_deltas d USING oldest o WHERE d.seq = o.seq RETURNING d.queue, d.status, d.delta
),
added AS (
    INSERT INTO SCHEMA.counts AS c (queue, status, n)
    SELECT t.queue, t.status, sum(t.delta) FROM taken t GROUP BY t.queue, t.status ORDER BY t.queue, t.status
    ON CONFLICT (queue, status) DO UPDATE SET n = c.n + excluded.n
)
SELECT count(*) FROM taken";

/// 5,000 loose changes: beyond it adding them up costs more than rolling them up.
const LOOSE_MAX: i64 = 5_000;

/// 20,000 changes in one step: some tens of milliseconds.
const STEP: i64 = 20_000;

/// 8 steps in one go: more than all processes together append between two visits of one reaper.
const STEPS_MAX: usize = 8;

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
    let (stats, loose) = loop {
        match try_stats(core).await {
            Ok(answer) => break answer,
            Err(error) => retries.again(error).await?,
        }
    };
    if loose > LOOSE_MAX
        && let Err(error) = roll_up(core).await
    {
        tracing::debug!(?error, "counts are rolled up another time");
    }
    Ok(stats)
}

async fn try_stats(core: &Core) -> Result<(Stats, i64), DbError> {
    let connection = core.pool.get().await?;
    let work = async {
        let mut stats = Stats::default();
        let mut loose = 0;
        let counts = connection.prepare_cached(&core.sql.stats).await?;
        for row in connection.query(&counts, &[]).await? {
            let (queue, status) = (row::queue(row.try_get(0)?), row::status(row.try_get(1)?));
            let n: i64 = row.try_get(2)?;
            loose += row.try_get::<_, i64>(3)?;
            if n > 0 {
                *stats.queues.entry(queue).or_default().counts.entry(status).or_default() += n as u64;
            }
        }
        let paused = connection.prepare_cached(&core.sql.paused).await?;
        let mut now = None;
        for row in connection.query(&paused, &[]).await? {
            now = Some(row.try_get::<_, Timestamp>(0)?);
            if let Some(queue) = row.try_get::<_, Option<&str>>(1)? {
                stats.queues.entry(row::queue(queue)).or_default().paused = true;
            }
        }
        for lane in claim::lanes(core, &connection).await? {
            let since = lane.1.0.timestamp();
            let waited = now.map(|now| now.duration_since(since)).and_then(|waited| Duration::try_from(waited).ok());
            let queue = stats.queues.entry(row::queue(&lane.0.queue)).or_default();
            // A lane whose first job is not due yet has waited less than nothing.
            queue.oldest_ready = queue.oldest_ready.max(waited);
        }
        Ok((stats, loose))
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}

/// Adds the oldest changes up, a bounded number of them.
pub(super) async fn roll_up(core: &Core) -> Result<(), StoreError> {
    // Each step is a transaction that takes what it adds, so a second one adds something else.
    let mut retries = Retries::new("roll_up", Effect::Repeatable);
    for _ in 0..STEPS_MAX {
        match try_roll_up(core).await {
            Ok(taken) if taken < STEP => break,
            Ok(_) => (),
            Err(error) => retries.again(error).await?,
        }
    }
    Ok(())
}

async fn try_roll_up(core: &Core) -> Result<i64, DbError> {
    let connection = core.pool.get().await?;
    let work = async {
        let statement = connection.prepare_cached(&core.sql.roll_up).await?;
        Ok(connection.query_one(&statement, &[&STEP]).await?.try_get(0)?)
    };
    let answer = timeout(connection.timeout(), work).await;
    connection.finish(answer)
}
