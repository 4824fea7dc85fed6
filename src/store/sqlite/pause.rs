//! pause, resume: whether jobs of a queue may be claimed.

use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::job::QueueName;

pub(super) struct Pause(pub(super) QueueName);
pub(super) struct Resume(pub(super) QueueName);

impl Verb for Pause {
    type Answer = ();
    const NAME: &'static str = "pause";
    const LANE: Lane = Lane::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.statement("INSERT INTO paused_queues (queue) VALUES (?1) ON CONFLICT DO NOTHING")?
            .execute([self.0.as_str()])?;
        Ok(())
    }
}

impl Verb for Resume {
    type Answer = ();
    const NAME: &'static str = "resume";
    const LANE: Lane = Lane::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.statement("DELETE FROM paused_queues WHERE queue = ?1")?.execute([self.0.as_str()])?;
        tx.make_ready();
        Ok(())
    }
}
