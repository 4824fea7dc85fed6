//! pause, resume: queues as an operator sees them. How their jobs are counted is in `counts` and `stats`.

use super::audit::actor_params;
use super::core::Core;
use super::error::Effect;
use crate::job::QueueName;
use crate::store::audit_entry::ActorColumns;
use crate::store::{Actor, Pause, Resume, StoreError};

pub(super) const PAUSE: &str = "\
-- pause
WITH paused AS (
    INSERT INTO SCHEMA.paused_queues (queue, paused_at) VALUES ($1, now()) ON CONFLICT (queue) DO NOTHING
    RETURNING queue
)
AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count)
SELECT now(), $2::text, $3::text, $4::text, $5::text, 'pause', 'queue:' || p.queue, '{\"paused\":false}',
       '{\"paused\":true}', 1
FROM paused p";

pub(super) const RESUME: &str = "\
-- resume
WITH resumed AS (DELETE FROM SCHEMA.paused_queues p WHERE p.queue = $1 RETURNING p.queue)
AUDIT_INTO (at, token_id, token_name, request_id, remote, action, target, before, after, count)
SELECT now(), $2::text, $3::text, $4::text, $5::text, 'resume', 'queue:' || r.queue, '{\"paused\":true}',
       '{\"paused\":false}', 1
FROM resumed r";

/// pause: the jobs of a queue are not claimed. The claim statement looks itself, so it binds at once.
pub(super) async fn pause(core: &Core, pause: Pause) -> Result<(), StoreError> {
    switch(core, "pause", &core.sql.pause, &pause.queue, pause.by.as_ref()).await
}

/// resume: they are claimed again.
pub(super) async fn resume(core: &Core, resume: Resume) -> Result<(), StoreError> {
    switch(core, "resume", &core.sql.resume, &resume.queue, resume.by.as_ref()).await?;
    core.jobs_may_start();
    Ok(())
}

async fn switch(
    core: &Core,
    verb: &'static str,
    sql: &str,
    queue: &QueueName,
    by: Option<&Actor>,
) -> Result<(), StoreError> {
    let by = ActorColumns::of(by);
    let [token_id, token_name, request_id, remote] = actor_params(&by);
    let params = [&queue.as_str(), token_id, token_name, request_id, remote];
    core.query(verb, Effect::Repeatable, sql, &params).await.map(drop)
}
