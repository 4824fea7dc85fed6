//! Where one job stands, for the verbs that an operator sends by id.

use rusqlite::OptionalExtension;

use super::row::UuidBlob;
use super::transaction::Tx;
use crate::job::{JobId, QueueName, Status};

pub(super) struct Standing {
    pub(super) seq: i64,
    pub(super) queue: QueueName,
    pub(super) status: Status,
    /// It has been started at least once since it was queued.
    pub(super) has_attempt: bool,
}

pub(super) fn standing(tx: &Tx<'_>, id: JobId) -> rusqlite::Result<Option<Standing>> {
    tx.statement("SELECT seq, queue, status, lease_token IS NOT NULL FROM jobs WHERE id = ?1")?
        .query_row([UuidBlob::from(id)], |row| {
            let (queue, status): (String, String) = (row.get(1)?, row.get(2)?);
            Ok(Standing {
                seq: row.get(0)?,
                queue: QueueName::new(queue).unwrap_or_else(|_| QueueName::unknown()),
                // The table's CHECK allows no other text.
                status: status.parse().map_err(|_| rusqlite::Error::InvalidQuery)?,
                has_attempt: row.get(3)?,
            })
        })
        .optional()
}
