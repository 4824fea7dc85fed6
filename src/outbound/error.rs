//! Why a call had no answer: a class to decide by, and a text for the job's record.
//!
//! The text names the stage that failed and never an address, a path or a query: what a name leads to is not the
//! caller's to know (S16, S42).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::target::NotATarget;

/// What a request is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Looking the name up.
    Dns,
    /// Opening a connection.
    Connect,
    /// Shaking hands.
    Tls,
    /// Sending the request, and waiting for the first byte of the answer.
    FirstByte,
    /// Reading the answer's body.
    Body,
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// The policy allows none of the addresses, or not the port.
    Refused,
    /// The URL is not one that can be called.
    NotATarget,
    /// The name could not be looked up.
    Dns,
    /// No address took the connection.
    Connect,
    /// No trusted encrypted connection came about.
    Tls,
    /// A stage took too long.
    Timeout(Stage),
    /// What came back is not an answer of HTTP/1.1.
    Protocol,
    /// The answer is longer than the caller can use.
    TooLarge,
}

/// A call without an answer that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct OutboundError {
    class: Class,
    text: Cow<'static, str>,
}

impl OutboundError {
    pub(super) fn new(class: Class, text: impl Into<Cow<'static, str>>) -> Self {
        Self { class, text: text.into() }
    }

    /// `timeout: no first byte within 30 s`. `within` is the limit of the stage, or of the whole call.
    pub(super) fn timeout(stage: Stage, within: Duration, of: TimeoutOf) -> Self {
        let missing = match stage {
            Stage::Dns => "no answer to the name's lookup",
            Stage::Connect => "no connection",
            Stage::Tls => "no end of the tls handshake",
            Stage::FirstByte => "no first byte",
            Stage::Body if of == TimeoutOf::Stage => "no further byte of the body",
            Stage::Body => "no end of the body",
        };
        let whole = if of == TimeoutOf::Call { " in all" } else { "" };
        Self::new(Class::Timeout(stage), format!("timeout: {missing} within {}{whole}", Seconds(within)))
    }

    /// What failed.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether the same request would fail the same way again. A name comes back and a certificate is renewed; a
    /// target that is refused stays so until an operator changes the settings.
    pub fn is_permanent(&self) -> bool {
        matches!(self.class, Class::Refused | Class::NotATarget | Class::TooLarge)
    }
}

impl From<NotATarget> for OutboundError {
    fn from(error: NotATarget) -> Self {
        Self::new(Class::NotATarget, error.to_string())
    }
}

/// Whose limit has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutOf {
    Stage,
    Call,
}

/// `5 s`, `0.25 s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", (self.0.as_secs_f64() * 1000.0).round() / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_its_stage_and_its_limit() {
        let stage = OutboundError::timeout(Stage::FirstByte, Duration::from_secs(30), TimeoutOf::Stage);
        assert_eq!(stage.to_string(), "timeout: no first byte within 30 s");
        assert_eq!(stage.class(), Class::Timeout(Stage::FirstByte));
        let call = OutboundError::timeout(Stage::Body, Duration::from_millis(250), TimeoutOf::Call);
        assert_eq!(call.to_string(), "timeout: no end of the body within 0.25 s in all");
    }

    #[test]
    fn only_what_no_retry_can_help_is_permanent() {
        let is_permanent = |class| OutboundError::new(class, "").is_permanent();
        assert!([Class::Refused, Class::NotATarget, Class::TooLarge].into_iter().all(is_permanent));
        let retried = [Class::Dns, Class::Connect, Class::Tls, Class::Timeout(Stage::Dns), Class::Protocol];
        assert!(!retried.into_iter().any(is_permanent));
    }
}
