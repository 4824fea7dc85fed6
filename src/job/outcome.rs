//! What a worker reports when an attempt has ended.

use std::time::Duration;

use super::fingerprint::group_name;
use super::limits::{ERROR_MAX_BYTES, RESULT_MAX_BYTES, SCHEDULE_HORIZON};
use super::{AttemptOutcome, Json};

/// The outcome of an attempt, as its worker reports it. [`decide`](super::decide()) turns it into the job's next status.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The work is done. Make it with [`Outcome::succeeded`], which checks the size of the result.
    Succeeded(Option<Json>),
    /// The work failed.
    Failed(Failure),
    /// The attempt ran past the job's `timeout_ms`.
    TimedOut(ErrorText),
    /// The handler stopped because cancellation was requested.
    Cancelled,
    /// Returned unfinished: back to the queue at once; the attempt does not count.
    Released,
    /// To be started again after this long; the attempt does not count.
    Snoozed(Duration),
}

/// Why an attempt failed, and whether to retry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The error, which becomes the job's `last_error`.
    pub error: ErrorText,
    /// Not to be retried.
    pub permanent: bool,
    /// Retry after exactly this long, instead of by the kind's retry policy.
    pub retry_after: Option<Duration>,
    /// Retry by the kind's retry policy, but not before this long. `retry_after` wins over it.
    pub no_sooner_than: Option<Duration>,
    /// What dead letters with this error are grouped by, instead of its text. See [`Failure::group`].
    pub group: Option<String>,
}

impl Failure {
    /// A failure, retried by the kind's policy while attempts are left.
    pub fn new(error: impl AsRef<str>) -> Self {
        Self { error: ErrorText::new(error), permanent: false, retry_after: None, no_sooner_than: None, group: None }
    }

    /// Not to be retried: the job becomes a dead letter.
    pub fn permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// To be retried after exactly this long.
    pub fn retry_after(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.retry_after = wait.into();
        self
    }

    /// To be retried by the kind's policy, but not before this long: what the other side asked for is a floor.
    pub fn no_sooner_than(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.no_sooner_than = wait.into();
        self
    }

    /// Names the group of errors that this belongs to, instead of finding it by the text; cut at 64 characters.
    pub fn group(mut self, name: impl AsRef<str>) -> Self {
        self.group = group_name(name.as_ref());
        self
    }
}

impl Outcome {
    /// Success; a result over 256 KiB is recorded as a permanent failure that says so, because running the job
    /// again would only produce it again.
    pub fn succeeded(result: Option<Json>) -> Self {
        match result {
            Some(json) if json.as_str().len() > RESULT_MAX_BYTES => {
                let bytes = json.as_str().len();
                Self::failed_permanently(format!(
                    "the job did its work, but its result is {bytes} bytes and the limit is {RESULT_MAX_BYTES}: \
                     store large results elsewhere and return where they are"
                ))
            }
            other => Self::Succeeded(other),
        }
    }

    /// A failure, retried by the kind's policy while attempts are left.
    pub fn failed(error: impl AsRef<str>) -> Self {
        Self::Failed(Failure::new(error))
    }

    /// A failure that is not retried: the job becomes a dead letter.
    pub fn failed_permanently(error: impl AsRef<str>) -> Self {
        Self::Failed(Failure::new(error).permanent())
    }

    /// Start again after `delay`, at most five years.
    pub fn snoozed(delay: Duration) -> Self {
        Self::Snoozed(delay.min(SCHEDULE_HORIZON))
    }

    /// What the attempt's record says.
    pub fn recorded_as(&self) -> AttemptOutcome {
        match self {
            Self::Succeeded(_) => AttemptOutcome::Succeeded,
            Self::Failed(_) => AttemptOutcome::Failed,
            Self::TimedOut(_) => AttemptOutcome::TimedOut,
            Self::Cancelled => AttemptOutcome::Cancelled,
            Self::Released => AttemptOutcome::Released,
            Self::Snoozed(_) => AttemptOutcome::Snoozed,
        }
    }
}

