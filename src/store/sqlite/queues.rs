//! pause, resume: queues as an operator sees them. A queue is a name; nothing declares it. `stats` counts their jobs.

use rusqlite::Connection;

use super::inbox::{Urgency, Verb};
use super::transaction::Tx;
use crate::store::{Pause, Resume};

impl Verb for Pause {
    type Answer = ();
    const NAME: &'static str = "pause";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.statement("INSERT INTO paused_queues (queue) VALUES (?1) ON CONFLICT DO NOTHING")?
            .execute([self.queue.as_str()])?;
        tx.set_paused(self.queue.as_str(), true);
        Ok(())
    }
}

impl Verb for Resume {
    type Answer = ();
    const NAME: &'static str = "resume";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        tx.statement("DELETE FROM paused_queues WHERE queue = ?1")?.execute([self.queue.as_str()])?;
        tx.set_paused(self.queue.as_str(), false);
        tx.make_ready();
        Ok(())
    }
}

pub(super) fn paused_queues<C: FromIterator<String>>(connection: &Connection) -> rusqlite::Result<C> {
    let mut statement = connection.prepare_cached("SELECT queue FROM paused_queues")?;
    statement.query_map([], |row| row.get(0))?.collect()
}
