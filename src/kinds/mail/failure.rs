//! What a failed SMTP dialogue means for the job: which failures are retried, which are final, and which are the operator's.
//!
//! The same reply means different things at different stages, so a failure always carries its stage. Texts hold the stage
//! and the server's reply, cut short; never the server's address.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::Duration;

use lettre::transport::smtp::Error;

use super::settings::OnAmbiguous;
use crate::worker::JobError;

/// 60 s: servers that greylist refuse everybody new for about that long.
const GREYLISTING: Duration = Duration::from_secs(60);

/// 300 characters of a reply: a code, a reason, and a link.
const REPLY_MAX_CHARS: usize = 300;

/// How far the dialogue came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Connection, greeting, EHLO; TLS, if it is there from the start.
    Connect,
    /// STARTTLS, the handshake, EHLO again.
    StartTls,
    /// AUTH.
    Login,
    /// MAIL FROM.
    Sender,
    /// RCPT TO.
    Recipient,
    /// DATA, up to the server's go-ahead.
    Data,
    /// The mail, and the answer to it.
    Content,
}

impl Stage {
    /// Before there is a mail to talk about: a refusal is about the settings, not about the mail.
    fn is_setup(self) -> bool {
        self <= Self::Login
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::StartTls => "starttls",
            Self::Login => "login",
            Self::Sender => "sender",
            Self::Recipient => "recipient",
            Self::Data => "data",
            Self::Content => "content",
        })
    }
}

/// Why a stage failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// The server refused, with this code and text.
    Refused(u16, String),
    /// No answer: a timeout, a closed connection, or something that is not SMTP.
    NoAnswer(String),
    /// TLS failed, or the server does not offer what the settings or the mail need.
    NotPossible(String),
}

/// A dialogue that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) stage: Stage,
    pub(super) cause: Cause,
}

/// What becomes of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Retry,
    /// Not before [`GREYLISTING`].
    RetryLater,
    /// The settings are wrong, not the mail.
    RetryAndAlarm,
    Permanent,
    /// The server has the whole mail and may deliver it.
    Ambiguous,
}

impl Failed {
    pub(super) fn new(stage: Stage, cause: Cause) -> Self {
        Self { stage, cause }
    }

    pub(super) fn timed_out(stage: Stage, after: Duration) -> Self {
        Self::new(stage, Cause::NoAnswer(format!("no answer within {} s", after.as_secs_f32())))
    }

    pub(super) fn of_io(stage: Stage, error: &io::Error) -> Self {
        // Only the kind: the text may hold an address.
        Self::new(stage, Cause::NoAnswer(error.kind().to_string()))
    }

    pub(super) fn of(stage: Stage, error: &Error) -> Self {
        let source = error.source().map(ToString::to_string).unwrap_or_default();
        if let Some(code) = error.status() {
            return Self::new(stage, Cause::Refused(code.into(), shown(&source)));
        }
        if error.is_client() || error.is_tls() {
            return Self::new(stage, Cause::NotPossible(shown(&source)));
        }
        let mut cause = error.source();
        while let Some(inner) = cause {
            match inner.downcast_ref::<io::Error>() {
                // How TLS errors look; one says which certificate it does not like.
                Some(tls) if tls.kind() == io::ErrorKind::InvalidData => {
                    return Self::new(stage, Cause::NotPossible(shown(&tls.to_string())));
                }
                Some(error) => return Self::of_io(stage, error),
                None => cause = inner.source(),
            }
        }
        let text =
            if error.is_response() { "the connection closed, or the answer is not SMTP" } else { "no connection" };
        Self::new(stage, Cause::NoAnswer(text.into()))
    }

