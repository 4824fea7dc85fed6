//! Groups of errors: dead letters by cause, how many there are, and which of them operators want to hear nothing of. See
//! [`ErrorStore`].
//!
//! A job gets its group in the transaction in which it dies, by settle, reap or claim, and loses it with a redrive, a delete
//! or a prune. What makes a group is [`ErrorGroup`](crate::job::ErrorGroup).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::actor::operator_request;
use super::sealed::Sealed;
use super::{Actor, NotACursor, StoreError};
use crate::job::limits::PAGE_DEFAULT;
use crate::job::{AttemptOutcome, Fingerprint, JobId, Kind, QueueName};

/// Verbs on groups of errors.
#[async_trait]
pub trait ErrorStore: Sealed {
    /// Lists groups, those seen last first.
    async fn errors(&self, list: ListErrors) -> Result<ErrorPage, StoreError>;

    /// Reads one group; `None` if there is none of this fingerprint.
    async fn error_group(&self, fingerprint: Fingerprint) -> Result<Option<ErrorRecord>, StoreError>;

    /// Marks a group as known until a time, and answers it; `None` if there is none of this fingerprint. Its dead letters are
    /// counted as before.
    async fn snooze_errors(&self, snooze: SnoozeErrors) -> Result<Option<ErrorRecord>, StoreError>;

    /// Ends the snooze of a group; `false` if it was not snoozed.
    async fn unsnooze_errors(&self, unsnooze: UnsnoozeErrors) -> Result<bool, StoreError>;
}

/// Request of [`errors`](ErrorStore::errors): which groups, and the page.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListErrors {
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only those with dead letters in this queue, now or before; and only these are counted.
    pub queue: Option<QueueName>,
    /// Only those seen at or after this time.
    pub since: Option<Timestamp>,
    /// Only those that have dead letters now, or only those that have none.
    pub dead: Option<bool>,
    /// Only those that are snoozed, or only those that are not.
    pub snoozed: Option<bool>,
    /// Only those behind this one: the cursor, from [`ErrorPage::next`].
    pub after: Option<ErrorCursor>,
    /// At most this many, up to 200.
    pub limit: usize,
}

impl Default for ListErrors {
    fn default() -> Self {
        Self { kind: None, queue: None, since: None, dead: None, snoozed: None, after: None, limit: PAGE_DEFAULT }
    }
}

impl ListErrors {
    /// The first page of 50, of all groups.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only groups of this kind.
    pub fn kind(mut self, kind: impl Into<Option<Kind>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Only groups in this queue, and only what is in it is counted.
    pub fn queue(mut self, queue: impl Into<Option<QueueName>>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Only groups seen at or after this time.
    pub fn since(mut self, time: impl Into<Option<Timestamp>>) -> Self {
        self.since = time.into();
        self
    }

    /// Only groups that have dead letters now, or only those that have none.
    pub fn dead(mut self, dead: impl Into<Option<bool>>) -> Self {
        self.dead = dead.into();
        self
    }

    /// Only groups that are snoozed, or only those that are not.
    pub fn snoozed(mut self, snoozed: impl Into<Option<bool>>) -> Self {
        self.snoozed = snoozed.into();
        self
    }

    /// Continues at a cursor; see [`ErrorPage::next`].
    pub fn after(mut self, cursor: impl Into<Option<ErrorCursor>>) -> Self {
        self.after = cursor.into();
        self
    }

    /// Answers with at most this many groups.
    pub fn limit(mut self, groups: usize) -> Self {
        self.limit = groups;
        self
    }
}

/// Where a page of groups ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCursor {
    pub(crate) last_seen: Timestamp,
    pub(crate) fingerprint: Fingerprint,
}

impl fmt::Display for ErrorCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.last_seen.as_microsecond(), self.fingerprint)
    }
}

impl FromStr for ErrorCursor {
    type Err = NotACursor;
    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let (micros, fingerprint) = text.split_once('.').ok_or(NotACursor)?;
        let last_seen = Timestamp::from_microsecond(micros.parse().map_err(|_| NotACursor)?).map_err(|_| NotACursor)?;
        Ok(Self { last_seen, fingerprint: fingerprint.parse().map_err(|_| NotACursor)? })
    }
}

/// Answer of [`errors`](ErrorStore::errors).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ErrorPage {
    /// Those seen last first.
    pub groups: Vec<ErrorRecord>,
    /// The cursor of the next page; `None`: this is the last.
    pub next: Option<ErrorCursor>,
}

/// A group of errors: dead letters of one kind with one cause.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ErrorRecord {
    /// Names it.
    pub fingerprint: Fingerprint,
    /// The kind of its jobs.
    pub kind: Kind,
    /// How their last attempt ended.
    pub outcome: AttemptOutcome,
    /// The pattern of the error, or the name that the handler gave it.
    pub title: String,
    /// Dead letters there are now.
    pub dead: u64,
    /// Dead letters there were in all.
    pub total: u64,
    /// When the first of them died.
    pub first_seen: Timestamp,
    /// When the newest of them died.
    pub last_seen: Timestamp,
    /// The newest of them, as long as nobody deletes it.
    pub sample_job: Option<JobId>,
    /// The same by queue, those with the most dead letters first.
    pub queues: Vec<ErrorQueue>,
    /// Set while it is snoozed.
    pub snoozed: Option<Snoozed>,
}

