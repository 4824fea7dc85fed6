//! pause and resume: whether jobs of a queue are claimed. The claim statement looks itself, so it binds at once.

use super::ask::ask;
use super::core::Core;
use super::error::Effect;
use crate::job::QueueName;
use crate::store::StoreError;

pub(super) async fn pause(core: &Core, queue: QueueName) -> Result<(), StoreError> {
    ask(core, "pause", Effect::Repeatable, &core.sql.pause, &[&queue.as_str()]).await.map(drop)
}

pub(super) async fn resume(core: &Core, queue: QueueName) -> Result<(), StoreError> {
    ask(core, "resume", Effect::Repeatable, &core.sql.resume, &[&queue.as_str()]).await?;
    core.bell.ring();
    Ok(())
}
