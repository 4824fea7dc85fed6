//! Parsers for the values of command line arguments.

use std::time::Duration;

use jiff::Timestamp;

use crate::server::settings::span;

/// `90s`, `5m`, `2h`, `1d`; also `250ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let millis = text.strip_suffix("ms").and_then(|number| number.parse().ok()).map(Duration::from_millis);
    millis.or_else(|| span(text)).ok_or_else(|| "use a number and its unit, like 250ms, 90s, 5m, 2h or 1d".into())
}

/// A point in time with its zone.
pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        "use a date and time with its zone, like 2030-01-01T09:00:00Z or 2030-01-01T09:00:00+01:00; \
         for a time from now use --delay, like --delay 1d"
            .into()
    })
}

/// A point in the past or future with its zone.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let reason = "use a date and time with its zone, like 2030-01-01T09:00:00Z or 2030-01-01T09:00:00+01:00";
    text.parse().map_err(|_| reason.into())
}

/// A job's id. Checked here, so that it can stand in a path.
pub(super) fn job_id(text: &str) -> Result<String, String> {
    text.parse::<uuid::Uuid>().map(|id| id.to_string()).map_err(|_| "a job's id is a UUID".into())
}

/// An operation's id.
pub(super) fn operation_id(text: &str) -> Result<String, String> {
    text.parse::<uuid::Uuid>().map(|id| id.to_string()).map_err(|_| "an operation's id is a UUID".into())
}

/// The name of a kind or a queue. Checked here, so that it can stand in a path.
pub(super) fn name(text: &str) -> Result<String, String> {
    crate::job::QueueName::new(text).map(|name| name.to_string()).map_err(|_| "use 1 to 64 of a-z 0-9 _ . : -".into())
}

/// The fingerprint of a group of errors. Checked here, so that it can stand in a path.
pub(super) fn fingerprint(text: &str) -> Result<String, String> {
    text.parse::<crate::job::Fingerprint>().map(|it| it.to_string()).map_err(|error| error.to_string())
}

/// A token's id.
pub(super) fn token_id(text: &str) -> Result<String, String> {
    let fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fine { Ok(text.to_owned()) } else { Err("a token's id is what stands before its dot".into()) }
}

/// JSON text, kept as it is written.
pub(super) fn json(text: &str) -> Result<String, String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A limit, or `none` to take it away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given<T> {
    Value(T),
    None,
}

/// Starts in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) limit: u64,
    pub(super) per_ms: u64,
}

/// A number or `none`. Its range is the server's to check.
pub(super) fn limit(text: &str) -> Result<Given<u64>, String> {
    match text {
        "none" => Ok(Given::None),
        _ => text.parse().map(Given::Value).map_err(|_| "use a whole number, or none".into()),
    }
}

/// `100/s`, `20/m`, `5/h`, `1/d`, `10/250ms`, `6/30s` or `none`.
pub(super) fn rate(text: &str) -> Result<Given<Rate>, String> {
    if text == "none" {
        return Ok(Given::None);
    }
    let parsed = text.split_once('/').and_then(|(limit, period)| {
        let digits = !limit.is_empty() && limit.bytes().all(|byte| byte.is_ascii_digit());
        let limit = digits.then(|| limit.parse().ok()).flatten()?;
        let one = if period.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "1" };
        let period = if period == "min" { "m" } else { period };
        let per_ms = duration(&format!("{one}{period}")).ok()?.as_millis() as u64;
        Some(Given::Value(Rate { limit, per_ms }))
    });
    parsed.ok_or_else(|| "use starts in a period, like 100/s, 20/m, 5/h or 10/250ms, or none".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_starts_in_a_period() {
        let parsed = |text| rate(text).ok();
        let is = |limit, per_ms| Some(Given::Value(Rate { limit, per_ms }));
        assert_eq!(parsed("100/s"), is(100, 1_000));
        assert_eq!((parsed("20/m"), parsed("20/min")), (is(20, 60_000), is(20, 60_000)));
        assert_eq!((parsed("5/h"), parsed("1/d")), (is(5, 3_600_000), is(1, 86_400_000)));
        assert_eq!((parsed("10/250ms"), parsed("6/30s")), (is(10, 250), is(6, 30_000)));
        assert_eq!(parsed("none"), Some(Given::None));
        for bad in ["", "100", "/s", "100/", "100/w", "-1/s", "1.5/s", "a/s", "1/s/s", "+1/s"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
