//! What the databases themselves allow for the same contract: every insert, claim and settle is a synced commit, rows
//! are kept, and a settle counts only for a row that was claimed. No queue around it: no checks, no retries, no history
//! beyond the row, and a table with only the columns and the one index that this needs.

pub(crate) mod postgres;
pub(crate) mod sqlite;

/// Around 100 bytes, as `steadfast bench` uses.
pub(crate) fn payload(seq: usize) -> String {
    let text = "nothing is done with this text; it is here to weigh what a small job does";
    format!(r#"{{"text":"{text}","seq":{seq}}}"#)
}

/// What is done with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    /// Insert only.
    Insert,
    /// Insert → claim → settle.
    Life,
    /// Claim → settle of rows inserted before.
    Drain,
}
