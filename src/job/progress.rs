//! How far a running job has come.

use serde::{Deserialize, Serialize};

use super::limits::PROGRESS_MESSAGE_MAX_BYTES;
use super::outcome::cut;

/// A percentage, a message, or both, as the handler reported it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    percent: Option<u8>,
    message: Option<String>,
}

impl Progress {
    /// Percentages above 100 count as 100; messages are truncated at 1 KiB.
    pub fn new(percent: Option<u8>, message: Option<&str>) -> Self {
        Self {
            percent: percent.map(|p| p.min(100)),
            message: message.map(|text| cut(text, PROGRESS_MESSAGE_MAX_BYTES)),
        }
    }

    /// The percentage, 0 to 100.
    pub fn percent(&self) -> Option<u8> {
        self.percent
    }

    /// One line for people to read.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}
