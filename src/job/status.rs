//! The six places a job can be; it is in exactly one of them at every moment.

use std::fmt;
use std::str::FromStr;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Waiting for its first start.
    Queued,
    /// Leased to a worker.
    Running,
    /// Waiting for another start.
    Retrying,
    /// Done.
    Succeeded,
    /// The dead letter: attempts used up, or the handler said it is hopeless.
    FailedPermanent,
    /// Ended on request.
    Cancelled,
}

impl Status {
    /// All of them.
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

    /// Finished: it runs again only if a person asks.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::FailedPermanent | Self::Cancelled)
    }

    /// Waiting to be claimed.
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Queued | Self::Retrying)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// There is no such status.
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
