//! pause, resume, stats: queues as an operator sees them. A queue is a name; nothing declares it.

use std::time::Duration;

use rusqlite::Connection;

use super::inbox::{Urgency, Verb};
use super::lanes::{WaitingLane, ready_lanes};
use super::transaction::Tx;
use crate::job::QueueName;
use crate::store::{Pause, Resume, Stats};

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

/// From counts that are kept with every commit, in one snapshot.
pub(super) fn stats(connection: &Connection, now_micros: i64) -> rusqlite::Result<Stats> {
    let snapshot = connection.unchecked_transaction()?;
    let mut stats = Stats::default();
    let mut counts = snapshot.prepare_cached("SELECT queue, status, n FROM counts WHERE n > 0")?;
    let rows = counts.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?)))?;
    for row in rows {
        let (queue, status, n) = row?;
        if let (Ok(queue), Ok(status)) = (QueueName::new(queue), status.parse()) {
            stats.queues.entry(queue).or_default().counts.insert(status, n);
        }
    }
    for queue in paused_queues::<Vec<_>>(&snapshot)? {
        if let Ok(queue) = QueueName::new(queue) {
            stats.queues.entry(queue).or_default().paused = true;
        }
    }
    for WaitingLane { lane, head } in ready_lanes(&snapshot)? {
        let waited = now_micros - head.run_at;
        if let (Ok(queue), Ok(waited)) = (QueueName::new(&lane.queue), u64::try_from(waited)) {
            let oldest = &mut stats.queues.entry(queue).or_default().oldest_ready;
            *oldest = (*oldest).max(Some(Duration::from_micros(waited)));
        }
    }
    Ok(stats)
}
