//! extend: running → running, for leases whose token still matches.

use rusqlite::{OptionalExtension, params};

use super::inbox::{Urgency, Verb};
use super::lease::claim_nonce;
use super::row::UuidBlob;
use super::transaction::Tx;
use crate::store::{Beat, Extend, Extended};

impl Verb for Extend {
    type Answer = Vec<Extended>;
    const NAME: &'static str = "extend";
    const URGENCY: Urgency = Urgency::Urgent;

    fn weight(&self) -> usize {
        self.beats.len()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<Extended>> {
        let lease_ms = self.lease.map(|lease| lease.as_millis() as i64);
        self.beats.iter().map(|beat| extend(tx, beat, lease_ms)).collect()
    }

    fn needs_sync(&self) -> bool {
        // A heartbeat forgotten in a power cut only makes the lease end sooner.
        false
    }
}

fn extend(tx: &Tx<'_>, beat: &Beat, lease_ms: Option<i64>) -> rusqlite::Result<Extended> {
    let progress = beat.progress.as_ref().and_then(|progress| serde_json::to_string(progress).ok());
    let cancel_requested = tx
        .statement(include_str!("extend.sql"))?
        .query_row(
            params![UuidBlob::from(beat.lease.job_id), claim_nonce(beat.lease), tx.now_micros(), lease_ms, progress],
            |row| row.get(0),
        )
        .optional()?;
    Ok(match cancel_requested {
        Some(false) => Extended::Ok,
        Some(true) => Extended::Cancel,
        None => Extended::Lost,
    })
}
