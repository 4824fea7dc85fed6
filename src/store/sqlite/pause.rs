//! pause, resume: whether jobs of a queue may be claimed.

use super::transaction::Tx;
use super::writer::{Lane, Verb};
use crate::store::{Pause, Resume};

impl Verb for Pause {
    type Answer = ();
    const NAME: &'static str = "pause";
    const LANE: Lane = Lane::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.statement("INSERT INTO paused_queues (queue) VALUES (?1) ON CONFLICT DO NOTHING")?
            .execute([self.queue.as_str()])?;
        Ok(())
    }
}

impl Verb for Resume {
    type Answer = ();
    const NAME: &'static str = "resume";
    const LANE: Lane = Lane::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.statement("DELETE FROM paused_queues WHERE queue = ?1")?.execute([self.queue.as_str()])?;
        tx.make_ready();
        Ok(())
    }
}
