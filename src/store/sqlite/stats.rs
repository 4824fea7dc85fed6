//! stats: jobs per queue and status, from counts kept with every commit.

use std::time::Duration;

use rusqlite::Connection;

use super::lanes::ready_lanes;
use crate::job::QueueName;
use crate::store::Stats;

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
    let mut paused = snapshot.prepare_cached("SELECT queue FROM paused_queues")?;
    for queue in paused.query_map([], |row| row.get::<_, String>(0))? {
        if let Ok(queue) = QueueName::new(queue?) {
            stats.queues.entry(queue).or_default().paused = true;
        }
    }
    for lane in ready_lanes(&snapshot)? {
        let waited = now_micros - lane.oldest_run_at;
        if let (Ok(queue), Ok(waited)) = (QueueName::new(&lane.queue), u64::try_from(waited)) {
            let oldest = &mut stats.queues.entry(queue).or_default().oldest_ready;
            *oldest = (*oldest).max(Some(Duration::from_micros(waited)));
        }
    }
    Ok(stats)
}