    pub(super) fn verdict(&self) -> Verdict {
        match (&self.cause, self.stage) {
            // "Log in first", "use TLS first" and the like: servers say so to MAIL, too.
            (Cause::Refused(530 | 534 | 535 | 538, _), stage) if stage < Stage::Content => Verdict::RetryAndAlarm,
            (Cause::Refused(code, _), stage) if stage.is_setup() => {
                if *code < 500 {
                    Verdict::Retry
                } else {
                    Verdict::RetryAndAlarm
                }
            }
            (Cause::Refused(code, _), _) if *code >= 500 => Verdict::Permanent,
            (Cause::Refused(..), Stage::Content) => Verdict::Retry,
            (Cause::Refused(..), _) => Verdict::RetryLater,
            (Cause::NoAnswer(_) | Cause::NotPossible(_), Stage::Content) => Verdict::Ambiguous,
            (Cause::NoAnswer(_), _) => Verdict::Retry,
            (Cause::NotPossible(_), stage) if stage.is_setup() => Verdict::RetryAndAlarm,
            (Cause::NotPossible(_), _) => Verdict::Permanent,
        }
    }

    /// The job's error.
    pub(super) fn into_job_error(self, on_ambiguous: OnAmbiguous) -> JobError {
        match self.verdict() {
            Verdict::Retry | Verdict::RetryAndAlarm => JobError::new(self),
            Verdict::RetryLater => JobError::new(self).retry_no_sooner_than(GREYLISTING),
            Verdict::Permanent => JobError::permanent(self),
            Verdict::Ambiguous => match on_ambiguous {
                OnAmbiguous::Retry => JobError::new(format!(
                    "{self}; the mail may have been accepted, and a retry has the same Message-ID"
                )),
                OnAmbiguous::Fail => JobError::permanent(format!(
                    "{self}; the mail may have been accepted, so it is not sent again: redrive the job if it has not arrived"
                )),
            },
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "smtp {}: ", self.stage)?;
        match &self.cause {
            Cause::Refused(code, text) if text.is_empty() => write!(f, "{code}"),
            Cause::Refused(code, text) => write!(f, "{code} {text}"),
            Cause::NoAnswer(text) | Cause::NotPossible(text) => f.write_str(text),
        }
    }
}

/// A server's words, in one line and not too many.
pub(super) fn shown(text: &str) -> String {
    let clean = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(REPLY_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 7] =
        [Stage::Connect, Stage::StartTls, Stage::Login, Stage::Sender, Stage::Recipient, Stage::Data, Stage::Content];

    fn verdicts(cause: &Cause) -> [Verdict; 7] {
        STAGES.map(|stage| Failed::new(stage, cause.clone()).verdict())
    }

    #[test]
    fn f47_what_a_failure_means_depends_on_the_stage() {
        use Verdict::{Ambiguous, Permanent, Retry, RetryAndAlarm, RetryLater};
        let refused = |code| verdicts(&Cause::Refused(code, String::new()));
        assert_eq!(refused(421), [Retry, Retry, Retry, RetryLater, RetryLater, RetryLater, Retry]);
        assert_eq!(refused(451), [Retry, Retry, Retry, RetryLater, RetryLater, RetryLater, Retry]);
        let [alarm, permanent] = [RetryAndAlarm, Permanent];
        assert_eq!(refused(550), [alarm, alarm, alarm, permanent, permanent, permanent, permanent]);
        for code in [530, 534, 535, 538] {
            assert_eq!(refused(code), [alarm, alarm, alarm, alarm, alarm, alarm, permanent], "{code}");
        }
        let silent = verdicts(&Cause::NoAnswer(String::new()));
        assert_eq!(silent, [Retry, Retry, Retry, Retry, Retry, Retry, Ambiguous]);
        let not_possible = verdicts(&Cause::NotPossible(String::new()));
        assert_eq!(not_possible, [alarm, alarm, alarm, permanent, permanent, permanent, Ambiguous]);
    }

    #[test]
    fn replies_are_shown_in_one_line_and_cut_short() {
        assert_eq!(shown(" 5.1.1\r\nno\tsuch user "), "5.1.1  no such user");
        assert_eq!(shown(&"ü".repeat(1000)).chars().count(), REPLY_MAX_CHARS);
    }
}
