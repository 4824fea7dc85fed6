//! The audit: who did what to what. See [`AuditStore`].
//!
//! Every operator's verb writes its row itself, in the transaction of the act; there is no verb that writes one, and none
//! that changes one. What is written is in `audit_entry`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::StoreError;
use super::sealed::Sealed;
use crate::job::limits::{BATCH_MAX, PAGE_MAX};

/// Verbs on the audit.
#[async_trait]
pub trait AuditStore: Sealed {
    /// Lists what operators did, newest first. Scans a bounded number of rows; see [`AuditPage::next`].
    async fn audit(&self, list: ListAudit) -> Result<AuditPage, StoreError>;

    /// Deletes the oldest rows that were kept long enough, a bounded number; answers how many.
    async fn prune_audit(&self, prune: PruneAudit) -> Result<usize, StoreError>;
}

/// One act of an operator.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AuditRecord {
    /// Names the row.
    pub seq: i64,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The public id of the API token; `None` without a token, and for the token of the server's settings.
    pub token_id: Option<String>,
    /// The name of the token. `library`: a program that embeds the queue; `settings file`: the server at its start;
    /// `anyone`: a server without tokens.
    pub token_name: String,
    /// The id of the HTTP request, as in the response and in the log.
    pub request_id: Option<String>,
    /// The client's address.
    pub remote: Option<String>,
    /// The verb of the store, as in metrics.
    pub action: String,
    /// What it was done to: `job:<id>`, `jobs`, `queue:<name>`, `group:<queue>/<key>`, `kind:<name>`, `token:<id>`,
    /// `schedule:<name>`, `schedules`.
    pub target: String,
    /// The settings before, or jobs by status. Never payloads or secrets.
    pub before: Option<Value>,
    /// The same, after it.
    pub after: Option<Value>,
    /// How many things were changed.
    pub count: u64,
    /// What the operator said about it.
    pub reason: Option<String>,
    /// What else there is to know: of a batch, the first 20 ids.
    pub detail: Option<Value>,
}

impl AuditRecord {
    /// Where a list goes on behind this row.
    pub fn cursor(&self) -> AuditCursor {
        AuditCursor { at: self.at, seq: self.seq }
    }
}

/// A place in the audit, between two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditCursor {
    pub(crate) at: Timestamp,
    pub(crate) seq: i64,
}

impl AuditCursor {
    /// Behind every row that there can be.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) const NEWEST: Self = Self { at: Timestamp::MAX, seq: i64::MAX };

    /// Behind the rows of this time: only those before it follow.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn before(at: Timestamp) -> Self {
        Self { at, seq: 0 }
    }
}

impl fmt::Display for AuditCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at.as_microsecond(), self.seq)
    }
}

/// The text is not a place in the audit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of the audit")]
pub struct NotAnAuditCursor;

impl FromStr for AuditCursor {
    type Err = NotAnAuditCursor;
    fn from_str(text: &str) -> Result<Self, NotAnAuditCursor> {
        let (at, seq) = text.split_once('-').ok_or(NotAnAuditCursor)?;
        let micros = at.parse::<u64>().ok().and_then(|micros| i64::try_from(micros).ok()).ok_or(NotAnAuditCursor)?;
        let at = Timestamp::from_microsecond(micros).map_err(|_| NotAnAuditCursor)?;
        let seq = seq.parse::<u64>().ok().and_then(|seq| i64::try_from(seq).ok()).ok_or(NotAnAuditCursor)?;
        Ok(Self { at, seq })
    }
}

/// Request of [`audit`](AuditStore::audit): filters and the page.
///
/// ```
/// use steadfast::store::ListAudit;
///
/// let redrives_of_ops = ListAudit::new().action("redrive").token("ops").limit(50);
/// # let _ = redrives_of_ops;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListAudit {
    /// Only this verb.
    pub action: Option<String>,
    /// Only by the token with this id or name.
    pub token: Option<String>,
    /// Only what was done to this.
    pub target: Option<String>,
    /// Only at this time or later.
    pub since: Option<Timestamp>,
    /// Only before this time.
    pub before: Option<Timestamp>,
    /// Continue here; see [`AuditPage::next`].
    pub after: Option<AuditCursor>,
    /// At most this many rows.
    pub limit: usize,
}

impl Default for ListAudit {
    fn default() -> Self {
        Self::new()
    }
}

impl ListAudit {
    /// Everything, from the newest, a page of 200.
    pub fn new() -> Self {
        Self { action: None, token: None, target: None, since: None, before: None, after: None, limit: PAGE_MAX }
    }

    /// Lists only this verb.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// Lists only what was done by the token with this id or name.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Lists only what was done to this.
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Lists only what was done at this time or later.
    pub fn since(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.since = time.into();
        self
    }

    /// Lists only what was done before this time.
    pub fn before(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.before = time.into();
        self
    }

    /// Continues at a cursor; see [`AuditPage::next`].
    pub fn after(mut self, cursor: impl Into<Option<AuditCursor>>) -> Self {
        self.after = cursor.into();
        self
    }

    /// Lists at most this many rows.
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// Where it begins.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn start(&self) -> AuditCursor {
        let before = self.before.map(AuditCursor::before);
        let places = self.after.into_iter().chain(before);
        places.min_by_key(|place| (place.at, place.seq)).unwrap_or(AuditCursor::NEWEST)
    }

    /// The earliest time that is listed.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn earliest(&self) -> Timestamp {
        // No row is older than 1970, and PostgreSQL knows no time that is much older than its calendar.
        self.since.unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH)
    }

    /// How many rows are looked at: without filters that no index knows, each is one that is asked for.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn look_at(&self, limit: usize) -> usize {
        if self.action.is_none() && self.token.is_none() { limit + 1 } else { LOOK_MAX.max(limit + 1) }
    }
}

/// 5,000 rows: some milliseconds, whatever the filters.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const LOOK_MAX: usize = 5_000;

/// Answer of [`audit`](AuditStore::audit): one page.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AuditPage {
    /// Newest first.
    pub records: Vec<AuditRecord>,
    /// The cursor of the next page. A page can be short, even empty, and have a next one: a call scans a bounded number of
    /// rows.
    pub next: Option<AuditCursor>,
}

impl AuditPage {
    /// A page of at most `limit`, of rows of which one more was read; `looked_until`: the last row that was looked at, if
    /// there may be others behind it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn of(mut records: Vec<AuditRecord>, limit: usize, looked_until: Option<AuditCursor>) -> Self {
        let has_more = records.len() > limit;
        records.truncate(limit);
        let next = if has_more { records.last().map(AuditRecord::cursor) } else { looked_until };
        Self { records, next }
    }
}

/// Request of [`prune_audit`](AuditStore::prune_audit).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PruneAudit {
    /// How long rows are kept.
    pub keep: Duration,
    /// Delete at most this many.
    pub limit: usize,
}

impl PruneAudit {
    /// Keeps rows this long; deletes at most 1,000.
    pub fn keeping(time: Duration) -> Self {
        Self { keep: time, limit: BATCH_MAX }
    }

    /// Deletes at most this many.
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_one() {
        let cursor = AuditCursor { at: "2030-01-01T00:00:00.123456Z".parse().unwrap(), seq: 42 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "-", "1", "-1-2", "1-", "1--2", "x-1", "99999999999999999999-1", "1-2-3", "1-+2 "] {
            assert_eq!(text.parse::<AuditCursor>(), Err(NotAnAuditCursor), "{text:?}");
        }
    }
}