/// What a group of errors has in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorQueue {
    /// The queue.
    pub queue: QueueName,
    /// Dead letters there are now.
    pub dead: u64,
    /// Dead letters there were in all.
    pub total: u64,
}

/// Who wants to hear nothing of a group, until when, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snoozed {
    /// Until then.
    pub until: Timestamp,
    /// Why, in the operator's words.
    pub note: Option<String>,
    /// The name of the token of whoever said so.
    pub by: Option<String>,
    /// When it was said.
    pub at: Timestamp,
}

/// Request of [`snooze_errors`](ErrorStore::snooze_errors).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SnoozeErrors {
    /// The group.
    pub fingerprint: Fingerprint,
    /// When it ends.
    pub end: SnoozeEnd,
    /// Why; validated by the caller.
    pub note: Option<String>,
    /// On whose behalf.
    pub by: Option<Actor>,
}

impl SnoozeErrors {
    /// Snoozes a group.
    pub fn new(fingerprint: Fingerprint, end: SnoozeEnd) -> Self {
        Self { fingerprint, end, note: None, by: None }
    }

    /// Says why.
    pub fn note(mut self, note: impl Into<Option<String>>) -> Self {
        self.note = note.into();
        self
    }

    /// Sets on whose behalf.
    pub fn by(mut self, actor: Option<Actor>) -> Self {
        self.by = actor;
        self
    }
}

/// When a snooze ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnoozeEnd {
    /// So long after now, by the store's clock.
    After(Duration),
    /// At this time.
    At(Timestamp),
}

operator_request! {
    /// Request of [`unsnooze_errors`](ErrorStore::unsnooze_errors).
    UnsnoozeErrors {
        /// The group.
        fingerprint: Fingerprint
    }
    /// Ends the snooze of this group.
    new(fingerprint: Fingerprint) -> fingerprint;
}

/// One row of the counts, or one change of them.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) struct ErrorPart {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    /// Not of changes that take away.
    pub(crate) seen: Option<ErrorSeen>,
    pub(crate) dead: i64,
    pub(crate) total: i64,
    pub(crate) snoozed: Option<Snoozed>,
}

/// What is known of a group from its dead letters.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) struct ErrorSeen {
    pub(crate) outcome: AttemptOutcome,
    pub(crate) title: String,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    pub(crate) job: Option<JobId>,
}

/// Adds up the parts of each group. Those of one group stand together.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn added_up(parts: Vec<ErrorPart>) -> Vec<ErrorRecord> {
    parts.chunk_by(|a, b| a.fingerprint == b.fingerprint).filter_map(group_of).collect()
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn group_of(parts: &[ErrorPart]) -> Option<ErrorRecord> {
    let seen = || parts.iter().filter_map(|part| part.seen.as_ref());
    let newest = seen().max_by_key(|seen| seen.last)?;
    let mut queues: std::collections::BTreeMap<&QueueName, (i64, i64)> = std::collections::BTreeMap::new();
    for part in parts {
        let (dead, total) = queues.entry(&part.queue).or_default();
        (*dead, *total) = (*dead + part.dead, *total + part.total);
    }
    let counted = |n: i64| n.max(0) as u64;
    let of_queue = |(queue, (dead, total)): (&QueueName, (i64, i64))| ErrorQueue {
        queue: queue.clone(),
        dead: counted(dead),
        total: counted(total),
    };
    let mut queues: Vec<ErrorQueue> = queues.into_iter().map(of_queue).collect();
    queues.sort_by_key(|queue| std::cmp::Reverse(queue.dead));
    Some(ErrorRecord {
        fingerprint: parts[0].fingerprint,
        kind: parts[0].kind.clone(),
        outcome: newest.outcome,
        title: newest.title.clone(),
        dead: queues.iter().map(|queue| queue.dead).sum(),
        total: queues.iter().map(|queue| queue.total).sum(),
        first_seen: seen().map(|seen| seen.first).min().unwrap_or(newest.first),
        last_seen: newest.last,
        sample_job: newest.job,
        queues,
        snoozed: parts[0].snoozed.clone(),
    })
}

/// A page of groups, of which one more than the limit was read.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn error_page(parts: Vec<ErrorPart>, limit: usize) -> ErrorPage {
    let mut groups = added_up(parts);
    let more = groups.len() > limit;
    groups.truncate(limit);
    let cursor = |group: &ErrorRecord| ErrorCursor { last_seen: group.last_seen, fingerprint: group.fingerprint };
    let next = groups.last().filter(|_| more).map(cursor);
    ErrorPage { groups, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        let cursor =
            ErrorCursor { last_seen: Timestamp::from_microsecond(12).unwrap(), fingerprint: Fingerprint::from_i64(-1) };
        assert_eq!(cursor.to_string(), "12.ffffffffffffffff");
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "12", "x.ffffffffffffffff", "12.f", "99999999999999999999.ffffffffffffffff"] {
            assert_eq!(text.parse::<ErrorCursor>(), Err(NotACursor), "{text}");
        }
    }
}