/// Error text that every store accepts: at most 16 KiB, no NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorText {
    text: String,
    logged_bytes: usize,
}

impl ErrorText {
    /// Truncates text that is too long and replaces NUL, which PostgreSQL cannot store.
    pub fn new(text: impl AsRef<str>) -> Self {
        let text = cut(text.as_ref(), ERROR_MAX_BYTES);
        Self { logged_bytes: text.len(), text }
    }

    /// Adds text that is stored and not logged.
    pub fn unlogged(self, text: &str) -> Self {
        let text = cut(&format!("{}{text}", self.text), ERROR_MAX_BYTES);
        Self { logged_bytes: text.floor_char_boundary(self.logged_bytes), text }
    }

    /// The stored text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What may be logged of it.
    pub fn logged(&self) -> &str {
        &self.text[..self.logged_bytes]
    }
}

/// `text` in at most `max_bytes`, truncated between characters with an ellipsis; NUL, which PostgreSQL cannot store, is
/// replaced.
pub(super) fn cut(text: &str, max_bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    let clean = |text: &str| text.replace('\0', "\u{2400}");
    if text.len() <= max_bytes && !text.contains('\0') {
        return text.to_owned();
    }
    // Replacing can make the text longer, so it comes before cutting. Only a prefix can survive anyway; 4 bytes more
    // than fit are at least one character more, so that text which was cut is seen to be too long below.
    let text = clean(&text[..text.floor_char_boundary(max_bytes + 4)]);
    if text.len() <= max_bytes {
        return text;
    }
    format!("{}{ELLIPSIS}", &text[..text.floor_char_boundary(max_bytes - ELLIPSIS.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_is_cut_between_characters_and_marked() {
        let text = ErrorText::new("é".repeat(ERROR_MAX_BYTES));
        assert!(text.as_str().len() <= ERROR_MAX_BYTES);
        assert!(text.as_str().ends_with('…'));
        assert_eq!(ErrorText::new("short").as_str(), "short");
        let exact = "x".repeat(ERROR_MAX_BYTES);
        assert_eq!(ErrorText::new(&exact).as_str(), exact);
    }

    #[test]
    fn what_is_not_to_be_logged_is_stored_behind_what_is() {
        let text = ErrorText::new("HTTP 500").unlogged(": canary");
        assert_eq!((text.as_str(), text.logged()), ("HTTP 500: canary", "HTTP 500"));
        assert_eq!(ErrorText::new("all of it").logged(), "all of it");
        let long = ErrorText::new("é".repeat(ERROR_MAX_BYTES)).unlogged("canary");
        assert!(long.as_str().len() <= ERROR_MAX_BYTES && !long.as_str().contains("canary"));
        assert!(long.as_str().starts_with(long.logged()));
    }

    #[test]
    fn error_text_has_no_nul_and_stays_within_its_limit() {
        assert_eq!(ErrorText::new("a\0b").as_str(), "a␀b");
        let nuls = ErrorText::new("\0".repeat(ERROR_MAX_BYTES));
        assert!(nuls.as_str().len() <= ERROR_MAX_BYTES && !nuls.as_str().contains('\0'));
    }

    #[test]
    fn a_result_over_the_limit_becomes_a_permanent_failure_that_says_so() {
        let json = |n: usize| Json::parse(format!("\"{}\"", "x".repeat(n - 2))).unwrap();
        assert!(matches!(Outcome::succeeded(Some(json(RESULT_MAX_BYTES))), Outcome::Succeeded(Some(_))));
        let Outcome::Failed(failure) = Outcome::succeeded(Some(json(RESULT_MAX_BYTES + 1))) else { panic!() };
        assert!(failure.permanent && failure.error.as_str().contains("262145 bytes"));
    }
}
