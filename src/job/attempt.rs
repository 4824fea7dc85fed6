//! The history of a job: one record per attempt, in the order of starts.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use super::WorkerId;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The handler finished its work.
    Succeeded,
    /// The handler reported an error, or panicked, or could not read its payload.
    Failed,
    /// `timeout_ms` passed.
    TimedOut,
    /// The lease expired: no heartbeat came in time.
    LeaseExpired,
    /// The worker returned the job unfinished, as at shutdown; does not count.
    Released,
    /// The handler asked to be started later; does not count.
    Snoozed,
    /// The handler stopped because cancellation was requested.
    Cancelled,
}

impl AttemptOutcome {
    const ALL: [Self; 7] = [
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::LeaseExpired,
        Self::Released,
        Self::Snoozed,
        Self::Cancelled,
    ];

    /// The name used in the API and the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::LeaseExpired => "lease_expired",
            Self::Released => "released",
            Self::Snoozed => "snoozed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the attempt does not count: the job's `attempts` went down again.
    pub const fn is_given_back(self) -> bool {
        matches!(self, Self::Released | Self::Snoozed)
    }

    /// Whether the attempt left an error, which is then the job's `last_error`.
    pub const fn has_error(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut | Self::LeaseExpired)
    }
}

impl fmt::Display for AttemptOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not the name of an attempt outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no attempt outcome {0:?}")]
pub struct NoSuchOutcome(String);

impl FromStr for AttemptOutcome {
    type Err = NoSuchOutcome;
    fn from_str(text: &str) -> Result<Self, NoSuchOutcome> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
            .ok_or_else(|| NoSuchOutcome(text.chars().take(32).collect()))
    }
}

/// One attempt of a job, as recorded in its history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// The attempt's number, from 1; numbers repeat after a release, a snooze or a redrive.
    pub attempt: u32,
    /// The worker that ran it.
    pub worker: WorkerId,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When it ended; `None` while it runs.
    pub ended_at: Option<Timestamp>,
    /// How it ended; `None` while it runs.
    pub outcome: Option<AttemptOutcome>,
    /// The error of an attempt that failed.
    pub error: Option<String>,
}
