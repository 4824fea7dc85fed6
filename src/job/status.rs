//! The six statuses of a job; it has exactly one at every moment.

use std::fmt;
use std::str::FromStr;

/// The status of a job. `docs/states.md` shows how one leads to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Waiting for its first start.
    Queued,
    /// Leased to a worker.
    Running,
    /// Waiting for another start.
    Retrying,
    /// Finished with success.
    Succeeded,
    /// The dead letter: no attempts left, or the handler failed permanently.
    FailedPermanent,
    /// Cancelled on request.
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Retrying, Self::Succeeded, Self::FailedPermanent, Self::Cancelled];

    /// The name used in the API, the database and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Succeeded => "succeeded",
            Self::FailedPermanent => "failed_permanent",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the job has finished; it runs again only by a redrive.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::FailedPermanent | Self::Cancelled)
    }

    /// Whether the job waits to be claimed.
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Queued | Self::Retrying)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not the name of a status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no status {0:?}: use queued, running, retrying, succeeded, failed_permanent or cancelled")]
pub struct NoSuchStatus(String);

impl FromStr for Status {
    type Err = NoSuchStatus;
    fn from_str(text: &str) -> Result<Self, NoSuchStatus> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| NoSuchStatus(text.chars().take(32).collect()))
    }
}
