//! pause, resume: queues as an operator sees them. A queue is a name; nothing declares it. `stats` counts their jobs.

use rusqlite::Connection;
use serde_json::json;

use super::audit;
use super::inbox::{Urgency, Verb};
use super::transaction::Tx;
use crate::job::QueueName;
use crate::store::audit_entry::AuditEntry;
use crate::store::{Actor, Pause, Resume};

impl Verb for Pause {
    type Answer = ();
    const NAME: &'static str = "pause";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        let sql = "INSERT INTO paused_queues (queue) VALUES (?1) ON CONFLICT DO NOTHING";
        let changed = tx.statement(sql)?.execute([self.queue.as_str()])?;
        tx.set_paused(self.queue.as_str(), true);
        if changed > 0 {
            record(tx, Self::NAME, &self.queue, self.by.as_ref(), true)?;
        }
        Ok(())
    }
}

impl Verb for Resume {
    type Answer = ();
    const NAME: &'static str = "resume";
    const URGENCY: Urgency = Urgency::Urgent;

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        let changed = tx.statement("DELETE FROM paused_queues WHERE queue = ?1")?.execute([self.queue.as_str()])?;
        tx.set_paused(self.queue.as_str(), false);
        tx.make_ready();
        if changed > 0 {
            record(tx, Self::NAME, &self.queue, self.by.as_ref(), false)?;
        }
        Ok(())
    }
}

fn record(
    tx: &Tx<'_>,
    action: &'static str,
    queue: &QueueName,
    by: Option<&Actor>,
    paused: bool,
) -> rusqlite::Result<()> {
    let shown = |paused: bool| Some(json!({"paused": paused}));
    let entry = AuditEntry::new(action, format!("queue:{queue}"), by);
    audit::record(tx, &entry.before(shown(!paused)).after(shown(paused)))
}

pub(super) fn paused_queues<C: FromIterator<String>>(connection: &Connection) -> rusqlite::Result<C> {
    let mut statement = connection.prepare_cached("SELECT queue FROM paused_queues")?;
    statement.query_map([], |row| row.get(0))?.collect()
}
