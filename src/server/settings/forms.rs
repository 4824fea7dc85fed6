//! The forms that values of settings can have.

use std::fmt::{Debug, Display};
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use super::database_url::{holds_password, without_password};
use super::setting::Form;
use crate::job::QueueName;

/// 16 characters: short enough for a person in a hurry, too long to be guessed over a network that slows guessing.
const TOKEN_MIN_CHARS: usize = 16;
/// 512, as much as the API reads.
const TOKEN_MAX_CHARS: usize = 512;
/// 100 years: a longer retention is a unit mistake.
const SPAN_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A name.
#[derive(Debug)]
pub(super) struct Text;

impl Form for Text {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        (!text.trim().is_empty()).then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        "a name".into()
    }
}

/// The path of a file.
#[derive(Debug)]
pub(super) struct FilePath;

impl Form for FilePath {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        Text.parse(text)
    }

    fn allowed(&self) -> String {
        "the path of a file".into()
    }
}

/// Where jobs live; it may hold a password.
#[derive(Debug)]
pub(super) struct DatabaseUrl;

impl Form for DatabaseUrl {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let known = ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        known.then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        "sqlite://FILE or postgres://USER@HOST/DATABASE".into()
    }

    fn shown(&self, text: &str) -> String {
        without_password(text)
    }

    fn is_secret(&self) -> bool {
        true
    }

    fn refused_as_flag(&self, text: &str) -> bool {
        holds_password(text)
    }
}

/// `127.0.0.1:8080`.
#[derive(Debug)]
pub(super) struct SocketAddress;

impl Form for SocketAddress {
    type Value = SocketAddr;

    fn parse(&self, text: &str) -> Option<SocketAddr> {
        text.parse().ok()
    }

    fn allowed(&self) -> String {
        "an IP address and a port, like 127.0.0.1:8080".into()
    }
}

/// An address, or `None` for `off`.
#[derive(Debug)]
pub(super) struct AddressOrOff;

impl Form for AddressOrOff {
    type Value = Option<SocketAddr>;

    fn parse(&self, text: &str) -> Option<Option<SocketAddr>> {
        if text == "off" { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn allowed(&self) -> String {
        "an IP address and a port, like 127.0.0.1:9091, or off".into()
    }
}

/// A number of things.
#[derive(Debug)]
pub(super) struct Number<T> {
    pub(super) min: T,
    pub(super) max: T,
}

impl<T: FromStr + PartialOrd + Display + Debug + Sync + 'static> Form for Number<T> {
    type Value = T;

    fn parse(&self, text: &str) -> Option<T> {
        text.parse().ok().filter(|number| (&self.min..=&self.max).contains(&number))
    }

    fn allowed(&self) -> String {
        format!("a whole number from {} to {}", self.min, self.max)
    }
}

/// A number of jobs at the same time; unset: 4 × cores.
#[derive(Debug)]
pub(super) struct Concurrency {
    pub(super) max: usize,
}

impl Form for Concurrency {
    type Value = usize;

    fn parse(&self, text: &str) -> Option<usize> {
        Number { min: 1, max: self.max }.parse(text)
    }

    fn allowed(&self) -> String {
        Number { min: 1, max: self.max }.allowed()
    }

    fn unset(&self) -> (String, &'static str) {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        (format!("{} (4 × {cores} cores)", 4 * cores), "4 × cores")
    }
}

/// A number of milliseconds.
#[derive(Debug)]
pub(super) struct Millis {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Form for Millis {
    type Value = Duration;

    fn parse(&self, text: &str) -> Option<Duration> {
        Number { min: self.min, max: self.max }.parse(text).map(Duration::from_millis)
    }

    fn allowed(&self) -> String {
        format!("a whole number of milliseconds from {} to {}", self.min, self.max)
    }

    fn documented(&self, default: &str) -> String {
        format!("`{default}` ms")
    }
}

/// `7d`, `12h`, `30m`, `90s`.
#[derive(Debug)]
pub(super) struct Span;

impl Form for Span {
    type Value = Duration;

    fn parse(&self, text: &str) -> Option<Duration> {
        span(text)
    }

    fn allowed(&self) -> String {
        "a time with its unit, like 7d, 12h, 30m or 90s".into()
    }
}

/// `https://jobs.example.com`, perhaps with a path.
#[derive(Debug)]
pub(super) struct WebAddress;

impl Form for WebAddress {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        #[cfg(feature = "api")]
        let fine = text.parse::<crate::api::PublicUrl>().is_ok();
        // Nobody uses it then.
        #[cfg(not(feature = "api"))]
        let fine = text.starts_with("http://") || text.starts_with("https://");
        fine.then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        "http:// or https://, a host, and perhaps a port and a path".into()
    }
}

/// One of a few words, each with what it stands for.
#[derive(Debug)]
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + Debug + Sync> Form for Choice<T> {
    type Value = T;

    fn parse(&self, text: &str) -> Option<T> {
        self.0.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
    }

    fn allowed(&self) -> String {
        self.0.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ")
    }
}

/// `true` or `false`.
pub(super) const SWITCH: &Choice<bool> = &Choice(&[("true", true), ("false", false)]);
pub(super) const ON_OFF: &Choice<bool> = &Choice(&[("on", true), ("off", false)]);

/// Names with commas between them.
#[derive(Debug)]
pub(super) struct Names;

impl Form for Names {
    type Value = Vec<QueueName>;

    fn parse(&self, text: &str) -> Option<Vec<QueueName>> {
        text.split(',').map(|name| QueueName::new(name.trim()).ok()).collect()
    }

    fn allowed(&self) -> String {
        "names of a-z 0-9 _ . : - with commas between them".into()
    }
}

/// What is logged.
#[derive(Debug)]
pub(super) struct LogFilter;

impl Form for LogFilter {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let fine = tracing_subscriber::EnvFilter::builder().parse(text).is_ok() && !text.is_empty();
        fine.then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        "a level (error, warn, info, debug, trace, off) or a filter like info,steadfast=debug".into()
    }
}

/// A secret.
#[derive(Debug)]
pub(super) struct TokenText;

impl Form for TokenText {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let fine =
            (TOKEN_MIN_CHARS..=TOKEN_MAX_CHARS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        fine.then(|| text.to_owned())
    }

    fn allowed(&self) -> String {
        format!("{TOKEN_MIN_CHARS} to {TOKEN_MAX_CHARS} printable characters without spaces")
    }

    fn shown(&self, _: &str) -> String {
        "(secret)".into()
    }

    fn is_secret(&self) -> bool {
        true
    }
}

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
    use super::super::setting::AnyForm;
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
        let refused: [(&dyn AnyForm, &str); 9] = [
            (&SocketAddress, "localhost:80"),
            (&Millis { min: 10, max: 20 }, "9"),
            (&Millis { min: 10, max: 20 }, "1e1"),
            (SWITCH, "yes"),
            (&TokenText, "short"),
            (&TokenText, "has spaces in the middle"),
            (&Names, "a,,b"),
            (&LogFilter, "steadfast=loud"),
            (&DatabaseUrl, "mysql://x"),
        ];
        for (form, bad) in refused {
            assert!(!form.allows(bad), "{form:?} {bad}");
        }
    }
}
