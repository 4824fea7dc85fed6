//! pause, resume: queues as an operator sees them. How their jobs are counted is in `counts` and `stats`.

use super::core::Core;
use super::error::Effect;
use crate::job::QueueName;
use crate::store::StoreError;

pub(super) const PAUSE: &str = "\
-- pause
INSERT INTO SCHEMA.paused_queues (queue, paused_at) VALUES ($1, now()) ON CONFLICT (queue) DO NOTHING";

pub(super) const RESUME: &str = "\
-- resume
DELETE FROM SCHEMA.paused_queues p WHERE p.queue = $1";

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
