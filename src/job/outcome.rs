//! What a worker reports when an attempt is over.

use std::time::Duration;

use super::limits::{ERROR_MAX_BYTES, RESULT_MAX_BYTES, SCHEDULE_HORIZON};
use super::{AttemptOutcome, Json};

/// How an attempt went, in the worker's words. What becomes of the job is for [`decide`](super::decide()) to say.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The work is done. Make it with [`Outcome::succeeded`], which minds the size of the result.
    Succeeded(Option<Json>),
    /// The work failed.
    Failed(Failure),
    /// The attempt ran past the job's `timeout_ms`.
    TimedOut(ErrorText),
    /// The handler stopped because cancellation was requested.
    Cancelled,
    /// Not finished and not at fault: back to the queue at once, the attempt given back.
    Released,
    /// Not now: start again after this long, the attempt given back.
    Snoozed(Duration),
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// What went wrong.
    pub error: ErrorText,
    /// Trying again cannot help.
    pub permanent: bool,
    /// Try again after exactly this long, instead of what the kind's retry policy draws.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure that may be retried.
    pub fn new(error: impl AsRef<str>) -> Self {
        Self { error: ErrorText::new(error), permanent: false, retry_after: None }
    }

    /// One that must not be retried.
    pub fn permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// One to be retried after exactly this long.
    pub fn retry_after(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.retry_after = wait.into();
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
                Self::Failed(Failure {
                    error: ErrorText::new(format!(
                        "the job did its work, but its result is {bytes} bytes and the limit is {RESULT_MAX_BYTES}: \
                         store large results elsewhere and return where they are"
                    )),
                    permanent: true,
                    retry_after: None,
                })
            }
            other => Self::Succeeded(other),
        }
    }

    /// A failure that may be retried.
    pub fn failed(error: impl AsRef<str>) -> Self {
        Self::Failed(Failure { error: ErrorText::new(error), permanent: false, retry_after: None })
    }

    /// A failure that must not be retried.
    pub fn failed_permanently(error: impl AsRef<str>) -> Self {
        Self::Failed(Failure { error: ErrorText::new(error), permanent: true, retry_after: None })
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

/// Error text fit to be stored anywhere: at most 16 KiB, no NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorText(String);

impl ErrorText {
    /// Cuts what is too long and replaces what a database would refuse.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self(cut(text.as_ref(), ERROR_MAX_BYTES))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `text` in at most `max_bytes`, cut between characters and marked so; NUL, which PostgreSQL cannot store, replaced.
pub(super) fn cut(text: &str, max_bytes: usize) -> String {
    const MARK: &str = "…";
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
    format!("{}{MARK}", &text[..text.floor_char_boundary(max_bytes - MARK.len())])
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
