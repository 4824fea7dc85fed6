//! Logs failed attempts: a WARN line, or an ERROR line if the job became a dead letter. Called where the failure was
//! recorded, so that each is logged once, whether a worker reported it, its lease expired or it could not be started.

use crate::job::{AttemptOutcome, JobId, Kind, Status};

/// 500 characters of the error: the job keeps the rest.
const ERROR_MAX_CHARS: usize = 500;

/// A failed attempt, as it is logged.
#[derive(Debug, Clone)]
pub(crate) struct FailedAttempt {
    pub(crate) job_id: JobId,
    pub(crate) kind: Kind,
    pub(crate) attempt: u32,
    pub(crate) recorded: AttemptOutcome,
    /// The job's new status.
    pub(crate) to: Status,
    /// What may be logged of it.
    pub(crate) error: String,
}

impl FailedAttempt {
    pub(crate) fn log(&self) {
        let Self { job_id, kind, attempt, recorded, to, error } = self;
        let error = one_line(error);
        match to {
            Status::FailedPermanent => tracing::error!(
                %job_id, %kind, attempt, outcome = %recorded, error, "an attempt failed, and the job is a dead letter"
            ),
            _ => tracing::warn!(%job_id, %kind, attempt, outcome = %recorded, %to, error, "an attempt failed"),
        }
    }
}

/// A waiting job that a claim could not start (its row cannot be read, or no attempt is left) and made a dead letter. As
/// text: what cannot be run may be damaged in any part.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Debug, Clone)]
pub(crate) struct UnrunnableJob {
    pub(crate) job_id: String,
    pub(crate) kind: String,
    /// Attempts that were made before.
    pub(crate) attempts: i64,
    pub(crate) error: String,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl UnrunnableJob {
    /// Once the dead letter is committed.
    pub(crate) fn log(&self) {
        let Self { job_id, kind, attempts, error } = self;
        let (kind, error) = (one_line(kind), one_line(error));
        tracing::error!(job_id, kind, attempt = attempts, error, "a job cannot be run, and is a dead letter");
    }
}

/// Control characters replaced, so that the text of a handler cannot forge a log line.
fn one_line(error: &str) -> String {
    let mut chars = error.chars();
    let mut line: String = chars.by_ref().take(ERROR_MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        assert_eq!(one_line("a\r\nERROR forged\u{1b}[2J"), "a  ERROR forged [2J");
        assert_eq!(one_line(&"é".repeat(500)), "é".repeat(500));
        assert_eq!(one_line(&"é".repeat(501)), format!("{}…", "é".repeat(500)));
    }
}
