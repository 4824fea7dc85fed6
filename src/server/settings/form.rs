//! What the values of settings look like: which are allowed, and how they are shown.

use std::net::SocketAddr;
use std::time::Duration;

use super::database_url::without_password;
use crate::job::QueueName;
use crate::server::out::visible;

/// 16 characters: short enough for a person in a hurry, too long to be guessed over a network that slows guessing.
const TOKEN_MIN_CHARS: usize = 16;
/// 512, as much as the API reads.
const TOKEN_MAX_CHARS: usize = 512;
/// 100 years: a longer retention is a unit mistake.
const SPAN_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The shape of a value.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) enum Form {
    Text,
    Path,
    DatabaseUrl,
    Address,
    AddressOrOff,
    /// A number of things.
    Whole {
        min: u64,
        max: u64,
    },
    /// A number of jobs at the same time; unset: 4 × cores.
    Concurrency {
        max: u64,
    },
    /// A number of milliseconds.
    Millis {
        min: u64,
        max: u64,
    },
    /// `7d`, `12h`, `30m`, `90s`.
    Span,
    OneOf(&'static [&'static str]),
    Switch,
    /// Names with commas between them.
    Names,
    LogFilter,
    /// A secret.
    Token,
}

impl Form {
    /// What is allowed, in words that follow "use".
    pub(in crate::server) fn allowed(self) -> String {
        match self {
            Self::Text => "a name".into(),
            Self::Path => "the path of a file".into(),
            Self::DatabaseUrl => "sqlite://FILE or postgres://USER@HOST/DATABASE".into(),
            Self::Address => "an IP address and a port, like 127.0.0.1:8080".into(),
            Self::AddressOrOff => "an IP address and a port, like 127.0.0.1:9091, or off".into(),
            Self::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Self::Concurrency { max } => format!("a whole number from 1 to {max}"),
            Self::Millis { min, max } => format!("a whole number of milliseconds from {min} to {max}"),
            Self::Span => "a time with its unit, like 7d, 12h, 30m or 90s".into(),
            Self::OneOf(words) => words.join(" or "),
            Self::Switch => "true or false".into(),
            Self::Names => "names of a-z 0-9 _ . : - with commas between them".into(),
            Self::LogFilter => {
                "a level (error, warn, info, debug, trace, off) or a filter like info,steadfast=debug".into()
            }
            Self::Token => format!("{TOKEN_MIN_CHARS} to {TOKEN_MAX_CHARS} printable characters without spaces"),
        }
    }

    /// In what the value is counted; empty if it is not.
    pub(in crate::server) fn unit(self) -> &'static str {
        match self {
            Self::Millis { .. } => "ms",
            Self::Span => "d, h, m, s",
            Self::Concurrency { .. } => "jobs",
            _ => "",
        }
    }

    /// Refuses what is not allowed.
    pub(in crate::server) fn check(self, text: &str) -> Result<(), NotAllowed> {
        let within = |min, max| text.parse::<u64>().is_ok_and(|number| (min..=max).contains(&number));
        let fine = match self {
            Self::Text | Self::Path => !text.trim().is_empty(),
            Self::DatabaseUrl => {
                ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme))
            }
            Self::Address => text.parse::<SocketAddr>().is_ok(),
            Self::AddressOrOff => text == "off" || text.parse::<SocketAddr>().is_ok(),
            Self::Whole { min, max } | Self::Millis { min, max } => within(min, max),
            Self::Concurrency { max } => within(1, max),
            Self::Span => span(text).is_some(),
            Self::OneOf(words) => words.contains(&text),
            Self::Switch => matches!(text, "true" | "false"),
            Self::Names => text.split(',').all(|name| QueueName::new(name.trim()).is_ok()),
            Self::LogFilter => tracing_subscriber::EnvFilter::builder().parse(text).is_ok() && !text.is_empty(),
            Self::Token => {
                (TOKEN_MIN_CHARS..=TOKEN_MAX_CHARS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
            }
        };
        if fine { Ok(()) } else { Err(NotAllowed) }
    }

    /// The value as it may be shown to anybody.
    pub(in crate::server) fn shown(self, text: &str) -> String {
        match self {
            Self::Token => "(secret)".into(),
            Self::DatabaseUrl => without_password(text),
            _ => visible(text),
        }
    }
}

/// It is not one of the allowed values.
#[derive(Debug)]
pub(in crate::server) struct NotAllowed;

/// `7d`, `12h`, `30m`, `90s`.
pub(in crate::server) fn span(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        'd' => 24 * 3600,
        'h' => 3600,
        'm' => 60,
        's' => 1,
        _ => return None,
    };
    let number = text.strip_suffix(unit)?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let span = Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(seconds)?);
    (span <= SPAN_MAX).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_number_and_a_unit() {
        assert_eq!(span("7d"), Some(Duration::from_secs(7 * 86_400)));
        assert_eq!(span("12h"), Some(Duration::from_secs(43_200)));
        assert_eq!(span("30m"), Some(Duration::from_secs(1_800)));
        assert_eq!(span("90s"), Some(Duration::from_secs(90)));
        for bad in ["", "7", "d", "7 d", "-7d", "+7d", "1.5h", "7w", "99999999999999999999s", "40000d"] {
            assert_eq!(span(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused() {
        for (form, bad) in [
            (Form::Address, "localhost:80"),
            (Form::Millis { min: 10, max: 20 }, "9"),
            (Form::Millis { min: 10, max: 20 }, "1e1"),
            (Form::Switch, "yes"),
            (Form::Token, "short"),
            (Form::Token, "has spaces in the middle"),
            (Form::Names, "a,,b"),
            (Form::LogFilter, "steadfast=loud"),
            (Form::DatabaseUrl, "mysql://x"),
        ] {
            assert!(form.check(bad).is_err(), "{form:?} {bad}");
        }
    }
}
