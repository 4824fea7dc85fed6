//! Queues: pause, resume, and the upkeep of their counts. Every transaction that moves jobs appends what it changed in the
//! counts; nobody waits for anybody. Now and then the oldest changes are added up. Nothing ever counts jobs; `stats` reads.

use tokio::time::timeout;

use super::core::Core;
use super::error::{DbError, Effect, Retries};
use crate::job::QueueName;
use crate::store::StoreError;

pub(super) const PAUSE: &str = "\
-- pause
INSERT INTO SCHEMA.paused_queues (queue, paused_at) VALUES ($1, now()) ON CONFLICT (queue) DO NOTHING";

pub(super) const RESUME: &str = "\
-- resume
DELETE FROM SCHEMA.paused_queues p WHERE p.queue = $1";

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
